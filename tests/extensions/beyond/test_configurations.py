"""Every configuration of an op is checked: candidates of autotuners, and entries of tuned files."""

import subprocess
import sys
import textwrap

import pytest

from perfci import store
from perfci.cli.main import run
from perfci.core.wording import sentence
from perfci.extensions.beyond.flow import has_choices
from perfci.worker.tasks import OpFiles
from tests.flow.conftest import Answer

pytest.importorskip("torch")
pytest.importorskip("triton")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

KERNEL = """
import torch, triton, triton.language as tl

PAIRS = [(parts, warps) for parts in range(1, 11) for warps in (1, 2, 4, 8)]
CONFIGS = [triton.Config({"BLOCK": 16, "PARTS": parts}, num_warps=warps) for parts, warps in PAIRS]

@triton.autotune(CONFIGS, key=["n"])
@triton.jit
def double(x, out, n, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    start = tl.program_id(0) * BLOCK * PARTS
    for part in tl.static_range(PARTS):
        place = start + part * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + place, 2 * tl.load(x + place, place < n), place < n - (PARTS == WRONG))

def op(x):
    out = torch.empty_like(x)
    n = x.numel()
    double[lambda meta: (triton.cdiv(n, meta["BLOCK"] * meta["PARTS"]),)](x, out, n)
    return out
"""
BASELINE = """
import torch

def op(x):
    return 2 * x

def make_inputs(n, dtype, device, seed):
    generator = torch.Generator(device).manual_seed(seed)
    return {"x": torch.randn(n, generator=generator, dtype=dtype, device=device)}
"""
SUITE = """
import perfci, torch
from op_baseline import make_inputs, op as reference
from op_triton import op as kernel

CASES = perfci.grid(n=[7, 100], dtype=[torch.float32])
NAME = perfci.CLASS(kernel=kernel, reference=reference, make_inputs=make_inputs, cases=CASES)
"""


LIBRARY = """
import triton

class Tuner(triton.runtime.Autotuner):
    def run(self, *args, **kwargs):
        return self.fn.run(*args, **kwargs, **self.configs[0].all_kwargs())

class Entry(triton.runtime.jit.KernelInterface):
    def __init__(self, fn):
        self.fn, self.kept = fn, []

    def run(self, *args, **kwargs):
        self.kept = self.kept or [self.fn.configs[0]]
        return self.fn.fn.run(*args, **kwargs, **self.kept[0].all_kwargs())

def tune(configs, key):
    return lambda fn: Entry(Tuner(fn, fn.arg_names, configs, key, None, None))
"""
"""As libraries have them: an autotuner of their own, in a class that keeps what it launched"""


@pytest.fixture
def op(tmp_path, capsys):
    """A function that makes an op in one configuration or none wrong, and checks it on the CPU."""
    folder = tmp_path / "kernels" / "op"
    folder.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "pyproject.toml").write_text("[tool.perfci]\n")
    (folder / "op_baseline.py").write_text(BASELINE)
    for name in ("Accuracy", "Performance"):
        suite = SUITE.replace("CLASS", name).replace("NAME", name.lower())
        suite = suite.replace("cases=CASES", 'cases=CASES, layouts=("contiguous",)') if name == "Accuracy" else suite
        (folder / f"op_{name.lower()}.py").write_text(suite)

    def check(wrong: int | None, *options: str, kernel: str = KERNEL) -> Answer:
        (folder / "op_triton.py").write_text(textwrap.dedent(kernel).replace("WRONG", str(wrong or 0)))
        code = run(["check", "--device", "cpu", "--suite", "accuracy", "--project", str(tmp_path), *options])
        seen = capsys.readouterr()
        return Answer(code, seen.out, seen.err)

    return check


@pytest.mark.nightly
def test_one_wrong_configuration_of_forty_is_found_and_named_and_its_least_case_shown(op, tmp_path):
    answer = op(7, "--thorough")

    assert answer.code == 2
    assert "In the configuration double: BLOCK: 16, PARTS: 7, num_warps: 1" in answer.out
    ((least, lines),) = (
        (case.case, case.failure.facts["python"])
        for op_run in store.read_run(tmp_path / "reports").ops
        for case in op_run.accuracy
        if case.failure and case.failure.kind == "least_configuration"
    )
    shown = subprocess.run([sys.executable, "-c", lines], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert least == "n=1,dtype=float32"
    assert "not_written" in shown.stdout, shown


@pytest.mark.nightly
def test_a_wrong_configuration_of_a_librarys_own_autotuner_is_found(op):
    kernel = KERNEL.replace("\nPAIRS", LIBRARY + "\nPAIRS").replace("@triton.autotune(CONFIGS", "@tune(CONFIGS")
    answer = op(7, "--thorough", kernel=kernel)

    assert answer.code == 2, answer.out
    assert "In the configuration double: BLOCK: 16, PARTS: 7, num_warps: 1" in answer.out


@pytest.mark.nightly
def test_a_wrong_configuration_that_is_pruned_for_the_probe_cases_is_checked_with_a_case_that_takes_it(op, tmp_path):
    prune = "lambda configs, args, **_: [one for one in configs if one.kwargs['PARTS'] < 7 or args['n'] > 50]"
    kernel = KERNEL.replace("key=[", f"prune_configs_by={{'early_config_prune': {prune}}}, key=[")
    suite = tmp_path / "kernels" / "op" / "op_accuracy.py"
    suite.write_text(suite.read_text().replace("cases=CASES,", "cases=CASES, probe_cases=CASES[:1],"))
    answer = op(7, "--thorough", kernel=kernel)

    assert answer.code == 2, answer.out
    assert "In the configuration double: BLOCK: 16, PARTS: 7, num_warps: 1" in answer.out
    assert "PARTS: 6" not in answer.out
    assert notes(tmp_path)[-1].startswith("All 40 configurations of op were checked")


def notes(folder) -> list[str]:
    return [sentence(note) for op in store.read_run(folder / "reports").ops for note in op.notes]


def test_forty_right_configurations_are_counted(op, tmp_path):
    answer = op(None, "--thorough")

    assert answer.code == 0, answer.out
    assert notes(tmp_path)[-1].startswith("All 40 configurations of op were checked by cases of its suite")


def test_an_ordinary_check_says_how_many_it_left(op, tmp_path, monkeypatch):
    monkeypatch.setattr("perfci.extensions.beyond.flow.LEAST_S", 0.0)
    monkeypatch.setattr("perfci.extensions.beyond.flow.SHARE", 0.0)
    answer = op(7)

    assert answer.code == 0, answer.out
    assert notes(tmp_path)[-1].startswith("0 of 40 configurations of op were checked")


def test_an_entry_of_a_tuned_file_is_pinned_though_no_call_takes_it():
    """In another process: the interpreter is chosen before Triton is imported."""
    code = """
        import json, sys, time, types
        from pathlib import Path
        from perfci.device.fake import FakeDevice, FakeSpec
        from perfci.extensions.beyond.configurations import Looked, check_configurations, list_configurations
        from perfci.ops.spec import Accuracy
        import numpy as np

        folder = Path(sys.argv[1]) / "op"
        (folder / "tuned").mkdir(parents=True)
        entries = [{"n_max": 0, "config": {"block": 3}}, {"config": {"block": 4}}]
        (folder / "tuned" / "board.json").write_text(json.dumps({"configs": entries}))
        (folder / "tuned" / "space.json").write_text("{}")
        launch = sys.modules["_launch"] = types.ModuleType("_launch")
        launch.tuned = lambda folder, key: ()

        def kernel(x):
            (entry, *_) = launch.tuned(folder / "tuned", "cpu") or [{"config": {"block": 4}}]
            return x[: len(x) // entry["config"]["block"] * entry["config"]["block"]].copy()

        def make_inputs(n, device, seed):
            return {"x": np.arange(n, dtype="float32")}

        suite = Accuracy(kernel, lambda x: x.copy(), make_inputs, cases=[{"n": 8}])

        def reads_its_bounds(x):
            for entry in launch.tuned(folder / "tuned", "cpu"):
                if len(x) <= entry["n_max"]:
                    block = dict(entry["config"])["block"]
                    return x[: len(x) // block * block].copy()
            return x.copy()

        device, looked = FakeDevice(FakeSpec(), 1), Looked()
        found = list_configurations(suite, device, "op", folder, folder.parent, suite.cases, ())
        for result in check_configurations(suite, device, suite.cases, found, vars, time.monotonic() + 60, looked):
            print(result.failure.kind, result.failure.facts["configuration"])
        print(looked)
        copies = Accuracy(lambda x: x.copy(), suite.reference, make_inputs, cases=suite.cases)  # another backend
        print(list_configurations(copies, device, "op", folder, folder.parent, suite.cases, ()))
        suite, looked = Accuracy(reads_its_bounds, suite.reference, make_inputs, cases=suite.cases), Looked()
        for result in check_configurations(suite, device, suite.cases, found, vars, time.monotonic() + 60, looked):
            print(result.failure.kind, result.failure.facts["configuration"])
        print(looked)
    """
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", textwrap.dedent(code), folder]
        done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == [
        "wrong_configuration tuned/board.json, n_max 0: block 3",
        "Looked(checked=2, of=2, refused=0)",
        "[]",
        "wrong_configuration tuned/board.json, n_max 0: block 3",
        "Looked(checked=2, of=2, refused=1)",
    ]


@pytest.mark.parametrize(
    ("names", "has"),
    [
        ({"op_triton.py": "@triton.jit"}, False),
        ({"op_triton.py": "@triton.autotune(CONFIGS)\n@triton.jit"}, True),
        ({"op_triton.py": "@triton.jit", "tuned/nvidia-h200.json": "{}"}, True),
        ({"op_triton.py": "@triton.jit", "tuned/space.json": "{}"}, False),
        ({"op_triton.py": "from library import op"}, True),
    ],
)
def test_an_op_that_has_one_configuration_costs_no_worker(names, has, tmp_path):
    for name, text in names.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    assert has_choices(OpFiles("op", tmp_path), "cpu") is has
    assert has_choices(OpFiles("op", tmp_path), "cuda") is False
