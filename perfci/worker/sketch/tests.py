"""KernelGen's sketches: their own tests are run, and every call of kernel and reference is noted."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import itertools
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfci.core.errors import UsageError
from perfci.core.model import Reason
from perfci.device.seam import Argument
from perfci.scaffold.sketch import Sketch, SketchFunction
from perfci.worker.load import describe_exception
from perfci.worker.protocol import SketchFiles
from perfci.worker.sketch import cases
from perfci.worker.sketch.axes import Call, Form, find_form, make_call

if TYPE_CHECKING:
    from perfci.device.rehearsal import Rehearsal

ASKS = re.compile(r"is_(?:cuda|npu)\b|[\"'](?:cuda|npu)[:\"']|torch\.(?:cuda|npu)\b|\.(?:cuda|npu)\(")
"""What fails away from the device that it was written for."""

_TESTS = re.compile(r"test|bench|perf|accuracy|correct|main", re.IGNORECASE)
_IMPORTED = re.compile(r"^\s*(?:from|import)\s+(\w+)", re.MULTILINE)
_PARTS = ("accuracy", "performance")


class Notes:
    """What was seen while the tests ran."""

    def __init__(self, rehearsal: Rehearsal, files: frozenset[str]) -> None:
        """`files`: of the tests, whose variables name the sizes."""
        self.rehearsal, self.files = rehearsal, files
        self.part = ""
        self.calls: list[Call] = []
        self.left: list[Reason] = []
        self.busy = False  # inside a call that was noted
        self.kept: list[Any] = []  # what was given, so that no other tensor gets its id

    def note_end(self, path: Path, test: str, error: str, message: str) -> None:
        """Note a test that raised, once."""
        reason = Reason("left_test", {"file": path.name, "test": test, "error": error, "message": message or "-"})
        self.left += [] if reason in self.left else [reason]


class Spy:
    """Stands for a function of the sketch. A kernel that the function hides is launched by the same name."""

    def __init__(self, role: str, function: Any, notes: Notes, kernel: Any = None, name: str | None = None) -> None:
        functools.update_wrapper(self, function)
        self.function, self.signature, self.kernel = function, inspect.signature(function), kernel
        self.role, self.notes, self.name = role, notes, name or function.__name__

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Note the call, unless it is made inside another one."""
        notes = self.notes
        if notes.busy:
            return self.function(*args, **kwargs)
        takes = {each.name for each in list_parameters(self.function)}
        bound = self.signature.bind(*args, **kwargs).arguments
        given = {name: notes.rehearsal.argument(value) or value for name, value in bound.items() if name in takes}
        frame, names = inspect.currentframe(), dict[str, int]()
        while frame := frame and frame.f_back:
            if frame.f_code.co_filename in notes.files:
                names |= {name: value for name, value in frame.f_locals.items() if type(value) is int}
        noted = Call(self.role, self.name, notes.part, given, names)
        notes.calls.append(noted)
        notes.kept.append(bound)
        notes.busy = True
        try:
            result = self.function(*args, **kwargs)
            noted.returned = True
            return result
        finally:
            notes.busy = False

    def __getitem__(self, grid: Any) -> Any:
        return self.kernel[grid]

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        """As a method."""
        return self if owner is None else functools.partial(self, owner)

    @property
    def class_(self) -> Any:
        """The model whose `forward` this is. None for a function."""
        kind = getattr(sys.modules[self.function.__module__], self.name)
        return kind if isinstance(kind, type) else None


def find(op: str, files: SketchFiles, step: Callable[[str], None]) -> Sketch:
    """Run the tests. Returns what they do with kernel and reference. Raises UsageError if that is not clear."""
    from perfci.device.rehearsal import Rehearsal

    names = files.kernel, files.baseline or "", *files.tests
    paths = dict(zip(("kernel", "reference", *_PARTS), map(Path, names), strict=True))
    texts = {part: path.read_text(encoding="utf-8", errors="replace") for part, path in paths.items()}
    device = find_wanted_device("\n".join(texts.values()))
    imported = {name for part in _PARTS for name in _IMPORTED.findall(texts[part])}
    known = {path.stem for path in paths.values()} | {*sys.builtin_module_names}
    missing = {name for name in imported - known if importlib.util.find_spec(name) is None} | {"torch_npu"}
    going = Rehearsal(device, missing | (imported & {"matplotlib"}))
    notes = Notes(going, frozenset(str(paths[part]) for part in _PARTS))
    with going.going():
        functions = {}
        for role in ("kernel", "reference"):
            step(paths[role].name)
            functions[role] = _record_functions(role, paths[role], notes)
        going.functions = functions
        for notes.part in _PARTS:
            step(paths[notes.part].name)
            _run_tests(paths[notes.part], notes)
        kernel, reference = (_choose_function(role, op, paths[role], functions[role], notes) for role in functions)
        notes.busy = True
        return _make_sketch(op, kernel, reference, notes, paths, texts)


def find_wanted_device(text: str) -> str:
    """Returns the kind of device that a source was written for."""
    return "npu" if re.search(r"\b(is_)?npu\b|torch_npu", text) else "cuda"


# --- the sketch's files -----------------------------------------------------------------------------------------------


def load(path: Path, *, asserts: bool = True) -> types.ModuleType:
    """Import a file by its path, with or without its assertions. Raises UsageError if it raises."""
    module = types.ModuleType(path.stem)
    module.__file__ = str(path)
    sys.modules[path.stem] = module
    try:
        exec(compile(path.read_bytes(), path, "exec", dont_inherit=True, optimize=0 if asserts else 1), vars(module))
    except SyntaxError as error:
        raise UsageError("syntax_error", file=path.name, line=error.lineno, why=error.msg) from error
    except (Exception, SystemExit) as error:
        raise UsageError("sketch_raised", source=path.name, **describe_exception(error, path.parent)) from error
    return module


def _record_functions(role: str, path: Path, notes: Notes) -> dict[str, Spy]:
    """The functions and models of a file, each replaced by its recorder."""
    with notes.rehearsal.kernels() as hidden:
        module = load(path)
    found = {}
    for name, value in list(vars(module).items()):
        if getattr(value, "__module__", None) != module.__name__ or name.startswith("__"):
            continue
        if isinstance(value, types.FunctionType):
            own = hidden.get(name) if name in value.__code__.co_names else None
            found[name] = Spy(role, value, notes, own)
            setattr(module, name, found[name])
        elif isinstance(value, type) and isinstance(vars(value).get("forward"), types.FunctionType):
            found[name] = Spy(role, value.forward, notes, name=name)  # type: ignore[attr-defined]
            value.forward = found[name]  # type: ignore[attr-defined]
    return found


def _run_tests(path: Path, notes: Notes) -> None:
    """Call all that looks like a test, with all its parameters, without assertions, as nothing is computed."""
    try:
        module = load(path, asserts=False)
    except UsageError as error:
        if error.reason.kind == "syntax_error":
            raise
        notes.note_end(path, "import", str(error.reason.facts["error"]), str(error.reason.facts["message"]))
        module = sys.modules[path.stem]
    for name, value in list(vars(module).items()):
        own = getattr(value, "__module__", None) == module.__name__
        if hasattr(value, "benchmarks") and hasattr(value, "fn"):  # what triton.testing.perf_report makes
            test: Callable[..., Any] = value.run
        elif isinstance(value, types.FunctionType) and own and (hasattr(value, "pytestmark") or _TESTS.search(name)):
            test = value
        else:
            continue
        needed = [each for each in inspect.signature(test).parameters.values() if each.default is each.empty]
        for point in _expand(getattr(value, "pytestmark", ())):
            if any(each.name not in point and each.kind < each.VAR_POSITIONAL for each in needed):
                continue  # a helper of other tests
            try:
                test(**point)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # of pytest's too
                notes.note_end(path, name, type(error).__name__, " ".join(str(error).split())[:200])


def _expand(marks: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Every combination of what pytest.mark.parametrize gives."""
    tables = list[list[dict[str, Any]]]()
    for mark in marks:
        if mark.name == "parametrize":
            names = mark.args[0]
            names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
            rows = [getattr(row, "values", row) for row in mark.args[1]]  # pytest.param has its values there
            rows = [row if isinstance(row, list | tuple) and len(row) == len(names) > 1 else (row,) for row in rows]
            tables.append([dict(zip(names, row, strict=True)) for row in rows])
    for point in itertools.product(*tables):
        yield {name: value for row in point for name, value in row.items()}


# --- what they are about ----------------------------------------------------------------------------------------------


def _choose_function(role: str, op: str, path: Path, functions: Mapping[str, Spy], notes: Notes) -> Spy:
    """The function that the tests call. Of several the one with the op's name, or the file's."""
    called = list(dict.fromkeys(each.name for each in notes.calls if each.role == role))
    if role == "kernel" and not called:
        why = "; ".join(f"{each.facts['error']}: {each.facts['message']}" for each in notes.left) or "no test was found"
        raise UsageError("kernelgen_no_calls", file=path.name, why=why)
    known = called or [name for name in functions if not name.startswith("_") and name != "get_inputs"]
    names = (op, re.sub(r"_(triton|baseline)$", "", path.stem))
    found = known[0] if len(known) == 1 else next((name for name in names if name in known), None)
    if found is None:
        raise UsageError("kernelgen_several", file=path.name, known=", ".join(known) or "-", op=op)
    return functions[found]


def _make_sketch(
    op: str, kernel: Spy, reference: Spy, notes: Notes, paths: Mapping[str, Path], texts: Mapping[str, str]
) -> Sketch:
    """What the noted calls show."""
    noted = [each for each in notes.calls if (each.role, each.name) == ("kernel", kernel.name) and each.tensors]
    # A test of what is refused gives no cases.
    own = [each for each in noted if each.returned] or noted
    names = {*own[0].given} if own else set()
    shown, handed = write_parameters(kernel.function, names, paths["kernel"])
    calls = [call for call in own if {*call.given} == names and {*call.tensors} == {*own[0].tensors}]
    if not calls:
        raise UsageError("kernelgen_no_calls", file=paths["kernel"].name, why="no call was given a tensor")
    theirs = [each for each in notes.calls if each.role == "reference" and each.name == reference.name]
    arguments = _match_arguments(reference, theirs, own, list(calls[0].given))
    launch, called = (each.class_() if each.class_ else each for each in (kernel, reference))
    start = Form((), {}, {}, {}, launch, make_call(called, arguments, {}), notes.rehearsal)
    form, fitting, right = find_form(start, calls)
    suites, look = cases.make_suites_of_calls(op, form, fitting, texts["kernel"])
    sides, carried = [], []
    for found, handed_on, part in ((kernel, handed, "triton"), (reference, arguments, "baseline")):
        path, text = paths[found.role], f"source.{found.name}{'()' if found.class_ else ''}"
        device = notes.rehearsal.device if ASKS.search(texts[found.role]) or found.kernel else None
        sides.append(SketchFunction(f"_{path.stem}", text, tuple(handed_on), device, found.kernel is not None))
        carried.append(Reason("carried_function", {"file": path.name, "name": found.name, "to": f"{op}_{part}.py"}))
    for part in _PARTS:
        if count := len({call.key for call in fitting if call.part == part}):
            carried.append(Reason("carried_calls", {"file": paths[part].name, "count": count, "part": part}))
    others = len({call.key for call in own} - {call.key for call in fitting})
    left = [*notes.left, *([Reason("left_form", {"count": others, "op": op})] if others else [])]
    unsure = [] if right else [Reason("look_axes", {"op": op})]
    return Sketch(shown, sides[0], sides[1], suites, tuple(carried), tuple(left), (*unsure, *look))


def list_parameters(function: Any) -> list[inspect.Parameter]:
    """Returns the parameters of a function, and of a method without the object."""
    found = list(inspect.signature(function).parameters.values())
    return found[1:] if "." in function.__qualname__ else found


def write_parameters(function: Any, given: set[str], path: Path) -> tuple[tuple[str, ...], list[str]]:
    """Returns the op's parameters and its call's arguments as text, without odd defaults that nobody gives."""
    shown, handed = list[str](), list[str]()
    for each in list_parameters(function):
        if each.kind in {each.VAR_POSITIONAL, each.VAR_KEYWORD}:
            line = function.__code__.co_firstlineno
            facts = {"file": path.name, "line": line, "function": function.__name__, "argument": each.name}
            raise UsageError("new_star_arguments", **facts)
        plain = each.default is None or isinstance(each.default, bool | int | float | str) or each.default is each.empty
        dtype = str(each.default).startswith("torch.")
        if not plain and not dtype and each.name not in given:
            continue
        kind = getattr(each.annotation, "__name__", str(each.annotation))
        known = "torch.Tensor" if "Tensor" in str(each.annotation) and each.default is each.empty else None
        known = kind if kind in {"int", "float", "bool", "str"} else known
        text = f"{each.name}: {known}" if known else each.name
        if each.default is not each.empty:
            default = str(each.default) if dtype else repr(each.default) if plain else "None"
            text += f" = {default}" if known else f"={default}"
        alone = each.kind is each.KEYWORD_ONLY
        shown += ["*"] if alone and "*" not in shown else []
        shown.append(text)
        handed.append(f"{each.name}={each.name}" if alone else each.name)
    return tuple(shown), handed


def _match_arguments(reference: Spy, theirs: Sequence[Call], ours: Sequence[Call], names: Sequence[str]) -> list[str]:
    """The reference's arguments by the kernel's names: what the tests give to both is the same argument."""
    origins = {value.origin: name for call in ours for name, value in call.tensors.items()}
    takes = list_parameters(reference.function)
    call = next((each for each in theirs if any(value.origin in origins for value in each.tensors.values())), None)
    if call is None:
        same = [each.name for each in takes if each.name in names]
        needed = [each for each in takes if each.default is each.empty]
        return same if len(same) >= len(needed) else list(names)[: len(takes)]
    texts = list[str]()
    for number, each in enumerate(takes):
        if each.name not in call.given:
            continue
        value = call.given[each.name]
        own = origins.get(value.origin) if isinstance(value, Argument) else None
        other = names[number] if isinstance(value, Argument) else repr(value)
        text = own or (each.name if each.name in names else other)
        texts.append(text if number == len(texts) and each.kind is not each.KEYWORD_ONLY else f"{each.name}={text}")
    return texts
