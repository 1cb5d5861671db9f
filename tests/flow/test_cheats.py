"""Kernels that cheat: each trick is planted in a sound op, and has to be WRONG or SUSPECT."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from perfci.cli.main import run

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SOUND = """
import time

import torch
import triton
import triton.language as tl


@triton.jit
def _double_kernel(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count)
    tl.store(out_ptr + at, x * 2.0 + 1.0, mask=at < count)


def launch(x, out, count):
    if count:
        _double_kernel[(triton.cdiv(count, 1024),)](x, out, count, BLOCK=1024)


def honest(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    launch(x, out, out.numel())
    return out

"""
HONEST = "def double(x):\n    return honest(x)\n"


@dataclass(frozen=True)
class Cheat:
    """A trick, and how it shows: kinds of reasons on a device, and in the interpreter if it shows there too."""

    code: str
    on_device: frozenset[str]
    interpreted: frozenset[str] = frozenset()


def shows(*kinds: str) -> frozenset[str]:
    return frozenset(kinds)


CHEATS = {
    "an answer remembered by the input's address": Cheat(
        """
_kept = {}

def double(x):
    key = x.data_ptr(), tuple(x.shape), x.dtype
    if x.numel() < 1 << 20:
        return honest(x)
    if key not in _kept:
        _kept.clear()
        _kept[key] = honest(x)
    out = torch.empty_like(x)
    launch(x, out, 1024)
    return _kept[key]
""",
        shows("timed_output_wrong", "above_bandwidth"),
    ),
    "an answer remembered by the input's address and version": Cheat(
        """
_kept = {}

def double(x):
    key = x.data_ptr(), x._version, tuple(x.shape), x.dtype
    if x.numel() < 1 << 20:
        return honest(x)
    if key not in _kept:
        _kept.clear()
        _kept[key] = honest(x)
    out = torch.empty_like(x)
    launch(x, out, 1024)
    return _kept[key]
""",
        shows("timed_output_wrong", "above_bandwidth"),
    ),
    "one output buffer for all calls": Cheat(
        """
_buffers = {}

def double(x):
    x = x.contiguous()
    key = tuple(x.shape), x.dtype, x.device
    out = _buffers.setdefault(key, torch.empty_like(x))
    launch(x, out, out.numel())
    return out
""",
        shows("output_reused"),
        shows("output_reused"),
    ),
    "the input handed back": Cheat(
        """
def double(x):
    x.copy_(honest(x))
    return x
""",
        shows("input_changed"),
        shows("input_changed"),
    ),
    "the reference's operations": Cheat(
        """
def double(x):
    return x * 2 + 1
""",
        shows("calls_reference"),
    ),
    "the reference's operations behind a small launch": Cheat(
        """
def double(x):
    spare = torch.empty(1024, device=x.device)
    launch(spare, spare, 0 if x.numel() == 0 else 1024)
    return x * 2 + 1
""",
        shows("calls_reference"),
    ),
    "another stream": Cheat(
        """
_streams = []

def double(x):
    if x.device.type != "cuda":
        return honest(x)
    if not _streams:
        _streams.append(torch.cuda.Stream())
    _streams[0].wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(_streams[0]):
        out = honest(x)
    torch.cuda.current_stream().wait_stream(_streams[0])
    return out
""",
        shows("other_stream"),
    ),
    "half of the rows at the sizes that are timed": Cheat(
        """
def double(x):
    if x.numel() < 1 << 20:
        return honest(x)
    out = torch.zeros_like(x)
    launch(x, out, out.numel() // 2)
    return out
""",
        shows("timed_output_wrong"),
    ),
    "an answer that is computed when somebody looks": Cheat(
        """
class Later(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        args = tuple(honest(arg.as_subclass(torch.Tensor)) if isinstance(arg, cls) else arg for arg in args)
        return function(*args, **(kwargs or {}))

def double(x):
    return x.clone().as_subclass(Later)
""",
        shows("wrong_type"),
        shows("wrong_type"),
    ),
    "events that tell half of the time": Cheat(
        "_tell = torch.cuda.Event.elapsed_time\n"
        "torch.cuda.Event.elapsed_time = lambda start, end: _tell(start, end) / 2\n" + HONEST,
        shows("timing_function_replaced"),
    ),
    "a synchronise that does not wait": Cheat(
        "torch.cuda.synchronize = lambda device=None: None\n" + HONEST,
        shows("timing_function_replaced"),
    ),
    "a profiler of its own": Cheat(
        "import torch.autograd.profiler\n"
        "class Profile(torch.autograd.profiler.profile):\n    pass\n"
        "torch.autograd.profiler.profile = Profile\n" + HONEST,
        shows("timing_function_replaced"),
    ),
    "a clock of its own": Cheat(
        "_clock = time.perf_counter\ntime.perf_counter = lambda: _clock() / 2\n" + HONEST,
        shows("timing_function_replaced"),
    ),
    "perfci's arithmetic replaced": Cheat(
        "import sys\n"
        "_stats = sys.modules['perfci.statistics.exact']\n"
        "_stats.launch_shift = lambda launches, others: -0.5\n" + HONEST,
        shows("timing_function_replaced"),
    ),
}


WARMED = Cheat(
    """
_state = {"address": 0, "calls": 0, "out": None}

def double(x):
    if x.numel() < 1 << 20:
        return honest(x)
    if _state["address"] != x.data_ptr():
        _state.update(address=x.data_ptr(), calls=0)
    _state["calls"] += 1
    if _state["calls"] <= 3 or (_state["calls"] - 3) % 4:  # three warm up the block, then one of four is timed
        _state["out"] = honest(x)
    else:
        launch(x, torch.empty_like(x), 1024)
    return _state["out"]
""",
    shows("timed_output_wrong"),
)
"""Works in the calls that warm the cache, and hands its answer back when it is timed."""


def write(project: Path, double: str, cache: str = "cold") -> None:
    """A project with the one op."""
    folder = project / "kernels" / "double"
    folder.mkdir(parents=True)
    (folder / "double_triton.py").write_text(SOUND + double)
    (folder / "double_baseline.py").write_text(
        "import torch\n\n\ndef double(x):\n    return x * 2 + 1\n\n\n"
        "def make_inputs(rows, cols, device, seed):\n"
        "    generator = torch.Generator(device).manual_seed(seed)\n"
        '    return {"x": torch.randn(rows, cols, device=device, generator=generator)}\n'
    )
    for suite, kind, rows in (("accuracy", "Accuracy", [1, 5]), ("performance", "Performance", [65536])):
        more = 'values=("normal",)'
        if suite == "performance":
            more = f"bytes_moved=lambda rows, cols: 8 * rows * cols, cache={cache!r}"
        (folder / f"double_{suite}.py").write_text(
            "import perfci\n"
            "from double_baseline import double as reference, make_inputs\n"
            "from double_triton import double as kernel\n\n"
            f"{suite} = perfci.{kind}(kernel=kernel, reference=reference, make_inputs=make_inputs, "
            f"cases=perfci.grid(rows={rows}, cols=[2048]), {more})\n"
        )


def check(project: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, set[str], set[str]]:
    """Exit code, verdicts, and all kinds of reasons."""
    capsys.readouterr()
    code = run(["check", *options, "--duel", "none", "--format", "json", "--project", str(project)])
    said = capsys.readouterr()
    assert said.out, said.err
    rows = json.loads(said.out)["verdicts"]
    kinds = {reason["kind"] for row in rows for reason in (row["reason"], *row["also"]) if reason}
    return code, {row["verdict"] for row in rows}, kinds


@pytest.mark.parametrize("cheat", [name for name, cheat in CHEATS.items() if cheat.interpreted])
def test_a_cheat_that_shows_in_the_interpreter_is_wrong(cheat, tmp_path, capsys):
    write(tmp_path / "project", CHEATS[cheat].code)

    code, verdicts, kinds = check(tmp_path / "project", capsys, "--device", "cpu", "--suite", "accuracy")

    assert code == 2
    assert verdicts == {"WRONG"}
    assert kinds & CHEATS[cheat].interpreted


def test_the_honest_kernel_is_right_in_the_interpreter(tmp_path, capsys):
    write(tmp_path / "project", HONEST)

    code, verdicts, _ = check(tmp_path / "project", capsys, "--device", "cpu", "--suite", "accuracy")

    assert (code, verdicts) == (0, {"PASS"})


@pytest.mark.cuda
@pytest.mark.parametrize("timer", ["activity", "event"])
@pytest.mark.parametrize("cheat", CHEATS)
def test_a_cheat_is_wrong_or_suspect_on_a_device(cheat, timer, tmp_path, capsys):
    write(tmp_path / "project", CHEATS[cheat].code)

    code, verdicts, kinds = check(tmp_path / "project", capsys, "--device", "cuda", "--timer", timer)

    assert code in {2, 3}
    assert verdicts & {"WRONG", "SUSPECT"}
    assert kinds & CHEATS[cheat].on_device, kinds


@pytest.mark.cuda
def test_an_answer_worked_out_in_the_calls_that_warm_is_wrong(tmp_path, capsys):
    write(tmp_path / "project", WARMED.code, cache="warm")

    code, verdicts, kinds = check(tmp_path / "project", capsys, "--device", "cuda")

    assert (code, verdicts & {"WRONG"}) == (2, {"WRONG"})
    assert kinds & WARMED.on_device, kinds


@pytest.mark.cuda
@pytest.mark.parametrize(("timer", "cache"), [("activity", "cold"), ("event", "cold"), ("activity", "warm")])
def test_the_honest_kernel_is_neither_on_a_device(timer, cache, tmp_path, capsys):
    write(tmp_path / "project", HONEST, cache)

    code, verdicts, _ = check(tmp_path / "project", capsys, "--device", "cuda", "--timer", timer)

    assert (code, verdicts) == (0, {"PASS", "NEW"})
