"""A new op around functions that exist: a worker imports and rehearses them, and the files are made of its report."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path

from perfci.core.errors import PerfciError, UsageError
from perfci.core.settings import Settings
from perfci.runs.bench import WorkerPlace, make_environment, open_bench
from perfci.scaffold import sketch
from perfci.scaffold.new import Draft
from perfci.worker.parent import run_worker
from perfci.worker.protocol import Job, Message, OpFiles, SketchFiles


def draft_from_kernelgen(op: str, folder: Path, version: int | None, settings: Settings) -> Draft:
    """Returns the op's files around KernelGen's sketch in a folder, whose kernel and baseline are copied."""
    files, others = sketch.choose_files(op, folder, version)
    paths = {part: str(path.resolve()) for part, path in files.items()}
    tests = paths["accuracy"], paths["performance"]
    found = _rehearse(op, SketchFiles(paths["triton"], paths["baseline"], tests), settings)
    sources = {f"_{files[part].name}": _read_text(files[part]) for part in ("triton", "baseline")}
    return sketch.draft(op, dataclasses.replace(found, left=(*found.left, *others)), sources)


def draft_from_function(op: str, source: str, reference: str | None, settings: Settings) -> Draft:
    """Returns the op's files around FILE:function. A file that can be imported by name is imported, others copied."""
    file, _, name = source.rpartition(":")
    if not file or not name.isidentifier():
        raise UsageError("from_form", found=source)
    if reference is None or "." not in reference:
        raise UsageError("from_without_reference", found=source)
    path = Path(file).resolve()
    text = _read_text(path)
    module = _find_import_name(path, settings.root)
    found = _rehearse(op, SketchFiles(str(path), module=module, function=name, reference=reference), settings)
    return sketch.draft(op, found, {} if module else {f"_{path.name}": text})


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError("source_unreadable", file=str(path), why=str(error)) from error


def _rehearse(op: str, files: SketchFiles, settings: Settings) -> sketch.Sketch:
    """Asks a worker. Its working folder is a temporary one, as other people's tests may write files."""
    heard: list[Message] = []
    with open_bench(settings, heard.append) as bench:
        around = dataclasses.replace(make_environment(bench, WorkerPlace("new", "offline")), folder=bench.folder)
        job = Job("sketch", (OpFiles(op, ""),), str(settings.kernels), "cpu", 0, root=str(settings.root), sketch=files)
        failure = run_worker(job, around, heard.append)
    if failure is not None:
        raise PerfciError(failure.kind, **failure.facts)
    return next(message for message in heard if isinstance(message, sketch.Sketch))


def _find_import_name(path: Path, project: Path) -> str | None:
    """The module's name, if the file is the project's and this Python would import this very file by it."""
    root = path.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    parts = path.relative_to(root).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    # The current folder may be on the search path only because perfci was started there.
    outside = not path.is_relative_to(project) or root == Path.cwd()
    if outside or not parts or not all(part.isidentifier() for part in parts):
        return None
    found = importlib.util.find_spec(parts[0])
    own = {root / f"{parts[0]}.py", root / parts[0] / "__init__.py"}
    return ".".join(parts) if found and found.origin and Path(found.origin).resolve() in own else None
