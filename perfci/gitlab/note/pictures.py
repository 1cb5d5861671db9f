"""Which of the report's pictures a note shows: a few, of the ops with most to say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from perfci.core.model import Judgements, Suite, Verdict
from perfci.report import rows
from perfci.report.text import file_name

MOST = 6
"""Most pictures: each is one more to load on a phone."""

LARGEST = 5_000_000
"""Bytes above which a picture is left out."""

_SIGNATURE = b"\x89PNG\r\n\x1a\n"

KINDS = ("duels", "blocks", "speedup")
"""Of an op the first of these that was drawn: what decided before how it stands."""


@dataclass(frozen=True)
class Picture:
    """A PNG of a report."""

    path: Path
    op: str


def pictures(judgements: Judgements, folder: Path, most: int = MOST) -> tuple[Picture, ...]:
    """The pictures in a report's folder that are worth showing, one an op, the gravest op first."""
    return tuple(found for op in _ranked(judgements) if (found := _drawn(folder, op)))[:most]


def _ranked(judgements: Judgements) -> list[str]:
    """Ops with a timed case, by their gravest verdict; what is quiet last, what was not timed not at all."""
    best: dict[str, int] = {}
    for row in judgements.rows:
        timed = row.comparison is not None and row.comparison.measured
        if row.suite is Suite.PERFORMANCE and timed and row.verdict is not Verdict.UNCHANGED:
            best[row.op] = min(rows.rank(row.verdict, row.gate), best.get(row.op, 9))
    return sorted(best, key=lambda op: best[op])


def _drawn(folder: Path, op: str) -> Picture | None:
    return next((Picture(path, op) for path in _files(folder, op) if _is_png(path)), None)


def _is_png(path: Path) -> bool:
    """Whether a file of fitting size begins as a PNG does: what it is named after would be published unseen."""
    try:
        with path.open("rb") as file:
            return path.stat().st_size <= LARGEST and file.read(len(_SIGNATURE)) == _SIGNATURE
    except OSError:
        return False


def _files(folder: Path, op: str) -> Iterator[Path]:
    """The first picture of each kind; one of several has a number."""
    stems = (f"{kind}-{file_name(op)}" for kind in KINDS)
    paths = (folder / f"{stem}{number}.png" for stem in stems for number in ("", "-1"))
    return (path for path in paths if path.is_file() and not path.is_symlink())
