"""New ops around functions that exist: a worker imports and rehearses them, and the files are made of its report."""

import ast
import dataclasses
import importlib.util
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from perfci.core.errors import PerfciError, UsageError
from perfci.core.model import Reason
from perfci.core.settings import Settings
from perfci.runs.bench import WorkerPlace, make_environment, open_bench
from perfci.scaffold import sketch
from perfci.scaffold.new import Draft
from perfci.worker.parent import run_worker
from perfci.worker.protocol import Job, Message, OpFiles, Sketched, SketchFiles

_SIDES = re.compile(r"_baseline$|(^|_)test(_|$)|_(accuracy|performance)$")
_VERSION = re.compile(r"_v\d+_triton")


def name_op(source: str) -> str:
    """Returns the usual name of an op: the function's, or the file's without version and `_triton`."""
    name = Path(source.rpartition(":")[2]).stem
    return re.sub(r"(_v\d+)?(_triton)?$", "", name).lstrip("_")


def draft_from_function(
    op: str, source: str, reference: str | None, settings: Settings, tests: Sequence[Path] = ()
) -> Draft:
    """Returns the op's files around FILE:function, FILE or PACKAGE.module:function.

    A file that can be imported by name is imported, others are copied. The function of FILE is that of its name.
    """
    files = find_files(source, reference, settings, tests)
    return sketch.draft(op, _rehearse_one(op, files, settings), _list_copies(files))


def draft_from_library(
    folder: Path, settings: Settings, tests: Sequence[Path] = ()
) -> Iterator[tuple[str, Draft | Reason]]:
    """Yields an op for each file of a folder that has a function of its name: its files, or why there are none."""
    wanted = dict[str, SketchFiles]()
    for path in sorted(folder.glob("*.py"), key=lambda path: [(len(part), part) for part in path.stem.split("_")]):
        op = name_op(path.name)
        try:
            if op and not _SIDES.search(path.stem):
                # The newest version of several, and a function that works in place has a name of its own.
                newer = _VERSION.search(path.stem) and op in wanted and _VERSION.search(wanted[op].kernel)
                wanted[op if newer or op not in wanted else f"{op}_"] = find_files(str(path), None, settings, tests)
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


def find_files(source: str, reference: str | None, settings: Settings, tests: Sequence[Path] = ()) -> SketchFiles:
    """Returns the files that --from, --reference and --tests name, and those that lie beside FILE."""
    place, _, name = source.rpartition(":") if ":" in source else (source, "", "")
    named = name and not place.endswith(".py") and all(map(str.isidentifier, place.split(".")))
    if not place or (name and not name.isidentifier()):
        raise UsageError("from_form", found=source)
    path = Path(place).resolve()
    if not named:
        _read_text(path)
    beside = path.with_name(f"{path.stem.removesuffix('_triton')}_baseline.py")
    baseline = None
    if reference is None and beside.is_file() and beside != path and not named:
        baseline, reference = str(beside), _choose_function(beside, name or name_op(path.name))
    elif reference and ".py" in reference:
        file, _, wanted = reference.partition(":")
        baseline, reference = str(Path(file).resolve()), wanted or _choose_function(Path(file), name)
    elif reference and "." not in reference:
        raise UsageError("from_form", found=reference)
    given = [
        str(found.resolve()) for each in tests for found in (sorted(each.rglob("*.py")) if each.is_dir() else [each])
    ]
    if not named:
        name = name or _choose_function(path, name_op(path.name))
        given = given or _find_tests(path)
    mine = [each for each in given if name.strip("_") in _read_text(Path(each))]
    file, module = ("", place) if named else (str(path), _find_import_name(path, settings.root))
    return SketchFiles(file, name, module, reference, baseline, tuple(mine))


def _find_tests(path: Path) -> list[str]:
    """The tests beside a file: test_relu.py, and v1_test_relu_accuracy.py of v1_triton.py."""
    form = re.compile(rf"(test_)?{re.escape(path.stem.removesuffix('_triton'))}(_\w*)?")
    others = [each for each in sorted(path.parent.glob("*.py")) if each != path and form.fullmatch(each.stem)]
    return [str(each) for each in others if re.search("test|accuracy|performance", each.stem)]


def _choose_function(path: Path, name: str) -> str:
    """The function of a file that has its name or this one, that of its first overload, or its only function."""
    try:
        body = ast.parse(_read_text(path)).body
    except (SyntaxError, ValueError) as error:
        raise UsageError("source_unreadable", file=str(path), why=str(error)) from error
    known = [
        each.name
        for each in body
        if isinstance(each, ast.FunctionDef | ast.ClassDef)
        and not any("jit" in ast.unparse(mark) for mark in each.decorator_list)
    ]
    names = (path.stem, f"{path.stem}_Tensor", path.stem.removesuffix("_triton"), name)
    alone = [each for each in known if not each.startswith(("_", "get_"))]
    found = next((each for each in names if each in known), alone[0] if len(alone) == 1 else None)
    if found is None:
        raise UsageError("from_unknown", file=path.name, function=name, known=", ".join(known) or "-")
    return found


def _list_copies(files: SketchFiles) -> dict[str, str]:
    """The functions' own files, name -> text, but for one that can be imported where it lies."""
    paths = [Path(each) for each in (None if files.module else files.kernel, files.baseline) if each]
    return {f"_{path.name}": _read_text(path) for path in paths}


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
