"""A function without tests: arguments are tried until it and its reference accept them and agree on the outputs."""

from __future__ import annotations

import importlib
import inspect
import itertools
import pkgutil
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfci.core.errors import UsageError
from perfci.core.model import Reason
from perfci.device.seam import Argument
from perfci.scaffold.sketch import Sketch, SketchFunction
from perfci.worker.protocol import SketchFiles
from perfci.worker.sketch.axes import Call, Form, find_form, make_call
from perfci.worker.sketch.cases import make_suites
from perfci.worker.sketch.tests import asks_for_device, find_wanted_device, load, write_parameters

if TYPE_CHECKING:
    from perfci.device.rehearsal import Rehearsal

_MATHS = re.compile(r"tl\.(?:math\.)?(?:exp|log|sigmoid|softmax|r?sqrt|sin|cos|erf|tanh|sum|cumsum)")
"""What needs float32 to be right, or to compile at all."""

_SMALL = (4, 8, 16, 128)  # sizes of an accuracy case
_SIZES = {
    1: ([1 << 20], [1 << 24], [1 << 27]),
    2: ([4096, 1024], [4096, 4096], [32768, 4096]),
    3: ([8, 1024, 64], [16, 4096, 64]),
    4: ([8, 16, 1024, 64], [16, 16, 4096, 64]),
}
_VALUES: Mapping[str, Any] = {"int": 1, "float": 0.5, "bool": False, "str": ""}


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
        form, arguments, right = _find_form(function, reference, handed, going)
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
        sizes = ([2048] * count, [4096] * count) if "tl.dot(" in launched else _SIZES.get(count, ())
        calls = [_call(form, "accuracy", _SMALL[-count:], dtype) for dtype in dtypes]
        calls += [_call(form, "performance", each, dtype) for each in sizes for dtype in dtypes[-2:]]
        suites, look = make_suites(op, form, calls, launched)
    guessed = ", ".join(f"{name}: {value}" for name, value in {**form.inputs, **form.shapes}.items())
    facts = {"op": op, "inputs": guessed, "call": f"{files.reference}({', '.join(arguments)})"}
    look = [Reason("look_guessed" if right else "look_untried", facts), *look]
    module = "torch" if files.reference.startswith("torch.") else files.reference.rpartition(".")[0]
    device = going.device if asks_for_device(text) else None
    own = SketchFunction(files.module or f"_{path.stem}", f"source.{files.function}", tuple(handed), device)
    return Sketch(shown, own, SketchFunction(module, files.reference, tuple(arguments)), suites, look=tuple(look))


def _find_form(function: Any, reference: Any, handed: Sequence[str], going: Rehearsal) -> tuple[Form, list[str], bool]:
    """The first form and arguments of the reference that both take and of which both make the same shapes."""
    takes = inspect.signature(function).parameters
    needed = [each for each in takes.values() if each.default is each.empty]
    kinds = {each.name: getattr(each.annotation, "__name__", "") for each in needed}
    scalars = {name: _VALUES[kind] for name, kind in kinds.items() if kind in _VALUES}
    tensors = [name for name in kinds if name not in scalars]
    named = [name for text in handed if (name := text.split("=")[0]) not in kinds]
    defaults = {name: takes[name].default for name in named}
    others = [*scalars, *named]
    subsets = [others, *([each] for each in others if len(others) > 1), []]
    last = f"{tensors[0] if tensors else 'x'}.shape[-1:]"
    extras: tuple[Mapping[str, str], ...] = ({}, {"dim": "-1"}, {"normalized_shape": last})
    # A tensor that the reference takes by its name, such as weight after normalized_shape, is given by it.
    by_names: tuple[Sequence[str], ...] = ((), tensors[1:])
    first: tuple[Form, list[str]] | None = None
    for ranks, subset, extra, by_name in itertools.product(_list_ranks(len(tensors)), subsets, extras, by_names):
        if extra.keys() & {*subset}:
            continue
        texts = [each for each in tensors if each not in by_name]
        texts += [f"{name}={text}" for name, text in extra.items()]
        texts += [f"{name}={name}" for name in (*by_name, *subset)]
        start = Form(function, make_call(reference, texts, defaults), going)
        # All sides are of one size, such that the trial alone tells which of them belong together.
        alike = {name: Argument((64,) * rank, "float32", None) for name, rank in zip(tensors, ranks, strict=True)}
        form, _, right = find_form(start, [Call("kernel", "", "", alike | scalars, {})])
        if right:
            return form, texts, True
        if first is None:
            usual = {name: replace(each, shape=_SMALL[-len(each.shape) :]) for name, each in alike.items()}
            first = find_form(start, [Call("kernel", "", "", usual | scalars, {})])[0], texts
    assert first is not None
    return *first, False


def _list_ranks(count: int) -> Iterator[list[int]]:
    """Numbers of axes that so many tensors may have."""
    for rank in (2, 1, 3, 4):
        yield [rank] * count
        if count > 1 and rank > 1:
            yield [rank, *[1] * (count - 1)]
    if count > 2:
        yield [2, 2, *[1] * (count - 2)]


def _call(form: Form, part: str, sizes: Sequence[int], dtype: str) -> Call:
    """A call with these sizes of the axes."""
    params, evaluate = dict(zip(form.axes, sizes, strict=True)), form.rehearsal.evaluate
    tensors = {name: Argument(evaluate(text, params), dtype, None) for name, text in form.shapes.items()}
    scalars = {name: evaluate(text, params) for name, text in form.inputs.items() if name not in tensors}
    return Call("kernel", "", part, tensors | scalars, {})
