"""Which sides of a function's tensors are the same, found by calling it, and what its cases' parameters are then."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from perfci.device.tensors import TorchArrays
from perfci.extensions.adopt.rehearsal.dry_torch import Argument, DryTorch, SketchLaunch
from perfci.extensions.adopt.rehearsal.sketched import wrap
from perfci.extensions.adopt.rehearsal.trial import Trial, try_call
from perfci.measure.inputs import fill_inputs

_DRY_S = 1.5e-3  # that a call without memory takes
MOST_SECONDS = 5.0  # of calls for real. What is asked afterwards is left out
MOST_ELEMENTS = 1 << 18  # of the largest tensor of an accuracy case: more would take Triton's interpreter minutes
MOST_ROOM = 1 << 21  # of that of any call for real, which has some copies of it
SEEDS = 3  # with which values are made for a form that is to hold

PAST = (129, 1025, 4097)  # sizes past which a wrapper may launch another kernel
QUICK_S = 1.0  # of a call with such a size
SIZES = (
    (3, 5, 7, 11, 13, 17, 19, 23, 29, 31),
    (192, 320, 448, 704, 832, 1088, 1216, 1472, 1856, 1984),
    (16, 32, 64, 128, 8, 4, 2, 1),
)
"""Sizes that distinguish axes, also for functions that refuse what no block divides, or take powers of two alone."""

USUAL = {1: ("size",), 2: ("rows", "cols"), 3: ("batch", "rows", "cols"), 4: ("batch", "heads", "rows", "cols")}
TAKEN = frozenset({"dtype", "device", "seed", "generator", "torch", "shape", "i", "_"})

_NAME = re.compile(r"[A-Za-z_]\w*")
_BELOW = re.compile(r"torch\.randint\(0, (\w+), ")
_OF_SHAPES = re.compile(r"size of|sizes|shape|dim\b|dimension")
"""Errors that say nothing of values"""

Place = tuple[str, int]  # a side of a tensor, counted from its end


def number_of(value: Any) -> int:
    """Returns a number, or the only one of a tuple. 0 for anything else."""
    only = value[0] if type(value) is tuple and len(value) == 1 else value
    return only if type(only) is int else 0


@dataclass
class Call:
    """One call of the function, in a test or as a sample."""

    part: str  # accuracy or performance
    given: Mapping[str, Any]  # argument -> `Argument`, or the value of what is no tensor
    names: Mapping[str, int]  # integers that the test has by a name

    @property
    def tensors(self) -> dict[str, Argument]:
        """The arguments that are tensors."""
        return {name: value for name, value in self.given.items() if isinstance(value, Argument)}

    @property
    def key(self) -> str:
        """Equal for calls of one case."""
        return repr({**self.given, **{name: (tensor.shape, tensor.dtype) for name, tensor in self.tensors.items()}})

    @property
    def dtype(self) -> str:
        """Of the first tensor of a floating-point type, else of the first one."""
        dtypes = [tensor.dtype for tensor in self.tensors.values()]
        return next((dtype for dtype in dtypes if "float" in dtype), dtypes[0])

    @property
    def elements(self) -> int:
        """Of its largest tensor."""
        return max(math.prod(tensor.shape) for tensor in self.tensors.values())


@dataclass(frozen=True)
class Outcome:
    """The answer of a trial: shapes of both outputs, and the kernel's launches."""

    kernel: tuple[tuple[int, ...], ...] | None
    reference: tuple[tuple[int, ...], ...] | None
    launches: tuple[SketchLaunch, ...]
    given: tuple[tuple[int, ...], ...] = ()  # shapes of the inputs
    by_values: bool = False  # the shapes of the reference's outputs depend on the inputs' values

    @property
    def fits(self) -> bool:
        """Whether the reference's outputs are among the kernel's, or can be those that it writes into."""
        if self.by_values or self.kernel is None or self.reference is None:
            return self.by_values
        return not Counter(self.reference) - Counter(self.kernel or self.given)

    @property
    def programs(self) -> int:
        """How many programs the launches have."""
        return sum(math.prod(launch.grid) for launch in self.launches)


@dataclass(frozen=True)
class Form:
    """How the arguments of a call follow from a case's parameters. All of it is text as in make_inputs."""

    kernel: Callable[..., Any]
    reference: Callable[..., Any]  # takes the kernel's arguments
    rehearsal: DryTorch
    axes: tuple[str, ...] = ()
    shapes: Mapping[str, str] = field(default_factory=dict)  # tensor -> its shape, such as (rows, cols)
    inputs: Mapping[str, str] = field(default_factory=dict)  # argument -> what makes it
    dtype: str = ""  # of trials
    little: Mapping[str, int] = field(default_factory=dict)  # axis -> a small size that a call for real takes
    sample: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """axis -> a tensor's whole shape in one case, of a form that has no cases but samples"""
    devices: tuple[str | None, str | None] = (None, None)
    """what tensors have to pass for in such a call, of the kernel and of the reference"""

    @property
    def is_ragged(self) -> bool:
        """Whether axes are whole shapes."""
        return self.axes == ("shape",) or bool(self.sample)

    @property
    def holds_whole(self) -> bool:
        """Whether it is open what integers point to."""
        return any("1 << 4" in text for text in self.inputs.values())

    @property
    def small(self) -> dict[str, Any]:
        """A case that calls for real take."""
        return dict(self.little) or self.make_distinct()

    @property
    def has_places(self) -> bool:
        """Whether integers may point into a tensor: one beyond it would write into memory of something else."""
        makers = "torch.randint(", "torch.randperm(", ".argsort(", "torch.linspace("
        return any(maker in text for text in self.inputs.values() for maker in makers)

    def make_inputs(self, params: Mapping[str, Any], dtype: str = "", seed: int = 0) -> dict[str, Any]:
        """Returns a case's inputs with values. Raises what torch raises."""
        given = {"torch": torch, "dtype": getattr(torch, dtype or self.dtype), "device": "cpu", **params}
        with self.rehearsal.real():
            given["generator"] = torch.Generator().manual_seed(seed)
            return {name: eval(text, given) for name, text in self.inputs.items()}

    def count_elements(self, params: Mapping[str, Any]) -> int:
        """Of the largest tensor of a case."""
        evaluate = self.rehearsal.evaluate
        return max((math.prod(evaluate(text, params)) for text in self.shapes.values()), default=0)

    def run(
        self, params: Mapping[str, Any], dtype: str = "", layout: str = "contiguous", values: str = "normal",
        seed: int = 0,
    ) -> Trial:  # fmt: skip
        """Returns what kernel and reference do with a case for real: its inputs' memory layout, and kind of values."""
        self.rehearsal.step(", ".join(f"{name}: {text}" for name, text in self.shapes.items()))
        try:
            if (count := self.count_elements(params)) > MOST_ROOM:
                return Trial(f"MemoryError: a tensor of {count} elements")
            inputs, arrays = self.make_inputs(params, dtype, seed), TorchArrays("cpu")
            with self.rehearsal.real():
                inputs = fill_inputs(inputs, arrays, values, 0)
                inputs = arrays.place(inputs, layout) if layout != "contiguous" else inputs
        except Exception as error:  # a size that makes no tensor
            return Trial(f"{type(error).__name__}: {error}")
        sides = zip((self.kernel, self.reference), self.devices, strict=True)
        kernel, reference = (wrap(function, device) if device else function for function, device in sides)
        with self.rehearsal.real():
            trial = try_call(kernel, reference, inputs, self.rehearsal.most_s)
        if "TimeoutError" in (trial.problem or ""):
            self.rehearsal.most_s /= 2  # another try hardly takes less
        self.rehearsal.spent_s += trial.seconds
        self.rehearsal.now_s += trial.seconds
        return trial

    def holds(self, params: Mapping[str, Any]) -> bool:
        """Whether nothing speaks against the form with any of some values."""
        return all(self.run(params, seed=seed).is_good for seed in range(SEEDS))

    def confirm(self, params: Mapping[str, Any], trial: Trial) -> Trial:
        """Returns a case's trial, or that with other values that speaks against the form, or writes into more."""
        for other in (self.run(params, seed=seed) for seed in range(1, SEEDS)):
            if other.problem or other.share:  # a mean of no elements may be NaN by chance
                return other
            writes = len(other.written) + len(other.rewritten) > len(trial.written) + len(trial.rewritten)
            trial = other if writes else trial
        most = {name: _BELOW.sub(r"torch.randint(\1 - 1, \1, ", text) for name, text in self.inputs.items()}
        greatest = replace(self, inputs=most).run(params) if most != self.inputs else trial
        return greatest if greatest.problem else trial

    def takes(self, params: Mapping[str, Any]) -> bool:
        """Whether neither raises for a case, called for real. False for all once such calls took long enough."""
        return self.find_refusal(params) is None

    def find_refusal(self, params: Mapping[str, Any]) -> str | None:
        """Returns why a case is not taken, called for real. None if it is. Empty if nothing was raised.

        Of no elements the reference may make NaN, as a mean does: then there is no right answer.
        """
        is_empty = bool({0, (0,)} & {*params.values()})
        if self.rehearsal.spent_s > MOST_SECONDS or (is_empty and not self.rehearsal.tries_empty):
            return ""
        trial = self.run(params)
        if trial.problem or (trial.races and self.has_places):  # as more pieces than there is to cut
            return trial.problem or ""
        return None if trial.is_finite or not is_empty else ""

    def try_case(self, params: Mapping[str, Any], *, alone: bool = False) -> Outcome | None:
        """Returns what kernel and reference give for a case, or the kernel alone. None if one of them refuses it."""
        for self.rehearsal.truth in (False, True):
            try:
                return self.call_dry(params, alone=alone)
            except AssertionError:  # perhaps of values, which have to be small enough
                continue
            except Exception:  # whatever other people's code raises
                return None
        return None

    def call_dry(self, params: Mapping[str, Any], *, alone: bool = False) -> Outcome:
        """As `try_case`. Raises what one of them raises."""
        going = self.rehearsal
        going.now_s += _DRY_S

        def make_arguments() -> dict[str, Any]:
            made = {name: going.evaluate(text, params, self.dtype) for name, text in self.inputs.items()}
            return {name: going.trace.follow(name, value) for name, value in made.items()} if going.trace else made

        del going.launches[:]
        given = make_arguments()
        shapes = going.shape_of(self.kernel(**given))
        launches = tuple(going.launches)
        inputs = going.shape_of([*given.values()]) or ()
        values = going.values
        if going.trace:
            going.trace.in_reference = True
        try:
            right = shapes if alone else going.shape_of(self.reference(**make_arguments()))
        except Exception as error:  # torch has no shapes without values, as of nonzero
            asks = going.values > values or isinstance(error, NotImplementedError)
            unlike = isinstance(error, RuntimeError) and _OF_SHAPES.search(str(error))
            if unlike or not (asks or "meta tensors" in str(error)):
                raise
            right = None
        done = Outcome(shapes, right, launches, inputs)
        by_values = not alone and not done.fits and (right is None or going.values > values)
        return replace(done, by_values=by_values)

    def try_usual(self) -> Outcome | None:
        """As a case with an axis of each size, or that which a call for real takes."""
        return self.try_case(self.make_distinct()) or (self.try_case(self.little) if self.little else None)

    def count_programs(self, call: Call) -> int | None:
        """Returns the programs that a call launches. None if kernel or reference refuse it, or make other shapes."""
        shapes = {name: repr(tensor.shape) for name, tensor in call.tensors.items()}
        done = write_inputs(self, (), shapes, {}, [call]).try_case({})
        return done.programs if done and done.fits else None

    def describes(self, call: Call) -> bool:
        """Whether a call's tensors and numbers follow from the axes."""
        try:
            sizes = size_call(self, call)
        except KeyError:  # nothing tells the size of an axis
            return False
        numbers = {name: text for name, text in self.inputs.items() if name not in self.shapes and call.given.get(name)}
        return all(
            tuple(self.rehearsal.evaluate(text, sizes)) == call.tensors[name].shape
            for name, text in self.shapes.items()
        ) and all(
            number_of(self.rehearsal.evaluate(text, sizes)) == number_of(call.given[name])
            for name, text in numbers.items()
            if {*_NAME.findall(text)} & {*sizes}
        )

    def make_distinct(self, sizes: Sequence[int] = SIZES[0]) -> dict[str, Any]:
        """Returns a case in which every axis has another size."""
        if self.is_ragged:
            return dict(self.sample) or {"shape": tuple(sizes[:2])}
        return dict(zip(self.axes, itertools.cycle(sizes)))

    def takes_any(self) -> bool:
        """Whether kernel and reference take sizes that no number divides."""
        done = self.try_case(self.make_distinct())
        return bool(done and done.fits)

    def agrees(self) -> bool:
        """Whether kernel and reference take distinct sizes, and their outputs have the same shapes."""
        if self.rehearsal.is_late:
            return False
        trials = (self.try_case(self.make_distinct(sizes)) for sizes in SIZES)
        return any(done and done.fits for done in trials)


def make_call(function: Any, texts: Sequence[str], defaults: Mapping[str, Any]) -> Callable[..., Any]:
    """Returns a function that takes the kernel's arguments, and passes them on as the texts say: `x`, `dim=-1`."""

    def call(**given: Any) -> Any:
        return eval(f"_called({', '.join(texts)})", {"_called": function}, {**defaults, **given})

    vars(call)["__wrapped__"] = function  # which tells its parameters
    return call


def write_tuple(parts: Sequence[str]) -> str:
    """Returns a tuple as text."""
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def size_call(form: Form, call: Call) -> dict[str, Any]:
    """Returns the sizes of a call's axes."""
    if form.is_ragged:
        shapes = {text: call.tensors[name].shape for name, text in reversed([*form.shapes.items()])}
        return {axis: shapes.get(axis, next(iter(call.tensors.values())).shape) for axis in form.axes}
    sides = [zip(list_sides(text), call.tensors[name].shape, strict=False) for name, text in form.shapes.items()]
    numbers = {text: call.given[name] for name, text in form.inputs.items() if name in call.given}
    pairs, sizes = itertools.chain(*sides), {axis: number_of(numbers[axis]) for axis in form.axes if axis in numbers}
    # Those with fewer names first: what a side is next to others, such as heads * dim, follows from them.
    for side, size in sorted(pairs, key=lambda pair: (len(_NAME.findall(pair[0])), len(pair[0]))):
        unknown = [axis for axis in dict.fromkeys(_NAME.findall(side)) if axis not in sizes]
        if len(unknown) == 1:
            none, one = (form.rehearsal.evaluate(side, {**sizes, unknown[0]: value}) for value in (0, 1))
            sizes[unknown[0]] = (size - none) // ((one - none) or 1)
    return {axis: sizes[axis] for axis in form.axes}


def list_sides(text: str) -> list[str]:
    """Returns the sides of a shape that is text."""
    return [side.strip() for side in text.removeprefix("(").removesuffix(")").split(",") if side.strip()]


def list_form(start: Form, calls: Sequence[Call]) -> tuple[Form, list[Call]]:
    """Returns the form in which each tensor's shape is that of a call, and the calls that have it.

    Integers stay within those of every call, as they may be places in another tensor.
    """
    alike = [call for call in calls if call.tensors.keys() == calls[0].tensors.keys()]
    alike = sorted(alike, key=lambda call: call.elements)
    shapes = {name: tuple(call.tensors[name].shape for call in alike) for name in alike[0].tensors}
    first = {shape: name for name, shape in reversed(shapes.items())}
    axis_of = {name: f"{first[shape]}_shape" for name, shape in shapes.items()}
    given = dict(alike[0].given)
    for name, tensor in alike[0].tensors.items():
        if bounds := [call.tensors[name].bounds or (0, 16) for call in alike if tensor.bounds]:
            low, high = max(low for low, _ in bounds), min(high for _, high in bounds)
            text = f"torch.randint({low}, {max(high, low + 1)}, {{shape}}, generator=generator, "
            given[name] = replace(tensor, text=f"{text}dtype={{dtype}}, device=device)")
    axes = tuple(dict.fromkeys(axis_of.values()))
    form = write_inputs(start, axes, axis_of, {}, [replace(alike[0], given=given), *alike[1:]])
    sample = {axis_of[name]: tensor.shape for name, tensor in alike[0].tensors.items()}
    return replace(form, sample=sample), alike


def find_shapes(start: Form, calls: Sequence[Call]) -> dict[str, str] | None:
    """Returns the tensors' shapes as parts of the first one's, if calls have other numbers of axes."""
    answers, evaluate = {}, start.rehearsal.evaluate
    for name in calls[0].tensors:
        pairs = [(next(iter(call.tensors.values())).shape, call.tensors[name].shape) for call in calls]
        texts = ("shape", "shape[-1:]", "shape[:-1]", "shape[-2:]", "shape[:1]")
        fits = (text for text in texts if all(evaluate(text, {"shape": one}) == value for one, value in pairs))
        answers[name] = next(fits, "")
    return answers if all(answers.values()) else None


def unite(form: Form, names: Mapping[str, str]) -> Form:
    """Returns the form with others in the place of axes: those that it has already, terms of them, or numbers."""
    word = re.compile(r"\b\w+\b")
    shapes, inputs = (
        {key: word.sub(lambda one: names.get(one[0], one[0]), text) for key, text in texts.items()}
        for texts in (form.shapes, form.inputs)
    )
    return replace(form, axes=tuple(axis for axis in form.axes if axis not in names), shapes=shapes, inputs=inputs)


def write_inputs(
    start: Form, axes: tuple[str, ...], shapes: Mapping[str, str], numbers: Mapping[str, str], calls: Sequence[Call]
) -> Form:
    """The form with what makes its inputs: a tensor as the first call's test did, a number that is an axis by that."""
    inputs = {name: numbers.get(name, repr(value)) for name, value in calls[0].given.items()}
    for name, tensor in calls[0].tensors.items():
        follows = all(call.tensors[name].dtype == call.dtype for call in calls)
        most = "2" if tensor.dtype == "bool" else "1 << 4"
        text = f"torch.randint(0, {most}, {{shape}}, generator=generator, dtype={{dtype}}, device=device)"
        if tensor.dtype.startswith("float8"):
            text = "torch.randn({shape}, generator=generator, device=device).to({dtype})"
        elif "float" in tensor.dtype:
            text = "torch.randn({shape}, generator=generator, dtype={dtype}, device=device)"
        dtype = "dtype" if follows else f"torch.{tensor.dtype}"
        inputs[name] = (tensor.text or text).format(shape=shapes[name], dtype=dtype)
    return replace(start, axes=axes, shapes=shapes, inputs=inputs, dtype=calls[0].dtype)


def list_names(sides: Sequence[Place], calls: Sequence[Call]) -> list[str]:
    """Names of the axes that begin with these sides: the test's name if it has exactly one, else a usual one."""
    chosen = [call for call in calls if call.part == "accuracy"] or calls
    shared = set.intersection(*({*call.names} for call in chosen)) - TAKEN
    values_of = {name: [call.names[name] for call in chosen] for name in sorted(shared)}
    sizes = [[call.tensors[name].shape[axis] for call in chosen] for name, axis in sides]
    axes = list[str]()
    for (tensor, axis), size in zip(sides, sizes, strict=True):
        fitting = [name for name, values in values_of.items() if values == size]
        rank = len(calls[0].tensors[tensor].shape)
        usual = USUAL.get(rank, tuple(f"d{number}" for number in range(rank)))[axis]
        usual = usual if tensor == sides[0][0] else f"{tensor}_{usual}".lower()
        name = fitting[0] if len(fitting) == 1 and sizes.count(size) == 1 else usual
        axes.append(f"{name}_" if name in axes else name)
    return axes
