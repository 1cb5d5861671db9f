"""perfci as a program for tests that start it often: it forks its workers, and its reports have no pictures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

ROOT = Path(__file__).parents[1]
COMMAND = [sys.executable, "-P", __file__]

if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    from perfci.cli import main
    from perfci.report.plots import Gallery
    from tests.warm_workers import WarmWorkers

    del sys.path[0]
    workers = WarmWorkers()
    forking = SimpleNamespace(**{**vars(subprocess), "Popen": workers.start})
    with (
        mock.patch("perfci.worker.parent.subprocess", forking),
        mock.patch("perfci.report.plots.Painter.draw_all", return_value=Gallery({})),
    ):
        try:
            main()
        finally:
            workers.close()
