"""Accuracy of matmul: sides that no block divides or that are smaller than one, several groups of tiles, epilogues."""

import perfci
import torch
from matmul_baseline import make_inputs, matmul as reference
from matmul_triton import matmul as kernel

from _views import FAR, spread, with_far

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
ACTIVATIONS = ["relu", "silu", "gelu", "gelu_tanh"]


def inputs(rows_apart=0, columns_apart=0, outputs_apart=0, **case):
    """As in the baseline; elements between neighbours of a column, or of a row, of a, or of a row of b."""
    made = make_inputs(**case)
    for axis, apart in enumerate((rows_apart, columns_apart)):
        made["a"] = spread(made["a"], axis, apart) if apart else made["a"]
    made["b"] = spread(made["b"], 1, outputs_apart) if outputs_apart else made["b"]
    return made


def tensors(device, a_shape, b_shape, dtype=torch.float32):
    return {"a": torch.zeros(a_shape, dtype=dtype, device=device), "b": torch.zeros(b_shape, device=device)}


def finished(device, **epilogue):
    return tensors(device, (4, 8), (8, 4)) | epilogue


accuracy = perfci.Accuracy(
    kernel=kernel,
    reference=reference,
    make_inputs=with_far(inputs),
    cases=(
        *perfci.grid(m=[128], n=[128], k=[128], dtype=DTYPES),
        *perfci.grid(m=[131], n=[67], k=[101], dtype=DTYPES),
        *perfci.grid(m=[1, 65], n=[1, 63], k=[1, 127], dtype=[torch.float16]),
        *perfci.grid(m=[7], n=[16], k=[1023, 1024, 1025], dtype=[torch.float16]),
        *perfci.grid(m=[1], n=[48], k=[64], dtype=[torch.float16], rows_apart=[2**23]),
        *perfci.grid(m=[600], n=[70], k=[33], dtype=[torch.float32]),
        *perfci.grid(m=[600], n=[70], k=[33], dtype=[torch.float32], bias=[True], activation=["relu"]),
        *perfci.grid(m=[1100], n=[80], k=[48], dtype=[torch.float16, torch.bfloat16]),
        *perfci.grid(m=[131], n=[1040], k=[80], dtype=[torch.float16]),
        *perfci.grid(m=[0], n=[8], k=[8], dtype=[torch.bfloat16]),
        *perfci.grid(m=[8], n=[0], k=[8], dtype=[torch.float32]),
        *perfci.grid(m=[5], n=[8], k=[0], dtype=[torch.float32]),
        *perfci.grid(m=[65], n=[67], k=[48], dtype=DTYPES, bias=[True], activation=ACTIVATIONS),
        *perfci.grid(m=[70], n=[136], k=[72], dtype=DTYPES[1:], bias=[True], activation=ACTIVATIONS),
        *perfci.grid(m=[136], n=[200], k=[104], dtype=DTYPES[1:], columns=["a", "b", "ab"]),
        *perfci.grid(m=[129], n=[264], k=[200], dtype=[torch.float16], bias=[True, False], columns=["b"]),
        *perfci.grid(m=[5], n=[8], k=[0], dtype=[torch.float32, torch.float16], bias=[True], activation=["silu"]),
    ),
    probe_cases=(
        *perfci.grid(m=[33], n=[48], k=[65], dtype=DTYPES),
        *perfci.grid(m=[33], n=[48], k=[64], dtype=[torch.float16, torch.bfloat16], columns=["", "b"]),
        *perfci.grid(m=[17], n=[40], k=[24], dtype=DTYPES, bias=[True], activation=ACTIVATIONS),
    ),
    accelerator_cases=(
        *perfci.grid(m=[5], n=[48], k=[261], dtype=[torch.float16], columns_apart=[FAR]),
        *perfci.grid(m=[5], n=[48], k=[24], dtype=[torch.float16], columns_apart=[2**27 + 8]),
        *perfci.grid(m=[5], n=[261], k=[48], dtype=[torch.float16], outputs_apart=[FAR]),
        *perfci.grid(m=[261], n=[45], k=[35], dtype=[torch.float16], far=["a:0", "b:0", "b:1"]),
        *perfci.grid(m=[520], n=[6670], k=[35], dtype=[torch.float16], far=["a:0", "b:0", "b:1"]),
        # What performance launches and no case above does: a tile for each program, and several.
        *perfci.grid(m=[64], n=[128], k=[256], dtype=[torch.float16]),
        *perfci.grid(m=[520], n=[2048], k=[128], dtype=[torch.bfloat16]),
        *perfci.grid(m=[520], n=[6664], k=[128], dtype=DTYPES[1:]),
        *perfci.grid(m=[520], n=[6672], k=[48], dtype=[torch.float16], columns_apart=[523]),
        *perfci.grid(m=[520], n=[6670], k=[261], dtype=[torch.float16], columns_apart=[FAR]),
        *perfci.grid(m=[520], n=[6664], k=[128], dtype=DTYPES[2:], bias=[True], activation=["gelu", "silu"]),
    ),
    # Outputs past 2^31 and 2^32 elements.
    large_cases=perfci.grid(m=[2**22 + 5], n=[1025], k=[3], dtype=[torch.bfloat16]),
    large_part=lambda made, start, stop: {**made, "a": made["a"][start:stop]},
    reduces=lambda m, n, k, dtype, **epilogue: k,
    uses_dot=True,
    rejects=(
        ("inner sides that differ", lambda device: tensors(device, (4, 8), (7, 4))),
        ("a with three dimensions", lambda device: tensors(device, (2, 4, 8), (8, 4))),
        ("b with one dimension", lambda device: tensors(device, (4, 8), 8)),
        ("dtypes that differ", lambda device: tensors(device, (4, 8), (8, 4), dtype=torch.float16)),
        ("a of integers", lambda device: tensors(device, (4, 8), (8, 4), dtype=torch.int32)),
        ("a bias of another length", lambda device: finished(device, bias=torch.zeros(5, device=device))),
        ("a bias of rows", lambda device: finished(device, bias=torch.zeros(1, 4, device=device))),
        ("a bias of another dtype", lambda device: finished(device, bias=torch.zeros(4, device=device).half())),
        ("an unknown activation", lambda device: finished(device, activation="tanh")),
    ),
)
if __name__ == "__main__":
    perfci.main(accuracy)
