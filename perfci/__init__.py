"""perfci: is each Triton kernel still right, and still fast? A verdict on every merge request that can be trusted."""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from perfci.spec import LAYOUTS, VALUES, Accuracy, Chain, Performance, Quantised, Stage, Stored, case_id, grid

if TYPE_CHECKING:
    from perfci.results import StoredRun

__version__ = "0.1.0"

__all__ = [
    "LAYOUTS",
    "VALUES",
    "Accuracy",
    "Chain",
    "Performance",
    "Quantised",
    "Stage",
    "Stored",
    "__version__",
    "case_id",
    "grid",
    "load",
    "main",
]


def load(run: str | os.PathLike[str], project: str | os.PathLike[str] | None = None) -> StoredRun:
    """A stored run: a run.json, or the folder that holds one.

    >>> perfci.load("reports").frame().groupby(["op", "case", "arm"])["median_us"].median()  # doctest: +SKIP

    `project` is a folder of the project by whose thresholds and baselines `judgements` judges; without it the one
    around the run. Raises `perfci.errors.PerfciError`, whose text says what to do.
    """
    from perfci.results import read

    return read(Path(run), None if project is None else Path(project))


def main(suite: Accuracy | Performance | Chain) -> None:
    """Check the op whose suite file is run by its path, that suite only, or a chain; exits as `perfci check` does."""
    from perfci.cli import run_file

    run_file(suite)


def _reach_shared_files() -> None:
    """When a suite runs by its path, Python finds the op's own folder only: add those above it with what ops share."""
    script = Path(sys.argv[0])
    if script.name.endswith(("_accuracy.py", "_performance.py", "_chain.py")):
        folders = itertools.takewhile(_is_no_root, script.resolve().parents[1:])  # ops may lie in folders of folders
        sys.path.extend(str(folder) for folder in folders if any(folder.glob("_*.py")))


def _is_no_root(folder: Path) -> bool:
    """Whether a folder may lie inside a project: the root has settings, or the folder of ops."""
    return not (folder / "pyproject.toml").is_file() and not (folder / "kernels").is_dir()


_reach_shared_files()
