"""Accuracy of cross_entropy_backward: dense vocabularies of any size, few classes, reductions, smoothing, strays.

No `reduces`: an element depends on one logit and its row's numbers alone.
"""

import perfci
import torch
from cross_entropy_backward_baseline import cross_entropy_backward as reference, make_inputs
from cross_entropy_backward_triton import cross_entropy_backward as kernel

from _views import FAR, spread, with_far

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
REDUCTIONS = ["none", "mean", "sum"]
LONG = 5003
"""Classes; more than one tile of dense logits, and a prime: only the first row begins at a whole vector."""


def cases(rows, cols, reduction, smoothing=(0.1,), ignored=(0.2,), dtype=(torch.float32,), **others):
    return perfci.grid(
        rows=rows, cols=cols, reduction=reduction, smoothing=smoothing, ignored=ignored, dtype=dtype, **others
    )  # fmt: skip


def inputs(strays=False, lifted=0.0, apart=0, rows_apart=0, **case):
    """As in the baseline; `strays` puts targets just outside the classes, and far.

    `lifted` is added to all logits. Elements lie `apart` from their neighbours of a row, or rows `rows_apart`.
    """
    made = make_inputs(**case)
    made["x"] += lifted
    made["logsumexp"] = torch.logsumexp(made["x"].float(), -1)
    if strays:
        cols, target = case["cols"], made["target"]
        for place, label in enumerate((-1, cols, -cols, 2 * cols, 2**32 + 1)):
            target[place + 1 :: 6] = label
    for axis, step in ((-1, apart), (0, rows_apart)):
        made["x"] = spread(made["x"], axis, step) if step else made["x"]
    return made


def cut_rows(made, start, stop):
    """Inputs of so many rows, of a loss that is not reduced."""
    return {name: each[start:stop] if isinstance(each, torch.Tensor) else each for name, each in made.items()}


def wrong(**changes):
    """Returns a function of the device that makes inputs of which something is wrong."""

    def make(device):
        made = {name: torch.zeros(4, device=device) for name in ("grad", "logsumexp")}
        made |= {"x": torch.zeros(4, 8, device=device), "target": torch.zeros(4, dtype=torch.int64, device=device)}
        made["reduction"] = "none"
        return made | {name: change(made[name]) if callable(change) else change for name, change in changes.items()}

    return make


accuracy = perfci.Accuracy(
    kernel=kernel,
    reference=reference,
    make_inputs=with_far(inputs),
    cases=(
        *cases(rows=[13], cols=[1, 255, 256, 257, 1025], reduction=["none"], smoothing=[0.0], ignored=[0.0]),
        *cases(rows=[131], cols=[61], reduction=REDUCTIONS),
        *cases(rows=[131], cols=[61], reduction=["none"], smoothing=[0.0]),
        *cases(rows=[397], cols=[61], reduction=["mean"], dtype=[torch.float16]),
        # More targets than are counted at a time.
        *cases(rows=[5000], cols=[3], reduction=["mean"]),
        *cases(rows=[5], cols=[LONG], reduction=REDUCTIONS),
        *cases(rows=[5], cols=[LONG], reduction=["none"], dtype=DTYPES[1:]),
        *cases(rows=[7], cols=[2048, 4100], reduction=["none"], smoothing=[0.0], dtype=[torch.bfloat16]),
        # Means in the ways that models have them: rows of whole vectors.
        *cases(rows=[3], cols=[1000], reduction=["mean"], ignored=[0.0]),
        *cases(rows=[3], cols=[1000], reduction=["mean"], smoothing=[0.0], ignored=[0.0], dtype=[torch.float16]),
        *cases(rows=[2], cols=[4000], reduction=["mean"], smoothing=[0.0], ignored=[0.0], dtype=DTYPES[::2]),
        *cases(rows=[2], cols=[4008], reduction=["mean"], ignored=[0.0], dtype=[torch.bfloat16]),
        *cases(rows=[3], cols=[100, LONG], reduction=["none"], lifted=[1e5]),
        *cases(rows=[3], cols=[100], reduction=["none"], lifted=[-1e5]),
        *cases(rows=[1, ()], cols=[LONG], reduction=["none", "sum"], ignored=[0.0]),
        *cases(rows=[()], cols=[100], reduction=["mean"], smoothing=[1.0], ignored=[0.0], dtype=[torch.bfloat16]),
        *cases(rows=[7], cols=[3, LONG], reduction=["mean"], ignored=[1.0], dtype=[torch.float16]),
        *cases(rows=[0], cols=[64], reduction=["mean"], dtype=[torch.bfloat16]),
        *cases(rows=[131], cols=[61], reduction=["none"], strays=[True]),
        *cases(rows=[13], cols=[LONG], reduction=["none"], strays=[True]),
    ),
    probe_cases=(
        *cases(rows=[33], cols=[100], reduction=["none"], dtype=DTYPES),
        *cases(rows=[3], cols=[LONG], reduction=["none"]),
    ),
    # Elements of a row of n are of the size of 1 / n.
    tolerance={"float32": (1.3e-6, 1e-7), "float16": (1e-3, 1e-7), "bfloat16": (1.6e-2, 1e-7)},
    # Neither large nor opposite ones: of another x than its logsumexp is of, exponentials are beyond float32.
    values=("normal", "zeros", "ones", "tiny", "subnormal", "nan", "inf"),
    accelerator_cases=(
        # More programs that count than rows of a tile.
        *cases(rows=[50000], cols=[300], reduction=["mean"], rows_apart=[512]),
        *cases(rows=[5], cols=[261], reduction=["none"], dtype=[torch.bfloat16], apart=[FAR]),
        *cases(rows=[4096], cols=[1000], reduction=["mean"]),
        *cases(rows=[400], cols=[520], reduction=["mean"], smoothing=[0.0], dtype=[torch.bfloat16]),
        *cases(rows=[4100], cols=[2048], reduction=["mean"], smoothing=[0.0]),
        *cases(rows=[64], cols=[32000, 50257], reduction=["mean", "none"], dtype=[torch.bfloat16]),
        *cases(rows=[50000], cols=[61], reduction=["mean"], dtype=[torch.float16]),
        *cases(rows=[3], cols=[LONG], reduction=["none"], dtype=[torch.bfloat16], rows_apart=[2**30 + 8]),
        *cases(rows=[5], cols=[261], reduction=["none"], dtype=[torch.bfloat16], far=["grad:0", "logsumexp:0"]),
    ),
    # Past 2^31 and 2^32 elements, 32-bit indexes become negative, or wrap around.
    large_cases=cases(rows=[2**22 + 5], cols=[1025], reduction=["none"], dtype=[torch.bfloat16]),
    large_part=cut_rows,
    rejects=(
        ("target of another length", wrong(target=lambda target: target[:3])),
        ("target of int32", wrong(target=lambda target: target.int())),
        ("target that is no tensor", wrong(target=3)),
        ("logsumexp of another length", wrong(logsumexp=lambda each: each[:3])),
        ("logsumexp of another dtype", wrong(logsumexp=lambda each: each.half())),
        ("grad of rows for a sum", wrong(reduction="sum")),
        ("grad of another dtype", wrong(grad=lambda grad: grad.half())),
        ("x with classes in the middle", wrong(x=lambda x: x.view(4, 4, 2))),
        ("x without a class", wrong(x=lambda x: x[:, :0])),
        ("a reduction that does not exist", wrong(reduction="max")),
        ("a smoothing above 1", wrong(label_smoothing=1.5)),
    ),
)
if __name__ == "__main__":
    perfci.main(accuracy)
