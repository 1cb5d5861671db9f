"""A plain harness in one process, as people write one: `naive.py judge DEVICE HEAD BASE OP...` says of each op.

It compares three calls with the reference, then times many more. Each op has a separate process, which reports
through a pipe. With `judge,use` another process calls the kernel on fresh inputs of the accuracy suite's shapes.
"""

import gc
import importlib
import importlib.util
import io
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

ROUNDS = {"fake": 200, "cpu": 40, "cuda": 40}
SIZES = {"fake": (256, 32), "cpu": (256, 32), "cuda": (4096, 4096)}  # that are timed
SHAPES = ((3, 128), (64, 128))  # of the accuracy suite
CALLS = 6  # with fresh values of each shape
LIMIT_S = 60


def load(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Suite:
    """What is compared, and how closely."""

    def __init__(self, reference, make_inputs, device):
        self.reference, self.make_inputs, self.device, self.rtol = reference, make_inputs, device, 1e-5

    def given(self, rows: int, cols: int, seed: int) -> Any:
        return self.make_inputs(rows=rows, cols=cols, device=self.device, seed=seed)["x"]

    def close(self, left: Any, right: Any) -> bool:
        library = importlib.import_module("numpy" if self.device == "fake" else "torch")
        return bool(library.allclose(left, right, rtol=self.rtol))


def check(kernel, suite) -> bool:
    """Whether three answers are right: with the answers known before, or looked at afterwards."""
    given = [suite.given(64, 32, seed) for seed in range(3)]
    wanted = [suite.reference(value) for value in given]
    answers = [kernel(value) for value in given]
    gc.collect()
    time.sleep(0.06)
    after = [suite.reference(value) for value in given]
    return all(suite.close(a, w) or suite.close(a, b) for a, w, b in zip(answers, after, wanted, strict=True))


def judge(op: str, device: str, head: Path, base: Path) -> dict[str, object]:
    """Whether an op is right by three calls, and its time in proportion to the base's."""
    import statistics

    baseline = load(base / op / f"{op}_baseline.py", f"{op}_baseline")
    suite = Suite(getattr(baseline, op), baseline.make_inputs, device)
    ours = load(head / op / f"{op}_triton.py", f"{op}_triton")
    theirs = load(base / op / f"{op}_triton.py", f"base_{op}_triton")
    right = check(getattr(ours, op), suite)
    given = suite.given(*SIZES[device], 9)
    ours.costs.clear()
    took: dict[ModuleType, list[float]] = {ours: [], theirs: []}
    for _ in range(ROUNDS[device]):
        for module, times in took.items():
            times.append(clock(getattr(module, op), given, device))
    if device == "cuda":  # elsewhere kernels claim what a call costs
        for module, times in took.items():
            module.costs[:] = times
    ratio = statistics.median(ours.costs) / statistics.median(theirs.costs)
    return {"right": bool(right), "ratio": ratio}


def clock(kernel: Callable[[Any], object], given: Any, device: str) -> float:
    """Microseconds of a call, on a GPU alone."""
    if device != "cuda":
        kernel(given)
        return 0.0
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(200_000)  # so that no event waits for the host
    start.record()
    kernel(given)
    end.record()
    torch.cuda.synchronize()
    return 1e3 * start.elapsed_time(end)


def use(op: str, device: str, head: Path, base: Path) -> dict[str, object]:
    """Whether the kernel is right for a user: in a process that no one judges, by numbers that numpy works out."""
    import numpy as np

    kernel = getattr(load(head / op / f"{op}_triton.py", f"{op}_triton"), op)
    draw, right = np.random.RandomState(random.SystemRandom().getrandbits(31)), True
    for rows, cols in SHAPES * CALLS:
        given = draw.standard_normal((rows, cols)).astype("f4")
        wanted = given * 2 + 1
        if device == "fake":
            got = np.array(kernel(given.copy()))
        else:
            import torch

            got = torch.Tensor.numpy(kernel(torch.from_numpy(given.copy()).to(device)).cpu())
        right &= got.shape == wanted.shape and bool((np.abs(got - wanted) <= 1e-5 + 1e-5 * np.abs(wanted)).all())
    return {"alone": right}


def main() -> None:
    tasks, device, head, base, *names = sys.argv[1:]
    # Once for all that are forked.
    for name in ("numpy", *(["perfci.device.fake"] if device == "fake" else ["torch", "triton", "triton.language"])):
        importlib.import_module(name)
    for op in names:
        answers: dict[str, object] = {}
        for task in tasks.split(","):
            answers |= json.loads(ask({"judge": judge, "use": use}[task], op, device, Path(head), Path(base))) or {}
        print(op, json.dumps(answers), flush=True)


def ask(task: Callable[..., dict[str, object]], op: str, device: str, head: Path, base: Path) -> str:
    """The answer of a separate process."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        os.close(reading)
        os.setpgid(0, 0)
        signal.alarm(LIMIT_S)
        os.environ["TMPDIR"] = tempfile.mkdtemp()
        sys.stdout = io.StringIO()
        try:
            os.write(writing, json.dumps(task(op, device, head, base)).encode() + b"\n")
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        # Its kernel may have written others.
        answer_line = next((line for line in file if b"ratio" in line or b"alone" in line), b"null\n")
    os.waitpid(child, 0)
    return answer_line.decode()


if __name__ == "__main__":
    main()
