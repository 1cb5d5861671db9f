"""A workload: what a model calls of a project's ops, how often, and what share of its time that takes.

It lies in `_workloads/<name>.json` of the kernels folder, so that ops with cases of it depend on it. It has shapes,
dtypes, strides and flags, and never the content of a tensor.
"""

import ast
import functools
import itertools
import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from perfci.core.errors import UsageError
from perfci.core.model.basics import Amount, Change, Count, Fact, Launches, Reason, Whole
from perfci.core.model.place import Device, DeviceState, Limits
from perfci.core.model.run import FORMAT
from perfci.measure.power import HELD
from perfci.ops.spec import case_id
from perfci.store.files import decode, encode, refuse_to_overwrite_unreadable, write_atomically

FOLDER = "_workloads"  # in the kernels folder. It is no op, since its name begins with an underscore
Clock = Literal["device", "host", "none"]


@dataclass(frozen=True)
class Tensor:
    """What is recorded of a tensor."""

    shape: tuple[Count, ...]
    dtype: str  # float16
    strides: tuple[Whole, ...] | None = None  # None: contiguous

    @property
    def bytes(self) -> int:
        """What its elements take, by the number of bits in its dtype's name."""
        bits = re.search(r"\d+", self.dtype)
        return math.prod(self.shape) * (int(bits[0]) if bits else 8) // 8


Value = Tensor | tuple[Fact, ...] | Fact  # what is recorded of an argument: a form, or a flag


@dataclass(frozen=True)
class Call:
    """All calls of an op with the same arguments."""

    op: str
    arguments: Mapping[str, Value] = field(default_factory=dict)
    outputs: tuple[Tensor, ...] = ()
    count: Launches = 1  # in all recorded steps
    us: Amount | None = None
    """what all of them took together: of the device, or of the host where that computes. None if no one timed them"""
    kernels: Count = 0  # kernels, copies and memsets of all of them together
    params: str | None = None
    """of the case that they are, as the op's make_inputs takes them: rows=4096, dtype=torch.float16. None: not known"""
    bytes_moved: Count | None = None  # of one call, as the op declares them
    flops: Count | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for parameters that are none."""
        read_params(self.params)

    @functools.cached_property
    def case(self) -> str | None:
        """The id of the case that they are."""
        return None if self.params is None else case_id(read_params(self.params))

    @property
    def dtype(self) -> str | None:
        """Of the first tensor of floating-point numbers, else of any."""
        dtypes = [value.dtype for value in self.arguments.values() if isinstance(value, Tensor)]
        return next((dtype for dtype in dtypes if "float" in dtype), dtypes[0] if dtypes else None)

    @property
    def least_bytes(self) -> int:
        """What must move: as declared, else all inputs and outputs once."""
        tensors = [value for value in self.arguments.values() if isinstance(value, Tensor)]
        return self.bytes_moved or sum(tensor.bytes for tensor in (*tensors, *self.outputs))


@dataclass(frozen=True)
class Other:
    """What else the device ran: launches by no op of the project."""

    name: str  # of the kernel
    kind: str = "kernel"  # kernel, copy, memset, communication
    by: str | None = None  # who launches it: aten::mul, a graph. None if that was not recorded
    count: Launches = 1
    us: Amount = 0.0


@dataclass(frozen=True)
class Slice:
    """A part of a step's time line, microseconds since its first activity."""

    start_us: Amount
    us: Amount
    stream: Count
    name: str  # op, or kernel of no op


@dataclass(frozen=True)
class Workload:
    """What was recorded of a model."""

    name: str
    created: str = ""  # ISO 8601, UTC
    source: str = "record"  # record, torch.profiler or flashinfer-trace
    device: Device | None = None
    packages: Mapping[str, str] = field(default_factory=dict)
    clock: Clock = "none"  # whose time it is: of the device, of the host, or no time at all
    steps: Launches = 1  # that are counted
    step_us: Amount | None = None  # of one step by the host's clock, while nothing was recorded if that is known
    recorded_us: Amount | None = None  # of one step while it was recorded
    busy_us: Amount = 0.0  # of all steps: the device did something
    overlap_us: Amount = 0.0  # of all steps: it did several things at once
    gaps: Count = 0  # of all steps: times when it waited for the host
    longest_gap_us: Amount = 0.0
    limits: Limits = field(default_factory=Limits)
    state: DeviceState | None = None  # of the device while steps ran: medians. None if nothing told it
    free_mhz: Amount | None = None  # highest clock of its processors
    calls: tuple[Call, ...] = ()
    others: tuple[Other, ...] = ()
    timeline: tuple[Slice, ...] = ()  # of one step
    notes: tuple[Reason, ...] = ()
    format: int = FORMAT

    @property
    def total_us(self) -> float:
        """Of all steps: what shares are of. 0 if nothing was timed. Recording lengthens calls as the host has them."""
        return self.steps * ((self.recorded_us if self.clock == "host" else None) or self.step_us or 0.0)

    @property
    def overhead(self) -> Change | None:
        """What recording added to a step, ratio - 1. None if it was not measured."""
        recorded, plain = self.recorded_us, self.step_us
        return recorded / plain - 1 if recorded and plain and recorded != plain else None

    @property
    def idle(self) -> float:
        """Share of the time in which the device waits."""
        return max(0.0, 1 - self.busy_us / self.total_us) if self.total_us and self.clock == "device" else 0.0

    @property
    def held(self) -> bool | None:
        """Whether the power limit holds the clock down while it runs. None if that is not known."""
        if not self.state or not self.state.sm_clock_mhz or not self.free_mhz:
            return None
        return self.state.sm_clock_mhz < HELD * self.free_mhz and "power_cap" in self.state.throttle

    def describe_clock(self) -> Reason:
        """The clock while it ran, and what held it down."""
        state, free_mhz = self.state or DeviceState(), round(self.free_mhz or 0.0)
        facts = {"model": self.name, "clock_mhz": state.sm_clock_mhz, "free_mhz": free_mhz}
        return Reason("model_held" if self.held else "model_clock", facts)

    @functools.cached_property
    def gap_us(self) -> float:
        """The median time from the end of a launch to the begin of the next. 0 without a time line."""
        parts = sorted(self.timeline, key=lambda part: part.start_us)
        ends = itertools.accumulate((part.start_us + part.us for part in parts), max)
        gaps = [max(0.0, part.start_us - end) for part, end in zip(parts[1:], ends, strict=False)]
        return statistics.median(gaps) if gaps else 0.0

    def share(self, us: float | None) -> float:
        """Share of the model's time."""
        return (us or 0.0) / self.total_us if self.total_us else 0.0

    def by_op(self) -> Mapping[str, Sequence[Call]]:
        """The calls of each op, the op that takes most time first."""
        groups: dict[str, list[Call]] = {}
        for call in self.calls:
            groups.setdefault(call.op, []).append(call)
        return dict(sorted(groups.items(), key=lambda item: -sum(call.us or 0.0 for call in item[1])))


def merge_calls(calls: Iterable[Call]) -> tuple[Call, ...]:
    """Returns calls with the same tensors and the same case, or the same flags, as one. The first has its flags."""
    merged: dict[str, Call] = {}
    for call in calls:
        tensors = {name: value for name, value in call.arguments.items() if isinstance(value, Tensor)}
        key = repr((call.op, call.params, tensors if call.params else call.arguments))
        before = merged.get(key)
        merged[key] = call if before is None else replace(
            before, us=None if call.us is None else call.us + (before.us or 0.0),
            count=before.count + call.count, kernels=before.kernels + call.kernels,
        )  # fmt: skip
    return tuple(merged.values())


def read_params(text: str | None) -> dict[str, Any]:
    """Returns parameters as Python has them. A dtype stays a text, so that no torch is needed. Raises ValueError.

    >>> read_params("rows=4096, dtype=torch.float16")
    {'rows': 4096, 'dtype': 'torch.float16'}
    """
    try:
        call = ast.parse(f"case({text or ''})", mode="eval").body
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"no parameters: {text}") from error
    values = {keyword.arg: keyword.value for keyword in call.keywords} if isinstance(call, ast.Call) else {}
    return {
        str(name): ast.unparse(value) if isinstance(value, ast.Attribute) else ast.literal_eval(value)
        for name, value in values.items()
    }


def write_params(params: Mapping[str, Any]) -> str:
    """Returns them as a text."""
    return ", ".join(f"{name}={value!r}" for name, value in params.items())


def find_path(kernels: Path, name: str) -> Path:
    """Where a workload is stored. Raises UsageError for a name that is none of a file."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise UsageError("workload_name", name=name)
    return kernels / FOLDER / f"{name}.json"


def list_workloads(kernels: Path) -> list[Path]:
    """Returns the files of a kernels folder's workloads."""
    return sorted((kernels / FOLDER).glob("[!._]*.json"))


def read_workload(kernels: Path, name: str) -> Workload:
    """Returns a stored workload. Raises UsageError if there is none of this name, with those that there are."""
    path = find_path(kernels, name)
    if not path.exists():
        names = ", ".join(other.stem for other in list_workloads(kernels))
        raise UsageError("workload_missing", name=name, known=names or None)
    return decode(path, Workload)


def write_workload(kernels: Path, workload: Workload) -> Path:
    """Store a workload, in place of an earlier one of its name. Raises StoredFileError."""
    path = find_path(kernels, workload.name)
    refuse_to_overwrite_unreadable(path)
    return write_atomically(path, encode(workload, path))
