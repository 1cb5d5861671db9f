"""Accuracy of gelu: both forms, lengths around the edges of its tiles, every rank, strides, and both tails."""

import perfci
import torch
from gelu_baseline import gelu as reference, make_inputs
from gelu_triton import gelu as kernel

from _views import far, with_far

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
BOTH = ["none", "tanh"]


def transposed_batch(device):
    return {"x": torch.zeros(4, 3, 8, device=device).transpose(0, 1)}


accuracy = perfci.Accuracy(
    kernel=kernel,
    reference=reference,
    make_inputs=with_far(make_inputs),
    cases=(
        *perfci.grid(shape=[1, 1023, 1024, 1025], approximate=BOTH, dtype=DTYPES),
        *perfci.grid(shape=[40009], approximate=BOTH, dtype=[torch.bfloat16, torch.float32]),
        *perfci.grid(shape=[(), (7, 131), (2, 1, 5)], approximate=BOTH, dtype=[torch.float16]),
        *perfci.grid(shape=[0, (3, 0)], approximate=["none"], dtype=[torch.float16]),
    ),
    probe_cases=(
        *perfci.grid(shape=[(33, 100)], approximate=BOTH, dtype=DTYPES),
        *perfci.grid(shape=[(3, 2049), (700, 3)], approximate=BOTH[:1], dtype=[torch.float16]),
    ),
    # A term of the left tail's polynomial is worth 5e-6: torch.testing's atol of 1e-5 would let it be any number.
    tolerance={"float32": (1.3e-6, 1e-6)},
    # What performance launches and no case above does: the tiles of more than 4 MiB.
    accelerator_cases=(
        *perfci.grid(shape=[2**20 + 1], approximate=BOTH, dtype=DTYPES[:1]),
        *perfci.grid(shape=[2**21 + 1], approximate=BOTH, dtype=DTYPES[1:]),
        # Places that take more than 32 bits, of few elements.
        *perfci.grid(shape=[(5, 261)], approximate=BOTH[:1], dtype=[torch.bfloat16], far=far("x", 0, 1)),
    ),
    # Past 2^31 and 2^32 elements, 32-bit indexes become negative, or wrap around.
    large_cases=perfci.grid(shape=[2**32 + 1025], approximate=["none"], dtype=[torch.bfloat16]),
    rejects=(
        (
            "an approximation that does not exist",
            lambda device: {"x": torch.ones(8, device=device), "approximate": "erf"},
        ),
        ("x of integers", lambda device: {"x": torch.zeros(8, dtype=torch.int32, device=device)}),
        ("x that is no tensor", lambda device: {"x": 1.0}),
        ("x with transposed leading dimensions", transposed_batch),
    ),
)
if __name__ == "__main__":
    perfci.main(accuracy)
