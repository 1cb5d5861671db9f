"""Products in float8 by every way of sharing scales, beside float16: time, memory of the operands, and error.

    python benchmarks/fp8_table.py --device cuda                          at the shapes of docs/ops/fp8_matmul.md
    python benchmarks/fp8_table.py --device cuda --shape 4096,4096,4096   m, n and k (may be repeated)
    python benchmarks/fp8_table.py --device cpu --shape 32,32,128         by Triton's interpreter, without times

Each shape has two kinds of operands: normal values, and such with one channel (a place along k) in 128 that is 2**15
times as large as the others in a, and as much smaller in b. An error is the root mean square of the difference from the
product in float64 before quantising, by the root mean square of that product. All answers are float16. `auto` chooses
the size of groups for each operand (`_scaling.choose_channels`). Times are medians by CUDA events over rounds that
launch every way once in random order behind a flush of L2.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

KERNELS = Path(__file__).resolve().parents[1] / "kernels"
SHAPES = ((4096, 4096, 4096), (64, 8192, 8192))
WAYS = ("tensor", "row", "block", 64, 32, 16, 8, 4, "auto")
ROUNDS = 15
FLUSH_BYTES = 256 * 2**20
HEAD = """\
| scales | time, us | of float16 | memory, MB | of float16 | relative error |
| --- | ---: | ---: | ---: | ---: | ---: |"""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--shape", type=lambda text: tuple(map(int, text.split(","))), action="append", help="m,n,k")
    options = parser.parse_args(arguments)
    if options.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    sys.path[:0] = [str(KERNELS), str(KERNELS / "matmul"), str(KERNELS / "fp8_matmul")]
    if options.device == "cuda":
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, float8_e4m3fn")
    for shape in options.shape or SHAPES:
        for loud in (False, True):
            print(f"\n### {' x '.join(map(str, shape))}{', one channel in 128 is loud' if loud else ''}\n\n{HEAD}")
            for row in rows(*shape, loud=loud, device=options.device):
                print(f"| {' | '.join(row)} |")


def rows(m: int, n: int, k: int, *, loud: bool, device: str) -> list[tuple[str, ...]]:
    """The table's rows: float16 first, then each of WAYS."""
    scaling, quant = importlib.import_module("_scaling"), importlib.import_module("_quant")
    matmul, fp8_matmul = (getattr(importlib.import_module(f"{op}_triton"), op) for op in ("matmul", "fp8_matmul"))
    left, right = operands(m, n, k, loud, device)
    half = left.half(), right.t().contiguous().half().t()
    calls: dict[str, Callable[[], torch.Tensor]] = {"float16": lambda: matmul(*half)}
    sizes = {"float16": sum(tensor.numel() * tensor.element_size() for tensor in half)}
    for way in WAYS:
        if isinstance(way, str) and way != "auto":
            a = quant.quantize(left, torch.float8_e4m3fn, {"block": "group"}.get(way, way))
            b = quant.quantize(right, torch.float8_e4m3fn, {"row": "column"}.get(way, way))
            b_values, b_scale, name = b.values, b.scale, way
        else:
            a, b = (scaling.quantize_channels(x, torch.float8_e4m3fn, way) for x in (left, right.t()))
            b_values, b_scale = b.values.t(), b.scale.t()
            of_a, of_b = (-(-k // operand.scale.shape[1]) for operand in (a, b))
            name = f"auto: {of_a} and {of_b}" if way == "auto" else f"groups of {way}"
        given = a.values, b_values.t().contiguous().t(), a.scale, b_scale
        sizes[name] = sum(tensor.numel() * tensor.element_size() for tensor in given)
        calls[name] = lambda given=given: fp8_matmul(*given, torch.float16)
    exact = left.double() @ right.double()
    errors = {name: float((call().double() - exact).norm() / exact.norm()) for name, call in calls.items()}
    times = medians(calls) if device == "cuda" else {}
    return [
        (
            name,
            f"{times[name]:.1f}" if times else "-",
            f"{times[name] / times['float16']:.2f}" if times else "-",
            f"{sizes[name] / 1e6:.3g}",
            f"{sizes[name] / sizes['float16']:.2f}",
            f"{errors[name]:.2%}",
        )
        for name in calls
    ]


def operands(m: int, n: int, k: int, loud: bool, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Normal values, of which products are of order 1. With `loud` the values stay within float16."""
    generator = torch.Generator(device).manual_seed(1)
    left = torch.randn((m, k), generator=generator, device=device)
    right = torch.randn((k, n), generator=generator, device=device) * k**-0.5
    if loud:
        size = torch.full((k,), 2.0**-4, device=device)
        size[7::128] = 2.0**11
        left, right = left * size, right / size[:, None]
    return left, right


def medians(calls: dict[str, Callable[[], torch.Tensor]]) -> dict[str, float]:
    """Microseconds of each call."""
    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    order, times = random.Random(1), {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name in order.sample(list(calls), len(calls)):
            flush.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            calls[name]()
            end.record()
            torch.cuda.synchronize()
            times[name].append(1e3 * start.elapsed_time(end))
    return {name: statistics.median(samples) for name, samples in times.items()}


if __name__ == "__main__":
    main()
