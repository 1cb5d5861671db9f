"""A program of its own: runs another one, with its calls recorded. `perfci record` starts it."""

import runpy
import sys
from pathlib import Path

from perfci.core.errors import PerfciError
from perfci.extensions.workloads.recording import Recorder


def main(root: str, name: str, after_s: str, also: str, *words: str) -> None:
    """Run `script.py ARGUMENTS` or `-m module ARGUMENTS` as Python does."""
    module = words[0] == "-m"
    recorder = Recorder(name, root, also=also.split(), after_s=float(after_s))
    sys.argv = list(words[1:] if module else words)
    sys.path[0] = str(Path.cwd() if module else Path(words[0]).resolve().parent)
    with recorder:
        if module:
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except PerfciError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
