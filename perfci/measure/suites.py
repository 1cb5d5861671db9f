"""An op's suites as of the base and of a change, compared as data: what got weaker, and what kind of change it is."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from perfci.core.model import Fact, Reason, as_fact
from perfci.device.seam import Accelerator, Arrays, Inputs
from perfci.device.source import stable
from perfci.measure.bench import REFERENCE, Arm
from perfci.measure.closeness import excess, finiteness, tolerance
from perfci.measure.inputs import call_fresh
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

NARROWER = 0.5
"""Share of the base's distinct values, or of their spread, below which inputs are weaker. Random ones differ less."""

SLOWER = 1.1  # times as long as the base's a reference may take
MOST_BYTES = 1 << 26  # of a performance case with inputs that are made although nothing is timed
_NAMED = 3  # cases that a sentence names

Suites = tuple[Accuracy, Performance]
_Suite = Accuracy | Performance


def describe_suite(suite: _Suite) -> Mapping[str, str]:
    """Returns each field as a text that is equal where the field means the same. Kernels are left out."""
    texts = {}
    for field in dataclasses.fields(suite):
        value = getattr(suite, field.name)
        if field.name.endswith("cases") and value is not None:
            value = list(map(case_id, value))
        if field.name not in {"kernel", "quantised", "peers"}:
            texts[field.name] = stable(value)
    return texts


def find_weaker(before: Suites, after: Suites, device: Accelerator) -> Iterator[Reason]:
    """What a change's suites ask less of, so that later changes get away with more. Nothing is called but make_inputs.

    before: the base's. after: the change's.
    """
    renamed = {old: new for new, old in after[1].renamed.items()}
    pairs: tuple[tuple[_Suite, _Suite], ...] = ((before[0], after[0]), (before[1], after[1]))
    for old, new in pairs:
        shared = {renamed.get(case, case): params for case, params in ((case_id(case), case) for case in old.cases)}
        yield from _find_fewer(old, new, renamed, device.arrays)
        yield from _find_looser(old, new, shared)
        if describe_suite(old)["make_inputs"] != describe_suite(new)["make_inputs"]:
            yield from _find_narrower(old, new, shared, device)


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
                [call_fresh(suite.reference, each, arrays, suite.mutates) for suite in (before, after)]
                for each in given
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
        lists.append((as_fact("probed dtypes"), _list_probed(old), _list_probed(new)))
        # One that was renamed makes the same inputs.
        made = [{name: _describe_inputs(make, arrays) for name, make in suite.rejects} for suite in (old, new)]
        kept = [name for name, text in made[0].items() if name in made[1] or text in made[1].values()]
        lists.append((as_fact("rejects"), list(made[0]), kept))
    for what, had, has in lists:
        gone = [lost for lost in had if lost not in has]
        if gone:
            names = "; ".join(gone[:_NAMED]) + ("; ..." if len(gone) > _NAMED else "")
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


def _find_looser(old: _Suite, new: _Suite, shared: Mapping[str, Params]) -> Iterator[Reason]:
    """Larger tolerances, more bytes and operations, and flags without which a check is left out."""
    dtypes = {str(params["dtype"]).removeprefix("torch.") for params in old.cases if "dtype" in params}
    for dtype in sorted({*(old.tolerance or {}), *(new.tolerance or {}), *dtypes}):
        was, now = (tolerance(dtype, suite.tolerance, 1) for suite in (old, new))
        # A performance suite without a tolerance of its own has that of the accuracy suite.
        inherits = isinstance(new, Performance) and not new.tolerance
        wider = now[0] > was[0] or now[1] > was[1]
        if wider and not inherits and (isinstance(old, Accuracy) or old.tolerance):
            before, after = (f"rtol {bounds[0]:g}, atol {bounds[1]:g}" for bounds in (was, now))
            facts: dict[str, Fact] = {"what": "tolerance", "suite": _name(old), "dtype": dtype}
            yield Reason("weaker_tolerance", {**facts, "before": before, "after": after})
    flags = {"deterministic": (True, False), "uses_dot": (False, True), "cache": ("cold", "warm")}
    for name, step in flags.items():
        if (getattr(old, name, None), getattr(new, name, None)) == step:
            facts = {"what": "flags", "name": name}
            yield Reason("weaker_flag", {**facts, "before": str(step[0]), "after": str(step[1])})
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
        for params in new.cases if recount and (count or begun) else ():
            if case_id(params) in shared:
                given = count(**shared[case_id(params)]) if count else 1, recount(**params) if recount else 1
                if given[1] > given[0]:
                    facts = {"what": "numbers", "name": name, "case": case_id(params)}
                    yield Reason("weaker_number", {**facts, "before": given[0], "after": given[1]})
                    break


def _find_narrower(old: _Suite, new: _Suite, shared: Mapping[str, Params], device: Accelerator) -> Iterator[Reason]:
    """Inputs of the same case and seed that have fewer values, or less of a spread. One reason an argument."""
    arrays, named = device.arrays, set[str]()
    for params in new.cases:
        case = case_id(params)
        if case not in shared:
            continue
        moved = old.bytes_moved(**shared[case]) if isinstance(old, Performance) and old.bytes_moved else 0
        if isinstance(old, Performance) and device.absent and (not old.bytes_moved or moved > MOST_BYTES):
            continue
        try:
            before = dict(old.make_inputs(**shared[case], device=arrays.device, seed=FIXED_SEEDS[1]))
            after = dict(new.make_inputs(**params, device=arrays.device, seed=FIXED_SEEDS[1]))
        except Exception:  # the suite that raises has its row
            continue
        for name in sorted(before.keys() & after.keys() - named):
            facts = _compare_values(before[name], after[name], arrays)
            if facts:
                named.add(name)
                yield Reason("weaker_inputs", {"what": "inputs", "case": case, "name": name, **facts})


def _compare_values(was: Any, now: Any, arrays: Arrays) -> dict[str, Fact] | None:
    """What an argument was and is, if it is weaker now."""
    if not (arrays.is_array(was) and arrays.is_array(now)):
        plain = not arrays.is_array(was) and not arrays.is_array(now) and isinstance(now, int | float)
        trivial = plain and was != now and now in (0, 1)
        return {"before": str(was), "after": str(now)} if trivial else None
    if arrays.same_bits(was, now):
        return None
    before, after = (np.asarray(arrays.host(value)).ravel() for value in (was, now))
    if not before.size or not after.size:
        return None
    distinct = [len(np.unique(values[: 1 << 20])) for values in (before, after)]
    share = after.size / before.size
    if distinct[1] < NARROWER * distinct[0] * min(share, 1.0) and distinct[0] > 1:
        return {"before": f"{distinct[0]} different values", "after": f"{distinct[1]}"}
    if before.dtype.kind == "f":
        finite = [values[np.isfinite(values)] for values in (before, after)]
        spread = [float(values.std()) if values.size else 0.0 for values in finite]
        if spread[1] < NARROWER * spread[0]:
            return {"before": f"a spread of {spread[0]:.3g}", "after": f"{spread[1]:.3g}"}
    return None
