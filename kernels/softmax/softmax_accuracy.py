"""Accuracy of softmax: row lengths around powers of two, rows too long for one tile, every rank.

No `reduces`: an output's error is relative to it and does not grow with the row, since the float32 sum is of positive
terms added up as a tree.
"""

import perfci
import torch
from softmax_baseline import make_inputs, softmax as reference
from softmax_triton import softmax as kernel

from _views import far, with_far

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
BEYOND_ONE_TILE = 40009
"""Columns; more than any device's `tile_elements`, and a prime."""


def transposed_batch(device):
    return {"x": torch.zeros(4, 3, 8, device=device).transpose(0, 1)}


accuracy = perfci.Accuracy(
    kernel=kernel,
    reference=reference,
    make_inputs=with_far(make_inputs),
    cases=(
        *perfci.grid(rows=[1, 13], cols=[1, 1023, 1024, 1025], dtype=[torch.float32]),
        *perfci.grid(rows=[131], cols=[61], dtype=DTYPES),
        *perfci.grid(rows=[397], cols=[61], dtype=[torch.float16]),
        # Full tiles, more of them than the smallest grid has programs.
        *perfci.grid(rows=[32], cols=[1024], dtype=[torch.float16]),
        *perfci.grid(rows=[2], cols=[BEYOND_ONE_TILE], dtype=DTYPES),
        *perfci.grid(rows=[2], cols=[BEYOND_ONE_TILE], dtype=DTYPES[:1], hidden=[20_000]),
        *perfci.grid(rows=[(), (2, 3), (2, 1, 5)], cols=[100], dtype=[torch.float16, torch.bfloat16]),
        *perfci.grid(rows=[0], cols=[64], dtype=[torch.bfloat16]),
        *perfci.grid(rows=[2], cols=[8191, 8192, 65536], dtype=[torch.float32]),
        *perfci.grid(rows=[2], cols=[32768], dtype=[torch.float16]),
        *perfci.grid(rows=[3, (2, 0)], cols=[0], dtype=[torch.float32]),
    ),
    probe_cases=(
        *perfci.grid(rows=[33], cols=[100], dtype=DTYPES),
        *perfci.grid(rows=[2], cols=[BEYOND_ONE_TILE], dtype=[torch.float32]),
    ),
    values=(*perfci.VALUES, "masked"),
    # Elements of a row of n are of the size of 1 / n: torch.testing's atol of 1e-5 is nearly half of that at 65,536.
    tolerance={"float32": (1.3e-6, 1e-7), "float16": (1e-3, 1e-7), "bfloat16": (1.6e-2, 1e-7)},
    # What performance launches and no case above does.
    accelerator_cases=(
        *perfci.grid(rows=[256], cols=[512], dtype=[torch.float16]),
        *perfci.grid(rows=[2], cols=[4096], dtype=[torch.float16, torch.float32]),
        *perfci.grid(rows=[2], cols=[1024], dtype=[torch.bfloat16]),
        # More rows than an H200 has processors: programs take several long ones.
        *perfci.grid(rows=[133], cols=[65536], dtype=[torch.bfloat16]),
        # Places that take more than 32 bits, of few elements.
        *perfci.grid(rows=[5], cols=[261, BEYOND_ONE_TILE], dtype=[torch.bfloat16], far=far("x", 0, 1)),
        *perfci.grid(rows=[3], cols=[65536], dtype=[torch.bfloat16], far=["x:1:16383"]),  # within a chunk
    ),
    # Past 2^31 and 2^32 elements, 32-bit indexes become negative, or wrap around.
    large_cases=perfci.grid(rows=[2**22 + 5], cols=[1025], dtype=[torch.bfloat16]),
    rejects=(
        ("x without a dimension", lambda device: {"x": torch.zeros((), device=device)}),
        ("x of integers", lambda device: {"x": torch.zeros(4, 8, dtype=torch.int32, device=device)}),
        ("x with transposed leading dimensions", transposed_batch),
    ),
)
if __name__ == "__main__":
    perfci.main(accuracy)
