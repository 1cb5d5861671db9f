import random

import pytest

from perfci.extensions.common.markup import code, inline
from perfci.report import text

ACTIVE = [
    "@all",
    "@_x",
    "@.hidden",
    "x @group/sub-group",
    "x@y.example",
    "#1",
    "group/project#1",
    "!2",
    "$3",
    "&4",
    "%5",
    '%"next release"',
    '~"a label"',
    "~bug",
    "^alert#6",
    '*iteration:"now"',
    "[issue:7]",
    "[vulnerability:8]",
    "[feature_flag:group/project/9]",
    "[[page]]",
    "[[_TOC_]]",
    "[TOC]",
    "[^note]",
    "{+ added +}",
    "[- gone -]",
    "{- gone -}",
    "[+ added +]",
    ":tada:",
    ":white_check_mark:",
    ":+1:",
    ":_x:",
    "deadbeef",
    "0123456789abcdef0123456789abcdef01234567",
    "DEADBEEF...cafebabe",
    "xdeadbeefx",
    "JIRA-123",
    "A_B-1",
    "group/project>",
    "%{project_path}",
    "http://evil.example/x.png",
    "www.evil.example",
    "mailto:x@y.example",
    "![x](http://evil.example/x.png)",
    "[x](y)",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<!-- x -->",
    "&#64;all",
    "&lt;b&gt;",
    "[ ] task",
    "[x] task",
    "- [x] task",
    "/close",
    "**bold** _it_ ~~gone~~",
    "a|b",
    "`code` ``more`` ```",
    "`#F00`",
    "`rgb(1,2,3)`",
    "$`x`$",
    "$$x$$",
    "$(x)$",
    "costs $5 or $6",
    "`$x$",
    "owner/repo#7",
    "GH-12",
    "@dependabot merge",
    "\\@all \\#1 \\\\!2",
    "\\`@all`",
    "`\\` @all `",
    "> [!note]",
    "::include{file=secret}",
    "-->",
    "\n/close\n",
    "\u2028/close",
    "\r\n@all",
    "\uff20all",
]


@pytest.mark.parametrize("foreign", ACTIVE)
def test_nothing_of_a_text_becomes_anything_in_gitlab_or_github(reader, foreign):
    assert reader.findings(f"- seen: {inline(foreign)}") == []
    assert reader.findings(f"- seen: {code(foreign)}") == []
    table = f"| a | b |\n| - | - |\n| {code(foreign)} | {inline(foreign)} |"
    assert reader.findings(table) == []
    assert reader.read(table).addresses == []


@pytest.mark.parametrize("foreign", [name for name in ACTIVE if "`" not in name])
def test_a_text_is_read_as_it_is(reader, foreign):
    assert reader.seen(inline(foreign)) == text.plain(foreign)


def test_any_mixture_is_harmless_and_read_as_it_is(reader):
    rng = random.Random(5)
    for _ in range(500):
        mixed = "".join(rng.choice([*ACTIVE, " ", "a", "_", "\\", "`", '"']) for _ in range(rng.randint(1, 6)))
        shown = inline(mixed)
        assert reader.findings(f"- seen: {shown}") == [], mixed
        if "`" not in mixed:
            assert reader.seen(shown) == text.plain(mixed)


@pytest.mark.parametrize("name", ["a::x", "`:tada", "a|:+1", "`@al"])
def test_what_follows_a_name_ends_nothing_that_the_name_began(reader, name):
    assert reader.findings(f"- {code(name)}: slower") == []


@pytest.mark.parametrize(
    "sentence",
    [
        "It is 4.1 % slower (16.7 us, was 16.0 us), side by side in 24 blocks; 1.5 % is allowed.",
        "Set reports in pyproject.toml: see docs/runners.md, and run `perfci doctor`.",
        "head_dim=128, my_kernel at 12:30",
    ],
)
def test_ordinary_sentences_stay_as_they_are(sentence):
    assert inline(sentence) == sentence
