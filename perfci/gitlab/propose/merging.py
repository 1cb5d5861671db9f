"""One file against a branch: what it is to become there, that nothing is to be done, or why nothing may be. Pure.

A file is written where the branch has it as the job found it, or where what the branch has since is perfci's own older
proposal. Of histories, to which every run adds a line, the lines of both are kept. All else is a conflict.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from perfci import store
from perfci.core.errors import PerfciError
from perfci.core.model import Baseline, Fact, HistoryRun, Reason
from perfci.gitlab.propose import tightening
from perfci.gitlab.propose.files import File, Kind
from perfci.store.history import read_history
from perfci.thresholds.earned import read_file
from perfci.thresholds.read import load


@dataclass(frozen=True)
class There:
    """A file as a branch has it."""

    blob: str
    content: bytes
    commit: str
    """the last that changed it"""
    own: bool = False
    """by perfci, as its message says"""


@dataclass(frozen=True)
class Step:
    """What becomes of a file on a branch."""

    file: File
    content: bytes | None = None
    """to be written; None where the branch has it already"""
    there: There | None = None
    """what it takes the place of; None for a new file"""
    conflict: Reason | None = None


def step(file: File, base: str | None, there: There | None, branch: str) -> Step:
    """What is to be done with a changed file; `base` is its blob as the job found it, None where there was none."""
    blob = there.blob if there else None
    if there and there.content == file.content:
        return Step(file, None, there)
    if blob == base:
        return Step(file, file.content, there)
    facts: dict[str, Fact] = {"path": file.path, "branch": branch, "commit": there.commit[:10] if there else None}
    if there is None:
        return Step(file, conflict=Reason("propose_removed", facts))
    if file.kind is Kind.HISTORY:
        both = _both(file, there)
        return Step(file, both, there, None if both is not None else Reason("propose_history_differs", facts))
    kind = _over(file, there)
    return Step(file, conflict=Reason(kind, facts)) if kind else Step(file, file.content, there)


def _over(file: File, there: There) -> str | None:
    """Why a file may not take the place of another one: only perfci's own older proposals are replaced."""
    if not there.own:
        return "propose_conflict"
    if file.kind is Kind.BASELINE:
        newer = _newest(baseline(file, there.content)) > _newest(baseline(file, file.content))
        return "propose_older" if newer else None
    if file.device:
        moved = earned(file, there.content)
    else:
        moved = tightened({file.path: there.content}, {file.path: file.content})
    looser = any(each.looser for each in moved)
    return "propose_conflict" if looser else None


def baseline(file: File, content: bytes) -> Baseline | None:
    """The baseline that a content holds; None where it cannot be read."""
    try:
        with _written(file, content) as path:
            return store.read_baseline(path)
    except PerfciError:
        return None


def history(file: File, content: bytes) -> tuple[HistoryRun, ...] | None:
    """The runs that a history's content holds; None where not all of it can be read."""
    with _written(file, content) as path:
        found = read_history(path.parents[1], file.device, file.op, follow=False)
    return None if found.problems else found.runs


def tightened(
    before: Mapping[str, bytes], after: Mapping[str, bytes], cases: Mapping[str, Iterable[str]] | None = None
) -> list[tightening.Moved]:
    """What two sets of threshold files, by path, say otherwise. Raises StoredFileError where one cannot be read."""
    with tempfile.TemporaryDirectory(prefix="perfci-propose-") as folder:
        places = [Path(folder, name) for name in ("before", "after")]
        for place, files in zip(places, (before, after), strict=True):
            place.mkdir()
            for path, content in files.items():
                (place / Path(path).name).write_bytes(content)
        old, new = (load(place) for place in places)
        return list(tightening.moved(old, new, cases or {}))


def earned(file: File, before: bytes | None) -> list[tightening.Moved]:
    """What a file of earned values says otherwise than before. Raises StoredFileError where either cannot be read."""
    with _written(file, before or b"") as place:
        old = read_file(place, file.op, file.device)
    with _written(file, file.content) as place:
        new = read_file(place, file.op, file.device)
    return list(tightening.earned_moved(old, new))


def _newest(found: Baseline | None) -> str:
    """When the newest of its runs was made; what cannot be read is older than anything."""
    return max((run.created for run in found.runs), default="") if found else ""


def _both(file: File, there: There) -> bytes | None:
    """The branch's lines, then those of ours that it lacks; None where either cannot be read whole, or they differ."""
    theirs, ours = history(file, there.content), history(file, file.content)
    if theirs is None or ours is None:
        return None
    known = {run.run: run for run in theirs}
    if any(known.get(run.run, run) != run for run in ours):
        return None
    fresh = [line for line, run in zip(_lines(file.content), ours, strict=True) if run.run not in known]
    return b"".join(line + b"\n" for line in (*_lines(there.content), *fresh))


def _lines(content: bytes) -> list[bytes]:
    return list(dict.fromkeys(line for line in content.split(b"\n") if line.strip()))


@contextmanager
def _written(file: File, content: bytes) -> Iterator[Path]:
    """A content in a file of its own, under the name that perfci's readers ask for."""
    with tempfile.TemporaryDirectory(prefix="perfci-propose-") as folder:
        path = Path(folder, file.device, Path(file.path).name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        yield path
