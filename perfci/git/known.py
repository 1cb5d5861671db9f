"""Which commits a repository still has."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from perfci.core.model import Reason
from perfci.git.command import git

_ID = re.compile(r"[0-9a-f]{7,64}")


def find_unknown_commits(folder: Path, commits: Iterable[str]) -> tuple[str, ...] | Reason:
    """Those of the commits that the repository around a folder lacks, in order; or why git cannot say.

    After a forced push a history names commits that no clone has any more; a shallow clone lacks the older ones, and
    tells so by a reason. What is no commit's id, as files may hold anything, is lacking too.
    """
    asked = list(dict.fromkeys(commits))
    ids = [each for each in asked if _ID.fullmatch(each)]
    told = git(folder, "cat-file", "--batch-check=%(objecttype)", given="".join(f"{each}\n" for each in ids))
    if isinstance(told, Reason):
        return told
    known = {each for each, line in zip(ids, told.splitlines(), strict=False) if line == "commit"}
    lacking = tuple(each for each in asked if each not in known)
    if lacking and git(folder, "rev-parse", "--is-shallow-repository") == "true\n":
        return Reason("history_shallow", {"count": len(lacking)})
    return lacking
