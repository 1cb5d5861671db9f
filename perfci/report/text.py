"""Text that comes from kernels, made harmless, and the marks that the report's text may have.

The marks are private-use characters, which `plain` removes from foreign text. Each format writes them its way.
"""

import re
import unicodedata
from collections.abc import Iterator

from perfci.core import wording
from perfci.core.model import Fact, Gate, Verdict
from perfci.core.wording import say

SENTENCE_LIMIT = 600  # characters of a sentence in a table. `block` keeps long messages in full
NAME_LIMIT = 160  # characters of an op's, arm's or case's name
BLOCK_LIMIT = 4000  # characters of a message shown line by line

CODE, STRONG, EMPHASIS = "\ue000", "\ue001", "\ue002"
"""Marks of a view's text. Each stands before and behind what it marks."""

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
"""Unicode categories that show nothing or reorder text: control, format, surrogate, private, unassigned."""

_SPANS = re.compile("\ue000([^\ue000]*)\ue000|(?<![`$])`([^`|\\\\\ue000-\ue002]+)`(?![`$])|([\ue001\ue002])")
_OWN_MARKS = ((re.compile(r"\*\*(.+?)\*\*"), STRONG), (re.compile(r"\*([^*]+)\*"), EMPHASIS))


def plain(text: str, limit: int = SENTENCE_LIMIT) -> str:
    r"""Returns one line without control characters, terminal escapes or reordering marks, cut in the middle.

    >>> plain("a\n\x1b[31mred\x1b[0m\x00 b")
    'a red b'
    """
    return shorten(" ".join(_clean(text).split()), limit)


def block(text: str) -> str:
    """Returns the text line by line, without what `plain` removes, cut in the middle beyond BLOCK_LIMIT."""
    lines = [line.rstrip() for line in _clean(text).split("\n")]
    return shorten("\n".join(lines).strip("\n"), BLOCK_LIMIT)


def _clean(text: str) -> str:
    text = _ANSI.sub("", text[: 4 * BLOCK_LIMIT])
    text = re.sub(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]", "\n", text).replace("\t", "    ")
    return "".join(mark for mark in text if mark == "\n" or unicodedata.category(mark) not in _UNSEEN)


def code(text: str, limit: int = NAME_LIMIT) -> str:
    """Marks a foreign name as code."""
    name = plain(text, limit)
    return f"{CODE}{name}{CODE}" if name else ""


def strong(text: str) -> str:
    """Marks text of a view as strong."""
    return f"{STRONG}{text}{STRONG}"


def mark_verdict(verdict: Verdict) -> str:
    """Returns a verdict, strong if it is not fine."""
    return str(verdict) if verdict.gate is Gate.OK else strong(verdict)


def phrase(english: str, **facts: Fact) -> str:
    """Returns `say` of a text with marks of its own: **strong**, *emphasised*. Its facts keep theirs."""
    template = wording.phrases(wording.spoken()).get(english, english)
    for pattern, mark in _OWN_MARKS:
        template = pattern.sub(rf"{mark}\1{mark}", template)
    return wording.fill(template, facts)


def list_some(names: list[str], most: int) -> str:
    """Returns the first few of some texts, and how many more there are."""
    shown = ", ".join(names[:most])
    return say("{names} and {count} more", names=shown, count=len(names) - most) if len(names) > most else shown


def split_marks(text: str) -> Iterator[tuple[str, str]]:
    """Returns the parts of a view's text: ("", text), ("code", text), ("strong", "") and ("em", "") at both ends."""
    end = 0
    for match in _SPANS.finditer(text):
        if match.start() > end:
            yield "", text[end : match.start()]
        end = match.end()
        name, quoted, mark = match.groups()
        if mark:
            yield ("strong" if mark == STRONG else "em"), ""
        else:
            yield "code", name if quoted is None else quoted
    if end < len(text):
        yield "", text[end:]


def spell(text: str, quote: str = "`") -> str:
    """Returns a view's text as plain text, in which only code keeps marks.

    >>> spell(f"see {strong('this')}: {code('n=1')}")
    'see this: `n=1`'
    """
    return "".join(f"{quote}{part}{quote}" if kind == "code" else part for kind, part in split_marks(text))


def columns(text: str) -> int:
    """Returns the width of a text in a monospaced font, in Latin letters.

    >>> columns("n=1"), columns("\u4e2d\u6587")
    (3, 4)
    """
    return len(text) if text.isascii() else sum(1 + (unicodedata.east_asian_width(mark) in "WF") for mark in text)


def file_name(text: str) -> str:
    """Returns the part of a name that is safe in a file name and a link everywhere.

    >>> file_name("../soft max|1")
    'soft-max-1'
    """
    return re.sub(r"[^A-Za-z0-9_]+", "-", text)[:60].strip("-") or "op"


def shorten(text: str, limit: int) -> str:
    """Returns the text without its middle if it is longer than the limit: both ends of a message matter.

    >>> shorten("abcdefghij", 8)
    'abc...ij'
    """
    if len(text) <= limit:
        return text
    tail = (limit - 3) // 2
    before, after = text[: limit - 3 - tail], text[len(text) - tail :]
    if text.count("`") % 2 == 0:  # half a command is worse than none
        before = before[: before.rindex("`")] if before.count("`") % 2 else before
        after = after[after.index("`") + 1 :] if after.count("`") % 2 else after
    return f"{before}...{after}"
