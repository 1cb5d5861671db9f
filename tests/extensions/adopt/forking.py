"""Imports torch and Triton once, and runs programs of this folder in forks of itself, one after the other.

An order is a line of JSON: program, arguments, standard input, variables, folder. An answer: status, both outputs.
"""

import contextlib
import io
import json
import os
import runpy
import sys
import tempfile
import traceback
from pathlib import Path

import torch.fx.experimental.symbolic_shapes  # noqa: F401
import triton.language  # noqa: F401

from perfci.device import cpu  # noqa: F401
from perfci.extensions.adopt.rehearsal import function  # noqa: F401


def run(program: str, arguments: list[str], text: str, variables: dict[str, str], folder: str) -> int:
    """Run a program as Python runs a file. Returns its status."""
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    sys.argv, sys.stdin = [program, *arguments], io.StringIO(text)
    sys.path[:1] = [str(Path(program).parent), *filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))]
    try:
        runpy.run_path(program, run_name="__main__")
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


for line in sys.stdin:
    with contextlib.ExitStack() as stack:
        outputs = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(2)]
        if not (pid := os.fork()):
            for output, number in zip(outputs, (1, 2), strict=True):
                os.dup2(output.fileno(), number)
            status = run(*json.loads(line))
            sys.stdout.flush()
            os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        for output in outputs:
            output.seek(0)
        print(json.dumps([status, *(output.read() for output in outputs)]), flush=True)
