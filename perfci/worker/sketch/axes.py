"""Which sides of a function's tensors are the same, found by calling it, and what its cases' parameters are then."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from perfci.device.seam import Argument, SketchLaunch

if TYPE_CHECKING:
    from perfci.device.rehearsal import Rehearsal

MOST_TRIALS = 3000  # Ways to name the sides that are tried at most. Each takes less than a millisecond.

SIZES = ((3, 5, 7, 11, 13, 17, 19, 23, 29, 31), (192, 320, 448, 704, 832, 1088, 1216, 1472, 1856, 1984))
"""Sizes that distinguish axes, the second ones for functions that refuse what no block divides."""

USUAL = {1: ("size",), 2: ("rows", "cols"), 3: ("batch", "rows", "cols"), 4: ("batch", "heads", "rows", "cols")}
TAKEN = frozenset({"dtype", "device", "seed", "generator", "torch", "shape", "i", "_"})

Place = tuple[str, int | None]  # a side of a tensor, or an argument that is a number, with None


@dataclass
class Call:
    """One call of kernel or reference, in a test."""

    role: str  # kernel or reference
    name: str  # of the function
    part: str  # accuracy or performance
    given: Mapping[str, Any]  # argument -> `Argument`, or the value of what is no tensor
    names: Mapping[str, int]  # integers that the test has by a name
    returned: bool = False  # it raised nothing

    @property
    def tensors(self) -> dict[str, Argument]:
        """The arguments that are tensors."""
        return {name: value for name, value in self.given.items() if isinstance(value, Argument)}

    @property
    def key(self) -> str:
        """Equal for calls of one case."""
        return repr({**self.given, **{name: (each.shape, each.dtype) for name, each in self.tensors.items()}})

    @property
    def dtype(self) -> str:
        """Of the first tensor of a floating-point type, else of the first one."""
        dtypes = [each.dtype for each in self.tensors.values()]
        return next((each for each in dtypes if "float" in each), dtypes[0])


@dataclass(frozen=True)
class Outcome:
    """What a trial gave: shapes of both outputs, and the kernel's launches."""

    kernel: tuple[tuple[int, ...], ...] | None
    reference: tuple[tuple[int, ...], ...] | None
    launches: tuple[SketchLaunch, ...]


@dataclass(frozen=True)
class Form:
    """How the arguments of a call follow from a case's parameters. All of it is text as in make_inputs."""

    axes: tuple[str, ...]
    shapes: Mapping[str, str]  # tensor -> its shape, such as (rows, cols)
    dtypes: Mapping[str, str]  # tensor -> its dtype, such as float16, in trials
    values: Mapping[str, str]  # argument that is no tensor -> its value
    kernel: Callable[..., Any]
    reference: Callable[..., Any]  # takes the kernel's arguments
    rehearsal: Rehearsal

    def try_case(self, params: Mapping[str, Any]) -> Outcome | None:
        """Returns what kernel and reference give for a case. None if one of them refuses it."""
        going = self.rehearsal

        def make_arguments() -> dict[str, Any]:
            shapes = {name: going.evaluate(text, params) for name, text in self.shapes.items()}
            tensors = {name: going.tensor(shape, self.dtypes[name]) for name, shape in shapes.items()}
            return tensors | {name: going.evaluate(text, params) for name, text in self.values.items()}

        try:
            del going.launches[:]
            shapes = going.shape_of(self.kernel(**make_arguments()))
            launches = tuple(going.launches)
            return Outcome(shapes, going.shape_of(self.reference(**make_arguments())), launches)
        except Exception:  # whatever other people's code raises
            return None

    def make_distinct(self, sizes: Sequence[int] = SIZES[0]) -> dict[str, Any]:
        """Returns a case in which every axis has another size."""
        if self.axes == ("shape",):
            return {"shape": tuple(sizes[:2])}
        return dict(zip(self.axes, sizes, strict=False))


def make_call(function: Any, texts: Sequence[str], defaults: Mapping[str, Any]) -> Callable[..., Any]:
    """Returns a function that takes the kernel's arguments, and passes them on as the texts say: `x`, `dim=-1`."""

    def call(**given: Any) -> Any:
        pairs = [text.rpartition("=") for text in texts]
        values = [(name, eval(value, {}, {**defaults, **given})) for name, _, value in pairs]
        named = {name: value for name, value in values if name}
        return function(*(value for name, value in values if not name), **named)

    return call


def write_tuple(parts: Sequence[str]) -> str:
    """Returns a tuple as text."""
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def list_sides(text: str) -> list[str]:
    """Returns the sides of a shape that is text."""
    return [side.strip() for side in text.strip("()").split(",") if side.strip()]


def find_form(start: Form, calls: Sequence[Call]) -> tuple[Form, list[Call], bool]:
    """Returns the form of the calls, the calls that have it, and whether a trial has shown it to be right."""
    ranks = [[len(each.shape) for each in call.tensors.values()] for call in calls]
    dtypes = {name: each.dtype for name, each in calls[0].tensors.items()}
    values = {name: repr(value) for name, value in calls[0].given.items() if not isinstance(value, Argument)}
    start = replace(start, dtypes=dtypes, values=values)
    alike = [call for call, rank in zip(calls, ranks, strict=True) if rank == ranks[0]]
    if len(alike) < len(calls):
        found, evaluate = {}, start.rehearsal.evaluate
        for name in dtypes:
            pairs = [(next(iter(call.tensors.values())).shape, call.tensors[name].shape) for call in calls]
            texts = ("shape", "shape[-1:]", "shape[:-1]", "shape[-2:]", "shape[:1]")
            fits = (text for text in texts if all(evaluate(text, {"shape": one}) == own for one, own in pairs))
            found[name] = next(fits, "")
        if all(found.values()):
            form = replace(start, axes=("shape",), shapes=found)
            return form, list(calls), form.try_case(form.make_distinct()) is not None
    forms = list(_list_forms(start, alike))
    for distinct in SIZES:
        for form in forms:
            done = form.try_case(form.make_distinct(distinct))
            if done and done.kernel == done.reference:
                return form, alike, True
    return forms[-1], alike, False


def _list_forms(start: Form, calls: Sequence[Call]) -> Iterator[Form]:
    """Yields forms in which as few sides as possible are the same first, and the usual one last.

    Sides that differ somewhere are two axes. One that moves with exactly one side of another tensor is that one's axis.
    """
    first = calls[0]
    ranks = {name: len(each.shape) for name, each in first.tensors.items()}
    places: list[Place] = [(name, axis) for name, rank in ranks.items() for axis in range(rank)]
    places += [(name, None) for name, value in first.given.items() if type(value) is int and value > 16]
    sizes = {
        (name, axis): tuple(call.given[name] if axis is None else call.given[name].shape[axis] for call in calls)
        for name, axis in places
    }
    options: list[list[Place | None]] = []
    for number, (name, axis) in enumerate(places):
        earlier = [other for other in places[:number] if other[1] is not None and sizes[other] == sizes[name, axis]]
        if axis is not None:
            # Sides at the same distance from the end first.
            earlier.sort(key=lambda other: abs(ranks[name] - axis - (ranks[other[0]] - (other[1] or 0))))
        bound = len(earlier) == 1 and len({*sizes[name, axis]}) > 1 and earlier[0][0] != name
        options.append([*earlier] or [None] if bound or axis is None else [None, *earlier])
    usual = [
        next((other for other in known if other and other[0] != place[0]), None)
        for place, known in zip(places, options, strict=True)
    ]
    ways = list(itertools.product(*options)) if math.prod(map(len, options)) <= MOST_TRIALS else []
    ways.sort(key=lambda way: len(way) - way.count(None))
    for way in (*ways, usual):
        tied = dict(zip(places, way, strict=True))
        if any(other is not None and tied[other] is not None for other in way):
            continue  # tied to one that is tied itself
        roots = [place for place in places if tied[place] is None and place[1] is not None]
        names = _name_axes(roots, calls, sizes)
        axis_of = {place: names[tied[place] or place] for place in places if (tied[place] or place) in names}
        shapes = {name: write_tuple([axis_of[name, axis] for axis in range(rank)]) for name, rank in ranks.items()}
        numbers = {name: axis_of[name, None] for name, at in places if at is None and (name, None) in axis_of}
        yield replace(start, axes=tuple(names.values()), shapes=shapes, values={**start.values, **numbers})


def _name_axes(
    roots: Sequence[Place], calls: Sequence[Call], sizes: Mapping[Place, tuple[int, ...]]
) -> dict[Place, str]:
    """The test's own name for an axis, if it has exactly one, else a usual one."""
    chosen = [number for number, call in enumerate(calls) if call.part == "accuracy"] or [*range(len(calls))]
    known = set.intersection(*({*calls[number].names} for number in chosen))
    own = {name: [calls[number].names[name] for number in chosen] for name in sorted(known - TAKEN)}
    found: dict[Place, str] = {}
    for place in roots:
        fitting = [name for name, values in own.items() if values == [sizes[place][number] for number in chosen]]
        unique = len(fitting) == 1 and [sizes[each] for each in roots].count(sizes[place]) == 1
        rank = len(calls[0].tensors[place[0]].shape)
        usual = USUAL.get(rank, tuple(f"d{number}" for number in range(rank)))[place[1] or 0]
        name = fitting[0] if unique else usual if place[0] == roots[0][0] else f"{place[0]}_{usual}".lower()
        found[place] = f"{name}_" if name in found.values() else name
    return found
