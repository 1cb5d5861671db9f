"""perfci as a program for tests that start it often: its reports have no pictures."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMMAND = [sys.executable, "-P", __file__]


@contextlib.contextmanager
def no_pictures() -> Iterator[None]:
    """Drawing, and importing what draws, takes half of a check's time, and tests/report looks at all pictures."""
    from perfci import report
    from perfci.extensions.pictures.plots import Gallery, Painter

    draw, load = Painter.draw_all, report.import_libraries
    Painter.draw_all, report.import_libraries = lambda *_: Gallery({}), lambda: None
    try:
        yield
    finally:
        Painter.draw_all, report.import_libraries = draw, load


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    from perfci.cli import main

    del sys.path[0]
    with no_pictures():
        main()
