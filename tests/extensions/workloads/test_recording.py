"""`perfci.record` and `perfci record` on a CPU, with an op of torch alone."""

import json
import subprocess
import sys

import pytest

from perfci.core import PACKAGE
from perfci.extensions.workloads.records import Tensor, read_workload

pytestmark = [pytest.mark.torch, pytest.mark.slow]

KERNEL = """
def make(k):
    def double(x, times=2, *, flag="a"):
        return x * times * k
    return double
double = make(1)
"""
BASELINE = """
import torch
def double(x, times=2, *, flag="a"):
    return x * times
def make_inputs(rows, cols, dtype, device, seed):
    return {"x": torch.randn(rows, cols, dtype=dtype, device=device)}
"""
PERFORMANCE = """
import perfci, torch
from double_baseline import double as reference, make_inputs
from double_triton import double as kernel
performance = perfci.Performance(
    kernel=kernel, reference=reference, make_inputs=make_inputs,
    cases=perfci.grid(rows=[4, 8], cols=[16, 32], dtype=[torch.float16, torch.float32]),
    bytes_moved=lambda rows, cols, dtype: 2 * rows * cols * dtype.itemsize, flops=lambda rows, cols, dtype: rows * cols,
)
"""
SERVE = """
import sys, time, torch
sys.path.insert(0, "kernels/double")
from double_triton import double
print("serving")
for _ in range(5):
    double(torch.ones(3, 7))
    double(torch.ones(9, 7).T, flag="SECRET" * 100)
time.sleep(float(sys.argv[1]))
"""


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "kernels" / "double"
    folder.mkdir(parents=True)
    for part, text in (("triton", KERNEL), ("baseline", BASELINE), ("performance", PERFORMANCE), ("accuracy", "")):
        (folder / f"double_{part}.py").write_text(text)
    (tmp_path / "serve.py").write_text(SERVE)
    return tmp_path


def python(project, *words):
    """In a process of its own, as modules of ops are imported."""
    return subprocess.run(
        [sys.executable, *words], cwd=project, capture_output=True, text=True, check=False,
        env={"PATH": "", "PYTHONPATH": str(PACKAGE.parent), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


STEPS = """
import perfci, sys, torch
sys.path.insert(0, "kernels/double")
from double_triton import double
code = double.__code__
with perfci.record("steps", steps=2) as recorder:
    for step in range(6):
        double(torch.full((3, 7), 41.5), times=2)
        recorder.step()
assert double.__code__ is code
assert torch.equal(double(torch.ones(2)), torch.full((2,), 2.0))
"""


@pytest.mark.nightly
def test_calls_of_marked_steps_are_counted_with_their_case_and_their_share(project):
    done = python(project, "-c", STEPS)

    assert done.returncode == 0, done.stderr
    seen = read_workload(project / "kernels", "steps")
    assert (seen.steps, seen.clock, seen.device.kind) == (2, "host", "cpu")
    [call] = seen.calls
    assert (call.op, call.count, call.case) == ("double", 2, "rows=3,cols=7,dtype=float32")
    assert call.arguments == {"x": Tensor((3, 7), "float32"), "times": 2}
    assert call.outputs == (Tensor((3, 7), "float32"),)
    assert (call.bytes_moved, call.flops) == (2 * 21 * 4, 21)
    assert 0 < seen.share(call.us) < 1
    assert seen.overhead is not None
    assert "41.5" not in (project / "kernels/_workloads/steps.json").read_text()


def record(project, *words):
    return python(project, "-m", "perfci", "record", *words)


MORE = """
import mylib, os, subprocess
mylib.triple(torch.ones(2), bias=1)
if not os.fork():
    double(torch.ones(3, 7))
    sys.exit()
os.wait()
quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}  # keeps no pipe of the test's open
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(20)"], **quiet)
"""


def test_a_program_is_recorded_by_its_command(project):
    """It calls an op, a function that is no op yet, and the op again in a process that it forks."""
    (project / "mylib.py").write_text("def triple(x, bias=None):\n    return x * 3\n")
    (project / "serve.py").write_text(SERVE + MORE)
    words = ("--after", "0", "--also", "mylib:triple", "--format", "json", "--", sys.executable, "serve.py", "0")

    done = record(project, *words)

    assert done.returncode == 0, done.stderr
    assert "serving" in done.stderr  # what it prints is no part of the answer
    answer = json.loads(done.stdout)
    assert answer["workload"]["name"] == "serve"
    stored = read_workload(project / "kernels", "serve")
    calls = {len(call.arguments): call for call in stored.calls if call.op == "double"}
    # The first call begins the recording, and a forked process's are not recorded.
    assert calls[1].count == 4
    other = calls[2]
    assert (other.count, other.case, other.arguments["x"].strides) == (5, None, (1, 7))
    assert len(other.arguments["flag"]) == 60
    assert done.stderr.count("which the recorded program forked, calls ops too") == 1
    assert [(note.kind, note.facts) for note in stored.notes] == [("children_unheard", {"count": 1})]
    _gives_perfci_new_its_sizes(project / "kernels/_workloads/serve.json")


def _gives_perfci_new_its_sizes(file):
    from perfci.extensions.workloads.cases import write_calls

    assert "    triple(bias=1, x=torch.empty((2,), dtype=torch.float32))" in write_calls(file)
    file.write_text("{}x")
    with pytest.raises(ValueError, match=r"serve\.json"):
        write_calls(file)


@pytest.mark.nightly
def test_a_program_that_ends_before_it_is_recorded_leaves_no_workload(project):
    done = record(project, "--after", "9", "--", sys.executable, "serve.py", "0")

    assert done.returncode == 1
    assert "take a smaller --after" in done.stderr
    assert not (project / "kernels/_workloads").exists()


def test_what_is_no_python_program_is_refused(project):
    assert "Name a Python program" in record(project, "--", "make", "serve").stderr


class Event:
    """An event as torch's profiler has it."""

    def __init__(self, name, start, correlation, *, cuda=False, linked=0):
        self._facts = {"name": name, "start_ns": start, "duration_ns": 10, "correlation_id": correlation}
        self._facts |= {"linked_correlation_id": linked, "device_resource_id": 7, "is_user_annotation": False}
        self._cuda = cuda

    def device_type(self):
        import torch

        return torch.autograd.DeviceType.CUDA if self._cuda else torch.autograd.DeviceType.CPU

    def __getattr__(self, name):
        return lambda: self._facts[name]


def test_who_launches_a_kernel_is_the_operator_of_torch_that_the_profiler_links_it_with():
    from perfci.extensions.workloads.recording import _read_events

    kernel = "void at::native::elementwise<...>"
    events = [
        Event("aten::mul", 0, 3), Event("cudaLaunchKernel", 5, 9), Event(kernel, 50, 9, cuda=True, linked=3),
        Event("other", 60, 3, cuda=True, linked=9), Event("ProfilerStep", 0, 1),
    ]  # fmt: skip

    seen = [(one.kind, one.name, one.by, one.correlation) for one in _read_events(events)]

    assert seen == [
        ("launch", "cudaLaunchKernel", None, 9), ("kernel", kernel, "aten::mul", 9), ("kernel", "other", None, 3),
    ]  # fmt: skip
