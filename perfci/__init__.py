"""perfci: is each kernel still right, and still fast? A verdict on every merge request that can be trusted."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfci.core import VERSION

if TYPE_CHECKING:
    from perfci.ops.spec import LAYOUTS, VALUES, Accuracy, Performance, Quantised, Stored, case_id, grid

__version__ = VERSION

__all__ = [
    "LAYOUTS", "VALUES", "Accuracy", "Performance", "Quantised", "Stored", "__version__", "backends", "case_id",
    "get_kernel", "grid", "load", "main", "record", "workload",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Declarations for suites, imported on demand: signals are heard behind this import."""
    if name in {"backends", "get_kernel", "record", "workload"}:
        from perfci.core.errors import require

        return require(name, "workloads" if name.startswith(("rec", "wor")) else "backends", f"perfci.{name}")
    if name in __all__:
        from perfci.ops import spec

        return getattr(spec, name)
    if name[:1].isupper():
        from perfci.core import extensions

        for place in extensions.list_places("suite"):
            if place.endswith(f":{name}"):
                return extensions.load(place)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def load(run: str | os.PathLike[str], project: str | os.PathLike[str] | None = None) -> Any:
    """A stored run: a run.json, or the folder that holds one.

    >>> perfci.load("reports").frame().groupby(["op", "case", "arm"])["median_us"].median()  # doctest: +SKIP

    `project` is a folder of the project with the thresholds and baselines by which `judgements` judges; without
    it the one around the run. Raises `perfci.core.errors.PerfciError`, with a text that has the remedy.
    """
    from perfci.core import extensions
    from perfci.core.errors import UsageError

    for read in extensions.provided("load"):
        return read(Path(run), None if project is None else Path(project))
    raise UsageError("extension_missing", name="history", option="perfci.load")


def main(suite: object) -> None:
    """Check the op of a suite file that is run by its path, that suite only, or what else a file declares."""
    from perfci.cli import run_file

    run_file(suite)


def _reach_shared_modules() -> None:
    """Python looks for modules beside the file that it runs. If that is a suite, look where its worker looks too."""
    file = Path(str(getattr(sys.modules["__main__"], "__file__", None)))
    if file.stem.endswith(("_accuracy", "_performance")) or file.absolute().parent.name.startswith("_"):
        from perfci.worker.load import suite_roots

        sys.path[:0] = suite_roots(file.resolve())


_reach_shared_modules()
