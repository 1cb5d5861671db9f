"""A chain's state: its inputs and what stages gave, by name; and the ways in which a stage can misuse it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from perfci.core.model import Fact, Reason
from perfci.device.seam import Arrays
from perfci.ops.spec import Stage

State = Mapping[str, Any]

_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class StageError(Exception):
    """A stage cannot be computed; carries why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.kind)
        self.reason = reason


def names(function: Callable[..., Any]) -> list[str]:
    """Names that a stage's function takes; `*` and `**` take nothing.

    >>> names(lambda x, weight, *, eps=1e-6, **others: x)
    ['x', 'weight', 'eps']
    """
    found = inspect.signature(function).parameters.values()
    return [parameter.name for parameter in found if parameter.kind not in _REST]


def wiring(stage: Stage, function: Callable[..., Any]) -> dict[str, str]:
    """Parameter -> the name in the state that it is given."""
    return dict(stage.takes) or {name: name for name in names(function)}


def given(stage: Stage, function: Callable[..., Any], state: State, where: Mapping[str, Fact]) -> dict[str, Any]:
    """Arguments of a stage's function out of the state; raises StageError where it has no such name."""
    taken = {}
    for parameter, name in wiring(stage, function).items():
        if name in state:
            taken[parameter] = state[name]
        elif stage.takes or inspect.signature(function).parameters[parameter].default is inspect.Parameter.empty:
            known = ", ".join(state)
            raise StageError(Reason("chain_name_missing", {**where, "stage": stage.name, "name": name, "known": known}))
    return taken


def named(stage: Stage, output: Any, arrays: Arrays, where: Mapping[str, Fact]) -> dict[str, Any]:
    """A stage's outputs by the names that later stages take them by; raises StageError for anything but tensors."""
    found = dict(output) if isinstance(output, Mapping) else {stage.name: output}
    sound = all(isinstance(name, str) and name.isidentifier() and arrays.is_array(each) for name, each in found.items())
    if not found or not sound:
        kinds = ", ".join(f"{name}: {type(each).__name__}" for name, each in found.items())
        got = f"{{{kinds}}}" if isinstance(output, Mapping) else type(output).__name__
        raise StageError(Reason("chain_output", {**where, "stage": stage.name, "got": got}))
    return found


def joined(stage: Stage, state: State, outputs: State, where: Mapping[str, Fact]) -> dict[str, Any]:
    """The state with a stage's outputs; raises StageError for a name that it has already."""
    if twice := next((name for name in outputs if name in state), None):
        raise StageError(Reason("chain_name_taken", {**where, "stage": stage.name, "name": twice}))
    return {**state, **outputs}


def reads(stages: Sequence[Stage], outputs: Sequence[State]) -> tuple[tuple[int, ...], ...]:
    """For each stage the places of the stages whose outputs it takes."""
    maker = {name: at for at, each in enumerate(outputs) for name in each}
    taken = ([*wiring(stage, stage.kernel).values()] for stage in stages)
    return tuple(tuple(sorted({maker[name] for name in each if name in maker})) for each in taken)


def ends(read: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Places of the stages that no other reads: what they give is what the chain gives.

    >>> ends([(), (0,), (0,), (1, 2)]), ends([(), (0,), (0,)])
    ((3,), (1, 2))
    """
    taken = {at for each in read for at in each}
    return tuple(at for at in range(len(read)) if at not in taken)


def leading_to(read: Sequence[Sequence[int]], end: int) -> tuple[int, ...]:
    """Places of a stage and of all that it goes back to, in order.

    >>> leading_to([(), (0,), (0,), (1,)], 3)
    (0, 1, 3)
    """
    found: set[int] = set()
    waiting = [end]
    while waiting:
        at = waiting.pop()
        if at not in found:
            found.add(at)
            waiting.extend(read[at])
    return tuple(sorted(found))


def shown(values: State, wires: Mapping[str, str], makers: Mapping[str, str], arrays: Arrays) -> str:
    """Arguments in a sentence, each with the stage it came from: `q=heads.q (2, 8) float16, b=w_out (8, 8) float16`."""
    return ", ".join(_shown(values, wires, makers, arrays)) or "-"


def _shown(values: State, wires: Mapping[str, str], makers: Mapping[str, str], arrays: Arrays) -> Iterator[str]:
    for parameter, value in values.items():
        name = wires[parameter]
        maker = makers.get(name, name)
        source = name if maker == name else f"{maker}.{name}"
        label = source if parameter == source else f"{parameter}={source}"
        yield f"{label} {form(value, arrays) if arrays.is_array(value) else repr(value)}"


def form(array: Any, arrays: Arrays) -> str:
    """Shape and dtype, and the device where it is another than the case's."""
    facts = arrays.facts(array)
    place = "" if facts.device == arrays.device.partition(":")[0] else f" {facts.device}"
    return f"{facts.shape} {facts.dtype}{place}"
