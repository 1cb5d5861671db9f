"""Accuracy of add_rms_norm: row lengths around powers of two, rows too long for one tile, strides of both inputs.

No `reduces`: an output's error is relative to it, since the float32 sum is of squares added up as a tree.
"""

import perfci
import torch
from add_rms_norm_baseline import add_rms_norm as reference, make_inputs
from add_rms_norm_triton import add_rms_norm as kernel

from _views import FAR, spread

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
BEYOND_ONE_TILE = 40009
"""Columns; more than any device's `tile_elements`, and a prime."""


def inputs(apart=0, rows_apart=0, eps=None, **case):
    """As in the baseline; elements between neighbours of a row of both inputs, or of a column."""
    made = make_inputs(**case) | ({} if eps is None else {"eps": eps})
    for axis, step in ((-1, apart), (0, rows_apart)):
        made |= {name: spread(made[name], axis, step) for name in ("x", "residual") if step}
    return made


def far(rows, cols, **apart):
    """Places that take more than 32 bits, of few elements."""
    return perfci.grid(rows=rows, cols=cols, weighted=[True], dtype=[torch.bfloat16], **apart)


def tensors(device, x_shape, residual_shape, weight_shape, **options):
    shapes = {"x": x_shape, "residual": residual_shape, "weight": weight_shape}
    return {name: torch.zeros(shape, device=device) for name, shape in shapes.items()} | options


def transposed_batch(device):
    x = torch.zeros(4, 3, 8, device=device).transpose(0, 1)
    return {"x": x.contiguous(), "residual": x}


accuracy = perfci.Accuracy(
    kernel=kernel,
    reference=reference,
    make_inputs=inputs,
    cases=(
        *perfci.grid(rows=[1, 13], cols=[1, 1023, 1025], weighted=[True], dtype=[torch.float32]),
        *perfci.grid(rows=[13], cols=[1024], weighted=[True], dtype=DTYPES),
        *perfci.grid(rows=[5], cols=[700], weighted=[False], dtype=[torch.float16]),
        *perfci.grid(rows=[(), (2, 1, 5)], cols=[100], weighted=[True], dtype=[torch.bfloat16]),
        *perfci.grid(rows=[0], cols=[64], weighted=[True], dtype=[torch.bfloat16]),
        *perfci.grid(rows=[397], cols=[61], weighted=[True], dtype=[torch.float16]),
        *perfci.grid(rows=[2], cols=[4096, 8191, 16384], weighted=[True], dtype=[torch.bfloat16]),
        *perfci.grid(rows=[1], cols=[5120], weighted=[True], dtype=[torch.float16]),
        *perfci.grid(rows=[1], cols=[4096], weighted=[True], dtype=[torch.float32]),
        *perfci.grid(rows=[1], cols=[BEYOND_ONE_TILE], weighted=[False], dtype=[torch.float16]),
        *perfci.grid(rows=[2], cols=[BEYOND_ONE_TILE], weighted=[True], dtype=[torch.float32], apart=[2]),
        # Another eps than the default, in each kernel.
        *perfci.grid(rows=[5], cols=[61, BEYOND_ONE_TILE], weighted=[True], dtype=[torch.float32], eps=[0.5]),
        *perfci.grid(rows=[1], cols=[BEYOND_ONE_TILE], weighted=[True], dtype=[torch.float32], eps=[0.5]),
        *perfci.grid(rows=[3, (2, 0)], cols=[0], weighted=[False], dtype=[torch.float32]),
    ),
    probe_cases=perfci.grid(rows=[33], cols=[100], weighted=[True], dtype=DTYPES),
    accelerator_cases=(
        *far(rows=[5], cols=[261], apart=[FAR]),
        *far(rows=[2], cols=[BEYOND_ONE_TILE], apart=[2**16]),
        *far(rows=[3], cols=[BEYOND_ONE_TILE], rows_apart=[2**30 + 8]),
    ),
    # Past 2^31 and 2^32 elements, 32-bit indexes become negative, or wrap around.
    large_cases=perfci.grid(rows=[2**22 + 5], cols=[1025], weighted=[True], dtype=[torch.bfloat16]),
    rejects=(
        ("a residual of another shape", lambda device: tensors(device, (4, 8), (3, 8), 8)),
        ("weight of another length", lambda device: tensors(device, (4, 8), (4, 8), 7)),
        ("weight with two dimensions", lambda device: tensors(device, (4, 8), (4, 8), (1, 8))),
        (
            "a residual of another dtype",
            lambda device: tensors(device, (4, 8), (4, 8), 8, residual=torch.ones(4, 8).half().to(device)),
        ),
        ("a negative eps", lambda device: tensors(device, (4, 8), (4, 8), 8, eps=-1.0)),
        ("x without a dimension", lambda device: {"x": torch.zeros((), device=device), "residual": torch.zeros(())}),
        ("x of integers", lambda device: tensors(device, 8, 8, 8, x=torch.zeros(8, dtype=torch.int32, device=device))),
        ("a residual with transposed leading dimensions", transposed_batch),
    ),
)
if __name__ == "__main__":
    perfci.main(accuracy)
