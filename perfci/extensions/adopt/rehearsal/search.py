"""How a function and its reference are called: candidates are tried without memory, then for real, until one agrees."""

from __future__ import annotations

import inspect
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perfci.extensions.adopt.rehearsal.axes import (
    MOST_ELEMENTS,
    SIZES,
    USUAL,
    Call,
    Form,
    list_sides,
    make_call,
    size_call,
    write_inputs,
    write_tuple,
)
from perfci.extensions.adopt.rehearsal.dry_torch import Argument
from perfci.extensions.adopt.rehearsal.relations import WHOLE, settle
from perfci.extensions.adopt.rehearsal.solver import Tries, find_form, solve
from perfci.extensions.adopt.rehearsal.trial import Trial
from perfci.extensions.adopt.rehearsal.uses import Use, is_scalar_name, list_values

SIDE = 64  # of all axes at first, such that the trial alone tells which of them belong together
_MOST_CANDIDATES = 4000
_LIKELY = 200  # of these that are tried in halves too, if none is taken
_MOST_SETTLED = 3
_SETTLE_SECONDS = 8.0  # for sides and integers of the best form that depend on each other
_FURTHER = 8  # candidates that are tried behind one that takes some sizes alone

_PLACES = re.compile(r"torch\.randint\(0, \w+, ")
_ROW_OF_PLACES = re.compile(r"torch\.randint\(0, \w+, \((\w+),\), ")
_BLOCK_OF_PLACES = re.compile(r"torch\.randint\(0, \w+, (.+), generator=generator, dtype=torch.int64, device=device\)")

_EVEN = (4, 6, 10, 14, 22, 26, 34, 38)
_POWERS = (2, 4, 16, 32, 64, 128)
_MANY_AXES = 5
_BLOCKS = (1, 2), (128, 64, 256, 32, 16, 512)  # where a kernel masks nothing: of outer axes, and of the others
_WHOLE_BLOCK = 128  # size of a last axis that is divided into blocks
_HALVES = ("float16", "bfloat16")
_BITS, _BYTES, _WORDS = 8, "randint(0, 256, ", "randint(-(1 << 31), 1 << 31, "
_OF_DTYPES = re.compile(r"same dtype|Got \w*(fp16|bf16)|Unsupported \w+ dtype")
"""Errors of a product of which the kernel rounds one factor"""
_NARROW = ("int8", "int32", "int64", "uint8", "float8_e4m3fn", "float16")
_EMPTY = inspect.Parameter.empty


@dataclass(frozen=True)
class Found:
    """A form of a call, and what its trial gave."""

    form: Form
    texts: Sequence[str]  # what the reference is called with
    trial: Trial
    dry: bool  # whether kernel and reference took it without memory, with outputs of the same shapes
    calls: Sequence[Call] = ()  # those of tests that have this form

    @property
    def is_settled(self) -> bool:
        """Whether nothing speaks against the form, nor for other integers, as some sizes alone might."""
        return self.trial.is_good and not (self.form.little and self.form.has_places)

    @property
    def rank(self) -> tuple[Any, ...]:
        """The least is the best."""
        return not self.dry, *self.trial.rank, bool(self.form.little)

    def is_better(self, other: Found) -> bool:
        """Whether the form is better, and not only as sides of 1 are in the place of axes that take few sizes."""
        is_less = other.trial.is_good and other.form.little and len(self.form.axes) < len(other.form.axes)
        return self.rank < other.rank and not is_less


def search(
    takes: inspect.Signature, uses: Mapping[str, Use], handed: Sequence[str], calls: Sequence[Call], start: Form
) -> Found:  # fmt: skip
    """Returns the first candidate against which nothing speaks, else the best one.

    `calls`: of tests, which are followed. `start`: has the function and its reference.
    """
    reference = start.reference
    going, best, further = start.rehearsal, None, _FURTHER
    tried = dict[tuple[str, ...], Tries]()
    named = {text.split("=")[0] for text in handed}
    listed = iter([dict(calls[0].given)] if calls else _list_given(reference, takes, uses, named))
    likely = list(itertools.islice(listed, _LIKELY))
    # Some, such as attention, take halves alone.
    others = itertools.takewhile(lambda _: not (calls or (best and best.dry)), map(_halve, likely))
    waiting, shorter = itertools.chain(likely, others, listed), list[dict[str, Any]]()
    while given := shorter.pop() if shorter else next(waiting, None):
        tensors = [name for name, value in given.items() if isinstance(value, Argument)]
        if best and (going.is_late or not tensors):
            break
        ways = _list_ways(reference, takes, given, named)
        for texts in [[*given], *ways] if calls else ways:
            defaults = {name: takes.parameters[name].default for name in named if name not in given}
            one = replace(start, reference=make_call(reference, texts, defaults))
            going.step(", ".join(f"{name}: {getattr(value, 'shape', value)}" for name, value in given.items()))
            taken = [call for call in calls if one.count_programs(call) is not None] or list(calls)
            tries = tried.setdefault((*texts,), Tries())
            if calls:
                form, fitting, right = find_form(one, taken)
                right |= one.count_programs(taken[0]) is not None  # with its own sizes at least
            else:
                fitted = _fit_sides(one, given, tries) if tensors else None
                form, right = fitted or (one, False)
            if not right and best and not tries.is_taken:
                break  # the function itself takes none, however its reference is called
            if not right and best:
                continue
            if not right and not calls:
                form = _guess(one, given)
            attempt = judge(form, texts, fitting if calls else [], dry=right)
            if not calls and (counted := _count_sides(attempt.form)):
                other = judge(counted, texts, (), dry=counted.agrees())
                attempt = other if other.trial.is_good and not other.form.little else attempt
            if attempt.trial.agrees and not calls:
                parts = (judge(one, texts, (), dry=one.agrees()) for one in _list_parts(attempt.form, attempt.trial))
                attempt = next((one for one in parts if one.trial.is_good), attempt)
            best = attempt if best is None or attempt.is_better(best) else best
            needless = [name for name in best.trial.ignored if uses.get(name, Use()).is_tensor is None]
            further -= bool(best.form.little)  # perhaps one of the next takes all sizes
            # Where sides divide others no form takes all sizes.
            is_best = not best.form.little or further < 0 or not best.form.agrees()
            is_settled = best.trial.is_good and best.trial.launches and not needless and is_best
            if is_settled:
                return best
            if going.is_late:
                break
            needed = (*attempt.trial.unread, *attempt.trial.idle) if attempt.trial.agrees and not calls else ()
            if lacking := {name: None for name in needed if uses.get(name, Use()).may_lack}:
                shorter.append({**given, **lacking})
            if lacking or (attempt.trial.is_good and not calls):  # how the reference is called is settled
                break
    assert best is not None
    if best.trial.is_good or not best.dry or calls:
        return best
    going.until = max(going.until, going.now_s + _SETTLE_SECONDS)
    settled = _settle(replace(best.form, little={}), best.texts)
    return settled if settled.rank < best.rank else best


def _fit_sides(start: Form, given: Mapping[str, Any], tried: Tries) -> tuple[Form, bool] | None:
    """The form in which kernel and reference take these arguments."""
    sides = solve(start, Call("", given, {}), tried)
    return (sides.make_form(start)[0], True) if sides else None


def _halve(given: Mapping[str, Any]) -> dict[str, Any]:
    kinds = {name: value for name, value in given.items() if isinstance(value, Argument) and value.dtype == "float32"}
    return {**given, **{name: replace(value, dtype="float16") for name, value in kinds.items()}}


def _guess(start: Form, given: Mapping[str, Any]) -> Form:
    """A form for a person to correct: sides at the same place, counted from the end, are one axis."""
    tensors = {name: len(value.shape) for name, value in given.items() if isinstance(value, Argument)} or {"x": 2}
    call = Call("", given if tensors.keys() <= given.keys() else {"x": Argument((SIDE, SIDE), "float32", None)}, {})
    axes = USUAL.get(most := max(tensors.values()), tuple(f"d{number}" for number in range(most)))
    shapes = {name: write_tuple(axes[most - rank :]) for name, rank in tensors.items()}
    return write_inputs(start, axes, shapes, {}, [call])


def judge(form: Form, texts: Sequence[str], calls: Sequence[Call], *, dry: bool) -> Found:
    """The form as a trial for real takes it: with bounds of its integers, the device that it asks for, and sizes."""
    if not dry:
        return Found(form, texts, Trial("no shapes were found that both take"), dry, calls)
    if form.rehearsal.asks:
        form = replace(form, devices=(form.rehearsal.device, form.devices[1]))
    found = _judge(form, texts, calls)
    return _widen_words(found) if found.trial.is_good and not calls else found


def _widen_words(found: Found) -> Found:
    """The form with words of 32 bits for bytes of which a kernel takes a ninth bit: packed numbers of 4 bits."""
    form, is_wide = found.form, found.trial.shift >= _BITS
    texts = {name: text for name, text in form.inputs.items() if is_wide and "torch.uint8" in text}
    words = {name: text.replace(_BYTES, _WORDS).replace("torch.uint8", "torch.int32") for name, text in texts.items()}
    wide = replace(form, inputs={**form.inputs, **words})
    trial = wide.confirm(wide.small, wide.run(wide.small)) if words else found.trial
    return replace(found, form=wide, trial=trial) if trial.is_good else found


def _judge(form: Form, texts: Sequence[str], calls: Sequence[Call]) -> Found:
    if form.holds_whole and not (calls or form.is_ragged):
        best = _settle(form, texts)
    else:
        best = _try_places(_bound(form), texts, calls)
    if best.trial.problem is None and best.trial.share and not calls:
        for one in _list_narrow(best):
            attempt = _try_sizes(one, texts, calls)
            if attempt.trial.is_good:
                return attempt
    if best.trial.problem is None and not best.trial.is_finite and not calls:  # such as logarithms of negative numbers
        for one in _list_positive(best.form):
            attempt = _try_sizes(one, texts, calls)
            best = attempt if attempt.rank < best.rank else best
            if best.trial.is_good:
                break
    return best


def _bound(form: Form) -> Form:
    """The form with small integers."""
    return replace(form, inputs={name: text.replace("1 << 4", "2") for name, text in form.inputs.items()})


def _settle(form: Form, texts: Sequence[str]) -> Found:
    """The form with sides and integers that depend on each other, if one agrees, as they do if all sides are alike."""
    best = None
    for settled in itertools.islice(settle(form), _MOST_SETTLED):
        attempt = _try_sizes(settled, texts, ())
        best = attempt if best is None or attempt.rank < best.rank else best
        if best.is_settled:
            return best
    if best and best.trial.is_good:
        return best
    plain = _try_places(_bound(form), texts, ())
    return best if best and best.rank < plain.rank else plain


def _try_places(form: Form, texts: Sequence[str], calls: Sequence[Call]) -> Found:
    """The form as a trial takes it. Places that are stored to are there once each, or programs would race."""
    attempt = _try_sizes(form, texts, calls)
    inputs = attempt.form.inputs
    alike = {name: _PLACES.sub("torch.randint(0, 1, ", text) for name, text in inputs.items()}
    params = dict(attempt.form.little) or attempt.form.make_distinct()
    is_good = replace(attempt.trial, races=False).is_good
    if not is_good or alike == inputs or not replace(attempt.form, inputs=alike).run(params).races:
        return attempt
    once = {name: _ROW_OF_PLACES.sub(r"torch.randperm(\1, ", text) for name, text in inputs.items()}
    for dim in [inputs["dim"]] if "dim" in inputs else ["-1", "0"]:
        if once == inputs or dim == "0":  # along an axis, as a scatter's
            sorts = rf"torch.randn(\1, generator=generator, device=device).argsort({dim})"
            once = {name: _BLOCK_OF_PLACES.sub(sorts, text) for name, text in inputs.items()}
        other = _try_sizes(replace(form, inputs=once), texts, calls)
        if other.trial.is_good:
            return other
    return replace(attempt, trial=replace(attempt.trial, races=True))


def _list_narrow(found: Found) -> Iterator[Form]:
    """The form in which what is written into holds whole numbers, or narrow ones."""
    inputs, shapes = found.form.inputs, found.form.shapes
    names = [name for name in found.trial.written if inputs[name].startswith("torch.randn(")]
    for dtype in _NARROW if names else ():
        made = {name: f"torch.zeros({shapes[name]}, dtype=torch.{dtype}, device=device)" for name in names}
        yield replace(found.form, inputs={**inputs, **made})


def _list_positive(form: Form) -> Iterator[Form]:
    """The form with one input between 0 and 1, then with all of them."""
    normal = [name for name, text in form.inputs.items() if text.startswith("torch.randn(")]
    for names in [*([name] for name in normal), normal]:
        inputs = {
            name: text.replace("torch.randn(", "torch.rand(") for name, text in form.inputs.items() if name in names
        }
        yield replace(form, inputs={**form.inputs, **inputs})


def _count_sides(form: Form) -> Form | None:
    """The form with a side for each number that is as large in the only sizes that it takes, such as one of rows."""
    sides = {str(size): axis for axis, size in form.little.items()}
    inputs = {name: text if name in form.shapes else sides.get(text, text) for name, text in form.inputs.items()}
    return replace(form, inputs=inputs, little={}) if inputs != form.inputs else None


def _list_parts(form: Form, trial: Trial) -> Iterator[Form]:
    """The form in which tensors of one rank, most of which is unread, have sides of the first one, in their order."""
    ranks = {len(list_sides(form.shapes[name])) for name in trial.unread}
    first = list_sides(next(iter(form.shapes.values())))
    for sides in itertools.combinations(first, min(ranks)) if len(ranks) == 1 else ():
        part = dict.fromkeys(trial.unread, write_tuple(sides))
        inputs = {name: form.inputs[name].replace(form.shapes[name], shape) for name, shape in part.items()}
        shapes, inputs = {**form.shapes, **part}, {**form.inputs, **inputs}
        axes = tuple(axis for axis in form.axes if re.search(rf"\b{axis}\b", " ".join(inputs.values())))
        yield replace(form, axes=axes, shapes=shapes, inputs=inputs, little={})


def _try_sizes(form: Form, texts: Sequence[str], calls: Sequence[Call]) -> Found:
    count, best, usual = len(form.axes), None, dict[str, Any]()
    ways = (
        ((),)
        if form.sample
        else (
            *([_list_few(form)] if count > _MANY_AXES else []),
            *(SIZES[0][:count], SIZES[0][:count][::-1], _EVEN[:count], _POWERS[:count], _POWERS[:count][::-1]),
            (*_POWERS[: count - 1], _WHOLE_BLOCK),
            *([tuple(form.little.values())] if form.little else []),
        )
    )
    small = [call for call in calls[:1] if call.elements <= MOST_ELEMENTS and not form.is_ragged]
    of_tests = [size_call(form, call) for call in small]
    blocks = () if form.has_places or form.sample else (_list_few(form, *_BLOCKS),)
    whole = (form.make_distinct(way) for way in blocks if best and best.trial.problem)
    for number, params in enumerate(itertools.chain(map(form.make_distinct, ways), of_tests, whole)):
        trial = form.run(params)
        for asking in (False, True) if trial.problem and not best else ():
            device = form.rehearsal.device
            passing = replace(form, devices=(device, device if asking else form.devices[1]))
            other = passing.run(params) if passing.devices != form.devices and trial.problem else trial
            form, trial = (passing, other) if other.problem is None else (form, trial)
        for dtype in _HALVES:
            if _OF_DTYPES.search(trial.problem or ""):
                form = replace(form, dtype=dtype)
                trial = form.run(params)
        some = number > 1 or (number and best and best.trial.problem and form.has_places)  # a chance for places
        attempt = Found(replace(form, little=params if some else {}), texts, trial, dry=True, calls=calls)
        if number == 1 and best and best.trial.problem is None and best.trial.rank < trial.rank:
            best = None  # what holds by chance, as where the first axis is the shorter one
        is_better = best is None or attempt.trial.rank < best.trial.rank
        best, usual = (attempt, params) if best is None or is_better else (best, usual)
        if (number and best.trial.is_good) or form.rehearsal.is_late:
            break
    assert best is not None
    if best.trial.is_good and not calls:
        best = replace(best, trial=best.form.confirm(usual, best.trial))
    return best


def _list_few(form: Form, outer: Sequence[int] = (2, 3), inner: Sequence[int] = (5, 7, 11, 6, 13)) -> tuple[int, ...]:
    """Sizes with which a form of many axes has few programs: those of outer axes are small."""
    first = {*itertools.chain(*(list_sides(text)[:-2] for text in form.shapes.values()))}
    sizes = itertools.cycle(outer), itertools.cycle(inner)
    return tuple(next(sizes[axis not in first]) for axis in form.axes)


# --- candidates -------------------------------------------------------------------------------------------------------


def _list_given(
    reference: Any, takes: inspect.Signature, uses: Mapping[str, Use], named: set[str]
) -> Iterator[dict[str, Any]]:
    """Yields arguments: a tensor as `Argument`, or the value of what is none. Low ranks first."""
    asked = _read_signature(reference)
    wanted = {_plain(name) for name, one in asked.items() if one.default is _EMPTY}
    usual = {_plain(name): one.default for name, one in asked.items()}
    options: dict[str, list[tuple[float, Any]]] = {}
    for name, one in takes.parameters.items():
        use = uses.get(name, Use())
        is_optional = one.default is not _EMPTY
        if name not in named or (is_optional and (_plain(name) not in wanted or use.is_tensor is False)):
            if name in named and one.default is None and name.endswith("dtype"):
                options[name] = [(0.0, _EMPTY), *((2.0, value) for value in list_values(name, one)[:2])]
            if name in named and use.is_tensor and use.rank and _plain(name) in usual and one.default is None:
                options[name] = [(0.0, _EMPTY), *((cost + 2.0, value) for cost, value in _list_tensors(use))]
            continue
        typed = one.replace(annotation=int) if use.is_size else one
        lacks = [(0.0 if _plain(name) not in wanted else 1.0, None)] if use.may_lack and not is_optional else []
        listed = dict.fromkeys([*use.compared, *list_values(name, typed, usual.get(_plain(name)))])
        values = [(float(place), value) for place, value in enumerate(listed)]
        tensors: list[tuple[float, Any]] = list(_list_tensors(use, is_first=not options))
        if use.is_tensor and asked and options and not is_optional and _plain(name) not in usual:
            tensors.append((1.2, None))
        if lacks and use.is_tensor is not None:
            later = tensors if use.is_tensor else values
            options[name] = [*lacks, *((cost + 1 - lacks[0][0] / 3, value) for cost, value in later)]
        elif use.is_tensor is None:
            values_first = is_scalar_name(name) or isinstance(usual.get(_plain(name)), bool | int | float | str)
            later = tensors if values_first else values
            options[name] = [*(values if values_first else tensors), *((cost + 3, value) for cost, value in later)]
            options[name].append((1.5, None))
        else:
            options[name] = tensors if use.is_tensor else values
    alike = _list_alike(options)
    while options and math.prod(map(len, options.values())) > 1 << 16:
        longest = max(options, key=lambda name: len(options[name]))
        options[longest] = sorted(options[longest], key=lambda option: option[0])[:-1]
    ways = sorted(itertools.product(*options.values()), key=_weigh)[:_MOST_CANDIDATES]
    for way in (*ways[:1], alike, *ways[1:]):
        given = {name: value for name, (_, value) in zip(options, way, strict=True) if value is not _EMPTY}
        yield given


def _list_alike(options: Mapping[str, Sequence[tuple[float, Any]]]) -> tuple[tuple[float, Any], ...]:
    """The likeliest value of each argument, but that all tensors have as many axes as the first one, if they may."""
    likely = [sorted(values, key=lambda option: option[0]) for values in options.values()]
    tensors = [values[0][1] for values in likely if isinstance(values[0][1], Argument)]
    rank = len(tensors[0].shape) if tensors else 0

    def choose(values: Sequence[tuple[float, Any]]) -> tuple[float, Any]:
        same = (one for one in values if isinstance(one[1], Argument) and len(one[1].shape) == rank)
        return next(same, values[0]) if isinstance(values[0][1], Argument) else values[0]

    return tuple(map(choose, likely))


def _weigh(way: Sequence[tuple[float, Any]]) -> float:
    """How unlikely arguments are together: tensors often have as many axes as the first one."""
    ranks = [len(value.shape) for _, value in way if isinstance(value, Argument)]
    alike = sum(rank == ranks[0] for rank in ranks[1:])
    return sum(cost for cost, _ in way) - alike * max((ranks[0] - 1) / 2 - 0.25, 0.0) if ranks else 0.0


def _list_tensors(use: Use, *, is_first: bool = False) -> Iterator[tuple[float, Argument]]:
    """Tensors that an argument may be, and how unlikely each is."""
    ranks = use.list_ranks()
    ranks = ranks if (is_first and not use.is_whole) or use.rank else sorted(ranks)
    kinds: tuple[str, ...] = ("int64", "int32", "float32") if use.is_whole else ("float32",)
    kinds = ("uint8", *kinds) if use.is_packed else kinds
    kinds = (use.dtype,) if use.dtype else ("bool", "float32") if use.is_flag else kinds
    if not is_first and 1 in ranks and not use.fixed and not use.is_whole:
        yield 1.6, Argument((1,), "float32", None, ("1",))  # a number on the device
    for place, rank in enumerate(ranks):
        cost = 0.0 if not place else (3.0 if use.rank else 0.0) + (place if is_first else place / 2)
        kinds = ("float32", "int64") if use.is_target and rank > 1 else kinds
        marks = tuple(str(use.fixed.get(axis, use.fixed.get(axis - rank, "{}"))) for axis in range(rank))
        for number, kind in enumerate(kinds):
            text = WHOLE if kind.startswith("int") else WHOLE.replace("1 << 4", "256") if kind == "uint8" else None
            sides = tuple(SIDE if "{}" in mark else int(mark) for mark in marks)
            yield cost + number * 0.7, Argument(sides, kind, text, marks)


def _read_signature(function: Any) -> Mapping[str, inspect.Parameter]:
    """Parameters of a function, none of one that does not tell them."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def _plain(name: str) -> str:
    return name.lower().strip("_")


def _list_ways(reference: Any, takes: inspect.Signature, given: Mapping[str, Any], named: set[str]) -> list[list[str]]:
    """What the reference may be called with, as text: by what its signature names, else by position."""
    ways = list[list[str]]()
    tensors = [name for name, value in given.items() if isinstance(value, Argument)]
    options = [name for name in takes.parameters if name in named and name not in given]
    last = f"{tensors[0] if tensors else 'x'}.shape[-1:]"
    filled = {"dim": "-1", "axis": "-1", "normalized_shape": last}
    asked = _read_signature(reference)
    if asked:
        ways += filter(None, [_fit(asked, [*given], options, filled), _fit(asked, tensors, options, filled)])
    takes_any = not asked or any(one.kind is one.VAR_POSITIONAL for one in asked.values())
    scalars = [name for name in given if name not in tensors]
    others = [*scalars, *options]
    subsets = [others, *([other] for other in others if len(others) > 1), []]
    extras: tuple[Mapping[str, str], ...] = ({}, {"dim": "-1"}, {"normalized_shape": last})
    for extra, subset, by_name in itertools.product(extras, subsets, ((), tensors[1:])) if takes_any else ():
        if not extra.keys() & {*subset}:
            texts = [tensor for tensor in tensors if tensor not in by_name]
            texts += [f"{name}={text}" for name, text in extra.items()]
            ways.append(texts + [f"{name}={name}" for name in (*by_name, *subset)])
    if asked:
        places = sum(one.kind <= one.POSITIONAL_OR_KEYWORD for one in asked.values())
        ways.append([*given][:places])
    return [list(way) for way in dict.fromkeys(map(tuple, ways))]


def _fit(
    asked: Mapping[str, inspect.Parameter], given: Sequence[str], options: Sequence[str], filled: Mapping[str, str]
) -> list[str] | None:
    """A call by a signature: an argument goes to the parameter of its name, the others to those left, in order."""
    by_name = {_plain(name): name for name in (*options, *given)}
    matched = {name: by_name[_plain(name)] for name in asked if _plain(name) in by_name}
    left = [name for name in given if name not in matched.values()]
    open_ones = [one for name, one in asked.items() if name not in matched and one.kind <= one.KEYWORD_ONLY]
    for one in open_ones:
        if one.default is _EMPTY and one.name in filled:
            matched[one.name] = filled[one.name]
        elif one.default is _EMPTY and left:
            matched[one.name] = left.pop(0)
        elif one.default is _EMPTY:
            return None
    for one in open_ones:
        if one.default is None and left and one.name not in matched:
            matched[one.name] = left.pop(0)
    texts, by_place = list[str](), True
    for name, one in asked.items():
        if name not in matched:
            by_place &= one.kind > one.POSITIONAL_OR_KEYWORD
            continue
        plain = by_place and one.kind <= one.POSITIONAL_OR_KEYWORD
        plain &= one.default is _EMPTY and matched[name] not in filled.values()
        by_place &= plain
        texts.append(matched[name] if plain else f"{name}={matched[name]}")
    return texts
