"""A block of a transformer: norm and attention with its projections, then norm and the feed-forward part's products.

Each half is added to its input, so an error of the first half continues beside the second.
"""

import perfci
import torch

from attention.attention_baseline import attention as attention_reference
from attention.attention_triton import attention
from matmul.matmul_baseline import matmul as matmul_reference
from matmul.matmul_triton import matmul
from rms_norm.rms_norm_baseline import rms_norm as rms_norm_reference
from rms_norm.rms_norm_triton import rms_norm

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def make_inputs(tokens, heads, width, dtype, device, seed):
    """`width` is that of a head. Weights are small enough that every product keeps the size of its input."""
    generator = torch.Generator(device).manual_seed(seed)
    model = heads * width

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=dtype, device=device)

    def product(rows, columns):
        return normal(rows, columns).mul_(rows**-0.5)

    return {
        "heads": heads,
        "activation": "silu",
        "x": normal(tokens, model),
        "w_norm1": normal(model).mul_(0.1).add_(1),
        "w_qkv": product(model, 3 * model),
        "w_out": product(model, model),
        "w_norm2": normal(model).mul_(0.1).add_(1),
        "w_up": product(model, 4 * model),
        "b_up": normal(4 * model),
        "w_down": product(4 * model, model),
    }


def parts(qkv, heads):
    """Queries, keys and values as views of (1, heads, tokens, width)."""
    tokens, columns = qkv.shape
    return qkv.view(tokens, 3, heads, columns // (3 * heads)).permute(1, 2, 0, 3).unsqueeze(1).unbind()


def merged(out):
    """The heads side by side again, one row a token."""
    return out.squeeze(0).transpose(0, 1).reshape(out.shape[2], -1)


def mixed(attention, qkv, heads):
    return merged(attention(*parts(qkv, heads), causal=True))


def added(left, right):
    return left + right


chain = perfci.Chain(
    make_inputs=make_inputs,
    stages=(
        perfci.Stage("norm1", rms_norm, rms_norm_reference, takes={"x": "x", "weight": "w_norm1"}),
        perfci.Stage("qkv", matmul, matmul_reference, takes={"a": "norm1", "b": "w_qkv"}),
        perfci.Stage(
            "mix",
            kernel=lambda qkv, heads: mixed(attention, qkv, heads),
            reference=lambda qkv, heads: mixed(attention_reference, qkv, heads),
        ),
        perfci.Stage("out", matmul, matmul_reference, takes={"a": "mix", "b": "w_out"}),
        perfci.Stage("sum1", added, added, takes={"left": "x", "right": "out"}),
        perfci.Stage("norm2", rms_norm, rms_norm_reference, takes={"x": "sum1", "weight": "w_norm2"}),
        perfci.Stage(
            "up",
            matmul,
            matmul_reference,
            takes={"a": "norm2", "b": "w_up", "bias": "b_up", "activation": "activation"},
        ),
        perfci.Stage("down", matmul, matmul_reference, takes={"a": "up", "b": "w_down"}),
        perfci.Stage("sum2", added, added, takes={"left": "sum1", "right": "down"}),
    ),
    cases=perfci.grid(tokens=[17], heads=[2], width=[16], dtype=DTYPES),
    accelerator_cases=(
        *perfci.grid(tokens=[129], heads=[3], width=[80], dtype=DTYPES),
        *perfci.grid(tokens=[2048], heads=[16], width=[64], dtype=DTYPES),
    ),
)
if __name__ == "__main__":
    perfci.main(chain)
