"""Accuracy of cross_entropy: vocabularies around powers of two and beyond one tile, reductions, smoothing."""

import perfci
import torch
from cross_entropy_baseline import cross_entropy, make_inputs
from cross_entropy_triton import cross_entropy as kernel

from _views import with_far

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
REDUCTIONS = ["none", "mean", "sum"]
LONG = 20011
"""Classes; more than one tile of any device, and a prime: only the first row begins at a whole vector."""


def cases(rows, cols, reduction, smoothing, ignored=(0.2,), dtype=(torch.float32,)):
    return perfci.grid(
        rows=rows, cols=cols, reduction=reduction, smoothing=smoothing, ignored=ignored, dtype=dtype
    )  # fmt: skip


def reference(x, target, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    """By the op's definition: NaN for a target that is no class; PyTorch stops the device there."""
    strays = ((target < 0) | (target >= x.shape[-1])) & (target != ignore_index)
    loss = cross_entropy(x, target.masked_fill(strays, 0), ignore_index, reduction, label_smoothing)
    return loss.masked_fill(strays if loss.ndim else strays.any(), float("nan"))


def inputs(strays=False, lifted=0.0, hidden=0, **case):
    """As in the baseline; `strays` puts targets just outside the classes, and far.

    `lifted` is added to all logits; the first `hidden` ones, which are no row's target, are -inf.
    """
    made = make_inputs(**case)
    made["x"] += lifted
    made["x"][..., :hidden] = -torch.inf
    made["target"].clamp_(min=hidden)
    if strays:
        cols, target = case["cols"], made["target"]
        for place, label in enumerate((-1, cols, -cols, 2 * cols)):
            target[place + 1 :: 6] = label
    return made


def strays(**lists):
    return [{**case, "strays": True} for case in cases(reduction=["none"], ignored=[0.2], **lists)]


def tensors(device, x_shape, target_shape, dtype=torch.int64, **options):
    x, target = torch.zeros(x_shape, device=device), torch.zeros(target_shape, dtype=dtype, device=device)
    return {"x": x, "target": target, **options}


accuracy = perfci.Accuracy(
    kernel=kernel,
    reference=reference,
    make_inputs=with_far(inputs),
    cases=(
        *cases(rows=[13], cols=[1, 1023, 1024, 1025], reduction=["none"], smoothing=[0.0], ignored=[0.0]),
        *cases(rows=[131], cols=[61], reduction=REDUCTIONS, smoothing=[0.0, 0.1]),
        *cases(rows=[131], cols=[61], reduction=["none"], smoothing=[0.1], dtype=[torch.float16, torch.bfloat16]),
        *cases(rows=[397], cols=[61], reduction=["none"], smoothing=[0.1], dtype=[torch.float16]),
        *cases(rows=[3], cols=[LONG, 20483], reduction=["none", "mean"], smoothing=[0.1]),
        # The fourth row begins one element behind a whole vector.
        *cases(rows=[5], cols=[LONG], reduction=["none"], smoothing=[0.1], ignored=[0.0], dtype=DTYPES),
        # Far above and below 0: what is beyond a row's end must not count as its maximum.
        *({**case, "lifted": 1e5} for case in cases([3], [100, LONG], ["none"], [0.5])),
        *({**case, "lifted": -1e5} for case in cases([1, 3], [100, LONG], ["none"], [0.0], [0.0])),
        *({**case, "hidden": 1} for case in cases([3], [100, LONG], ["none"], [0.0])),
        *cases(rows=[3], cols=[LONG], reduction=["none"], smoothing=[0.0], dtype=[torch.float16, torch.bfloat16]),
        *cases(rows=[1, ()], cols=[LONG], reduction=["none", "sum"], smoothing=[0.1], ignored=[0.0]),
        *cases(rows=[()], cols=[100], reduction=["mean"], smoothing=[0.0, 1.0], ignored=[0.0], dtype=[torch.bfloat16]),
        *cases(rows=[7], cols=[3], reduction=REDUCTIONS, smoothing=[0.0], ignored=[1.0], dtype=[torch.float16]),
        *cases(rows=[0], cols=[64], reduction=REDUCTIONS, smoothing=[0.0], dtype=[torch.bfloat16]),
        *strays(rows=[131], cols=[61], smoothing=[0.0, 0.1]),
        *strays(rows=[7], cols=[LONG], smoothing=[0.1]),
    ),
    probe_cases=(
        *cases(rows=[33], cols=[100], reduction=["none"], smoothing=[0.1], dtype=DTYPES),
        # Smoothing makes infinities of large logits, whose other losses are what shows that a maximum was taken off.
        *cases(rows=[33], cols=[60], reduction=["none"], smoothing=[0.0], dtype=DTYPES[1:2]),
        *cases(rows=[2], cols=[LONG], reduction=["none"], smoothing=[0.0], ignored=[0.0]),
    ),
    accelerator_cases=(
        # What performance launches and no case above does.
        *cases(rows=[2120], cols=[1000], reduction=["mean"], smoothing=[0.1]),
        *cases(rows=[4232], cols=[1000], reduction=["mean"], smoothing=[0.0], dtype=DTYPES[1:2]),
        *cases(rows=[529], cols=[16385], reduction=["mean"], smoothing=[0.0, 0.1], dtype=DTYPES[2:]),
        *cases(rows=[133], cols=[16385], reduction=["none"], smoothing=[0.0], dtype=DTYPES[2:]),
        *cases(rows=[1057], cols=[8193], reduction=["mean"], smoothing=[0.0]),
        *cases(rows=[16], cols=[128256], reduction=["none"], smoothing=[0.0]),
        *cases(rows=[133], cols=[LONG], reduction=["none", "mean"], smoothing=[0.1]),
        # Places that take more than 32 bits, of few elements: short rows, long ones, and those that programs share.
        *({**case, "far": "x:0"} for case in cases([133], [100, LONG], ["none"], [0.1], dtype=DTYPES[2:])),
        *({**case, "far": "x:1"} for case in cases([5], [100, LONG], ["none"], [0.1], dtype=DTYPES[2:])),
        *({**case, "far": "x:1"} for case in cases([133], [LONG], ["none"], [0.1], dtype=DTYPES[2:])),
        *({**case, "far": "x:0"} for case in cases([3], [LONG], ["none"], [0.1], dtype=DTYPES[2:])),
    ),
    rejects=(
        ("target of another length", lambda device: tensors(device, (4, 8), 3)),
        ("target of int32", lambda device: tensors(device, (4, 8), 4, dtype=torch.int32)),
        ("target that is no tensor", lambda device: {"x": torch.zeros(8, device=device), "target": 3}),
        ("x with classes in the middle", lambda device: tensors(device, (4, 8, 3), (4, 3))),
        ("x without a class", lambda device: tensors(device, (4, 0), 4)),
        ("x of integers", lambda device: {**tensors(device, (4, 8), 4), "x": torch.zeros(4, 8).long().to(device)}),
        ("a reduction that does not exist", lambda device: tensors(device, (4, 8), 4, reduction="max")),
        ("a smoothing above 1", lambda device: tensors(device, (4, 8), 4, label_smoothing=1.5)),
    ),
)
if __name__ == "__main__":
    perfci.main(accuracy)
