"""Reads and writes flashinfer-trace: `definitions/**/*.json` and `workloads/**/*.jsonl` of flashinfer-bench.

A definition has axes, constant or variable, tensors by the names of their axes, and a reference in Python; a workload
has values of the variable axes. Tensors with stored content (safetensors) count by their shapes alone.
"""

import hashlib
import json
import re
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from perfci.core.errors import StoredFileError, UsageError
from perfci.core.files import read_regular
from perfci.core.model import Fact
from perfci.core.settings import Settings
from perfci.extensions.workloads.records import Call, Tensor, Workload, merge_calls, write_params
from perfci.ops.discover import ops
from perfci.store.files import write_together

_CONSTANTS = re.compile(r"(_[a-z]+\d+)+$|_[0-9a-f]{8}$")  # gemm_n128_k2048: what a name says of constant axes
Json = dict[str, Any]


def read_folder(folder: Path, name: str, settings: Settings) -> Workload:
    """Returns all workloads of a folder as calls without times. An op is that of a definition's name, rmsnorm_h512.

    A case has the definition's axes and dtype for its parameters. Raises StoredFileError for a file that is none, and
    UsageError if there are no workloads.
    """
    op_names = {op.op.rpartition("/")[2].replace("_", ""): op.op for op in ops(settings)}
    definitions = {text["name"]: text for path in sorted(folder.rglob("definitions/**/*.json")) for text in _read(path)}
    paths = sorted(folder.rglob("workloads/**/*.jsonl"))
    calls = merge_calls(_read_call(path, line, definitions, op_names) for path in paths for line in _read(path))
    if not calls:
        raise UsageError("trace_lacks_workloads", path=str(folder))
    return Workload(name, source="flashinfer-trace", calls=calls)


def _read(path: Path) -> Iterator[Json]:
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
