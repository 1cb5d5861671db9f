import random

import pytest

from perfci.report import text
from perfci.report.html import markup
from perfci.report.view import Table


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ("plain words", "plain words"),
        (text.phrase("**Fails**: {what}", what="**1** *x*"), "<strong>Fails</strong>: **1** *x*"),
        (text.phrase("*Change* is a ratio"), "<em>Change</em> is a ratio"),
        ("`a<b> & c`", "<code>a&lt;b&gt; &amp; c</code>"),
        (text.code("a`<b>`"), "<code>a`&lt;b&gt;`</code>"),
        ("<script>", "&lt;script&gt;"),
        ("\" onmouseover='x'", "&quot; onmouseover=&#x27;x&#x27;"),
        ("&quot;", "&amp;quot;"),
        (f"{text.STRONG}open", "<strong>open</strong>"),
        (f"{text.STRONG}a {text.EMPHASIS}b{text.STRONG}", "<strong>a <em>b</em></strong>"),
    ],
)
def test_a_views_text_becomes_html(shown, expected):
    assert markup.inline(shown).source == expected


@pytest.mark.parametrize("seed", range(50))
def test_foreign_text_reads_as_it_was_and_opens_no_element_but_code(parse, seed):
    rng = random.Random(seed)
    foreign = "".join(rng.choices("ab<>&\"'*_[]()!|~#@$ =:+-.1/\\`\ue000\ue001\ue002", k=60)).strip()

    found = parse(markup.inline(text.plain(foreign)).source)

    assert found.text.replace("`", "") == text.plain(foreign).replace("`", "")
    assert {node.name for node in found.all()} <= {"code"}
    assert all(not node.attributes for node in found.all())


def test_a_long_case_in_a_cell_may_go_on_in_the_next_line_and_a_sentence_is_left_alone():
    found = markup.grid(Table(("case", "why"), ((text.code("rows=1,cols=2"), "slower, by much"),), frozenset({1})))

    assert [cell.source for cell in found.rows[0]] == ["<code>rows=1,<wbr>cols=2</code>", "slower, by much"]
    assert found.right == {1} and not found.folded
