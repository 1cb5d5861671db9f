"""A function without tests: shapes are tried until it and its reference accept them and agree on the output's."""

from __future__ import annotations

import importlib
import inspect
import itertools
import pkgutil
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfci.core.errors import UsageError
from perfci.core.model import Reason
from perfci.scaffold.sketch import Sketch, SketchFunction
from perfci.worker.protocol import SketchFiles
from perfci.worker.sketch.axes import Form, make_call, write_tuple
from perfci.worker.sketch.cases import make_suites
from perfci.worker.sketch.tests import ASKS, find_wanted_device, load, write_parameters

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
    """Returns what the function takes. Raises UsageError for a file, function or reference that does not exist."""
    from perfci.device.rehearsal import Rehearsal

    path = Path(files.kernel)
    text = path.read_text(encoding="utf-8", errors="replace")
    going = Rehearsal(find_wanted_device(text))
    step(path.name)
    assert files.function is not None and files.reference is not None  # noqa: PT018 - both are given with --from
    with going.going():
        source = importlib.import_module(files.module) if files.module else load(path)
        function = getattr(source, files.function, None)
        if not isinstance(function, types.FunctionType):
            known = ", ".join(key for key, value in vars(source).items() if isinstance(value, types.FunctionType))
            raise UsageError("from_unknown", file=path.name, function=files.function, known=known or "-")
        try:
            reference = pkgutil.resolve_name(files.reference)
        except (ImportError, AttributeError, ValueError) as error:
            raise UsageError("reference_missing", reference=files.reference) from error
        shown, handed = write_parameters(function, set(), path)
        needed = [each for each in inspect.signature(function).parameters.values() if each.default is each.empty]
        kinds = {each.name: getattr(each.annotation, "__name__", "") for each in needed}
        scalars = {name: _VALUES[kind] for name, kind in kinds.items() if kind in _VALUES}
        tensors = [name for name in kinds if name not in scalars]
        named = [each.split("=")[0].strip(" *").split(":")[0] for each in shown if "=" in each]
        form, arguments, right = _try_shapes(function, reference, tensors, scalars, named, going)
        done = form.try_case(form.make_distinct())
        launched = "\n".join(launch.source for launch in done.launches) if done else text
        # Those in which a right kernel of this kind is right everywhere, Triton's interpreter included.
        if "tl.dot(" in launched:
            dtypes: tuple[str, ...] = ("float16", "bfloat16")  # float32 would be multiplied as TF32
        elif "float32" in launched:
            dtypes = ("float32", "float16", "bfloat16")
        else:
            dtypes = ("float32",) if _MATHS.search(launched) else ("float32", "float16")
        count = len(form.axes)
        product = "tl.dot(" in launched
        performance = tuple(
            {**{axis: str(size) for axis, size in zip(form.axes, sizes, strict=True)}, "dtype": f"torch.{dtype}"}
            for sizes in (([2048] * count, [4096] * count) if product else _SIZES.get(count, ()))
            for dtype in dtypes[-2:]
        )
        # Some case, if nothing is known of the sizes that the function takes.
        usual = {axis: str(size) for axis, size in zip(form.axes, (64, 128, 32, 16), strict=False)}
        accuracy = () if right else ({**usual, "dtype": f"torch.{dtypes[0]}"},)
        draw = "torch.randn({}, generator=generator, dtype=dtype, device=device)"
        inputs = {name: draw.format(form.shapes[name]) if name in form.shapes else scalars[name] for name in kinds}
        suites, look = make_suites(op, form, inputs, dtypes, accuracy, performance, launched, {})
    guessed = ", ".join(f"{name}: {value}" for name, value in {**form.shapes, **scalars}.items())
    facts = {"op": op, "inputs": guessed, "call": f"{files.reference}({', '.join(arguments)})"}
    look = [Reason("look_guessed" if right else "look_untried", facts), *look]
    module = "torch" if files.reference.startswith("torch.") else files.reference.rpartition(".")[0]
    device = going.device if ASKS.search(text) else None
    own = SketchFunction(files.module or f"_{path.stem}", f"source.{files.function}", tuple(handed), device)
    return Sketch(shown, own, SketchFunction(module, files.reference, tuple(arguments)), suites, look=tuple(look))


def _list_shapes(count: int) -> Iterator[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
    """Ways to shape so many tensors: the axes, and those of each tensor."""
    for axes in (("rows", "cols"), ("size",), ("batch", "rows", "cols"), ("batch", "heads", "rows", "cols")):
        yield axes, [axes] * count
        if len(axes) > 1:
            yield axes, [axes, *[axes[-1:]] * (count - 1)]
    if count >= 2:
        yield ("m", "k", "n"), [("m", "k"), ("k", "n"), *[("n",)] * (count - 2)]
        yield ("m", "k", "n"), [("m", "k"), ("n", "k"), *[("n",)] * (count - 2)]


def _try_shapes(
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
    last = f"{tensors[0] if tensors else 'x'}.shape[-1:]"
    extras: tuple[Mapping[str, str], ...] = ({}, {"dim": "-1"}, {"normalized_shape": last})
    # A tensor that the reference takes by its name, such as weight after normalized_shape, is given by it.
    by_names: tuple[Sequence[str], ...] = ((), tensors[1:])
    first: tuple[Form, list[str]] | None = None
    defaults = {name: inspect.signature(function).parameters[name].default for name in named}
    ways = itertools.product(_list_shapes(len(tensors)), subsets, extras, by_names)
    for (axes, shapes), subset, extra, by_name in ways:
        if extra.keys() & {*subset}:
            continue
        texts = [each for each in tensors if each not in by_name]
        texts += [f"{name}={text}" for name, text in extra.items()]
        texts += [f"{name}={name}" for name in (*by_name, *subset)]
        written = {name: write_tuple(each) for name, each in zip(tensors, shapes, strict=True)}
        dtypes = dict.fromkeys(tensors, "float32")
        call_reference = make_call(reference, texts, defaults)
        form = Form(axes, written, dtypes, dict(scalars), function, call_reference, going)
        first = first or (form, texts)
        done = form.try_case(form.make_distinct())
        if done and done.kernel and done.kernel == done.reference:
            return form, texts, True
    assert first is not None
    return *first, False
