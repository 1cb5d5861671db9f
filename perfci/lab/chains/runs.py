"""One case of a chain: the three runs, every stage by itself, and what comes of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perfci.core.model import ErrorStats, Fact, Reason
from perfci.device.seam import Accelerator, Arrays, NotInterpretedError, not_interpreted
from perfci.lab.chains import verdicts
from perfci.lab.chains.records import ChainCase, Error, StageResult
from perfci.lab.chains.state import StageError, State, form, given, joined, named, reads, shown, wiring
from perfci.lab.chains.verdicts import Output, Values
from perfci.measure.closeness import errors_of, first_index
from perfci.ops.spec import Chain, Params, Stage, case_id

Host = np.ndarray[Any, Any]
Describe = Callable[[BaseException], Mapping[str, Fact]]


@dataclass(frozen=True)
class Setting:
    """A chain on a device."""

    name: str
    chain: Chain
    device: Accelerator
    describe: Describe
    """type, message, file and line of what a stage raised"""
    tell: Callable[[str, str], None] = lambda *_: None
    """hears of each stage of each case before its kernel is called"""

    @property
    def arrays(self) -> Arrays:
        """The device's."""
        return self.device.arrays


def check_case(on: Setting, params: Params, seed: int) -> ChainCase:
    """Compute a case three times and judge it; whatever its functions do becomes one of its failures."""
    case = case_id(params)
    if reason := _unchecked(on, params):
        return ChainCase(case, seed, unchecked=reason)
    try:
        made = _make(on, params, seed)
        walk = _Walk(on, made)
        walk.run()
        return _result(on, made, walk, seed)
    except StageError as error:
        return ChainCase(case, seed, failures=(error.reason,), raised=True, lost=_is_lost(on.device))
    except NotInterpretedError as error:
        return ChainCase(case, seed, unchecked=Reason("interpreter_lacks", {"case": case, "function": str(error)}))


def _unchecked(on: Setting, params: Params) -> Reason | None:
    """Why a case is not tried in Triton's interpreter."""
    if on.device.info.kind != "cpu":
        return None
    if any(params is each for each in on.chain.accelerator_cases):
        return Reason("chain_accelerator_case", {"case": case_id(params)})
    return None


# --- the references' two runs -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Made:
    """A case's inputs and what is right for them; the outputs of each stage by name."""

    where: Mapping[str, Fact]
    """chain and case"""
    inputs: dict[str, Any]
    exact: list[dict[str, Any]]
    """of the references in float64"""
    usual: list[dict[str, Any]]
    """of the references in the case's dtype"""
    rounded: list[dict[str, Any]]
    """exact, rounded to the case's dtype"""
    largest: list[dict[str, float]]
    """largest finite magnitude of the exact ones"""
    reads: tuple[tuple[int, ...], ...]
    makers: dict[str, str]
    """name -> the stage that gives it"""

    def before(self, at: int) -> dict[str, Any]:
        """What a stage finds if all before it were exact but for their rounding."""
        state = dict(self.inputs)
        for outputs in self.rounded[:at]:
            state |= outputs
        return state


def _make(on: Setting, params: Params, seed: int) -> _Made:
    """Raises StageError where inputs or references cannot be computed."""
    where: dict[str, Fact] = {"chain": on.name, "case": case_id(params)}
    try:
        inputs = on.chain.make_inputs(**params, device=on.arrays.device, seed=seed)
    except Exception as error:
        raise StageError(Reason("chain_inputs_raised", {**where, **on.describe(error)})) from error
    if not isinstance(inputs, Mapping) or not all(isinstance(name, str) for name in inputs):
        raise StageError(Reason("chain_inputs", {**where, "got": type(inputs).__name__}))
    usual = _references(on, dict(inputs), where)
    exact = _references(on, on.arrays.upcast(inputs), where)
    for stage, ours, theirs in zip(on.chain.stages, usual, exact, strict=True):
        _refuse_other_names(stage, theirs, ours, where)
    hosts = [{name: on.arrays.host(each) for name, each in outputs.items()} for outputs in exact]
    return _Made(
        where,
        dict(inputs),
        exact,
        usual,
        [
            {name: on.arrays.like(values, outputs[name]) for name, values in host.items()}
            for host, outputs in zip(hosts, usual, strict=True)
        ],
        [{name: _largest(values) for name, values in host.items()} for host in hosts],
        reads(on.chain.stages, usual),
        {name: stage.name for stage, outputs in zip(on.chain.stages, usual, strict=True) for name in outputs},
    )


def _references(on: Setting, inputs: dict[str, Any], where: Mapping[str, Fact]) -> list[dict[str, Any]]:
    """The references all through, from these inputs."""
    state, found = inputs, []
    for stage in on.chain.stages:
        taken = on.arrays.copies(given(stage, stage.reference, state, where))
        outputs = _called(on, stage, stage.reference, taken, where, "chain_reference_raised")
        state = joined(stage, state, outputs, where)
        found.append(outputs)
    return found


def _called(
    on: Setting,
    stage: Stage,
    function: Callable[..., Any],
    taken: State,
    where: Mapping[str, Fact],
    kind: str,
    makers: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A stage's outputs by name; raises StageError with this kind for whatever the function raises."""
    try:
        output = function(**taken)
        on.device.synchronize()
    except Exception as error:
        if missing := not_interpreted(error):
            raise NotInterpretedError(missing) from error
        said = dict(on.describe(error))
        if on.device.out_of_memory(error):
            place = f"{where['case']} ({where['chain']}.{stage.name})"
            raise StageError(Reason("out_of_memory", {**said, "case": place})) from error
        facts = {
            **where,
            "stage": stage.name,
            "given": shown(taken, wiring(stage, function), makers or {}, on.arrays),
            **said,
        }
        raise StageError(Reason(kind, facts)) from error
    return named(stage, output, on.arrays, where)


def _refuse_other_names(stage: Stage, got: State, wanted: State, where: Mapping[str, Fact]) -> None:
    if set(got) != set(wanted):
        facts = {"stage": stage.name, "got": ", ".join(got), "expected": ", ".join(wanted)}
        raise StageError(Reason("chain_names", {**where, **facts}))


def _largest(values: Host) -> float:
    finite = values[np.isfinite(values)]
    return float(np.abs(finite).max(initial=0.0)) if finite.size else 0.0


# --- the kernels' run -------------------------------------------------------------------------------------------------


class _Walk:
    """The kernels all through, each called twice on the state that it finds."""

    def __init__(self, on: Setting, made: _Made) -> None:
        self._on, self._made = on, made
        self._state: dict[str, Any] = dict(made.inputs)
        self._kept: dict[str, Any] = on.arrays.copies(made.inputs)
        self.outputs: list[dict[str, Any]] = []
        """copies of what each stage gave, as far as it came"""
        self.failures: list[Reason] = []
        self.raised = False
        self.lost = False
        """the process has lost its device"""

    def run(self) -> None:
        """Go from stage to stage until one cannot be computed, or gives what the next cannot take."""
        for stage, usual in zip(self._on.chain.stages, self._made.usual, strict=True):
            self._on.tell(stage.name, str(self._made.where["case"]))
            try:
                if not self._step(stage, usual):
                    return
            except StageError as error:
                self.failures.append(error.reason)
                self.raised = True
                self.lost = _is_lost(self._on.device)
                return

    def _step(self, stage: Stage, usual: State) -> bool:
        """One stage; gives whether the next can follow."""
        arrays, where = self._on.arrays, self._made.where
        taken = given(stage, stage.kernel, self._state, where)
        first, damaged = self._call(stage, taken, "nan")
        _refuse_other_names(stage, first, usual, where)
        copies = arrays.copies(first)
        if reason := self._wrong_form(stage, first, usual):
            self.failures.append(reason)
            return False
        if self._is_untouched(stage):  # else a second call finds another state
            second, more = self._call(stage, taken, "value")
            damaged += more
            self._compare(stage, copies, second)
        if damaged:
            self._fail("chain_wrote_outside", stage, zones=damaged)
        self._state = joined(stage, self._state, first, where)
        self._kept |= copies
        self.outputs.append(copies)
        return True

    def _call(self, stage: Stage, taken: State, filler: str) -> tuple[dict[str, Any], int]:
        """Outputs, with fresh memory filled beforehand, and how many zones around it were written into."""
        with self._on.arrays.watch_allocations(filler) as watch:
            found = _called(
                self._on, stage, stage.kernel, taken, self._made.where, "chain_kernel_raised", self._made.makers
            )
        return found, watch.damaged()

    def _wrong_form(self, stage: Stage, got: State, usual: State) -> Reason | None:
        arrays = self._on.arrays
        name = next((name for name in usual if form(got[name], arrays) != form(usual[name], arrays)), None)
        if name is None:
            return None
        at = self._on.chain.stages.index(stage)
        followers = [each for each, before in zip(self._on.chain.stages, self._made.reads, strict=True) if at in before]
        facts = {"got": form(got[name], arrays), "expected": form(usual[name], arrays)}
        named_next = {"name": name, "next": ", ".join(each.name for each in followers) or "-"}
        return Reason("chain_form", {**self._made.where, "stage": stage.name, **named_next, **facts})

    def _compare(self, stage: Stage, first: State, second: State) -> None:
        """Two calls on the same state give the same bits."""
        arrays = self._on.arrays
        for name in first:
            if name not in second or arrays.facts(first[name]).shape != arrays.facts(second[name]).shape:
                return self._fail("chain_differs", stage, name=name, count="-", index="-")
            if arrays.same_bits(first[name], second[name]):
                continue
            left, right = arrays.host(first[name]), arrays.host(second[name])
            unwritten = np.isnan(left) & arrays.is_filler(second[name]) if left.dtype.kind == "f" else np.zeros(1, bool)
            if unwritten.any():
                return self._fail("chain_not_written", stage, **_where(name, unwritten))
            if stage.deterministic:
                return self._fail("chain_differs", stage, **_where(name, _differing(left, right)))
        return None

    def _is_untouched(self, stage: Stage) -> bool:
        """Whether all that was there before still is: inputs, and what earlier stages gave."""
        arrays = self._on.arrays
        there = {name: value for name, value in self._state.items() if arrays.is_array(value)}
        changed = [name for name, value in there.items() if not arrays.same_bits(value, self._kept[name])]
        if changed:
            self._fail("chain_state_changed", stage, names=", ".join(changed))
            self._kept |= arrays.copies({name: there[name] for name in changed})
        return not changed

    def _fail(self, kind: str, stage: Stage, **facts: Fact) -> None:
        self.failures.append(Reason(kind, {**self._made.where, "stage": stage.name, **facts}))


def _is_lost(device: Accelerator) -> bool:
    """Whether the process can do nothing more on its device, as after an illegal memory access."""
    try:
        device.synchronize()
    except Exception:
        return True
    return False


def _differing(left: Host, right: Host) -> Host:
    both = np.isnan(left) & np.isnan(right) if left.dtype.kind == "f" else np.zeros(left.shape, dtype=bool)
    differing: Host = (left != right) & ~both
    # Zeros of two signs, and two kinds of NaN, differ in bits alone.
    return differing if differing.any() else np.ones(left.shape, dtype=bool)


def _where(name: str, mask: Host) -> dict[str, Fact]:
    return {"name": name, "count": int(mask.sum()), "index": str(first_index(mask))}


# --- what comes of it -------------------------------------------------------------------------------------------------


def _result(on: Setting, made: _Made, walk: _Walk, seed: int) -> ChainCase:
    """All that is known of the case, each failure once."""
    case = str(made.where["case"])
    if walk.lost:  # whatever lies on the device is gone
        return ChainCase(case, seed, failures=tuple(walk.failures), raised=True, lost=True)
    outputs = [_outputs(on.arrays, made, at, got) for at, got in enumerate(walk.outputs)]
    finite, notes = _finite(on.arrays, made, walk)
    rows = [_row(on, made, at, outputs[at] if at < len(outputs) else None) for at in range(len(on.chain.stages))]
    rows, broken, lost = _with_own(on, made, rows)
    # The stage at which the walk ended is told by it.
    alone = [reason for at, reason in broken.items() if at != len(outputs)]
    stages = verdicts.with_growth(rows, made.reads)
    judged = verdicts.Judged()
    if len(outputs) == len(stages):
        judged = verdicts.judge(stages, outputs, made.reads, on.chain.tolerance, made.where)
    errors, others = (walk.failures, []) if walk.raised else ([], walk.failures)
    return ChainCase(
        case,
        seed,
        stages,
        judged.whole,
        judged.limit,
        (*errors, *alone, *finite, *others, *judged.failures),
        raised=walk.raised or bool(alone),
        notes=notes,
        lost=lost,
    )


def _outputs(arrays: Arrays, made: _Made, at: int, got: State) -> list[Output]:
    """Numbers of each output of a stage that the kernels have reached."""
    return [_output(arrays, made, at, name, array) for name, array in got.items()]


def _output(arrays: Arrays, made: _Made, at: int, name: str, array: Any) -> Output:
    exact, usual = made.exact[at][name], made.usual[at][name]
    kind = arrays.dtype_facts(usual)
    return Output(
        name,
        arrays.facts(usual).dtype,
        kind.epsilon if kind else 0.0,
        made.largest[at][name],
        _error(arrays, array, exact),
        _error(arrays, usual, exact),
    )


def _stats(arrays: Arrays, got: Any, exact: Any) -> ErrorStats:
    found = arrays.deviation(got, exact)
    return found.stats if found else errors_of(arrays.host(got), arrays.host(exact)).stats


def _error(arrays: Arrays, got: Any, exact: Any) -> Error:
    stats = _stats(arrays, got, exact)
    return Error(stats.l2, stats.max_abs)


def _row(on: Setting, made: _Made, at: int, outputs: Sequence[Output] | None) -> StageResult:
    """A stage's line, but for what its kernel does alone."""
    exact, usual = made.exact[at], made.usual[at]
    common = verdicts.worst([_error(on.arrays, usual[name], exact[name]) for name in exact])
    so_far = verdicts.worst([output.so_far for output in outputs]) if outputs is not None else None
    return StageResult(on.chain.stages[at].name, so_far=so_far, usual=common)


def _with_own(
    on: Setting, made: _Made, rows: Sequence[StageResult]
) -> tuple[list[StageResult], dict[int, Reason], bool]:
    """The lines with each stage's own errors; why a stage could not be called alone; whether that cost the device."""
    found, broken = list(rows), {}
    for at, row in enumerate(rows):
        if not made.reads[at] and row.so_far:  # all that it reads is exact anyway
            found[at] = replace(row, own=row.so_far, usual_own=row.usual)
            continue
        try:
            own, usual = _own(on, made, at)
            found[at] = replace(row, own=own, usual_own=usual)
        except StageError as error:
            broken[at] = error.reason
            if _is_lost(on.device):
                return found, broken, True
    return found, broken, False


def _own(on: Setting, made: _Made, at: int) -> tuple[Error | None, Error]:
    """Errors of a stage's kernel, and of its reference in the case's dtype, on exact inputs rounded to the dtype."""
    arrays, where, stage, state = on.arrays, made.where, on.chain.stages[at], made.before(at)
    on.tell(stage.name, str(where["case"]))
    known = given(stage, stage.reference, state, where)
    exact = _called(on, stage, stage.reference, arrays.upcast(known), where, "chain_reference_raised", made.makers)
    usual = _called(on, stage, stage.reference, arrays.copies(known), where, "chain_reference_raised", made.makers)
    taken = arrays.copies(given(stage, stage.kernel, state, where))
    got = _called(on, stage, stage.kernel, taken, where, "chain_kernel_raised", made.makers)
    usual_own = verdicts.worst([_error(arrays, usual[name], exact[name]) for name in exact])
    fits = all(name in got and form(got[name], arrays) == form(usual[name], arrays) for name in exact)
    return verdicts.worst([_error(arrays, got[name], exact[name]) for name in exact]) if fits else None, usual_own


def _finite(arrays: Arrays, made: _Made, walk: _Walk) -> tuple[list[Reason], tuple[Reason, ...]]:
    """The first stage whose kernel made NaN or an infinity, and the first in which the format's range was left."""
    notes: list[Reason] = []
    for at, outputs in enumerate(walk.outputs):
        for name, got in outputs.items():
            exact, usual, rounded = made.exact[at][name], made.usual[at][name], made.rounded[at][name]
            facts = arrays.facts(usual)
            if _stats(arrays, got, exact).count == math.prod(facts.shape):
                continue
            values = Values(*(arrays.host(each) for each in (got, exact, rounded, usual)))
            where = {**made.where, "stage": made.makers[name], "name": name}
            if found := verdicts.not_finite(values, where):
                return [found], tuple(notes)
            if not notes and (note := verdicts.overflow(values, where, facts.dtype)):
                notes.append(note)
    return [], tuple(notes)
