"""Workers that are forked and then run a text of Python, which they read from their standard input.

As a program: `forked.py PLACES python -c TEXT` runs a text in one confined to these, in JSON, and ends as it does.
"""

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from perfci.worker import forks

PROGRAM = """
import json, sys
main = lambda: exec(json.loads(sys.stdin.readline()), {"__name__": "__main__"})
"""


def begin(
    package: Path,
    modules: Sequence[str] = (),
    added: Sequence[Path] = (),
    later: Sequence[str] = (),
    **variables: str,
) -> dict[str, str]:
    """Variables of workers with a fork server that has begun. package: folder for its needs; added: to PYTHONPATH."""
    package.mkdir(exist_ok=True)
    (package / "perfci").symlink_to(Path(forks.__file__).parents[1])
    (package / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (package, *added))), **variables}
    forks.begin(environment, package, "program", ("perfci.worker.child", *modules), later)
    return environment


def start(
    environment: dict[str, str], text: str, folder: Path, writable: Sequence[Path] | None = (), *more: Sequence[str]
) -> forks.Forked:
    """A worker with a text. more: what is hidden of it, and shown."""
    places = None if writable is None else [[*map(str, writable)], *more]
    worker = forks.start(environment, folder, places, [])
    assert worker is not None, "it was not forked"
    worker.stdin.write(json.dumps(text).encode() + b"\n")
    worker.stdin.flush()
    return worker


def run(*arguments: object) -> tuple[str, int]:
    """What a worker prints, and how it ends. Takes what `start` takes."""
    worker = start(*arguments)  # type: ignore[arg-type]
    with worker.stdin, worker.stdout:
        return worker.stdout.read().decode(), worker.wait()


if __name__ == "__main__":
    _, places, *_, text = sys.argv
    with tempfile.TemporaryDirectory() as made:
        printed, status = run(begin(Path(made) / "package"), text, Path.cwd(), *json.loads(places))
        forks.end()
    print(printed, end="", flush=True, file=sys.stderr if status else sys.stdout)
    if status < 0:
        os.kill(os.getpid(), -status)
    sys.exit(status)
