"""perfci as a program for tests that start it often: its reports have no pictures."""

import contextlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
COMMAND = [sys.executable, "-P", __file__]


class Said(NamedTuple):
    """The exit code of a command, and what it printed."""

    code: int
    out: str
    err: str


def call(*words: str, pictures: bool = False) -> Said:
    """Run a command in this process, which starts sooner than another one and has its workers forked from one."""
    from perfci.cli.main import run

    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True, newline="") for _ in range(2))
    drawing = contextlib.nullcontext() if pictures else no_pictures()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), drawing:
        code = run([*words])
    return Said(code, *(stream.buffer.getvalue().decode() for stream in (out, err)))  # type: ignore[attr-defined]


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
