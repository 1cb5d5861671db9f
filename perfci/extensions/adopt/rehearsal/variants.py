"""Cases beside the usual ones: other values of options, integers of 64 bits, inputs of several dtypes."""

import ast
import inspect
import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from perfci.core.model import Reason
from perfci.extensions.adopt.rehearsal.axes import PAST, QUICK_S, SIZES, Form, list_sides
from perfci.extensions.adopt.rehearsal.backward import Backward
from perfci.extensions.adopt.rehearsal.operators import Operator
from perfci.extensions.adopt.rehearsal.search import Found
from perfci.extensions.adopt.rehearsal.trial import GRADIENT, answer_alike
from perfci.extensions.adopt.sketch import Case, Suites

_DRAWN = re.compile(r"torch\.randn\((.*), generator=generator, dtype=dtype, device=device\)")
_WHOLE = r"torch.randint({}, {}, \1, generator=generator, device=device).to(dtype)"
_BOUNDS = (("-(1 << 40)", "1 << 40"), (-8, 9), (1, 17))
"""Of integers. Small ones where the answer is no integer: the reciprocal of 2^40 is nearly 0."""

_NUMBER = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?")
_LEAST_FRACTION = 1e-3  # less is added so that nothing is divided by 0
_FRACTION = re.compile(r"\d+\.\d+|\d+(\.\d+)?e-\d+")
_INTEGERS = ("int64", "int16")
_NORMAL = re.compile(r"torch\.randn\((.*?), generator=generator, dtype=((?:second or )?dtype), device=device\)")
_FEW = r"torch.randint(-1, 2, \1, generator=generator, device=device).to(\2)"
_INFINITE = r"torch.randint(0, 2, \1, generator=generator, device=device).to(\2).reciprocal()"
_NANS = r"torch.randint(0, 2, \1, generator=generator, device=device).to(\2).log() * 0"
_RARE = r"torch.randint(-14, 2, \1, generator=generator, device=device).clamp(0).to(\2)"
"""Numbers of which some are 0, infinite or NaN, or few are not 0: of others logical_not, isinf, isnan or any give one
answer."""

_DRAWS = 8  # of such numbers

_GROWN = (33, *PAST)  # sizes in the place of one of torch's samples
_PROBED, _QUICK_S = 1025, 0.1  # such a size that gets all layouts and values, and the seconds of its call
_MOST = 8  # values of options that are tried
_SECONDS = 4.0  # of this process, for all of them
_AXES = frozenset(map(str, range(-4, 5)))
_SECOND = "second"  # the dtype of an input that is another one's

Turn = Callable[[Found], Backward | None]


@dataclass(frozen=True)
class Variant:
    """A case in which an option has another value than usual."""

    name: str
    value: Any
    usual: Any
    gradient: str = ""  # the shape of the output's gradient. Empty: there is none


def list_options(text: str, takes: inspect.Signature, found: Found) -> Iterable[tuple[str, Any, Any]]:
    """Yields options, their usual value, and another: a word of the text, the other truth.

    For a number that may be left out, as a bound of clamp, it is None. A fraction, such as an offset, is halved, but
    for one that is nearly 0. A word or a truth may be of the kernel alone, as a mode in which it rounds.

    text: of function, kernels and reference, which compare an option with its words.
    """
    handed = {part.rpartition("=")[2] for part in found.texts}
    for name, one in takes.parameters.items():
        given = found.form.inputs.get(name, repr(one.default))
        if name in handed and one.default is None and _NUMBER.fullmatch(given):
            yield name, ast.literal_eval(given), None
        if name in handed and _FRACTION.fullmatch(given) and (float(given) or 1.0) >= _LEAST_FRACTION:
            yield name, float(given), float(given) / 2 or 0.5
        if not re.fullmatch(r"None|True|False|'\w*'" if name in handed else r"True|False|'\w+'", given):
            continue
        usual = ast.literal_eval(given)
        others = re.findall(rf"\b{name}\s*(?:==|!=|not in|in)\s*(.+)", text)
        tables = "|".join({other for one in others for other in re.findall(r"^[A-Za-z_]\w*", one)})
        others += re.findall(rf"^(?:{tables})\s*=\s*\{{([^}}]*)\}}", text, re.MULTILINE) if tables else []
        compared = " ".join(others)
        words = re.findall(r"[\"'](\w+)[\"']", f"{compared} {one.annotation}" if "Literal" in str(one) else compared)
        values = [not usual] if isinstance(usual, bool) else [*dict.fromkeys(words)]
        yield from ((name, usual, value) for value in values if value != usual)


def add_options(
    op: str, suites: Suites, found: Found, options: Iterable[tuple[str, Any, Any]], forward: Found, turn: Turn | None
) -> tuple[Suites, list[Reason]]:
    """Returns the suites with a case for each value of an option for which both sides agree, and what to look at.

    forward: where the op is its backward pass, which `turn` makes.
    """
    form, kept, look, until_s = found.form, list[Variant](), list[Reason](), found.form.rehearsal.now_s + _SECONDS
    params, mutates = form.small, dict[str, None]()
    for name, usual, value in itertools.islice(options, _MOST):
        if form.rehearsal.now_s > until_s:
            break
        chosen = replace(forward.form, inputs={**forward.form.inputs, name: repr(value)})
        trial, before = chosen.run(params), forward.trial
        # Such as the statistics of a norm, in training alone.
        writes = trial.rewritten if (trial.rewritten == trial.written and value and not before.written) else ()
        alike = trial.picks == (*(before.picks or ()), *writes) and trial.written == (writes or before.written)
        if trial.problem or not trial.is_finite or not alike:
            continue
        back = turn(replace(forward, form=chosen, trial=trial)) if turn and trial.agrees else None
        trial = back.found.trial if back else trial
        if trial.agrees and bool(back) == bool(turn):
            kept.append(Variant(name, value, usual, back.found.form.shapes[GRADIENT] if back else ""))
            mutates |= dict.fromkeys(writes)
        elif trial.share and not trial.problem:
            facts: dict[str, Any] = {"op": op, "option": name, "value": repr(value), "share": trial.share_at_most}
            look.append(Reason("look_option", facts))
    kinds = {one.name: f"{type(one.usual).__name__} = {one.usual!r}" for one in kept}
    kinds = {name: kind.replace("NoneType", "str | None") for name, kind in kinds.items()}
    kinds |= {one.name: f"{type(one.usual).__name__} | None = {one.usual!r}" for one in kept if one.value is None}
    kinds = {name: kind for name, kind in kinds.items() if name not in suites.axes}  # torch's samples vary others
    fixed = {name: text for name, text in form.inputs.items() if name in suites.axes}
    fixed |= {**{axis: repr(size) for axis, size in params.items()}, "dtype": f"torch.{suites.dtypes[0]}"}
    cases = tuple({**fixed, one.name: repr(one.value)} for one in kept)
    inputs = {**suites.inputs, **{name: name for name in kinds}, **_shape_gradient(form, kept)}
    lines = (*suites.accuracy, *([f"mutates={(*mutates,)},"] if mutates else []))
    suites = replace(suites, inputs=inputs, options={**suites.options, **kinds}, accuracy=lines)
    return replace(suites, more=(*suites.more, *cases)), look


def _shape_gradient(form: Form, variants: Sequence[Variant]) -> dict[str, str]:
    """The gradient of an output that has another shape with some options."""
    usual = form.shapes.get(GRADIENT, "")
    for name in {one.name for one in variants if one.gradient != usual}:
        texts = ", ".join(f"{one.value!r}: {one.gradient}" for one in variants if one.name == name)
        made = form.inputs[GRADIENT].replace(f"({usual}", f"({{{texts}}}.get({name}, {usual})", 1)
        return {GRADIENT: made}
    return {}


def add_absent(suites: Suites, form: Form, names: Iterable[str]) -> Suites:
    """Returns the suites with a case without each of these tensors, as a bias, for which both sides agree."""
    fixed = {name: text for name, text in form.inputs.items() if name in suites.axes}
    fixed |= {**{axis: repr(size) for axis, size in form.small.items()}, "dtype": f"torch.{suites.dtypes[0]}"}
    for name in (name for name in names if name in form.shapes):
        trial = replace(form, inputs={**form.inputs, name: "None"}).run(form.small)
        if trial.agrees and trial.is_alike:
            option = f"has_{name}"
            inputs = {**suites.inputs, name: f"{suites.inputs[name]} if {option} else None"}
            case, options = {**fixed, option: "False"}, {**suites.options, option: "bool = True"}
            suites = replace(suites, inputs=inputs, options=options, more=(*suites.more, case))
    return suites


def add_axes(suites: Suites, form: Form) -> Suites:
    """Returns the suites with a case for each axis that torch's samples do not give as `dim`, if both sides agree."""
    usual, first = form.inputs.get("dim", ""), next(iter(form.shapes.values()), "")
    if form.is_ragged or not re.fullmatch(r"-?\d+", usual):
        return suites
    sizes, rank = SIZES[0][: len(form.axes)], len(list_sides(first))
    given = {int(case.get("dim", usual)) % rank for case in suites.cases if case.get("dim", usual) in _AXES}
    fixed = {name: text for name, text in form.inputs.items() if name in suites.axes}
    cases = list[Case]()
    for axis in (str(axis) for axis in range(rank) if axis not in given):
        other = replace(form, inputs={**form.inputs, "dim": axis})
        for params in (form.make_distinct(sizes), form.make_distinct(sizes[::-1])):  # places may lie beyond one of both
            if (trial := other.run(params)).agrees and trial.is_alike:
                texts = {name: repr(size) for name, size in params.items()}
                cases.append({**fixed, **texts, "dim": axis, "dtype": f"torch.{suites.dtypes[0]}"})
                break
    if not cases:
        return suites
    options = suites.options if "dim" in suites.axes else {**suites.options, "dim": f"int = {usual}"}
    inputs = {**suites.inputs, "dim": "dim"}
    return replace(suites, inputs=inputs, options=options, more=(*suites.more, *cases))


def add_dtypes(op: str, suites: Suites, form: Form, operator: Operator) -> tuple[Suites, list[Reason]]:
    """Returns the suites with cases of long and short integers, if torch's operator takes them, and of two dtypes.

    Only with those in which both sides agree. And what is to look at.
    """
    first = [case for case in suites.cases if case["dtype"] == f"torch.{suites.dtypes[0]}"]
    drawn = [name for name, text in form.inputs.items() if _DRAWN.fullmatch(text)]
    dtypes = [dtype for dtype in _INTEGERS if drawn and _supports(operator, dtype)]
    wide, good, look = _draw_integers(op, form, drawn, dtypes)
    if good:
        texts = [(name, form.inputs[name], wide.inputs[name]) for name in drawn]
        either = {
            name: f"(\n        {text}\n        if dtype.is_floating_point\n        else {whole}\n    )"
            for name, text, whole in texts
        }
        pairs = [(case, dtype) for dtype in good for case in first if _is_taken(wide, case, dtype)]
        whole = ({**case, "dtype": f"torch.{dtype}"} for case, dtype in pairs)
        suites = replace(suites, inputs={**suites.inputs, **either}, more=(*suites.more, *whole))
    if first and len(drawn) > 1:
        text = form.inputs[drawn[-1]].replace("dtype=dtype", f"dtype={_SECOND} or dtype")
        mixed = {**form.inputs, drawn[-1]: text}
        trial = replace(form, inputs=mixed).run({**form.small, _SECOND: torch.float32}, "float16")
        if trial.agrees and trial.is_alike:
            given = suites.inputs[drawn[-1]].replace("dtype=dtype", f"dtype={_SECOND} or dtype")
            case = {**first[0], "dtype": "torch.float16", _SECOND: "torch.float32"}
            options = {**suites.options, _SECOND: "torch.dtype | None = None"}
            inputs = {**suites.inputs, drawn[-1]: given}
            suites = replace(suites, inputs=inputs, options=options, more=(*suites.more, case))
    return suites, look


def _supports(operator: Operator, dtype: str) -> bool:
    """Whether torch has the operator for a dtype on a CPU."""
    return bool(operator.info) and operator.info.supports_dtype(getattr(torch, dtype), "cpu")


def _draw_integers(
    op: str, form: Form, names: Sequence[str], dtypes: Sequence[str]
) -> tuple[Form, list[str], list[Reason]]:
    """The form with the largest integers for which a kernel is right, in which dtypes, and what is to look at.

    names: of its tensors.
    """
    params, look, wide, good = form.small, list[Reason](), form, list[str]()
    for bounds in _BOUNDS if dtypes else ():
        integers = {name: _DRAWN.sub(_WHOLE.format(*bounds), form.inputs[name]) for name in names}
        wide = replace(form, inputs={**form.inputs, **integers})
        trials = {dtype: wide.run(params, dtype) for dtype in dtypes}
        trials = {dtype: trial for dtype, trial in trials.items() if trial.launches and trial.is_alike}
        good = [dtype for dtype, trial in trials.items() if trial.agrees]
        rounds = any("float" in one for trial in trials.values() for one in trial.dtypes)
        off = [dtype for dtype in trials if dtype not in good]
        if off and not rounds and bounds is _BOUNDS[0]:
            look = [Reason("look_inexact", {"op": op, "dtypes": ", ".join(off)})]
        if good and (not rounds or bounds is not _BOUNDS[0]):
            return wide, good, look
    return wide, [], []


def _is_taken(form: Form, case: Case, dtype: str) -> bool:
    """Whether both sides agree in a case with this dtype, by a kernel: some add up where they would store."""
    given = {name: text for name, text in case.items() if name in form.inputs}
    sizes = {axis: ast.literal_eval(case[axis]) for axis in form.axes}
    trial = replace(form, inputs={**form.inputs, **given}).run(sizes, dtype)
    return trial.agrees and trial.is_alike and bool(trial.launches)


def vary_truths(suites: Suites, form: Form) -> Suites:
    """Returns the suites with zeros or infinities among the numbers, where the truths of others are all one."""
    usual = form.run(form.small)

    def list_truths(one: Form) -> set[bool]:
        """What the reference gives for some values."""
        _, reference = answer_alike(one.kernel, one.reference, usual)
        given = [one.make_inputs(form.small, seed=seed) for seed in range(_DRAWS)]
        with one.rehearsal.real():
            answers = [output for inputs in given for output in reference(**inputs)]
            return {truth for output in answers for truth in output.unique().tolist()}

    truths = list_truths(form) if usual.agrees and {*usual.dtypes} == {"bool"} else set[bool]()
    for numbers in (_FEW, _INFINITE, _NANS, _RARE) if len(truths) == 1 else ():
        other = replace(form, inputs={name: _NORMAL.sub(numbers, text) for name, text in form.inputs.items()})
        if other.run(form.small).agrees and list_truths(other) != truths:
            return replace(suites, inputs={name: _NORMAL.sub(numbers, text) for name, text in suites.inputs.items()})
    return suites


def grow_samples(suites: Suites, form: Form) -> Suites:
    """Returns the suites of a form that has torch's samples alone with larger cases, if both sides agree.

    A size is another wherever it is in shapes and in arguments of several numbers, such as a normalized_shape, or in
    single numbers too, such as how many channels there are.
    """
    whole = {name: text for name, text in form.inputs.items() if re.fullmatch(r"\d+|[(\[][\d, ]+[)\]]", text)}
    sides = dict.fromkeys(side for shape in form.sample.values() for side in shape[-1:] if side > 1)
    options, inputs, cases, probes = dict(suites.options), dict(suites.inputs), list[Case](), [*suites.probes]
    until_s, usual = form.rehearsal.now_s + _SECONDS, {axis: repr(shape) for axis, shape in form.sample.items()}
    # Behind batch and channels each axis has a length of its own, as a convolution's outputs are too few to show one.
    first, shape = next(iter(form.sample.items()))
    steps = (6, 10, 14)[: max(len(shape) - 2, 0)]
    orders = dict.fromkeys((steps, steps[::-1])) if 2 < len(shape) < 6 else ()
    longer = [tuple(map(sum, zip(shape, (1, 0, *order), strict=True))) for order in orders]
    larger = [({**usual, first: repr(sides_of)}, whole, _PROBED) for sides_of in longer]
    for side, size in itertools.product(sides, _GROWN):
        shapes = {axis: _swap(text, side, size) for axis, text in usual.items()}
        larger.append((shapes, {name: _swap(text, side, size) for name, text in whole.items()}, size))
    for shapes, swapped, size in larger:
        several = {name: text for name, text in swapped.items() if not text.isdigit()}
        for texts in (several, swapped) if several != swapped else (several,):
            if form.rehearsal.now_s > until_s:
                break
            changed = {name: text for name, text in texts.items() if text != whole[name]}
            other = replace(form, inputs={**form.inputs, **changed})
            trial = other.run({axis: ast.literal_eval(text) for axis, text in shapes.items()})
            if trial.agrees and trial.is_alike and trial.seconds <= QUICK_S:
                added = {name: text for name, text in changed.items() if name not in suites.axes}
                kinds = {name: "int" if text.isdigit() else "tuple[int, ...]" for name, text in added.items()}
                options |= {name: f"{kind} = {form.inputs[name]}" for name, kind in kinds.items()}
                inputs |= {name: name for name in added}
                fixed = {name: text for name, text in other.inputs.items() if name in suites.axes}
                cases.append({**fixed, **shapes, **added, "dtype": f"torch.{suites.dtypes[0]}"})
                if size == _PROBED and trial.seconds <= _QUICK_S:
                    probes.append({name: (text,) for name, text in cases[-1].items()})
                break
    return replace(suites, inputs=inputs, options=options, more=(*suites.more, *cases), probes=tuple(probes))


def _swap(text: str, side: int, size: int) -> str:
    """Numbers with another size in the place of one."""
    return re.sub(rf"\b{side}\b", str(size), text)
