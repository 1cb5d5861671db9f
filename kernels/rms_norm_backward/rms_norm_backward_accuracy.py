"""Accuracy of rms_norm_backward: row lengths around powers of two and beyond one tile, one row and many.

No `reduces`: sums over columns and rows are added up as trees in float32.
"""

import perfci
import torch
from rms_norm_backward_baseline import make_inputs, rms_norm_backward as reference
from rms_norm_backward_triton import rms_norm_backward as kernel

from _views import FAR, far, spread, with_far

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
BEYOND_ONE_TILE = 40009
"""Columns; more than any device's `tile_elements`, and a prime."""


def inputs(apart=0, rows_apart=0, **case):
    """As in the baseline; elements between neighbours of a row, or of a column, of x."""
    made = make_inputs(**case)
    for axis, step in ((-1, apart), (0, rows_apart)):
        made["x"] = spread(made["x"], axis, step) if step else made["x"]
    return made


def cases(rows, cols, dtype, weighted=(True,), **others):
    return perfci.grid(rows=rows, cols=cols, weighted=weighted, dtype=dtype, **others)


def wrong(**changes):
    """Returns a function of the device that makes inputs of which something is wrong."""

    def make(device):
        shapes = {"grad": (4, 8), "x": (4, 8), "rstd": (4, 1), "weight": (8,)}
        made = {name: torch.zeros(shape, device=device) for name, shape in shapes.items()}
        return made | {name: change(made[name]) for name, change in changes.items()}

    return make


def transposed_batch(device):
    x = torch.zeros(4, 3, 8, device=device).transpose(0, 1)
    return {"grad": torch.zeros(3, 4, 8, device=device), "x": x, "rstd": torch.zeros(3, 4, 1, device=device)}


accuracy = perfci.Accuracy(
    kernel=kernel,
    reference=reference,
    make_inputs=with_far(inputs),
    cases=(
        # Of one column x's gradient is nothing but rounding.
        *cases(rows=[1, 13], cols=[2, 1023, 1024, 1025], dtype=[torch.float32]),
        *cases(rows=[131], cols=[61], dtype=DTYPES),
        *cases(rows=[397], cols=[61], dtype=[torch.float16]),
        *cases(rows=[5], cols=[700], dtype=[torch.float16], weighted=[False]),
        *cases(rows=[1], cols=[BEYOND_ONE_TILE], dtype=[torch.float16]),
        *cases(rows=[3], cols=[BEYOND_ONE_TILE], dtype=[torch.float32], weighted=[True, False]),
        *cases(rows=[2], cols=[16384, 32768], dtype=[torch.float32]),
        *cases(rows=[(), (2, 1, 5)], cols=[100], dtype=[torch.bfloat16]),
        *cases(rows=[0], cols=[64], dtype=[torch.bfloat16]),
        *cases(rows=[3, (2, 0)], cols=[0], dtype=[torch.float32], weighted=[False]),
        *cases(rows=[2], cols=[BEYOND_ONE_TILE], dtype=[torch.bfloat16], apart=[2]),
        # Each tensor by its strides.
        *cases(rows=[7], cols=[300], dtype=[torch.float32], apart=[8]),
    ),
    probe_cases=(
        *cases(rows=[33], cols=[100], dtype=DTYPES),
        *cases(rows=[2], cols=[BEYOND_ONE_TILE], dtype=[torch.float32]),
    ),
    # Not large ones: grad * x * rstd is beyond float32, in other places than with rstd of those x.
    values=("normal", "zeros", "ones", "tiny", "subnormal", "nan", "inf", "cancellation"),
    accelerator_cases=(
        # Dense tiles, with as many rows as take a second turn of every loop.
        *cases(rows=[529], cols=[4096], dtype=[torch.bfloat16]),
        *cases(rows=[265], cols=[8192], dtype=[torch.bfloat16, torch.float32]),
        *cases(rows=[133], cols=[16384], dtype=[torch.float16]),
        *cases(rows=[16384], cols=[128], dtype=[torch.bfloat16]),
        *cases(rows=[2048], cols=[1024], dtype=[torch.float16]),
        *cases(rows=[2], cols=[4096], dtype=[torch.bfloat16], weighted=[False]),
        # More rows than an H200 has processors: none is shared between programs.
        *cases(rows=[133], cols=[32768], dtype=[torch.bfloat16]),
        *cases(rows=[5], cols=[261], dtype=[torch.bfloat16], apart=[FAR]),
        *cases(rows=[2], cols=[BEYOND_ONE_TILE], dtype=[torch.bfloat16], apart=[2**16]),
        *cases(rows=[3], cols=[BEYOND_ONE_TILE], dtype=[torch.bfloat16], rows_apart=[2**30 + 8]),
        *cases(rows=[5], cols=[261, BEYOND_ONE_TILE], dtype=[torch.bfloat16], far=far(["grad"], 0, 1)),
        *cases(rows=[5], cols=[261, BEYOND_ONE_TILE], dtype=[torch.bfloat16], far=["rstd:0", "weight:0"]),
    ),
    # Past 2^31 and 2^32 elements, 32-bit indexes become negative, or wrap around.
    large_cases=cases(rows=[2**22 + 5], cols=[1025], dtype=[torch.bfloat16], weighted=[False]),
    rejects=(
        ("grad of another shape", wrong(grad=lambda grad: grad[:, :7])),
        ("grad of another dtype", wrong(grad=lambda grad: grad.half())),
        ("rstd of another shape", wrong(rstd=lambda rstd: rstd[:, 0])),
        ("rstd of another dtype", wrong(rstd=lambda rstd: rstd.half())),
        ("weight of another length", wrong(weight=lambda weight: weight[:7])),
        ("x without a dimension", wrong(x=lambda x: x[0, 0])),
        ("x that is no tensor", wrong(x=lambda x: 1.0)),
        ("x with transposed leading dimensions", transposed_batch),
    ),
)
if __name__ == "__main__":
    perfci.main(accuracy)
