"""The feed-forward part of a transformer's block with both products in float8, between two residual sums with norms.

Activations are quantised by groups of channels whose size is chosen, weights by groups of 32. The reference quantises
too and multiplies what was stored, so that a fault of a kernel is not hidden by what float8 costs.
"""

import perfci
import torch

import _quant
import _scaling
from add_rms_norm.add_rms_norm_baseline import add_rms_norm as add_rms_norm_reference
from add_rms_norm.add_rms_norm_triton import add_rms_norm
from fp8_matmul.fp8_matmul_triton import fp8_matmul

E4M3 = torch.float8_e4m3fn
GROUP = 32
"""Channels of a weight that share a scale."""


def make_inputs(tokens, width, hidden, dtype, device, seed):
    """One channel in 64 of x is loud, as in trained models. Weights are stored as layers do, (outputs, inputs)."""
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=dtype, device=device)

    x = normal(tokens, width)
    x[:, 7::64] *= 100
    return {
        "x": x,
        "residual": normal(tokens, width),
        "w_norm1": normal(width).mul_(0.1).add_(1),
        "w_up": normal(hidden, width).mul_(width**-0.5),
        "w_down": normal(width, hidden).mul_(hidden**-0.5),
        "w_norm2": normal(width).mul_(0.1).add_(1),
    }


def normed(function, names, x, residual, weight):
    return dict(zip(names, function(x, residual, weight), strict=True))


def stored(x, weight):
    """Both operands as (values, scale, channels of a group)."""
    group = _scaling.choose_channels(x, E4M3).group
    of_x, of_weight = (_quant.quantize(each, E4M3, "group", group=size) for each, size in ((x, group), (weight, GROUP)))
    return (*of_x[:2], group), (*of_weight[:2], GROUP)


def product(x, weight):
    (a, scale_a, _), (b, scale_b, _) = stored(x, weight)
    return fp8_matmul(a, b.t(), scale_a, scale_b.t(), x.dtype)


def product_reference(x, weight):
    left, right = (
        _quant.dequantize(values, scale, "group", group, x.dtype) for values, scale, group in stored(x, weight)
    )
    return left @ right.t()


chain = perfci.Chain(
    make_inputs=make_inputs,
    stages=(
        perfci.Stage(
            "sum1",
            kernel=lambda x, residual, w_norm1: normed(add_rms_norm, ("norm1", "total"), x, residual, w_norm1),
            reference=lambda x, residual, w_norm1: normed(
                add_rms_norm_reference, ("norm1", "total"), x, residual, w_norm1
            ),
        ),
        perfci.Stage("up", product, product_reference, takes={"x": "norm1", "weight": "w_up"}),
        perfci.Stage("hidden", torch.nn.functional.silu, torch.nn.functional.silu, takes={"input": "up"}),
        perfci.Stage("down", product, product_reference, takes={"x": "hidden", "weight": "w_down"}),
        perfci.Stage(
            "sum2",
            kernel=lambda down, total, w_norm2: normed(add_rms_norm, ("out", "left"), down, total, w_norm2),
            reference=lambda down, total, w_norm2: normed(
                add_rms_norm_reference, ("out", "left"), down, total, w_norm2
            ),
        ),
    ),
    # A value halfway between two of float8 may be rounded either way, after an error of the last digit.
    tolerance={"float32": 1e-3, "float16": 5e-3, "bfloat16": 1.6e-2},
    cases=perfci.grid(tokens=[13], width=[128], hidden=[192], dtype=[torch.float32, torch.float16, torch.bfloat16]),
    accelerator_cases=perfci.grid(tokens=[2048], width=[1024], hidden=[4096], dtype=[torch.float16, torch.bfloat16]),
)
if __name__ == "__main__":
    perfci.main(chain)
