"""Times and memory of the steps of attention's development side by side, on the CUDA device at hand.

    python examples/time_attention_steps.py              at 512 to 4096 queries and keys, as in docs/ops/attention.md
    python examples/time_attention_steps.py --causal

Each step's answer is compared with PyTorch's first. Times as in examples/time_matmul_steps.py. Memory is the most that
PyTorch's allocator held during a call beyond q, k and v: the answer and what a step writes in between.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

import torch
from time_matmul_steps import KERNELS, compare, medians
from torch.nn.attention import SDPBackend, sdpa_kernel

SIZES = (512, 1024, 2048, 4096)
BATCH, HEADS, WIDTH = 4, 16, 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--causal", action="store_true")
    causal = parser.parse_args().causal
    sys.path[:0] = [str(KERNELS), str(KERNELS / "attention")]
    steps = importlib.import_module("attention_steps")
    shown = f"{BATCH} x {HEADS} heads of {WIDTH}, bfloat16{', causal' if causal else ''}"
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {shown}: us and MB\n")
    rows: dict[str, list[str]] = {}
    for size in SIZES:
        q, k, v = (torch.randn(BATCH, HEADS, size, WIDTH, dtype=torch.bfloat16, device="cuda") for _ in "qkv")
        calls = {name: functools.partial(steps.attention_step, q, k, v, name, causal) for name in steps.VARIANTS}
        usual = functools.partial(torch.nn.functional.scaled_dot_product_attention, q, k, v, is_causal=causal)
        calls |= {"PyTorch, math": functools.partial(_by_math, usual), "PyTorch": usual}
        for name, call in calls.items():
            compare(name, call(), usual())
        used = {name: peak(call) for name, call in calls.items()}
        for name, us in medians(calls).items():
            rows.setdefault(name, []).extend([f"{us:.0f}", f"{used[name] / 1e6:.0f}"])
    print("| step |" + "".join(f" {size}, us | MB |" for size in SIZES))
    print("| --- |" + " ---: | ---: |" * len(SIZES))
    for name, cells in rows.items():
        print(f"| {name} | {' | '.join(cells)} |")


def peak(call: Callable[[], Any]) -> int:
    """Bytes that a call held at most beyond what was held before."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def _by_math(call: Callable[[], torch.Tensor]) -> torch.Tensor:
    with sdpa_kernel(SDPBackend.MATH):
        return call()


if __name__ == "__main__":
    main()
