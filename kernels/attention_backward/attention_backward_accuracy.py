"""Accuracy of attention_backward: sides around the blocks', grouped heads, odd widths, masks, windows and dropout.

Probes get no large and no special values: out and sums would no longer be those of q and k, and 2^(s - sums) overflows
in float64 too. NaN and infinity are left to the op's tests, with sums that belong to them.
"""

import perfci
import torch
from attention_backward_baseline import attention_backward as reference, make_inputs
from attention_backward_triton import attention_backward as kernel

from _views import far, with_far

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


WINDOWS = [(9, 3), (40, None), (None, 7), (0, 0)]
HIDDEN = {"padded": [True], "causal": [True]}
BY_HEAD = {"dtype": [torch.float16], "mask": ["bool-by-head", "added"]}
FEATURES = (
    {"dtype": [torch.float16], "causal": [True]},
    {"dtype": [torch.float16], "window": [(9, 3)]},
    {"dtype": [torch.float16], "padded": [True]},
    {"dtype": [torch.float16], "mask": ["bool", "added-by-head"]},
    {"dtype": [torch.float16], "dropout": [0.25], "window": [(5, None)]},
)
"""Each with arguments of its own, which a kernel passes on in its loop over tiles."""
LIMITED = {"causal": [True], "window": [(30, None)], "mask": ["bool-by-head", "added"]}


def shapes(batch=1, heads=1, key_heads=1, **axes):
    return perfci.grid(batch=[batch], heads=[heads], key_heads=[key_heads], **axes)


def several(**axes):
    """Several batches, heads of a group, and tiles of both sides; rows of 40 bytes, which no descriptor takes."""
    return shapes(2, 4, 2, queries=[150], keys=[280], width=[20], dtype=[torch.float16], **axes)


def inputs(*sizes, spoilt=False, low=False, **case):
    """As in the baseline; `spoilt`: the gradient of the last head's first query is NaN.

    `low`: scores are so far below 0 that 2^-sums is beyond float16, while keys past the end, if not hidden, have 0.
    """
    made = make_inputs(*sizes, **case)
    if low:
        made["q"], made["k"] = made["q"] / 2 + 2.5, made["k"] / 2 - 2.5
        scores = made["q"].float() @ made["k"].float().mT * case["width"] ** -0.5
        made["out"] = (scores.softmax(-1) @ made["v"].float()).to(made["v"].dtype)
        made["sums"] = scores.logsumexp(-1) * 1.4426950408889634
    if spoilt:
        made["grad"][:, -1, 0] = float("nan")
    return made


def wrong(**others):
    """Returns a function of the device that makes such inputs."""

    def make(device):
        shape = {"q": (1, 4, 8, 16), "k": (1, 2, 8, 16), "v": (1, 2, 8, 16), "out": (1, 4, 8, 16), "sums": (1, 4, 8)}
        inputs = {name: torch.zeros(sizes, device=device) for name, sizes in {**shape, "grad": shape["q"]}.items()}
        made = {name: change(inputs[name]) if callable(change) else change for name, change in others.items()}
        return {**inputs, **made}

    return make


accuracy = perfci.Accuracy(
    kernel=kernel,
    reference=reference,
    make_inputs=with_far(inputs),
    cases=(
        *shapes(heads=2, queries=[32], keys=[64], width=[64], dtype=DTYPES),
        *shapes(queries=[1, 33], keys=[31, 65], width=[16], dtype=[torch.float32], causal=[False, True]),
        *shapes(queries=[65], keys=[97], width=[40], dtype=DTYPES, causal=[True]),
        *shapes(queries=[70], keys=[20], width=[32], dtype=[torch.float16], causal=[True]),
        *shapes(queries=[16, 20], keys=[40], width=[1, 3], dtype=[torch.float16]),
        *shapes(queries=[17], keys=[35], width=[128, 192], dtype=[torch.float16, torch.bfloat16]),
        *shapes(queries=[17], keys=[35], width=[100, 256], dtype=[torch.float32]),
        *shapes(1, 6, 2, queries=[9], keys=[34], width=[24], dtype=DTYPES, causal=[True]),
        # More tiles than the smallest grid has programs, which then take several.
        *shapes(2, 4, 4, queries=[20], keys=[20], width=[16], dtype=[torch.float32], causal=[True]),
        *shapes(queries=[90], keys=[100], width=[16], dtype=[torch.float16], window=WINDOWS),
        *shapes(queries=[70], keys=[70], width=[16], dtype=[torch.float32], window=[(50, 10)], causal=[True]),
        *shapes(3, queries=[20], keys=[45], width=[16], dtype=DTYPES, padded=[True]),
        *shapes(2, queries=[40], keys=[40], width=[16], dtype=[torch.float32], **HIDDEN, window=[(9, None)]),
        *shapes(2, 2, queries=[20], keys=[37], width=[16], dtype=DTYPES, dropout=[0.25]),
        *shapes(1, 2, queries=[33], keys=[24], width=[16], dtype=[torch.float32], spoilt=[True]),
        *shapes(queries=[20], keys=[37], width=[16], dtype=[torch.float16], low=[True]),
        *shapes(2, queries=[33], keys=[33], width=[16], dtype=[torch.float16], **HIDDEN, dropout=[0.9]),
        *shapes(2, 4, 2, queries=[33], keys=[37], width=[16], dtype=DTYPES, mask=["bool", "added-by-head"]),
        *shapes(1, 2, queries=[40], keys=[70], width=[16], dtype=DTYPES[:1], **LIMITED),
        *shapes(1, 2, queries=[40], keys=[64], width=[16], dtype=[torch.float32], window=[(9, 20)], dropout=[0.25]),
        *shapes(2, 2, 2, queries=[20], keys=[48], width=[16], **BY_HEAD),
        *shapes(2, 2, 2, queries=[20], keys=[37], width=[16], **BY_HEAD, window=[(9, 3)]),
        # More tiles than the smallest grid has programs, through pointers.
        *(case for each in FEATURES for case in shapes(3, 4, 2, queries=[9], keys=[37], width=[20], **each)),
        *shapes(queries=[0, 5], keys=[0, 7], width=[16], dtype=[torch.float16]),
        *shapes(batch=0, queries=[4], keys=[4], width=[16], dtype=[torch.bfloat16]),
        *shapes(heads=0, key_heads=0, queries=[4], keys=[4], width=[16], dtype=[torch.float32]),
    ),
    probe_cases=shapes(heads=2, queries=[33], keys=[24], width=[16, 20], dtype=DTYPES),
    accelerator_cases=(
        *several(causal=[False, True]),
        *several(window=[(60, 20)], dropout=[0.0, 0.25]),
        *several(mask=["bool-by-head", "added"]),
        *shapes(3, 3, 3, queries=[9], keys=[37], width=[20], dtype=DTYPES[2:], far=far(["q", "k", "v", "grad"], 1, 2)),
        *shapes(3, queries=[20], keys=[45], width=[16], dtype=DTYPES[2:], padded=[True], far=["mask:0", "mask:1"]),
        *shapes(3, 3, 3, queries=[9], keys=[37], width=[20], **BY_HEAD, far=["mask:0", "mask:2", "mask:3"]),
        # What performance launches and no case above does: whole blocks of keys and of queries.
        *shapes(queries=[256], keys=[128], width=[128], dtype=DTYPES[1:]),
        *shapes(1, 2, 1, queries=[256], keys=[256], width=[128], dtype=DTYPES[2:], causal=[True]),
        *shapes(1, 2, 1, queries=[256], keys=[256], width=[128], dtype=DTYPES[2:], causal=[True], window=[(99, None)]),
        *shapes(queries=[256], keys=[256], width=[64], dtype=DTYPES[2:]),
        *shapes(queries=[384], keys=[384], width=[64, 256], dtype=DTYPES[2:], causal=[True]),
        *shapes(2, 4, 2, queries=[256], keys=[128], width=[64], dtype=DTYPES[2:], mask=["bool-by-head", "added"]),
    ),
    values=("normal", "zeros", "ones", "tiny", "subnormal"),
    reduces=lambda keys, queries, width, **others: max(keys, queries, width, 1),
    uses_dot=True,
    rejects=(
        ("out of another shape", wrong(out=lambda out: out[:, :2])),
        ("grad of another shape", wrong(grad=lambda grad: grad[:, :, :7])),
        ("sums of another shape", wrong(sums=lambda sums: sums[:, :, :7])),
        ("sums of another dtype", wrong(sums=lambda sums: sums.half())),
        ("grad of another dtype", wrong(grad=lambda grad: grad.half())),
        ("grad that is no tensor", wrong(grad=1.0)),
        ("k and v of two lengths", wrong(v=lambda v: v[:, :, :7])),
        ("a mask of numbers", wrong(mask=0.0)),
        ("a window of one number", wrong(window=(3,))),
        ("a scale below 0", wrong(scale=-0.5)),
        ("everything dropped", wrong(dropout=1.0)),
        ("a seed below 0", wrong(seed=-1)),
    ),
)
if __name__ == "__main__":
    perfci.main(accuracy)
