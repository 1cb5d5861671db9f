"""`perfci new OP --from FILE:function --reference PATH`: a function that is there already becomes an op.

A file of the project that this Python can import by name is imported by the op's `_triton.py`, so that what is checked
is what ships, and a change of it is a change of the op. Any other file is copied whole: it may lie outside the project,
and a copy can be lifted out with the op.
"""

from __future__ import annotations

import ast
import importlib.machinery
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfci.core.errors import UsageError
from perfci.core.model import Fact, Reason
from perfci.scaffold import suites
from perfci.scaffold.guesses import accuracy_lines, edges, probe, speed
from perfci.scaffold.new import WIDTH, Draft
from perfci.scaffold.reading import (
    Function,
    Module,
    Nature,
    closest,
    dotted,
    edited,
    imported,
    is_jitted,
    launched,
    nature,
    reached,
    read,
    rename_all,
    rename_jitted,
)
from perfci.scaffold.references import Reference, reference
from perfci.scaffold.signature import Kind, Parameter, call, definition, parameters, shapes, signature
from perfci.scaffold.suites import Suites

LOOK = "LOOK"
"""Word that a comment begins with where a person has to look."""


@dataclass(frozen=True)
class Source:
    """FILE:function, and what it is compared with."""

    module: Module
    function: Function
    found: tuple[Parameter, ...]
    reference: str
    project: Path

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of tensors that every call gets."""
        return tuple(each.name for each in self.found if each.kind is Kind.TENSOR and each.given)


def wrap(op: str, text: str, path: str | None, project: Path) -> Draft:
    """The four files around FILE:function.

    Raises UsageError where that is none, where FILE cannot be read, for a function that is the jitted kernel itself,
    and for arguments that cannot be given by name.
    """
    source = _source(text, path, project)
    dimensions = _shapes(source)
    look = [*_look(source, dimensions), *_traps(source)]
    importable = _import_name(source)
    if importable is None and source.module.path.is_relative_to(project):
        facts: dict[str, Fact] = {"file": source.module.shown, "op": op}
        look.append(Reason("look_copied", facts))
    inputs = _suites(op, source, dimensions)
    texts = {
        "triton": _imported_kernel(op, source, importable) if importable else _copied_kernel(op, source),
        "baseline": _baseline(op, source) + suites.make_inputs(inputs),
        "accuracy": suites.accuracy(inputs, "sizes around the edges of usual blocks."),
        "performance": suites.performance(inputs, "name here whose sizes these are."),
    }
    return Draft(texts, tuple(look))


# --- what there is ----------------------------------------------------------------------------------------------------


def _source(text: str, path: str | None, project: Path) -> Source:
    file, colon, name = text.rpartition(":")
    if not colon or not file or not name.isidentifier():
        raise UsageError("from_form", found=text)
    if path is None:
        raise UsageError("from_without_reference", found=text)
    parts = path.split(".")
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        raise UsageError("reference_form", found=path)
    module = read(Path(file).resolve())
    function = _function(module, name)
    return Source(module, function, parameters(function, module), path, project)


def _function(module: Module, name: str) -> Function:
    found = module.functions.get(name)
    facts: dict[str, Fact] = {"file": module.shown, "function": name}
    plain = [each for each, node in module.functions.items() if not is_jitted(node)]
    if found is None:
        guess = closest(name, plain)
        if guess:
            raise UsageError("from_misspelt", guess=guess, **facts)
        raise UsageError("from_unknown", known=", ".join(plain) or "none", **facts)
    if is_jitted(found):
        wrappers = [each for each in plain if name in launched(module.functions[each])]
        guess = wrappers[0] if wrappers else None
        raise UsageError("from_jitted" if guess else "from_jitted_alone", guess=guess, line=found.lineno, **facts)
    return found


def _kernels(source: Source) -> list[ast.AST]:
    """The jitted functions that the function reaches, or all of the file where it names none."""
    return reached(source.module, source.function.name) or list(source.module.jitted)


def _nature(source: Source) -> Nature:
    return nature(_kernels(source))


def _shapes(source: Source) -> dict[str, tuple[str, ...]]:
    known = reference(source.reference) or Reference()
    return shapes(source.function, source.tensors, product=known.product and len(source.tensors) == 2)


# --- the kernel's file ------------------------------------------------------------------------------------------------


def _import_name(source: Source) -> str | None:
    """The module's name, where it is the project's and this Python would import this very file by it."""
    path = source.module.path
    if not path.is_relative_to(source.project):
        return None
    root = path.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    parts = path.relative_to(root).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return name if name and all(part.isidentifier() for part in parts) and _leads_to(parts[0], root) else None


def _leads_to(top: str, root: Path) -> bool:
    """Whether importing the top-level name takes it from this folder; nothing is imported to find out."""
    paths = sys.path[1:] if sys.path[:1] in ([""], [str(Path.cwd())]) else sys.path
    others = (finder for finder in sys.meta_path if finder is not importlib.machinery.PathFinder)
    specs = [importlib.machinery.PathFinder.find_spec(top, paths)]
    specs += [finder.find_spec(top, None) for finder in others if hasattr(finder, "find_spec")]
    origins = [Path(spec.origin).resolve() for spec in specs if spec and spec.origin and spec.has_location]
    return any(origin in {root / f"{top}.py", root / top / "__init__.py"} for origin in origins)


def _imported_kernel(op: str, source: Source, module: str) -> str:
    name = source.function.name
    head = f'"""{op}: {module}.{name}, as the project has it."""\n\n'
    shown = [_with_default(each, "source") for each in source.found]
    importing = "import torch\n\n" if "torch." in "".join(signature(shown)) else ""
    body = definition(op, shown, f"source.{name}", call(source.found))
    return f"{head}{importing}import {module} as source\n\n\n{body}"


def _with_default(parameter: Parameter, module: str) -> Parameter:
    """A default that is no plain value is looked up where it is defined."""
    if parameter.default is None or parameter.plain_default:
        return parameter
    tree = ast.parse(parameter.default, mode="eval")
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    for node in names:
        node.id = f"{module}.{node.id}"
    return Parameter(**{**parameter.__dict__, "default": ast.unparse(tree)})


def _copied_kernel(op: str, source: Source) -> str:
    """The file's text whole; the function under the op's name, of which nothing else may go."""
    name, module = source.function.name, source.module
    if name == op:
        edits = [edit for node in module.jitted if node.name == op for edit in rename_jitted(module, node)]
        return _ended(edited(module.text, edits))
    edits = [edit for node in module.jitted if node.name == op for edit in rename_jitted(module, node)]
    if not edits and op in module.functions:
        edits = rename_all(module, op, f"_{op}_of_source")
    body = definition(op, source.found, name, call(source.found))
    return f"{_ended(edited(module.text, edits))}\n\n{body}"


def _ended(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"


# --- the reference and its inputs -------------------------------------------------------------------------------------


def _baseline(op: str, source: Source) -> str:
    module = source.reference.rpartition(".")[0]
    arguments, remarks = _arguments(source)
    head = [f'"""{op} by {source.reference}: what the op means."""', "", "import torch"]
    head += [] if module.split(".")[0] == "torch" else [f"import {module}"]
    lines = [line for remark in remarks for line in textwrap.wrap(f"{LOOK}: {remark}", WIDTH - 6)]
    body = definition(op, [_plain(each) for each in source.found], source.reference, arguments)
    first, returned = body[: body.index("    return ")], body[body.index("    return ") :]
    comments = "".join(f"    # {line}\n" for line in lines)
    return "\n".join([*head, "", "", f"{first}{comments}{returned}", "", ""])


def _plain(parameter: Parameter) -> Parameter:
    return parameter if parameter.plain_default else Parameter(**{**parameter.__dict__, "default": "None"})


def _arguments(source: Source) -> tuple[list[str], list[str]]:
    """What the reference is called with, and remarks on what is not known of it."""
    known = reference(source.reference)
    first = next(iter(source.tensors), None)
    texts, remarks, named = [], [], set[str]()
    for each in source.found:
        if each.kind is Kind.TENSOR and each.given and not (known and each.name in known.takes):
            texts.append(each.name)
        elif each.kind is Kind.TUNING:
            continue
        elif known is None or each.name in known.takes:
            named.add(each.name)
            if known is None:
                remarks.append(f"{source.reference} is taken to call its argument {each.name} so, too.")
        else:
            remarks.append(f"{source.reference} has no argument {each.name}, so it is left out here.")
    needs = {} if known is None else {name: value for name, value in known.needs.items() if name not in named}
    texts += [f"{name}={value.format(x=first)}" for name, value in needs.items()]
    texts += [f"{each.name}={each.name}" for each in source.found if each.name in named]
    return texts, remarks


def _suites(op: str, source: Source, dimensions: Mapping[str, Sequence[str]]) -> Suites:
    known, kind = reference(source.reference) or Reference(), _nature(source)
    axes = tuple(dict.fromkeys(axis for shape in dimensions.values() for axis in shape))
    inputs = {name: _random(shape) for name, shape in dimensions.items()}
    inputs |= {each.name: each.value() for each in source.found if each.given and each.name not in inputs}
    names = ", ".join([*axes, "dtype"])
    product = known.product or kind.dot
    output = _output(dimensions, known)
    reduced = next(iter(dimensions.values()), ("rows", "cols"))[-1]
    return Suites(
        op=op,
        axes=axes,
        inputs={each.name: inputs[each.name] for each in source.found if each.name in inputs},
        dtypes=kind.dtypes,
        edges=edges(axes, product=product),
        probe=probe(axes),
        speed=speed(axes, kind, product=product),
        accuracy=tuple(accuracy_lines(kind, names, reduced if known.sums or product else None, product=product)),
        performance=tuple(
            [suites.bytes_moved([*dimensions.values(), output], names)]
            + ([f"flops=lambda {names}: 2 * {suites.times(*axes)},"] if known.product and len(axes) == 3 else [])
            + ([f"reduces=lambda {names}: {reduced},"] if known.sums or product else [])
        ),
        notes=_notes(source, kind),
    )


def _random(shape: Sequence[str]) -> str:
    text = f"({', '.join(shape)})" if len(shape) > 1 else f"({shape[0]},)" if shape else "()"
    return f"torch.randn({text}, generator=generator, dtype=dtype, device=device)"


def _output(dimensions: Mapping[str, Sequence[str]], known: Reference) -> tuple[str, ...]:
    """The result's shape: a reduced row's, a matrix product's, or else that of the tensor with the most dimensions."""
    all_shapes = [tuple(shape) for shape in dimensions.values()]
    if not all_shapes:
        return ()
    if known.product and len(all_shapes) == 2:
        return (*all_shapes[0][:-1], all_shapes[1][-1])
    longest = max(all_shapes, key=len)
    return longest[:-1] if known.reduces else longest


# --- what a person has to look at -------------------------------------------------------------------------------------


def _notes(source: Source, kind: Nature) -> dict[str, tuple[str, ...]]:
    made = [each for each in source.found if each.given and each.kind is not Kind.TENSOR]
    guessed = [each.name for each in source.found if each.guessed]
    inputs = [f"{LOOK}: shapes and values are guessed from {source.module.path.name}; correct what is not so."]
    inputs += [f"{LOOK}: {each.name} got a value that may mean nothing to the op." for each in made]
    inputs += [f"{LOOK}: {name} is taken to be a tensor." for name in guessed]
    accuracy = [f"{LOOK}: sizes around the edges of usual blocks; add those at which yours changes its way."]
    missing = [name for name in suites.ALL_DTYPES if name not in kind.dtypes]
    if missing:
        accuracy.append(f"{LOOK}: DTYPES leaves out {' and '.join(missing)}: {_why_not(kind)}.")
    speed = (f"{LOOK}: take the four to eight sizes that your users have, the largest of 256 MB or more.",)
    return {"inputs": tuple(inputs), "accuracy": tuple(accuracy), "performance": speed}


def _why_not(kind: Nature) -> str:
    if kind.dot:
        return "tl.dot multiplies it as TF32 unless told otherwise"
    return "the kernel does not cast to float32 after its loads, so each of its steps rounds to bfloat16"


def _look(source: Source, dimensions: Mapping[str, Sequence[str]]) -> Iterator[Reason]:
    place: dict[str, Fact] = {"file": source.module.shown, "line": source.function.lineno}
    for name, shape in dimensions.items():
        yield Reason("look_shape", {"name": name, "shape": f"({', '.join(shape)}{',' if len(shape) == 1 else ''})"})
    for each in source.found:
        if each.guessed:
            yield Reason("look_guessed_tensor", {"name": each.name, **place})
        elif each.given and each.kind is not Kind.TENSOR:
            yield Reason("look_value", {"name": each.name, "value": each.value(), **place})
        elif each.kind is Kind.TENSOR and not each.given:
            yield Reason("look_optional_tensor", {"name": each.name, "value": each.default, **place})
        elif not each.plain_default:
            yield Reason("look_default", {"name": each.name, "value": each.default, **place})
    yield from _reference_remarks(source)
    missing = [name for name in suites.ALL_DTYPES if name not in _nature(source).dtypes]
    if missing:
        kind = "look_dtypes_dot" if _nature(source).dot else "look_dtypes"
        yield Reason(kind, {"dtypes": ", ".join(missing)})
    yield Reason("look_sizes", {})


def _reference_remarks(source: Source) -> Iterator[Reason]:
    known = reference(source.reference)
    facts: dict[str, Fact] = {"reference": source.reference}
    for each in source.found:
        left_out = known is not None and each.name not in known.takes
        if each.kind is Kind.SCALAR and left_out:
            yield Reason("look_not_passed", {**facts, "name": each.name})
    if known is None:
        yield Reason("look_reference", facts)
    else:
        given = {each.name for each in source.found}
        for name, value in known.needs.items():
            if name not in given:
                first = next(iter(source.tensors), "x")
                yield Reason("look_needed", {**facts, "name": name, "value": value.format(x=first)})
    yield Reason("look_reference_exists", facts)


def _traps(source: Source) -> Iterator[Reason]:
    """What the file does that an op must not, or that fails away from its place."""
    module = source.module
    facts: dict[str, Fact] = {"file": module.shown}
    inside = module.path.is_relative_to(source.project) and _import_name(source)
    for name, level, line in imported(module.tree):
        beside = (module.path.parent / f"{name.split('.')[0]}.py").is_file() or (
            module.path.parent / name.split(".")[0]
        ).is_dir()
        if not inside and (level or (name and beside)):
            yield Reason("look_import", {**facts, "line": line, "module": "." * level + name})
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and node.attr == "is_cuda":
            yield Reason("look_is_cuda", {**facts, "line": node.lineno})
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("cuda"):
            yield Reason("look_device", {**facts, "line": node.lineno, "device": node.value})
        elif isinstance(node, ast.Call) and dotted(node.func).endswith("get_active_torch_device"):
            yield Reason("look_active_device", {**facts, "line": node.lineno})
    for each in source.found:
        if each.name in {"out", "output", "result", "dst", "destination"} and each.given:
            yield Reason("look_out", {**facts, "line": source.function.lineno, "name": each.name})
