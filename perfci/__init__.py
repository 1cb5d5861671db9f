"""perfci: is each Triton kernel still right, and still fast? A verdict on every merge request that can be trusted."""

import sys
from pathlib import Path

from perfci.spec import LAYOUTS, VALUES, Accuracy, Performance, case_id, grid

__version__ = "0.1.0"

__all__ = ["LAYOUTS", "VALUES", "Accuracy", "Performance", "__version__", "case_id", "grid", "main"]


def main(suite: Accuracy | Performance) -> None:
    """Check the op whose suite file is run by its path, that suite only; exits as `perfci check` does."""
    from perfci.cli import run_file

    run_file(suite)


def _reach_shared_files() -> None:
    """When a suite runs by its path, Python finds the op's own folder only: add those with what ops share."""
    script = Path(sys.argv[0])
    if script.name.endswith(("_accuracy.py", "_performance.py")):
        above = list(script.resolve().parents)[1:4]  # ops may lie in folders of folders
        sys.path.extend(str(folder) for folder in above if any(folder.glob("_*.py")))


_reach_shared_files()
