"""Two identities of a call held against each other: the same device work, or what changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfci.core.model import Fact, Identity, LaunchIdentity, Reason

MOST_CHANGES = 6
"""Changes that are named; the first ones tell enough."""

SHOWN = 160
"""Characters of an operation or argument that are shown."""


def same(before: Identity, after: Identity) -> bool | None:
    """Whether two calls do the same device work; None where either could not be captured."""
    if before.unknown or after.unknown:
        return None
    return before == after


def changes(before: Identity, after: Identity) -> tuple[Reason, ...]:
    """What differs, in the order in which it happens: why it could not be captured, or what the call does now.

    Beyond MOST_CHANGES the others are counted.
    """
    if unknown := before.unknown or after.unknown:
        return (unknown,)
    found = list(_changes(before, after))
    more = len(found) - MOST_CHANGES
    counted = (Reason("more_changes", {"count": more}),) if more > 0 else ()
    return (*found[:MOST_CHANGES], *counted)


def _changes(before: Identity, after: Identity) -> Iterator[Reason]:
    if before.inputs != after.inputs:
        yield Reason("inputs_changed")
    if before.choices != after.choices:
        yield Reason("choices_changed", {"before": _text(before.choices), "after": _text(after.choices)})
    if before.operations != after.operations:
        yield _operations_changed(before.operations, after.operations)
    if len(before.launches) != len(after.launches):
        facts: dict[str, Fact] = {"before": _names(before.launches), "after": _names(after.launches)}
        yield Reason("launches_changed", {**facts, "count": len(before.launches), "now": len(after.launches)})
        return
    for old, new in zip(before.launches, after.launches, strict=True):
        yield from _launch_changes(old, new)


def _operations_changed(before: Sequence[str], after: Sequence[str]) -> Reason:
    """The first place where the two sequences part."""
    at = next((i for i, (old, new) in enumerate(zip(before, after, strict=False)) if old != new), None)
    place = min(len(before), len(after)) if at is None else at
    old, new = (_text(list(side[place : place + 1])) for side in (before, after))
    kind = "operations_changed" if len(before) == len(after) else "operations_counted"
    return Reason(kind, {"before": old, "after": new, "count": len(before), "now": len(after)})


def _launch_changes(old: LaunchIdentity, new: LaunchIdentity) -> Iterator[Reason]:
    where = {"kernel": new.kernel}
    if old.kernel != new.kernel:
        yield Reason("kernel_renamed", {"before": old.kernel, "after": new.kernel})
    for name in ("grid", "warps", "stages"):
        was, now = getattr(old, name), getattr(new, name)
        if was != now:
            yield Reason("launch_changed", {**where, "what": name, "before": _said(was), "after": _said(now)})
    for name in dict.fromkeys((*old.arguments, *new.arguments)):
        was, now = old.arguments.get(name), new.arguments.get(name)
        if was != now:
            facts = {"name": name, "before": _short(was or "none"), "after": _short(now or "none")}
            yield Reason("argument_changed", {**where, **facts})
    if old.artefact != new.artefact:
        yield Reason("code_changed", {**where, "before": old.artefact[:8], "after": new.artefact[:8]})


def _said(value: object) -> str | None:
    return None if value is None else str(value)


def _names(launches: Sequence[LaunchIdentity]) -> str:
    return _short(", ".join(launch.kernel for launch in launches) or "none")


def _text(parts: Sequence[str]) -> str:
    return _short("; ".join(parts) or "nothing")


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
