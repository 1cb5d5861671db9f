"""A kernel's call as data: what it does on the device, so that another process repeats it without the op's Python."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

DRIVER = "driver."  # what names of operations begin with that an extension takes down and repeats


@dataclass(frozen=True)
class RecordedBinary:
    """A compiled kernel and what a launch of it needs."""

    function: str  # its name in the source
    image: bytes  # cubin
    metadata: str  # Triton's own or the extension's, JSON
    signature: tuple[tuple[str, Any], ...]  # parameter -> its type, nested for tuples. Empty without Triton


@dataclass(frozen=True)
class RecordedStep:
    """One launch, or one operation of torch. Values are as in `Recording`."""

    operation: str = ""  # aten.add.Tensor, or of the driver. Empty for a launch of Triton's
    binary: int = -1  # of a launch: which of the recording's
    grid: tuple[int, int, int] = (1, 1, 1)
    given: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)
    gives: Any = None


@dataclass(frozen=True)
class Recording:
    """One call: a binary program of launches and operations on numbered tensors.

    A value is a number, a text, null, a list, or a mapping with one key that names another kind: {"tensor": 3},
    {"torch": "float16"}, {"device": "cuda"}, {"float": "inf"}, {"tuple": [...]}, {"mapping": {...}}, and of a kernel's
    parameters {"constant": "128"} and {"descriptor": {...}}.
    """

    key: str  # all that the call was given but the arrays' content: another call needs another recording
    inputs: tuple[Any, ...]  # values of the arguments, in the order of their names
    steps: tuple[RecordedStep, ...]
    output: Any
    binaries: tuple[RecordedBinary, ...] = ()
    choices: tuple[str, ...] = ()  # of autotuners


class UnspelledError(Exception):
    """A value that has no spelling: the message names it."""


def spell(value: Any, special: Callable[[Any], Any]) -> Any:
    """A value as JSON. `special` spells what is neither number, text, list nor mapping, and gives None if it cannot."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"float": repr(value)}
        case Mapping():
            return {"mapping": {str(key): spell(item, special) for key, item in value.items()}}
        case list() | tuple() if type(value) in {list, tuple}:
            spelled = [spell(item, special) for item in value]
            return {"tuple": spelled} if isinstance(value, tuple) else spelled
    spelled = special(value)
    if spelled is None:
        raise UnspelledError(f"a value of type {type(value).__name__}")
    return spelled


def unspell(value: Any, special: Callable[[Mapping[str, Any]], Any]) -> Any:
    """The value that was spelled. `special` gives what only the speller's `special` knows."""
    if isinstance(value, list | tuple):
        return [unspell(inner_value, special) for inner_value in value]
    if not isinstance(value, Mapping):
        return value
    ((kind, inner),) = value.items()
    match kind:
        case "float":
            return float(inner)
        case "tuple":
            return tuple(unspell(part, special) for part in inner)
        case "mapping":
            return {key: unspell(part, special) for key, part in inner.items()}
    return special(value)
