"""Accuracy of layer_norm: row lengths around powers of two, rows too long for one tile, few and many of them.

No `reduces`: sums are added up as a tree in float32, and each difference to the mean is as exact as the row's elements.
"""

import perfci
import torch
from layer_norm_baseline import layer_norm, make_inputs
from layer_norm_triton import layer_norm as kernel

from _views import FAR, spread

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
BEYOND_ONE_TILE = 40009
"""Columns; more than any device's `tile_elements`, and a prime."""


def reference(x, weight=None, bias=None, eps=1e-5, stats=False):
    """As in the baseline. PyTorch adds a row up as it goes, and has NaN for the mean of one with an infinity."""
    answer = layer_norm(x, weight, bias, eps, stats)
    if not stats:
        return answer
    out, mean, rstd = answer
    return out, torch.where(mean.isnan(), x.to(mean.dtype).mean(-1, keepdim=True), mean), rstd


def inputs(apart=0, rows_apart=0, affine_apart=0, eps=None, **case):
    """As in the baseline; elements between neighbours of a row of x, of a column, of weight and bias."""
    made = make_inputs(**case) | ({} if eps is None else {"eps": eps})
    for name, axis, step in (
        ("x", -1, apart),
        ("x", 0, rows_apart),
        ("weight", 0, affine_apart),
        ("bias", 0, affine_apart),
    ):
        made[name] = spread(made[name], axis, step) if step else made[name]
    return made


def far(rows, cols, **apart):
    """Places that take more than 32 bits, of few elements."""
    return perfci.grid(rows=rows, cols=cols, affine=["both"], stats=[True], dtype=[torch.bfloat16], **apart)


def tensors(device, x_shape, weight_shape, **options):
    x, weight = (torch.zeros(shape, device=device) for shape in (x_shape, weight_shape))
    return {"x": x, "weight": weight, "bias": torch.zeros(x_shape[-1:], device=device), **options}


def transposed_batch(device):
    return {"x": torch.zeros(4, 3, 8, device=device).transpose(0, 1)}


accuracy = perfci.Accuracy(
    kernel=kernel,
    reference=reference,
    make_inputs=inputs,
    cases=(
        *perfci.grid(rows=[1, 13], cols=[1, 1023, 1024, 1025], affine=["both"], stats=[True], dtype=[torch.float32]),
        *perfci.grid(rows=[131], cols=[61], affine=["both"], stats=[False], dtype=DTYPES),
        *perfci.grid(rows=[5], cols=[700], affine=["weight", "bias", "none"], stats=[True], dtype=[torch.float16]),
        *perfci.grid(rows=[1, 2], cols=[BEYOND_ONE_TILE], affine=["both"], stats=[True], dtype=DTYPES),
        *perfci.grid(rows=[1, 5], cols=[BEYOND_ONE_TILE], affine=["weight", "bias"], stats=[False], dtype=DTYPES[1:2]),
        *perfci.grid(rows=[(), (2, 1, 5)], cols=[100], affine=["both"], stats=[True], dtype=[torch.bfloat16]),
        *perfci.grid(rows=[0], cols=[64], affine=["both"], stats=[True], dtype=[torch.bfloat16]),
        *perfci.grid(rows=[2], cols=[8191, 8192, 65536], affine=["both"], stats=[True], dtype=[torch.float32]),
        *perfci.grid(rows=[2], cols=[32768], affine=["both"], stats=[False], dtype=[torch.float16]),
        *perfci.grid(rows=[397], cols=[61], affine=["both"], stats=[True], dtype=[torch.float16]),
        # Full tiles, more of them than the smallest grid has programs.
        *perfci.grid(rows=[32], cols=[1024], affine=["both"], stats=[True], dtype=[torch.float16]),
        # Another eps than the default, in each kernel.
        *perfci.grid(
            rows=[5], cols=[61, BEYOND_ONE_TILE], affine=["both"], stats=[True], dtype=[torch.float32], eps=[0.5]
        ),
        *perfci.grid(rows=[1], cols=[BEYOND_ONE_TILE], affine=["both"], stats=[True], dtype=[torch.float32], eps=[0.5]),
        *perfci.grid(rows=[3, (2, 0)], cols=[0], affine=["none"], stats=[False], dtype=[torch.float32]),
    ),
    probe_cases=(
        *perfci.grid(rows=[33], cols=[100], affine=["both"], stats=[True], dtype=DTYPES),
        *perfci.grid(rows=[2], cols=[BEYOND_ONE_TILE], affine=["both"], stats=[True], dtype=[torch.float32]),
    ),
    accelerator_cases=(
        # What performance launches and no case above does.
        *perfci.grid(rows=[256], cols=[1024], affine=["both"], stats=[False], dtype=DTYPES[1:]),
        *perfci.grid(rows=[2], cols=[4096], affine=["both"], stats=[False, True], dtype=[torch.bfloat16]),
        *perfci.grid(rows=[1], cols=[8192], affine=["both"], stats=[False], dtype=[torch.float32]),
        *perfci.grid(rows=[16], cols=[131072], affine=["both"], stats=[False], dtype=[torch.float32]),
        *perfci.grid(rows=[133], cols=[24576], affine=["both"], stats=[False], dtype=[torch.float16]),
        *perfci.grid(rows=[133], cols=[65536], affine=["both", "bias"], stats=[False], dtype=[torch.bfloat16]),
        # More rows than an H200 has processors: none is shared between programs.
        *far(rows=[133], cols=[24576], rows_apart=[2**24 + 8]),
        *far(rows=[5], cols=[261], apart=[FAR]),
        *far(rows=[5], cols=[261], affine_apart=[FAR]),
        *far(rows=[2], cols=[BEYOND_ONE_TILE], apart=[2**16]),
        *far(rows=[3], cols=[BEYOND_ONE_TILE], rows_apart=[2**30 + 8]),
        *far(rows=[133], cols=[65536], apart=[2**17 + 16]),  # beyond 2^31 within a chunk
    ),
    # Not large ones: their squares are beyond float32: PyTorch gives NaN then on a GPU, and the bias alone on a CPU.
    values=("normal", "zeros", "ones", "tiny", "subnormal", "nan", "inf", "cancellation"),
    # In float32 a row's mean of 6 is off by up to 4e-7, which a spread of 0.1 makes 4e-6, and weight up to 1e-5 of an
    # answer that bias leaves small.
    tolerance={"float16": (1e-3, 3e-5), "bfloat16": (1.6e-2, 3e-5)},
    # Past 2^31 and 2^32 elements, 32-bit indexes become negative, or wrap around.
    large_cases=perfci.grid(rows=[2**22 + 5], cols=[1025], affine=["both"], stats=[True], dtype=[torch.bfloat16]),
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
