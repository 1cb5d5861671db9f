"""perfci: is each Triton kernel still right, and still fast? A verdict on every merge request that can be trusted."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from perfci.core import VERSION

if TYPE_CHECKING:
    from perfci.ops.spec import LAYOUTS, VALUES, Accuracy, Chain, Performance, Quantised, Stage, Stored, case_id, grid
    from perfci.runs.results import StoredRun

__version__ = VERSION

__all__ = [
    "LAYOUTS", "VALUES", "Accuracy", "Chain", "Performance", "Quantised", "Stage", "Stored", "__version__", "case_id",
    "grid", "load", "main",
]  # fmt: skip


def __getattr__(name: str) -> object:
    """What suites declare, imported when it is asked for: signals are heard behind this import."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from perfci.ops import spec

    return getattr(spec, name)


def load(run: str | os.PathLike[str], project: str | os.PathLike[str] | None = None) -> StoredRun:
    """A stored run: a run.json, or the folder that holds one.

    >>> perfci.load("reports").frame().groupby(["op", "case", "arm"])["median_us"].median()  # doctest: +SKIP

    `project` is a folder of the project by whose thresholds and baselines `judgements` judges; without it the one
    around the run. Raises `perfci.core.errors.PerfciError`, whose text has the remedy.
    """
    from perfci.runs.results import read

    return read(Path(run), None if project is None else Path(project))


def main(suite: Accuracy | Performance | Chain) -> None:
    """Check the op whose suite file is run by its path, that suite only, or a chain. Exits as `perfci check` does."""
    from perfci.cli import run_file

    run_file(suite)


def _reach_what_workers_reach() -> None:
    """When a suite runs by its path, Python finds modules in the op's own folder only: look where a worker looks."""
    script = Path(sys.argv[0])
    if not script.name.endswith(("_accuracy.py", "_performance.py", "_chain.py")):
        return
    from perfci.core import settings
    from perfci.core.errors import PerfciError
    from perfci.worker.load import import_roots, project_roots

    folder = script.resolve().parent
    with contextlib.suppress(PerfciError):  # without a project or with damaged settings: `main` reports it
        where = settings.load(folder)
        sys.path[:0] = [*import_roots(folder, where.kernels), *project_roots(where.root)]


_reach_what_workers_reach()
