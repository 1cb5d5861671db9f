"""Sides and integers that depend on each other: found in a case in which all sides are alike, then taken apart.

In that case an index points inside whatever it points into, and pieces end where their axis ends. What depends on what
is seen afterwards, as the kernel reaches beyond its tensors or gives other values once two sizes differ.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from perfci.extensions.adopt.rehearsal.axes import Form, list_sides, unite

WHOLE = "torch.randint(0, 1 << 4, {shape}, generator=generator, dtype={dtype}, device=device)"
LONGEST = re.compile(r"max_?(in(put)?_?)?(seq_?)?len", re.IGNORECASE)
_CUTS = re.compile(r"^cu_|offs(ets?)?$|indptr|start_?locs?$|(^|_)bins$|(^|_)starts?$|splits$", re.IGNORECASE)
_LENGTHS = re.compile(r"len(gth)?s?(_\w)?$|(^|_)num_\w+", re.IGNORECASE)
"""Names of where the pieces of an axis begin, such as the sequences of a batch, and how long they are."""

SQUARES = (4, 16)  # size of all sides
_FREE = "16"  # of what no side bounds
_MOST_KINDS = 40  # ways to fill integer tensors that are tried
_MOST_WAYS = 4096  # that are weighed
_FEW_AXES = 8  # of which any two are tried together
_PLAIN = re.compile(r"(?:\d+ \* )?(\w+)")


def settle(form: Form) -> Iterator[Form]:
    """Yields the form with sides and integers for which kernel and reference agree, the likeliest first."""
    ways = [*itertools.islice(_list_kinds(form), _MOST_KINDS)]
    for size, one in itertools.product(SQUARES, ways):
        if form.rehearsal.is_late:
            return
        if unite(one, dict.fromkeys(one.axes[1:], one.axes[0])).holds({one.axes[0]: size}):
            apart = _take_apart(one, size)
            # Else all sides are numbers, parts of what no tensor has, or of one size, and pass for each other.
            if len(apart.axes) > 1 or (apart.axes and not form.rehearsal.is_late):
                yield replace(apart, little=dict.fromkeys(apart.axes, size))


def _take_apart(form: Form, size: int) -> Form:
    """The form with as many axes as kernel and reference allow: what has to grow with another side is of its size."""
    listed = [
        [match[1] for side in list_sides(text) if (match := _PLAIN.fullmatch(side))] for text in [*form.shapes.values()]
    ]
    cuts = _list_cuts([[axis for axis in sides if axis in form.axes] for sides in listed])

    def grows(longer: Collection[str]) -> bool:
        """Whether these sides may be twice as long as the others."""
        others = [axis for axis in form.axes if axis not in longer]
        first = next(iter(longer))
        names = {**dict.fromkeys(longer, first), **(dict.fromkeys(others, others[0]) if others else {})}
        sizes = {axis: 2 * size if axis == first else size for axis in names.values()}
        alike = unite(form, {old: new for old, new in names.items() if old != new})
        return not form.rehearsal.is_late and alike.run(sizes).is_good

    groups = {axis: {axis} for axis in form.axes}
    pairs = map(set, itertools.combinations(form.axes, 2)) if len(form.axes) <= _FEW_AXES else ()
    some = [*cuts, *({axis} for axis in form.axes), *pairs]
    for axis in form.axes:
        longer = {axis}
        if not grows(longer):
            longer = {*form.axes}
            for cut in (cut for _ in range(2) for cut in some if axis not in cut):
                fewer = longer - cut
                longer = fewer if fewer != longer and grows(fewer) else longer
        joined = set[str]().union(*(groups[one] for one in longer))
        groups |= dict.fromkeys(joined, joined)
    places = re.findall(r"[a-z_]\w*", " ".join(form.shapes.values()))
    first_of = {axis: next((one for one in places if one in groups[axis]), None) for axis in form.axes}
    return unite(form, {axis: first or _FREE for axis, first in first_of.items() if axis != first})


def _list_cuts(tensors: Sequence[Sequence[str]]) -> list[set[str]]:
    """Sides that may be of one size: those of one place in several tensors, all or two, and those of a tensor."""
    wide = [sides for sides in tensors if len(sides) > 1]
    columns = [
        {sides[at] for sides in some if -len(sides) <= at < len(sides)}
        for some in (wide, tensors)
        for at in range(-4, 4)
    ]
    pairs = [{*pair} for column in columns for pair in itertools.combinations(sorted(column), 2)]
    cuts = [*columns, *map(set, wide), *pairs]
    return sorted((one for at, one in enumerate(cuts) if len(one) > 1 and one not in cuts[:at]), key=len, reverse=True)


def _list_kinds(form: Form) -> Iterator[Form]:
    """The form with what its integer tensors may hold, the likeliest first: each has its greatest number as an axis."""
    whole = [name for name, text in form.inputs.items() if "1 << 4" in text]
    most = int(_MOST_WAYS ** (1 / max(len(whole), 1)))
    options = [sorted(_list_fillings(form, name), key=lambda option: option[0])[: max(most, 1)] for name in whole]
    for way in sorted(itertools.product(*options), key=lambda way: sum(cost for cost, *_ in way)):
        shapes = {name: shape for name, (_, shape, _) in zip(whole, way, strict=True)}
        inputs = {name: text for name, (_, _, text) in zip(whole, way, strict=True)}
        if cut := next((name for name, text in inputs.items() if "linspace" in text), None):
            numbers = [name for name in form.inputs if LONGEST.search(name) and name not in form.shapes]
            inputs |= dict.fromkeys(numbers, f"most_{cut}")
        more = tuple(f"most_{name}" for name, text in inputs.items() if f"most_{name}" in text)
        yield replace(
            form, axes=(*form.axes, *more), shapes={**form.shapes, **shapes}, inputs={**form.inputs, **inputs}
        )


def _list_fillings(form: Form, name: str) -> Iterator[tuple[float, str, str]]:
    """What an integer tensor may hold: how unlikely it is by the tensor's name, its shape, and what makes it."""
    shape, text, most = form.shapes[name], form.inputs[name], f"most_{name}"
    cuts = bool(_CUTS.search(name))
    lengths = not cuts and bool(_LENGTHS.search(name))
    kind = re.search(r"dtype=([\w.]+)", text)
    dtype, sides = kind[1] if kind else "torch.int32", list_sides(shape)
    below, named = text.replace("1 << 4", most), 2.0 * (cuts or lengths)
    yield named, shape, below
    yield named + 2.0, shape, text.replace("1 << 4", "2")
    yield named + 1.2, shape, f"{below}.sort(-1).values"
    yield (0.0 if lengths else 2.2 + named), shape, text.replace("0, 1 << 4", f"1, {most} + 1")
    for cost, dim in ((1.0, -1), (1.1, 0)) if len(sides) > 1 else ((1.0, -1),):
        places = f"torch.randn({shape}, generator=generator, device=device).argsort({dim}).to({dtype})"
        row = f"torch.randperm({sides[0]}, generator=generator, dtype={dtype}, device=device)"
        yield named + cost, shape, places if len(sides) > 1 else row
    if len(sides) == 1:
        yield (0.5 if lengths else 3.0 + named), shape, text.replace("1 << 4", f"{most} // {sides[0]} + 1")
        for cost, steps, part, size in (
            (0.0, sides[0], "", shape),
            (0.3, f"{sides[0]} + 1", "", f"({sides[0]} + 1,)"),
            (0.6, f"{sides[0]} + 1", "[:-1]", shape),
            (0.9, f"{sides[0]} + 1", "[1:]", shape),
        ):
            steps_text = f"torch.linspace(0, {most}, {steps}, device=device){part}.to({dtype})"
            yield cost + 3.0 * (not cuts), size, steps_text
