"""The report as Markdown: the one escaper for this medium, tables with aligned columns, and the templates."""

import functools
import re
from itertools import zip_longest
from typing import Any

from perfci.core.wording import join, say
from perfci.report.text import block, columns, split_marks
from perfci.report.view import Report, Table

PAD_LIMIT = 44
"""Cells are padded up to this width, so that the text is readable in a plain editor and long ones don't blow it up."""

BREAK = "&#8203;"
"""A zero-width space, written so that it is seen in an editor: it parts what hosts would link, such as @all."""

_MARKUP = re.compile(r"[\\`*\[\]|~$]|(?<![^\W_])_|_(?![^\W_])")
_REFERENCE = re.compile(r"(\\?[@#!%~$^]|&amp;)(?=\w)")
_LINK = re.compile(r"(?i)(?<=:)(?=//)|(?<=\bwww)(?=\.)|(?<=\bmailto)(?=:)|(?<=\bxmpp)(?=:)")
_OPENING = re.compile(r"^(?:[#=:]|[+-](?=[\s+-])|\d+(?=[.)](?:\s|$)))")
"""What makes a list, a heading or a rule at the start of a line. A dash alone is a cell without a value."""

_GREATER = re.compile(r"(?<! -)>|>(?! )")  # not the one of an arrow between two values


def write(text: str) -> str:
    r"""A view's text in a paragraph, list item or table cell: shown as it is, with its marks and no others.

    >>> write("<b> *x* | @all ![y](http://z)")
    '&lt;b&gt; \\*x\\* \\| @&#8203;all !\\[y\\](http:&#8203;//z)'
    """
    written = ""
    for kind, part in split_marks(text):
        if kind in {"strong", "em"}:
            written += "**" if kind == "strong" else "*"
        elif kind == "code" and not re.search(r"[`|\\]", part):  # which a code span in a table cannot hold
            written += f"`{part}`"
        else:
            written += _escape(part, first=kind == "code" or not written)
    return written


def _escape(text: str, *, first: bool) -> str:
    safe = _GREATER.sub("&gt;", text.replace("&", "&amp;").replace("<", "&lt;"))
    safe = _MARKUP.sub(lambda match: "\\" + match.group(), safe)
    safe = _LINK.sub(BREAK, _REFERENCE.sub(rf"\1{BREAK}", safe))
    # A digit cannot be escaped, so its dot is kept away.
    return _OPENING.sub(lambda at: at[0] + BREAK if at[0].isdigit() else "\\" + at[0], safe) if first else safe


def fence(text: str) -> str:
    """A fenced block that shows the text line by line. Its fence is longer than any in the text."""
    body = block(text)
    marks = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", body)), default=0))
    return f"{marks}text\n{body}\n{marks}"


def write_table(shown: Table) -> str:
    """A table in GitHub's and GitLab's notation, padded to line up.

    >>> print(write_table(Table(("case", "time"), (("a", "4.93 us"),), frozenset({1}))))
    | case |    time |
    | ---- | ------: |
    | a    | 4.93 us |
    """
    cells = [tuple(map(write, row)) for row in (shown.columns, *shown.rows)]
    widths = [max(3, *(w for w in map(columns, column) if w <= PAD_LIMIT), 3) for column in zip_longest(*cells)]
    right = [place in shown.right for place in range(len(widths))]
    rule = tuple("-" * (width - 1) + (":" if to_right else "-") for width, to_right in zip(widths, right, strict=True))
    lines = []
    for row in (cells[0], rule, *cells[1:]):
        gaps = (" " * (width - columns(cell)) for cell, width in zip(row, widths, strict=True))
        padded = (gap + cell if right[at] else cell + gap for at, (cell, gap) in enumerate(zip(row, gaps, strict=True)))
        lines.append(f"| {' | '.join(padded)} |")
    return "\n".join(lines)


def load_templates(*packages: str, **options: Any) -> Any:
    """Templates of packages, the first one's first. Finished text is Markup, and everything else is escaped."""
    import jinja2

    loader, strict = jinja2.ChoiceLoader([*map(jinja2.PackageLoader, packages)]), jinja2.StrictUndefined
    environment = jinja2.Environment(loader=loader, undefined=strict, autoescape=True, **options)
    environment.trim_blocks = environment.lstrip_blocks = True
    environment.filters["prose"] = join
    environment.globals["say"] = say  # before the templates are got: their macros keep what they see then
    return environment


@functools.cache
def _load_template() -> Any:
    from markupsafe import Markup  # not for a merge request's note, which needs no template

    def escape(shown: Any) -> Markup:
        return shown if isinstance(shown, Markup) else Markup(write(str(shown)))

    environment = load_templates("perfci.report", finalize=escape, keep_trailing_newline=True)
    environment.filters["table"] = lambda shown: Markup(write_table(shown))
    environment.filters["fence"] = lambda text: Markup(fence(text))
    return environment.get_template("report.md.j2")


def render(report: Report) -> str:
    """The whole page."""
    page = _load_template().render(report=report)
    return re.sub(r"\n{3,}", "\n\n", page).strip() + "\n"
