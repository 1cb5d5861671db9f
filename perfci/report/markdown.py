"""The report as Markdown: tables with aligned columns around the templates in `templates/`."""

from __future__ import annotations

import re
from itertools import zip_longest

from perfci.core.wording import say
from perfci.report.text import columns
from perfci.report.view import Report, Table

PAD_LIMIT = 44
"""Cells are padded up to this width, so that the text is readable in a plain editor and long ones don't blow it up."""


def render(report: Report) -> str:
    """The whole page; every text in it is escaped already."""
    import jinja2

    environment = jinja2.Environment(  # not autoescaped: perfci.report.text escapes for Markdown, HTML's would spoil it
        loader=jinja2.PackageLoader("perfci.report"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["table"] = table
    environment.globals["say"] = say  # before the templates are got: their macros keep what they see then
    page = environment.get_template("report.md.j2").render(report=report)
    return re.sub(r"\n{3,}", "\n\n", page).strip() + "\n"


def table(shown: Table) -> str:
    """A table in GitHub's and GitLab's notation, padded to line up.

    >>> print(table(Table(("case", "time"), (("`a`", "4.93 us"),), frozenset({"time"}))))
    | case |    time |
    | ---- | ------: |
    | `a`  | 4.93 us |
    """
    right = [name in shown.right for name in shown.columns]
    cells = [shown.columns, *shown.rows]
    widths = [max(3, *(w for w in map(columns, column) if w <= PAD_LIMIT), 3) for column in zip_longest(*cells)]
    rule = tuple("-" * (width - 1) + (":" if to_right else "-") for width, to_right in zip(widths, right, strict=True))
    return "\n".join(_line(row, widths, right) for row in (shown.columns, rule, *shown.rows))


def _line(row: tuple[str, ...], widths: list[int], right: list[bool]) -> str:
    padded = (
        " " * (width - columns(cell)) + cell if to_right else cell + " " * (width - columns(cell))
        for cell, width, to_right in zip(row, widths, right, strict=True)
    )
    return f"| {' | '.join(padded)} |"
