"""KernelGen's sketches: their own tests are run, and every call of kernel and reference is noted."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import re
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfci.core.errors import UsageError
from perfci.core.model import Reason
from perfci.device.seam import Argument
from perfci.scaffold.sketch import Sketch, SketchFunction
from perfci.worker.load import describe_exception
from perfci.worker.protocol import SketchFiles
from perfci.worker.sketch.axes import Call, Form, find_form, make_call
from perfci.worker.sketch.cases import make_suites

if TYPE_CHECKING:
    from perfci.device.rehearsal import Rehearsal

_ASKS = re.compile(r"is_(?:cuda|npu)\b|[\"'](?:cuda|npu)[:\"']|torch\.(?:cuda|npu)\b|\.(?:cuda|npu)\(")
"""What fails away from the device that it was written for."""

_TESTS = re.compile(r"test|bench|perf|accuracy|correct|main", re.IGNORECASE)
_IMPORTED = re.compile(r"^\s*(?:from|import)\s+([\w.]+)", re.MULTILINE)
_PARTS = ("accuracy", "performance")


@dataclass(frozen=True)
class Side:
    """A function of the sketch, or a model's forward."""

    role: str  # kernel or reference
    name: str
    function: types.FunctionType
    owner: Any  # what is called: the function itself, or the model
    hides: bool = False  # its file has a Triton kernel of the same name, which it launches


@dataclass
class Notes:
    """What was seen while the tests ran."""

    rehearsal: Rehearsal
    files: frozenset[str]  # of the tests, whose variables name the sizes
    file: Path = Path()  # what runs now
    part: str = ""  # accuracy or performance, likewise
    calls: list[Call] = field(default_factory=list)
    left: list[Reason] = field(default_factory=list)

    def note_end(self, test: str, error: BaseException) -> None:
        """Note a test that raised, once."""
        message = " ".join(str(error).split())[:200] or "-"
        facts = {"file": self.file.name, "test": test, "error": type(error).__name__, "message": message}
        reason = Reason("left_test", facts)
        self.left += [] if reason in self.left else [reason]

    def note_calls(self, side: Side) -> Callable[..., Any]:
        """Returns the function such that its calls are noted."""
        signature, takes = inspect.signature(side.function), {each.name for each in list_parameters(side.function)}

        @functools.wraps(side.function)
        def call(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs).arguments
            given = {name: self.rehearsal.argument(value) or value for name, value in bound.items() if name in takes}
            names, frame = dict[str, int](), inspect.currentframe()
            while frame := frame and frame.f_back:
                if frame.f_code.co_filename in self.files:
                    names |= {name: value for name, value in frame.f_locals.items() if type(value) is int}
            noted = Call(side.role, side.name, self.part, given, names)
            self.calls.append(noted)
            result = side.function(*args, **kwargs)
            noted.returned = True
            return result

        return call


def find(op: str, files: SketchFiles, step: Callable[[str], None]) -> Sketch:
    """Run the tests. Returns what they do with kernel and reference. Raises UsageError if that is not clear."""
    from perfci.device.rehearsal import Rehearsal

    names = files.kernel, files.baseline or "", *files.tests
    paths = dict(zip(("kernel", "reference", *_PARTS), map(Path, names), strict=True))
    texts = {part: path.read_text(encoding="utf-8", errors="replace") for part, path in paths.items()}
    going = Rehearsal(find_wanted_device("\n".join(texts.values())), _list_missing(paths, texts))
    notes = Notes(going, frozenset(str(paths[part]) for part in _PARTS))
    going.failed = notes.note_end
    with going.going():
        sides = {}
        for role in ("kernel", "reference"):
            step(paths[role].name)
            sides[role] = _load_sides(role, paths[role], notes)
        for role, found in sides.items():
            going.functions[role] = {name: getattr(sys.modules[paths[role].stem], name) for name in found}
        for notes.part in _PARTS:
            notes.file = paths[notes.part]
            step(notes.file.name)
            _run_tests(notes)
        kernel, reference = (_choose_side(role, op, paths[role], sides[role], notes) for role in sides)
        return _make_sketch(op, kernel, reference, notes, paths, texts)


def _list_missing(paths: Mapping[str, Path], texts: Mapping[str, str]) -> set[str]:
    """The modules that get a stand-in: what the tests import and is not there, and what nothing is needed of."""
    names = {name for part in _PARTS for name in _IMPORTED.findall(texts[part])}
    names |= {name for text in texts.values() for name in _IMPORTED.findall(text) if name.startswith("torch_npu")}
    tops = {name.split(".")[0] for name in names} - {path.stem for path in paths.values()}
    # The parameters of tests have to be known, and pictures are not drawn.
    missing = {top for top in tops if importlib.util.find_spec(top) is None} | {"pytest", "matplotlib", "torch_npu"}
    parts = [name.split(".") for name in names]
    return {".".join(each[:count]) for each in parts if each[0] in missing for count in range(1, len(each) + 1)}


def find_wanted_device(text: str) -> str:
    """Returns the kind of device that a source was written for."""
    return "npu" if re.search(r"\b(is_)?npu\b|torch_npu", text) else "cuda"


def asks_for_device(text: str) -> bool:
    """Whether a source cannot run away from the device that it was written for."""
    return _ASKS.search(text) is not None


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


def _load_sides(role: str, path: Path, notes: Notes) -> dict[str, Side]:
    """The functions and models of a file. Who imports it from now on gets such that note their calls."""
    with notes.rehearsal.kernels() as hidden:
        module = load(path)
    imported = sys.modules[path.stem] = types.ModuleType(path.stem)
    vars(imported).update(vars(module))
    found = {}
    for name, value in vars(imported).items():
        if getattr(value, "__module__", None) != path.stem or name.startswith("__"):
            continue
        if isinstance(value, types.FunctionType):
            hides = name in hidden and name in value.__code__.co_names
            found[name] = Side(role, name, value, value, hides)
            setattr(module, name, hidden[name] if hides else value)
            setattr(imported, name, notes.note_calls(found[name]))
        elif isinstance(value, type) and isinstance(forward := vars(value).get("forward"), types.FunctionType):
            found[name] = Side(role, name, forward, value)
            setattr(imported, name, type(name, (value,), {"forward": notes.note_calls(found[name])}))
    return found


def _run_tests(notes: Notes) -> None:
    """Call all that looks like a test, without assertions, as nothing is computed."""
    try:
        load(notes.file, asserts=False)
    except UsageError as error:
        if error.reason.kind == "syntax_error" or error.__cause__ is None:
            raise
        notes.note_end("import", error.__cause__)
    for name, value in list(vars(sys.modules[notes.file.stem]).items()):
        own = getattr(value, "__module__", None) == notes.file.stem
        if hasattr(value, "benchmarks") and hasattr(value, "fn"):  # what triton.testing.perf_report makes
            test: Callable[[], Any] = value.run
        elif isinstance(value, types.FunctionType) and own and _TESTS.search(name):
            test = value
        else:
            continue
        needed = [each for each in inspect.signature(test).parameters.values() if each.default is each.empty]
        if any(each.kind < each.VAR_POSITIONAL for each in needed):
            continue  # a helper of other tests
        try:
            test()
        except (Exception, SystemExit) as error:
            notes.note_end(name, error)


# --- what they are about ----------------------------------------------------------------------------------------------


def _choose_side(role: str, op: str, path: Path, sides: Mapping[str, Side], notes: Notes) -> Side:
    """The function that the tests call. Of several the one with the op's name, or the file's."""
    called = list(dict.fromkeys(each.name for each in notes.calls if each.role == role))
    if role == "kernel" and not called:
        why = "; ".join(f"{each.facts['error']}: {each.facts['message']}" for each in notes.left) or "no test was found"
        raise UsageError("kernelgen_no_calls", file=path.name, why=why)
    known = called or [name for name in sides if not name.startswith("_") and name != "get_inputs"]
    names = (op, re.sub(r"_(triton|baseline)$", "", path.stem))
    found = known[0] if len(known) == 1 else next((name for name in names if name in known), None)
    if found is None:
        raise UsageError("kernelgen_several", file=path.name, known=", ".join(known) or "-", op=op)
    return sides[found]


def _make_sketch(
    op: str, kernel: Side, reference: Side, notes: Notes, paths: Mapping[str, Path], texts: Mapping[str, str]
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
    arguments = _match_arguments(reference, theirs, own)
    launch, called = (side.owner() if isinstance(side.owner, type) else side.owner for side in (kernel, reference))
    form, fitting, right = find_form(Form(launch, make_call(called, arguments, {}), notes.rehearsal), calls)
    suites, look = make_suites(op, form, fitting, texts["kernel"])
    sides, carried = [], []
    for side, handed_on, part in ((kernel, handed, "triton"), (reference, arguments, "baseline")):
        path, text = paths[side.role], f"source.{side.name}{'()' if isinstance(side.owner, type) else ''}"
        device = notes.rehearsal.device if asks_for_device(texts[side.role]) or side.hides else None
        sides.append(SketchFunction(f"_{path.stem}", text, tuple(handed_on), device, side.hides))
        carried.append(Reason("carried_function", {"file": path.name, "name": side.name, "to": f"{op}_{part}.py"}))
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
        needed, alone = each.default is each.empty, each.kind is each.KEYWORD_ONLY
        dtype = str(each.default).startswith("torch.")
        plain = each.default is None or isinstance(each.default, bool | int | float | str)
        if not (needed or plain or dtype or each.name in given):
            continue
        kind = getattr(each.annotation, "__name__", str(each.annotation))
        known = kind if kind in {"int", "float", "bool", "str"} else None
        known = "torch.Tensor" if needed and "Tensor" in kind else known
        text = f"{each.name}: {known}" if known else each.name
        if not needed:
            default = str(each.default) if dtype else repr(each.default) if plain else "None"
            text += f" = {default}" if known else f"={default}"
        shown += ["*"] if alone and "*" not in shown else []
        shown.append(text)
        handed.append(f"{each.name}={each.name}" if alone else each.name)
    return tuple(shown), handed


def _match_arguments(reference: Side, theirs: Sequence[Call], ours: Sequence[Call]) -> list[str]:
    """The reference's arguments by the kernel's names: what the tests give to both is the same argument."""
    names, takes = list(ours[0].given), list_parameters(reference.function)
    origins = {id(tensor.origin): name for call in ours for name, tensor in call.tensors.items()}
    call = next((call for call in theirs if any(id(each.origin) in origins for each in call.tensors.values())), None)
    # Without one it gets what the kernel gets.
    given = call.given if call else dict(zip((each.name for each in takes), ours[0].given.values(), strict=False))
    texts = list[str]()
    for number, each in enumerate(takes):
        if each.name not in given:
            continue
        value = given[each.name]
        tensor = isinstance(value, Argument)
        known = each.name if each.name in names else names[number] if tensor else repr(value)
        text = origins.get(id(value.origin), known) if tensor else known
        texts.append(text if number == len(texts) and each.kind is not each.KEYWORD_ONLY else f"{each.name}={text}")
    return texts
