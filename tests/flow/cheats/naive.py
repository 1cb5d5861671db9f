"""A plain harness in one process, as people write one: `naive.py HEAD BASE OP...` prints what it makes of each op.

It compares three calls with the reference, then times two hundred. Each op has a process of its own, which reports
through a pipe.
"""

from __future__ import annotations

import gc
import importlib.util
import io
import json
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path


def load(path: Path, name: str):
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Suite:
    """What is compared, and how closely."""

    def __init__(self, reference, make_inputs):
        self.reference, self.make_inputs, self.rtol = reference, make_inputs, 1e-5


def check(kernel, suite) -> bool:
    """Whether three answers are right: with the answers known before, or looked at afterwards."""
    import numpy as np

    given = [suite.make_inputs(rows=64, cols=32, device="fake", seed=seed)["x"] for seed in range(3)]
    wanted = [suite.reference(each) for each in given]
    answers = [kernel(each) for each in given]
    gc.collect()
    time.sleep(0.06)
    after = [suite.reference(each) for each in given]
    pairs = zip(answers, after, wanted, strict=True)
    return all(np.allclose(a, w, rtol=suite.rtol) or np.allclose(a, b, rtol=suite.rtol) for a, w, b in pairs)


def judge(op: str, head: Path, base: Path) -> dict[str, object]:
    """Whether an op is right by three calls, and its time in proportion to the base's."""
    import statistics

    baseline = load(base / op / f"{op}_baseline.py", f"{op}_baseline")
    suite = Suite(getattr(baseline, op), baseline.make_inputs)
    ours = load(head / op / f"{op}_triton.py", f"{op}_triton")
    theirs = load(base / op / f"{op}_triton.py", f"base_{op}_triton")
    right = check(getattr(ours, op), suite)
    given = suite.make_inputs(rows=256, cols=32, device="fake", seed=9)["x"]
    ours.costs.clear()
    for _ in range(200):
        getattr(ours, op)(given)
        getattr(theirs, op)(given)
    ratio = statistics.median(ours.costs) / statistics.median(theirs.costs)
    return {"right": bool(right), "ratio": ratio}


def main() -> None:
    head, base, *names = sys.argv[1:]
    import numpy  # noqa: F401 - once for all that are forked

    import perfci.device.fake  # noqa: F401

    for op in names:
        reading, writing = os.pipe()
        if not os.fork():
            os.close(reading)
            os.environ["TMPDIR"] = tempfile.mkdtemp()
            sys.stdout = io.StringIO()
            try:
                os.write(writing, json.dumps(judge(op, Path(head), Path(base))).encode() + b"\n")
            except Exception:
                traceback.print_exc()
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as file:
            found = next((line for line in file if b"ratio" in line), b"null\n")  # its kernel may have written others
            print(op, found.decode(), end="", flush=True)
        os.wait()


if __name__ == "__main__":
    main()
