"""KernelGen's sketches: their own tests are run, and every call of kernel and reference is noted."""

from __future__ import annotations

import dis
import functools
import importlib.util
import inspect
import re
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from perfci.core.errors import UsageError
from perfci.core.model import Reason
from perfci.device.seam import Argument
from perfci.scaffold.sketch import Sketch, SketchFunction
from perfci.worker.load import describe_exception
from perfci.worker.protocol import SketchFiles
from perfci.worker.sketch.axes import Call, Form, find_form, make_call
from perfci.worker.sketch.cases import make_suites

_ASKS = re.compile(r"is_(?:cuda|npu)\b|[\"'](?:cuda|npu)[:\"']|torch\.(?:cuda|npu)\b|\.(?:cuda|npu)\(")
"""What fails away from the device that it was written for."""

_TESTS = re.compile(r"test|bench|perf|accuracy|correct|main", re.IGNORECASE)
_IMPORTED = re.compile(r"^\s*(?:from|import)\s+([\w.]+)", re.MULTILINE)
_PARTS = ("accuracy", "performance")


def find(op: str, files: SketchFiles, step: Callable[[str], None]) -> Sketch:
    """Run the tests. Returns what they do with kernel and reference. Raises UsageError if that is not clear."""
    tests = _Tests(op, files)
    with tests.going.going():
        for role, path in tests.paths.items():
            step(path.name)
            if role in _PARTS:
                tests.run(role)
            else:
                tests.load_side(role)
        return tests.make_sketch()


class _Tests:
    """A sketch's files, and what was seen while its tests ran."""

    def __init__(self, op: str, files: SketchFiles) -> None:
        from perfci.device.rehearsal import Rehearsal

        names = files.kernel, files.baseline or "", *files.tests
        self.op = op
        self.paths = dict(zip(("kernel", "reference", *_PARTS), map(Path, names), strict=True))
        self.texts = {role: path.read_text(encoding="utf-8", errors="replace") for role, path in self.paths.items()}
        self.going = Rehearsal(find_wanted_device("\n".join(self.texts.values())), self._list_missing())
        self.going.failed = self._note_end
        self.sides: dict[str, dict[str, Any]] = {"kernel": {}, "reference": {}}  # their functions and models by name
        self.hiding: set[Any] = set()  # functions with a Triton kernel of the same name, which they launch
        self.part = _PARTS[0]  # whose test runs now
        self.calls: list[Call] = []
        self.left: list[Reason] = []

    def _list_missing(self) -> set[str]:
        """The modules that get a stand-in: what the tests import and is not there, and what nothing is needed of."""
        names = {name for part in _PARTS for name in _IMPORTED.findall(self.texts[part])}
        names |= {name for text in self.texts.values() for name in _IMPORTED.findall(text) if name[:9] == "torch_npu"}
        tops = {name.split(".")[0] for name in names} - {path.stem for path in self.paths.values()}
        # The parameters of tests have to be known, and pictures are not drawn.
        missing = {top for top in tops if importlib.util.find_spec(top) is None} | {"pytest", "matplotlib", "torch_npu"}
        parts = [name.split(".") for name in names]
        return {".".join(each[:count]) for each in parts if each[0] in missing for count in range(1, len(each) + 1)}

    def _note_end(self, test: str, error: BaseException) -> None:
        """Note a test that raised, once."""
        message = " ".join(str(error).split())[:200] or "-"
        facts = {"file": self.paths[self.part].name, "test": test, "error": type(error).__name__, "message": message}
        reason = Reason("left_test", facts)
        self.left += [] if reason in self.left else [reason]

    def load_side(self, role: str) -> None:
        """Import kernel or reference. Who imports its file from now on gets functions that note their calls."""
        path = self.paths[role]
        with self.going.kernels() as hidden:
            module = load(path)
        imported = sys.modules[path.stem] = types.ModuleType(path.stem)
        vars(imported).update(vars(module))
        for name, value in vars(imported).items():
            if getattr(value, "__module__", None) != path.stem or name.startswith("__"):
                continue
            if isinstance(value, types.FunctionType):
                noting: Any = self._note_calls(role, name, value)
                if launches_hidden(value, hidden):
                    self.hiding.add(value)
                    setattr(module, name, hidden[name])
            elif isinstance(value, type) and isinstance(vars(value).get("forward"), types.FunctionType):
                noting = type(name, (value,), {"forward": self._note_calls(role, name, _get_function(value))})
            else:
                continue
            self.sides[role][name] = value
            self.going.functions[role, name] = noting
            setattr(imported, name, noting)

    def _note_calls(self, role: str, name: str, function: Any) -> Callable[..., Any]:
        """Returns the function such that its calls are noted."""
        signature, takes = inspect.signature(function), {each.name for each in list_parameters(function)}

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs).arguments
            given = {key: self.going.argument(value) or value for key, value in bound.items() if key in takes}
            names, frame = dict[str, int](), inspect.currentframe()
            while frame := frame and frame.f_back:
                if frame.f_code.co_filename == str(self.paths[self.part]):
                    names |= {key: value for key, value in frame.f_locals.items() if type(value) is int}
            noted = Call(role, name, self.part, given, names)
            self.calls.append(noted)
            result = function(*args, **kwargs)
            noted.returned = True
            return result

        return call

    def run(self, part: str) -> None:
        """Call all that looks like a test, without assertions, as nothing is computed."""
        self.part, path = part, self.paths[part]
        try:
            load(path, asserts=False)
        except UsageError as error:
            if error.reason.kind == "syntax_error" or error.__cause__ is None:
                raise
            self._note_end("import", error.__cause__)
        for name, value in list(vars(sys.modules[path.stem]).items()):
            own = getattr(value, "__module__", None) == path.stem
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
                self._note_end(name, error)

    def _choose(self, role: str) -> str:
        """The function that the tests call. Of several the one with the op's name, or the file's."""
        path = self.paths[role]
        called = list(dict.fromkeys(each.name for each in self.calls if each.role == role))
        if role == "kernel" and not called:
            ends = [f"{each.facts['error']}: {each.facts['message']}" for each in self.left]
            raise UsageError("kernelgen_no_calls", file=path.name, why="; ".join(ends) or "no test was found")
        known = called or [name for name in self.sides[role] if not name.startswith("_") and name != "get_inputs"]
        names = (self.op, re.sub(r"_(triton|baseline)$", "", path.stem))
        found = known[0] if len(known) == 1 else next((name for name in names if name in known), None)
        if found is None:
            raise UsageError("kernelgen_several", file=path.name, known=", ".join(known) or "-", op=self.op)
        return found

    def make_sketch(self) -> Sketch:
        """What the noted calls show."""
        op, names = self.op, {role: self._choose(role) for role in self.sides}
        owners = {role: self.sides[role][name] for role, name in names.items()}
        functions = {role: _get_function(owner) for role, owner in owners.items()}
        noted = {role: [each for each in self.calls if (each.role, each.name) == (role, names[role])] for role in names}
        noted["kernel"] = [each for each in noted["kernel"] if each.tensors]
        # A test of what is refused gives no cases.
        own = [each for each in noted["kernel"] if each.returned] or noted["kernel"]
        given = {*own[0].given} if own else set()
        shown, handed = write_parameters(functions["kernel"], given, self.paths["kernel"])
        calls = [call for call in own if {*call.given} == given and {*call.tensors} == {*own[0].tensors}]
        if not calls:
            raise UsageError("kernelgen_no_calls", file=self.paths["kernel"].name, why="no call was given a tensor")
        arguments = {"kernel": handed, "reference": _match_arguments(functions["reference"], noted["reference"], own)}
        launch, called = (owner() if isinstance(owner, type) else owner for owner in owners.values())
        form, fitting, right = find_form(Form(launch, make_call(called, arguments["reference"], {}), self.going), calls)
        suites, look = make_suites(op, form, fitting, self.texts["kernel"])
        sides, carried = [], []
        for role, part in (("kernel", "triton"), ("reference", "baseline")):
            path, owner, hides = self.paths[role], owners[role], owners[role] in self.hiding
            text = f"source.{names[role]}{'()' if isinstance(owner, type) else ''}"
            device = self.going.device if asks_for_device(self.texts[role]) or hides else None
            sides.append(SketchFunction(f"_{path.stem}", text, tuple(arguments[role]), device, hides))
            facts = {"file": path.name, "name": names[role], "to": f"{op}_{part}.py"}
            carried.append(Reason("carried_function", facts))
        for part in _PARTS:
            if count := len({call.key for call in fitting if call.part == part}):
                carried.append(Reason("carried_calls", {"file": self.paths[part].name, "count": count, "part": part}))
        others = len({call.key for call in own} - {call.key for call in fitting})
        left = [*self.left, *([Reason("left_form", {"count": others, "op": op})] if others else [])]
        unsure = [] if right else [Reason("look_axes", {"op": op})]
        return Sketch(shown, sides[0], sides[1], suites, tuple(carried), tuple(left), (*unsure, *look))


def _get_function(owner: Any) -> Any:
    """A function, or a model's forward."""
    return vars(owner)["forward"] if isinstance(owner, type) else owner


def find_wanted_device(text: str) -> str:
    """Returns the kind of device that a source was written for."""
    return "npu" if re.search(r"\b(is_)?npu\b|torch_npu", text) else "cuda"


def asks_for_device(text: str) -> bool:
    """Whether a source cannot run away from the device that it was written for."""
    return _ASKS.search(text) is not None


def launches_hidden(function: Any, hidden: Mapping[str, Any]) -> bool:
    """Whether a function launches a Triton kernel by its own name, which it hides from itself."""
    name, code = getattr(function, "__name__", ""), getattr(function, "__code__", None)
    loads = dis.get_instructions(code) if name in hidden and code else ()
    return any(each.opname == "LOAD_GLOBAL" and each.argval == name for each in loads)


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


def _match_arguments(reference: Any, theirs: Sequence[Call], ours: Sequence[Call]) -> list[str]:
    """The reference's arguments by the kernel's names: what the tests give to both is the same argument."""
    names, takes = list(ours[0].given), list_parameters(reference)
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
