"""Accuracy of rms_norm: row lengths around powers of two, rows too long for one tile, few and many of them.

No `reduces`: an output's error is relative to it, since the float32 sum is of squares added up as a tree.
"""

import perfci
import torch
from rms_norm_baseline import make_inputs, rms_norm as reference
from rms_norm_triton import rms_norm as kernel

from _views import FAR, spread

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
BEYOND_ONE_TILE = 40009
"""Columns; more than any device's `tile_elements`, and a prime."""


def inputs(apart=0, rows_apart=0, weight_apart=0, eps=None, **case):
    """As in the baseline; elements between neighbours of a row of x, of a column, of the weight."""
    made = make_inputs(**case) | ({} if eps is None else {"eps": eps})
    for name, axis, step in (("x", -1, apart), ("x", 0, rows_apart), ("weight", 0, weight_apart)):
        made[name] = spread(made[name], axis, step) if step else made[name]
    return made


def far(rows, cols, **apart):
    """Places that take more than 32 bits, of few elements."""
    return perfci.grid(rows=rows, cols=cols, weighted=[True], stats=[True], dtype=[torch.bfloat16], **apart)


def tensors(device, x_shape, weight_shape, **options):
    return {"x": torch.zeros(x_shape, device=device), "weight": torch.zeros(weight_shape, device=device), **options}


def transposed_batch(device):
    return {"x": torch.zeros(4, 3, 8, device=device).transpose(0, 1)}


accuracy = perfci.Accuracy(
    kernel=kernel,
    reference=reference,
    make_inputs=inputs,
    cases=(
        *perfci.grid(rows=[1, 13], cols=[1, 1023, 1024, 1025], weighted=[True], stats=[True], dtype=[torch.float32]),
        *perfci.grid(rows=[131], cols=[61], weighted=[True], stats=[False], dtype=DTYPES),
        *perfci.grid(rows=[5], cols=[700], weighted=[False], stats=[True], dtype=[torch.float16]),
        *perfci.grid(rows=[1, 2], cols=[BEYOND_ONE_TILE], weighted=[True], stats=[True], dtype=DTYPES),
        *perfci.grid(rows=[1, 5], cols=[BEYOND_ONE_TILE], weighted=[False], stats=[False], dtype=DTYPES[1:2]),
        *perfci.grid(rows=[(), (2, 1, 5)], cols=[100], weighted=[True], stats=[True], dtype=[torch.bfloat16]),
        *perfci.grid(rows=[0], cols=[64], weighted=[True], stats=[True], dtype=[torch.bfloat16]),
        *perfci.grid(rows=[2], cols=[8191, 8192, 65536], weighted=[True], stats=[True], dtype=[torch.float32]),
        *perfci.grid(rows=[2], cols=[32768], weighted=[True], stats=[False], dtype=[torch.float16]),
        *perfci.grid(rows=[2], cols=[BEYOND_ONE_TILE], weighted=[True], stats=[True], dtype=[torch.float32], apart=[2]),
        *perfci.grid(rows=[397], cols=[61], weighted=[True], stats=[True], dtype=[torch.float16]),
        # Full tiles, more of them than the smallest grid has programs.
        *perfci.grid(rows=[32], cols=[1024], weighted=[True], stats=[True], dtype=[torch.float16]),
        # Another eps than the default, in each kernel.
        *perfci.grid(
            rows=[5], cols=[61, BEYOND_ONE_TILE], weighted=[True], stats=[True], dtype=[torch.float32], eps=[0.5]
        ),
        *perfci.grid(rows=[1], cols=[BEYOND_ONE_TILE], weighted=[True], stats=[True], dtype=[torch.float32], eps=[0.5]),
        *perfci.grid(rows=[3, (2, 0)], cols=[0], weighted=[False], stats=[False], dtype=[torch.float32]),
    ),
    # No row as long as those above: PyTorch's is NaN on a GPU where such a one has an infinity.
    probe_cases=perfci.grid(rows=[33], cols=[100], weighted=[True], stats=[True], dtype=DTYPES),
    accelerator_cases=(
        # What performance launches and no case above does.
        *perfci.grid(rows=[134], cols=[1024], weighted=[True], stats=[False], dtype=[torch.float16]),
        *perfci.grid(rows=[1072], cols=[128], weighted=[True], stats=[False], dtype=[torch.bfloat16]),
        *perfci.grid(rows=[2], cols=[4096], weighted=[True], stats=[False, True], dtype=[torch.bfloat16]),
        *perfci.grid(rows=[1], cols=[8192], weighted=[True], stats=[False], dtype=[torch.float32]),
        *perfci.grid(rows=[133], cols=[65536], weighted=[True], stats=[False], dtype=[torch.bfloat16]),
        *perfci.grid(rows=[2], cols=[262144], weighted=[True], stats=[False], dtype=[torch.float32]),
        # More chunks than programs may share a row.
        *perfci.grid(rows=[1], cols=[1064960], weighted=[True], stats=[False], dtype=[torch.float32]),
        # More rows than an H200 has processors: none is shared between programs.
        *far(rows=[133], cols=[40960], rows_apart=[2**24 + 8]),
        *far(rows=[5], cols=[261], apart=[FAR]),
        *far(rows=[5], cols=[261], weight_apart=[FAR]),
        *far(rows=[2], cols=[BEYOND_ONE_TILE], apart=[2**16]),
        *far(rows=[3], cols=[BEYOND_ONE_TILE], rows_apart=[2**30 + 8]),
        *far(rows=[133], cols=[65536], apart=[2**17 + 16]),  # beyond 2^31 within a chunk
    ),
    # Past 2^31 and 2^32 elements, 32-bit indexes become negative, or wrap around.
    large_cases=perfci.grid(rows=[2**22 + 5], cols=[1025], weighted=[True], stats=[True], dtype=[torch.bfloat16]),
    rejects=(
        ("weight of another length", lambda device: tensors(device, (4, 8), 7)),
        ("weight with two dimensions", lambda device: tensors(device, (4, 8), (1, 8))),
        (
            "weight of another dtype",
            lambda device: {**tensors(device, (4, 8), 8), "x": torch.ones(4, 8).half().to(device)},
        ),
        ("a negative eps", lambda device: tensors(device, (4, 8), 8, eps=-1.0)),
        ("statistics of no columns", lambda device: tensors(device, (4, 0), 0, stats=True)),
        ("x without a dimension", lambda device: {"x": torch.zeros((), device=device)}),
        ("x of integers", lambda device: {"x": torch.zeros(4, 8, dtype=torch.int32, device=device)}),
        ("x with transposed leading dimensions", transposed_batch),
    ),
)
if __name__ == "__main__":
    perfci.main(accuracy)
