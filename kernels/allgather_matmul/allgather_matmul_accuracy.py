"""Accuracy of allgather_matmul: sides that no block divides, one tile and many, on one rank and on several."""

import perfci
import torch
from allgather_matmul_baseline import allgather_matmul as reference, make_inputs
from allgather_matmul_triton import allgather_matmul as kernel

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def tensors(device, a_shape, b_shape, dtype=torch.float32):
    return {"a": torch.zeros(a_shape, dtype=dtype, device=device), "b": torch.zeros(b_shape, device=device)}


accuracy = perfci.Accuracy(
    kernel=kernel,
    reference=reference,
    make_inputs=make_inputs,
    ranks=(2, 4),
    # m and n are multiples of 4, to be divided among as many ranks.
    cases=(
        *perfci.grid(m=[64], n=[64], k=[64], dtype=DTYPES),
        *perfci.grid(m=[148], n=[36], k=[41], dtype=DTYPES),
        *perfci.grid(m=[4], n=[4], k=[1, 127], dtype=[torch.float16]),
        *perfci.grid(m=[320], n=[72], k=[96], dtype=[torch.bfloat16]),
        # More blocks of rows on each rank than programs that send.
        *perfci.grid(m=[1152], n=[4], k=[1], dtype=[torch.float32]),
        *perfci.grid(m=[8], n=[4], k=[0], dtype=[torch.float32]),
    ),
    probe_cases=perfci.grid(m=[68], n=[36], k=[33], dtype=DTYPES),
    # What performance launches and no case above does: the large tiles.
    accelerator_cases=perfci.grid(m=[2048], n=[4096], k=[1024], dtype=DTYPES[1:]),
    reduces=lambda m, n, k, dtype: k,
    uses_dot=True,
    rejects=(
        ("inner sides that differ", lambda device: tensors(device, (4, 8), (7, 4))),
        ("b with one dimension", lambda device: tensors(device, (4, 8), 8)),
        ("dtypes that differ", lambda device: tensors(device, (4, 8), (8, 4), dtype=torch.float16)),
        ("a of integers", lambda device: tensors(device, (4, 8), (8, 4), dtype=torch.int32)),
    ),
)
if __name__ == "__main__":
    perfci.main(accuracy)
