"""An op around functions that exist: what was found out about them, and the files to write."""

import itertools
import json
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources

from perfci.core.model import Reason
from perfci.core.wording import sentence
from perfci.extensions.adopt.place import Copy, Draft
from perfci.ops.fingerprint.finder import COPIED
from perfci.ops.spec import VALUES
from perfci.scaffold.new import WIDTH, fill_templates, fit

Case = Mapping[str, str]  # one case's parameters as text: {"rows": "4096", "dtype": "torch.float16"}
SHARED = "_sketched"  # module beside the ops that calls sketches on devices that they were not written for

HERE = resources.files("perfci.extensions.adopt")
TEMPLATES = HERE / "templates"


@dataclass(frozen=True)
class SketchFiles:
    """Functions that a new op is made of."""

    kernel: str  # its file. Empty: the module's
    function: str  # or a class, with objects that are called
    module: str | None = None  # name by which the kernel's file is imported. None: by its path
    reference: str | None = None  # a dotted path, or a function of `baseline`
    baseline: str | None = None  # file of the reference
    baseline_module: str | None = None  # name by which that file is imported. None: by its path
    tests: tuple[str, ...] = ()  # files of the tests
    backward: bool = False  # the op is the backward pass
    tries_empty: bool = True  # cases without elements are called for real too
    is_call: bool = False  # the tests are one call that a person wrote, and the rest is derived from it


@dataclass(frozen=True)
class SketchFunction:
    """A function in a user's file: the kernel, or the reference."""

    module: str  # it is imported by this name
    call: str  # the function, as an expression of `source`
    arguments: tuple[str, ...]  # what it is called with
    device: str | None = None  # cuda or npu, if it asks for such a device
    hides: bool = False  # the function hides a Triton kernel that it launches by its name
    pretends: bool = False  # the module can be imported only where there is such a device, or one is pretended
    alone: bool = False  # the module is imported without what its packages import
    head: str = "return "  # what stands before its call
    tail: str = ")"  # what ends it
    last: str = ""  # a line after it
    backward: str | None = None  # its backward pass is what counts: further arguments of `gradients`


@dataclass(frozen=True)
class Suites:
    """An op's inputs and cases. All values are text of Python."""

    op: str
    axes: Mapping[str, str]  # a case's parameters but for dtype, in order, and their types
    inputs: Mapping[str, str]  # argument -> the expression that makes it
    dtypes: tuple[str, ...]
    edges: tuple[Mapping[str, tuple[str, ...]], ...] = ()  # grids of the accuracy suite, in the first dtype
    cases: tuple[Case, ...] = ()  # more cases of the accuracy suite, written out
    options: Mapping[str, str] = field(default_factory=dict)  # more parameters of some cases: their types and defaults
    more: tuple[Case, ...] = ()  # these cases
    probes: tuple[Mapping[str, tuple[str, ...]], ...] = ()  # probe cases, as grids over DTYPES
    speed: tuple[Case, ...] = ()  # cases of the performance suite
    values: tuple[str, ...] = VALUES  # kinds that the accuracy suite has
    about_values: tuple[str, ...] = ()  # comments on those that it lacks
    accuracy: tuple[str, ...] = ()  # more lines of the accuracy suite
    performance: tuple[str, ...] = ()  # more lines of the performance suite


@dataclass(frozen=True)
class Sketch:
    """All that a rehearsal found out."""

    parameters: tuple[str, ...]  # of the op's function, with types and defaults
    kernel: SketchFunction
    reference: SketchFunction
    suites: Suites
    carried: tuple[Reason, ...] = ()
    look: tuple[Reason, ...] = ()
    is_ready: bool = True  # a trial has shown that kernel and reference agree
    call: tuple[str, ...] = ()  # the function's arguments with sizes, for a person to correct. None if it is ready


def draft(op: str, sketch: Sketch, copies: Sequence[Copy]) -> Draft:
    """Returns the op's files. `copies` are those of the functions' files that it does not import."""
    suites = sketch.suites
    # A case of the tests that is an edge stands among these.
    points = {point for grid in suites.edges for point in itertools.product(*grid.values())}
    others = [
        case for case in suites.cases if (*case.values(),)[:-1] not in points or suites.dtypes[0] not in case["dtype"]
    ]
    # Where a block ends hardly depends on the dtype, and each case takes the interpreter several calls.
    edges = [_write_grid(grid, "dtype=DTYPES[:1]") for grid in suites.edges]
    edges += [_write_grid({name: [value] for name, value in case.items()}) for case in suites.more]
    dtypes = [[] if "dtype" in probe else ["dtype=DTYPES"] for probe in suites.probes]
    probed = [_write_grid(probe, *dtype) for probe, dtype in zip(suites.probes, dtypes, strict=True)]
    grids = [f"perfci.grid({', '.join(grid)})" for grid in probed]
    probes = [f"probe_cases={grid}," for grid in grids[:1]]
    probes = ["probe_cases=(", *(f"    *{grid}," for grid in grids), "),"] if grids[1:] else probes
    accuracy = [*_write_cases([*_group(others), *edges]), *probes, *suites.accuracy]
    accuracy += [*suites.about_values, *_write_values(suites.values)]
    speed = [*_write_cases(_group(suites.speed)), "# bytes_moved and flops would give GB/s and TFLOP/s."]
    kinds = {**suites.axes, "dtype": "torch.dtype", "device": "str", "seed": "int", **suites.options}
    takes = [f"{name}: {kind}" for name, kind in kinds.items()]
    inputs = ["return {", *(f'    "{name}": {make},' for name, make in suites.inputs.items()), "}"]
    if any("generator" in make for make in suites.inputs.values()):
        inputs = ["generator = torch.Generator(device).manual_seed(seed)", *inputs]
    made = fill_templates(
        op,
        TEMPLATES / "sketch",
        kernel=_write_side(op, sketch, sketch.kernel, "the kernel", copies),
        reference=_write_side(op, sketch, sketch.reference, "what the op means", copies),
        make_inputs="\n".join(fit("def make_inputs(", takes, ") -> dict[str, object]:")),
        inputs=_indent(inputs),
        about="sizes around the ends of its blocks." if edges else "the sizes of its tests.",
        dtypes=", ".join(f"torch.{name}" for name in suites.dtypes),
        accuracy=_indent(accuracy),
        performance=_indent([*speed, *suites.performance]),
    )
    shared = {}
    if any(side.device or side.alone or side.backward is not None for side in (sketch.kernel, sketch.reference)):
        shared[f"{SHARED}.py"] = HERE.joinpath("rehearsal", "sketched.py").read_text(encoding="utf-8")
    call = _write_call(sketch) if sketch.call else ""
    return Draft(made, sketch.look, sketch.carried, tuple(copies), shared, sketch.is_ready, call)


def _write_call(sketch: Sketch) -> str:
    """The file with the call that a person corrects, and why it does not do."""
    side, reasons = sketch.kernel, [reason for reason in sketch.look if reason.kind != "look_fails"]
    why = textwrap.wrap(sentence(reasons[0]), WIDTH - len("    # ")) if reasons else []
    name = side.call.removeprefix("source.").removesuffix("()").removesuffix(".apply")
    head = f'"""How {name} is called: correct it, with small sizes that differ, and type the same command again."""'
    lines = [head, "", "import torch", f"from {side.module} import {name}", "", "", "def test_call():"]
    call = _fill(f"{name}(", [*(f"{one}," for one in sketch.call[:-1]), *(f"{one})" for one in sketch.call[-1:])])
    return "\n".join([*lines, _indent([*(f"# {line}" for line in why), *call]), ""])


def _fill(head: str, arguments: Sequence[str]) -> list[str]:
    """A call on as few lines as hold it: the fewer it has, the fewer a person has to correct."""
    lines = [head]
    for number, argument in enumerate(arguments):
        if len(lines[-1]) + len(argument) > WIDTH - 8:
            lines.append("    ")
        lines[-1] += argument if not number or not lines[-1].strip() else f" {argument}"
    return lines


def _write_side(op: str, sketch: Sketch, side: SketchFunction, about: str, copies: Sequence[Copy]) -> str:
    """`<op>_triton.py`, or `<op>_baseline.py` without make_inputs."""
    name = side.call.removeprefix("source.").removesuffix("()").removesuffix(".apply")
    is_name = side.call.startswith("source.")
    # A package may have the function by its module's name.
    taken = {re.split("[:=]", text)[0].strip() for text in sketch.parameters}
    alias = "source_" if "source" in taken else "source"  # a parameter would hide it
    imported = f"from {side.module} import {name} as {alias}" if is_name else f"import {side.module}"
    call = side.call.replace(f"source.{name}", alias, 1)
    copied = [copy for copy in copies if copy.name == f"{side.module}.py"]
    lines = [f'"""{op}: {about}, {name}{f" of {side.module} as it is" if is_name else ""}."""', "", "import torch"]
    shares = side.device or side.alone or side.backward is not None
    if shares:
        lines += ["", f"import {SHARED}"]
    lines += [f'\n{SHARED}.leave_out("{side.module}")'] if side.alone else []
    around = [f'{SHARED}.pretend("{side.device}")'] if side.pretends else []
    around += [f"{SHARED}.kernels() as hidden"] if side.hides else []
    if around:
        lines += ["", f"with {', '.join(around)}:", f"    {imported}"]
    elif side.module != "torch":
        lines += [imported] if shares else ["", imported]
    made = call if call.endswith(")") else ""
    if side.backward is not None:
        made = call = f"{SHARED}.gradients({call}{side.backward})"
    if side.device:
        made = f'{SHARED}.wrap({call}, "{side.device}"{", hidden" if side.hides else ""})'
    for copy in copied:
        said = f"# {copy.name} is a copy of this file as it was then: perfci check fails once it has changed."
        lines += ["", said, f"{COPIED} = {json.dumps({copy.original: copy.digest}, ensure_ascii=False)}"]
    lines += ["", f"_call = {made}"] if made else []
    body = fit(f"{side.head}{'_call' if made else call}(", side.arguments, side.tail, "    ")
    body += [side.last] if side.last else []
    return "\n".join([*lines, "", "", *fit(f"def {op}(", sketch.parameters, "):"), _indent(body)])


def _group(cases: Sequence[Case]) -> list[list[str]]:
    """The cases as few grids: one if they are all combinations of values, else one a shape."""
    axes = {name: list(dict.fromkeys(case[name] for case in cases)) for name in (cases[0] if cases else ())}
    if math.prod(map(len, axes.values())) == len(cases):
        return [_write_grid(axes)]
    shapes: dict[tuple[str, ...], list[str]] = {}
    for case in cases:
        *shape, dtype = case.values()
        shapes.setdefault(tuple(shape), []).append(dtype)
    values = [[*([side] for side in shape), dtypes] for shape, dtypes in shapes.items()]
    return [_write_grid(dict(zip(axes, value, strict=True))) for value in values]


def _write_values(kinds: Sequence[str]) -> list[str]:
    """The line for the kinds of values."""
    usual = ["*perfci.VALUES"] if {*VALUES} <= {*kinds} else []
    listed = [*usual, *(f'"{kind}"' for kind in kinds if not usual or kind not in VALUES)]
    return fit("values=(", listed, "),", "    ") if listed[1:] else [f"values=({listed[0]},),"]


def _write_grid(axes: Mapping[str, Sequence[str]], *more: str) -> list[str]:
    """The arguments of perfci.grid."""
    return [*(f"{name}=[{', '.join(values)}]" for name, values in axes.items()), *more]


def _write_cases(grids: Sequence[Sequence[str]]) -> list[str]:
    lines = [line for grid in grids for line in fit("*perfci.grid(", grid, "),", " " * 8)]
    return ["cases=(", *(f"    {line}" for line in lines), "),"]


def _indent(lines: Sequence[str]) -> str:
    return textwrap.indent("\n".join(lines), "    ")
