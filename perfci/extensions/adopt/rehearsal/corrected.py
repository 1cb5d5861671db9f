"""A call that a person corrects: its text where no form agreed, and the form that follows from it afterwards."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from perfci.extensions.adopt.rehearsal import search
from perfci.extensions.adopt.rehearsal.axes import Call, Form, list_form, size_call, unite

_GIVEN = re.compile(r", (generator=generator|device=device|dtype=dtype)")
_BOUND = re.compile(r"(torch\.(?:randint|linspace)\(\d+, )(\d+)(?=, )")


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
    is_settled, judged = found.trial.is_good and not found.form.little, list[search.Found]()
    for form in _list_bound(found.form, call):
        if is_settled and form.inputs == found.form.inputs:
            break
        judged.append(search.judge(form, found.texts, [call], dry=True))
        if judged[-1].trial.is_good and not judged[-1].form.little:  # else other sizes give something else
            break
    best = min((*judged, found), key=lambda one: one.rank)
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
    form = unite(replace(found.form, little={}), {axis: "1" for axis, size in sizes.items() if size == 1})
    done = None if form.is_ragged else form.try_case(size_call(form, call))
    sides = {side for shape in (done and done.reference) or () for side in shape}
    names = [name for name, text in form.inputs.items() if text.isdigit() and 1 < int(text) in sides]
    inputs = {**form.inputs, **{name: name for name in names}}
    sized = replace(form, axes=(*form.axes, *names), inputs=inputs, little={})
    attempt = search._judge(sized, found.texts, ()) if names and sized.agrees() else None
    return attempt if attempt and attempt.trial.is_good else None


def _list_bound(form: Form, call: Call) -> Iterator[Form]:
    """The form with integers below the axis whose size the call names, then with one axis of the call's size."""
    sizes = {} if form.is_ragged else size_call(form, call)
    bound = _bind(form, sizes)
    yield from () if form.is_ragged else (bound,)
    yield from (unite(bound, {axis: str(size)}) for axis, size in sizes.items())


def _bind(form: Form, sizes: Mapping[str, int]) -> Form:
    """The form in which integers lie below an axis of the size that the call names."""
    names = {str(size + 1): f"{axis} + 1" for axis, size in sizes.items()}
    names |= {str(size): axis for axis, size in sizes.items()}
    inputs = {
        name: _BOUND.sub(lambda one: one[1] + names.get(one[2], one[2]), text) for name, text in form.inputs.items()
    }
    return replace(form, inputs=inputs, little={})
