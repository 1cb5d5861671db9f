"""A call that a person corrects: its text where no form agreed, and the form that follows from it afterwards."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

from perfci.extensions.adopt.rehearsal import search
from perfci.extensions.adopt.rehearsal.axes import Call, Form, list_form, size_call

_GIVEN = re.compile(r", (generator=generator|device=device|dtype=dtype)")
_BOUND = re.compile(r"(torch\.(?:randint|linspace)\(\d+, )(\d+)(?=, )")
_MOST_WAYS = 2000  # to write sides as multiples of others. Each takes about a millisecond
_FACTORS = (2, 4, 8, 16, 32, 64, 128)
_ODD, _POWERS = (3, 5, 2, 7, 1, 11, 13, 17), (16, 32, 64, 8, 4, 2)
_SECONDS = 5.0  # for calls with sides that are multiples


def write_call(form: Form) -> tuple[str, ...]:
    """Returns the arguments of a call with numbers in the place of axes, as a test makes them."""
    word, sizes = re.compile(r"\b[a-z_]\w*\b"), {axis: repr(size) for axis, size in form.small.items()}
    texts = {name: word.sub(lambda one: sizes.get(one[0], one[0]), text) for name, text in form.inputs.items()}
    dtype = "" if form.dtype in {"float32", ""} else f", dtype=torch.{form.dtype}"
    given = {name: _GIVEN.sub(lambda one: dtype * one[1].startswith("dtype"), text) for name, text in texts.items()}
    return tuple(f"{name}={text}" for name, text in given.items())


def derive(found: search.Found, call: Call) -> search.Found:
    """Returns the form of a call with as many axes as kernel and reference allow, or with the sizes of the call."""
    if sized := _size_outputs(found, call):
        return sized
    best = found
    is_bound = found.form.is_ragged or _bind(found.form, size_call(found.form, call)).inputs == found.form.inputs
    if found.form.little or not found.trial.is_good or not is_bound:
        for form in itertools.islice(_list_fitting(found.form, call), 1):
            other = search.judge(form, found.texts, [call], dry=True)
            best = other if other.trial.is_good or other.rank < best.rank else best
    if not (best.trial.is_good and best.form.axes):
        form, _ = list_form(best.form, [call])
        alone = search.judge(form, found.texts, [call], dry=True)
        best = min(best, alone, key=lambda one: one.rank) if best.form.axes else alone
    if best.trial.is_good:
        best = replace(best, trial=best.form.confirm(best.form.small, best.trial))
        if not best.form.is_ragged and best.form.run(size_call(best.form, call)).problem:
            return replace(best, calls=())  # other sizes are taken, and not those of the call
    return best


def _size_outputs(found: search.Found, call: Call) -> search.Found | None:
    """The form in which numbers that are sides of an output are axes. None if other ones are not taken."""
    sizes = {} if found.form.is_ragged else size_call(found.form, call)
    form = _replace_sides(found.form, {axis: "1" for axis, size in sizes.items() if size == 1})
    done = None if form.is_ragged else form.try_case(size_call(form, call))
    sides = {side for shape in (done and done.reference) or () for side in shape}
    names = [name for name, text in form.inputs.items() if text.isdigit() and 1 < int(text) in sides]
    inputs = {**form.inputs, **{name: name for name in names}}
    sized = replace(form, axes=(*form.axes, *names), inputs=inputs, little={})
    attempt = search._judge(sized, found.texts, ()) if names and sized.agrees() else None
    return attempt if attempt and attempt.trial.is_good else None


def _list_fitting(form: Form, call: Call) -> Iterator[Form]:
    """The form with integers and sides that follow from others, if it takes other sizes than the call's too."""
    until_s = time.process_time() + _SECONDS
    sizes = {} if form.is_ragged else size_call(form, call)
    bound = _bind(form, sizes)
    for base in (bound, *([form] if bound.inputs != form.inputs else [])):
        for one in itertools.chain([base], itertools.islice(_list_related(base, sizes), _MOST_WAYS)):
            if time.process_time() > until_s:
                return
            if one.agrees() and _takes_others(one):
                yield one


def _takes_others(form: Form) -> bool:
    """Whether nothing speaks against the form in a case in which axes differ."""
    return any(form.run(form.make_distinct(sizes)).is_good for sizes in (_ODD, _POWERS))


def _list_related(form: Form, sizes: Mapping[str, int]) -> Iterator[Form]:
    """The form with sides that are multiples of others, or of a number, those with the most axes first."""
    options = {axis: _list_multiples(axis, sizes) for axis in sizes}
    for count in range(1, len(sizes) + 1):
        for axes in itertools.combinations(sizes, count):
            for way in itertools.product(*(options[axis] for axis in axes)):
                names = dict(zip(axes, way, strict=True))
                if not {word for text in way for word in re.findall(r"[a-z_]\w*", text)} & {*names} - _list_own(names):
                    yield _replace_sides(form, names)


def _list_own(names: Mapping[str, str]) -> set[str]:
    """Axes that are multiples of a number alone."""
    return {axis for axis, text in names.items() if text.endswith(f" * {axis}")}


def _list_multiples(axis: str, sizes: Mapping[str, int]) -> list[str]:
    """What a side may be by its size, as text."""
    size = sizes[axis]
    others = [(other, least) for other, least in sizes.items() if other != axis and 0 < least < size]
    multiples = [other for other in itertools.takewhile(lambda other: other != axis, sizes) if sizes[other] == size]
    multiples += [f"{size // least} * {other}" for other, least in others if not size % least]
    multiples += [f"{other} + 1" for other, least in others if least + 1 == size]
    multiples += [f"{factor} * {axis}" for factor in _FACTORS if not size % factor and size >= factor]
    return [*multiples, str(size)]


def _replace_sides(form: Form, names: Mapping[str, str]) -> Form:
    """The form in which sides are what these texts say."""
    word = re.compile(r"\b[a-z_]\w*\b")
    shapes = {name: word.sub(lambda one: names.get(one[0], one[0]), text) for name, text in form.shapes.items()}
    inputs = {
        name: text.replace(form.shapes[name], shapes[name]) if name in shapes else names.get(text, text)
        for name, text in form.inputs.items()
    }
    kept = _list_own(names)
    axes = tuple(axis for axis in form.axes if axis not in names or axis in kept)
    return replace(form, axes=axes, shapes=shapes, inputs=inputs, little={})


def _bind(form: Form, sizes: Mapping[str, int]) -> Form:
    """The form in which integers lie below an axis of the size that the call names."""
    names = {str(size + 1): f"{axis} + 1" for axis, size in sizes.items()}
    names |= {str(size): axis for axis, size in sizes.items()}
    inputs = {
        name: _BOUND.sub(lambda one: one[1] + names.get(one[2], one[2]), text) for name, text in form.inputs.items()
    }
    return replace(form, inputs=inputs, little={})
