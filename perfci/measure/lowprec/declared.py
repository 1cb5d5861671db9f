"""An op's declaration of what it stores in low precision: called for each case and checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from perfci.core.model import AccuracyCase, Fact, Reason, StoredTensor
from perfci.device.seam import Accelerator, Arrays
from perfci.measure.lowprec.storage import FORMATS, HostTensor, figures
from perfci.ops.spec import STORED, Accuracy, Params, Quantised, Stored, case_id, matches, stored_id

SEED = 0
"""The same in every run, so that figures move with code and versions only."""

Describe = Callable[[BaseException], Mapping[str, Fact]]

_RESERVED = frozenset(",= \t\n")
"""Characters that would make an id ambiguous."""

_PARTS = ("original", "values", "scale")


def list_stored_cases(suite: Accuracy, pattern: str | None) -> tuple[str, ...]:
    """Returns ids of the cases that may fit the --case pattern, with * for the tensors' names."""
    cases = suite.quantised.cases if suite.quantised else ()
    return tuple(stored_id("*", params) for params in cases if _may_match(params, pattern))


def check_stored_tensors(
    suite: Accuracy, device: Accelerator, pattern: str | None, describe: Describe
) -> Iterator[StoredTensor | AccuracyCase]:
    """Yields every tensor that the op declares, in every case that fits the --case pattern.

    A fault becomes a failed check with that tensor's id. It counts as raised if the declaration is at fault, else as
    wrong, such as a scale of NaN.
    """
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
    unnamed = stored_id("*", params)
    try:
        first, again = (quantised.store(**params, device=arrays.device, seed=SEED) for _ in range(2))
    except Exception as error:
        yield _fail(unnamed, Reason("stored_raised", {"case": unnamed, **describe(error)}))
        return
    if not isinstance(first, Mapping) or not first:
        yield _fail(unnamed, Reason("stored_nothing", {"case": unnamed, "got": type(first).__name__}))
        return
    for name, stored in first.items():
        case = stored_id(str(name), params)
        if not matches(case, pattern):
            continue
        other = again.get(name) if isinstance(again, Mapping) else None
        if fault := next(_find_faults(case, name, stored, arrays), None) or _compare_calls(case, stored, other, arrays):
            yield _fail(case, fault)
            continue
        tensor = _copy_to_host(stored, arrays)
        if fault := _find_false_declaration(case, tensor):
            yield _fail(case, fault)
        elif fault := _find_bad_quantisation(case, tensor):
            yield _fail(case, fault, raised=False)
        else:
            family = {key: value for key, value in params.items() if key not in quantised.ways}
            yield StoredTensor(
                case=case,
                tensor=name,
                mode=str(params.get(quantised.mode, "-")),
                dtype=_name_format(stored, arrays),
                family=stored_id(name, family),
                seed=SEED,
                scale_bytes=arrays.nbytes(stored.scale),
                **vars(figures(tensor)),
            )


def _fail(case: str, reason: Reason, *, raised: bool = True) -> AccuracyCase:
    return AccuracyCase(case, "normal", "contiguous", SEED, failure=reason, raised=raised)


# --- the declaration --------------------------------------------------------------------------------------------------


def _find_faults(case: str, name: Any, stored: Any, arrays: Arrays) -> Iterator[Reason]:
    """Yields what of the declaration's form is not as it must be. Only the first is of interest."""
    if not isinstance(name, str) or not name or _RESERVED & set(name):
        yield Reason("stored_name", {"case": case, "name": repr(name)})
    if not isinstance(stored, Stored):
        yield Reason("stored_type", {"case": case, "part": name, "got": type(stored).__name__})
    for part in _PARTS:
        if not arrays.is_array(getattr(stored, part)):
            yield Reason("stored_type", {"case": case, "part": part, "got": type(getattr(stored, part)).__name__})
    original, values, scale = (arrays.facts(getattr(stored, part)) for part in _PARTS)
    if original.shape != values.shape or 0 in original.shape:
        yield Reason("stored_shape", {"case": case, "original": str(original.shape), "values": str(values.shape)})
    dtype = _name_format(stored, arrays)
    if dtype not in FORMATS:
        yield Reason("stored_wide", {"case": case, "dtype": dtype, "known": ", ".join(FORMATS)})
    if original.dtype in FORMATS or arrays.dtype_facts(stored.original) is None:
        yield Reason("stored_dtype", {"case": case, "part": "original", "dtype": original.dtype})
    if arrays.dtype_facts(stored.scale) is None:
        yield Reason("stored_dtype", {"case": case, "part": "scale", "dtype": scale.dtype})
    if not _is_grouped(stored.group, values.shape, scale.shape):
        facts: dict[str, Fact] = {"shape": str(values.shape), "scale": str(scale.shape), "group": str(stored.group)}
        yield Reason("stored_group", {"case": case, **facts})


def _is_grouped(group: Any, shape: tuple[int, ...], scale: tuple[int, ...]) -> bool:
    """Whether it is clear which values share a scale."""
    if group is None:
        whole = len(scale) == len(shape) and all(side in {1, full} for side, full in zip(scale, shape, strict=True))
        return whole or set(scale) <= {1}
    if not isinstance(group, Sequence) or isinstance(group, str) or len(group) != len(shape):
        return False
    if not all(isinstance(width, int) and not isinstance(width, bool) and width >= 1 for width in group):
        return False
    needed = tuple(-(-length // width) for length, width in zip(shape, group, strict=True))
    return scale == needed or (set(scale) <= {1} and set(needed) <= {1})


def _compare_calls(case: str, stored: Stored, again: Any, arrays: Arrays) -> Reason | None:
    """A second call with the same seed must give the same."""
    same = isinstance(again, Stored) and all(
        arrays.is_array(getattr(again, part)) and arrays.same_bits(getattr(stored, part), getattr(again, part))
        for part in _PARTS
    )
    return None if same else Reason("stored_differs", {"case": case, "seed": SEED})


# --- the numbers ------------------------------------------------------------------------------------------------------


def _name_format(stored: Stored, arrays: Arrays) -> str:
    return stored.dtype or arrays.facts(stored.values).dtype


def _copy_to_host(stored: Stored, arrays: Arrays) -> HostTensor:
    original, values, scale = (arrays.host(getattr(stored, part)) for part in _PARTS)
    if scale.size == 1:
        group = values.shape
    elif stored.group is not None:
        group = tuple(stored.group)
    else:
        group = tuple(1 if side == length else length for side, length in zip(scale.shape, values.shape, strict=True))
    return HostTensor(original, values.astype(np.float64), scale, group, FORMATS[_name_format(stored, arrays)])


def _find_false_declaration(case: str, tensor: HostTensor) -> Reason | None:
    if not np.isfinite(tensor.original).any():
        return Reason("stored_not_finite", {"case": case, "count": int(tensor.original.size)})
    count = tensor.form.count_foreign(tensor.values)
    return Reason("stored_unheld", {"case": case, "count": count, "size": int(tensor.values.size)}) if count else None


def _find_bad_quantisation(case: str, tensor: HostTensor) -> Reason | None:
    bad = ~(np.isfinite(tensor.scale) & (tensor.scale > 0))
    if bad.any():
        first = f"{float(tensor.scale[bad].ravel()[0]):g}"
        facts: dict[str, Fact] = {"count": int(bad.sum()), "groups": int(tensor.scale.size), "got": first}
        return Reason("stored_scale_value", {"case": case, **facts})
    broken = np.isfinite(tensor.original) & ~np.isfinite(tensor.values)
    if broken.any():
        facts = {"count": int(broken.sum()), "size": int(tensor.values.size)}
        return Reason("stored_overflowed", {"case": case, **facts})
    return None
