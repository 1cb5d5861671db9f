"""Reads a trace of torch.profiler (`export_chrome_trace`, .json or .json.gz) as a workload.

A call of an op is an operator, a Python function or an annotation of its name; shapes are there with
`record_shapes=True`. Only its launches and times count: "Concrete Inputs" are not read.
"""

import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from perfci.core.errors import StoredFileError, UsageError
from perfci.core.files import read_regular
from perfci.core.settings import Settings
from perfci.extensions.workloads.attribution import Activity, Heard, attribute, fill, name_kind
from perfci.extensions.workloads.records import Call, Tensor, Workload
from perfci.ops.discover import ops

_DEVICE, _HOST = {"kernel", "gpu_memcpy", "gpu_memset"}, {"cuda_runtime", "cuda_driver"}  # categories of events
_DTYPES = {
    "float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16", "long int": "int64",
    "int": "int32", "short int": "int16", "signed char": "int8", "unsigned char": "uint8", "bool": "bool",
    "c10::Float8_e4m3fn": "float8_e4m3fn", "c10::Float8_e5m2": "float8_e5m2",
}  # fmt: skip
_STEP = "ProfilerStep#"
LONGEST = 1 << 31  # bytes of a trace

Event = Mapping[str, Any]


def read_trace(path: Path, name: str, settings: Settings) -> Workload:
    """Returns what a trace has of the project's ops. Raises StoredFileError for another file, UsageError for none."""
    events = [event for event in _read(path) if event.get("ph") == "X" and "ts" in event]
    op_names = {op.op.rpartition("/")[2]: op.op for op in ops(settings)}
    forms, heard = dict[str, tuple[int, str, Event]](), list[Heard]()
    for op, event in _find_calls(events, op_names):
        form = json.dumps(
            [op, *(event.get("args", {}).get(key) for key in ("Input Dims", "Input type", "Input Strides"))]
        )
        key, *_ = forms.setdefault(form, (len(forms), op, event))
        heard.append(Heard(key, 1e3 * event["ts"], 1e3 * _find_end(event)))
    if not heard:
        raise UsageError("trace_lacks_ops", path=str(path), ops=", ".join(op_names))
    activities = list(_read_activities(events))
    on_device = any(activity.kind != "launch" for activity in activities)
    if not on_device:
        activities = [Activity("kernel", "", call.start_ns, call.end_ns) for call in heard]
    seen, steps = attribute(activities, heard), [event for event in events if str(event["name"]).startswith(_STEP)]
    marked, count = steps or events, max(len(steps), 1)
    calls = [
        Call(op, _read_arguments(event), count=taken.count, us=taken.us, kernels=taken.kernels)
        for key, op, event in forms.values()
        for taken in [seen.calls[key]]
    ]
    workload = Workload(
        name, source="torch.profiler", clock="device" if on_device else "host", steps=count,
        step_us=(max(map(_find_end, marked)) - min(event["ts"] for event in marked)) / count,
        calls=tuple(sorted(calls, key=lambda call: -(call.us or 0.0))),
    )  # fmt: skip
    return fill(workload, seen, {key: op for key, op, _ in forms.values()})


def _find_end(event: Event) -> float:
    return float(event["ts"] + event.get("dur", 0))


def _read(path: Path) -> list[Event]:
    try:
        data = read_regular(path.resolve(), LONGEST)
        whole = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
        events: list[Event] = whole["traceEvents"] if isinstance(whole, dict) else whole
        return [event for event in events if isinstance(event, dict) and "name" in event]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoredFileError("file_unreadable", path=str(path), why=f"{type(error).__name__}: {error}") from error


def _find_calls(events: list[Event], op_names: Mapping[str, str]) -> Iterator[tuple[str, Event]]:
    """Yields calls of ops that no other call contains, thread by thread."""
    ends = dict[Any, float]()
    for event in sorted(events, key=lambda event: (event["ts"], -event.get("dur", 0))):
        if event.get("cat") not in {"cpu_op", "python_function", "user_annotation"}:
            continue
        text = str(event["name"])
        op = op_names.get(text.rpartition("::")[2] if event["cat"] != "python_function" else text.rpartition(": ")[2])
        if op and event["ts"] >= ends.get(event.get("tid"), 0.0):
            ends[event.get("tid")] = _find_end(event)
            yield op, event


def _read_activities(events: list[Event]) -> Iterator[Activity]:
    made = {event["args"]["External id"]: event["name"] for event in events
            if event.get("cat") == "cpu_op" and "External id" in event.get("args", {})}  # fmt: skip
    for event in events:
        if (category := event.get("cat")) in _DEVICE | _HOST:
            kind = name_kind(str(event["name"])) if category in _DEVICE else "launch"
            args, start = event.get("args", {}), 1e3 * event["ts"]
            stream = args.get("stream", 0)
            yield Activity(kind, event["name"], start, start + 1e3 * event.get("dur", 0), args.get("correlation", 0),
                           stream if isinstance(stream, int) else 0, made.get(args.get("External id")))  # fmt: skip


def _read_arguments(event: Event) -> dict[str, Tensor | Any]:
    args = event.get("args", {})
    strides = args.get("Input Strides") or [None] * len(args.get("Input Dims", ()))
    parts = zip(args.get("Input Dims", ()), args.get("Input type", ()), strides, strict=False)
    return {
        f"input{at}": Tensor(tuple(shape), _DTYPES[kind], tuple(steps) if steps else None)
        for at, (shape, kind, steps) in enumerate(parts)
        if kind in _DTYPES and isinstance(shape, list) and all(isinstance(size, int) for size in shape)
    }
