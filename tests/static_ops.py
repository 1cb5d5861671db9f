"""Ops to be captured without a device: one kernel in many revisions, wrappers as people write them, and broken ones."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import yaml

from perfci.extensions.common.targets import LINE_FREE
from perfci.extensions.offline.process import HIDDEN
from perfci.extensions.static.tasks import Compile
from perfci.worker import forks
from perfci.worker.tasks import OpFiles, Place, pack_task
from perfci.worker.warm import IMPORTED, IMPORTED_ON_GPU, PROGRAM

TEXTS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))

ROOT = Path(__file__).parents[1]
HEADER = "import torch\nimport triton\nimport triton.language as tl\n\n\n"

BASELINE = TEXTS["baseline"]

SUITE = TEXTS["suite"]

SCALE = HEADER + TEXTS["scale"]
"""The revision that all others are compared with."""

LOOP = HEADER + TEXTS["loop"]

AUTOTUNED = HEADER + TEXTS["autotuned"]


def edited(text: str, *changes: tuple[str, str]) -> str:
    """Returns a source with a replacement; the old text has to be there."""
    for before, after in changes:
        assert before in text, before
        text = text.replace(before, after)
    return text


def write(root: Path, op: str, kernel: str, *, baseline: str = BASELINE, cases: str = '{"n": 4096}') -> None:
    """An op's four files in a folder of its name."""
    folder = root / op
    folder.mkdir(parents=True)
    (folder / f"{op}_triton.py").write_text(kernel.replace("{op}", op))
    (folder / f"{op}_baseline.py").write_text(baseline.format(op=op))
    for name in ("accuracy", "performance"):
        text = SUITE.format(op=op, name=name, kind=name.capitalize(), cases=cases)
        (folder / f"{op}_{name}.py").write_text(text)


class Said(list):
    """A worker's messages, as plain data and as lines."""

    def __init__(self, lines: list[bytes]):
        super().__init__(json.loads(line) for line in lines)
        self.lines = lines


def run(
    root: Path, ops: list[str], target: str, cache: Path, *, program: str | None = None, pattern: str | None = None,
    cases: tuple[str, ...] | None = None, **variables: str,
) -> Said:  # fmt: skip
    """The answer of a worker that compiles the ops for a target; program: in place of the worker's own."""
    read, written = os.pipe()
    given = [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
    # What differs from test to test would have each import torch and Triton anew.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "PYTEST_"))}
    environment = kept | LINE_FREE | HIDDEN | {"OMP_NUM_THREADS": "1", "TRITON_CACHE_DIR": str(cache)}
    environment |= {"PYTHONPATH": os.pathsep.join([str(ROOT), *given])} | variables
    forked = None
    if not program and "TRITON_INTERPRET" not in variables:  # which a worker drops before it imports Triton
        forks.begin(
            environment, Path.cwd(), PROGRAM, (*IMPORTED, *IMPORTED_ON_GPU, "perfci.extensions.static.compiled")
        )
        forked = forks.start(environment, Path.cwd(), None, [written])
    child = forked or subprocess.Popen(
        [sys.executable, "-P", *(["-c", program] if program else ["-m", "perfci.worker.child"])],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, pass_fds=[written],
        env=environment, cwd=Path.cwd(),
    )  # fmt: skip
    os.close(written)
    # Read beside the messages: Triton prints whole listings of what it cannot assemble.
    output: list[bytes] = []
    reader = threading.Thread(target=lambda: output.append(child.stdout.read()))
    reader.start()
    place = Place(tuple(OpFiles(op, root / op) for op in ops), root)
    task = Compile(place=place, target=target, pattern=pattern, cases=cases)
    child.stdin.write(pack_task(task, written))
    child.stdin.flush()
    with os.fdopen(read, "rb") as pipe:
        lines = pipe.read().splitlines()
    child.stdin.close()
    reader.join()
    child.stdout.close()
    assert child.wait() == 0, output[0].decode(errors="replace")[-3000:]
    return Said(lines)


def compiled(messages: list[dict]) -> dict[str, dict]:
    """Every op's result by its name."""
    assert not bodies(messages, "Failed"), messages
    return {body["op"]: body for body in bodies(messages, "StaticOp")}


def bodies(messages: list[dict], kind: str) -> list[dict]:
    """The messages of a kind."""
    return [message["body"] for message in messages if message["kind"] == kind]
