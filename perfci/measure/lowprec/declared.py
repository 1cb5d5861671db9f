"""What an op says that it stores in low precision, called once a case and held to what it must be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from perfci.core.model import AccuracyCase, Fact, Reason, StoredTensor
from perfci.device.seam import Accelerator, Arrays
from perfci.measure.lowprec.formats import FORMATS
from perfci.measure.lowprec.storage import Held, figures
from perfci.ops.spec import STORED, Accuracy, Params, Quantised, Stored, case_id, matches, stored_id

SEED = 0
"""Of every run, so that the figures move with code and versions alone."""

Describe = Callable[[BaseException], Mapping[str, Fact]]

_RESERVED = frozenset(",= \t\n")
"""What would make an id ambiguous."""

_PARTS = ("original", "values", "scale")


def stored_tensors(
    suite: Accuracy, device: Accelerator, pattern: str | None, describe: Describe
) -> Iterator[StoredTensor | AccuracyCase]:
    """Every tensor that the op declares, in every case that fits the --case pattern.

    What is not as it must be becomes a failed check of that tensor's id: raised where the declaration is at fault,
    else wrong, such as a scale of NaN. Nothing where the op declares nothing.
    """
    if suite.quantised is not None:
        for params in suite.quantised.cases:
            yield from _of_case(suite.quantised, params, device, pattern, describe)


def planned(suite: Accuracy, pattern: str | None) -> tuple[str, ...]:
    """Ids of the cases that may fit the --case pattern, with * for the tensors' names."""
    cases = suite.quantised.cases if suite.quantised else ()
    return tuple(stored_id("*", params) for params in cases if _may_match(params, pattern))


def _of_case(
    quantised: Quantised, params: Params, device: Accelerator, pattern: str | None, describe: Describe
) -> Iterator[StoredTensor | AccuracyCase]:
    if not _may_match(params, pattern):
        return
    unnamed = stored_id("*", params)
    try:
        first, again = (quantised.store(**params, device=device.arrays.device, seed=SEED) for _ in range(2))
    except Exception as error:
        yield _failed(unnamed, Reason("stored_raised", {"case": unnamed, **describe(error)}))
        return
    if not isinstance(first, Mapping) or not first:
        yield _failed(unnamed, Reason("stored_nothing", {"case": unnamed, "got": type(first).__name__}))
        return
    for name, stored in first.items():
        if matches(stored_id(str(name), params), pattern):
            other = again.get(name) if isinstance(again, Mapping) else None
            yield _one(quantised, params, name, stored, other, device.arrays)


def _may_match(params: Params, pattern: str | None) -> bool:
    """Whether some tensor of the case may fit: how they are called is known once they are made only."""
    if pattern is None:
        return True
    parts = pattern.split(",")
    named = [part.partition("=")[2] for part in parts if part.startswith(f"{STORED}=")]
    rest = ",".join(part for part in parts if not part.startswith(f"{STORED}="))
    return bool(rest == "" and named) or matches(stored_id("*", params), pattern) or matches(case_id(params), rest)


def _one(
    quantised: Quantised, params: Params, name: Any, stored: Any, again: Any, arrays: Arrays
) -> StoredTensor | AccuracyCase:
    case = stored_id(str(name), params)
    misfit = _misfit(case, name, stored, arrays) or _unlike(case, stored, again, arrays)
    if misfit:
        return _failed(case, misfit)
    held = _held(stored, arrays)
    if unsound := _undeclared(case, held) or _unquantised(case, held):
        return _failed(case, unsound, raised=unsound.kind in _DECLARED)
    family = {key: value for key, value in params.items() if key not in quantised.ways}
    return StoredTensor(
        case=case,
        tensor=str(name),
        mode=str(params.get(quantised.mode, "-")),
        dtype=_format_name(stored, arrays),
        family=stored_id(str(name), family),
        seed=SEED,
        scale_bytes=arrays.nbytes(stored.scale),
        **vars(figures(held)),
    )


# --- what is declared -------------------------------------------------------------------------------------------------


def _misfit(case: str, name: Any, stored: Any, arrays: Arrays) -> Reason | None:
    """What of the declaration is not as it must be."""
    if not isinstance(name, str) or not name or _RESERVED & set(name):
        return Reason("stored_name", {"case": case, "name": repr(name)})
    if not isinstance(stored, Stored):
        return Reason("stored_type", {"case": case, "name": name, "got": type(stored).__name__})
    for part in _PARTS:
        if not arrays.is_array(getattr(stored, part)):
            return Reason("stored_part", {"case": case, "part": part, "got": type(getattr(stored, part)).__name__})
    original, values, scale = (arrays.facts(getattr(stored, part)) for part in _PARTS)
    if original.shape != values.shape:
        return Reason("stored_shape", {"case": case, "original": str(original.shape), "values": str(values.shape)})
    if 0 in original.shape:
        return Reason("stored_empty", {"case": case, "shape": str(original.shape)})
    return _dtypes(case, stored, arrays) or _grouping(case, stored.group, values.shape, scale.shape)


def _dtypes(case: str, stored: Stored, arrays: Arrays) -> Reason | None:
    name, original = _format_name(stored, arrays), arrays.facts(stored.original).dtype
    if name not in FORMATS:
        return Reason("stored_wide", {"case": case, "dtype": name, "known": ", ".join(FORMATS)})
    if original in FORMATS or arrays.dtype_facts(stored.original) is None:
        return Reason("stored_original", {"case": case, "dtype": original})
    if arrays.dtype_facts(stored.scale) is None:
        return Reason("stored_scale_dtype", {"case": case, "dtype": arrays.facts(stored.scale).dtype})
    return None


def _grouping(case: str, group: Any, shape: tuple[int, ...], scale: tuple[int, ...]) -> Reason | None:
    facts: dict[str, Fact] = {"case": case, "shape": str(shape), "scale": str(scale)}
    if group is not None and not _widths(group, len(shape)):
        return Reason("stored_group", {**facts, "group": str(group), "axes": len(shape)})
    if group is None and any(side != 1 for side in scale):
        if len(scale) != len(shape):
            return Reason("stored_scale_axes", {**facts, "axes": len(shape)})
        unsaid = any(side not in {1, length} for side, length in zip(scale, shape, strict=True))
        return Reason("stored_group_unsaid", facts) if unsaid else None
    if group is not None:
        needed = tuple(-(-length // width) for length, width in zip(shape, group, strict=True))
        if scale != needed and not (set(scale) <= {1} and set(needed) <= {1}):
            return Reason("stored_scale_shape", {**facts, "group": str(tuple(group)), "needed": str(needed)})
    return None


def _widths(group: Any, axes: int) -> bool:
    """Whether it is one width an axis."""
    known = isinstance(group, Sequence) and not isinstance(group, str) and len(group) == axes
    return known and all(isinstance(width, int) and not isinstance(width, bool) and width >= 1 for width in group)


def _unlike(case: str, stored: Stored, again: Any, arrays: Arrays) -> Reason | None:
    """A second call with the same seed must give the same."""
    same = isinstance(again, Stored) and all(
        arrays.is_array(getattr(again, part)) and arrays.same_bits(getattr(stored, part), getattr(again, part))
        for part in _PARTS
    )
    return None if same else Reason("stored_differs", {"case": case, "seed": SEED})


def _undeclared(case: str, held: Held) -> Reason | None:
    """What of the numbers the declaration is at fault for."""
    if not np.isfinite(held.original).any():
        return Reason("stored_not_finite", {"case": case, "count": int(held.original.size)})
    unheld = held.form.unheld(held.values)
    return Reason("stored_unheld", {"case": case, "count": unheld, "size": int(held.values.size)}) if unheld else None


_DECLARED = frozenset({"stored_not_finite", "stored_unheld"})


def _unquantised(case: str, held: Held) -> Reason | None:
    """What of the numbers the op's own quantisation is at fault for."""
    bad = ~(np.isfinite(held.scale) & (held.scale > 0))
    if bad.any():
        first = f"{float(held.scale[bad].ravel()[0]):g}"
        facts: dict[str, Fact] = {"count": int(bad.sum()), "groups": int(held.scale.size), "got": first}
        return Reason("stored_scale_value", {"case": case, **facts})
    broken = np.isfinite(held.original) & ~np.isfinite(held.values)
    if broken.any():
        return Reason("stored_overflowed", {"case": case, "count": int(broken.sum()), "size": int(held.values.size)})
    return None


# --- on the host ------------------------------------------------------------------------------------------------------


def _held(stored: Stored, arrays: Arrays) -> Held:
    original, values, scale = (arrays.host(getattr(stored, part)) for part in _PARTS)
    form = FORMATS[_format_name(stored, arrays)]
    return Held(original, values.astype(np.float64), scale, _group(stored, values.shape, scale), form)


def _group(stored: Stored, shape: tuple[int, ...], scale: np.ndarray[Any, Any]) -> tuple[int, ...]:
    if scale.size == 1:
        return shape
    if stored.group is not None:
        return tuple(stored.group)
    return tuple(1 if side == length else length for side, length in zip(scale.shape, shape, strict=True))


def _format_name(stored: Stored, arrays: Arrays) -> str:
    return stored.dtype or arrays.facts(stored.values).dtype


def _failed(case: str, reason: Reason, *, raised: bool = True) -> AccuracyCase:
    return AccuracyCase(case, "normal", "contiguous", SEED, failure=reason, raised=raised)
