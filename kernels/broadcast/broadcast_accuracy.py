"""Accuracy of broadcast: an exact copy. Shapes around the edges of its tiles, and every rank."""

import perfci
import torch
from broadcast_baseline import broadcast as reference, make_inputs
from broadcast_triton import broadcast as kernel

from _views import with_far

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def tensors(device, x_shape, bias_shape, dtype=torch.float32):
    return {"x": torch.zeros(x_shape, dtype=dtype, device=device), "bias": torch.zeros(bias_shape, device=device)}


accuracy = perfci.Accuracy(
    kernel=kernel,
    reference=reference,
    make_inputs=with_far(make_inputs),
    cases=(
        *perfci.grid(rows=[1, 13], cols=[1, 1023, 1024, 1025], dtype=[torch.float32]),
        *perfci.grid(rows=[257], cols=[129], dtype=DTYPES),
        *perfci.grid(rows=[(), (2, 3), (2, 1, 5)], cols=[100], dtype=[torch.float16, torch.bfloat16]),
        *perfci.grid(rows=[0], cols=[64], dtype=[torch.bfloat16]),
        *perfci.grid(rows=[3, (2, 0)], cols=[0], dtype=[torch.float32]),
    ),
    probe_cases=(
        *perfci.grid(rows=[33], cols=[100], dtype=DTYPES),
        *perfci.grid(rows=[3], cols=[4099], dtype=[torch.float16]),
    ),
    tolerance={"float32": (0.0, 0.0), "float16": (0.0, 0.0), "bfloat16": (0.0, 0.0)},
    # What performance launches and no case above does: the tiles of more than 4 MiB, and of more than 32.
    accelerator_cases=(
        *perfci.grid(rows=[1025, 8193], cols=[1024], dtype=DTYPES[:1]),
        *perfci.grid(rows=[2049], cols=[1024], dtype=DTYPES[1:2]),
        *perfci.grid(rows=[4097], cols=[4096], dtype=DTYPES[1:]),
        *perfci.grid(rows=[21846], cols=[768], dtype=DTYPES[1:2]),
        *perfci.grid(rows=[32769], cols=[512], dtype=DTYPES[1:2]),
        *perfci.grid(rows=[65537], cols=[256], dtype=DTYPES[1:2]),
        # Places that take more than 32 bits, of few elements.
        *perfci.grid(rows=[5], cols=[261], dtype=DTYPES[1:2], far=["bias:0"]),
    ),
    # Past 2^31 and 2^32 elements, 32-bit indexes become negative, or wrap around.
    large_cases=perfci.grid(rows=[2**22 + 5], cols=[1025], dtype=[torch.float16]),
    rejects=(
        ("bias of another length", lambda device: tensors(device, (4, 8), 7)),
        ("bias with two dimensions", lambda device: tensors(device, (4, 8), (1, 8))),
        ("x without a dimension", lambda device: tensors(device, (), 1)),
        ("x of integers", lambda device: tensors(device, (4, 8), 8, dtype=torch.int32)),
        ("x that is no tensor", lambda device: {"x": (4, 8), "bias": torch.zeros(8, device=device)}),
    ),
)
if __name__ == "__main__":
    perfci.main(accuracy)
