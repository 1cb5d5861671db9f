"""Performance of attention: long sequences of a transformer, grouped heads, a sliding window, and decoding steps."""

import perfci
import torch
from attention_baseline import attention as reference, make_inputs
from attention_triton import attention as kernel

from _peers import attending

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
    """Two products, of two operations for each weight and each place of a head."""
    limits = {name: others[name] for name in ("causal", "window") if name in others}
    return 4 * batch * heads * width * pairs(queries, keys, **limits)


def bytes_moved(batch, heads, key_heads, queries, keys, width, dtype, mask="", **_):
    """q, k, v and the answer, each once, and the mask."""
    masks = (heads if mask.endswith("-by-head") else 1) * (dtype.itemsize if mask.startswith("added") else 1)
    of_mask = batch * masks * queries * keys if mask else 0
    return 2 * batch * (heads * queries + key_heads * keys) * width * dtype.itemsize + of_mask


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
        *shapes(2, 16, 16, queries=[4096], keys=[4096], width=[128], dtype=BF16, mask=["bool", "added-by-head"]),
        *shapes(16, 32, 8, queries=[1, 16], keys=[8192], width=[128], dtype=BF16, causal=[True]),
        *shapes(1, 32, 8, queries=[1], keys=[32768], width=[128], dtype=BF16, causal=[True]),
    ),
    bytes_moved=bytes_moved,
    flops=flops,
    reduces=lambda keys, **others: keys,
    peers={
        "flash": attending(reference, "FLASH_ATTENTION"),
        "cudnn": attending(reference, "CUDNN_ATTENTION"),
    },
)
if __name__ == "__main__":
    perfci.main(performance)
