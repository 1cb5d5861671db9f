"""An op's declaration of what it stores in low precision: called for each case and checked."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from perfci.core.model import AccuracyCase, Fact, Reason, StoredTensor
from perfci.device.arrays import Arrays
from perfci.device.seam import Accelerator
from perfci.extensions.lowprec.figures import FORMATS, HostTensor, measure_figures
from perfci.measure.bench import Describe
from perfci.ops.spec import STORED, Accuracy, Params, Quantised, Stored, case_id, matches, stored_id

SEED = 0  # the same in every run, so that figures move with code and versions only

_RESERVED = frozenset(",= \t\n")  # characters that would make an id ambiguous

_PARTS = ("original", "values", "scale")


def list_stored_cases(suite: Accuracy, pattern: str | None) -> tuple[str, ...]:
    """Returns ids of the cases that may fit the --case pattern, with * for the tensors' names."""
    cases = suite.quantised.cases if suite.quantised else ()
    return tuple(stored_id("*", params) for params in cases if _may_match(params, pattern))


def check_stored_tensors(
    suite: Accuracy, device: Accelerator, pattern: str | None, describe: Describe
) -> Iterator[StoredTensor | AccuracyCase]:
    """Yields every tensor that the op declares, in cases that fit the pattern. A fault becomes a failed check."""
    for params in suite.quantised.cases if suite.quantised else ():
        if suite.quantised and _may_match(params, pattern):
            yield from _check_case(suite.quantised, params, device.arrays, pattern, describe)


def _may_match(params: Params, pattern: str | None) -> bool:
    """Whether some tensor of the case may fit: their names are known only once they are made."""
    if pattern is None:
        return True
    parts = pattern.split(",")
    has_name = any(part.startswith(f"{STORED}=") and part != f"{STORED}=" for part in parts)
    rest = ",".join(part for part in parts if not part.startswith(f"{STORED}="))
    return (not rest and has_name) or matches(stored_id("*", params), pattern) or matches(case_id(params), rest)


def _check_case(
    quantised: Quantised, params: Params, arrays: Arrays, pattern: str | None, describe: Describe
) -> Iterator[StoredTensor | AccuracyCase]:
    def fail(case: str, kind: str, facts: Mapping[str, Fact], *, raised: bool = True) -> AccuracyCase:
        reason = Reason(kind, {"case": case, **facts})
        return AccuracyCase(case, "normal", "contiguous", SEED, failure=reason, raised=raised)

    unnamed = stored_id("*", params)
    try:
        first, again = (quantised.store(**params, device=arrays.device, seed=SEED) for _ in range(2))
    except Exception as error:
        yield fail(unnamed, "stored_raised", describe(error))
        return
    if not isinstance(first, Mapping) or not first:
        yield fail(unnamed, "stored_nothing", {"got": type(first).__name__})
        return
    for name, stored in first.items():
        case = stored_id(str(name), params)
        if not matches(case, pattern):
            continue
        other = again.get(name) if isinstance(again, Mapping) else None
        if fault := next(_find_faults(name, stored, other, arrays), None):
            yield fail(case, *fault)
            continue
        original, values, scale = (arrays.host(getattr(stored, part)) for part in _PARTS)
        dtype, group = _name_format(stored, arrays), _find_group(stored.group, values.shape, scale.shape)
        tensor = HostTensor(original, values.astype(np.float64), scale, group or (), FORMATS[dtype])
        if fault := next(_find_wrong_numbers(tensor), None):
            yield fail(case, *fault, raised=fault[0] in _DECLARED_WRONG)
            continue
        family = {key: value for key, value in params.items() if key not in quantised.ways}
        yield StoredTensor(
            case=case, tensor=name, mode=str(params.get(quantised.mode, "-")), dtype=dtype,
            family=stored_id(name, family), seed=SEED, scale_bytes=arrays.nbytes(stored.scale),
            **measure_figures(tensor),
        )  # fmt: skip


Fault = tuple[str, dict[str, Fact]]  # kind and facts of a reason


def _find_faults(name: Any, stored: Any, again: Any, arrays: Arrays) -> Iterator[Fault]:
    """Yields what of the declaration's form is not as it must be. Only the first is of interest."""
    if not isinstance(name, str) or not name or _RESERVED & set(name):
        yield "stored_name", {"name": repr(name)}
    if not isinstance(stored, Stored):
        yield "stored_type", {"part": name, "got": type(stored).__name__}
    for part in _PARTS:
        if not arrays.is_array(getattr(stored, part)):
            yield "stored_type", {"part": part, "got": type(getattr(stored, part)).__name__}
    original, values, scale = (arrays.facts(getattr(stored, part)) for part in _PARTS)
    if original.shape != values.shape or 0 in original.shape:
        yield "stored_shape", {"original": str(original.shape), "values": str(values.shape)}
    dtype = _name_format(stored, arrays)
    if dtype not in FORMATS:
        yield "stored_wide", {"dtype": dtype, "known": ", ".join(FORMATS)}
    if original.dtype in FORMATS or arrays.dtype_facts(stored.original) is None:
        yield "stored_dtype", {"part": "original", "dtype": original.dtype}
    if arrays.dtype_facts(stored.scale) is None:
        yield "stored_dtype", {"part": "scale", "dtype": scale.dtype}
    if _find_group(stored.group, values.shape, scale.shape) is None:
        shapes = {"shape": str(values.shape), "scale": str(scale.shape)}
        yield "stored_group", {**shapes, "group": str(stored.group)}
    parts = [(getattr(stored, part), getattr(again, part, None)) for part in _PARTS]
    if not all(arrays.is_array(other) and arrays.same_bits(one, other) for one, other in parts):
        yield "stored_differs", {"seed": SEED}


def _name_format(stored: Stored, arrays: Arrays) -> str:
    return stored.dtype or arrays.facts(stored.values).dtype


def _find_group(group: Any, shape: tuple[int, ...], scale: tuple[int, ...]) -> tuple[int, ...] | None:
    """Returns how many values share a scale, by axis. None if that is not clear."""
    single = set(scale) <= {1}
    if group is None:
        whole = len(scale) == len(shape) and all(side in {1, full} for side, full in zip(scale, shape, strict=True))
        if not whole and not single:
            return None
        return shape if single else tuple(full // side for side, full in zip(scale, shape, strict=True))
    if not isinstance(group, Sequence) or isinstance(group, str) or len(group) != len(shape):
        return None
    if not all(isinstance(width, int) and not isinstance(width, bool) and width >= 1 for width in group):
        return None
    needed = tuple(-(-length // width) for length, width in zip(shape, group, strict=True))
    if single and set(needed) <= {1}:
        return shape
    return tuple(group) if scale == needed else None


_DECLARED_WRONG = frozenset({"stored_not_finite", "stored_unheld"})
"""Wrong numbers for which the declaration is at fault, not the quantisation."""


def _find_wrong_numbers(tensor: HostTensor) -> Iterator[Fault]:
    """Yields what is wrong with the numbers. Only the first is of interest."""
    size = int(tensor.values.size)
    if not np.isfinite(tensor.original).any():
        yield "stored_not_finite", {"count": size}
    if count := tensor.form.count_foreign(tensor.values):
        yield "stored_unheld", {"count": count, "size": size}
    bad = tensor.scale[~(np.isfinite(tensor.scale) & (tensor.scale > 0))]
    if bad.size:
        yield "stored_scale_value", {"count": bad.size, "groups": int(tensor.scale.size), "got": f"{float(bad[0]):g}"}
    broken = np.isfinite(tensor.original) & ~np.isfinite(tensor.values)
    if broken.any():
        yield "stored_overflowed", {"count": int(broken.sum()), "size": size}
