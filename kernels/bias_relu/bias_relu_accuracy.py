"""Accuracy of bias_relu: shapes around the edges of its tiles, every rank, strides, and NaN that has to stay."""

import perfci
import torch
from bias_relu_baseline import bias_relu as reference, make_inputs
from bias_relu_triton import bias_relu as kernel

from _views import far, with_far

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def tensors(device, x_shape, bias_shape, dtype=torch.float32):
    return {"x": torch.zeros(x_shape, dtype=dtype, device=device), "bias": torch.zeros(bias_shape, device=device)}


def transposed_batch(device):
    return {"x": torch.zeros(4, 3, 8, device=device).transpose(0, 1), "bias": torch.zeros(8, device=device)}


accuracy = perfci.Accuracy(
    kernel=kernel,
    reference=reference,
    make_inputs=with_far(make_inputs),
    cases=(
        *perfci.grid(rows=[1, 13], cols=[1, 1023, 1024, 1025], dtype=[torch.float16]),
        *perfci.grid(rows=[257], cols=[129], dtype=DTYPES),
        *perfci.grid(rows=[5], cols=[4096], dtype=[torch.float16]),
        *perfci.grid(rows=[(), (2, 3), (2, 1, 5)], cols=[100], dtype=[torch.float32, torch.bfloat16]),
        *perfci.grid(rows=[0], cols=[64], dtype=[torch.bfloat16]),
        *perfci.grid(rows=[3, (2, 0)], cols=[0], dtype=[torch.float32]),
    ),
    # Beyond one tile along a row too, whose programs walk rows, not columns.
    probe_cases=(
        *perfci.grid(rows=[33], cols=[100], dtype=DTYPES),
        *perfci.grid(rows=[3], cols=[4099], dtype=[torch.float16]),
        *perfci.grid(rows=[700], cols=[3], dtype=[torch.float16]),
    ),
    # What performance launches and no case above does.
    accelerator_cases=(
        *perfci.grid(rows=[2], cols=[1024], dtype=[torch.float32]),
        *perfci.grid(rows=[1], cols=[8, 2048], dtype=[torch.bfloat16]),
        # Places that take more than 32 bits, of few elements.
        *perfci.grid(rows=[5], cols=[261], dtype=[torch.bfloat16], far=[*far("x", 0, 1), "bias:0"]),
    ),
    # Past 2^31 and 2^32 elements, 32-bit indexes become negative, or wrap around.
    large_cases=perfci.grid(rows=[2**22 + 5], cols=[1025], dtype=[torch.bfloat16]),
    rejects=(
        ("bias of another length", lambda device: tensors(device, (4, 8), 7)),
        ("bias with two dimensions", lambda device: tensors(device, (4, 8), (1, 8))),
        ("x without a dimension", lambda device: tensors(device, (), 1)),
        ("bias of another dtype", lambda device: tensors(device, (4, 8), 8, dtype=torch.float16)),
        ("x of integers", lambda device: tensors(device, (4, 8), 8, dtype=torch.int32)),
        ("x with transposed leading dimensions", transposed_batch),
    ),
)
if __name__ == "__main__":
    perfci.main(accuracy)
