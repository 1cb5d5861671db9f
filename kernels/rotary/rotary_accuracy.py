"""Accuracy of rotary: both layouts, heads grouped and not, widths that are no powers of two, partly rotated heads."""

import perfci
import torch
from rotary_baseline import make_inputs, rotary as reference
from rotary_triton import rotary as kernel

from _views import FAR, far, spread, with_far

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
BOTH = [False, True]


def inputs(apart=0, rows_apart=0, transposed=False, **case):
    """As in the baseline; elements between neighbours of a head, or between tokens; or tokens behind heads."""
    made = make_inputs(**case)
    for axis, step in ((-1, apart), (1, rows_apart)):
        made |= {name: spread(made[name], axis, step) for name in ("q", "k") if step}
    if transposed:
        made |= {name: made[name].transpose(1, 2).contiguous().transpose(1, 2) for name in ("q", "k")}
    return made


def grid(heads, width, rotated=None, interleaved=BOTH, dtype=DTYPES[2:], batch=2, tokens=5, **others):
    """Cases of one shape; `heads` of q and of k."""
    shape = {"heads": heads[:1], "key_heads": heads[1:], "width": [width], "rotated": [rotated or width]}
    return perfci.grid(batch=[batch], tokens=[tokens], **shape, interleaved=interleaved, dtype=dtype, **others)


def tensors(device, q=(1, 3, 4, 16), k=(1, 3, 2, 16), cos=(3, 8), sin=(3, 8), **others):
    shapes = {"q": q, "k": k, "cos": cos, "sin": sin}
    return {name: torch.zeros(shape, device=device) for name, shape in shapes.items()} | others


def half(device, *shape):
    return torch.zeros(shape, device=device, dtype=torch.float16)


accuracy = perfci.Accuracy(
    kernel=kernel,
    reference=reference,
    make_inputs=with_far(inputs),
    cases=(
        *grid((32, 8), 128, tokens=2, batch=1, dtype=DTYPES),
        *grid((8, 2), 64, rotated=24, dtype=DTYPES[1:2]),
        *grid((3, 1), 80, table=[torch.float32]),
        *grid((5, 5), 2, tokens=7, dtype=DTYPES[:1]),
        *grid((1, 3), 7, rotated=6, batch=1, dtype=DTYPES[1:2]),
        *grid((71, 8), 128, batch=1, tokens=1, interleaved=BOTH[:1]),
        *grid((32, 32), 80, rotated=32, batch=1, tokens=2, interleaved=BOTH[:1], dtype=DTYPES[1:2]),
        *grid((16, 16), 256, rotated=64, tokens=1, interleaved=BOTH[1:], dtype=DTYPES[1:2]),
        *grid((2, 2), 16, tokens=1, batch=3, interleaved=BOTH[:1], transposed=[True]),
        *grid((2, 1), 16, batch=3, transposed=[True]),
        *grid((2, 1), 16, tokens=0, interleaved=BOTH[:1]),
        *grid((4, 0), 16, interleaved=BOTH[:1]),
    ),
    probe_cases=(
        *grid((3, 2), 24, tokens=2, dtype=DTYPES),
        *grid((3, 2), 24, tokens=2, rotated=10, dtype=DTYPES[:1]),
    ),
    accelerator_cases=(
        *grid((2, 1), 264, tokens=3, batch=1, apart=[FAR]),
        *grid((2, 1), 64, tokens=5, batch=1, rows_apart=[2**30 + 8]),
        *grid((5, 3), 24, rotated=10, tokens=3, batch=3, far=[*far("qk", 0, 2), *far(["cos", "sin"], 0, 1)]),
    ),
    # Not large ones: the sign of an infinity that two products make depends on which of them is rounded.
    values=("normal", "zeros", "ones", "tiny", "subnormal", "nan", "inf", "cancellation"),
    # Past 2^31 and 2^32 elements, 32-bit indexes become negative, or wrap around.
    large_cases=grid((33, 1), 128, batch=2**20 + 5, tokens=1, interleaved=BOTH[:1]),
    rejects=(
        ("q and k of other widths", lambda device: tensors(device, k=(1, 3, 2, 8))),
        ("q and k of other lengths", lambda device: tensors(device, k=(1, 4, 2, 16))),
        ("q with three sides", lambda device: tensors(device, q=(3, 4, 16))),
        ("a k of another dtype", lambda device: tensors(device) | {"k": half(device, 1, 3, 2, 16)}),
        ("tables of two dtypes", lambda device: tensors(device) | {"sin": half(device, 3, 8)}),
        ("tables of two shapes", lambda device: tensors(device, sin=(3, 4))),
        ("tables with fewer positions than tokens", lambda device: tensors(device, cos=(2, 8), sin=(2, 8))),
        ("tables wider than half a head", lambda device: tensors(device, cos=(3, 9), sin=(3, 9))),
        ("tables without pairs", lambda device: tensors(device, cos=(3, 0), sin=(3, 0))),
        ("q of integers", lambda device: tensors(device) | {"q": half(device, 1, 3, 4, 16).int()}),
    ),
)
if __name__ == "__main__":
    perfci.main(accuracy)
