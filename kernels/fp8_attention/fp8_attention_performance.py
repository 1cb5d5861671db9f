"""Performance of fp8_attention: prefill of a transformer, by every scaling, with float8 values alone, and decoding.

The reference dequantises to bfloat16 and calls PyTorch's attention: what would else be done with such storage.
"""

import perfci
import torch
from fp8_attention_baseline import fp8_attention as reference, make_inputs
from fp8_attention_triton import fp8_attention as kernel

CAST = {"dtype": [torch.float8_e4m3fn], "out_dtype": [torch.bfloat16]}


def shapes(batch, heads, key_heads, tokens, width, **axes):
    sizes = {"queries": [tokens], "keys": [tokens], "width": [width], "scaling": ["tensor"]}
    return perfci.grid(batch=[batch], heads=[heads], key_heads=[key_heads], **{**sizes, **CAST, **axes})


def flops(batch, heads, queries, keys, width, causal=False, **_):
    """Two products, of two operations for each key that a query sees and each place of a head."""
    seen = sum(max(min(place + 1, keys), 0) for place in range(keys - queries, keys)) if causal else queries * keys
    return 4 * batch * heads * width * seen


def bytes_moved(batch, heads, key_heads, queries, keys, width, scaling, dtype, out_dtype, parts="qkv", **_):
    """Operands, scales and answer, each once."""
    size = dtype.itemsize if parts == "qkv" else out_dtype.itemsize
    of_q, of_k = batch * heads * queries, batch * key_heads * keys
    values = of_q * width * (size + out_dtype.itemsize) + of_k * width * (size + dtype.itemsize)
    tokens = of_q + of_k
    groups = batch * key_heads * -(-keys // 128)
    of_qk, of_v = {
        "tensor": (2, 1),
        "channel": (tokens, batch * key_heads * width),
        "group": (batch * heads * -(-queries // 128) + groups, groups),
    }[scaling]
    return values + 4 * (of_v + of_qk * (parts == "qkv"))


performance = perfci.Performance(
    kernel=kernel,
    reference=reference,
    make_inputs=make_inputs,
    cases=(
        *shapes(4, 16, 16, 4096, 128),
        *shapes(4, 16, 16, 4096, 128, scaling=["tensor", "channel", "group"], causal=[True]),
        *shapes(4, 16, 16, 4096, 128, parts=["v"], causal=[True]),
        *shapes(4, 32, 32, 4096, 64, causal=[True]),
        *shapes(2, 32, 8, 8192, 128, causal=[True]),
        *shapes(2, 8, 8, 4096, 256, causal=[True]),
        *shapes(16, 32, 8, 8192, 128, queries=[16], causal=[True]),
    ),
    bytes_moved=bytes_moved,
    flops=flops,
    # As in the accuracy suite: what rounding the weights to float8 may do.
    tolerance={"bfloat16": (8e-3, 0.1)},
)
if __name__ == "__main__":
    perfci.main(performance)
