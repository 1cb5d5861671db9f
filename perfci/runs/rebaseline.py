"""Fresh runs of a changed environment in the place of the stored baselines: what moved is shown, then recorded."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from perfci import store
from perfci.core.errors import PerfciError, UsageError
from perfci.core.model import Baseline, Fact, PlannedOp, Reason, Run
from perfci.core.renames import baseline_of
from perfci.core.settings import Settings
from perfci.core.wording import caused
from perfci.git.checkout import materialise
from perfci.judge import judge
from perfci.ops import fingerprint
from perfci.ops.fingerprint.tree import Tree
from perfci.runs.accept import Evidence, accept
from perfci.runs.accepting import note
from perfci.runs.base import known_ops, moved
from perfci.runs.effective_thresholds import in_force
from perfci.runs.moves import CaseMove, Survey, commits, stepped, survey
from perfci.store import history
from perfci.store.past.lines import line
from perfci.thresholds.limits import Thresholds

MOST_FILES = 3
"""Most files named in a sentence."""


@dataclass(frozen=True)
class RebaselineOptions:
    """What is to be done with what moved."""

    write: bool = False
    why: str = ""
    """what changed around the kernels, for whoever reads the baseline later"""
    unexplained: tuple[str, ...] = ()
    """ops whose kernels may have moved alone"""
    changed_code: tuple[str, ...] = ()
    """ops whose files may have changed as well"""
    dirty: bool = False
    """runs of a work tree with uncommitted changes are taken too"""


SHOW = RebaselineOptions()


@dataclass(frozen=True)
class Rebaselined:
    """What became of one op."""

    survey: Survey
    taken: tuple[str, ...] = ()
    """case ids whose numbers are stored anew, or would be by --write"""
    withheld: tuple[Reason, ...] = ()
    """why cases, or the op, stay as they were although the environment changed"""
    said: tuple[Reason, ...] = ()
    """what else is to be known"""
    failure: Reason | None = None
    """why its file could not be read or written; then nothing of it changed"""
    path: Path | None = None
    """where it was written"""


def rebaseline_runs(
    runs: Sequence[Run], settings: Settings, names: Sequence[str] = (), options: RebaselineOptions = SHOW
) -> list[Rebaselined]:
    """Hold fresh runs against the stored baselines, op by op, and store what the environment moved if that is wished.

    An op whose file cannot be read or written is told and costs no other. Raises UsageError for runs that do not go
    together, for ops that they do not hold, and for a wish to write without a reason.
    """
    if options.write and not options.why.strip():
        raise UsageError("rebaseline_without_why")
    measured = list(dict.fromkeys(op.op for run in runs for op in run.ops))
    for op in (*names, *options.unexplained, *options.changed_code):
        if op not in measured:
            raise UsageError("op_not_in_run", op=op, known=", ".join(measured))
    limits = in_force(settings, runs[-1].environment, runs[-1].created, known_ops(settings)).limits
    shelf = _Shelf(settings, runs[0].environment.device.key, _planned(runs, measured))
    evidence = [(run, judge(run, shelf.readable, limits)) for run in runs]
    with _code(settings) as code:
        # All is weighed before anything is written: what is refused is refused with nothing done.
        ready = [_rebaselined(op, evidence, shelf, limits, code, options) for op in (names or measured)]
    with history.held(shelf.place):
        stored = [each.stored(shelf, options) for each in ready]
    return [_noted(each, evidence, settings, shelf.key) for each in stored]


def _planned(runs: Sequence[Run], measured: Sequence[str]) -> list[PlannedOp]:
    """What the newest run says of each op: its earlier names among it."""
    found = {op.op: op for run in runs for op in run.plan.ops}
    return [found.get(op, PlannedOp(op)) for op in measured]


def _noted(found: Rebaselined, evidence: Sequence[Evidence], settings: Settings, key: str) -> Rebaselined:
    """The op with a line of history a run, oldest first; a history that is to be mended is said, and the step stays."""
    if found.path is None:
        return found
    ordered = sorted(evidence, key=lambda each: each[0].created)
    clean = [(run, judgements) for run, judgements in ordered if not run.environment.dirty]
    lines = [line(found.survey.op, run, judgements, found.taken) for run, judgements in clean]
    try:
        said = note(found.survey.op, [each for each in lines if each], settings, key)
    except PerfciError as error:
        said = (error.reason,)
    return replace(found, said=(*found.said, *said))


class _Shelf:
    """The stored baselines of a device model; one that is damaged is kept as the reason why it cannot be read."""

    def __init__(self, settings: Settings, key: str, ops: Sequence[PlannedOp]) -> None:
        self._folder = settings.baselines
        self.key = key
        self._found = {op.op: found for op in ops if (found := self._under_its_name(op)) is not None}

    @property
    def place(self) -> Path:
        """The folder of the device's baselines."""
        return store.baseline_path(self._folder, self.key, "any").parent

    def _under_its_name(self, op: PlannedOp) -> Baseline | Reason | None:
        """What is stored of an op, by the names that it and its cases have now."""
        own = self._read(op.op)
        found = self._read(op.renamed_from) if own is None and op.renamed_from else own
        return baseline_of(op, {found.op: found}) if isinstance(found, Baseline) else found

    def _read(self, op: str) -> Baseline | Reason | None:
        path = store.baseline_path(self._folder, self.key, op)
        try:
            return store.read_baseline(path) if path.exists() else None
        except PerfciError as error:
            return error.reason

    @property
    def readable(self) -> Mapping[str, Baseline]:
        """By op."""
        return {op: found for op, found in self._found.items() if isinstance(found, Baseline)}

    def of(self, op: str) -> Baseline | Reason | None:
        """An op's baseline, or why it cannot be read; None where there is none."""
        return self._found.get(op)

    def elsewhere(self, op: str) -> list[str]:
        """Keys of other devices that have a baseline of the op."""
        return sorted(path.parent.name for path in self._folder.glob(f"*/{op}.json") if path.parent.name != self.key)

    def write(self, baseline: Baseline) -> Path:
        """Store it. Raises StoredFileError, the old file as it was."""
        return store.write_baseline(baseline, self._folder)


@dataclass(frozen=True)
class _Ready:
    """An op that is weighed, with what its file is made of."""

    found: Rebaselined
    old: Baseline | None = None
    new: Baseline | None = None

    def stored(self, shelf: _Shelf, options: RebaselineOptions) -> Rebaselined:
        """Write the cases taken, if that is wished."""
        if not options.write or not self.found.taken or self.old is None or self.new is None:
            return self.found
        date = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        try:
            path = shelf.write(
                stepped(self.old, self.new, self.found.survey, self.found.taken, date, options.why.strip())
            )
        except PerfciError as error:
            return replace(self.found, taken=(), failure=error.reason)
        return replace(self.found, path=path)


def _rebaselined(
    op: str, evidence: Sequence[Evidence], shelf: _Shelf, limits: Thresholds, code: _Code, options: RebaselineOptions
) -> _Ready:
    """One op: what moved, and which of it is taken."""
    fresh = accept(op, evidence, dirty=options.dirty)
    old, new = shelf.of(op), fresh.baseline
    if isinstance(old, Reason):
        return _Ready(Rebaselined(Survey(op), failure=old))
    if old is None:
        return _Ready(Rebaselined(Survey(op), said=(_absent(op, evidence[0][0], shelf),)))
    if new is None:
        return _Ready(Rebaselined(Survey(op), withheld=fresh.refused))
    if old.timer != new.timer:
        facts = {"op": op, "stored": old.timer, "timer": new.timer}
        return _Ready(Rebaselined(Survey(op), withheld=(Reason("rebaseline_other_timer", facts),)))
    seen = survey(old, new, lambda case: limits.for_case(op, case))
    return _Ready(_weighed(seen, old, new, fresh.refused, code, options), old, new)


def _weighed(
    seen: Survey, old: Baseline, new: Baseline, refused: tuple[Reason, ...], code: _Code, options: RebaselineOptions
) -> Rebaselined:
    """Which cases are taken: none whose op's files changed too, and none whose kernel moved alone, but by name."""
    op = seen.op
    if not seen.cases:
        same = (Reason("rebaseline_same"),) if seen.same else ()
        return Rebaselined(seen, withheld=(*refused, *seen.apart), said=(*same, *_unknown(seen)))
    names = [move.case for move in seen.cases]
    before, after = commits(old, names), commits(new, names)
    changed, unsure = code.between(op, before, after)
    held: list[Reason] = [*refused, *seen.apart]
    if changed and op not in options.changed_code:
        facts = {"op": op, "files": _named(changed), "commit": (before[0] or "")[:10]}
        return Rebaselined(seen, (), (Reason("rebaseline_code_changed", facts), *held), (*unsure, *_unknown(seen)))
    alone = seen.unexplained if op not in options.unexplained else ()
    if alone:
        held.insert(0, _unexplained(op, alone, before[0]))
    taken = tuple(move.case for move in seen.cases if move not in alone)
    return Rebaselined(seen, taken, tuple(held), (*unsure, *_unknown(seen)))


def _named(files: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    more = len(files) - MOST_FILES
    return ", ".join([*files[:MOST_FILES], *([f"... (+{more})"] if more > 0 else [])])


def _absent(op: str, run: Run, shelf: _Shelf) -> Reason:
    elsewhere = shelf.elsewhere(op)
    if not elsewhere:
        return Reason("rebaseline_no_baseline")
    facts = {"device": shelf.key, "name": run.environment.device.name, "stored": ", ".join(elsewhere)}
    return Reason("rebaseline_new_device", facts)


def _unknown(seen: Survey) -> tuple[Reason, ...]:
    if not seen.new:
        return ()
    return (Reason("rebaseline_new_cases", {"count": len(seen.new), "case": seen.new[0]}),)


def _unexplained(op: str, alone: Sequence[CaseMove], commit: str | None) -> Reason:
    """The case that moved most beside its reference speaks for all of them."""
    worst = max(alone, key=lambda move: abs(move.kernel.value - move.reference.value))
    facts: dict[str, Fact] = {
        "op": op,
        "count": len(alone),
        "case": worst.case,
        "change": worst.kernel.value,
        "reference_change": worst.reference.value,
        "commit": commit and commit[:10],
    }
    return Reason("rebaseline_unexplained" if commit else "rebaseline_unexplained_nowhere", facts)


# --- whether the code changed as well ---------------------------------------------------------------------------------


@dataclass
class _Code:
    """The project's files as of several commits, each written out but once."""

    settings: Settings
    folder: Path
    trees: dict[str, Tree | Reason] = field(default_factory=dict)

    def between(
        self, op: str, before: Collection[str | None], after: Collection[str | None]
    ) -> tuple[tuple[str, ...], tuple[Reason, ...]]:
        """Files of an op that differ between any two of the commits, and why that cannot be told of others."""
        changed: dict[str, None] = {}
        unsure: dict[str, Reason] = {}
        for old in before:
            for new in after:
                found = self._pair(op, old, new)
                if isinstance(found, Reason):
                    unsure.setdefault(found.kind, found)
                else:
                    changed |= dict.fromkeys(found)
        return tuple(changed), tuple(unsure.values())

    def _pair(self, op: str, old: str | None, new: str | None) -> tuple[str, ...] | Reason:
        if old is None or new is None:
            return Reason("rebaseline_no_commit")
        if old == new:
            return ()
        ours, theirs = self._tree(new), self._tree(old)
        for tree, commit in ((ours, new), (theirs, old)):
            if isinstance(tree, Reason):
                return caused("rebaseline_code_unknown", tree, of=commit[:10])
        assert isinstance(ours, Tree)
        assert isinstance(theirs, Tree)
        head, base = ours.fingerprint(op), theirs.fingerprint(op)
        changed, opaque = fingerprint.changed_files(head, base), head.opaque or base.opaque
        if opaque and not changed:
            return caused("rebaseline_code_unknown", opaque, of=old[:10])
        return changed

    def _tree(self, commit: str) -> Tree | Reason:
        if commit not in self.trees:
            root = materialise(self.settings.root, commit, self.folder / commit)
            there = root if isinstance(root, Reason) else moved(self.settings, root)
            self.trees[commit] = there if isinstance(there, Reason) else Tree(there.root, there.kernels)
        return self.trees[commit]


@contextmanager
def _code(settings: Settings) -> Iterator[_Code]:
    with tempfile.TemporaryDirectory(prefix="perfci-code-") as folder:
        yield _Code(settings, Path(folder).resolve())
