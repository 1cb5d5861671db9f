"""What a trial says about an op: how both of its functions answer alike, or why it is not ready."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from perfci.core.model import Reason
from perfci.extensions.adopt.rehearsal.axes import Form
from perfci.extensions.adopt.rehearsal.trial import Trial
from perfci.extensions.adopt.sketch import SketchFunction

_MANY = (3, 3, 5, 7, 33, 100)  # sizes of a case with many equal values


def list_mutated(trial: Trial) -> tuple[str, ...]:
    """Returns the tensors that the op writes into: as the reference does, or instead of returning them."""
    return trial.rewritten or tuple(pick for pick in trial.picks or () if isinstance(pick, str))


def write_answers(
    kernel: SketchFunction, reference: SketchFunction, trial: Trial
) -> tuple[SketchFunction, SketchFunction]:
    """Returns both sides such that they answer alike: what the reference does not give is left out."""
    mutated = list_mutated(trial)
    scratch = [name for name in trial.written if name not in mutated]
    arguments = tuple(re.sub(rf"(^|=)({'|'.join(scratch)})$", r"\1\2.clone()", text) for text in kernel.arguments)
    kernel = replace(kernel, arguments=arguments if scratch else kernel.arguments)
    places = [pick for pick in trial.picks or () if isinstance(pick, int)]
    if mutated and not places:
        kernel = replace(kernel, head="", tail=")", last=f"return {', '.join(mutated)}")
        if not trial.rewritten and len(mutated) == 1:
            reference = replace(reference, head=f"return {mutated[0]}.copy_(", tail="))")
        elif not trial.rewritten:
            last = f"return tuple(one.copy_(value) for one, value in zip(({', '.join(mutated)}), made, strict=True))"
            reference = replace(reference, head="made = ", last=last)
    elif trial.returned and places != [*range(trial.returned)]:
        kernel = _take(kernel, places)
    if mutated and places and not trial.rewritten:  # the reference returns what the kernel writes
        made = [f"made[{place}]" for place in trial.expected or range(len(trial.picks or ()))]
        pairs = [*zip(trial.picks or (), made, strict=True)]
        items = [value for pick, value in pairs if isinstance(pick, int)]
        items += [f"{pick}.copy_({value})" for pick, value in pairs if isinstance(pick, str)]
        taken = f"[:{len(places)}]" if places[1:] else "[0]"
        reference = replace(reference, head="made = ", last=f"return ({', '.join(items)}){taken}")
    elif trial.expected and not mutated:
        reference = _take(reference, trial.expected)
    return kernel, reference


def _take(side: SketchFunction, places: Sequence[int]) -> SketchFunction:
    """A side that returns some of what its function returns in a tuple."""
    if len(places) == 1:
        return replace(side, tail=f")[{places[0]}]")
    return replace(side, head="made = ", last=f"return {', '.join(f'made[{place}]' for place in places)}")


def find_ties(form: Form, trial: Trial) -> Trial | None:
    """Returns the trial without its outputs of integers, if equal values change them alone: either place is right."""
    whole = [dtype.startswith("int") for dtype in trial.dtypes]
    kept = [number for number, is_whole in enumerate(whole) if not is_whole]
    picks, places = trial.picks or (), trial.expected or range(len(whole))
    if not kept or all(number in kept for number in range(len(whole))) or any(isinstance(pick, str) for pick in picks):
        return None
    sizes = [form.little] if form.little else [form.make_distinct(_MANY[-len(form.axes) :]), form.make_distinct()]
    equal = [form.run(one, values="ones").shares for one in sizes]
    differ = {number for shares in equal for number, share in enumerate(shares) if share}
    if not differ or differ & {*kept}:
        return None
    return replace(
        trial, picks=tuple(picks[number] for number in kept), expected=tuple(places[number] for number in kept)
    )


def write_real(side: SketchFunction, trial: Trial) -> SketchFunction:
    """Returns a side with complex numbers as pairs of real ones, which perfci compares."""
    if [dtype.startswith("complex") for dtype in trial.dtypes] != [True] or side.last:
        return side
    return replace(side, head=f"{side.head}torch.view_as_real(", tail=f"{side.tail})")


def explain(trial: Trial, *, dry: bool, idle: bool, draws: bool, facts: Mapping[str, Any]) -> list[Reason]:
    """Returns why an op is not ready. Empty if it is.

    idle: no call launches a kernel. draws: random numbers change the answer.
    """
    if not dry:
        return [Reason("look_untried", {**facts})]
    if missing := re.search(r"NotInterpretedError\W+([\w.]+)", trial.problem or ""):
        return [Reason("look_uninterpreted", {**facts, "operation": missing[1]})]
    if trial.problem:
        return [Reason("look_raised", {**facts, "error": trial.problem})]
    if idle:
        return [Reason("look_idle_kernel", {**facts})]
    if not trial.is_finite:
        return [Reason("look_unfinite", {**facts})]
    if draws:
        return [Reason("look_random", {**facts})]
    if trial.share:
        return [Reason("look_differs", {**facts, "share": trial.share_at_most})]
    if trial.races:
        return [Reason("look_races", {**facts})]
    lacks = {"look_unread": trial.unread, "look_idle": trial.idle}
    return [Reason(kind, {**facts, "tensors": ", ".join(names)}) for kind, names in lacks.items() if names]
