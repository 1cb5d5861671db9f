"""The cases of an op's two suites: those of the calls, and sizes around the ends of the blocks that its grid walks."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfci.core.model import Reason
from perfci.device.seam import Argument
from perfci.ops.spec import VALUES, case_id
from perfci.scaffold.suites import Case, Suites, fitted
from perfci.worker.sketch.axes import SIZES, Call, Form, written

MOST_ELEMENTS = 1 << 18
"""Largest tensor of an accuracy case: more would take Triton's interpreter minutes."""

USUAL_BLOCK = 128
_PROBE = (100, 33, 7, 5, 3, 3)
"""Sizes of the probe case, from the last axis on."""
_LITTLE = 3
"""Size of the axes that are not varied."""


Grid = dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Cases:
    """The suites, and what a person has to look at."""

    suites: Suites
    look: tuple[Reason, ...]


def of_calls(op: str, form: Form, calls: Sequence[Call], source: str) -> Cases:
    """The suites of an op whose calls are known; those that are too large for the interpreter are performance cases."""
    varying = [name for name in form.values if name not in form.axes and _differs(calls, name)]
    look = []
    found: dict[str, list[Case]] = {"accuracy": [], "performance": []}
    large = 0
    for call in calls:
        case = {
            **_params(form, call),
            **{name: repr(call.given[name]) for name in varying},
            "dtype": f"torch.{call.dtype}",
        }
        elements = max(math.prod(each.shape) for each in call.tensors.values())
        part = call.part
        if part == "accuracy" and elements > MOST_ELEMENTS:
            part = "performance"
            large += case not in found[part]
        if case not in found[part]:
            found[part].append(case)
    if large:
        look.append(Reason("look_large", {"op": op}))
    dtypes = tuple(dict.fromkeys(call.dtype for call in calls if call.part == "accuracy" or not found["accuracy"]))
    inputs = dict(_inputs(form, calls))
    if any("1 << 4" in text for text in inputs.values()):
        look.append(Reason("look_integers", {"op": op}))
    performance = tuple(found["performance"] or found["accuracy"])
    if not found["accuracy"] and form.tried(form.distinct()) is None:
        found["accuracy"] = [min(performance, key=lambda case: math.prod(_numbers(case)))]
    annotations = {name: type(calls[0].given[name]).__name__ for name in varying}
    return made(op, form, inputs, dtypes, tuple(found["accuracy"]), performance, source, look, annotations)


def _numbers(case: Case) -> list[int]:
    return [int(number) for value in case.values() for number in re.findall(r"\b\d+\b", value)]


def _differs(calls: Sequence[Call], name: str) -> bool:
    return len({repr(call.given[name]) for call in calls}) > 1


def _params(form: Form, call: Call) -> dict[str, str]:
    """A call's sizes by the names of the axes."""
    if form.axes == ("shape",):
        return {"shape": written([str(size) for size in next(iter(call.tensors.values())).shape])}
    found = dict[str, str]()
    for name, text in form.shapes.items():
        sides = [side.strip() for side in text.strip("()").split(",") if side.strip()]
        found |= {side: str(size) for side, size in zip(sides, call.tensors[name].shape, strict=True)}
    return {axis: found[axis] for axis in form.axes}


def _inputs(form: Form, calls: Sequence[Call]) -> Iterator[tuple[str, str]]:
    """Argument -> the expression that makes it, as the first call's test did."""
    for name in calls[0].given:
        if name not in form.shapes:
            yield name, name if _differs(calls, name) and form.values[name] not in form.axes else form.values[name]
            continue
        first = calls[0].tensors[name]
        same = all(call.tensors[name].dtype == call.dtype for call in calls)
        dtype = "dtype" if same else f"torch.{first.dtype}"
        shape, back = form.shapes[name], ""
        if first.dense and [*first.order] != sorted(first.order) and form.axes != ("shape",):
            sides = [side.strip() for side in shape.strip("()").split(",") if side.strip()]
            shape = written([sides[axis] for axis in first.order])
            back = f".permute({', '.join(str(first.order.index(axis)) for axis in range(len(sides)))})"
        numbers = [_number(form, calls, name, place) for place in range(len(first.numbers))]
        text = first.text or _drawn(first)
        yield name, text.format(*numbers, shape=shape, dtype=dtype) + back


def _number(form: Form, calls: Sequence[Call], name: str, place: int) -> str:
    """A number of an expression: an axis, if it is one's size in all calls, such as the rows that indices point to."""
    numbers = [call.tensors[name].numbers[place] for call in calls if len(call.tensors[name].numbers) > place]
    for axis in form.axes if form.axes != ("shape",) else ():
        if numbers[0] > 8 and [str(number) for number in numbers] == [_params(form, call)[axis] for call in calls]:
            return axis
    return repr(numbers[0])


def _drawn(argument: Argument) -> str:
    """What stands for values of which nobody knows how they were made."""
    if argument.dtype.startswith("float8"):
        return "torch.randn({shape}, generator=generator, device=device).to({dtype})"
    if "float" in argument.dtype:
        return "torch.randn({shape}, generator=generator, dtype={dtype}, device=device)"
    most = "2" if argument.dtype == "bool" else "1 << 4"
    return f"torch.randint(0, {most}, {{shape}}, generator=generator, dtype={{dtype}}, device=device)"


# --- the suites -------------------------------------------------------------------------------------------------------


def made(
    op: str,
    form: Form,
    inputs: Mapping[str, str],
    dtypes: tuple[str, ...],
    accuracy: tuple[Case, ...],
    performance: tuple[Case, ...],
    source: str,
    look: Sequence[Reason] = (),
    annotations: Mapping[str, str] | None = None,
    notes: Mapping[str, tuple[str, ...]] | None = None,
) -> Cases:
    """The suites: these cases, those around the ends of blocks, and what can be told of the op itself."""
    extra = list(annotations or ())
    fixed = {name: (form.values[name],) for name in extra}
    done = form.tried(form.distinct())
    grids, refused = _edges(form) if done else ([], case_id(form.distinct()))
    if refused:
        look = [*look, Reason("look_refused", {"op": op, "case": refused})]
    if grids:
        look = [*look, Reason("look_edges", {"op": op})]
    probe = _probe(form)
    names = ", ".join([*form.axes, *extra, "dtype"])
    dot = bool(re.search(r"\btl\.dot\(", source))
    sides = _sides(form, done.reference[0]) if done and done.reference else None
    shapes = [_axes_of(text) for text in form.shapes.values()]
    summed = [axis for axis in form.axes if sides is not None and axis not in sides and axis != "shape"]
    summed = [axis for axis in summed if dot or all(axis in shape for shape in shapes)]
    lines = [
        "# Dense inputs alone; leave this line out once the op takes inputs with gaps too.",
        'layouts=("contiguous",),',
    ]
    reduces = [f"reduces=lambda {names}: {' * '.join(summed)},"] if summed else []
    lines += reduces
    if summed and not dot:
        lines.append("# All but large values: a sum that passes the largest number depends on the order of its terms.")
        lines += fitted("values=(", [f'"{each}"' for each in VALUES if each != "large"], "),", "    ")
    lines += ["uses_dot=True,"] if dot else []
    lines += ["deterministic=False,  # it adds atomically"] if "tl.atomic_" in source else []
    speed = []
    if sides is not None:
        # Whether an input is read, or gives no more than its shape, a rehearsal without values does not show. Too many
        # bytes would make a right kernel SUSPECT.
        read = form.shapes.values() if dot else ()
        terms = [*read, written(sides) if form.axes != ("shape",) else "shape"]
        products = [f"math.prod({text})" if "shape" in text else " * ".join(_axes_of(text)) or "1" for text in terms]
        counts = [(products.count(each), each) for each in dict.fromkeys(products)]
        total = " + ".join(f"{count} * {each}" if count > 1 else each for count, each in counts)
        total = f"({total})" if len(counts) > 1 else total
        if len({*form.dtypes.values()}) == 1:
            speed.append(f"bytes_moved=lambda {names}: {total} * dtype.itemsize,")
            look = [*look, Reason("look_bytes", {"op": op})]
        if dot and summed and len(form.shapes) == 2:
            speed.append(f"flops=lambda {names}: 2 * {' * '.join(form.axes)},")
    return Cases(
        Suites(
            op=op,
            axes=(*form.axes, *extra),
            inputs=inputs,
            dtypes=dtypes,
            edges=tuple({**grid, **fixed} for grid in grids),
            cases=accuracy,
            probe={**probe, **fixed} if probe else {},
            speed=performance,
            accuracy=tuple(lines),
            performance=tuple(speed + reduces),
            notes=notes or {},
            annotations={"shape": "tuple[int, ...]", **(annotations or {})},
        ),
        tuple(look),
    )


def _axes_of(text: str) -> list[str]:
    return [side.strip() for side in text.strip("()").split(",") if side.strip()]


def _sides(form: Form, shape: Sequence[int]) -> list[str] | None:
    """The axes of the output; None if they are not told by its sizes."""
    distinct = form.distinct()
    if form.axes == ("shape",):
        return ["shape"] if distinct["shape"] == shape else None
    by_size = {size: axis for axis, size in distinct.items()}
    return [by_size[size] for size in shape] if all(size in by_size for size in shape) else None


def _probe(form: Form) -> Grid:
    if form.axes == ("shape",):
        points: list[dict[str, Any]] = [{"shape": (33, 100)}, {"shape": (100,)}]
    else:
        sizes = [*reversed(_PROBE[: len(form.axes)])]
        sizes = [_LITTLE] * (len(form.axes) - len(sizes)) + sizes
        points = [dict(zip(form.axes, sizes, strict=True)), form.distinct(SIZES[0])]
    point = next((each for each in points if form.tried(each)), {})
    return {axis: (repr(value),) for axis, value in point.items()}


# --- where blocks end -------------------------------------------------------------------------------------------------


def _edges(form: Form) -> tuple[list[Grid], str | None]:
    """Grids in which one axis after the other ends around its blocks and past two of them; a case that was refused.

    Cases that kernel or reference refuse are not among them.
    """
    if form.axes == ("shape",):
        return _edges_of_shapes(form)
    blocks = {axis: _block(form, axis) for axis in form.axes}
    spare = [each for each in _constants(form) if each not in blocks.values()]
    grids, refused = list[Grid](), None
    for number, axis in enumerate(form.axes):
        block = blocks[axis] or (spare or [USUAL_BLOCK])[0]
        values = [*([0] if number == 0 else []), 1, block - 1, block, block + 1, 2 * block + 1]
        if block < 4:
            values = [*([0] if number == 0 else []), 1, 2, 13]
        rest = dict.fromkeys(form.axes, _LITTLE)
        values = [each for each in dict.fromkeys(values) if each != _LITTLE or number == 0]
        values = [each for each in values if each * _LITTLE ** (len(form.axes) - 1) <= MOST_ELEMENTS]
        accepted = [each for each in values if form.tried(rest | {axis: each})]
        dropped = [each for each in values if each not in accepted and each]
        refused = refused or (f"{axis}={dropped[0]}" if dropped else None)
        if accepted:
            grids.append({name: (str(_LITTLE),) for name in form.axes} | {axis: tuple(map(str, accepted))})
    return grids, refused


def _edges_of_shapes(form: Form) -> tuple[list[Grid], str | None]:
    block = _block(form, "shape") or (_constants(form) or [USUAL_BLOCK])[0]
    points = [(0,), (1,), (block - 1,), (block,), (block + 1,), (2 * block + 1,), (3, block + 1), (3, 5, 7)]
    accepted = [each for each in dict.fromkeys(points) if form.tried({"shape": each})]
    dropped = [each for each in points if each not in accepted and 0 not in each]
    return ([{"shape": tuple(map(repr, accepted))}] if accepted else []), str(dropped[0]) if dropped else None


def _constants(form: Form) -> list[int]:
    """Sizes of blocks with which the kernel was launched, the largest first, if they do not follow from the case's."""
    trials = [done for sizes in SIZES if (done := form.tried(form.distinct(sizes)))]
    values = [{each for launch in done.launches for each in launch.constants.values()} for done in trials]
    common = set.intersection(*values) if values else set()
    return sorted((each for each in common if type(each) is int and 8 <= each <= 1024), reverse=True)


def _block(form: Form, axis: str) -> int | None:
    """The largest size of an axis with which the grid is that of size 1, all other axes being 1; None: any size."""

    def grids(size: int) -> list[tuple[int, ...]] | None:
        params: dict[str, Any] = dict.fromkeys(form.axes, 1) | {axis: size if axis != "shape" else (size,)}
        done = form.tried(params)
        return [launch.grid for launch in done.launches] if done else None

    first, inside, outside = grids(1), 1, 2
    if not first:
        return None
    while outside <= MOST_ELEMENTS and grids(outside) in (first, None):
        inside, outside = outside, 2 * outside
    if outside > MOST_ELEMENTS:
        return None
    while outside - inside > 1:
        middle = (inside + outside) // 2
        inside, outside = (middle, outside) if grids(middle) in (first, None) else (inside, middle)
    return inside
