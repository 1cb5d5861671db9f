"""The report's texts as HTML: the inline Markdown that `perfci.report.text` writes, and no other, read back.

Foreign text is escaped for Markdown before it gets here; whatever is not one of our own few marks is escaped again, so
that no text can open an element or an attribute, however it was put together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape, unescape

from perfci.report.view import Table

_SPECIAL = re.compile(r"[\\`*&<>\"']")
_TOKEN = re.compile(
    r"\\(?P<mark>[\\`*\[\]|~$_#=:+@!%^-])|`(?P<code>[^`]+)`|(?P<toggle>\*{1,2})|&(?:(?P<entity>lt|gt|amp)|\#8203);",
    re.VERBOSE,
)
_CODE = re.compile("<code>[^<]*</code>")
_ENTITIES = {"lt": "&lt;", "gt": "&gt;", "amp": "&amp;"}
_ELEMENTS = {"**": "strong", "*": "em"}


@dataclass(frozen=True)
class Html:
    """Finished HTML, which templates show as it is."""

    source: str

    def __html__(self) -> str:
        return self.source

    def __bool__(self) -> bool:
        return bool(self.source)


@dataclass(frozen=True)
class Grid:
    """A table whose cells are finished."""

    columns: tuple[Html, ...]
    rows: tuple[tuple[Html, ...], ...]
    right: frozenset[int]
    """places of the columns that hold numbers"""
    folded: bool


def inline(markdown: str) -> Html:
    r"""Text of a paragraph, list item or cell.

    >>> inline(r"**Fails**: `a<b` \*x\* &lt;i&gt; <i>").source
    '<strong>Fails</strong>: <code>a&lt;b</code> *x* &lt;i&gt; &lt;i&gt;'
    """
    return Html("".join(_parts(markdown)) if _SPECIAL.search(markdown) else markdown)


def breaking(markdown: str) -> Html:
    """The same in a cell, where code, such as a case's id, may go on in the next line behind a comma.

    >>> breaking("`rows=1,cols=2`, slower").source
    '<code>rows=1,<wbr>cols=2</code>, slower'
    """
    return Html(_CODE.sub(lambda found: found[0].replace(",", ",<wbr>"), inline(markdown).source))


def _parts(markdown: str) -> Iterator[str]:
    """Whatever is opened is closed again, in the right order."""
    end, opened = 0, list[str]()
    for found in _TOKEN.finditer(markdown):
        yield escape(markdown[end : found.start()])
        end = found.end()
        if found["toggle"]:
            yield from _toggled(_ELEMENTS[found["toggle"]], opened)
        else:
            yield _literal(found)
    yield escape(markdown[end:])
    yield from (f"</{name}>" for name in reversed(opened))


def _literal(found: re.Match[str]) -> str:
    if found["code"]:
        return f"<code>{escape(found['code'])}</code>"
    return _ENTITIES.get(found["entity"] or "", escape(found["mark"] or ""))


def _toggled(name: str, opened: list[str]) -> Iterator[str]:
    if name not in opened:
        opened.append(name)
        yield f"<{name}>"
        return
    while opened:
        last = opened.pop()
        yield f"</{last}>"
        if last == name:
            return


def spoken(markdown: str) -> str:
    r"""The same as plain text, in which only code keeps its backticks.

    >>> spoken(r"see *this*, `perfci show` and \*that\*")
    'see this, `perfci show` and *that*'
    """
    return _TOKEN.sub(_unmarked, markdown)


def _unmarked(found: re.Match[str]) -> str:
    if found["code"]:
        return f"`{found['code']}`"
    return unescape(f"&{found['entity']};") if found["entity"] else found["mark"] or ""


def fenced(markdown: str) -> str:
    r"""The text in a fenced block, not yet escaped.

    >>> fenced("```text\nperfci check\n```")
    'perfci check'
    """
    return markdown.partition("\n")[2].rpartition("\n")[0]


def grid(table: Table) -> Grid:
    """A table of the report."""
    return Grid(
        columns=tuple(map(inline, table.columns)),
        rows=tuple(tuple(map(breaking, row)) for row in table.rows),
        right=frozenset(place for place, name in enumerate(table.columns) if name in table.right),
        folded=table.folded,
    )
