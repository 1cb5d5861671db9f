"""New ops around functions that exist: a worker imports and rehearses them, and the files are made of its report."""

import ast
import dataclasses
import importlib.util
import keyword
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from perfci.cli.progress import Progress
from perfci.core.errors import PerfciError, UsageError, require
from perfci.core.model import Reason
from perfci.core.settings import Settings
from perfci.extensions.adopt import sketch
from perfci.extensions.adopt.place import Copy, Draft
from perfci.extensions.adopt.sketch import SketchFiles
from perfci.extensions.adopt.task import Rehearse, Sketched
from perfci.ops.discover import digest
from perfci.ops.fingerprint.finder import PARTS, Finder
from perfci.runs.bench import WorkerPlace, make_environment, open_bench, place_ops, warm_up
from perfci.worker.load import project_roots
from perfci.worker.process import run_worker
from perfci.worker.protocol import Message
from perfci.worker.tasks import OpFiles

Tell = Callable[[str, Draft | Reason], None]
"""Hears of an op's files, or why there are none."""

_SIDES = re.compile(r"_baseline$|(^|_)test(_|$)|_(accuracy|performance)$")
_VERSION = re.compile(r"_v\d+_triton")


def name_op(source: str) -> str:
    """Returns the usual name of an op: the function's, or the file's without version and `_triton`."""
    name = Path(source.rpartition(":")[2]).stem
    return re.sub(r"(_v\d+)?(_triton)?$", "", name).lstrip("_")


def draft_from_function(
    op: str, source: str, reference: str | None, settings: Settings, tests: Sequence[Path] = (), *,
    copy: bool = False, backward: bool = False, call: Path | None = None,
) -> Draft:  # fmt: skip
    """Returns the op's files around FILE:function, FILE or PACKAGE.module:function.

    The file is imported by its name, or copied if that is asked for. The function of FILE is that of its name.
    backward: the op is the function's backward pass. call: file of a call, from which all that is not in it is derived.
    Raises UsageError for a file that cannot be imported.
    """
    files = find_files(source, reference, settings, [call] if call else tests, None if copy else op, backward=backward)
    files = dataclasses.replace(files, is_call=bool(call))
    made = dict[str, Draft | Reason]()
    _draft({op: files}, settings, made.__setitem__)
    draft = made[op]
    if isinstance(draft, Reason):
        raise UsageError(draft.kind, **draft.facts)
    return draft


def draft_from_library(
    folder: Path, settings: Settings, tell: Tell, tests: Sequence[Path] = (), *,
    reference: str | None = None, copy: bool = False, backward: bool = False,
) -> None:  # fmt: skip
    """Tell of an op for each file of a folder that has a function of its name: its files, or why there are none.

    As soon as each is there: a whole library takes minutes. reference: a file with functions of the ops' names.
    """
    given = {} if reference is None else {name: f"{reference}:{name}" for name in _list_functions(Path(reference))}
    ending = "_backward" * backward
    wanted = dict[str, SketchFiles]()
    for path in sorted(folder.glob("*.py"), key=lambda path: [(len(part), part) for part in path.stem.split("_")]):
        op = name_op(path.name)
        try:
            if op and not _SIDES.search(path.stem) and path.stem != "__init__":
                # The newest version of several, and a function that works in place has another name.
                newer = _VERSION.search(path.stem) and op in wanted and _VERSION.search(wanted[op].kernel)
                name = f"{op}{ending}" if newer or f"{op}{ending}" not in wanted else f"{op}_{ending}"
                reference = given.get(op)
                files = find_files(str(path), reference, settings, tests, None if copy else name, backward=backward)
                wanted[name] = files
        except UsageError as error:
            tell(op, error.reason)
    _draft(wanted, settings, tell)


def find_files(
    source: str, reference: str | None, settings: Settings, tests: Sequence[Path] = (), op: str | None = None, *,
    backward: bool = False,
) -> SketchFiles:  # fmt: skip
    """Returns the files that --from, --reference and --tests name, and those that lie beside FILE.

    op: the op that is to import them. None if they are copied. backward: it is of the function's backward pass.
    """
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
        str(path.resolve()) for test in tests for path in (sorted(test.rglob("*.py")) if test.is_dir() else [test])
    ]
    if not named:
        name = name or _choose_function(path, name_op(path.name), backward=backward)
        given = given or _find_tests(path)
    files = [value for value in given if name.strip("_") in _read_text(Path(value))]
    if named and op is None:
        raise UsageError("copy_of_module", module=place)
    file, module = ("", place) if named else (str(path), op and find_import_name(path, settings, op))
    beside_module = find_import_name(Path(baseline), settings, op) if baseline and op else None
    return SketchFiles(file, name, module, reference, baseline, beside_module, tuple(files), backward=backward)


def _find_tests(path: Path) -> list[str]:
    """The tests beside a file: test_relu.py, and v1_test_relu_accuracy.py of v1_triton.py."""
    form = re.compile(rf"(test_)?{re.escape(path.stem.removesuffix('_triton'))}(_\w*)?")
    others = [other for other in sorted(path.parent.glob("*.py")) if other != path and form.fullmatch(other.stem)]
    return [str(other) for other in others if re.search("test|accuracy|performance", other.stem)]


def _choose_function(path: Path, name: str, *, backward: bool = False) -> str:
    """The function of a file that has its name or this one, that of its first overload, or its only function.

    backward: what calls it in the place of one that has no backward pass, as LigerGELUMulFunction calls geglu_forward.
    """
    try:
        body = ast.parse(_read_text(path)).body
    except (SyntaxError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError("source_unreadable", file=str(path), why=why) from error
    functions = [
        node.name
        for node in body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and not any("jit" in ast.unparse(mark) for mark in node.decorator_list)
    ]
    names = (path.stem, f"{path.stem}_Tensor", path.stem.removesuffix("_triton"), name)
    alone = [name for name in functions if not name.startswith(("_", "get_"))]
    # As bitwise_or_tensor of bitwise_or.py, and layer_norm of layernorm.py.
    plain = name.replace("_", "").lower()
    near = [other for other in alone if other.replace("_", "").lower() == plain or other.startswith(f"{name}_")]
    # As nll_loss_forward of nllloss.py, and _unique2 of unique.py.
    near += [other for other in functions if other.replace("_", "").lower().startswith(plain)]
    # As LigerRMSNormFunction of rms_norm.py, which has a backward pass too.
    pairs = [node for node in body if isinstance(node, ast.ClassDef)]
    pairs = [node for node in pairs if any("autograd.Function" in ast.unparse(base) for base in node.bases)]
    passes = [node for node in pairs if plain in node.name.lower()]
    fallback = [node.name for node in passes][-1:] or near[:1] or (alone if len(alone) == 1 else [])
    function = next((name for name in [*names, *fallback] if name in functions), None)
    if function is None:
        raise UsageError("from_unknown", file=path.name, function=name, known=", ".join(functions) or "-")
    calling = [node.name for node in pairs if re.search(rf"\b{function}\(", ast.unparse(node))]
    return next(iter(calling if backward else []), function)


def _list_functions(path: Path) -> list[str]:
    """The functions that a file defines."""
    try:
        return [node.name for node in ast.parse(_read_text(path)).body if isinstance(node, ast.FunctionDef)]
    except (SyntaxError, ValueError) as error:
        raise UsageError("source_unreadable", file=str(path), why=str(error)) from error


def _list_copies(files: SketchFiles, root: Path) -> tuple[Copy, ...]:
    """The functions' files as the op gets them, but for those that are imported."""
    sides = ((files.kernel, files.module), (files.baseline, files.baseline_module))
    paths = dict.fromkeys(Path(file) for file, module in sides if file and not module)
    return tuple(
        Copy(f"_{path.name}", _read_text(path), Path(os.path.relpath(path, root)).as_posix(), digest(path))
        for path in paths
    )


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError("source_unreadable", file=str(path), why=why) from error


def _draft(wanted: Mapping[str, SketchFiles], settings: Settings, tell: Tell) -> None:
    """Tell of each op's files, or why there are none. Raises PerfciError if there is no torch."""
    waiting = dict(wanted)

    def hear(answer: Sketched) -> None:
        files = waiting.pop(answer.op)
        if answer.sketch is not None:
            tell(answer.op, sketch.draft(answer.op, answer.sketch, _list_copies(files, settings.root)))
        elif answer.failure:
            tell(answer.op, answer.failure)

    while waiting:
        failure = _rehearse(dict(waiting), settings, hear)
        if failure is None:
            return
        if failure.kind == "new_needs_torch":
            raise PerfciError(failure.kind, **failure.facts)
        # The process ended with the next one. The others get a new process.
        if waiting:
            (lost, files), *others = waiting.items()
            waiting = dict(others)
            if files.tries_empty:  # some operators of torch end the process for tensors without elements
                waiting = {lost: dataclasses.replace(files, tries_empty=False), **waiting}
            else:
                tell(lost, failure)


def _rehearse(wanted: Mapping[str, SketchFiles], settings: Settings, hear: Callable[[Sketched], None]) -> Reason | None:
    """Asks a worker. Its working folder is a temporary one, as other people's tests may write files."""
    require("precompile", "offline", "--from")

    def listen(message: Message) -> None:
        show(message)
        if isinstance(message, Sketched):
            hear(message)

    with Progress() as show, open_bench(settings, listen) as bench:
        warm_up(bench, "cpu")
        around = make_environment(bench, WorkerPlace("new", "cpu"))
        variables = {**around.environment, "CUDA_VISIBLE_DEVICES": ""}  # it opens none, even if there is one
        around = dataclasses.replace(around, folder=bench.folder, environment=variables)
        task = Rehearse(place=place_ops(settings, [OpFiles(op, Path()) for op in wanted]), sketches=wanted)
        return run_worker(task, around, listen)


def find_import_name(path: Path, settings: Settings, op: str) -> str:
    """Returns the name by which an op's worker imports this very file. Raises UsageError if there is none."""
    package = path.parent
    while (package / "__init__.py").is_file():
        package = package.parent
    # As in a worker: what Python itself adds for the program that it was started with is not there.
    given = [*os.environ.get("PYTHONPATH", "").split(os.pathsep), *sys.path[not sys.flags.safe_path :]]
    roots = [str(settings.kernels), *project_roots(settings.root), *filter(None, given)]
    roots = [*dict.fromkeys(map(os.path.realpath, roots))]
    finder, problem = Finder(str(settings.root), str(settings.kernels)), Reason("import_outside", {"file": str(path)})
    # From where its outermost package lies. Else by the shortest name.
    above = sorted((Path(root) for root in roots if path.is_relative_to(root)), key=lambda root: -len(root.parts))
    for number, folder in enumerate(dict.fromkeys([package, *above])):
        parts = path.relative_to(folder).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        name = ".".join(parts)
        if wrong := next((part for part in parts if not part.isidentifier() or keyword.iskeyword(part)), None):
            reason = Reason("import_unnamed", {"file": str(path), "part": wrong})
        elif parts and parts[0] in {f"{op}_{part}" for part in PARTS}:
            reason = Reason("import_other", {"file": str(path), "module": name, "found": f"{parts[0]}.py of the op"})
        elif not parts or (str(folder) not in roots and not _is_mapped(folder, parts[0], roots)):
            continue
        else:
            files = finder.module(name, roots)[0] if str(folder) in roots else [str(path)]
            if files and files[-1] == str(path):
                return name
            file = files[-1] if files else parts[0]
            reason = Reason("import_other", {"file": str(path), "module": name, "found": file})
        problem = reason if problem.kind == "import_outside" or not number else problem
    raise UsageError(problem.kind, **problem.facts)


def _is_mapped(folder: Path, name: str, roots: Sequence[str]) -> bool:
    """Whether a finder leads to a package in a folder that is none of these roots, as an editable installation may."""
    before = list(sys.path)
    try:
        sys.path[:] = roots
        is_mapped = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    finally:
        sys.path[:] = before
    modules = {folder / f"{name}.py", folder / name / "__init__.py"}
    return bool(is_mapped and is_mapped.origin and Path(is_mapped.origin).resolve() in modules)
