"""`perfci export`: what was measured as a table, for other programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from perfci.cli.exits import Exit
from perfci.core.errors import UsageError
from perfci.report import export as tables
from perfci.runs import results
from perfci.store.files import write_atomically


def export(
    paths: Sequence[Path], form: str, out: Path | None, project: Path | None, *, verdicts: bool, what: str = "blocks"
) -> int:
    """Write the blocks of runs, or the tensors that they stored, as CSV or Parquet, to a file or to standard output."""
    if form == "parquet" and out is None and sys.stdout.isatty():
        raise UsageError("export_to_terminal")
    runs = [results.read(path, project) for path in paths]
    _refuse_twice(paths, runs)
    if out and out.resolve() in {each.resolve() for path in paths for each in (path, path / "run.json")}:
        raise UsageError("export_over_run", path=str(out))
    made = tables.stored if what == "stored" else tables.joined
    found = made([(one.run, one.judgements if verdicts else None) for one in runs])
    data = tables.to_parquet(found) if form == "parquet" else tables.to_csv(found)
    if out:
        write_atomically(out, data)
    else:
        _pipe(data)
    return Exit.OK


def _refuse_twice(paths: Sequence[Path], runs: Sequence[results.StoredRun]) -> None:
    ids = [one.run.id for one in runs]
    for at, path in enumerate(paths):
        if ids[at] in ids[:at]:
            raise UsageError("export_twice", path=str(path), run=ids[at])


def _pipe(data: bytes) -> None:
    """Write to standard output; whoever reads only the beginning of it, as `head` does, has what it wanted."""
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
    except BrokenPipeError:
        # What is left in the buffer is written once more when the program ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
