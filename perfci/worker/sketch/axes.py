"""Which sides of a function's tensors are the same, found by calling it, and what its cases' parameters are then."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from perfci.device.seam import Argument, SketchLaunch

if TYPE_CHECKING:
    from perfci.device.rehearsal import Rehearsal

MOST_TRIALS = 3000
"""Ways to name the sides that are tried at most; each takes less than a millisecond."""

SIZES = ((3, 5, 7, 11, 13, 17, 19, 23, 29, 31), (192, 320, 448, 704, 832, 1088, 1216, 1472, 1856, 1984))
"""Sizes that tell axes from each other, the second ones for functions that refuse what no block divides."""

USUAL = {1: ("size",), 2: ("rows", "cols"), 3: ("batch", "rows", "cols"), 4: ("batch", "heads", "rows", "cols")}
TAKEN = frozenset({"dtype", "device", "seed", "generator", "torch", "shape", "i", "_"})


@dataclass(frozen=True)
class Call:
    """One call of the kernel, in a test."""

    part: str
    """accuracy or performance"""
    given: Mapping[str, Any]
    """argument -> `Argument`, or the value of what is no tensor"""
    names: Mapping[str, int]
    """integers that the test has by a name"""

    @property
    def tensors(self) -> dict[str, Argument]:
        """The arguments that are tensors."""
        return {name: value for name, value in self.given.items() if isinstance(value, Argument)}

    @property
    def key(self) -> str:
        """Equal for calls of one case."""
        seen = {name: (each.shape, each.dtype, each.order) for name, each in self.tensors.items()}
        return repr({**self.given, **seen})

    @property
    def dtype(self) -> str:
        """Of the first tensor of a floating-point type, else of the first one."""
        dtypes = [each.dtype for each in self.tensors.values()]
        return next((each for each in dtypes if "float" in each), dtypes[0])


@dataclass(frozen=True)
class Outcome:
    """What a trial gave."""

    kernel: tuple[tuple[int, ...], ...] | None
    """shapes of its outputs"""
    reference: tuple[tuple[int, ...], ...] | None
    launches: tuple[SketchLaunch, ...]


@dataclass(frozen=True)
class Form:
    """How the arguments of a call follow from a case's parameters; all of it is text as in make_inputs."""

    axes: tuple[str, ...]
    shapes: Mapping[str, str]
    """tensor -> its shape, such as (rows, cols)"""
    dtypes: Mapping[str, str]
    """tensor -> its dtype, such as float16, in trials"""
    values: Mapping[str, str]
    """argument that is no tensor -> its value"""
    kernel: Callable[..., Any]
    reference: Callable[..., Any]
    """takes the kernel's arguments"""
    rehearsal: Rehearsal
    orders: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def arguments(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Of a trial."""
        evaluated = self.rehearsal.evaluated
        made = {
            name: self.rehearsal.tensor(evaluated(text, params), self.orders.get(name, ()), self.dtypes[name])
            for name, text in self.shapes.items()
        }
        return made | {name: evaluated(text, params) for name, text in self.values.items()}

    def tried(self, params: Mapping[str, Any]) -> Outcome | None:
        """What kernel and reference give for a case; None if one of them refuses it."""
        try:
            del self.rehearsal.launches[:]
            given = self.arguments(params)
            takes = inspect.signature(self.kernel).parameters.values()
            placed = [
                given.pop(each.name) for each in takes if each.kind is each.POSITIONAL_ONLY and each.name in given
            ]
            out = self.rehearsal.shape_of(self.kernel(*placed, **given))
            launches = tuple(self.rehearsal.launches)
            return Outcome(out, self.rehearsal.shape_of(self.reference(**self.arguments(params))), launches)
        except Exception:  # whatever other people's code raises
            return None

    def distinct(self, sizes: Sequence[int] = SIZES[0]) -> dict[str, Any]:
        """A case in which every axis has another size."""
        if self.axes == ("shape",):
            return {"shape": tuple(sizes[:2])}
        return dict(zip(self.axes, sizes, strict=False))


def written(parts: Sequence[str]) -> str:
    """A tuple, as text."""
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


# --- of calls ---------------------------------------------------------------------------------------------------------


def form_of(start: Form, calls: Sequence[Call]) -> tuple[Form, list[Call], bool]:
    """The form of the calls, the calls that have it, and whether a trial has shown it to be right.

    Calls with tensors of several ranks have one parameter, `shape`, if all shapes follow from the first tensor's.
    """
    ranks = [[len(each.shape) for each in call.tensors.values()] for call in calls]
    values = {name: repr(value) for name, value in calls[0].given.items() if not isinstance(value, Argument)}
    alike = [call for call, rank in zip(calls, ranks, strict=True) if rank == ranks[0]]
    if len(alike) < len(calls) and (texts := _of_shape(start, calls)):
        dtypes = {name: each.dtype for name, each in calls[0].tensors.items()}
        form = replace(start, axes=("shape",), shapes=texts, dtypes=dtypes, values=values)
        return form, list(calls), form.tried(form.distinct()) is not None
    form, right = _named(replace(start, values=values), alike)
    return form, alike, right


def _of_shape(start: Form, calls: Sequence[Call]) -> dict[str, str] | None:
    """Tensor -> its shape by the first one's, where that has several ranks."""
    found, evaluated = {}, start.rehearsal.evaluated
    for name in calls[0].tensors:
        texts = ("shape", "shape[-1:]", "shape[:-1]", "shape[-2:]", "shape[:1]")
        pairs = [(next(iter(call.tensors.values())).shape, call.tensors[name].shape) for call in calls]
        fits = (text for text in texts if all(evaluated(text, {"shape": one}) == own for one, own in pairs))
        found[name] = next(fits, "")
    return found if all(found.values()) else None


Place = tuple[str, int | None]
"""A side of a tensor; an argument that is a number, with None."""


def _named(start: Form, calls: Sequence[Call]) -> tuple[Form, bool]:
    """The form in which as few sides as possible are the same, of those that kernel and reference take.

    Sides that differ somewhere are two axes; one that moves with exactly one side of another tensor is that one's axis.
    """
    first = calls[0]
    places: list[Place] = [(name, axis) for name, each in first.tensors.items() for axis in range(len(each.shape))]
    places += [(name, None) for name, value in first.given.items() if type(value) is int and value > 16]
    sizes = {place: tuple(_size(call, place) for call in calls) for place in places}
    options: list[list[Place | None]] = []
    for number, (name, axis) in enumerate(places):
        same: list[Place | None] = [
            other for other in places[:number] if other[1] is not None and sizes[other] == sizes[name, axis]
        ]
        if axis is not None and same:
            rank = len(first.tensors[name].shape)
            same.sort(key=lambda other: abs(rank - axis - (len(first.tensors[other[0]].shape) - other[1])))  # type: ignore
        bound = len(same) == 1 and len({*sizes[name, axis]}) > 1 and same[0][0] != name  # type: ignore[index]
        options.append(same or [None] if bound or axis is None else [None, *same])
    dtypes = {name: each.dtype for name, each in first.tensors.items()}
    orders = {name: each.order for name, each in first.tensors.items() if each.dense}
    start = replace(start, dtypes=dtypes, orders=orders)
    usual = [
        next((other for other in known if other and other[0] != place[0]), None)
        for place, known in zip(places, options, strict=True)
    ]
    ways = list(itertools.product(*options)) if math.prod(map(len, options)) <= MOST_TRIALS else []
    ways.sort(key=lambda way: len(way) - way.count(None))
    forms = list(_forms(start, places, [*ways, usual], calls, sizes))
    for distinct in SIZES:
        for form in forms:
            done = form.tried(form.distinct(distinct))
            if done and done.kernel == done.reference:
                return form, True
    return forms[-1], False


def _size(call: Call, place: Place) -> int:
    name, axis = place
    value = call.given.get(name)
    return value.shape[axis] if isinstance(value, Argument) and axis is not None else value  # type: ignore[return-value]


def _forms(
    start: Form,
    places: Sequence[Place],
    ways: Sequence[Sequence[Place | None]],
    calls: Sequence[Call],
    sizes: Mapping[Place, tuple[int, ...]],
) -> Iterator[Form]:
    for way in ways:
        tied = dict(zip(places, way, strict=True))
        if any(other is not None and tied[other] is not None for other in way):
            continue  # tied to one that is tied itself
        roots = [place for place in places if tied[place] is None and place[1] is not None]
        names = _axis_names(roots, calls, sizes)
        axis = {place: names[tied[place] or place] for place in places if (tied[place] or place) in names}
        shapes = {
            name: written([axis[name, number] for number in range(len(each.shape))])
            for name, each in calls[0].tensors.items()
        }
        numbers = {name: axis[name, None] for name, at in places if at is None and (name, None) in axis}
        yield replace(start, axes=tuple(names.values()), shapes=shapes, values={**start.values, **numbers})


def _axis_names(
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
