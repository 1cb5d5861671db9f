import re

import pytest
from markdown_it import MarkdownIt

from perfci.report import markdown, text

HTML = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def write_code(name):
    return markdown.write(text.code(name))


def shown(markdown):
    """What a reader sees of one table cell."""
    rendered = HTML.render(f"| a | b |\n| - | - |\n| x | {markdown} |")
    cell = rendered.split("<td>")[2].split("</td>")[0]
    return (
        cell.replace("\u200b", "")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", '"')
        .replace("&amp;", "&")
    )


@pytest.mark.parametrize(
    "hostile",
    [
        "a|b",
        "a\\|b",
        "`` a`",
        "**bold** _it_ __init__",
        "<script>alert(1)</script>",
        "![x](http://evil)",
        "[y](z)",
        "[y][z]",
        "<http://evil>",
        "@all",
        "#1 !2 ~bug $x$ %3",
        "~~gone~~",
        "&lt; &#64;all",
        "\\",
        "- item",
        "1. item",
        "1) x",
        "# heading",
        "+ x",
        "====",
        "---",
        "<!-- x -->",
        "$`x`$",
        "a\\",
        "www.evil.example",
        "x@y.example",
        "http://a.b/c_d_e",
    ],
)
def test_escaped_text_is_shown_as_it_is(hostile):
    assert shown(markdown.write(hostile)) == hostile


def test_snake_case_names_stay_readable():
    assert markdown.write("head_dim=128, my_kernel") == "head_dim=128, my_kernel"


def test_commands_between_backticks_stay_code():
    assert markdown.write("Run `perfci list --op '*'` now.") == "Run `perfci list --op '*'` now."


@pytest.mark.parametrize(
    ("raw", "seen"),
    [
        ("`<b>` @all", "<code><b></code> @all"),
        ("``x`y`", "``x<code>y</code>"),
        ("`a|b`", "`a|b`"),
        ("`c\\`", "`c\\`"),
        ("$`x`$", "$`x`$"),
    ],
)
def test_code_holds_nothing_that_could_break_out(raw, seen):
    assert shown(markdown.write(raw)) == seen


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("a\nb\r\nc\td", "a b c d"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]8;;http://evil\x07link\x1b]8;;\x07", "link"),
        ("nul\x00bell\x07", "nulbell"),
        ("\u202egnp.exe", "gnp.exe"),
        ("zero\u200bwidth", "zerowidth"),
        ("lone\ud800surrogate", "lonesurrogate"),
        ("line\u2028separator", "line separator"),
    ],
)
def test_plain_text_is_one_line_of_visible_characters(raw, clean):
    assert text.plain(raw) == clean


def test_long_text_keeps_both_ends():
    cut = text.plain("start " + "x" * 10_000 + " end")

    assert len(cut) == text.SENTENCE_LIMIT
    assert cut.startswith("start ")
    assert cut.endswith(" end")


def test_a_block_cannot_be_closed_from_within():
    fenced = markdown.fence("```\n# out\n`````\n")

    assert fenced.startswith("``````text\n")
    assert fenced.endswith("\n``````")


def test_names_with_pipes_or_backticks_are_no_code_spans():
    assert write_code("rows=7,dtype=float16") == "`rows=7,dtype=float16`"
    assert shown(write_code("a`b|c")) == "a`b|c"


def test_file_names_are_safe_everywhere():
    assert text.file_name("../../etc/passwd|x y") == "etc-passwd-x-y"
    assert text.file_name("\u4e2d") == "op"


def test_a_command_in_a_text_that_is_cut_is_shown_whole_or_left_out():
    told = f"see what moved: {'x' * 40} `perfci accept --environment`, then {'y' * 40} `perfci check`, {'z' * 20}"

    for limit in range(20, len(told) + 1):
        commands = re.findall("`([^`]*)`", text.shorten(told, limit))
        assert set(commands) <= {"perfci accept --environment", "perfci check"}
        assert text.shorten(told, limit).count("`") == 2 * len(commands)
