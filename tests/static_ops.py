"""Ops to be captured without a device: one kernel in many revisions, wrappers as people write them, and broken ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

from perfci.device.targets import LINE_FREE
from perfci.runs.bench import IMPORTED, IMPORTED_ON_GPU, PROGRAM
from perfci.worker import forks
from perfci.worker.static import HIDDEN
from perfci.worker.tasks import Compile, OpFiles, Place, pack_task

ROOT = Path(__file__).parents[1]
HEADER = "import torch\nimport triton\nimport triton.language as tl\n\n"

BASELINE = """import torch


def {op}(x):
    return x * 2


def make_inputs(n, device, seed):
    generator = torch.Generator(device).manual_seed(seed)
    return {{"x": torch.randn((n,), generator=generator, device=device)}}
"""

SUITE = """import perfci
from {op}_baseline import make_inputs, {op} as reference
from {op}_triton import {op} as kernel

{name} = perfci.{kind}(kernel=kernel, reference=reference, make_inputs=make_inputs, cases=[{cases}])
"""

SCALE = (
    HEADER
    + """
@triton.jit
def _scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offset, mask=offset < n)
    tl.store(out_ptr + offset, x * 2.0, mask=offset < n)


def {op}(x):
    out = torch.empty_like(x)
    n = x.numel()
    _scale[(triton.cdiv(n, 256),)](x, out, n, BLOCK=256)
    return out
"""
)
"""The revision that all others are compared with."""

LOOP = (
    HEADER
    + """
@triton.jit(do_not_specialize=["turns"])
def _loop(x_ptr, out_ptr, n, turns, BLOCK: tl.constexpr):
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offset, mask=offset < n)
    for _ in range(turns):
        x = x * 1.5 + 1.0
    tl.store(out_ptr + offset, x, mask=offset < n)


def {op}(x):
    out = torch.empty_like(x)
    _loop[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), 4, BLOCK=256)
    return out
"""
)

AUTOTUNED = (
    HEADER
    + """
FACTOR = tl.constexpr(2.0)


@triton.jit
def _scaled(x):
    return x * FACTOR


@triton.autotune(
    configs=[triton.Config({"BLOCK": 64}, num_warps=1), triton.Config({"BLOCK": 512}, num_warps=8)], key=["n"]
)
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def _tuned(x_ptr, out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        x = tl.load(x_ptr + offset)
    else:
        x = tl.load(x_ptr + offset, mask=offset < n)
    if BLOCK > 256:
        x = x + 0.0
    tl.store(out_ptr + offset, _scaled(x), mask=offset < n)


def {op}(x):
    out = torch.empty_like(x)
    _tuned[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
    return out
"""
)


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
    """What a worker says that compiles the ops for a target; program: in place of the worker's own."""
    read, written = os.pipe()
    given = [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
    environment = os.environ | LINE_FREE | HIDDEN | {"OMP_NUM_THREADS": "1", "TRITON_CACHE_DIR": str(cache)}
    environment |= {"PYTHONPATH": os.pathsep.join([str(ROOT), *given])} | variables
    forked = None
    if not program and "TRITON_INTERPRET" not in variables:  # which a worker drops before it imports Triton
        forks.begin(environment, Path.cwd(), PROGRAM, (*IMPORTED, *IMPORTED_ON_GPU, "perfci.worker.static"))
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
