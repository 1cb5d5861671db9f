"""Compares two identities of a call: the same device work, or what changed; and what is duelled because of that."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perfci.core.model import BaseArm, DuelWhat, Fact, Identity, LaunchIdentity, Reason

MOST_CHANGES = 6  # Changes that are named. The first ones are enough.
SHOWN = 160  # characters of an operation or argument that are shown


@dataclass(frozen=True)
class DuelPlan:
    """Which performance cases are timed beside the base revision."""

    cases: tuple[str, ...]  # those that the base has too
    duel: DuelWhat = DuelWhat.CHANGED
    audit: tuple[str, ...] = ()  # unchanged cases that are duelled all the same
    skip_unchanged: bool = True  # do not time what is unchanged and not duelled
    by_identity: bool = True  # False if the revisions have different toolchains: the same identity proves nothing
    same_files: bool = False  # those of the op, so that its work is the same where no launch can be captured

    @property
    def duels(self) -> bool:
        """Whether anything is timed beside the base."""
        return self.duel is not DuelWhat.NONE

    def compare(self, case: str, before: Identity, after: Identity, peak_bytes: int | None) -> BaseArm:
        """Returns the base before timing: whether it is the same, and whether it is timed."""
        same = same_work(before, after) if self.by_identity else None
        changes = list_changes(before, after) if self.by_identity else (Reason("toolchain_differs"),)
        same = True if same is None and self.by_identity and self.same_files else same
        wanted = same is not True or self.duel is DuelWhat.ALL or case in self.audit
        return BaseArm(
            identity=None if same else before,
            same=same,
            changes=changes,
            duelled=wanted and self.duels,
            peak_bytes=peak_bytes,
        )

    def skips(self, base: BaseArm | None) -> bool:
        """Returns whether a case gets no time: proven unchanged, and no one asked for it."""
        return base is not None and base.same is True and not base.duelled and self.skip_unchanged


def same_work(before: Identity, after: Identity) -> bool | None:
    """Returns whether two calls do the same device work. None if either could not be captured."""
    return None if before.unknown or after.unknown else before == after


def list_changes(before: Identity, after: Identity) -> tuple[Reason, ...]:
    """Returns what differs, in the order of the call, or why it could not be captured. Beyond MOST_CHANGES, a count."""
    if unknown := before.unknown or after.unknown:
        return (unknown,)
    changes = list(_changes(before, after))
    more = len(changes) - MOST_CHANGES
    counted = (Reason("more_changes", {"count": more}),) if more > 0 else ()
    return (*changes[:MOST_CHANGES], *counted)


def _changes(before: Identity, after: Identity) -> Iterator[Reason]:
    if before.inputs != after.inputs:
        yield Reason("inputs_changed")
    if before.choices != after.choices:
        yield Reason("choices_changed", {"before": _text(before.choices), "after": _text(after.choices)})
    old, new = before.operations, after.operations
    if old != new:
        pairs = enumerate(itertools.zip_longest(old, new))
        first = next(at for at, (one, other) in pairs if one != other)
        kind = "operations_changed" if len(old) == len(new) else "operations_counted"
        facts: dict[str, Fact] = {"before": _text(old[first : first + 1]), "after": _text(new[first : first + 1])}
        yield Reason(kind, {**facts, "count": len(old), "now": len(new)})
    if len(before.launches) != len(after.launches):
        facts = {"before": _names(before.launches), "after": _names(after.launches)}
        yield Reason("launches_changed", {**facts, "count": len(before.launches), "now": len(after.launches)})
        return
    for launch, later in zip(before.launches, after.launches, strict=True):
        yield from _launch_changes(launch, later)


def _launch_changes(old: LaunchIdentity, new: LaunchIdentity) -> Iterator[Reason]:
    where = {"kernel": new.kernel}
    if old.kernel != new.kernel:
        yield Reason("kernel_renamed", {"before": old.kernel, "after": new.kernel})
    for name in ("grid", "warps", "stages"):
        was, now = getattr(old, name), getattr(new, name)
        if was != now:
            before, after = (None if value is None else str(value) for value in (was, now))
            yield Reason("launch_changed", {**where, "what": name, "before": before, "after": after})
    for name in dict.fromkeys((*old.arguments, *new.arguments)):
        was, now = old.arguments.get(name), new.arguments.get(name)
        if was != now:
            facts = {"name": name, "before": _short(was or "none"), "after": _short(now or "none")}
            yield Reason("argument_changed", {**where, **facts})
    if old.artefact != new.artefact:
        yield Reason("code_changed", {**where, "before": old.artefact[:8], "after": new.artefact[:8]})


def _names(launches: Sequence[LaunchIdentity]) -> str:
    return _short(", ".join(launch.kernel for launch in launches) or "none")


def _text(parts: Sequence[str]) -> str:
    return _short("; ".join(parts) or "nothing")


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
