"""Accuracy of fp8_matmul: every scaling and format, both orders of b, sides that no block divides, long sums.

In Triton's interpreter the kernel multiplies in float32: indices, masks and scales are checked there, but not what
tensor cores make of float8, or how precisely they sum.
"""

import perfci
import torch
from fp8_matmul_baseline import fp8_matmul as reference, make_inputs
from fp8_matmul_triton import fp8_matmul as kernel

import _quant
import _scaling
from _views import FAR, far, spread, with_far

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
OUT = [torch.bfloat16, torch.float16, torch.float32]
MODES = {"tensor": ("tensor", "tensor"), "row": ("row", "column"), "block": ("group", "block")}
"""scaling -> modes of a and b"""
SCALING = [*MODES]


def inputs(columns_apart=0, b_apart=0, infinite=False, mixed=False, **case):
    """As in the baseline; elements between neighbours of a row of a, and of a column of b.

    `infinite`: each last scale of b, or else of a. `mixed`: b in e5m2.
    """
    made = make_inputs(**case)
    if infinite:
        made["scale_a"][::2, -1] = made["scale_b"][-1, ::2] = torch.inf
        ones = 56  # 1 in e4m3, as 0 times infinity is NaN
        made["a"].view(torch.uint8)[:, -1] = made["b"].view(torch.uint8)[-1] = ones
    if mixed:
        made["b"] = made["b"].float().to(E5M2)
    for name, axis, step in (("a", 1, columns_apart), ("b", 0, b_apart)):
        made[name] = spread(made[name], axis, step) if step else made[name]
    return made


def tensors(device, m=4, n=8, k=16, **others):
    made = make_inputs(m, n, k, "tensor", E4M3, torch.bfloat16, device, 1)
    return made | {name: make(device) if callable(make) else make for name, make in others.items()}


def ones(*shape, dtype=torch.float32):
    return lambda device: torch.ones(shape, device=device).to(dtype)


def stored(m, n, k, scaling, dtype, device, seed):
    """Both operands by the modes of make_inputs: activations with rows of unlike size, weights that sum to order 1."""
    generator = torch.Generator(device).manual_seed(seed)
    sizes = 0.125 + 0.25 * torch.rand((m, 1), generator=generator, device=device)
    left = torch.randn((m, k), generator=generator, device=device) * sizes
    right = torch.randn((k, n), generator=generator, device=device) * k**-0.5
    if scaling not in MODES:
        return {
            name: perfci.Stored(x, *_scaling.quantize_channels(x, dtype, scaling)[:2], group=(1, scaling))
            for name, x in (("a", left), ("b", right.t()))
        }
    (a, scale_a, _), (b, scale_b, _) = (
        _quant.quantize(x, dtype, mode) for x, mode in zip((left, right), MODES[scaling], strict=True)
    )
    blocks = scaling == "block"
    return {
        "a": perfci.Stored(left, a, scale_a, group=(1, _quant.GROUP) if blocks else None),
        "b": perfci.Stored(right, b, scale_b, group=(_quant.GROUP, _quant.GROUP) if blocks else None),
    }


accuracy = perfci.Accuracy(
    kernel=kernel,
    reference=reference,
    make_inputs=with_far(inputs),
    cases=(
        *perfci.grid(m=[128], n=[128], k=[128], scaling=SCALING, dtype=[E4M3], out_dtype=OUT),
        *perfci.grid(m=[65], n=[136], k=[144], scaling=SCALING, dtype=[E4M3], out_dtype=OUT),
        *perfci.grid(m=[131], n=[67], k=[101], scaling=SCALING, dtype=[E4M3], out_dtype=OUT),
        *perfci.grid(m=[33], n=[264], k=[272], scaling=SCALING, dtype=[E4M3], out_dtype=OUT[:1], b_rows=[True, False]),
        *perfci.grid(m=[33], n=[72], k=[208], scaling=SCALING, dtype=[E5M2], out_dtype=OUT[:1]),
        *perfci.grid(m=[1, 17], n=[1, 130], k=[1, 129], scaling=["row", "block"], dtype=[E4M3], out_dtype=OUT[:1]),
        *perfci.grid(m=[16], n=[32], k=[1023, 1024], scaling=SCALING, dtype=[E4M3], out_dtype=[OUT[0], OUT[2]]),
        *perfci.grid(m=[300], n=[272], k=[64], scaling=["row"], dtype=[E4M3], out_dtype=OUT[:1]),
        *perfci.grid(m=[1100], n=[136], k=[32], scaling=["tensor"], dtype=[E4M3], out_dtype=OUT[:1]),
        *perfci.grid(m=[0], n=[8], k=[8], scaling=["row"], dtype=[E4M3], out_dtype=OUT[:1]),
        *perfci.grid(m=[8], n=[16], k=[0], scaling=["tensor"], dtype=[E4M3], out_dtype=OUT[:1]),
        *perfci.grid(m=[37], n=[35], k=[150], scaling=[4, 8, 16, 32, 64], dtype=[E4M3], out_dtype=OUT[2:]),
        *perfci.grid(m=[33], n=[48], k=[144], scaling=SCALING, dtype=[E4M3], out_dtype=OUT[:1], mixed=[True]),
        # A last group of one channel, with a scale that is infinite.
        *perfci.grid(m=[5, 67], n=[6], k=[65], scaling=[16], dtype=[E4M3], out_dtype=OUT[2:], infinite=[True]),
        *perfci.grid(m=[70], n=[136], k=[128], scaling=[32], dtype=[E4M3], out_dtype=OUT),
        # Enough rows for operands that are scaled first.
        *perfci.grid(m=[67], n=[35], k=[301], scaling=[4, 64, "auto"], dtype=[E4M3], out_dtype=OUT, loud=[False]),
        *perfci.grid(m=[67], n=[40], k=[72], scaling=[16], dtype=[E5M2], out_dtype=OUT[:1], b_rows=[True, False]),
        *perfci.grid(m=[17], n=[67], k=[256], scaling=["auto"], dtype=[E4M3], out_dtype=OUT[2:], loud=[False, True]),
        *perfci.grid(m=[513, 520], n=[264], k=[272], scaling=["block"], dtype=[E4M3], out_dtype=OUT[:1]),
        # So many blocks of columns that one more or less in each block's size shows.
        *perfci.grid(m=[1], n=[16512], k=[16], scaling=["block"], dtype=[E4M3], out_dtype=OUT[:1]),
    ),
    probe_cases=(
        *perfci.grid(m=[33], n=[48], k=[144], scaling=SCALING, dtype=[E4M3], out_dtype=[OUT[0], OUT[2]]),
        *perfci.grid(m=[17], n=[48], k=[64], scaling=["row"], dtype=[E5M2], out_dtype=OUT[:1]),
        *perfci.grid(m=[17, 67], n=[48], k=[72], scaling=[16], dtype=[E4M3, E5M2], out_dtype=OUT[:1]),
    ),
    accelerator_cases=(
        *perfci.grid(
            m=[5], n=[48], k=[261], scaling=["row", "block", 32], dtype=[E4M3], out_dtype=OUT[:1], columns_apart=[FAR]
        ),
        *perfci.grid(m=[5], n=[16], k=[261], scaling=["row"], dtype=[E4M3], out_dtype=OUT[:1], b_apart=[2 * FAR]),
        *perfci.grid(m=[513], n=[264], k=[400, 1296], scaling=["block"], dtype=[E4M3], out_dtype=OUT[:1]),
        *perfci.grid(m=[520], n=[264], k=[144], scaling=["block"], dtype=[E4M3], out_dtype=OUT[:1], mixed=[True]),
        *perfci.grid(
            m=[130, 520],
            n=[400],
            k=[400],
            scaling=["block"],
            dtype=[E4M3],
            out_dtype=OUT[:1],
            far=far(["scale_a", "scale_b"], 0, 1),
        ),
        *perfci.grid(
            m=[5, 130],
            n=[35],
            k=[200],
            scaling=[16],
            dtype=[E4M3],
            out_dtype=OUT[:1],
            far=far(["a", "b", "scale_a", "scale_b"], 0, 1),
        ),
        *perfci.grid(
            m=[130],
            n=[35],
            k=[200],
            scaling=["row"],
            dtype=[E4M3],
            out_dtype=OUT[:1],
            far=["a:0", "b:1", "scale_a:0", "scale_b:1"],
        ),
        # More rows of tiles than a group has.
        *perfci.grid(m=[2200], n=[520], k=[144], scaling=["block"], dtype=[E4M3], out_dtype=OUT[:1]),
        # A number of tiles that a block of nearly 128 rows would change.
        *perfci.grid(m=[640], n=[264], k=[144], scaling=["block"], dtype=[E4M3], out_dtype=OUT[:1]),
        # What performance launches and no case above does: programs that take several tiles.
        *perfci.grid(m=[520], n=[6672], k=[144], scaling=["tensor"], dtype=[E4M3], out_dtype=OUT[:1]),
        *perfci.grid(m=[4400], n=[1104], k=[72], scaling=[16], dtype=[E4M3], out_dtype=OUT[:2]),
        *perfci.grid(m=[520], n=[3472], k=[144], scaling=["block"], dtype=[E4M3], out_dtype=OUT[:1]),
    ),
    reduces=lambda m, n, k, loud=False, **others: 1 if loud else k,
    # Tensor cores keep about 14 bits of a sum of float8 products: over 128 terms if the output is float16 or
    # float32, over all of them if it is bfloat16. A sum that passed through 100 on its way to 0 keeps that error.
    # Values that are scaled first are rounded to 11 bits, as tf32, for an answer in float16 or float32: of 4.9 million
    # elements in float16 the worst was off by 0.084 on an H200, where 5e-3 allows 0.072.
    tolerance={"float32": (1e-3, 5e-3), "float16": (2e-3, 8e-3), "bfloat16": (1.6e-2, 5e-3)},
    tolerance_reason="tensor cores keep some 14 bits of a sum of float8 products, and 11 of values scaled first",
    uses_dot=True,
    quantised=perfci.Quantised(
        store=stored, cases=perfci.grid(m=[256], n=[264], k=[400], scaling=[*SCALING, 64, 8], dtype=[E4M3, E5M2])
    ),
    rejects=(
        ("a of float16", lambda device: tensors(device, a=ones(4, 16, dtype=torch.float16))),
        ("b of bytes", lambda device: tensors(device, b=ones(16, 8, dtype=torch.uint8))),
        ("inner sides that differ", lambda device: tensors(device, b=ones(15, 8, dtype=E4M3))),
        ("a with three sides", lambda device: tensors(device, a=ones(1, 4, 16, dtype=E4M3))),
        ("a scale of float16", lambda device: tensors(device, scale_a=ones(1, dtype=torch.float16))),
        ("a scale that is a number", lambda device: tensors(device, scale_a=0.5)),
        ("a scale of another length", lambda device: tensors(device, scale_a=ones(5, 1))),
        ("scales of rows that lie along columns", lambda device: tensors(device, scale_a=ones(1, 4))),
        ("scales of blocks and of rows", lambda device: tensors(device, k=256, scale_a=ones(4, 2), scale_b=ones(1, 8))),
        ("an output of float64", lambda device: tensors(device, out_dtype=torch.float64)),
    ),
)
if __name__ == "__main__":
    perfci.main(accuracy)
