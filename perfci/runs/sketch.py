"""A new op around functions that exist: a worker imports and rehearses them, and the files are made of its report."""

from __future__ import annotations

import dataclasses
import importlib.machinery
import sys
from pathlib import Path

from perfci.core.errors import PerfciError, UsageError
from perfci.core.settings import Settings
from perfci.runs.bench import WorkerPlace, make_environment, open_bench
from perfci.scaffold import kernelgen, sketch
from perfci.scaffold.new import Draft
from perfci.worker.parent import run_worker
from perfci.worker.protocol import Job, Message, OpFiles, SketchFiles


def draft_from_kernelgen(op: str, folder: Path, version: int | None, settings: Settings) -> Draft:
    """The op's files around KernelGen's sketch in a folder, whose kernel and baseline are copied as they are."""
    found, others = kernelgen.choose(op, folder, version)
    paths = {part: path.resolve() for part, path in found.files.items()}
    tests = tuple(str(paths[part]) for part in ("accuracy", "performance"))
    said = _rehearse(op, SketchFiles(str(paths["triton"]), str(paths["baseline"]), tests), settings)
    sources = {f"_{paths[part].name}": _read_text(paths[part]) for part in ("triton", "baseline")}
    return sketch.draft(op, dataclasses.replace(said, left=(*said.left, *others)), sources)


def draft_from_function(op: str, source: str, reference: str | None, settings: Settings) -> Draft:
    """The op's files around FILE:function.

    A file of the project that this Python can import by name is imported, so that what is checked is what ships. Any
    other file is copied as it is.
    """
    file, colon, name = source.rpartition(":")
    if not colon or not file or not name.isidentifier():
        raise UsageError("from_form", found=source)
    if reference is None:
        raise UsageError("from_without_reference", found=source)
    parts = reference.split(".")
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        raise UsageError("reference_form", found=reference)
    path = Path(file).resolve()
    text = _read_text(path)
    module = _find_import_name(path, settings.root)
    said = _rehearse(op, SketchFiles(str(path), module=module, function=name, reference=reference), settings)
    return sketch.draft(op, said, {} if module else {f"_{path.name}": text})


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UsageError("source_missing", file=str(path)) from error
    except (OSError, ValueError) as error:
        raise UsageError("source_unreadable", file=str(path), why=str(error)) from error


def _rehearse(op: str, files: SketchFiles, settings: Settings) -> sketch.Sketch:
    """What a worker finds out. Its working folder is a temporary one, as other people's tests may write files."""
    heard: list[Message] = []
    with open_bench(settings, heard.append) as bench:
        around = make_environment(bench, WorkerPlace("new", "offline"))
        hidden = {"CUDA_VISIBLE_DEVICES": "", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        around = dataclasses.replace(around, environment={**around.environment, **hidden}, folder=bench.folder)
        job = Job("sketch", (OpFiles(op, ""),), str(settings.kernels), "cpu", 0, root=str(settings.root), sketch=files)
        failure = run_worker(job, around, heard.append)
    if failure is not None:
        raise PerfciError(failure.kind, **failure.facts)
    return next(message for message in heard if isinstance(message, sketch.Sketch))


def _find_import_name(path: Path, project: Path) -> str | None:
    """The module's name, if the file is the project's and this Python would import this very file by it."""
    if not path.is_relative_to(project):
        return None
    root = path.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    parts = path.relative_to(root).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    if not parts or not all(part.isidentifier() for part in parts):
        return None
    places = sys.path[1:] if sys.path[:1] in ([""], [str(Path.cwd())]) else sys.path
    others = (finder for finder in sys.meta_path if finder is not importlib.machinery.PathFinder)
    specs = [importlib.machinery.PathFinder.find_spec(parts[0], places)]
    specs += [finder.find_spec(parts[0], None) for finder in others if hasattr(finder, "find_spec")]
    origins = [Path(spec.origin).resolve() for spec in specs if spec and spec.origin and spec.has_location]
    own = {root / f"{parts[0]}.py", root / parts[0] / "__init__.py"}
    return ".".join(parts) if own.intersection(origins) else None
