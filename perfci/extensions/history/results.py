"""Stored runs for programs: what `perfci.load` gives. Needs no device and no torch."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from perfci import store
from perfci.core import settings
from perfci.core.model import Judgements, Run
from perfci.core.wording import sentence
from perfci.runs.decide import decide
from perfci.store.launches import read_launches

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class StoredRun:
    """A run as it was stored, its tables, and its verdicts.

    Every method raises `perfci.core.errors.PerfciError` if a file cannot be read. Its text has the remedy.
    """

    run: Run  # the record: every case with its blocks, checks and compiled kernels
    folder: Path  # where it lies
    project: Path  # a folder of the project with the thresholds and baselines that judge it

    @cached_property
    def judgements(self) -> Judgements:
        """The verdicts, by the thresholds and baselines that the project has now."""
        return decide(self.run, settings.load(self.project))

    def frame(self, *, verdicts: bool = False) -> pd.DataFrame:
        """One row a block and arm (docs/stored-files.md), times in us. verdicts: adds verdict, reason and change."""
        from perfci.extensions.history import tables

        return tables.tabulate([(self.run, self.judgements if verdicts else None)])

    def launches(self) -> pd.DataFrame:
        """One row a launch, in time order: op, case, process, block, arm, us. Warns if the file is torn."""
        from perfci.extensions.history import tables

        kept = read_launches(self.folder)
        if kept.note:
            warnings.warn(sentence(kept.note), stacklevel=2)
        return tables.tabulate_launches(kept.rows)


def read(path: Path, project: Path | None = None) -> StoredRun:
    """The run in a file, or in the folder that holds it. Raises StoredFileError."""
    folder = path if path.is_dir() else path.parent
    return StoredRun(store.read_run(path), folder, project or folder)
