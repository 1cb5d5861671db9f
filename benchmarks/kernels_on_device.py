"""How the ops do on the CUDA device at hand: answers checked, kernel against PyTorch, and a sweep over configurations.

    python benchmarks/kernels_on_device.py                        every performance case of every op
    python benchmarks/kernels_on_device.py --op softmax           of one op
    python benchmarks/kernels_on_device.py --tune matmul          the five best configurations of each case
    python benchmarks/kernels_on_device.py --alternatives         other ways to write the references in PyTorch

Times are medians over rounds; a round launches every arm once in random order, each behind a flush of L2. They are
taken with CUDA events, which add about 3 us: kernels under 20 us look closer together here than they are. What perfci
itself measures, with the device's records, is what counts. This script is for choosing configurations by hand.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import itertools
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

import perfci

KERNELS = Path(__file__).resolve().parents[1] / "kernels"
DEVICE = "cuda"
OPS = ("broadcast", "bias_relu", "softmax", "matmul")
ROUNDS, TUNING_ROUNDS = 50, 15
FLUSH_BYTES = 256 * 2**20  # several times the L2 of any device known here
COPY_BYTES = 2**30
BEST = 5
Call = Callable[[], Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", choices=OPS, action="append", help="only this op (may be repeated)")
    parser.add_argument("--tune", choices=OPS, action="append", help="sweep this op's configurations instead")
    parser.add_argument("--alternatives", action="store_true", help="time other ways to write the references instead")
    parser.add_argument("--case", default="", help="only cases with this text in their id")
    options = parser.parse_args()
    sys.path[:0] = [str(KERNELS), *(str(KERNELS / op) for op in OPS)]
    clock = Clock()
    limits = importlib.import_module("_launch").limits(torch.device("cuda", torch.cuda.current_device()))
    copy_gbps = clock.copy_gbps()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {limits}, copy {copy_gbps:.0f} GB/s")
    if options.alternatives:
        alternatives(clock)
    elif options.tune:
        for op in options.tune:
            tune(op, clock, copy_gbps, options.case)
    else:
        for op in options.op or OPS:
            answers(op)
            speeds(op, clock, copy_gbps, options.case)


class Clock:
    """Times calls with CUDA events, L2 flushed before each."""

    def __init__(self) -> None:
        self._flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device=DEVICE)

    def medians(self, arms: Mapping[Any, Call], rounds: int) -> dict[Any, float]:
        """Median time of each arm, microseconds; arms take turns in random order."""
        for call in arms.values():
            call()
            call()
        taken: dict[Any, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {arm: [] for arm in arms}
        for _ in range(rounds):
            for arm in random.sample(list(arms), len(arms)):
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                self._flush.zero_()
                start.record()
                arms[arm]()
                end.record()
                taken[arm].append((start, end))
            torch.cuda.synchronize()
        return {arm: _median([1e3 * start.elapsed_time(end) for start, end in pairs]) for arm, pairs in taken.items()}

    def copy_gbps(self) -> float:
        """Gigabytes (1e9) a second, read plus written, of a large copy."""
        source = torch.empty(COPY_BYTES, dtype=torch.int8, device=DEVICE)
        target = torch.empty_like(source)
        return 2 * COPY_BYTES / self.medians({"copy": lambda: target.copy_(source)}, ROUNDS)["copy"] / 1e3


def answers(op: str) -> None:
    """Checks every accuracy case against float64 and prints the wrong ones."""
    suite = importlib.import_module(f"{op}_accuracy").accuracy
    cases = (*suite.cases, *(suite.probe_cases or ()))
    wrong = 0
    for case in cases:
        inputs = suite.make_inputs(**case, device=DEVICE, seed=1)
        wide = {name: value.double() if torch.is_tensor(value) else value for name, value in inputs.items()}
        exact = suite.reference(**wide)
        complaint = _compare(suite.kernel(**inputs), exact, suite.reduces(**case) if suite.reduces else 1)
        wrong += bool(complaint)
        if complaint:
            print(f"WRONG {op} {perfci.case_id(case)}: {complaint}")
    print(f"\n{op}: {len(cases) - wrong} of {len(cases)} accuracy cases are right")


def speeds(op: str, clock: Clock, copy_gbps: float, only: str) -> None:
    """The table of an op's performance cases."""
    suite = importlib.import_module(f"{op}_performance").performance
    print(
        f"{'case':44}{'kernel us':>10}{'torch us':>10}{'speedup':>8}"
        f"{'GB/s':>6}{'of copy':>8}{'TFLOP/s':>8}{'answer':>7}"
    )
    for case, inputs in _cases(suite, only):
        exact = suite.reference(**inputs)
        complaint = _compare(suite.kernel(**inputs), exact, suite.reduces(**case) if suite.reduces else 1)
        del exact
        arms = {"kernel": lambda: suite.kernel(**inputs), "torch": lambda: suite.reference(**inputs)}  # noqa: B023
        us = clock.medians(arms, ROUNDS)
        print(
            f"{perfci.case_id(case):44}{us['kernel']:10.1f}{us['torch']:10.1f}{us['torch'] / us['kernel']:8.3f}"
            f"{_rates(suite, case, us['kernel'], copy_gbps)}{'WRONG' if complaint else 'right':>7}"
        )


def tune(op: str, clock: Clock, copy_gbps: float, only: str) -> None:
    """The best configurations of each performance case."""
    suite = importlib.import_module(f"{op}_performance").performance
    module = importlib.import_module(f"{op}_triton")
    for case, inputs in _cases(suite, only):
        exact = suite.reference(**inputs)
        arms: dict[Any, Call] = {"torch": lambda: suite.reference(**inputs)}  # noqa: B023
        arms["as chosen"] = lambda: suite.kernel(**inputs)  # noqa: B023
        for config in CANDIDATES[op](module, case):
            call = _with_config(module, config, suite.kernel, inputs)
            if _works(call, exact, suite, case):
                arms[config] = call
        us = clock.medians(arms, TUNING_ROUNDS)
        print(
            f"\n{perfci.case_id(case)}: torch {us.pop('torch'):.1f} us, "
            f"as chosen {us['as chosen']:.1f} us, {len(us)} tried"
        )
        for config in sorted(us, key=us.__getitem__)[:BEST]:
            named = config if isinstance(config, str) else " ".join(f"{k}={v}" for k, v in config._asdict().items())
            print(f"{us[config]:10.1f}{_rates(suite, case, us[config], copy_gbps)}  {named}")


def alternatives(clock: Clock) -> None:
    """Ways to write a reference in eager PyTorch, to see that the ones in use are the fastest."""
    rows, cols = 32768, 4096
    for dtype in (torch.bfloat16, torch.float32):
        x, bias = torch.randn(rows, cols, dtype=dtype, device=DEVICE), torch.randn(cols, dtype=dtype, device=DEVICE)
        zeros = torch.zeros(rows, dtype=torch.int64, device=DEVICE)
        ways: dict[str, Call] = {
            "broadcast: expand.clone": lambda: bias.expand(x.shape).clone(memory_format=torch.contiguous_format),  # noqa: B023
            "broadcast: empty_like.copy_": lambda: torch.empty_like(x).copy_(bias),  # noqa: B023
            "broadcast: repeat": lambda: bias.repeat(rows, 1),  # noqa: B023
            "broadcast: index_select of zeros": lambda: bias[None].index_select(0, zeros),  # noqa: B023
            "broadcast: embedding of zeros": lambda: torch.nn.functional.embedding(zeros, bias[None]),  # noqa: B023
            "bias_relu: relu(x + bias)": lambda: torch.relu(x + bias),  # noqa: B023
            "bias_relu: add.relu_": lambda: torch.add(x, bias).relu_(),  # noqa: B023
            "bias_relu: add.clamp_min_": lambda: torch.add(x, bias).clamp_min_(0),  # noqa: B023
        }
        for way, us in clock.medians(ways, ROUNDS).items():
            print(f"{dtype!s:16}{way:36}{us:8.1f} us")


def _cases(suite: perfci.Performance, only: str) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    for case in suite.cases:
        if only in perfci.case_id(case):
            yield case, suite.make_inputs(**case, device=DEVICE, seed=1)


def _rates(suite: perfci.Performance, case: Mapping[str, Any], us: float, copy_gbps: float) -> str:
    gbps = suite.bytes_moved(**case) / us / 1e3 if suite.bytes_moved else 0.0
    tflops = f"{suite.flops(**case) / us / 1e6:8.0f}" if suite.flops else f"{'-':>8}"
    return f"{gbps:6.0f}{100 * gbps / copy_gbps:7.1f}%{tflops}"


def _compare(got: torch.Tensor, exact: torch.Tensor, terms: int) -> str:
    """Returns what is wrong with an answer, or nothing. atol grows with the square root of the terms summed."""
    rtol, atol = {torch.float32: (1.3e-6, 1e-5), torch.float16: (1e-3, 1e-5), torch.bfloat16: (1.6e-2, 1e-5)}[got.dtype]
    room = 2 if exact.dtype == got.dtype else 1  # both are rounded
    try:
        atol *= room * max(terms, 1) ** 0.5
        torch.testing.assert_close(got, exact.to(got.dtype), rtol=room * rtol, atol=atol, equal_nan=True)
    except AssertionError as error:
        return " ".join(str(error).split())[:300]
    return ""


def _works(call: Call, exact: torch.Tensor, suite: perfci.Performance, case: Mapping[str, Any]) -> bool:
    try:
        complaint = _compare(call(), exact, suite.reduces(**case) if suite.reduces else 1)
    except Exception as error:
        complaint = f"{type(error).__name__} {error}"[:100] if "out of resource" not in str(error) else None
    if complaint:
        print(f"not tried: {complaint}")
    return complaint == ""


def _with_config(module: Any, config: Any, kernel: Callable[..., Any], inputs: Mapping[str, Any]) -> Call:
    def call() -> Any:
        with _chosen(module, config):
            return kernel(**inputs)

    return call


@contextlib.contextmanager
def _chosen(module: Any, config: Any) -> Iterator[None]:
    """The op's function that chooses its configuration gives this one."""
    name = "choose_config" if hasattr(module, "choose_config") else "choose_tile"
    usual = getattr(module, name)
    setattr(module, name, lambda *_: config)
    try:
        yield
    finally:
        setattr(module, name, usual)


def _pointwise(module: Any, case: Mapping[str, Any]) -> Iterator[Any]:
    size = case["dtype"].itemsize
    width = 1 << (case["cols"] - 1).bit_length()
    for tile, row, warps in itertools.product((2, 4, 8, 16, 32), (1, 2, 4, 8), (2, 4, 8)):
        cols = min(width, row * 1024 // size)
        if cols == row * 1024 // size and cols * size <= tile * 1024 and tile * 1024 >= warps * 512:
            yield module._launch.Tile(tile * 1024 // (cols * size), cols, warps)


def _softmax(module: Any, case: Mapping[str, Any]) -> Iterator[Any]:
    width = 1 << (case["cols"] - 1).bit_length()
    if width <= 4096:
        for elements, warps in itertools.product((1024, 2048, 4096, 8192), (1, 2, 4, 8)):
            if elements >= width and 8 <= elements // (32 * warps) <= 64:
                yield module.Tile(elements // width, width, warps)
    elif width <= 32768:
        for warps in (8, 16, 32):
            yield module.Tile(1, width, warps)
            for stages, programs in ((2, 1), (3, 1), (2, 2), (3, 2), (2, 4)):
                yield module.Tile(1, width, warps, False, stages, programs)
    if width >= 16384:
        for chunk, warps in itertools.product((2048, 4096, 8192, 16384), (4, 8, 16, 32)):
            if 4 <= chunk // (32 * warps) <= 64:
                yield module.Tile(1, chunk, warps, long=True)


def _matmul(module: Any, case: Mapping[str, Any]) -> Iterator[Any]:
    """About twenty, as each takes seconds to compile."""
    if case["m"] <= 128:
        for n, k, stages in itertools.product((32, 64, 128), (64, 128), (3, 4, 6)):
            yield module.Config(64, n, k, 8, 4, stages)
        return
    for (m, n), stages, group, persistent in itertools.product(
        ((128, 256), (256, 128), (128, 128)), (3, 4), (8, 16), (False, True)
    ):
        yield module.Config(m, n, 64, group, 4 if m * n <= 128 * 128 else 8, stages, persistent)


CANDIDATES: Mapping[str, Callable[[Any, Mapping[str, Any]], Iterator[Any]]] = {
    "broadcast": _pointwise,
    "bias_relu": _pointwise,
    "softmax": _softmax,
    "matmul": _matmul,
}


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


if __name__ == "__main__":
    main()
