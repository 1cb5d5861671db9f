"""Accuracy of softmax_backward: row lengths around powers of two, rows too long for one tile, every rank.

No `reduces`: the sum of grad * y is weighted by probabilities and added up as a tree in float32.
"""

import perfci
import torch
from softmax_backward_baseline import make_inputs, softmax_backward as reference
from softmax_backward_triton import softmax_backward as kernel

from _views import FAR, far, spread, with_far

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
BEYOND_ONE_TILE = 40009
"""Columns; more than any device's `tile_elements`, and a prime."""


def inputs(apart=0, rows_apart=0, **case):
    """As in the baseline; elements between neighbours of a row, or of a column, of y."""
    made = make_inputs(**case)
    for axis, step in ((-1, apart), (0, rows_apart)):
        made["y"] = spread(made["y"], axis, step) if step else made["y"]
    return made


def wrong(**changes):
    """Returns a function of the device that makes inputs of which something is wrong."""

    def make(device):
        made = {name: torch.zeros(4, 8, device=device) for name in ("grad", "y")}
        return made | {name: change(made[name]) for name, change in changes.items()}

    return make


def transposed_batch(device):
    return {"grad": torch.zeros(3, 4, 8, device=device), "y": torch.zeros(4, 3, 8, device=device).transpose(0, 1)}


accuracy = perfci.Accuracy(
    kernel=kernel,
    reference=reference,
    make_inputs=with_far(inputs),
    cases=(
        # Of one column there is nothing to move.
        *perfci.grid(rows=[1, 13], cols=[2, 1023, 1024, 1025], dtype=[torch.float32]),
        *perfci.grid(rows=[131], cols=[61], dtype=DTYPES),
        *perfci.grid(rows=[397], cols=[61], dtype=[torch.float16]),
        # Full tiles, more of them than the smallest grid has programs.
        *perfci.grid(rows=[32], cols=[1024], dtype=[torch.float16]),
        *perfci.grid(rows=[2], cols=[BEYOND_ONE_TILE], dtype=DTYPES),
        *perfci.grid(rows=[(), (2, 3), (2, 1, 5)], cols=[100], dtype=[torch.bfloat16]),
        *perfci.grid(rows=[0], cols=[64], dtype=[torch.bfloat16]),
        *perfci.grid(rows=[2], cols=[8191, 8192, 65536], dtype=[torch.float32]),
        *perfci.grid(rows=[2], cols=[32768], dtype=[torch.float16]),
        *perfci.grid(rows=[3, (2, 0)], cols=[0], dtype=[torch.float32]),
        *perfci.grid(rows=[2], cols=[BEYOND_ONE_TILE], dtype=[torch.float32], apart=[2]),
        # Each tensor by its strides.
        *perfci.grid(rows=[7], cols=[300], dtype=[torch.float32], apart=[8]),
    ),
    probe_cases=(
        *perfci.grid(rows=[33], cols=[100], dtype=DTYPES),
        *perfci.grid(rows=[2], cols=[BEYOND_ONE_TILE], dtype=[torch.float32]),
    ),
    # Elements of a row of n are of the size of 1 / n: torch.testing's atol of 1e-5 is nearly half of that at 65,536.
    tolerance={"float32": (1.3e-6, 1e-7), "float16": (1e-3, 1e-7), "bfloat16": (1.6e-2, 1e-7)},
    # Not large ones: a y that is no probability makes products beyond float32.
    values=("normal", "zeros", "ones", "tiny", "subnormal", "nan", "inf", "cancellation"),
    accelerator_cases=(
        # Dense tiles, with as many rows as take a second turn of every loop.
        *perfci.grid(rows=[256], cols=[512], dtype=[torch.float16]),
        *perfci.grid(rows=[133], cols=[16384], dtype=[torch.float16]),
        *perfci.grid(rows=[133], cols=[4096, 32768], dtype=[torch.bfloat16]),
        *perfci.grid(rows=[256], cols=[1024, 4096], dtype=[torch.float32]),
        *perfci.grid(rows=[133], cols=[49152], dtype=[torch.bfloat16]),
        *perfci.grid(rows=[5], cols=[261], dtype=[torch.bfloat16], apart=[FAR]),
        *perfci.grid(rows=[2], cols=[BEYOND_ONE_TILE], dtype=[torch.bfloat16], apart=[2**16]),
        *perfci.grid(rows=[3], cols=[BEYOND_ONE_TILE], dtype=[torch.bfloat16], rows_apart=[2**30 + 8]),
        *perfci.grid(rows=[5], cols=[261, BEYOND_ONE_TILE], dtype=[torch.bfloat16], far=far(["grad"], 0, 1)),
    ),
    # Past 2^31 and 2^32 elements, 32-bit indexes become negative, or wrap around.
    large_cases=perfci.grid(rows=[2**22 + 5], cols=[1025], dtype=[torch.bfloat16]),
    rejects=(
        ("grad of another shape", wrong(grad=lambda grad: grad[:, :7])),
        ("grad of another dtype", wrong(grad=lambda grad: grad.half())),
        ("y of integers", wrong(y=lambda y: y.int())),
        ("y without a dimension", wrong(y=lambda y: y[0, 0])),
        ("y with transposed leading dimensions", transposed_batch),
    ),
)
if __name__ == "__main__":
    perfci.main(accuracy)
