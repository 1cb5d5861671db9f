"""A view's text as HTML: the one escaper for this medium beside Jinja's own."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from perfci.report.text import split_marks
from perfci.report.view import Table


@dataclass(frozen=True)
class Html:
    """Finished HTML, which templates show as it is."""

    source: str

    def __html__(self) -> str:
        return self.source

    def __bool__(self) -> bool:
        return bool(self.source)


@dataclass(frozen=True)
class HtmlGrid:
    """A table whose cells are finished."""

    columns: tuple[Html, ...]
    rows: tuple[tuple[Html, ...], ...]
    right: frozenset[int]
    """places of the columns that hold numbers"""
    folded: bool


def inline(text: str) -> Html:
    """A view's text in a paragraph, list item or cell.

    >>> inline("`a<b` <i>").source
    '<code>a&lt;b</code> &lt;i&gt;'
    """
    return Html("".join(_write(text)))


def breaking(text: str) -> Html:
    """The same in a cell, where code, such as a case's id, may go on in the next line behind a comma.

    >>> breaking("`rows=1,cols=2`, slower").source
    '<code>rows=1,<wbr>cols=2</code>, slower'
    """
    return Html("".join(part.replace(",", ",<wbr>") if part.startswith("<code>") else part for part in _write(text)))


def _write(text: str) -> list[str]:
    """Finished parts. Whatever is opened is closed again, in the right order."""
    parts, opened = list[str](), list[str]()
    for kind, part in split_marks(text):
        if kind == "code":
            parts.append(f"<code>{escape(part)}</code>")
        elif not kind:
            parts.append(escape(part))
        elif kind in opened:
            while opened:
                parts.append(f"</{(last := opened.pop())}>")
                if last == kind:
                    break
        else:
            opened.append(kind)
            parts.append(f"<{kind}>")
    return [*parts, *(f"</{kind}>" for kind in reversed(opened))]


def grid(table: Table) -> HtmlGrid:
    """A table of the report."""
    return HtmlGrid(
        columns=tuple(map(inline, table.columns)),
        rows=tuple(tuple(map(breaking, row)) for row in table.rows),
        right=table.right,
        folded=table.folded,
    )
