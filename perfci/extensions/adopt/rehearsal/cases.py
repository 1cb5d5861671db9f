"""The cases of an op's two suites: those of the calls, and sizes around the ends of the blocks that its grid walks."""

import ast
import itertools
import json
import math
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from perfci.core.model import Reason
from perfci.extensions.adopt.rehearsal.axes import (
    MOST_ELEMENTS,
    MOST_SECONDS,
    PAST,
    QUICK_S,
    SIZES,
    Call,
    Form,
    Outcome,
    list_sides,
    size_call,
    write_tuple,
)
from perfci.extensions.adopt.rehearsal.operators import OF_MAKERS
from perfci.extensions.adopt.rehearsal.trial import BEYOND, GRADIENT, Trial, bounded_memory
from perfci.extensions.adopt.sketch import Case, Suites
from perfci.ops.spec import LAYOUTS, VALUES

MOST_PROGRAMS = 128  # of an accuracy case's launches, at a millisecond each in the interpreter
_MANY_PROGRAMS = 2200  # of the case of another block, or of another kernel for many rows
_MANY = (1 << 15) + 1  # such rows
FEW_PROGRAMS = 16  # of the case that gets all values
USUAL_BLOCK = 128
Grid = dict[str, tuple[str, ...]]  # parameter -> its values, as text
_SUMS = re.compile(r"tl\.(?:sum|cumsum|reduce|associative_scan)\b|\+=")
_MAXIMA = re.compile(r"\binf\b|tl\.max(imum)?\b")
_LITTLE = 3  # size of the axes that are not varied
_SLOW_S = 0.2  # of a call whose kernel gets few cases, as a check in the interpreter makes many calls of each
_LONGEST_S = 20.0  # that a call of such a kernel may take, if it takes as long for each element as a small one
_ASKS_STRIDES = r"contiguous|input_guard|\.strides\b|\.stride\((-1|[1-9])?\)"
_DENSE = "# Dense inputs alone; leave this line out once the op takes inputs with gaps too."
_WRONG = "# Of other layouts it gave wrong values: add those that its callers give it."
_POWERS = (16, 32, 64, 128)  # sizes for axes that take no others
_FEW = {1: (13,), 2: (3, 5)}  # sizes by the number of axes, for as many elements as show each kind of values
_AXIS = re.compile(r"[a-zA-Z_]\w*")
_ALONE = re.compile(r"\((\w+),\)\[0\]")  # the side of what has one
_MOST_GIVEN = 6  # cases with other values of arguments that vary


def make_suites(
    op: str, form: Form, calls: Sequence[Call], source: str, wrapper: str, *, pointwise: bool = False
) -> tuple[Suites, list[Reason]]:
    """Returns the suites of an op that is called like this, and what a person has to look at.

    source: of the kernels that it launches. wrapper: text of the function, and of those that it calls.
    """
    done = form.try_usual()
    named = {*form.axes, *OF_MAKERS}
    sized = {*form.shapes, *(name for name, text in form.inputs.items() if text.strip("(,)") in named)}
    varying = [
        name for name in form.inputs if name not in sized and len({repr(call.given[name]) for call in calls}) > 1
    ]
    tested = [call for call in calls if call.part == "accuracy"]
    small = [call for call in tested if call.elements <= MOST_ELEMENTS]
    timed = [call for call in calls if call not in small] or small
    if not small and not done:
        small = [min(timed, key=lambda call: call.elements)]
    is_guess = any("randint(0, 1 << 4" in text for text in form.inputs.values())
    look = [Reason("look_integers", {"op": op})] if is_guess else []
    # The probe case gets all values. If possible, no block divides its sizes, and it takes few programs.
    wanted = [(3, 3, 5, 7, 33, 100), (2, 2, 3, 5, 7, 100)]
    axes = 2 if form.axes == ("shape",) else len(form.axes)
    points = [form.make_distinct(sizes[-axes:]) for sizes in wanted] + [form.make_distinct()]
    if "tl.arange" not in source or axes > 3:  # it takes one element after the other, which the interpreter does slowly
        points.insert(0, form.make_distinct(_FEW.get(axes, (2, 3, 4, 5, 6, 7))))
    points += [dict(form.little)] if form.little else []
    taken = [(max(tried.programs, FEW_PROGRAMS), point) for point in points if (tried := form.try_case(point))]
    by_cost = [point for _, point in sorted(taken, key=lambda pair: pair[0])]
    probe = next((point for point in by_cost if form.takes(point)), {})
    grids, left = _find_edges(form, source) if done and not form.sample else ([], {})
    left = left if done else {"look_refused": str(form.make_distinct())}
    look += [Reason(kind, {"op": op, "case": case}) for kind, case in left.items()]
    grids += _find_timed(form, timed, [*_list_points(grids), *([probe] if probe else [])])
    others = _list_others(form, varying, calls, probe)
    dtypes = tuple(dict.fromkeys(call.dtype for call in tested or calls))
    probes = [_write_probe(other, probe, varying, dtypes) for other in others] if probe else []
    grids += _find_empty(form, varying, calls, probe) if varying and not form.is_ragged else []
    grids += _find_given(form, varying, calls, probe, others)
    grids += _find_kernels(_list_given(form, varying, calls) if done else [], _list_points(grids), probe, varying)
    annotations = {
        name: " | ".join(dict.fromkeys(type(call.given[name]).__name__ for call in calls)).replace("NoneType", "None")
        for name in varying
    }
    dot = "tl.dot(" in source
    reduces = _write_reduces(form, done, source)
    small_case = form.small
    lines, wrong = _write_layouts(op, others, small_case, wrapper)
    look += wrong
    lines += [reduces] if reduces else []
    usual = form.run(small_case)
    is_quick = bool(done and not form.is_ragged and usual.seconds <= _SLOW_S)
    if is_quick:
        switches, beyond = _find_switches(others, _list_points(grids))
        look += [Reason("look_beyond", {"op": op, "case": case}) for case in beyond[:1] if "look_beyond" not in left]
        quick = [(other, point) for other, point, seconds in switches if seconds <= _SLOW_S]
        grids += [_write_point(other, point, varying) for other, point, _ in switches]
        probes += [{**_write_point(other, point, varying), "dtype": ("*DTYPES[:1]",)} for other, point in quick]
    if steps := sorted({*usual.dtypes} & {"int8", "uint8"}) if "float" in form.dtype else []:
        lines.append("# Where it rounds to whole numbers, a float beside the half may go either way.")
        lines.append(f"tolerance={{{', '.join(f'{json.dumps(dtype)}: (0.0, 1.0)' for dtype in steps)}}},")
    is_sum = not reduces if dot else bool(reduces or (_SUMS.search(source) and not pointwise))
    if is_quick and (dot or is_sum) and probe not in ({}, small_case) and dtypes[-1].endswith("16"):
        # Beside one of few numbers the others lose most of their digits.
        probes.append({**_write_point(form, small_case, varying), "dtype": ("*DTYPES[-1:]",)})
    more = "mixed" if pointwise else "peaked", *(["masked"] if _MAXIMA.search(source) and not pointwise else [])
    kinds_of_values, said = _choose_values(form, more, is_sum=is_sum, rounds=bool(steps))
    lines += ["uses_dot=True,"] if dot else []
    lines += ["deterministic=False,  # it adds atomically"] if "tl.atomic_" in source else []
    suites = Suites(
        op=op,
        axes=dict.fromkeys(form.axes, "tuple[int, ...]" if form.is_ragged else "int") | annotations,
        inputs={name: name if name in varying else _ALONE.sub(r"\1", text) for name, text in form.inputs.items()},
        dtypes=dtypes,
        edges=tuple({**grid, **{name: (form.inputs[name],) for name in varying}, **grid} for grid in grids),
        cases=_list_cases(form, varying, small),
        probes=tuple(probes),
        speed=_list_cases(form, varying, timed),
        values=kinds_of_values,
        about_values=tuple(said),
        accuracy=tuple(lines),
        performance=(reduces,) if reduces else (),
    )
    return suites, look


def _takes_tensors(form: Form) -> bool:
    """Whether the function takes any, and does not just make one."""
    return not {*OF_MAKERS} <= {*form.inputs.values()}


def _choose_values(form: Form, more: Sequence[str], *, is_sum: bool, rounds: bool) -> tuple[tuple[str, ...], list[str]]:
    """The kinds of values that a suite has before its checks are made, and comments on others.

    more: kinds behind the usual ones. rounds: to whole numbers.
    """
    if not _takes_tensors(form):
        return ("normal",), ["# It takes no tensor, so there are no other values."]
    lines, left_out = list[str](), {"large"} if is_sum else set[str]()
    if is_sum:
        lines.append("# All but large values: a sum beyond the largest number depends on the order of its terms.")
    if rounds:
        left_out |= {"nan", "inf", "masked"}
        lines.append("# Without nan and inf: the reference has no whole number of them.")
    more = ["peaked" if kind == "mixed" and rounds else kind for kind in more]
    return tuple(kind for kind in (*VALUES, *more) if kind not in left_out), lines


def _list_given(form: Form, varying: Sequence[str], calls: Sequence[Call]) -> list[Form]:
    """The form with each of the values that vary, each once, first with those that it has."""
    given = [{name: repr(call.given[name]) for name in varying} for call in calls]
    texts = [{name: form.inputs[name] for name in varying}, *given]
    return [
        replace(form, inputs={**form.inputs, **one}) for number, one in enumerate(texts) if one not in texts[:number]
    ]


def _list_others(form: Form, varying: Sequence[str], calls: Sequence[Call], probe: Mapping[str, Any]) -> list[Form]:
    """The form, and that with those of the values that vary which launch other kernels."""
    others, seen = list[Form](), set[str]()
    for other in _list_given(form, varying, calls):
        done = other.try_case(probe) if probe else None
        kernels = {launch.source for launch in done.launches} if done else set()
        others += [other] if not others or (not kernels <= seen and other.takes(probe)) else []
        seen |= kernels
    return others


def _write_point(form: Form, sizes: Mapping[str, Any], varying: Sequence[str]) -> Grid:
    texts = {axis: repr(value) for axis, value in sizes.items()} | {name: form.inputs[name] for name in varying}
    return {name: (text,) for name, text in texts.items()}


def _write_probe(form: Form, sizes: Mapping[str, Any], varying: Sequence[str], dtypes: Sequence[str]) -> Grid:
    """The probe with a form's values of arguments, in the dtypes that it takes with these: perhaps all."""
    taken = [f"torch.{dtype}" for dtype in dtypes if dtype == form.dtype or not form.run(sizes, dtype).problem]
    point = _write_point(form, sizes, varying)
    return point if len(taken) == len(dtypes) else {**point, "dtype": tuple(taken)}


def _find_empty(form: Form, varying: Sequence[str], calls: Sequence[Call], probe: Mapping[str, Any]) -> list[Grid]:
    """Cases without elements of the values that vary: along the first axis of which kernel and reference take none."""
    given = _list_given(form, varying, calls)[1:]
    taken = [filter(other.takes, ({**probe, axis: 0} for axis in form.axes)) for other in given]
    firsts = zip(given, (next(sizes, None) for sizes in taken), strict=True)
    return [_write_point(other, sizes, varying) for other, sizes in firsts if sizes]


def _find_given(
    form: Form, varying: Sequence[str], calls: Sequence[Call], probe: Mapping[str, Any], others: Sequence[Form]
) -> list[Grid]:
    """A case with the probe's sizes for each of the values that vary: with them a block may end along another axis."""
    given = [one for one in _list_given(form, varying, calls) if probe and one not in others]
    return [_write_point(one, probe, varying) for one in given[:_MOST_GIVEN] if one.takes(probe)]


def _find_kernels(
    given: Sequence[Form], points: Sequence[Mapping[str, Any]], probe: Mapping[str, Any], varying: Sequence[str]
) -> list[Grid]:
    """Larger cases that launch a kernel which no earlier case does, of the form with each of the values that vary."""
    if not given or given[0].sample:
        return []
    form, others, grids = given[0], given[:_MOST_GIVEN], list[Grid]()

    def list_kernels(other: Form, point: Mapping[str, Any]) -> set[str]:
        done, most = other.try_case(point, alone=True), _MANY_PROGRAMS if _MANY in point.values() else MOST_PROGRAMS
        return {launch.source for launch in done.launches} if done and done.programs <= most else set()

    little = {axis: form.little.get(axis, _LITTLE) for axis in form.axes}
    longer: list[dict[str, Any]] = [{**little, axis: size} for size in (*PAST, _MANY) for axis in form.axes]
    # Where all other axes are one, memory is walked in one piece.
    longer += [{**dict.fromkeys(form.axes, 1), axis: size} for size in PAST for axis in form.axes if form.axes[1:]]
    if form.axes == ("shape",):
        longer = [{"shape": shape} for size in PAST for shape in ((_LITTLE, size), (size, _LITTLE))]
    longer = [point for point in longer if form.count_elements(point) <= MOST_ELEMENTS]
    sizes = [{axis: point[axis] for axis in form.axes} for point in (*points, *([probe] if probe else []))]
    seen = set[str]().union(*(list_kernels(form, point) for point in sizes))
    seen = seen.union(*(list_kernels(other, point) for other in others for point in sizes[-1:]))
    for other, point in itertools.product(others, longer):
        new, most_s = list_kernels(other, point) - seen, _LONGEST_S if _MANY in point.values() else QUICK_S
        if new and (trial := _run_long(other, point)).agrees and trial.seconds <= most_s:
            seen |= new
            grids.append(_write_point(other, point, varying))
    return grids


def _find_switches(
    forms: Sequence[Form], earlier: Sequence[Mapping[str, Any]]
) -> tuple[list[tuple[Form, dict[str, Any], float]], list[str]]:
    """Sizes past the least one of each axis from which on a kernel has another block, if it had one until then.

    With the form that launches it, the seconds that their call takes, and the sizes at which the kernel reaches beyond
    its tensors.
    """
    taken, beyond, seen = list[tuple[Form, dict[str, Any], float]](), list[str](), set[tuple[str, str]]()
    for form in forms:
        before = {*seen}
        for axis in form.axes:
            point, keys = _find_switch(form, axis, before)
            if point in ({}, *earlier) or form.rehearsal.spent_s > MOST_SECONDS:
                continue
            seen |= keys
            trial = _run_long(form, point)
            taken += [(form, point, trial.seconds)] if not trial.problem and trial.is_finite else []
            is_beyond = BEYOND in (trial.problem or "") and not form.has_places
            beyond += [f"{axis}={point[axis]}"] if is_beyond else []
    return taken, beyond


def _run_long(form: Form, point: Mapping[str, Any]) -> Trial:
    """What both sides do with a case that may have some thousand programs."""
    form.rehearsal.most_s *= 4
    trial = form.run(point)
    form.rehearsal.most_s /= 4
    return trial


def _find_switch(form: Form, axis: str, seen: set[tuple[str, str]]) -> tuple[dict[str, Any], set[tuple[str, str]]]:
    """Such sizes along one axis, and the kernels with the names of the blocks that change. seen: those left out."""

    def list_constants(point: Mapping[str, Any]) -> dict[tuple[str, str], Any]:
        done = form.try_case(point, alone=True)
        launches = done.launches if done and done.programs <= _MANY_PROGRAMS else ()
        return {(launch.source, name): value for launch in launches for name, value in launch.constants.items()}

    little = {axis: form.little.get(axis, _LITTLE) for axis in form.axes}
    points = [{**little, axis: (1 << power) + 1} for power in range(5, MOST_ELEMENTS.bit_length())]
    listed = [list_constants(point) for point in points]
    steady = {key for key, value in listed[0].items() if listed[1].get(key) == value} - seen
    switched = ({key for key in steady if key in one and one[key] != listed[0][key]} for one in listed)
    return next(((point, keys) for point, keys in zip(points, switched, strict=True) if keys), ({}, set()))


def _write_layouts(
    op: str, others: Sequence[Form], params: Mapping[str, Any], wrapper: str
) -> tuple[list[str], list[Reason]]:
    """The layouts of which a function that does something with strides gives right values, and what is to look at.

    One that asks for the strides of rows alone takes no others.
    """
    if not _takes_tensors(others[0]):
        return ['layouts=("contiguous",),'], []
    # Without a word of strides it takes what its memory is like: an answer in the form of its input may be right.
    asks_rows, asks = ".stride(" in wrapper, re.search(_ASKS_STRIDES, wrapper)
    asked = LAYOUTS[2:] if asks_rows and not asks else LAYOUTS[1:]
    inputs = others[0].inputs.values()
    apart = any(maker in text for text in inputs for maker in ("torch.randperm(", ".argsort("))  # places that differ
    asked_of = [layout for layout in asked if not (apart and layout == "expanded")]
    trials = {layout: [one.run(params, layout=layout) for one in others] for layout in asked_of}
    taken = [layout for layout, listed in trials.items() if all(trial.agrees for trial in listed)]
    # What a kernel raises, as for an access outside of its tensors, is no refusal.
    raised = "InterpreterError"
    wrong = [
        layout
        for layout, listed in trials.items()
        if layout not in taken and any((trial.problem or raised).startswith(raised) for trial in listed)
    ]
    wrong = wrong if asks or asks_rows else []
    look = [Reason("look_layouts", {"op": op, "layouts": ", ".join(wrong)})] if wrong else []
    if len(taken) == len(LAYOUTS) - 1:
        return [], look
    says = "# It takes no others." if taken and not wrong else _DENSE if not wrong else _WRONG
    listed = ", ".join(f'"{layout}"' for layout in ("contiguous", *taken))
    return [says, f"layouts=({listed}{'' if taken else ','}),"], look


def _list_cases(form: Form, varying: Sequence[str], calls: Sequence[Call]) -> tuple[Case, ...]:
    """The cases of calls, each once: their sizes by the names of the axes, and the values that vary."""
    cases = list[Case]()
    for call in calls:
        sizes = {axis: repr(size) for axis, size in size_call(form, call).items()}
        values = {name: repr(call.given[name]) for name in varying}
        case = {axis: sizes[axis] for axis in form.axes} | values | {"dtype": f"torch.{call.dtype}"}
        cases += [] if case in cases else [case]
    return tuple(case for case in cases if _is_defined(form, case)) or tuple(cases)


def _is_defined(form: Form, case: Case) -> bool:
    """Whether the reference takes a case: its places may be beyond an axis that the test's are within."""
    # Integers below zero too are values, such as those of a product: its largest case would take minutes on a CPU.
    inputs = {name: text for name, text in form.inputs.items() if "torch.randint(-" not in text}
    if not replace(form, inputs=inputs).has_places:
        return True
    given = {name: text for name, text in case.items() if name in form.inputs}
    sizes, dtype = {axis: ast.literal_eval(case[axis]) for axis in form.axes}, case["dtype"].removeprefix("torch.")
    chosen, few = replace(form, inputs={**form.inputs, **given}), dict(sizes)
    # Which axis is the longer one is what counts: all are halved until a call takes little time.
    while not form.is_ragged and form.count_elements(few) > MOST_ELEMENTS and max(few.values()) > 1:
        few = {axis: max(size // 2, 1) for axis, size in few.items()}
    return _takes(chosen, few, dtype) or (few != sizes and _takes(chosen, sizes, dtype))


def _takes(form: Form, sizes: Mapping[str, Any], dtype: str) -> bool:
    """Whether the reference takes a case, or would with more memory."""
    with form.rehearsal.real(), bounded_memory():
        try:
            form.reference(**form.make_inputs(sizes, dtype))
        except Exception as error:  # whatever other people's code raises
            return isinstance(error, MemoryError) or "memory" in str(error)
    return True


def _find_summed(form: Form, output: Sequence[int], *, tensors: int) -> list[str]:
    """The sides that the output lacks, if its sizes show that: they are summed over, as a weight's gradient is.

    tensors: how many at least have such an axis, if there are as many. One may be what integers point into.
    """
    by_size = {size: axis for axis, size in form.make_distinct().items()}
    if form.is_ragged or not all(size in by_size for size in output):
        return []
    missing = [axis for axis in form.axes if axis not in {by_size[size] for size in output}]
    spread, shapes = list_sides(form.shapes.get(GRADIENT, "")), [list_sides(text) for text in form.shapes.values()]
    enough = min(tensors, len(shapes))
    having = {axis: sum(axis in re.findall(r"\w+", " ".join(sides)) for sides in shapes) for axis in missing}
    summed = [axis for axis in missing if axis in spread or having[axis] >= enough]
    return [f"{factor} * {axis}" if (factor := _find_factor(form, axis)) > 1 else axis for axis in summed]


def _find_factor(form: Form, axis: str) -> int:
    """How many times as long as an axis the longest side is that is a multiple of it. 1 if there is none."""
    sides = itertools.chain(*map(list_sides, form.shapes.values()))
    return max((int(one[1]) for side in sides if (one := re.fullmatch(rf"(\d+) \* {axis}", side))), default=1)


def _write_reduces(form: Form, done: Outcome | None, source: str) -> str:
    """The line for how many terms an element of the output sums, of a running sum its last. Empty if unknown."""
    tensors = 1 if "tl.dot(" in source else 2 if "tl.sum(" in source else 99
    sums = [_find_summed(form, output, tensors=tensors) for output in (done and done.reference) or ()]
    # Of the axes those that it needs, so that a new one is no edit here.
    if summed := list(dict.fromkeys(axis for sides in sums for side in sides for axis in _AXIS.findall(side))):
        terms = [*dict.fromkeys(" * ".join(axes) for axes in sums if axes)]
        most = f"max({', '.join(terms)})" if terms[1:] else terms[0]  # each output sums what it lacks
        return f"reduces=lambda {', '.join(summed)}, **_: {most},"
    sides, dim = list_sides(next(iter(form.shapes.values()), "")), form.inputs.get("dim", "")
    is_scan = "tl.cumsum(" in source and (*sides,) == form.axes and re.fullmatch(r"-?\d+", dim)
    return f"reduces=lambda {', '.join(sides)}, dim={dim}, **_: {write_tuple(sides)}[dim]," if is_scan else ""


def _find_edges(form: Form, source: str) -> tuple[list[Grid], dict[str, str]]:
    """Grids in which one axis after the other ends around its blocks. What is to look at, and a case that shows it."""
    # Sizes of blocks with which the kernel was launched, the largest first, if they do not follow from the case's.
    points = [*map(form.make_distinct, SIZES), *([form.little] if form.little else [])]
    trials = [done for point in points if (done := form.try_case(point))]
    launched = [{constant for launch in done.launches for constant in launch.constants.values()} for done in trials]
    constants = sorted((constant for constant in set.intersection(*launched) if type(constant) is int), reverse=True)
    blocks = {axis: _find_block(form, axis) for axis in form.axes}
    usual = USUAL_BLOCK if "tl.arange" in source else 1
    spare = [constant for constant in constants if 8 <= constant <= 4096 and constant not in blocks.values()]
    flat = _is_flat(form, blocks)
    grids, seen, left = list[Grid](), list[dict[str, Any]](), dict[str, str]()
    small = form.small
    seconds = form.run(small).seconds
    is_slow = seconds > _SLOW_S
    most = math.prod(small.values()) * _LONGEST_S / seconds if is_slow and not form.is_ragged else MOST_ELEMENTS
    # Those that blocks divide come first, as the time for all calls is bounded.
    for axis in sorted(form.axes, key=lambda axis: 0 < (blocks[axis] or 0) < 4):
        number = form.axes.index(axis)
        block = 1 if flat and number else blocks[axis] or max((spare or [usual])[0] // _find_factor(form, axis), 1)
        around = [1, 2, 13] if block < 4 else [1, block - 1, block, block + 1, 2 * block + 1]
        around = [1, block + 1] if is_slow else around
        # The first axis alone gets size 0, and the size of all other grids only once.
        values: list[Any] = [0, *around] if number == 0 else [constant for constant in around if constant != _LITTLE]
        values = [value for value in values if value * _LITTLE ** (len(form.axes) - 1) <= most]
        if axis == "shape":
            values = [*((value,) for value in values), (3, block + 1), (3, 5, 7)]
        others = 1 if flat and not number else _LITTLE
        rest = {one: form.little.get(one, others) for one in form.axes}
        values += [value for value in _POWERS if value > 2 * block and block >= 4 and form.little]
        values = [value for value in dict.fromkeys(values) if rest | {axis: value} not in seen]
        seen += [rest | {axis: value} for value in values]
        tried = {value: form.try_case(rest | {axis: value}) for value in values}
        light = [
            value  # not where the function answers without its kernel
            for value, done in tried.items()
            if done
            and done.programs <= MOST_PROGRAMS
            and (done.launches or value in (0, (0,)) or not trials[0].launches)
        ]
        refused = {value: form.find_refusal(rest | {axis: value}) for value in light}
        taken = [value for value in light if refused[value] is None]
        for value in (value for value in tried if value not in taken and value not in (0, (0,))):
            if not tried[value]:
                left.setdefault("look_refused", f"{axis}={value}")
            elif BEYOND in (refused.get(value) or "") and not form.has_places:
                left.setdefault("look_beyond", f"{axis}={value}")
        if taken:
            grids.append({name: (str(size),) for name, size in rest.items()} | {axis: tuple(map(str, taken))})
    return grids, left


def _list_points(grids: Sequence[Mapping[str, tuple[str, ...]]]) -> list[dict[str, Any]]:
    points = (dict(zip(grid, point, strict=True)) for grid in grids for point in itertools.product(*grid.values()))
    return [{axis: ast.literal_eval(value) for axis, value in point.items()} for point in points]


def _find_timed(form: Form, timed: Sequence[Call], earlier: Sequence[Mapping[str, Any]]) -> list[Grid]:
    """Small cases that launch what the timed ones launch and the known ones do not: kernels by their constants."""

    def list_variants(params: Mapping[str, Any]) -> set[str]:
        done = form.try_case(params, alone=True)  # a reference may loop over thousands of rows
        return {repr((launch.source, launch.constants)) for launch in done.launches} if done else set()

    seen = set[str]().union(*map(list_variants, earlier))
    groups = list[Grid]()
    for case in _list_cases(form, (), timed):
        params = {axis: ast.literal_eval(case[axis]) for axis in form.axes}
        wanted = list_variants(params) - seen
        for axis in form.axes if wanted and not form.is_ragged else ():
            fewer = params | {axis: _LITTLE}
            params = fewer if wanted <= list_variants(fewer) else params
        done = form.try_case(params, alone=True) if wanted else None
        sizes = [form.rehearsal.evaluate(text, params) for text in form.shapes.values()]
        is_small = done and done.programs <= FEW_PROGRAMS and max(map(math.prod, sizes)) <= MOST_ELEMENTS
        if is_small and form.try_case(params) and (not form.has_places or form.takes(params)):
            groups.append({axis: (str(value),) for axis, value in params.items()})
            seen |= wanted
    return groups


def _is_flat(form: Form, blocks: Mapping[str, int | None]) -> bool:
    """Whether the grid walks all elements as one axis, so that a block ends at a number of elements."""
    first, *others = form.axes
    block = blocks[first]
    if not others or not block or block < 4 or {*blocks.values()} != {block}:
        return False
    full = form.try_case(dict.fromkeys(form.axes, 1) | {first: block, others[0]: 2})
    return full is not None and full.programs == 2


def _find_block(form: Form, axis: str) -> int | None:
    """The largest size of an axis with which the grid is that of size 1, all other axes being 1. None: any size."""

    def list_grids(size: int) -> list[tuple[int, ...]] | None:
        params: dict[str, Any] = dict.fromkeys(form.axes, 1) | {axis: size if axis != "shape" else (size,)}
        done = form.try_case(params, alone=True)
        return [launch.grid for launch in done.launches] if done else None

    def is_past(size: int) -> bool:
        return list_grids(size) not in (first, None)

    first, powers = list_grids(1), [2**power for power in range(1, MOST_ELEMENTS.bit_length())]
    past = next((size for size in powers if is_past(size)), None) if first else None
    return bisect_left(range(past), True, lo=past // 2, key=is_past) - 1 if past else None
