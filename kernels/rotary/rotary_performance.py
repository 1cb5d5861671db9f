"""Performance of rotary: queries and keys of language models, at the tokens of training and of decoding."""

import perfci
import torch
from rotary_baseline import make_inputs, rotary as reference
from rotary_triton import rotary as kernel

from _peers import compiled


def grid(heads, width, rotated, interleaved=False, dtype=torch.bfloat16, batch=1, tokens=16384):
    shape = {"heads": heads[:1], "key_heads": heads[1:], "width": [width], "rotated": [rotated]}
    return perfci.grid(batch=[batch], tokens=[tokens], **shape, interleaved=[interleaved], dtype=[dtype])


performance = perfci.Performance(
    kernel=kernel,
    reference=reference,
    make_inputs=make_inputs,
    cases=(
        *grid((32, 8), 128, 128),
        *grid((64, 8), 128, 128, batch=4, tokens=4096),
        *grid((32, 8), 128, 128, dtype=torch.float32),
        *grid((32, 32), 80, 32, dtype=torch.float16),
        *grid((16, 16), 256, 64, interleaved=True, batch=8, tokens=2048, dtype=torch.float16),
        *grid((32, 8), 128, 128, interleaved=True),
        *grid((32, 8), 128, 128, tokens=256),
    ),
    # Both tensors are read and written, and both tables are read once.
    bytes_moved=lambda batch, tokens, heads, key_heads, width, rotated, dtype, **others: (
        (2 * batch * tokens * (heads + key_heads) * width + tokens * rotated) * dtype.itemsize
    ),
    # Of each pair four products, a difference and a sum.
    flops=lambda batch, tokens, heads, key_heads, rotated, **others: 3 * batch * tokens * (heads + key_heads) * rotated,
    peers={"torch.compile": compiled(reference)},
)
if __name__ == "__main__":
    perfci.main(performance)
