"""Text that comes from kernels, made harmless for where it is shown: Markdown, a terminal, a picture.

Names, case ids and exception messages are foreign: they may hold pipes, HTML, mentions, terminal escapes or ten
kilobytes of anything. `plain` removes what no reader should get; the others then escape for their medium.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

SENTENCE_LIMIT = 600
"""Characters of a sentence in a table; `block` shows long messages in full."""

NAME_LIMIT = 160
"""Characters of an op's, arm's or case's name."""

BLOCK_LIMIT = 4000
"""Characters of a message shown line by line."""

BREAK = "&#8203;"
"""A zero-width space, written so that it is seen in an editor: it parts what hosts would link, such as @all."""

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
"""Unicode categories that show nothing or reorder text: control, format, surrogate, private, unassigned."""

_CODE = re.compile(r"(?<![`$])(`[^`|\\]+`)(?![`$])")
_MARKUP = re.compile(r"[\\`*\[\]|~$]|(?<![^\W_])_|_(?![^\W_])")
_REFERENCE = re.compile(r"(\\?[@#!%~$^]|&amp;)(?=\w)")
_LINK = re.compile(r"(?i)(?<=:)(?=//)|(?<=\bwww)(?=\.)|(?<=\bmailto)(?=:)|(?<=\bxmpp)(?=:)")
_OPENING = re.compile(r"^(?:[#=:]|[+-](?=[\s+-]|$)|\d+(?=[.)](?:\s|$)))")


def plain(text: str, limit: int = SENTENCE_LIMIT) -> str:
    r"""One line without control characters, terminal escapes or reordering marks, cut in the middle beyond the limit.

    >>> plain("a\n\x1b[31mred\x1b[0m\x00 b")
    'a red b'
    """
    return shorten(" ".join(_lines_of(text[: 4 * BLOCK_LIMIT]).split()), limit)


def inline(text: str, limit: int = SENTENCE_LIMIT) -> str:
    r"""Foreign text as Markdown that shows it as it is, in a paragraph, list item or table cell.

    Words between single backticks stay code, in which nothing else has a meaning.

    >>> inline("<b> *x* | @all ![y](http://z)")
    '&lt;b&gt; \\*x\\* \\| @&#8203;all !\\[y\\](http:&#8203;//z)'
    """
    parts = _CODE.split(plain(text, limit))
    return "".join(part if index % 2 else _escaped(part, first=not index) for index, part in enumerate(parts))


def _escaped(text: str, *, first: bool) -> str:
    safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    safe = _MARKUP.sub(lambda found: "\\" + found.group(), safe)
    safe = _LINK.sub(BREAK, _REFERENCE.sub(rf"\1{BREAK}", safe))
    return _OPENING.sub(_defused, safe) if first else safe


def code(text: str, limit: int = NAME_LIMIT) -> str:
    r"""A name as a code span; as escaped text where it holds what a code span in a table cannot.

    >>> print(code("rows=7,dtype=float16"), code("a|b"))
    `rows=7,dtype=float16` a\|b
    """
    name = plain(text, limit)
    return inline(text, limit) if not name or "`" in name or "|" in name or "\\" in name else f"`{name}`"


def block(text: str) -> str:
    """A fenced block that shows the text line by line; its fence is longer than any in the text."""
    lines = [line.rstrip() for line in _lines_of(text[: 4 * BLOCK_LIMIT]).split("\n")]
    body = shorten("\n".join(lines).strip("\n"), BLOCK_LIMIT)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", body)), default=0))
    return f"{fence}text\n{body}\n{fence}"


def ascii_only(letter: str) -> bool:
    """Whether every font has the letter."""
    return " " <= letter <= "~"


def glyphs(text: str, limit: int, known: Callable[[str], bool] = ascii_only) -> str:
    r"""A name for a picture, its code point in place of a letter that no font has, which would be drawn as a box.

    limit: columns, of which a CJK letter takes two. known: whether some font has the letter.

    >>> print(glyphs("caf\u00e9 n=1", 40))
    caf\u00e9 n=1
    """
    shown = plain(text, 4 * limit)
    name = "".join(mark if ascii_only(mark) or known(mark) else _escape(mark) for mark in shown)
    wide = columns(name)
    return name if wide <= limit else shorten(name, limit * len(name) // wide)


def columns(text: str) -> int:
    """Widths of a Latin letter that a text takes in a monospaced font.

    >>> columns("n=1"), columns("\u4e2d\u6587")
    (3, 4)
    """
    return len(text) if text.isascii() else sum(1 + (unicodedata.east_asian_width(mark) in "WF") for mark in text)


def _escape(letter: str) -> str:
    point = ord(letter)
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


def file_name(text: str) -> str:
    """The part of a name that is safe in a file name and a link everywhere.

    >>> file_name("../soft max|1")
    'soft-max-1'
    """
    return re.sub(r"[^A-Za-z0-9_]+", "-", text)[:60].strip("-") or "op"


def shorten(text: str, limit: int) -> str:
    """The text, its middle left out if it is longer than the limit: both ends of a message tell something.

    >>> shorten("abcdefghij", 8)
    'abc...ij'
    """
    if len(text) <= limit:
        return text
    tail = (limit - 3) // 2
    return text[: limit - 3 - tail] + "..." + text[len(text) - tail :]


def _lines_of(text: str) -> str:
    text = re.sub(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]", "\n", _ANSI.sub("", text)).replace("\t", "    ")
    return "".join(mark for mark in text if mark == "\n" or unicodedata.category(mark) not in _UNSEEN)


def _defused(found: re.Match[str]) -> str:
    """A list mark, heading or rule at the start of a cell: a digit cannot be escaped, so its dot is kept away."""
    mark = found.group()
    return mark + BREAK if mark.isdigit() else "\\" + mark
