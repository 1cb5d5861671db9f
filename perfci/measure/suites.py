"""An op's suites as of the base and of a change, compared as data: what got weaker, and what kind of change it is."""

import dataclasses
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from perfci.core.model import Fact, Reason, as_fact
from perfci.core.model.measured import REFERENCE
from perfci.core.units import name_some
from perfci.device.arrays import Arrays, Inputs
from perfci.device.seam import Accelerator
from perfci.device.source import stable
from perfci.measure.bench import Arm
from perfci.measure.closeness import excess, finiteness, tolerance
from perfci.measure.inputs import call_exact, call_fresh
from perfci.measure.prepare import warm_up
from perfci.measure.verify import FIXED_SEEDS, checks, list_probes, make_inputs
from perfci.ops.spec import Accuracy, Params, Performance, case_id

CALLS = (
    "reference",
    "make_inputs",
    "reduces",
    "tolerance",
    "tolerance_reason",
    "deterministic",
    "uses_dot",
    "mutates",
    "domain",
)
"""Fields that decide whether two accuracy suites make the same check of a case alike."""

FEWER = 0.9
"""Share of the base's distinct values below which inputs are weaker. Other draws of the same distribution have more."""

APART = math.sqrt(-math.log(1e-9 / 2) / 2)
"""Limit of the distance of two samples' distributions, times sqrt(n m / (n + m)), that one distribution passes once in
1e9 times (Smirnov 1948, asymptotic)"""

ORDERED = 0.1  # by how much the share of neighbours that ascend may differ. Of random numbers it is a half
MOST_VALUES = 1 << 20  # of an array that are compared

SLOWER = 1.1  # times as long as the base's a reference may take
MOST_BYTES = 1 << 26  # of a performance case with inputs that are made although nothing is timed

Suites = tuple[Accuracy, Performance]
_Suite = Accuracy | Performance


def describe_suite(suite: _Suite) -> Mapping[str, str]:
    """Returns each field as a text that is equal where the field means the same. Kernels are left out."""
    texts = {}
    for field in dataclasses.fields(suite):
        value = getattr(suite, field.name)
        if field.name.endswith("cases") and value is not None:
            value = list(map(case_id, value))
        if field.name not in {"kernel", "quantised", "peers", "backend"}:
            texts[field.name] = stable(value)
    return texts


def find_wrapped(kernel: Path, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Reason]:
    """Suites with another function as their kernel than users call, or with another wrapper of it than in the base.

    kernel: the file of what users call. before, after: the suites that have another function, each with its text.
    """
    for suite, text in after.items():
        if before.get(suite) != text:
            whole = f"{kernel.stem.rpartition('_')[0]} of {kernel.name}"
            was = "another function" if suite in before else whole
            facts: dict[str, Fact] = {"what": "kernel", "name": f"kernel ({suite})", "before": was}
            yield Reason("weaker_flag", {**facts, "after": text.partition("\n")[0]})


def find_weaker(before: Suites, after: Suites, device: Accelerator) -> Iterator[Reason]:
    """Questions that a change's suites weaken, letting later changes get away with more. Only make_inputs is called.

    before: the base's. after: the change's.
    """
    renamed = {old: new for new, old in after[1].renamed.items()}
    pairs: tuple[tuple[_Suite, _Suite], ...] = ((before[0], after[0]), (before[1], after[1]))
    for old, new in pairs:
        shared = {renamed.get(case, case): params for case, params in _list_all(old).items()}
        yield from _find_fewer(old, new, renamed, device.arrays)
        yield from _find_looser(old, new, shared)
        if describe_suite(old)["make_inputs"] != describe_suite(new)["make_inputs"]:
            yield from _find_poorer(old, new, shared, device)


def find_slower(
    before: Performance, after: Performance, inputs: Inputs, case: str, device: Accelerator
) -> Reason | None:
    """A reference that takes longer than the base's, so that the same kernel looks faster."""
    took = [warm_up(device, Arm(REFERENCE, suite.reference, inputs)) for suite in (before, after, before, after)]
    old, new = max(took[::2]), min(took[1::2])
    facts: dict[str, Fact] = {"what": "reference", "case": case, "before": old, "after": new}
    return Reason("weaker_reference", facts) if new > SLOWER * old else None


def find_other_answers(before: Accuracy, after: Accuracy, arrays: Arrays) -> Reason | None:
    """Whether the two references mean the same: the first answer of another form, else the one that is farthest off."""
    other_answers: Reason | None = None
    shared = {case_id(params) for params in after.cases} | {case_id(params) for params in after.probe_cases or ()}
    for check in checks(before, FIXED_SEEDS[0], None):
        if check.seed != FIXED_SEEDS[0] or check.case not in shared:
            continue
        inputs = make_inputs(before, arrays, check)
        try:
            given = arrays.copies(inputs), arrays.upcast(inputs)
            plain, exact = (
                [call(suite.reference, value, arrays, suite.mutates) for suite in (before, after)]
                for call, value in zip((call_fresh, call_exact), given, strict=True)
            )
        except Exception as error:
            return Reason("answers_raise", {"case": check.case, "error": f"{type(error).__name__}: {error}"})
        forms = [
            ", ".join(f"{arrays.facts(answer).dtype}{list(arrays.facts(answer).shape)}" for answer in answers)
            for answers in plain
        ]
        if forms[0] != forms[1]:
            return Reason("answers_formed", {"case": check.case, "before": forms[0], "after": forms[1]})
        for old, new, rounded in zip(*exact, plain[0], strict=True):
            left, right = arrays.host(old), arrays.host(new)
            if left.dtype.kind == "f":
                over = excess(right, left, *tolerance(arrays.facts(rounded).dtype, before.tolerance, 1))
                differ = (over > 0) | (finiteness(left) != finiteness(right))
            else:
                differ = left != right
            if differ.any() and other_answers is None:
                facts = {"case": check.case, "values": check.values, "count": int(differ.sum()), "size": differ.size}
                other_answers = Reason("answers_differ", facts)
    return other_answers


def _find_fewer(old: _Suite, new: _Suite, renamed: Mapping[str, str], arrays: Arrays) -> Iterator[Reason]:
    """Cases, values, layouts, refused inputs and probes that only the base has."""

    def ids(cases: Iterable[Params]) -> list[str]:
        return [renamed.get(case, case) for case in map(case_id, cases)]

    lists: list[tuple[str, Sequence[str], Sequence[str]]] = [
        (as_fact("cases"), ids(old.cases), list(map(case_id, new.cases)))
    ]
    if isinstance(old, Accuracy) and isinstance(new, Accuracy):
        stored = [ids(suite.quantised.cases if suite.quantised else ()) for suite in (old, new)]
        lists += [
            (as_fact("values"), old.values, new.values),
            (as_fact("layouts"), old.layouts, new.layouts),
            (as_fact("stored tensors"), stored[0], stored[1]),
            (as_fact("accelerator cases"), ids(old.accelerator_cases), ids((*new.accelerator_cases, *new.cases))),
            (as_fact("large cases"), ids(old.large_cases), ids(new.large_cases)),
        ]
        dtypes = [_list_probed(suite) for suite in (old, new)]
        lists.append((as_fact("probed dtypes"), dtypes[0], dtypes[1]))
        # Without a list the largest cases are probed, and those of the base may be no longer the largest.
        named = old.probe_cases is not None or new.probe_cases is not None
        if named and set(dtypes[0]) <= set(dtypes[1]):
            lists.append((as_fact("probes"), ids(list_probes(old, None)), ids(list_probes(new, None))))
        # One that was renamed makes the same inputs.
        made = [{name: _describe_inputs(make, arrays) for name, make in suite.rejects} for suite in (old, new)]
        kept = [name for name, text in made[0].items() if name in made[1] or text in made[1].values()]
        lists.append((as_fact("rejects"), list(made[0]), kept))
    for what, had, has in lists:
        gone = [lost for lost in had if lost not in has]
        if gone:
            names = name_some(gone)
            facts: dict[str, Fact] = {"what": what, "suite": _name(old), "count": len(gone), "of": len(had)}
            yield Reason("weaker_fewer", {**facts, "names": names})


def _list_probed(suite: Accuracy) -> list[str]:
    """Dtypes of the cases that get all values and layouts."""
    return list(dict.fromkeys(str(params.get("dtype")) for params in list_probes(suite, None)))


def _describe_inputs(make: Callable[[str], Inputs], arrays: Arrays) -> str:
    try:
        return ", ".join(
            f"{name}={arrays.facts(value) if arrays.is_array(value) else value!r}"
            for name, value in make(arrays.device).items()
        )
    except Exception as error:
        return f"raises {type(error).__name__}"


def _name(suite: _Suite) -> str:
    return as_fact("accuracy") if isinstance(suite, Accuracy) else as_fact("performance")


_LESS: Mapping[str, Callable[[Any, Any], bool]] = {
    **dict.fromkeys(("deterministic", "gradients", "graph", "idempotent"), lambda was, now: bool(was and not now)),
    **dict.fromkeys(("invariant", "permutes"), lambda was, now: not set(was or ()) <= set(now or ())),
    "uses_dot": lambda was, now: bool(now and not was),
    "cache": lambda was, now: (was, now) == ("cold", "warm"),
    "domain": lambda was, now: now[0] > was[0] or now[1] < was[1],
    "mutates": lambda was, now: not set(now) <= set(was),
}
"""Field of a suite -> whether it asks for less by its value before and now"""


def _read_flag(suite: _Suite, name: str) -> Any:
    """Returns a field of a suite in the form that can be compared."""
    value = getattr(suite, name, None)
    if name == "domain":
        least, most = value or (None, None)
        return -math.inf if least is None else least, math.inf if most is None else most
    return value or () if name == "mutates" else value


def _find_looser(old: _Suite, new: _Suite, shared: Mapping[str, Params]) -> Iterator[Reason]:
    """Larger tolerances, more bytes and operations, and flags without which a check is left out."""
    dtypes = {str(params["dtype"]).removeprefix("torch.") for params in old.cases if "dtype" in params}
    for dtype in sorted({*(old.tolerance or {}), *(new.tolerance or {}), *dtypes}):
        was, now = (tolerance(dtype, suite.tolerance, 1) for suite in (old, new))
        # A performance suite without a tolerance has that of the accuracy suite.
        inherits = isinstance(new, Performance) and not new.tolerance
        wider = now[0] > was[0] or now[1] > was[1]
        if wider and not inherits and (isinstance(old, Accuracy) or old.tolerance):
            before, after = (f"rtol {bounds[0]:g}, atol {bounds[1]:g}" for bounds in (was, now))
            facts: dict[str, Fact] = {"what": "tolerance", "suite": _name(old), "dtype": dtype}
            yield Reason("weaker_tolerance", {**facts, "before": before, "after": after})
    for name, is_less in _LESS.items():
        was, now = (_read_flag(suite, name) for suite in (old, new))
        if is_less(was, now):
            facts = {"what": "flags", "name": name, "before": str(was), "after": str(now)}
            yield Reason("weaker_flag", facts)
    if (why := getattr(new, "tolerance_reason", None)) and not getattr(old, "tolerance_reason", None):
        facts = {"what": "tolerance", "name": "tolerance_reason", "before": "None", "after": str(why)}
        yield Reason("weaker_flag", facts)
    for name in ("reduces", "bytes_moved", "flops"):
        count, recount = getattr(old, name, None), getattr(new, name, None)
        if count and not recount and name != "reduces":
            facts = {"what": "numbers", "name": name}
            yield Reason("weaker_flag", {**facts, "before": "a function", "after": "None"})
        # Sums without `reduces` are as if of one term.
        begun = name == "reduces" and isinstance(old, Accuracy)
        for case, params in _list_all(new).items() if recount and (count or begun) else ():
            if case in shared:
                given = count(**shared[case]) if count else 1, recount(**params) if recount else 1
                # Fewer terms are stricter. Fewer bytes or operations hide what no device could do.
                if given[1] > given[0] or (given[1] < given[0] and name != "reduces"):
                    facts = {"what": "numbers", "name": name, "case": case}
                    yield Reason("weaker_number", {**facts, "before": given[0], "after": given[1]})
                    break


def _list_all(suite: _Suite) -> dict[str, Params]:
    """Returns the cases of every list of a suite by id."""
    lists = [suite.cases]
    if isinstance(suite, Accuracy):
        lists += [suite.probe_cases or (), suite.accelerator_cases, suite.large_cases]
    return {case_id(params): params for cases in lists for params in cases}


def _find_poorer(old: _Suite, new: _Suite, shared: Mapping[str, Params], device: Accelerator) -> Iterator[Reason]:
    """Inputs of the same case and seed that are other ones and no like draw. One reason an argument."""
    arrays, named = device.arrays, set[str]()
    probes = new.probe_cases or () if isinstance(new, Accuracy) else ()
    for case, params in {case_id(case): case for case in (*new.cases, *probes)}.items():
        if case not in shared:
            continue
        moved = old.bytes_moved(**shared[case]) if isinstance(old, Performance) and old.bytes_moved else 0
        if isinstance(old, Performance) and device.absent and (not old.bytes_moved or moved > MOST_BYTES):
            continue
        try:
            before, after = (
                [dict(suite.make_inputs(**given, device=arrays.device, seed=seed)) for seed in FIXED_SEEDS]
                for suite, given in ((old, shared[case]), (new, params))
            )
        except Exception:  # the suite that raises has its row
            continue
        for name in sorted({*before[0], *after[0]} - named):
            if facts := _compare_argument(name, before, after, new, arrays):
                named.add(name)
                yield Reason("weaker_inputs", {"what": "inputs", "case": case, "name": name, **facts})


def _compare_argument(
    name: str, before: Sequence[Inputs], after: Sequence[Inputs], suite: _Suite, arrays: Arrays
) -> dict[str, Fact] | None:
    """Returns what an argument was and is, if it is another one. before, after: inputs by seed. suite: the change's."""
    forms = [
        [_describe_form(inputs[name], arrays) if name in inputs else as_fact("no such argument") for inputs in made]
        for made in (before, after)
    ]
    if forms[0] != forms[1]:
        default = inspect.signature(suite.reference).parameters[name].default if name not in before[0] else None
        is_default = name not in before[0] and forms[1][0] == repr(default)
        # Another number each, as of a drawn factor, is as good as another array of random numbers.
        drawn = len(set(forms[0])) > 1 and len(set(forms[1])) > 1 and not arrays.is_array(before[0][name])
        place = next(at for at, (was, now) in enumerate(zip(*forms, strict=True)) if was != now)
        return None if is_default or drawn else {"before": forms[0][place], "after": forms[1][place]}
    if not arrays.is_array(before[0][name]):
        return None
    if all(arrays.same_bits(was[name], now[name]) for was, now in zip(before, after, strict=True)):
        return None
    if arrays.same_bits(after[0][name], after[1][name]) and not arrays.same_bits(before[0][name], before[1][name]):
        return {"before": as_fact("other values for each seed"), "after": as_fact("the same ones for all")}
    return _compare_values(*(np.asarray(arrays.host(made[1][name])).ravel()[:MOST_VALUES] for made in (before, after)))


def _describe_form(value: Any, arrays: Arrays) -> str:
    """Returns all of a value but what an array holds."""
    if not arrays.is_array(value):
        return repr(value)
    facts = arrays.facts(value)
    strides = [stride for stride, length in zip(arrays.strides(value), facts.shape, strict=True) if length > 1]
    return f"{facts.dtype}{list(facts.shape)}, strides {strides}"


def _compare_values(before: np.ndarray[Any, Any], after: np.ndarray[Any, Any]) -> dict[str, Fact] | None:
    """Returns how two arrays of one form differ that are no two draws of one distribution. None if they may be."""
    kinds = [finiteness(values) if values.dtype.kind == "f" else np.zeros(values.shape) for values in (before, after)]
    for kind, name in ((1, "NaN"), (2, "inf"), (3, "-inf")):
        counts = [int(np.count_nonzero(of == kind)) for of in kinds]
        if counts[0] and counts[1] < counts[0] / 2:
            return {"before": f"{counts[0]} {name}", "after": f"{counts[1]}"}
    finite = [values[kind == 0] for values, kind in zip((before, after), kinds, strict=True)]
    if not all(values.size for values in finite) or before.dtype.kind not in "fiu":
        return None
    distinct = [len(np.unique(values)) for values in finite]
    if distinct[1] < FEWER * distinct[0]:
        return {"before": f"{distinct[0]} different values", "after": f"{distinct[1]}"}
    places = np.sort(np.concatenate(finite))
    shares = [np.searchsorted(np.sort(values), places, side="right") / values.size for values in finite]
    pooled = finite[0].size * finite[1].size / (finite[0].size + finite[1].size)
    if float(np.abs(shares[0] - shares[1]).max()) * math.sqrt(pooled) > APART:
        texts = [f"a mean of {values.mean():.3g} and a spread of {values.std():.3g}" for values in finite]
        return {"before": texts[0], "after": texts[1]}
    ascents = [float(np.mean(values[1:] > values[:-1])) if values.size > 1 else 0.0 for values in finite]
    if min(values.size for values in finite) >= 64 and abs(ascents[0] - ascents[1]) > ORDERED:
        return {"before": f"{ascents[0]:.0%} of neighbours in order", "after": f"{ascents[1]:.0%}"}
    return None
