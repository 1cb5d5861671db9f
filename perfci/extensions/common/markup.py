r"""Foreign text in the Markdown of GitLab and GitHub, which read more out of a text than Markdown does.

Both look for references, emoji, hashes and more when escaping backslashes are gone. So what they would find is parted
by a zero-width space, a hash becomes code, and a dollar, which GitHub takes for mathematics even if it is escaped, a
separate element. No line may begin with foreign text: there a slash is a command.
"""

import re

from perfci.core.wording import say
from perfci.report import markdown, text
from perfci.report.markdown import BREAK, write_table
from perfci.report.view import Table

_GLFM = re.compile(
    r"(?P<code>`[^`]+`)"
    r"|(?P<kept>&#8203;|&lt;)"
    r"|(?P<dollar>\\\$(?:&#8203;)?)"
    r"|(?P<project>(?<=[\w.-])&gt;)"
    r"|(?P<mark>\\?[@#!%~$^]|&amp;)(?=[\\\"\w{]|\.\w)"
    r"|(?P<iteration>\\\*)(?=iteration)"
    r"|(?P<bracket>\\?\[)(?=\\?\[|[+^-]|[\w-]+:|\\?_?TOC|[ xX\\~]{0,2}\])"
    r"|(?P<brace>\{)(?=[+-])"
    r"|(?P<emoji>\\?:)(?=[\w+.\\-]+:)"
    r"|(?P<tracker>(?<![A-Za-z0-9])[A-Z][A-Z0-9_]*-)(?=\d)"
    r"|(?P<hash>(?<![\w`$.\\-])[0-9A-Fa-f]{7,64}(?![\w`$]))"
    r"|(?P<hex>[0-9A-Fa-f]{6})(?=[0-9A-Fa-f])"
    r"|(?P<escaped>\\.)",
    re.DOTALL,
)
_COLOUR = re.compile(r"(?i)`\s*(?:#[0-9a-f]{3,8}|(?:rgb|hsl)a?\(.*\))\s*`")
_AFTER = frozenset({"mark", "iteration", "bracket", "brace", "emoji", "tracker", "hex"})


def inline(foreign: str, limit: int = text.SENTENCE_LIMIT) -> str:
    r"""Foreign text as Markdown for a note, shown as it is, within a line.

    >>> inline("@all closes #1")
    '@&#8203;all closes #&#8203;1'
    >>> inline("done :tada: in deadbeef, see ABC-1")
    'done :&#8203;tada: in `deadbeef`, see ABC-&#8203;1'
    """
    return harden(markdown.write(text.plain(foreign, limit)))


def code(foreign: str, limit: int = text.NAME_LIMIT) -> str:
    r"""A name as code for a note.

    >>> print(code("rows=7,dtype=float16"), code("#F00000"))
    `rows=7,dtype=float16` &#8203;\#&#8203;F00000&#8203;
    """
    shown = harden(markdown.write(text.code(foreign, limit)))
    # What follows is ours, and must end neither an emoji nor a reference that the name began.
    return shown if shown.endswith(("`", BREAK)) else shown + BREAK


def harden(markdown: str) -> str:
    """What the report's escaping gave, with all undone that GitLab and GitHub would read out of it."""
    return _GLFM.sub(_part, markdown)


def write_some(table: Table, most: int) -> str:
    """The first rows of a table as Markdown for GitLab, and how many there are besides. Empty if there is no row."""
    if not table.rows:
        return ""
    shown = harden(write_table(Table(table.columns, table.rows[:most], table.right))) if most else ""
    left = len(table.rows) - most
    more = say("Rows left out here: {count}.", count=left) if left > 0 else ""
    return "\n\n".join(part for part in (shown, more) if part)


def _part(match: re.Match[str]) -> str:
    kind, shown = match.lastgroup, match.group()
    if kind == "code":
        colour = _COLOUR.fullmatch(shown)
        return f"{BREAK}{harden(markdown.write(text.plain(shown.strip('`').strip())))}{BREAK}" if colour else shown
    if kind == "dollar":
        return "<span>$</span>"
    if kind == "hash":
        return f"`{shown}`"
    if kind == "project":
        return BREAK + shown
    if kind in _AFTER and not match.string.startswith(BREAK, match.end()):
        return shown + BREAK
    return shown
