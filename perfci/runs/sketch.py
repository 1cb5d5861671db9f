"""New ops around functions that exist: a worker imports and rehearses them, and the files are made of its report."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path

from perfci.core.errors import PerfciError, UsageError
from perfci.core.model import Reason
from perfci.core.settings import Settings
from perfci.runs.bench import WorkerPlace, make_environment, open_bench
from perfci.scaffold import sketch
from perfci.scaffold.new import Draft
from perfci.worker.parent import run_worker
from perfci.worker.protocol import Job, Message, OpFiles, Sketched, SketchFiles


def draft_from_kernelgen(op: str, folder: Path, version: int | None, settings: Settings) -> Draft:
    """Returns the op's files around KernelGen's sketch in a folder, whose kernel and baseline are copied."""
    files, others = sketch.choose_files(op, folder, version)
    paths = {part: str(path.resolve()) for part, path in files.items()}
    tests = paths["accuracy"], paths["performance"]
    found = _rehearse_one(op, SketchFiles(paths["triton"], paths["baseline"], tests), settings)
    sources = {f"_{files[part].name}": _read_text(files[part]) for part in ("triton", "baseline")}
    return sketch.draft(op, dataclasses.replace(found, left=(*found.left, *others)), sources)


def draft_from_function(op: str, source: str, reference: str | None, settings: Settings) -> Draft:
    """Returns the op's files around FILE:function, FILE or PACKAGE.module:function.

    A file that can be imported by name is imported, others are copied. The function of FILE is that of its name.
    """
    files = _find_files(source, reference, settings)
    return sketch.draft(op, _rehearse_one(op, files, settings), _list_copies(files))


def draft_from_library(folder: Path, settings: Settings) -> Iterator[tuple[str, Draft | Reason]]:
    """Yields an op for each file of a folder that has a function of its name: its files, or why there are none."""
    wanted = dict[str, SketchFiles]()
    for path in sorted(folder.glob("*.py")):
        op = path.stem.lstrip("_")
        try:
            if op:
                wanted[op if op not in wanted else f"{op}_"] = _find_files(str(path), None, settings)
        except UsageError as error:
            yield op, error.reason
    while wanted:
        told, failure = _rehearse(wanted, settings)
        for each in told:
            files = wanted.pop(each.op)
            if each.sketch is not None:
                yield each.op, sketch.draft(each.op, each.sketch, _list_copies(files))
            elif each.failure:
                yield each.op, each.failure
        if failure is None:
            return
        if failure.kind == "new_needs_torch":
            raise PerfciError(failure.kind, **failure.facts)
        # The process ended with the next one. The others get a new process.
        if wanted:
            lost = next(iter(wanted))
            del wanted[lost]
            yield lost, failure


def _find_files(source: str, reference: str | None, settings: Settings) -> SketchFiles:
    place, _, name = source.rpartition(":") if ":" in source else (source, "", "")
    named = name and not place.endswith(".py") and all(map(str.isidentifier, place.split(".")))
    if not place or (name and not name.isidentifier()) or (reference and "." not in reference):
        raise UsageError("from_form", found=source)
    if named:
        return SketchFiles("", module=place, function=name, reference=reference)
    path = Path(place).resolve()
    text = _read_text(path)
    name = name or _choose_function(path, text)
    module = _find_import_name(path, settings.root)
    return SketchFiles(str(path), module=module, function=name, reference=reference)


def _choose_function(path: Path, text: str) -> str:
    """The function of a file that has its name, or that of its first overload."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError) as error:
        raise UsageError("source_unreadable", file=str(path), why=str(error)) from error
    known = [each.name for each in body if isinstance(each, ast.FunctionDef)]
    found = next((name for name in (path.stem, f"{path.stem}_Tensor") if name in known), None)
    if found is None:
        raise UsageError("from_unknown", file=path.name, function=path.stem, known=", ".join(known) or "-")
    return found


def _list_copies(files: SketchFiles) -> dict[str, str]:
    """The functions' own file, name -> text, if it cannot be imported where it lies."""
    path = Path(files.kernel)
    return {} if files.module else {f"_{path.name}": _read_text(path)}


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError("source_unreadable", file=str(path), why=str(error)) from error


def _rehearse_one(op: str, files: SketchFiles, settings: Settings) -> sketch.Sketch:
    found, failure = _rehearse({op: files}, settings)
    if failure is not None:
        raise PerfciError(failure.kind, **failure.facts)
    if found[0].sketch is None:
        assert found[0].failure is not None
        raise UsageError(found[0].failure.kind, **found[0].failure.facts)
    return found[0].sketch


def _rehearse(wanted: Mapping[str, SketchFiles], settings: Settings) -> tuple[list[Sketched], Reason | None]:
    """Asks a worker. Its working folder is a temporary one, as other people's tests may write files."""
    heard: list[Message] = []
    with open_bench(settings, heard.append) as bench:
        around = dataclasses.replace(make_environment(bench, WorkerPlace("new", "offline")), folder=bench.folder)
        ops, root = tuple(OpFiles(op, "") for op in wanted), str(settings.root)
        job = Job("sketch", ops, str(settings.kernels), "cpu", 0, root=root, sketches=tuple(wanted.values()))
        failure = run_worker(job, around, heard.append)
    return [message for message in heard if isinstance(message, Sketched)], failure


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
