"""Who has to approve what perfci judges by: lines for thresholds/ and baselines/ in GitLab's CODEOWNERS."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from perfci.core.errors import UsageError
from perfci.core.model import Reason
from perfci.scaffold.edits import Edit, append_lines, read
from perfci.scaffold.gitlab import Note

PLACES = ("CODEOWNERS", "docs/CODEOWNERS", ".gitlab/CODEOWNERS")
"""Where GitLab looks, in this order. It reads the first only."""

HEAD = "# What perfci judges by: a change here is approved by those who answer for the kernels' speed."

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
    """Rules for folders, given by their paths from the top of the repository. Those that are there stay as they are."""
    path = next((top / place for place in PLACES if (top / place).is_file()), top / PLACES[0])
    text = read(path) or ""
    known = {re.split(r"(?<!\\)\s", line.strip())[0] for line in text.splitlines() if line.strip()}
    missing = []
    for folder in folders:
        rule = f"/{folder}/".replace(" ", "\\ ")
        if not known & {rule, rule.rstrip("/"), rule.lstrip("/"), f"{rule}*", f"{rule}**"}:
            missing.append(rule)
    if missing and not owners:
        yield Note(Reason("init_owners_open", {"path": path.relative_to(top).as_posix()}))
    elif missing:
        # In a file with sections the rules would belong to the last one.
        section = ["[perfci]"] if _SECTION.search(text) else []
        lines = [HEAD, *section, *(f"{rule} {' '.join(owners)}" for rule in missing)]
        yield Edit(path, text or None, append_lines(text, lines))
