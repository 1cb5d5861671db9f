"""One case of a chain: the three runs, every stage by itself, and the result."""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfci.core.errors import PerfciError
from perfci.core.model import KERNEL, REFERENCE, ErrorStats, Fact, Reason
from perfci.device.arrays import Arrays
from perfci.device.seam import Accelerator, NotInterpretedError, not_interpreted
from perfci.extensions.lab.chains.records import (
    Chain,
    ChainMeasured,
    Error,
    Output,
    Stage,
    StageMeasured,
    judge_finiteness,
    worst,
)
from perfci.measure.closeness import errors_of
from perfci.ops.spec import Params, case_id

State = Mapping[str, Any]  # a chain's inputs, and what its stages gave, by name
Where = Mapping[str, Fact]  # chain and case, for reasons

_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class StageError(PerfciError):
    """A stage cannot be computed."""


@dataclass(frozen=True)
class Setting:
    """A chain on a device."""

    name: str
    chain: Chain
    device: Accelerator
    describe: Callable[[BaseException], Mapping[str, Fact]]  # type, message, file and line of what a stage raised
    announce: Callable[[str, str], None] = lambda *_: None
    """called with each stage and case before its kernel is called"""


def check_case(on: Setting, params: Params, seed: int) -> ChainMeasured:
    """Computes a case three times. Whatever its functions do becomes one of its failures."""
    case = case_id(params)
    if on.device.info.kind == "cpu" and any(params is case for case in on.chain.accelerator_cases):
        return ChainMeasured(case, seed, unchecked=Reason("chain_accelerator_case", {"case": case}))
    try:
        return _CheckedCase(on, params, seed).check()
    except StageError as error:
        return ChainMeasured(case, seed, failures=(error.reason,), raised=True, lost=_is_lost(on.device))
    except NotInterpretedError as error:
        return ChainMeasured(case, seed, unchecked=Reason("interpreter_lacks", {"case": case, "function": str(error)}))


def _is_lost(device: Accelerator) -> bool:
    """Whether the process can do nothing more on its device, as after an illegal memory access."""
    try:
        device.synchronize()
    except Exception:
        return True
    return False


# --- what stages take and give ----------------------------------------------------------------------------------------


def list_parameters(function: Callable[..., Any]) -> list[str]:
    """Names that a stage's function takes. `*` and `**` take nothing.

    >>> list_parameters(lambda x, weight, *, eps=1e-6, **others: x)
    ['x', 'weight', 'eps']
    """
    parameters = inspect.signature(function).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind not in _REST]


def _wire(stage: Stage, function: Callable[..., Any]) -> dict[str, str]:
    """Parameter -> the name in the state that it is given."""
    return dict(stage.takes) or {name: name for name in list_parameters(function)}


def take_arguments(stage: Stage, function: Callable[..., Any], state: State, where: Where) -> dict[str, Any]:
    """Arguments of a stage's function out of the state. Raises StageError if it has no such name."""
    taken = {}
    for parameter, name in _wire(stage, function).items():
        if name in state:
            taken[parameter] = state[name]
        elif stage.takes or inspect.signature(function).parameters[parameter].default is inspect.Parameter.empty:
            facts = {"stage": stage.name, "name": name, "known": ", ".join(state)}
            raise StageError("chain_name_missing", **where, **facts)
    return taken


def name_outputs(stage: Stage, output: Any, arrays: Arrays, where: Where) -> dict[str, Any]:
    """A stage's outputs by the names that later stages take. Raises StageError for anything but tensors."""
    outputs = dict(output) if isinstance(output, Mapping) else {stage.name: output}
    sound = all(
        isinstance(name, str) and name.isidentifier() and arrays.is_array(value) for name, value in outputs.items()
    )
    if not outputs or not sound:
        kinds = ", ".join(f"{name}: {type(value).__name__}" for name, value in outputs.items())
        got = f"{{{kinds}}}" if isinstance(output, Mapping) else type(output).__name__
        raise StageError("chain_output", **where, stage=stage.name, got=got)
    return outputs


def add_outputs(stage: Stage, state: State, outputs: State, where: Where) -> dict[str, Any]:
    """The state with a stage's outputs. Raises StageError for a name that it has already."""
    if twice := next((name for name in outputs if name in state), None):
        raise StageError("chain_name_taken", **where, stage=stage.name, name=twice)
    return {**state, **outputs}


def describe_arguments(values: State, wires: Mapping[str, str], arrays: Arrays) -> str:
    """Arguments in a sentence: `a=x (2, 8) float16, heads=heads 4`."""
    arguments = []
    for parameter, value in values.items():
        form = _describe_form(value, arrays) if arrays.is_array(value) else repr(value)
        arguments.append(f"{parameter}={wires[parameter]} {form}")
    return ", ".join(arguments) or "-"


def _describe_form(array: Any, arrays: Arrays) -> str:
    """Shape and dtype, and the device if it is not the case's."""
    facts = arrays.facts(array)
    place = "" if facts.device == arrays.device.partition(":")[0] else f" {facts.device}"
    return f"{facts.shape} {facts.dtype}{place}"


# --- one case ---------------------------------------------------------------------------------------------------------


class _CheckedCase:
    """A case's inputs and references, and the kernels' run over them."""

    def __init__(self, on: Setting, params: Params, seed: int) -> None:
        """Raises StageError if inputs or references cannot be computed."""
        self.on, self.seed, self.arrays, self.stages = on, seed, on.device.arrays, on.chain.stages
        self.case = case_id(params)
        self.where: dict[str, Fact] = {"chain": on.name, "case": self.case}
        arrays = self.arrays
        try:
            inputs = on.chain.make_inputs(**params, device=arrays.device, seed=seed)
        except Exception as error:
            raise StageError("chain_inputs_raised", **{**self.where, **on.describe(error)}) from error
        if not isinstance(inputs, Mapping) or not all(isinstance(name, str) for name in inputs):
            raise StageError("chain_inputs", **self.where, got=type(inputs).__name__)
        self.inputs = dict(inputs)
        # Outputs of each stage by name: of the references in the case's dtype, and of those in float64.
        self.usual = self._run_references(self.inputs)
        self.exact = self._run_references(arrays.upcast(inputs))
        for stage, outputs, usual in zip(self.stages, self.exact, self.usual, strict=True):
            self._refuse_other_names(stage, outputs, usual)
        places = {name: at for at, names in enumerate(self.usual) for name in names}
        taken = (_wire(stage, stage.kernel).values() for stage in self.stages)
        self.reads = tuple(tuple(sorted({places[name] for name in names if name in places})) for names in taken)
        # Of the kernels, as far as they came:
        self.outputs: list[dict[str, Any]] = []
        self.failures: list[Reason] = []
        self.strays: dict[int, int] = {}  # stage -> arrays and guard zones that it wrote into beside its outputs
        self.faults: dict[tuple[int, str], int] = {}  # of outputs: elements that are wrongly finite, or not finite

    def _run_references(self, inputs: dict[str, Any]) -> list[dict[str, Any]]:
        """The references all through, from these inputs."""
        state, results = inputs, []
        for stage in self.stages:
            taken = self.arrays.copies(take_arguments(stage, stage.reference, state, self.where))
            results.append(self._call(stage, REFERENCE, taken))
            state = add_outputs(stage, state, results[-1], self.where)
        return results

    def _call(self, stage: Stage, arm: str, taken: State) -> dict[str, Any]:
        """Outputs of a stage's kernel or reference by name. Raises StageError for whatever it raises."""
        on, function = self.on, getattr(stage, arm)
        try:
            output = function(**taken)
            on.device.synchronize()
        except Exception as error:
            if missing := not_interpreted(error):
                raise NotInterpretedError(missing) from error
            facts = {**self.where, "stage": stage.name, **on.describe(error)}
            if on.device.out_of_memory(error):
                place = f"{self.case} ({on.name}.{stage.name})"
                raise StageError("out_of_memory", **{**facts, "case": place}) from error
            given = describe_arguments(taken, _wire(stage, function), self.arrays)
            raise StageError(f"chain_{arm}_raised", **facts, given=given) from error
        return name_outputs(stage, output, self.arrays, self.where)

    def _refuse_other_names(self, stage: Stage, got: State, wanted: State) -> None:
        if set(got) != set(wanted):
            facts = {"stage": stage.name, "got": ", ".join(got), "expected": ", ".join(wanted)}
            raise StageError("chain_names", **self.where, **facts)

    # --- the kernels' run ---------------------------------------------------------------------------------------------

    def _run_kernels(self) -> bool:
        """Calls the kernels in turn until one gives what the next cannot take. Returns whether one could not run."""
        arrays = self.arrays
        state, kept = dict(self.inputs), arrays.copies(self.inputs)
        for at, stage in enumerate(self.stages):
            self.on.announce(f"stage {stage.name}", self.case)
            try:
                taken = take_arguments(stage, stage.kernel, state, self.where)
                with arrays.watch_allocations("nan") as watch:  # fresh memory is filled beforehand
                    first = self._call(stage, KERNEL, taken)
                self._refuse_other_names(stage, first, self.usual[at])
                copies = arrays.copies(first)
                for name, usual in self.usual[at].items():
                    form, wanted = _describe_form(first[name], arrays), _describe_form(usual, arrays)
                    if form != wanted:
                        takers = [
                            stage.name for stage, reads in zip(self.stages, self.reads, strict=True) if at in reads
                        ]
                        next_ = ", ".join(takers) or "-"
                        self._fail("chain_form", stage, name=name, next=next_, got=form, expected=wanted)
                        return False
                there = {name: value for name, value in state.items() if arrays.is_array(value)}
                changed = [name for name, value in there.items() if not arrays.same_bits(value, kept[name])]
                self.strays[at] = len(changed)
                if changed:
                    self._fail("chain_state_changed", stage, names=", ".join(changed))
                    kept |= arrays.copies({name: there[name] for name in changed})
                if (damage := watch.find_damage()).zones:
                    self.strays[at] += damage.zones
                    self._fail("chain_wrote_outside", stage, **damage.facts)
                state = add_outputs(stage, state, first, self.where)
            except StageError as error:
                self.failures.append(error.reason)
                return True
            kept |= copies
            self.outputs.append(copies)
        return False

    def _fail(self, kind: str, stage: Stage, **facts: Fact) -> None:
        self.failures.append(Reason(kind, {**self.where, "stage": stage.name, **facts}))

    # --- the result ---------------------------------------------------------------------------------------------------

    def check(self) -> ChainMeasured:
        """All that is known of the case, each failure once."""
        raised = self._run_kernels()
        if raised and _is_lost(self.on.device):  # whatever lies on the device is gone
            return ChainMeasured(self.case, self.seed, failures=tuple(self.failures), raised=True, lost=True)
        finite, notes = self._judge_finiteness()
        errors, others = (self.failures, []) if raised else ([], self.failures)
        stages = tuple(self._measure_stage(at, stage) for at, stage in enumerate(self.stages))
        return ChainMeasured(self.case, self.seed, stages, (*errors, *finite, *others), raised, notes)

    def _measure_stage(self, at: int, stage: Stage) -> StageMeasured:
        """What is known of a stage, and of its outputs if the kernels came so far."""
        usual = worst([self._error(value, self.exact[at][name]) for name, value in self.usual[at].items()])
        got = self.outputs[at] if at < len(self.outputs) else {}
        outputs = tuple(self._measure(at, name, got[name]) for name in got)
        return StageMeasured(stage.name, self.reads[at], usual, outputs, self.strays.get(at, 0))

    def _measure(self, at: int, name: str, array: Any) -> Output:
        """Numbers of an output of a stage that the kernels have reached."""
        exact, usual = self.exact[at][name], self.usual[at][name]
        kind, facts = self.arrays.dtype_facts(usual), self.arrays.facts(usual)
        values = self.arrays.host(exact)
        largest = float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
        so_far, plain, faults = self._error(array, exact), self._error(usual, exact), self.faults.get((at, name), 0)
        return Output(name, facts.dtype, kind.epsilon if kind else 0.0, largest, so_far, plain, faults)

    def _find_stats(self, got: Any, exact: Any) -> ErrorStats:
        return errors_of(self.arrays.compared(got), self.arrays.compared(exact)).stats

    def _error(self, got: Any, exact: Any) -> Error:
        stats = self._find_stats(got, exact)
        return Error(stats.l2, stats.max_abs)

    def _judge_finiteness(self) -> tuple[list[Reason], tuple[Reason, ...]]:
        """The first stage with a kernel that made NaN or an infinity, and the first that left the format's range."""
        arrays, notes = self.arrays, list[Reason]()
        for at, outputs in enumerate(self.outputs):
            for name, got in outputs.items():
                exact, usual = self.exact[at][name], self.usual[at][name]
                facts = arrays.facts(usual)
                if self._find_stats(got, exact).count == math.prod(facts.shape):
                    continue  # all are finite
                host = arrays.host
                values = host(got), host(exact), host(arrays.like(host(exact), usual)), host(usual)
                where = {**self.where, "stage": self.stages[at].name, "name": name}
                fault, note = judge_finiteness(values, where, facts.dtype)
                if fault:
                    self.faults[at, name] = int(fault.facts["count"] or 0)
                    return [fault], tuple(notes)
                if note and not notes:
                    notes.append(note)
        return [], tuple(notes)
