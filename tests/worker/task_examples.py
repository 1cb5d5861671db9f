"""Tasks as tests give them to workers."""

import dataclasses
from pathlib import Path

from perfci.worker.tasks import DeviceTask, Measure, Opening, OpFiles, Place, Task

OPENING = {field.name for field in dataclasses.fields(Opening)}


def make_task(
    kind: type[Task] = Measure, ops: tuple[str, ...] = ("relu",), kernels: Path | str = "/nowhere",
    root: Path | str = ".", head_root: Path | str | None = None, **fields,
) -> Task:  # fmt: skip
    """A task for ops below one folder; fields: of the task and of how it opens the device, by default a fake one."""
    files = tuple(OpFiles(op, Path(kernels, op)) for op in ops)
    place = Place(files, Path(kernels), Path(root), None if head_root is None else Path(head_root))
    opening = {"device": "fake", "seed": 1} | {name: fields.pop(name) for name in OPENING & fields.keys()}
    return kind(place=place, **({"opening": Opening(**opening)} if issubclass(kind, DeviceTask) else {}), **fields)
