"""Reads a trace of torch.profiler (`export_chrome_trace`, .json or .json.gz) as a workload.

A call of an op is an operator, a Python function or an annotation of its name; shapes are there with
`record_shapes=True`. Only its launches and times count: "Concrete Inputs" are not read.
"""

import gzip
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfci.core.codec import convert, decode
from perfci.core.errors import StoredFileError, UsageError
from perfci.core.files import read_regular
from perfci.core.model import Amount, Whole
from perfci.core.settings import Settings
from perfci.extensions.workloads.attribution import Activity, Heard, attribute, fill, name_kind
from perfci.extensions.workloads.records import Call, Tensor, Workload
from perfci.ops.backends import MARK
from perfci.ops.discover import ops

_DEVICE, _HOST = {"kernel", "gpu_memcpy", "gpu_memset"}, {"cuda_runtime", "cuda_driver"}  # categories of events
_CALLS = {"cpu_op", "python_function", "user_annotation"}
_DTYPES = {
    "float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16", "long int": "int64",
    "int": "int32", "short int": "int16", "signed char": "int8", "unsigned char": "uint8", "bool": "bool",
    "c10::Float8_e4m3fn": "float8_e4m3fn", "c10::Float8_e5m2": "float8_e5m2",
}  # fmt: skip
_ARGS = {"Input Dims": "dims", "Input type": "types", "Input Strides": "strides", "External id": "external"}
_STEP = "ProfilerStep#"
LONGEST = 1 << 31  # bytes of a trace


@dataclass(frozen=True)
class Event:
    """What counts of an event. Times are microseconds."""

    cat: str
    name: str
    ts: Amount
    dur: Amount = 0.0
    tid: int | str = 0
    correlation: Whole = 0
    external: Whole | None = None
    stream: int | str = 0
    dims: tuple[Any, ...] = ()
    types: tuple[Any, ...] = ()
    strides: tuple[Any, ...] = ()

    @property
    def end(self) -> float:
        """When it ended."""
        return self.ts + self.dur


def read_trace(path: Path, name: str, settings: Settings) -> Workload:
    """Returns what a trace has of the project's ops. Raises StoredFileError for another file, UsageError for none."""
    events = _read(path)
    op_names = {op.op.rpartition("/")[2]: op.op for op in ops(settings)}
    forms, heard = dict[str, tuple[int, str, Event]](), list[Heard]()
    for op, event in _find_calls(events, op_names):
        key, *_ = forms.setdefault(repr((op, event.dims, event.types, event.strides)), (len(forms), op, event))
        heard.append(Heard(key, 1e3 * event.ts, 1e3 * event.end))
    if not heard:
        raise UsageError("trace_lacks_ops", path=str(path), ops=", ".join(op for op in op_names if MARK not in op))
    activities = list(_read_activities(events))
    on_device = any(activity.kind != "launch" for activity in activities)
    if not on_device:
        activities = [Activity("kernel", "", call.start_ns, call.end_ns) for call in heard]
    seen, steps = attribute(activities, heard), [event for event in events if event.name.startswith(_STEP)]
    marked, count = steps or events, max(len(steps), 1)
    calls = [
        Call(op, _read_arguments(event), count=taken.count, us=taken.us, kernels=taken.kernels)
        for key, op, event in forms.values()
        for taken in [seen.calls[key]]
    ]
    workload = Workload(
        name, source="torch.profiler", clock="device" if on_device else "host", steps=count,
        step_us=(max(event.end for event in marked) - min(event.ts for event in marked)) / count,
        calls=tuple(sorted(calls, key=lambda call: -(call.us or 0.0))),
    )  # fmt: skip
    return fill(workload, seen, {key: op for key, op, _ in forms.values()})


def _read(path: Path) -> list[Event]:
    try:
        data = read_regular(path.resolve(), LONGEST)
        whole = decode(gzip.decompress(data) if path.suffix == ".gz" else data, dict[str, Any] | list[Any])  # type: ignore[arg-type]
        events = whole["traceEvents"] if isinstance(whole, dict) else whole
        return [_read_event(event) for event in events if event.get("cat") in _DEVICE | _HOST | _CALLS]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, zlib.error) as error:
        raise StoredFileError("file_unreadable", path=str(path), why=f"{type(error).__name__}: {error}") from error


def _read_event(event: Mapping[str, Any]) -> Event:
    told = {_ARGS.get(name, name): value for name, value in event.get("args", {}).items()}
    return convert(told | {name: event[name] for name in ("cat", "name", "ts", "dur", "tid") if name in event}, Event)


def _find_calls(events: list[Event], op_names: Mapping[str, str]) -> Iterator[tuple[str, Event]]:
    """Yields calls of ops that no other call contains, thread by thread."""
    ends = dict[Any, float]()
    for event in sorted(events, key=lambda event: (event.ts, -event.dur)):
        if event.cat in _CALLS:
            separator = ": " if event.cat == "python_function" else "::"
            op = op_names.get(event.name.rpartition(separator)[2])
            if op and event.ts >= ends.get(event.tid, 0.0):
                ends[event.tid] = event.end
                yield op, event


def _read_activities(events: list[Event]) -> Iterator[Activity]:
    made = {event.external: event.name for event in events if event.cat == "cpu_op"}
    for event in events:
        if event.cat not in _CALLS:
            kind = name_kind(event.name) if event.cat in _DEVICE else "launch"
            stream = event.stream if isinstance(event.stream, int) else 0
            yield Activity(kind, event.name, 1e3 * event.ts, 1e3 * event.end, event.correlation, stream,
                           made.get(event.external) if event.external else None)  # fmt: skip


def _read_arguments(event: Event) -> dict[str, Tensor]:
    strides = event.strides or (None,) * len(event.dims)
    return {
        f"input{at}": Tensor(tuple(shape), _DTYPES[kind], tuple(steps) if _are_sizes(steps) and steps else None)
        for at, (shape, kind, steps) in enumerate(zip(event.dims, event.types, strides, strict=False))
        if isinstance(kind, str) and kind in _DTYPES and _are_sizes(shape)
    }


def _are_sizes(given: object) -> bool:
    return isinstance(given, list) and all(type(size) is int and size >= 0 for size in given)
