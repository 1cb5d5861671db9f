"""perfci as a program for tests that start it often: its reports have no pictures."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).parents[1]
COMMAND = [sys.executable, "-P", __file__]

if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    from perfci.cli import main
    from perfci.report.plots import Gallery

    del sys.path[0]
    with mock.patch("perfci.report.plots.Painter.draw_all", return_value=Gallery({})):
        main()
