"""The suite as it is written, run before an op is called ready: as `perfci check` judges it, in bounded time."""

from __future__ import annotations

import ast
import contextlib
import importlib
import itertools
import math
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

import perfci
from perfci.core.model import AccuracyCase, Reason
from perfci.device import open_device
from perfci.extensions.adopt import sketch
from perfci.extensions.adopt.rehearsal import sketched
from perfci.extensions.adopt.rehearsal.axes import Form, make_call
from perfci.extensions.adopt.rehearsal.dry_torch import DryTorch
from perfci.extensions.adopt.rehearsal.trial import BEYOND, Trial, answer_alike, find_rounding, watch
from perfci.extensions.adopt.sketch import SHARED, Sketch, SketchFiles, Suites
from perfci.measure.closeness import TOLERANCES
from perfci.measure.inputs import call_exact, call_fresh
from perfci.measure.search import NEEDED, plan_search, search
from perfci.measure.verify import FIXED_SEEDS, Check, checks, list_probes, make_inputs, verify, verify_answers
from perfci.ops.spec import Accuracy, Params
from perfci.worker.load import describe_exception

_SECONDS = 8.0  # of this process, for the checks of a suite
_CALL_S = 3.0  # for the launches of one call
_CLOSE = 0.5  # share of what is allowed from which further seeds are tried
_SEEDS = (2, 3, 4)
_FAR, _DRAWS = "confident", 14  # values of which some overflow by chance in float16, and how often they are drawn
_HIGH = frozenset({_FAR, *NEEDED[_FAR]})  # kinds with which a right answer may overflow
_GROSS = 10.0  # times what is allowed, which no rounding makes
_REFUSED = frozenset({"kernel_raised", "reference_raised"})
_USUAL = "normal", "contiguous"
_LAYOUTS = "layouts=("
_ROUNDS = "twice what the reference is off if factors of its products are rounded to the inputs' dtype"

Grid = Mapping[str, tuple[str, ...]]


@dataclass
class Proof:
    """What the checks of a suite gave."""

    faults: list[tuple[Check, Reason]] = field(default_factory=list)  # what they call wrong, or cannot judge
    passed: list[Check] = field(default_factory=list)
    left: int = 0  # checks that were not made, as time was up
    alike: Reason | None = None  # all right answers are one number

    @property
    def usual(self) -> list[tuple[Check, Reason]]:
        """What is called wrong, or not judged, of usual values."""
        return [(check, problem) for check, problem in self.faults if _is_usual(check)]

    def searched(self, suites: Suites) -> list[tuple[Check, Reason]]:
        """What is called wrong of values that the suite does not have, and a check searches."""
        return [(check, problem) for check, problem in self.faults if check.values not in ("normal", *suites.values)]

    @property
    def of_strides(self) -> list[tuple[Check, Reason]]:
        """What is wrong of one input in a layout: where all may lie so, its strides are used for another's."""
        return [(check, problem) for check, problem in self.faults if _is_alone(check) and problem.kind not in _REFUSED]

    @property
    def is_evidence(self) -> bool:
        """Whether a case of usual values passed."""
        return any(map(_is_usual, self.passed))


def _is_usual(check: Check) -> bool:
    return (check.values, check.layout) == _USUAL


def _is_alone(check: Check) -> bool:
    """Whether one input alone lies otherwise than torch makes it."""
    return " " in check.layout


@contextlib.contextmanager
def _imported(op: str, files: SketchFiles, made: Sketch) -> Iterator[Accuracy]:
    """The accuracy suite of the op's files, which lie in a folder of their own meanwhile."""
    texts = {f"{op}_{part}.py": text for part, text in sketch.draft(op, made, ()).texts.items()}
    sides = ((files.kernel, files.module), (files.baseline, files.baseline_module))
    copies = [Path(file) for file, module in sides if file and not module]
    texts |= {f"_{path.name}": path.read_text(encoding="utf-8", errors="replace") for path in copies}
    names = [name.removesuffix(".py") for name in texts]
    before = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    with TemporaryDirectory() as folder:
        for name, text in texts.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        sys.path.insert(0, folder)
        sys.modules[SHARED] = sketched
        try:
            yield importlib.import_module(f"{op}_accuracy").accuracy
        finally:
            sys.path.remove(folder)
            for name in names:
                sys.modules.pop(name, None)
            sys.modules.update(before)


def _make_checks(
    suite: Accuracy, known: dict[Any, AccuracyCase], until_s: float, step: Callable[[str], None], *,
    is_usual: bool,
) -> Proof:  # fmt: skip
    """Makes each case once, then each kind of values and each layout. What is near its tolerance has more seeds.

    known: what was made of another suite with the same cases, which is not made again. is_usual: cases alone.
    """
    device, proof = open_device("cpu", seed=0), Proof()
    kernel, reference = limit(watch(suite.kernel, _CALL_S), until_s), limit(suite.reference, until_s)
    # Of a tolerance with a reason less is asked, and no person has given one.
    bounded = replace(suite, kernel=kernel, reference=reference, tolerance_reason=None)

    def make(check: Check) -> AccuracyCase | None:
        key = (*check.name, repr(suite.tolerance))
        if key not in known and time.process_time() < until_s:
            step(f"{check.case}, {check.values}")
            is_searched = check.values not in ("normal", *suite.values)
            try:
                result = search(bounded, device, check, _describe, None) if is_searched else None
                result = result or (check.result() if is_searched else verify(bounded, device, check, _describe))
            except Exception as error:  # an answer that no check can compare
                result = check.result(failure=Reason("kernel_raised", {"case": check.case, **_describe(error)}))
            if not _is_late(result):
                known[key] = result
        return known.get(key)

    def look(check: Check) -> list[AccuracyCase | None]:
        results = [make(check)]
        seeds: Iterable[int] = _SEEDS if results[0] and _is_close(results[0]) else ()
        seeds = range(2, _DRAWS) if (check.values, check.params.get("dtype")) == (_FAR, torch.float16) else seeds
        return results + [make(replace(check, seed=seed)) for seed in seeds]

    usual = [Check(one, *_USUAL, FIXED_SEEDS[0], fresh=False) for one in (*suite.cases, *list_probes(suite, None))]
    others = [check for check in checks(suite, FIXED_SEEDS[0], None) if not check.fresh]
    # One of each kind of values comes first, as a slow kernel leaves no time for the others.
    kinds = {check.values: check for check in reversed(others) if check.values not in ("normal", *_HIGH)}
    others = [] if is_usual else [*others, *plan_search(suite, FIXED_SEEDS[0], None, duel=False)]
    others.sort(key=lambda check: (check.values != _FAR, check.values not in suite.values, check.seed))
    for check in {check.name: check for check in (*usual[:1], *reversed(kinds.values()), *usual[1:], *others)}.values():
        results = look(check)
        problems = [problem for one in results if one and (problem := one.failure or one.unchecked)]
        proof.left += results[0] is None
        proof.faults += [(check, problem) for problem in problems[:1]]
        proof.passed += [check] if results[0] and not problems else []
    alike = verify_answers(suite, device)
    proof.alike = alike.unchecked if alike else None
    return proof


def _is_close(result: AccuracyCase) -> bool:
    """Whether a check with other numbers may fail: its error is near what is allowed."""
    share = result.errors.of_allowed if result.errors else None
    return share is not None and share > _CLOSE


def _is_late(result: AccuracyCase) -> bool:
    return bool(result.failure and result.failure.facts.get("error") == "TimeoutError")


def judge(
    op: str, files: SketchFiles, made: Sketch, form: Form, trial: Trial, launched: str, facts: Mapping[str, Any]
) -> tuple[Sketch, list[Reason]]:
    """Returns the sketch as its suite's checks leave it, and why it is not ready, if it is not.

    A product gets a tolerance for what its kernel has to round.
    """
    proved, unsure = _prove(op, files, made, form, facts)
    if unsure and "tl.dot(" in launched and unsure[-1].kind == "wrong_values":
        wider = _allow_rounding(form, trial, made.suites)
        noted = replace(made, suites=wider, look=(*made.look, Reason("look_tolerance", {"op": op})))
        again, still = _prove(op, files, noted, form, facts) if wider is not made.suites else (made, unsure)
        proved, unsure = (again, still) if not still else (proved, unsure)
    return proved, unsure


def _prove(
    op: str, files: SketchFiles, made: Sketch, form: Form, facts: Mapping[str, Any]
) -> tuple[Sketch, list[Reason]]:
    """As `judge`, with the tolerance that the suite has. What does not fit is left out until nothing is."""
    known, until_s = dict[Any, AccuracyCase](), time.process_time() + _SECONDS
    proof, step, is_usual = Proof(), form.rehearsal.step, True
    while True:
        with form.rehearsal.real(), _imported(op, files, made) as suite:
            proof = _make_checks(suite, known, until_s, step, is_usual=is_usual)
            cut = _leave_out(op, made, proof, suite, places=form.has_places)
        if cut.suites == made.suites and (proof.usual or not is_usual):
            return _conclude(op, made, proof, facts)
        made, is_usual = cut, cut.suites != made.suites and is_usual


def _conclude(op: str, made: Sketch, proof: Proof, facts: Mapping[str, Any]) -> tuple[Sketch, list[Reason]]:
    """The sketch with what was not reached, and why it is not ready."""
    wrong = [(check, problem) for check, problem in proof.usual if problem.kind != "interpreter_lacks"]
    if wrong := wrong or proof.searched(made.suites) or proof.of_strides:
        (_, problem), dtype = wrong[0], str(wrong[0][0].params["dtype"]).removeprefix("torch.")
        if problem.kind == "reference_raised":
            return made, [Reason("look_reference", {**facts, **problem.facts, "dtype": dtype})]
        return made, [Reason("look_fails", {"op": op}), problem]
    if proof.alike:
        return made, [Reason("look_fails", {"op": op}), proof.alike]
    if not proof.is_evidence:
        lacks = [problem.facts["function"] for _, problem in proof.usual]
        kind = "look_uninterpreted" if lacks else "look_no_cases"
        return made, [Reason(kind, {**facts, "operation": lacks[0] if lacks else ""})]
    late = [Reason("look_late", {"op": op, "left": proof.left, "seconds": _SECONDS})] if proof.left else []
    return replace(made, look=(*made.look, *late)), []


def _describe(error: BaseException) -> Mapping[str, Any]:
    return describe_exception(error, Path())


def _leave_out(op: str, made: Sketch, proof: Proof, suite: Accuracy, *, places: bool) -> Sketch:
    """The sketch without what its checks show that the inputs do not fit, and with a note for each kind of that.

    What shows that the kernel is wrong stays.
    """
    suites, look = made.suites, list(made.look)
    beyond = [check.values for check, _ in proof.searched(suites) if _overflows(suite, check)]
    high = {kind for values in beyond for kind in NEEDED.get(values, ())}
    if not proof.usual:
        kinds = list(dict.fromkeys(check.values for check, _ in proof.faults if check.values in suites.values[1:]))
        layouts = {
            check.layout.split()[0]: problem
            for check, problem in proof.faults
            if check.layout != "contiguous" and (problem.kind in _REFUSED or not _is_alone(check))
        }
        suites = _drop_values(suites, kinds, "the reference raises for them, or has other values than the kernel")
        suites = _drop_values(suites, high, "the reference overflows for numbers far above the others")
        suites = replace(suites, accuracy=_narrow_layouts(suites.accuracy, suite, [*layouts])) if layouts else suites
        wrong = [layout for layout, problem in layouts.items() if problem.kind not in _REFUSED]
        look += [Reason("look_values", {"op": op, "values": ", ".join(kinds)})] if kinds else []
        look += [Reason("look_overflow", {"op": op, "values": ", ".join(sorted(high))})] if high else []
        look += [Reason("look_layouts", {"op": op, "layouts": ", ".join(wrong)})] if wrong else []
    for check, problem in proof.usual if len(proof.usual) < sum(map(_is_usual, proof.passed)) else ():
        if reason := _excuse(op, suites, suite, check, problem, places=places):
            suites = _drop_case(suites, check.params)
            look += [reason] if all(reason.kind != other.kind for other in look) else []
    return replace(made, suites=suites, look=tuple(look))


def _excuse(op: str, suites: Suites, suite: Accuracy, check: Check, problem: Reason, *, places: bool) -> Reason | None:
    """What is said of a case that is left out. None if what its check shows is the kernel's fault."""
    facts: dict[str, Any] = {"op": op, "case": check.case}
    if problem.kind == "reference_raised" and _takes_plain(suite, check):
        return None
    if problem.kind == "launches_nothing":
        return Reason("look_idle_case", facts)
    if problem.kind in _REFUSED:
        return Reason("look_beyond" if BEYOND in str(problem.facts.get("message")) else "look_refused", facts)
    if problem.kind == "vacuous":
        return Reason("look_vacuous", facts)
    if options := [name for name in suites.options if name in check.params]:
        facts |= {"option": options[0], "value": str(check.params[options[0]])}
        return Reason("look_option_off", {**facts, "error": problem.facts.get("error", math.inf)})
    if _overflows(suite, check):
        return Reason("look_overflow_case", facts)
    is_small = any(type(size) is int and size <= 1 for size in check.params.values())
    return Reason("look_places", facts) if places and is_small and _is_gross(problem) else None


def _is_gross(problem: Reason) -> bool:
    """Whether an answer is wrong by more than rounding."""
    facts: Mapping[str, Any] = problem.facts
    allowed = facts.get("atol", 0.0) + facts.get("rtol", 0.0) * abs(facts.get("expected", 0.0))
    return problem.kind != "wrong_values" or facts["error"] > _GROSS * allowed


def _takes_plain(suite: Accuracy, check: Check) -> bool:
    """Whether the reference takes a case as it is, and so raised as a check calls it in float64."""
    arrays = open_device("cpu", seed=0).arrays
    with contextlib.suppress(Exception):  # whatever other people's code raises
        call_fresh(suite.reference, make_inputs(suite, arrays, check), arrays, suite.mutates)
        return True
    return False


def _overflows(suite: Accuracy, check: Check) -> bool:
    """Whether a right answer is beyond the largest number of its dtype, or nearly."""
    arrays = open_device("cpu", seed=0).arrays
    with contextlib.suppress(Exception):  # whatever other people's code raises
        inputs = make_inputs(suite, arrays, check)
        exact = call_exact(suite.reference, arrays.upcast(inputs), arrays, suite.mutates)
        plain = call_fresh(suite.reference, arrays.copies(inputs), arrays, suite.mutates)
        floats = [(one, right) for one, right in zip(plain, exact, strict=True) if one.is_floating_point()]
        return any(not bool((right.abs() < torch.finfo(one.dtype).max / 2).all()) for one, right in floats)
    return False


def _drop_values(suites: Suites, kinds: Collection[str], why: str) -> Suites:
    """The suites without some kinds of values, and with a comment on them."""
    gone = [kind for kind in suites.values if kind in kinds]
    values = tuple(kind for kind in suites.values if kind not in kinds)
    said = f"# Without {' and '.join(gone)}: {why}."
    return replace(suites, values=values, about_values=(*suites.about_values, said)) if gone else suites


def _narrow_layouts(lines: Sequence[str], suite: Accuracy, without: Sequence[str]) -> tuple[str, ...]:
    """The lines of the accuracy suite with fewer layouts."""
    kept = [f'"{layout}"' for layout in suite.layouts if layout not in without]
    others = [line for line in lines if not line.startswith(_LAYOUTS)]
    return (*others, f"{_LAYOUTS}{', '.join(kept)}{',' if not kept[1:] else ''}),")


def _drop_case(suites: Suites, params: Params) -> Suites:
    """The suites without a case."""
    names = [f"torch.{name}" for name in suites.dtypes]
    given = {"DTYPES": [getattr(torch, name) for name in suites.dtypes]}

    def is_other(texts: Mapping[str, str]) -> bool:
        return {name: DryTorch.evaluate(f"[{text}]", given)[0] for name, text in texts.items()} != {**params}

    def thin(grids: Sequence[Grid], dtypes: Sequence[str]) -> tuple[Grid, ...]:
        return tuple(itertools.chain(*(_thin(grid, is_other, tuple(dtypes)) for grid in grids)))

    return replace(
        suites,
        cases=tuple(filter(is_other, suites.cases)),
        more=tuple(filter(is_other, suites.more)),
        edges=thin(suites.edges, names[:1]),
        probes=thin(suites.probes, names),
    )


def _thin(grid: Grid, is_kept: Callable[[Mapping[str, str]], bool], dtypes: tuple[str, ...]) -> list[Grid]:
    """The grid, which has these dtypes if it names none, without some of its points."""
    full = {"dtype": dtypes, **grid}
    points = [dict(zip(full, point, strict=True)) for point in itertools.product(*full.values())]
    kept = [point for point in points if is_kept(point)]
    varying = [name for name, values in full.items() if values[1:]]
    if len(kept) == len(points):
        return [grid]
    thinned: list[Grid] = [{name: (text,) for name, text in point.items()} for point in kept]
    if not varying[1:]:
        thinned = [{**full, name: tuple(point[name] for point in kept)} for name in varying] if kept else []
    order = [*grid, "dtype"]
    return [
        {name: one[name] for name in dict.fromkeys(order) if name in grid or one["dtype"] != dtypes or name != "dtype"}
        for one in thinned
    ]


def _allow_rounding(form: Form, trial: Trial, suites: Suites) -> Suites:
    """The suites with the tolerance of products of products, whose operands have to be rounded to the inputs' dtype.

    It is twice what the reference is off once factors of its products are rounded so.
    """
    _, reference = answer_alike(form.kernel, form.reference, trial)
    stated: dict[str, Any] = make_call(dict, ["\n".join((*suites.accuracy, ""))], {"perfci": perfci})()
    bounds, terms = dict[str, list[float]](), stated.get("reduces", lambda **_: 1)
    last = ({name: values[-1] for name, values in grid.items()} for grid in suites.edges)
    cases = [] if form.is_ragged else [*suites.cases[:1], *last]
    every = [form.small, *({axis: ast.literal_eval(case[axis]) for axis in form.axes} for case in cases)]
    for dtype, sizes in itertools.product(suites.dtypes, every) if "tolerance" not in stated else ():
        with form.rehearsal.real(), contextlib.suppress(Exception):  # whatever other people's code raises
            for kind, error in find_rounding(reference, form.make_inputs(sizes, dtype)):
                bounds.setdefault(kind, [*TOLERANCES[kind]]).append(2 * error / math.sqrt(max(terms(**sizes), 1)))
    written = ", ".join(f'"{kind}": ({rtol}, {max(atols):.1e})' for kind, (rtol, *atols) in bounds.items())
    if not written or not all(map(math.isfinite, itertools.chain(*bounds.values()))):
        return suites
    return replace(suites, accuracy=(*suites.accuracy, f"tolerance={{{written}}},", f'tolerance_reason="{_ROUNDS}",'))


def limit(function: Callable[..., Any], until_s: float) -> Callable[..., Any]:
    """Returns the function with parameters of any name, as some have none. It raises TimeoutError once time is up."""

    def call(**given: Any) -> Any:
        if time.process_time() > until_s:
            raise TimeoutError
        return function(**given)

    return call
