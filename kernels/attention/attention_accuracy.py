"""Accuracy of attention: sides around the blocks', grouped heads, odd widths, masks, windows and dropout."""

import perfci
import torch
from attention_baseline import attention, make_inputs
from attention_triton import attention as kernel
from torch.nn.attention import SDPBackend, sdpa_kernel

from _views import far, with_far

# By torch's formula: its fused kernels are as new as ours, and cuDNN plans each shape anew, for 0.1 s.
reference = sdpa_kernel(SDPBackend.MATH)(attention)

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
HALF = {"dtype": [torch.float16]}


WINDOWS = [(9, 3), (40, None), (None, 7), (0, 0)]
HIDDEN = {"padded": [True], "causal": [True]}
FEATURES = (
    {"causal": [True]},
    {"window": [(9, 3)]},
    {"padded": [True]},
    {"mask": ["bool", "added-by-head"]},
    {"dropout": [0.25], "window": [(5, None)]},
)
"""Each with arguments of its own, which a kernel passes on in its loop over tiles."""
LIMITED = {"causal": [True], "window": [(30, None)], "mask": ["bool-by-head", "added"]}


def shapes(batch=1, heads=1, key_heads=1, **axes):
    return perfci.grid(batch=[batch], heads=[heads], key_heads=[key_heads], **axes)


def several(**axes):
    """Several batches, heads of a group, and tiles of both sides; rows of 40 bytes, which no descriptor takes."""
    return shapes(2, 4, 2, queries=[150], keys=[280], width=[20], dtype=[torch.float16], **axes)


def wrong(q=(1, 4, 8, 16), k=(1, 2, 8, 16), v=(1, 2, 8, 16), dtype=torch.float32, **others):
    """Returns a function of the device that makes such inputs."""

    def make(device):
        tensors = {name: torch.zeros(shape, device=device) for name, shape in (("q", q), ("k", k), ("v", v))}
        return {**tensors, "q": tensors["q"].to(dtype), **others}

    return make


def cut_batches(made, start, stop):
    """Inputs of so many batches; the mask may be of all."""
    tensors = {name: each for name, each in made.items() if isinstance(each, torch.Tensor) and len(each) > 1}
    return {**made, **{name: each[start:stop] for name, each in tensors.items()}}


def places(device, heads, dtype):
    """Inputs with a mask that is of places."""
    return {**wrong()(device), "mask": torch.ones(1, heads, 8, 8, dtype=dtype, device=device)}


accuracy = perfci.Accuracy(
    kernel=kernel,
    reference=reference,
    make_inputs=with_far(make_inputs),
    cases=(
        *shapes(heads=2, queries=[64], keys=[64], width=[64], dtype=DTYPES),
        *shapes(queries=[1, 33], keys=[31, 65], width=[16], dtype=[torch.float32], causal=[False, True]),
        *shapes(queries=[65], keys=[97], width=[80], dtype=DTYPES, causal=[True]),
        *shapes(queries=[70], keys=[20], width=[32], dtype=[torch.float16], causal=[True]),
        *shapes(queries=[16, 20], keys=[40], width=[1, 3], dtype=[torch.float16]),
        *shapes(queries=[17], keys=[35], width=[128, 192, 256], dtype=DTYPES),
        *shapes(1, 6, 2, queries=[9], keys=[34], width=[24], dtype=DTYPES, causal=[True]),
        *shapes(1, 8, 2, queries=[40], keys=[50], width=[24], dtype=[torch.float16], causal=[True]),
        *shapes(queries=[90], keys=[100], width=[16], dtype=[torch.float16], window=WINDOWS),
        *shapes(queries=[70], keys=[70], width=[16], dtype=[torch.float32], window=[(50, 10)], causal=[True]),
        *shapes(queries=[400], keys=[200], width=[64], dtype=[torch.float16]),
        *shapes(queries=[300], keys=[200], width=[256], dtype=[torch.float16]),
        *shapes(queries=[40], keys=[70], width=[16], dtype=[torch.float32], causal=[True]),
        *shapes(2, queries=[20], keys=[600], width=[16], dtype=[torch.float16], padded=[(5, 600)]),
        *shapes(3, queries=[20], keys=[45], width=[16], dtype=DTYPES, padded=[True]),
        *shapes(2, queries=[40], keys=[40], width=[16], dtype=[torch.float32], **HIDDEN, window=[(9, None)]),
        # More keys than a tile, of which a mask hides some and a window others.
        *shapes(2, queries=[150], keys=[150], width=[16], dtype=[torch.float32], **HIDDEN, window=[(9, None)]),
        *shapes(2, 2, queries=[20], keys=[37], width=[16], dtype=DTYPES, dropout=[0.25]),
        *shapes(2, queries=[33], keys=[33], width=[16], dtype=[torch.float16], **HIDDEN, dropout=[0.9]),
        *shapes(2, 4, 2, queries=[33], keys=[37], width=[16], dtype=DTYPES, mask=["bool", "added-by-head"]),
        *shapes(1, 2, queries=[40], keys=[70], width=[80], dtype=DTYPES[1:], **LIMITED),
        *shapes(1, 2, 1, queries=[9], keys=[21], width=[16], dtype=DTYPES[:1], mask=["added-by-head"], dropout=[0.25]),
        # Few queries over many keys, which are split; few heads that share a key head, which are not. Of 513 keys the
        # last one, which a mask of keys shows, has a tile alone.
        *shapes(1, 4, 1, queries=[1], keys=[600], width=[40, 200], dtype=DTYPES, causal=[True]),
        *shapes(1, 2, 1, queries=[5], keys=[1300], width=[16], dtype=DTYPES, causal=[True], window=[(1100, None)]),
        *shapes(3, 3, 1, queries=[2], keys=[513], width=[16], dtype=DTYPES, padded=[True]),
        *shapes(1, 4, 2, queries=[3], keys=[530], width=[16], dtype=DTYPES, causal=[True], dropout=[0.25]),
        *shapes(2, 4, 2, queries=[3], keys=[530], width=[16], dtype=DTYPES[:2], mask=["bool-by-head", "added"]),
        *shapes(2, 4, 2, queries=[1], keys=[37], width=[16], dtype=DTYPES[1:2], mask=["bool-by-head"]),
        *shapes(4, 4, 2, queries=[2], keys=[300], width=[16], dtype=[torch.float32], causal=[True]),
        *shapes(1, 3, 1, queries=[5], keys=[3], width=[16], dtype=[torch.float32], causal=[True]),
        # More tiles than the smallest grid has programs, through pointers: a head each, heads together, parts of keys.
        *(case for each in FEATURES for case in shapes(3, 3, 3, queries=[9], keys=[37], width=[20], **HALF, **each)),
        *(case for each in FEATURES for case in shapes(3, 6, 3, queries=[3], keys=[37], width=[20], **HALF, **each)),
        *shapes(4, 2, 1, queries=[3], keys=[513], width=[20], **HALF, causal=[False, True]),
        # Width 128 and enough queries, for groups of warps where there are such: ends of tiles and of blocks of keys.
        *shapes(1, 4, 2, queries=[66], keys=[131], width=[128], dtype=[torch.bfloat16], causal=[False, True]),
        *shapes(queries=[200], keys=[135], width=[72, 128], dtype=[torch.float16], causal=[True]),
        *shapes(queries=[130], keys=[256], width=[16], dtype=[torch.float16], causal=[True], dropout=[0.25]),
        *shapes(queries=[130], keys=[256], width=[16], dtype=[torch.float16], window=[(60, 20)], dropout=[0.25]),
        *shapes(4, 4, 2, queries=[2], keys=[60], width=[16], dtype=[torch.float16], dropout=[0.25]),
        *shapes(queries=[0, 5], keys=[0, 7], width=[16], dtype=[torch.float16]),
        *shapes(batch=0, queries=[4], keys=[4], width=[16], dtype=[torch.bfloat16]),
        *shapes(heads=0, key_heads=0, queries=[4], keys=[4], width=[16], dtype=[torch.float32]),
    ),
    probe_cases=(
        *shapes(heads=2, queries=[33], keys=[24], width=[16, 20], dtype=DTYPES),
        *shapes(1, 3, queries=[2], keys=[520], width=[16], dtype=[torch.float32, torch.bfloat16]),
        *shapes(3, 6, 3, queries=[3], keys=[37], width=[20], **HALF),
        *shapes(queries=[130], keys=[140], width=[128], dtype=[torch.bfloat16]),
        *shapes(1, 2, queries=[5], keys=[24], width=[16], dtype=[torch.float32], mask=["added"]),
    ),
    accelerator_cases=(
        # More tiles than an H200 has processors, for programs that take several.
        *shapes(1, 50, 25, queries=[1024], keys=[128], width=[128], dtype=[torch.bfloat16], causal=[False, True]),
        # A last tile of one query, which sees the last block of keys whole.
        *shapes(1, 2, 1, queries=[385], keys=[512], width=[128], dtype=[torch.bfloat16], causal=[True]),
        *shapes(1, 5, 1, queries=[5], keys=[530], width=[16], dtype=[torch.float16], dropout=[0.25]),
        *several(causal=[False, True]),
        *several(window=[(60, 20)], dropout=[0.0, 0.25]),
        *several(mask=["bool-by-head", "added"]),
        # What performance launches and no case above does: whole blocks of keys, and parts of them.
        *shapes(queries=[256], keys=[128], width=[128], dtype=[torch.float16]),
        *shapes(queries=[256], keys=[384], width=[128, 64], dtype=DTYPES[2:], causal=[True]),
        *shapes(2, 6, 2, queries=[256], keys=[256], width=[64], dtype=DTYPES[2:]),
        *shapes(queries=[200], keys=[256], width=[128], dtype=DTYPES[2:], causal=[True], window=[(99, None)]),
        *shapes(queries=[256], keys=[128], width=[256], dtype=DTYPES[2:], causal=[True]),
        *shapes(queries=[256], keys=[128], width=[128], dtype=DTYPES[2:], mask=["bool", "added-by-head"]),
        *shapes(2, 4, 2, queries=[256], keys=[128], width=[128], dtype=DTYPES[2:], mask=["bool-by-head", "added"]),
        *shapes(16, 32, 8, queries=[1, 16], keys=[1024], width=[128], dtype=DTYPES[2:], causal=[True]),
        *shapes(1, 32, 8, queries=[1], keys=[8192], width=[128], dtype=DTYPES[2:], causal=[True]),
        # More parts than are put together at a time.
        *shapes(1, 4, 1, queries=[1], keys=[8200], width=[256], dtype=DTYPES[2:], causal=[True]),
        # Tiles of three groups of warps, several in turn; at width 256 in pairs, and a last query with one key more.
        *shapes(1, 100, 50, queries=[576], keys=[128], width=[64], dtype=DTYPES[2:]),
        *shapes(queries=[256], keys=[257, 384], width=[256], dtype=DTYPES[2:], causal=[True]),
        # Places that take more than 32 bits, of few elements: heads that share tiles, and heads that do not.
        *shapes(3, 6, 3, queries=[3], keys=[37], width=[20], **HALF, far=far("qkv", 0, 1, 2, 3)),
        *shapes(3, 3, 3, queries=[9], keys=[37], width=[20], **HALF, far=far("qkv", 0, 1, 2, 3)),
        *shapes(3, queries=[20], keys=[45], width=[16], **HALF, padded=[True], far=["mask:1"]),
        *shapes(3, 3, 1, queries=[2], keys=[600], width=[16], **HALF, padded=[True], far=["mask:0", "mask:1"]),
        *shapes(3, 3, queries=[9], keys=[37], width=[20], **HALF, mask=["bool-by-head"], far=far(["mask"], 0, 1)),
        *shapes(3, queries=[20], keys=[45], width=[16], dtype=DTYPES[2:], padded=[True], far=["mask:0"]),
        *shapes(queries=[261], keys=[45], width=[16], dtype=DTYPES[2:], mask=["bool"], far=["mask:2"]),
        *shapes(queries=[20], keys=[261], width=[16], dtype=DTYPES[2:], mask=["bool"], far=["mask:3"]),
    ),
    # Past 2^31 and 2^32 elements, through pointers: a descriptor's coordinates stay small.
    large_cases=shapes(2**18 + 5, 34, 17, queries=[8], keys=[3], width=[61], dtype=[torch.float16]),
    large_part=cut_batches,
    reduces=lambda keys, width, **others: max(keys, width, 1),
    uses_dot=True,
    rejects=(
        ("q with three dimensions", wrong(q=(4, 8, 16))),
        ("widths that differ", wrong(q=(1, 4, 8, 32))),
        ("k and v of two lengths", wrong(v=(1, 2, 9, 16))),
        ("key heads that do not divide the heads", wrong(q=(1, 3, 8, 16))),
        ("heads without key heads", wrong(k=(1, 0, 8, 16), v=(1, 0, 8, 16))),
        ("heads too wide", wrong((1, 2, 8, 257), (1, 2, 8, 257), (1, 2, 8, 257))),
        ("heads of no width", wrong((1, 2, 8, 0), (1, 2, 8, 0), (1, 2, 8, 0))),
        ("dtypes that differ", wrong(dtype=torch.float16)),
        ("q of integers", wrong(dtype=torch.int32)),
        ("a mask of numbers", lambda device: {**wrong()(device), "mask": torch.ones(1, 8, device=device)}),
        ("a mask of another shape", lambda device: {**wrong()(device), "mask": torch.ones(1, 9, device=device) > 0}),
        ("a mask of more heads than there are", lambda device: places(device, 3, torch.bool)),
        ("a mask added in another dtype", lambda device: places(device, 1, torch.float16)),
        ("a window of one number", wrong(window=(3,))),
        ("a window of fewer than no keys", wrong(window=(-1, 2))),
        ("a scale of nothing", wrong(scale=0.0)),
        ("everything dropped", wrong(dropout=1.0)),
        ("a seed below 0", wrong(seed=-1)),
    ),
)
if __name__ == "__main__":
    perfci.main(accuracy)
