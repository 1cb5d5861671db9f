"""The cases of an op's two suites: those of the calls, and sizes around the ends of the blocks that its grid walks."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from perfci.core.model import Reason
from perfci.device.seam import Argument
from perfci.ops.spec import VALUES
from perfci.scaffold.new import fit
from perfci.scaffold.sketch import Case, Suites
from perfci.worker.sketch.axes import SIZES, Call, Form, list_sides, write_tuple

MOST_ELEMENTS = 1 << 18  # largest tensor of an accuracy case: more would take Triton's interpreter minutes

USUAL_BLOCK = 128
_LITTLE = 3  # size of the axes that are not varied


def make_suites_of_calls(op: str, form: Form, calls: Sequence[Call], source: str) -> tuple[Suites, list[Reason]]:
    """Returns the suites of an op whose calls are known, and what a person has to look at."""
    first = calls[0]
    varying = [name for name in form.values if len({repr(call.given[name]) for call in calls}) > 1]
    varying = [name for name in varying if name not in form.axes]
    found: dict[str, dict[str, tuple[Case, int]]] = {"accuracy": {}, "performance": {}}
    for call in calls:
        values = {name: repr(call.given[name]) for name in varying}
        case = {**_read_sizes(form, call), **values, "dtype": f"torch.{call.dtype}"}
        elements = max(math.prod(each.shape) for each in call.tensors.values())
        part = "performance" if elements > MOST_ELEMENTS else call.part
        found[part].setdefault(repr(case), (case, elements))
    accuracy, performance = ([*cases.values()] for cases in found.values())
    performance = performance or accuracy
    if not accuracy and form.try_case(form.make_distinct()) is None:
        accuracy = [min(performance, key=lambda pair: pair[1])]
    inputs = {}
    for name in first.given:
        if name in form.shapes:
            same = all(call.tensors[name].dtype == call.dtype for call in calls)
            inputs[name] = _write_tensor(first.tensors[name], form.shapes[name], same=same)
        else:
            inputs[name] = name if name in varying else form.values[name]
    drawn = any("randint" in text for text in inputs.values())
    tested = [call for call in calls if call.part == "accuracy" and found["accuracy"]]
    suites, look = make_suites(
        op,
        form,
        inputs,
        tuple(dict.fromkeys(call.dtype for call in tested or calls)),
        tuple(case for case, _ in accuracy),
        tuple(case for case, _ in performance),
        source,
        {name: type(first.given[name]).__name__ for name in varying},
    )
    return suites, [*([Reason("look_integers", {"op": op})] if drawn else []), *look]


def _read_sizes(form: Form, call: Call) -> dict[str, str]:
    """A call's sizes by the names of the axes."""
    if form.axes == ("shape",):
        return {"shape": write_tuple([str(size) for size in next(iter(call.tensors.values())).shape])}
    found = dict[str, str]()
    for name, text in form.shapes.items():
        found |= {side: str(size) for side, size in zip(list_sides(text), call.tensors[name].shape, strict=True)}
    return {axis: found[axis] for axis in form.axes}


def _write_tensor(argument: Argument, shape: str, *, same: bool) -> str:
    """The expression that makes a tensor, as the first call's test did. same: it has the case's dtype."""
    dtype = "dtype" if same else f"torch.{argument.dtype}"
    most = "2" if argument.dtype == "bool" else "1 << 4"
    text = f"torch.randint(0, {most}, {{shape}}, generator=generator, dtype={{dtype}}, device=device)"
    if argument.dtype.startswith("float8"):
        text = "torch.randn({shape}, generator=generator, device=device).to({dtype})"
    elif "float" in argument.dtype:
        text = "torch.randn({shape}, generator=generator, dtype={dtype}, device=device)"
    return (argument.text or text).format(*map(repr, argument.numbers), shape=shape, dtype=dtype)


def make_suites(
    op: str,
    form: Form,
    inputs: Mapping[str, str],
    dtypes: tuple[str, ...],
    accuracy: tuple[Case, ...],
    performance: tuple[Case, ...],
    source: str,
    annotations: Mapping[str, str],
) -> tuple[Suites, list[Reason]]:
    """Returns the suites with these cases, those around the ends of blocks, and what can be read of the op itself."""
    fixed = {name: (form.values[name],) for name in annotations}
    done = form.try_case(form.make_distinct())
    grids, refused = _find_edges(form) if done else ([], str(form.make_distinct()))
    # The probe case has sizes that no block divides, if the function takes them.
    sizes = [_LITTLE] * (len(form.axes) - 6) + [3, 3, 5, 7, 33, 100][-len(form.axes) :]
    points: list[dict[str, Any]] = [dict(zip(form.axes, sizes, strict=False)), form.make_distinct()]
    if form.axes == ("shape",):
        points = [{"shape": (33, 100)}, {"shape": (100,)}]
    probe = next((each for each in points if form.try_case(each)), {})
    dot = bool(re.search(r"\btl\.dot\(", source))
    lines = [
        "# Dense inputs alone; leave this line out once the op takes inputs with gaps too.",
        'layouts=("contiguous",),',
    ]
    performance_lines = []
    if done and done.reference and (summed := _find_summed(form, done.reference[0], dot=dot)):
        performance_lines = [f"reduces=lambda {', '.join([*form.axes, *annotations, 'dtype'])}: {' * '.join(summed)},"]
        lines += performance_lines
        if not dot:
            lines.append("# All but large values: a sum beyond the largest number depends on the order of its terms.")
            lines += fit("values=(", [f'"{each}"' for each in VALUES if each != "large"], "),", "    ")
    lines += ["uses_dot=True,"] if dot else []
    lines += ["deterministic=False,  # it adds atomically"] if "tl.atomic_" in source else []
    suites = Suites(
        op=op,
        axes={axis: "tuple[int, ...]" if axis == "shape" else "int" for axis in form.axes} | dict(annotations),
        inputs=inputs,
        dtypes=dtypes,
        edges=tuple({**grid, **fixed} for grid in grids),
        cases=accuracy,
        probe={axis: (repr(value),) for axis, value in probe.items()} | fixed if probe else {},
        speed=performance,
        accuracy=tuple(lines),
        performance=tuple(performance_lines),
    )
    return suites, [Reason("look_refused", {"op": op, "case": refused})] if refused else []


def _find_summed(form: Form, output: Sequence[int], *, dot: bool) -> list[str]:
    """The axes that the output lacks, if its sizes show that: the kernel sums over them."""
    by_size = {size: axis for axis, size in form.make_distinct().items()}
    if form.axes == ("shape",) or not all(size in by_size for size in output):
        return []
    missing = [axis for axis in form.axes if axis not in {by_size[size] for size in output}]
    return [axis for axis in missing if dot or all(axis in list_sides(text) for text in form.shapes.values())]


def _find_edges(form: Form) -> tuple[list[dict[str, tuple[str, ...]]], str | None]:
    """Grids in which one axis after the other ends around its blocks. A case that was refused, if any."""
    # Sizes of blocks with which the kernel was launched, the largest first, if they do not follow from the case's.
    trials = [done for sizes in SIZES if (done := form.try_case(form.make_distinct(sizes)))]
    launched = [{each for launch in done.launches for each in launch.constants.values()} for done in trials]
    common = set.intersection(*launched) if launched else set()
    constants = sorted((each for each in common if type(each) is int and 8 <= each <= 1024), reverse=True)
    blocks = {axis: _find_block(form, axis) for axis in form.axes}
    if form.axes == ("shape",):
        block = blocks["shape"] or (constants or [USUAL_BLOCK])[0]
        points = [(0,), (1,), (block - 1,), (block,), (block + 1,), (2 * block + 1,), (3, block + 1), (3, 5, 7)]
        accepted = [each for each in dict.fromkeys(points) if form.try_case({"shape": each})]
        dropped = [str(each) for each in points if each not in accepted and 0 not in each]
        return ([{"shape": tuple(map(repr, accepted))}] if accepted else []), next(iter(dropped), None)
    spare = [each for each in constants if each not in blocks.values()]
    grids, refused = list[dict[str, tuple[str, ...]]](), None
    for number, axis in enumerate(form.axes):
        size = blocks[axis] or (spare or [USUAL_BLOCK])[0]
        around = [1, 2, 13] if size < 4 else [1, size - 1, size, size + 1, 2 * size + 1]
        # The first axis alone gets size 0, and the size of all other grids only once.
        values = dict.fromkeys([0, *around] if number == 0 else [each for each in around if each != _LITTLE])
        rest = dict.fromkeys(form.axes, _LITTLE)
        small = [each for each in values if each * _LITTLE ** (len(form.axes) - 1) <= MOST_ELEMENTS]
        taken = [each for each in small if form.try_case(rest | {axis: each})]
        missing = [each for each in small if each not in taken and each]
        refused = refused or (f"{axis}={missing[0]}" if missing else None)
        if taken:
            grids.append({name: (str(_LITTLE),) for name in form.axes} | {axis: tuple(map(str, taken))})
    return grids, refused


def _find_block(form: Form, axis: str) -> int | None:
    """The largest size of an axis with which the grid is that of size 1, all other axes being 1. None: any size."""

    def list_grids(size: int) -> list[tuple[int, ...]] | None:
        params: dict[str, Any] = dict.fromkeys(form.axes, 1) | {axis: size if axis != "shape" else (size,)}
        done = form.try_case(params)
        return [launch.grid for launch in done.launches] if done else None

    first, inside, outside = list_grids(1), 1, 2
    if not first:
        return None
    while outside <= MOST_ELEMENTS and list_grids(outside) in (first, None):
        inside, outside = outside, 2 * outside
    if outside > MOST_ELEMENTS:
        return None
    while outside - inside > 1:
        middle = (inside + outside) // 2
        inside, outside = (middle, outside) if list_grids(middle) in (first, None) else (inside, middle)
    return inside
