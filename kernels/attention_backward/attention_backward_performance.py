"""Performance of attention_backward: what training does with long sequences, grouped heads and a sliding window."""

import perfci
import torch
from attention_backward_baseline import fastest as reference, make_inputs
from attention_backward_triton import attention_backward as kernel

BF16 = [torch.bfloat16]


def shapes(batch, heads, key_heads, **axes):
    return perfci.grid(batch=[batch], heads=[heads], key_heads=[key_heads], **axes)


def pairs(queries, keys, causal=False, window=(None, None)):
    """How many keys all queries of one head see together."""
    left, right = window
    right = 0 if causal else right
    total = 0
    for place in range(keys - queries, keys):
        first = 0 if left is None else max(place - left, 0)
        last = keys - 1 if right is None else min(place + right, keys - 1)
        total += max(last - first + 1, 0)
    return total


def flops(batch, heads, queries, keys, width, **others):
    """Five products, as is usual; two kernels that each compute the weights again make seven."""
    limits = {name: others[name] for name in ("causal", "window") if name in others}
    return 10 * batch * heads * width * pairs(queries, keys, **limits)


performance = perfci.Performance(
    kernel=kernel,
    reference=reference,
    make_inputs=make_inputs,
    cases=(
        *shapes(4, 16, 16, queries=[4096], keys=[4096], width=[128], dtype=[*BF16, torch.float16], causal=[False]),
        *shapes(4, 16, 16, queries=[4096], keys=[4096], width=[128], dtype=BF16, causal=[True]),
        *shapes(4, 32, 32, queries=[4096], keys=[4096], width=[64], dtype=BF16, causal=[False, True]),
        *shapes(2, 32, 8, queries=[4096], keys=[4096], width=[128], dtype=BF16, causal=[True]),
        *shapes(1, 16, 4, queries=[8192], keys=[8192], width=[128], dtype=BF16, causal=[True], window=[(1023, None)]),
        *shapes(2, 8, 8, queries=[4096], keys=[4096], width=[256], dtype=BF16, causal=[True]),
    ),
    bytes_moved=lambda batch, heads, key_heads, queries, keys, width, dtype, **others: (
        4 * batch * (heads * queries + key_heads * keys) * width * dtype.itemsize + 4 * batch * heads * queries
    ),
    flops=flops,
    reduces=lambda keys, **others: keys,
)
if __name__ == "__main__":
    perfci.main(performance)
