"""perfci as a program for tests that start it often: its reports have no pictures."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).parents[1]
COMMAND = [sys.executable, "-P", __file__]


@contextlib.contextmanager
def no_pictures() -> Iterator[None]:
    """Drawing, and importing what draws, takes half of a check's time, and tests/report looks at all pictures."""
    from perfci.report.plots import Gallery

    with (
        mock.patch("perfci.report.plots.Painter.draw_all", return_value=Gallery({})),
        mock.patch("perfci.report.import_libraries"),
    ):
        yield


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    from perfci.cli import main

    del sys.path[0]
    with no_pictures():
        main()
