"""Workloads of other forms: a trace of torch.profiler (`export_chrome_trace`, .json or .json.gz), flashinfer-trace.

In a trace a call of an op is an operator, a Python function or an annotation of its name; shapes are there with
`record_shapes=True`. Only its launches and times count: "Concrete Inputs" are not read.

flashinfer-trace is `definitions/**/*.json` and `workloads/**/*.jsonl` of flashinfer-bench, read and written. A
definition has axes, constant or variable, tensors by the names of their axes, and a reference in Python; a workload has
values of the variable axes. Tensors with stored content (safetensors) count by their shapes alone.
"""

import gzip
import hashlib
import json
import re
import uuid
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfci.core.codec import convert, decode
from perfci.core.errors import StoredFileError, UsageError
from perfci.core.files import read_regular
from perfci.core.model import Amount, Fact, Whole
from perfci.core.settings import Settings
from perfci.extensions.workloads.attribution import Activity, Heard, attribute, fill, name_kind
from perfci.extensions.workloads.records import Call, Tensor, Workload, merge_calls, write_params
from perfci.ops.backends import MARK
from perfci.ops.discover import ops
from perfci.store.files import write_together

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


_CONSTANTS = re.compile(r"(_[a-z]+\d+)+$|_[0-9a-f]{8}$")  # gemm_n128_k2048: what a name says of constant axes
Json = dict[str, Any]


def read_folder(folder: Path, name: str, settings: Settings) -> Workload:
    """Returns all workloads of a folder as calls without times. An op is that of a definition's name, rmsnorm_h512.

    A case has the definition's axes and dtype for its parameters. Raises StoredFileError for a file that is none, and
    UsageError if there are no workloads.
    """
    op_names = {op.op.rpartition("/")[2].replace("_", ""): op.op for op in ops(settings)}
    definitions = {
        text["name"]: text for path in sorted(folder.rglob("definitions/**/*.json")) for text in _read_objects(path)
    }
    paths = sorted(folder.rglob("workloads/**/*.jsonl"))
    calls = merge_calls(_read_call(path, line, definitions, op_names) for path in paths for line in _read_objects(path))
    if not calls:
        raise UsageError("trace_lacks_workloads", path=str(folder))
    return Workload(name, source="flashinfer-trace", calls=calls)


def _read_objects(path: Path) -> Iterator[Json]:
    """Yields the objects of a file, one a line of .jsonl."""
    try:
        text = read_regular(path.resolve()).decode()
        yield from map(json.loads, filter(str.strip, text.splitlines()) if path.suffix == ".jsonl" else [text])
    except (OSError, ValueError) as error:
        raise StoredFileError("file_unreadable", path=str(path), why=str(error)) from error


def _read_call(path: Path, line: Json, definitions: Mapping[str, Json], op_names: Mapping[str, str]) -> Call:
    try:
        definition, workload = definitions[line["definition"]], line["workload"]
        axes = {name: workload["axes"].get(name, axis.get("value")) for name, axis in definition["axes"].items()}
        arguments = {name: _read_argument(tensor, axes, workload["inputs"].get(name, {}))
                     for name, tensor in definition["inputs"].items()}  # fmt: skip
        outputs = [_read_argument(tensor, axes, {}) for tensor in definition["outputs"].values()]
    except (KeyError, TypeError, AttributeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise StoredFileError("file_unreadable", path=str(path), why=why) from error
    stem = _CONSTANTS.sub("", definition["name"])
    dtype = next((value.dtype for value in arguments.values() if isinstance(value, Tensor)), "float32")
    params = ", ".join((write_params(axes), f"dtype=torch.{dtype}"))
    return Call(op_names.get(stem.replace("_", ""), stem), arguments,
                tuple(output for output in outputs if isinstance(output, Tensor)), params=params)  # fmt: skip


def _read_argument(tensor: Json, axes: Mapping[str, int], given: Json) -> Tensor | Fact:
    if tensor["shape"] is None:
        value = given.get("value")
        return value if isinstance(value, bool | int | float) else None
    return Tensor(tuple(int(axes[axis]) for axis in tensor["shape"]), tensor["dtype"])


def write_folder(workload: Workload, folder: Path, settings: Settings) -> None:
    """Write a workload's calls: a definition for each op and way to call it, and a workload for each call.

    Strides, counts and times have no place there. Raises StoredFileError.
    """
    references = {op.op: op.folder / f"{op.name}_baseline.py" for op in ops(settings)}
    files, lines = dict[Path, bytes](), dict[Path, list[str]]()
    for call in workload.calls:
        inputs = {name: value for name, value in call.arguments.items() if isinstance(value, Tensor)}
        tensors = inputs | {f"out{at}": output for at, output in enumerate(call.outputs)}
        scalars = {name: one for name, one in call.arguments.items() if isinstance(one, bool | int | float)}
        definition = _make_definition(call, tensors, scalars, references.get(call.op))
        name, place = definition["name"], call.op.replace("/", "_")
        axes = {f"{tensor}_{axis}": size for tensor in tensors for axis, size in enumerate(tensors[tensor].shape)}
        given: Json = {tensor: {"type": "random"} for tensor in inputs}
        given |= {scalar: {"type": "scalar", "value": value} for scalar, value in scalars.items()}
        number = str(uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([name, axes, given], sort_keys=True)))
        whole = {"axes": axes, "inputs": given, "uuid": number}
        line = json.dumps({"definition": name, "solution": None, "evaluation": None, "workload": whole})
        files[folder / "definitions" / place / f"{name}.json"] = f"{json.dumps(definition, indent=2)}\n".encode()
        lines.setdefault(folder / "workloads" / place / f"{name}.jsonl", []).append(line)
    write_together(files | {path: ("\n".join(texts) + "\n").encode() for path, texts in lines.items()})


def _make_definition(call: Call, tensors: Mapping[str, Tensor], scalars: Json, reference: Path | None) -> Json:
    """Each side of each tensor is a variable axis. Words and None are written into the reference's call."""
    op, kinds = call.op.rpartition("/")[2], {bool: "bool", int: "int64", float: "float32"}
    sides = {name: [f"{name}_{axis}" for axis in range(len(tensor.shape))] for name, tensor in tensors.items()}
    specs: Json = {name: {"shape": sides[name], "dtype": tensor.dtype} for name, tensor in tensors.items()}
    specs |= {name: {"shape": None, "dtype": kinds[type(value)]} for name, value in scalars.items()}
    given = [f"{name}={name}" if name in specs else f"{name}={value!r}" for name, value in call.arguments.items()]
    code = read_regular(reference.resolve()).decode() if reference and reference.exists() else ""
    body = f"return {op}({', '.join(given)})" if code else f'raise NotImplementedError("{op}")'
    inputs, outputs = ({name: one for name, one in specs.items() if (name in call.arguments) is is_input}
                       for is_input in (True, False))  # fmt: skip
    form = {"op_type": op, "axes": {axis: {"type": "var"} for axes in sides.values() for axis in axes},
            "inputs": inputs, "outputs": outputs,
            "reference": f"{code}\n\ndef run({', '.join(inputs)}):\n    {body}\n"}  # fmt: skip
    digest = hashlib.sha256(json.dumps(form, sort_keys=True).encode()).hexdigest()[:8]
    return {"name": f"{op}_{digest}", **form}
