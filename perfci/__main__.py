"""`python -m perfci`, and the program that pip installs: signals are heard before the commands are imported.

So begins the process that workers are forked from: to import torch takes longest.
"""

import gc
import sys
from typing import NoReturn

from perfci.core.stopping import exit_with


def main() -> NoReturn:
    """Run perfci and exit."""
    exit_with(_run)


def _run() -> int:
    from perfci.core import bytecode
    from perfci.worker import warm

    warm.begin(sys.argv[1:])
    gc.set_threshold(50_000, 10, 10)  # most of what a command makes lives until its end: a tenth of its CPU seconds
    bytecode.keep("typer")
    from perfci.cli.main import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    main()
