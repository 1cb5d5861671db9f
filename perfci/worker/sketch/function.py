"""A function without tests: shapes are tried until it and its reference accept them and agree on the output's."""

from __future__ import annotations

import importlib
import inspect
import itertools
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfci.core.errors import UsageError
from perfci.core.model import Fact, Reason
from perfci.scaffold.sketch import Side, Sketch
from perfci.worker.protocol import SketchFiles
from perfci.worker.sketch import cases
from perfci.worker.sketch.axes import Form, written
from perfci.worker.sketch.tests import ASKS, load, parameters, wanted_device

if TYPE_CHECKING:
    from perfci.device.rehearsal import Rehearsal

_MATHS = re.compile(r"tl\.(?:math\.)?(?:exp|log|sigmoid|softmax|r?sqrt|sin|cos|erf|tanh|sum|cumsum)")
"""What needs float32 to be right, or to compile at all."""

_SIZES = {
    1: ([1 << 20], [1 << 24], [1 << 27]),
    2: ([4096, 1024], [4096, 4096], [32768, 4096]),
    3: ([8, 1024, 64], [16, 4096, 64]),
    4: ([8, 16, 1024, 64], [16, 16, 4096, 64]),
}
_VALUES = {"int": "1", "float": "0.5", "bool": "False", "str": '""'}


def find(op: str, files: SketchFiles, step: Callable[[str], None]) -> Sketch:
    """What the function takes. Raises UsageError for a file, function or reference that is not there."""
    from perfci.device.rehearsal import Rehearsal

    path = Path(files.kernel)
    text = path.read_text(encoding="utf-8", errors="replace")
    going = Rehearsal(wanted_device(text))
    step(path.name)
    assert files.function is not None and files.reference is not None  # noqa: PT018 - both are given with --from
    with going.going():
        source = importlib.import_module(files.module) if files.module else load(path)
        function = _function(source, files.function, path)
        reference = _reference(files.reference)
        shown, handed = parameters(function, set(), path)
        signature = inspect.signature(function).parameters
        scalars = {
            name: _VALUES[kind]
            for name, each in signature.items()
            if each.default is each.empty and (kind := getattr(each.annotation, "__name__", "")) in _VALUES
        }
        tensors = [name for name, each in signature.items() if each.default is each.empty and name not in scalars]
        defaults = [text.split("=")[0].strip(" *") for text in shown if "=" in text]
        named = [each.split(":")[0] for each in defaults]
        form, arguments, right = _tried(function, reference, tensors, scalars, named, going)
        done = form.tried(form.distinct())
    look = list(_look(files, scalars, form, arguments, right))
    device = going.device if ASKS.search(text) else None
    launched = "\n".join(launch.source for launch in done.launches) if done else text
    dtypes = _dtypes(launched)
    product = "tl.dot(" in launched
    speed = _SIZES.get(len(form.axes), ()) if not product else ([2048] * len(form.axes), [4096] * len(form.axes))
    performance = tuple(
        {**{axis: str(size) for axis, size in zip(form.axes, sizes, strict=True)}, "dtype": f"torch.{dtype}"}
        for sizes in speed
        for dtype in dtypes[-2:]
    )
    inputs = {
        name: f"torch.randn({form.shapes[name]}, generator=generator, dtype=dtype, device=device)"
        if name in form.shapes
        else form.values[name]
        for name in signature
        if name in form.shapes or name in form.values
    }
    notes = {
        "inputs": (f"LOOK: shapes and values are guessed from {path.name}; correct what is not so.",),
        "performance": ("LOOK: take the four to eight sizes that your users have, the largest of 256 MB or more.",),
    }
    # Some case, if nothing is known of the sizes that the function takes.
    usual = {axis: str(size) for axis, size in zip(form.axes, (64, 128, 32, 16), strict=False)}
    accuracy = () if right else ({**usual, "dtype": f"torch.{dtypes[0]}"},)
    with going.going():
        found = cases.made(op, form, inputs, dtypes, accuracy, performance, launched, look, None, notes)
    own = files.module or f"_{path.stem}"
    module = "torch" if files.reference.startswith("torch.") else files.reference.rpartition(".")[0]
    return Sketch(
        shown,
        Side(own, f"source.{files.function}", tuple(handed), device),
        Side(module, files.reference, tuple(arguments)),
        found.suites,
        look=found.look,
    )


def _function(module: types.ModuleType, name: str, path: Path) -> Any:
    found = getattr(module, name, None)
    plain = [key for key, value in vars(module).items() if isinstance(value, types.FunctionType)]
    facts: dict[str, Fact] = {"file": path.name, "function": name, "known": ", ".join(plain) or "-"}
    if found is None:
        raise UsageError("from_unknown", **facts)
    if not isinstance(found, types.FunctionType):
        raise UsageError("from_no_function", **facts)
    return found


def _reference(path: str) -> Any:
    """What a dotted path names."""
    parts = path.split(".")
    for count in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:count]))
            for part in parts[count:]:
                found = getattr(found, part)
        except (ImportError, AttributeError):
            continue
        return found
    raise UsageError("reference_missing", reference=path)


def _shapes(tensors: Sequence[str]) -> Iterator[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
    """Ways to shape so many tensors: the axes, and those of each tensor."""
    count = len(tensors)
    for axes in (("rows", "cols"), ("size",), ("batch", "rows", "cols"), ("batch", "heads", "rows", "cols")):
        yield axes, [axes] * count
        if len(axes) > 1:
            yield axes, [axes, *[axes[-1:]] * (count - 1)]
    if count >= 2:
        yield ("m", "k", "n"), [("m", "k"), ("k", "n"), *[("n",)] * (count - 2)]
        yield ("m", "k", "n"), [("m", "k"), ("n", "k"), *[("n",)] * (count - 2)]


def _tried(
    function: Any,
    reference: Any,
    tensors: Sequence[str],
    scalars: Mapping[str, str],
    named: Sequence[str],
    going: Rehearsal,
) -> tuple[Form, list[str], bool]:
    """The first shapes and arguments that both take and of which both make the same shapes."""
    others = [*scalars, *named]
    subsets = [others, *([each] for each in others if len(others) > 1), []]
    extras: tuple[Mapping[str, str], ...] = (
        {},
        {"dim": "-1"},
        {"normalized_shape": f"{tensors[0] if tensors else 'x'}.shape[-1:]"},
    )
    first: tuple[Form, list[str]] | None = None
    defaults = {name: inspect.signature(function).parameters[name].default for name in named}
    for axes, shapes in _shapes(tensors):
        for subset, extra in itertools.product(subsets, extras):
            if extra.keys() & {*subset}:
                continue
            # A tensor that the reference takes by its name, such as weight after normalized_shape, is given by it.
            for by_name in ([], list(tensors[1:])):
                own = [each for each in tensors if each not in by_name]
                texts = [*own, *(f"{name}={text}" for name, text in extra.items())]
                texts += [f"{name}={name}" for name in (*by_name, *subset)]

                def meant(texts: Sequence[str] = texts, **given: Any) -> Any:
                    pairs = [text.rpartition("=") for text in texts]
                    known = {**defaults, **given}
                    values = [(name, eval(value, {}, known)) for name, _, value in pairs]
                    return reference(
                        *(value for name, value in values if not name),
                        **{name: value for name, value in values if name},
                    )

                form = Form(
                    axes,
                    {name: written(each) for name, each in zip(tensors, shapes, strict=True)},
                    dict.fromkeys(tensors, "float32"),
                    dict(scalars),
                    function,
                    meant,
                    going,
                )
                first = first or (form, texts)
                done = form.tried(form.distinct())
                if done and done.kernel and done.kernel == done.reference:
                    return form, texts, True
    assert first is not None
    return *first, False


def _look(
    files: SketchFiles, scalars: Mapping[str, str], form: Form, arguments: Sequence[str], right: bool
) -> Iterator[Reason]:
    for name, shape in form.shapes.items():
        yield Reason("look_shape", {"name": name, "shape": shape})
    for name, value in scalars.items():
        yield Reason("look_value", {"name": name, "value": value})
    yield Reason("look_call" if right else "look_untried", {"call": f"{files.reference}({', '.join(arguments)})"})
    yield Reason("look_sizes", {})


def _dtypes(text: str) -> tuple[str, ...]:
    """Those in which a right kernel of this kind is right everywhere, Triton's interpreter included."""
    if "tl.dot(" in text:
        return ("float16", "bfloat16")  # float32 would be multiplied as TF32
    if "float32" in text:
        return ("float32", "float16", "bfloat16")
    return ("float32",) if _MATHS.search(text) else ("float32", "float16")
