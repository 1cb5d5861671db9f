"""Sides that follow from others as the kernel shows: it reaches so far along each axis of its tensors, at two sizes."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from perfci.extensions.adopt.rehearsal.axes import Form, list_sides, unite

_FEW = (2, 3), (3, 2), (2, 5), (5, 2), (3, 5), (5, 3)
_MANY = (21, 11), (11, 21), (13, 37), (37, 13), (29, 17), (17, 29)
_BLOCKS = (128, 256), (256, 128), (64, 512), (512, 64), (32, 128), (128, 32)
"""Two sizes of each side that others may follow from: of outer axes, and of a tensor's last two, which may be blocks"""
_LONG = (600, 160, 40)  # sizes of those that may follow
_PARTS = (2, 4, 8, 16, 32, 64, 128)
_EIGHTHS = (3, 5, 6)  # bits of codes that lie side by side
_Seen = tuple[dict[str, int], dict[str, int]]  # sizes of axes, and how far the kernel reached along others
_WORD = re.compile(r"[A-Za-z_]\w*")


def follow(form: Form) -> Iterator[Form]:
    """Yields the form with sides that follow from others, if the kernel reaches as far at two sizes."""
    counts = Counter(name for text in form.shapes.values() for name in _WORD.findall(text))
    used = {*_WORD.findall(" ".join(text for name, text in form.inputs.items() if name not in form.shapes))}
    plain = {side for text in form.shapes.values() for side in list_sides(text)}
    loose = [axis for axis in form.axes if counts[axis] == 1 and axis in plain and axis not in used]
    first = [*map(str.strip, list_sides(next(iter(form.shapes.values()), "")))]
    free = [axis for axis in loose if axis not in first] or loose[1:]
    for many in (_MANY, _BLOCKS) if free else ():
        if texts := _explain(form, free, many):
            yield unite(form, texts)


def _explain(form: Form, free: list[str], many: tuple[tuple[int, int], ...]) -> dict[str, str]:
    """What axes are in others by how far the kernel reaches."""
    fixed, seen = [axis for axis in form.axes if axis not in free], list[_Seen]()
    shapes = [list_sides(text) for text in form.shapes.values()]
    outer, inner = (
        {*itertools.chain(*parts)} for parts in zip(*((shape[:-2], shape[-2:]) for shape in shapes), strict=True)
    )
    some = iter(_FEW), iter(many)
    pairs = {axis: next(some[axis in inner - outer], (7, 9)) for axis in fixed}
    for turn in (0, 1):
        base = {axis: pair[turn] for axis, pair in pairs.items()}
        for long in _LONG:
            if extents := form.find_extents({**base, **dict.fromkeys(free, long)}):
                seen.append((base, _read(form, extents)))
                break
    if len(seen) < 2:
        return {}
    numbers = [int(text) for text in form.inputs.values() if text.isdigit() and int(text) > 1]
    texts = dict[str, str]()
    for axis in free:
        wanted = [reached.get(axis) for _, reached in seen]
        ways = (text for text in _list_terms(fixed, numbers) if _is_like(form, text, seen, wanted))
        if None not in wanted and set(wanted) != {1} and (text := next(ways, None)):
            texts[axis] = text
    return texts


def _is_like(form: Form, text: str, seen: Sequence[_Seen], wanted: Sequence[int | None]) -> bool:
    return all(form.rehearsal.evaluate(text, base) == size for (base, _), size in zip(seen, wanted, strict=True))


def _read(form: Form, extents: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """How far the kernel reaches along the sides that are an axis each."""
    return {
        side: extent
        for name, reached in extents.items()
        if name in form.shapes
        for side, extent in zip(list_sides(form.shapes[name]), reached, strict=True)
        if side in form.axes
    }


def _list_terms(fixed: list[str], numbers: list[int]) -> Iterator[str]:
    """Yields what a side may be, the likeliest first."""
    yield from fixed
    parts = dict.fromkeys([*numbers, *_PARTS])
    for number, axis in itertools.product(parts, fixed):
        yield f"-(-{axis} // {number})"
        yield f"{number} * {axis}"
    for bits, axis in itertools.product(_EIGHTHS, fixed):
        yield f"-(-{bits} * {axis} // 8)"
    for axis in fixed:
        yield f"{axis} + 1"
    for one, other in itertools.combinations(fixed, 2):
        yield f"{one} * {other}"
    yield from map(str, dict.fromkeys([*numbers, *_PARTS, 3]))
