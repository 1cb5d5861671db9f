"""Accuracy of vector_add: lengths around the edges of its tiles, every rank, strides of either tensor."""

import perfci
import torch
from vector_add_baseline import make_inputs, vector_add as reference
from vector_add_triton import vector_add as kernel

from _views import far, with_far

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def tensors(device, x_shape, y_shape, dtype=torch.float32):
    return {"x": torch.zeros(x_shape, device=device), "y": torch.zeros(y_shape, dtype=dtype, device=device)}


def transposed_batch(device):
    return {"x": torch.zeros(3, 4, 8, device=device), "y": torch.zeros(4, 3, 8, device=device).transpose(0, 1)}


accuracy = perfci.Accuracy(
    kernel=kernel,
    reference=reference,
    make_inputs=with_far(make_inputs),
    cases=(
        *perfci.grid(shape=[1, 1023, 1024, 1025, 40009], transposed=[False], dtype=DTYPES),
        *perfci.grid(shape=[(), (7, 131), (2, 1, 5), (1, 4096)], transposed=[False], dtype=[torch.float32]),
        *perfci.grid(shape=[(7, 131), (40, 600)], transposed=[True], dtype=[torch.float32, torch.bfloat16]),
        *perfci.grid(shape=[0, (3, 0)], transposed=[False], dtype=[torch.float16]),
    ),
    probe_cases=perfci.grid(shape=[2047, (33, 100), (3, 2049)], transposed=[False], dtype=DTYPES),
    # What performance launches and no case above does: the tiles of more than 4 MiB.
    accelerator_cases=(
        *perfci.grid(shape=[2**20 + 1], transposed=[False], dtype=DTYPES[:1]),
        *perfci.grid(shape=[2**21 + 1], transposed=[False], dtype=DTYPES[1:]),
        # Places that take more than 32 bits, of few elements.
        *perfci.grid(shape=[(5, 261)], transposed=[False], dtype=[torch.bfloat16], far=far("xy", 0, 1)),
    ),
    # Past 2^31 and 2^32 elements, 32-bit indexes become negative, or wrap around.
    large_cases=perfci.grid(shape=[2**32 + 1025], transposed=[False], dtype=[torch.bfloat16]),
    rejects=(
        ("y of another length", lambda device: tensors(device, 8, 7)),
        ("y that would be broadcast", lambda device: tensors(device, (4, 8), (1, 8))),
        ("y of another dtype", lambda device: tensors(device, 8, 8, dtype=torch.float16)),
        ("x of integers", lambda device: {name: torch.zeros(8, dtype=torch.int32, device=device) for name in "xy"}),
        ("y that is no tensor", lambda device: {"x": torch.zeros(8, device=device), "y": 1.0}),
        ("y with transposed leading dimensions", transposed_batch),
    ),
)
if __name__ == "__main__":
    perfci.main(accuracy)
