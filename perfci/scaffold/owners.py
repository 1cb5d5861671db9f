"""Who has to approve what the rules are: lines for thresholds/ and baselines/ in the CODEOWNERS that GitLab reads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from perfci.core.errors import UsageError
from perfci.core.model import Reason
from perfci.scaffold.edits import Edit, appended, read
from perfci.scaffold.gitlab import Note

PLACES = ("CODEOWNERS", "docs/CODEOWNERS", ".gitlab/CODEOWNERS")
"""Where GitLab looks, in this order; it reads the first only."""

PLACEHOLDER = "@your-team"
SECTION = "[perfci]"

HEAD = "# What perfci judges by: a change here is approved by those who answer for the kernels' speed."
OPEN = f"# Put your team in the place of {PLACEHOLDER} and take away the # of the lines below."

_OWNER = re.compile(r"@{1,2}[\w][\w./-]*|[^\s@]+@[^\s@]+\.[^\s@]+")
_SECTION = re.compile(r"^\^?\[[^\]]+\]", re.MULTILINE)


def parse(given: Sequence[str]) -> tuple[str, ...]:
    """Owners as GitLab names them: @user, @group/team, @@role, or an address. Raises UsageError for anything else.

    >>> parse(["@perf/kernels, ann@example.org"])
    ('@perf/kernels', 'ann@example.org')
    """
    names = tuple(name for text in given for name in re.split(r"[\s,]+", text) if name)
    wrong = next((name for name in names if not _OWNER.fullmatch(name)), None)
    if wrong is not None or (given and not names):
        raise UsageError("init_owner", owner=wrong or "")
    return names


def plan(top: Path, folders: Sequence[str], owners: Sequence[str]) -> Iterator[Edit | Note]:
    """Rules for folders, given by their paths from the top of the repository; those that are there stay as they are."""
    path = next((top / place for place in PLACES if (top / place).is_file()), top / PLACES[0])
    text = read(path)
    name = path.relative_to(top).as_posix()
    rules = [f"/{folder}/".replace(" ", "\\ ") for folder in folders]
    after = _filled(text or "", rules, owners)
    missing = [rule for rule in rules if not _has(after, rule)]
    if missing:
        after = appended(after, _lines(after, missing, owners))
    if after != (text or ""):
        yield Edit(path, text, after)
    if any(_is_open(line, rules) for line in after.splitlines()):
        yield Note(Reason("init_owners_open", {"path": name}))


def _lines(text: str, rules: Sequence[str], owners: Sequence[str]) -> list[str]:
    """New rules; in a file with sections in one of their own, since else they would belong to the last one."""
    section = [SECTION] if _SECTION.search(text) else []
    if owners:
        return [HEAD, *section, *(f"{rule} {' '.join(owners)}" for rule in rules)]
    return [HEAD, OPEN, *(f"# {line}" for line in section), *(f"# {rule} {PLACEHOLDER}" for rule in rules)]


def _filled(text: str, rules: Sequence[str], owners: Sequence[str]) -> str:
    """The text with our own open lines closed by owners, where there are any now."""
    if not owners:
        return text
    lines = text.splitlines(keepends=True)
    ours = any(_is_open(line, rules) for line in lines)
    return "".join(_closed(line, rules, owners) for line in lines if not (ours and line.rstrip() == OPEN))


def _closed(line: str, rules: Sequence[str], owners: Sequence[str]) -> str:
    if _is_open(line, rules):
        return line.removeprefix("# ").replace(PLACEHOLDER, " ".join(owners))
    return line.removeprefix("# ") if line.rstrip() == f"# {SECTION}" else line


def _is_open(line: str, rules: Sequence[str]) -> bool:
    return line.rstrip() in {f"# {rule} {PLACEHOLDER}" for rule in rules}


def _has(text: str, rule: str) -> bool:
    """Whether a folder has a rule, or an open one of ours."""
    lines = (line.strip() for line in text.splitlines())
    known = {rule, rule.rstrip("/"), rule.lstrip("/"), f"{rule}*", f"{rule}**"}
    return any(_is_open(line, [rule]) or re.split(r"(?<!\\)\s", line)[0] in known for line in lines if line)
