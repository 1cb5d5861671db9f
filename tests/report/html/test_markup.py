import random

import pytest

from perfci.report import text
from perfci.report.html import markup


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("plain words", "plain words"),
        ("**Fails**: 1 REGRESSED", "<strong>Fails</strong>: 1 REGRESSED"),
        ("*Change* is a ratio", "<em>Change</em> is a ratio"),
        ("`a<b> & c`", "<code>a&lt;b&gt; &amp; c</code>"),
        ("&lt;script&gt; &amp; @&#8203;all", "&lt;script&gt; &amp; @all"),
        ("\\*not\\* \\[a link\\]\\_", "*not* [a link]_"),
        ("<script>", "&lt;script&gt;"),
        ("\" onmouseover='x'", "&quot; onmouseover=&#x27;x&#x27;"),
        ("&quot;", "&amp;quot;"),
        ("**open", "<strong>open</strong>"),
        ("**a *b** c*", "<strong>a <em>b</em></strong> c<em></em>"),
    ],
)
def test_our_own_markdown_becomes_html_and_nothing_else_does(markdown, expected):
    assert markup.inline(markdown).source == expected


@pytest.mark.parametrize("seed", range(200))
def test_whatever_comes_is_text_or_one_of_three_elements(parse, seed):
    rng = random.Random(seed)
    pieces = ["<", ">", "&", '"', "'", "`", "*", "**", "\\", "a", " ", "&lt;", "&#8203;", "<b ", "</code>", "]", "="]
    found = parse(markup.inline("".join(rng.choices(pieces, k=40))).source)

    assert {node.name for node in found.all()} <= {"strong", "em", "code"}
    assert all(not node.attributes for node in found.all())


@pytest.mark.parametrize("seed", range(100))
def test_foreign_text_reads_as_it_was(parse, seed):
    rng = random.Random(seed)
    foreign = "".join(rng.choices("ab<>&\"'*_[]()!|~#@$ =:+-.1/\\", k=60)).strip()

    assert parse(markup.inline(text.inline(foreign)).source).text == text.plain(foreign)


def test_a_fenced_block_is_given_without_its_fence():
    assert markup.fenced(text.block("perfci check\n```\n<b>")) == "perfci check\n```\n<b>"


def test_spoken_keeps_only_the_backticks_of_code():
    assert markup.spoken("**now** `perfci show`, \\*x\\* &lt;b&gt; @&#8203;all") == "now `perfci show`, *x* <b> @all"


def test_a_table_knows_its_columns_of_numbers():
    found = markup.grid(markup.Table(("case", "time"), (("`a`", "4.93 us"),), frozenset({"time"})))

    assert found.right == {1}
    assert [cell.source for cell in found.rows[0]] == ["<code>a</code>", "4.93 us"]
    assert not found.folded


def test_a_long_case_in_a_cell_may_go_on_in_the_next_line_and_a_sentence_is_left_alone():
    found = markup.grid(markup.Table(("case", "why"), (("`rows=1,cols=2`", "slower, by `a<b,c`"),), frozenset()))

    assert [cell.source for cell in found.rows[0]] == [
        "<code>rows=1,<wbr>cols=2</code>",
        "slower, by <code>a&lt;b,<wbr>c</code>",
    ]
