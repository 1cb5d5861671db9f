"""The backward pass of a function as an op: it takes the function's inputs and the gradient of an output."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from perfci.extensions.adopt.rehearsal import search
from perfci.extensions.adopt.rehearsal.axes import Form, write_tuple
from perfci.extensions.adopt.rehearsal.sketched import gradients, wrap
from perfci.extensions.adopt.rehearsal.trial import GRADIENT


@dataclass(frozen=True)
class Backward:
    """How both sides' backward passes are called."""

    found: search.Found
    of: tuple[str, ...]  # inputs whose gradients they give
    further: tuple[str, str]  # arguments of `gradients` for the kernel and for the reference, as text


def turn_back(forward: search.Found) -> Backward | None:
    """Returns the backward pass of a form that was tried. None if both sides give no gradient of a common input.

    What has one element may have no axes: some give a gradient of that form alone.
    """
    form = forward.form
    thin = {name: "()" for name, shape in form.shapes.items() if shape == "(1,)"}
    texts = {name: form.inputs[name].replace("(1,)", "()") for name in thin}
    flat = replace(form, shapes={**form.shapes, **thin}, inputs={**form.inputs, **texts})
    return _turn_back(forward) or (_turn_back(replace(forward, form=flat)) if thin else None)


def _turn_back(forward: search.Found) -> Backward | None:
    form, trial = forward.form, forward.trial
    picks = [pick for pick in trial.picks or () if isinstance(pick, int)]
    places = (picks or [0])[0], (trial.expected or [0])[0]
    copies = bool(trial.written)
    params = form.small
    inputs = form.make_inputs(params, "float32")
    sides = zip((form.kernel, form.reference), places, form.devices, strict=True)
    asked = [_ask_either(form, function, place, device, inputs) for function, place, device in sides]
    differentiable, devices = [names for names, _, _ in asked], tuple(device for _, _, device in asked)
    shape = asked[0][1]
    of = tuple(name for name in form.inputs if all(name in names for names in differentiable))
    axes = {size: axis for axis, size in params.items()}
    text = write_tuple([str(axes.get(size, size)) for size in shape])
    if not of or form.is_ragged:
        return None
    made = f"torch.randn({text}, generator=generator, dtype=dtype, device=device)"
    takes = {**form.inputs, GRADIENT: made}
    handed = [*forward.texts, f"of={write_tuple(of)}", f"{GRADIENT}={GRADIENT}"]

    def attempt(*, copies: bool) -> tuple[Form, search.Found]:
        pair = (_call_back(form.kernel, places[0], of, copies=copies), _call_back(form.reference, places[1], of))
        back = replace(form, kernel=pair[0], reference=pair[1], inputs=takes, shapes={**form.shapes, GRADIENT: text})
        back = replace(back, little={}, devices=(devices[0], devices[1]))
        return back, search.judge(back, handed, (), dry=True)

    back, found = attempt(copies=copies)
    if found.trial.written and not copies:  # as where the gradient of an input takes the place of the output's
        copies = True
        back, found = attempt(copies=True)
    texts = tuple(
        (f", {place}" if place else "") + (", copies=True" if copies and not number else "")
        for number, place in enumerate(places)
    )
    return Backward(replace(found, dry=back.agrees() or found.trial.is_good), of, (texts[0], texts[1]))


def _ask_either(
    form: Form, function: Callable[..., Any], place: int, device: str | None, inputs: Mapping[str, Any]
) -> tuple[set[str], tuple[int, ...], str | None]:
    """The inputs with gradients, the output's shape, and the device that tensors have to pass for, if any."""
    for passing in dict.fromkeys((device, form.rehearsal.device)):
        with contextlib.suppress(Exception), form.rehearsal.real():  # whatever other people's code raises
            ask = functools.partial(_ask, function, place)
            return *(wrap(ask, passing) if passing else ask)(**inputs), passing
    return set(), (), device


def _ask(function: Callable[..., Any], place: int, **given: Any) -> tuple[set[str], tuple[int, ...]]:
    """The inputs of which a function gives gradients, and the shape of its output."""
    floats = {name: value for name, value in given.items() if torch.is_tensor(value) and value.is_floating_point()}
    leaves = {name: value.clone().requires_grad_() for name, value in floats.items()}
    outputs = function(**{**given, **leaves})
    output = outputs[place] if isinstance(outputs, list | tuple) else outputs
    made = torch.autograd.grad(output, list(leaves.values()), torch.ones_like(output), allow_unused=True)
    return {name for name, value in zip(leaves, made, strict=True) if value is not None}, tuple(output.shape)


def _call_back(
    function: Callable[..., Any], place: int, of: Sequence[str], *, copies: bool = False
) -> Callable[..., Any]:
    def call(**given: Any) -> Any:
        gradient = given.pop(GRADIENT)
        named = tuple(given[name] for name in of)
        return gradients(function, place, copies=copies)(**given, of=named, gradient=gradient)

    return call
