"""Times of the steps of the matmul's development side by side, with bias and gelu, on the CUDA device at hand.

    python examples/time_matmul_steps.py                      at the shapes of docs/ops/matmul.md, as its table
    python examples/time_matmul_steps.py --shape 4096,4096,4096

Each step's answer is compared with PyTorch's first. A round launches every step once in random order, each behind a
flush of L2. Times are medians over rounds by CUDA events, which add about 3 us. The steps before `fused` have
PyTorch do bias and gelu. `product` is without bias and gelu, and the share of cuBLAS is for it.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import random
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

KERNELS = Path(__file__).resolve().parents[1] / "kernels"
SHAPES = ((4096, 4096, 4096), (8192, 8192, 4096))
ROUNDS = 15
FLUSH_BYTES = 256 * 2**20
ACTIVATION = "gelu"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", type=_shape, action="append", help="m,n,k (may be repeated)")
    options = parser.parse_args()
    sys.path[:0] = [str(KERNELS), str(KERNELS / "matmul")]
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, bfloat16")
    for shape in options.shape or SHAPES:
        table(*shape)


def table(m: int, n: int, k: int) -> None:
    """The times of every step at one shape."""
    steps = importlib.import_module("matmul_steps")
    baseline = importlib.import_module("matmul_baseline")
    inputs = baseline.make_inputs(m, n, k, torch.bfloat16, "cuda", 1, bias=True, activation=ACTIVATION)
    a, b, bias = (inputs[name] for name in ("a", "b", "bias"))
    products = {name: functools.partial(steps.matmul_step, a, b, name) for name in steps.VARIANTS}
    whole = {
        name: functools.partial(steps.matmul_step, a, b, name, bias=bias, activation=ACTIVATION)
        for name in steps.VARIANTS
    }
    products["PyTorch"] = functools.partial(baseline.matmul, a, b)
    whole["PyTorch"] = functools.partial(baseline.matmul, **inputs)
    for calls in (products, whole):
        for name, call in calls.items():
            compare(name, call(), calls["PyTorch"]())
    of_product, of_whole = medians(products), medians(whole)
    print(f"\n### {m} x {n} x {k}\n")
    print("| step | product, us | TFLOP/s | of cuBLAS | with bias and gelu, us |\n| --- | ---: | ---: | ---: | ---: |")
    for name, us in of_product.items():
        share = of_product["PyTorch"] / us
        print(f"| {name} | {us:.0f} | {2e-6 * m * n * k / us:.0f} | {share:.1%} | {of_whole[name]:.0f} |")


def medians(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Median time of each call, microseconds; calls take turns in random order."""
    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    taken: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name in random.sample(list(calls), len(calls)):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            flush.zero_()
            start.record()
            calls[name]()
            end.record()
            taken[name].append((start, end))
        torch.cuda.synchronize()
    return {name: statistics.median(1e3 * start.elapsed_time(end) for start, end in taken[name]) for name in calls}


def compare(name: str, got: torch.Tensor, usual: torch.Tensor) -> None:
    """Ends the program if a step's answer differs from PyTorch's by more than rounding."""
    error = float((got.float() - usual.float()).norm() / usual.float().norm())
    if not error < 1e-2:
        sys.exit(f"{name} is wrong: its relative error against PyTorch is {error:.3g}")


def _shape(text: str) -> tuple[int, int, int]:
    sides = tuple(int(side) for side in text.split(",") if side.strip().isdigit() and int(side) > 0)
    if len(sides) != 3:
        raise argparse.ArgumentTypeError(f"{text!r} is not m,n,k: three whole numbers above 0")
    return sides


if __name__ == "__main__":
    main()
