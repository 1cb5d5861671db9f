"""One execution: what there is to measure, agreed slow-downs, the plan, its shards, and everything that came of it."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from perfci.core.model.basics import BY_PERFCI, Amount, Count, Reason, Suite, Whole
from perfci.core.model.compiled import Coverage, Static
from perfci.core.model.measured import Cache, OpRun
from perfci.core.model.place import Environment, Limits


@dataclass(frozen=True)
class Expected:
    """An entry under `expected` in `thresholds/<op>.yaml`. Two with the same content are equal, wherever they stand."""

    op: str
    case: str  # --case pattern of the cases that it is about
    up_to: Amount
    """slow-down that it allows: against the base, the stored baseline, or the time that the speedup target allows"""
    why: str
    until: str  # the last day on which it holds, ISO 8601
    file: str = field(default="", compare=False)  # relative to the project's root
    line: Count = field(default=0, compare=False)
    added: bool = field(default=False, compare=False)  # by the merge request itself: its base has no such entry
    weaker: str | None = None
    """what of the op's suites asks for less since this change: cases, tolerance, inputs. It allows no slow-down then"""


@dataclass(frozen=True)
class Suggestion:
    """An entry that would make a slow-down EXPECTED, as it is to be pasted."""

    file: str  # relative to the project's root
    line: str  # the entry, indented by two blanks


class DuelWhat(StrEnum):
    """Which cases are timed side by side with the base revision."""

    CHANGED = "changed"  # those with a changed or unknown identity
    ALL = "all"
    NONE = "none"


@dataclass(frozen=True)
class PlannedBase:
    """What the base revision has of an op."""

    same: bool = False  # its files are the same, so that nothing needs to be run to know it unchanged
    changed: tuple[str, ...] = ()  # files that differ, relative to the project's root
    of_kernel: tuple[str, ...] = ()  # those of them that the kernel needs, and no suite without it: code of a library
    lines: tuple[str, ...] = ()
    """the first lines that differ, as a diff has them: `+++ FILE`, then the base's with - and the new ones with +"""
    performance: tuple[str, ...] = ()  # its performance cases
    cache: Cache = "cold"
    """its performance suite's choice of the L2 cache, with which both revisions are timed"""
    failure: Reason | None = None
    """why it cannot be held against at all: no such op, another signature, a broken contract"""
    apart: Reason | None = None  # why the two revisions need a process each
    signature: tuple[str, ...] = ()  # parameters of its kernel, with their defaults
    unjudged: Reason | None = None  # why its suites do not judge the change although its kernel can be called alike
    renamed: Mapping[str, str] = field(default_factory=dict)
    """id of a performance case -> the id that the base has for it, where the change gives it another"""
    op: str | None = None  # the op's name there, where the change gives it another
    lent: bool = False
    """whether the change adds this backend: `op` is another one, with suites that judge this one. Nothing is duelled"""


UNCHECKED = frozenset({
    "backend_needs_device", "backend_lacks_package", "backend_python_lacks", "backend_python_broken",
    "backend_not_static",
})  # fmt: skip
"""Kinds of reasons for which a backend of an op cannot run here."""


@dataclass(frozen=True)
class PlannedOp:
    """What an op's suites hold, before anything is measured."""

    op: str
    accuracy: tuple[str, ...] = ()
    performance: tuple[str, ...] = ()
    failure: Reason | None = None  # the op breaks the contract or does not import
    signature: tuple[str, ...] = ()  # parameters of the kernel, with their defaults
    cache: Cache = "cold"  # the performance suite's choice of the L2 cache: cold or warm
    base: PlannedBase | None = field(default=None, metadata=BY_PERFCI)  # None without a base revision
    audit: tuple[str, ...] = field(default=(), metadata=BY_PERFCI)
    """cases that are duelled although they are unchanged: a control of the measurement"""
    unlisted: bool = field(default=False, metadata=BY_PERFCI)
    """its cases were not looked up, since all of its files are the base's"""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """id of a case -> the id that it had before, as the performance suite declares"""
    renamed_from: str | None = None  # name that the op had before
    stored: tuple[str, ...] = ()
    """cases in which it stores tensors in low precision, with * for the tensors' names, which no one knows yet"""
    peers: tuple[str, ...] = ()  # other backends of an op's first one, and what else its performance suite names
    outdated: Reason | None = field(default=None, metadata=BY_PERFCI)
    """of a kernel or reference that is a copy: how its original has changed since, so that another code is judged"""

    @property
    def unchecked(self) -> bool:
        """Whether it is a backend that cannot run here, which no verdict is about."""
        return self.failure is not None and self.failure.kind in UNCHECKED


FORMAT = 1  # version of run.json and of the baseline files. 1: the first


@dataclass(frozen=True)
class Base:
    """The revision that a run is compared with."""

    commit: str
    how: str  # asked, first_parent, merge_base, baseline, again or release
    name: str  # as it was found: origin/main, v1.2
    python: str | None = None  # another interpreter that the base runs in
    packages: Mapping[str, str] = field(default_factory=dict)  # versions in that interpreter
    changed_rules: tuple[str, ...] = ()
    """files with the rules by which a merge request is judged, and that it changes"""
    changed_baselines: tuple[str, ...] = ()  # those of them that are stored baselines or lie beside them
    proposed_on: str | None = None
    """the branch, if its name is one that `perfci accept --propose` gives. Anybody can take such a name"""
    changed_pins: tuple[str, ...] = ()  # requirements of the toolchain that it changes
    expected: tuple[Expected, ...] = ()  # the change's expected entries, if its rules are not the base's

    @property
    def rules(self) -> bool:
        """Whether a change is judged by this revision's thresholds and baselines, not alone."""
        return self.how in {"first_parent", "merge_base"}

    @property
    def suites(self) -> bool:
        """Whether a change is judged by this revision's suites too. What it was merged into long ago has others."""
        return self.rules or self.how == "asked"


@dataclass(frozen=True)
class AgainCase:
    """A case that is held against a separate commit.

    Of `perfci check --retry` one that an earlier run left undecided. Of
    `perfci check --against-release` any.
    """

    op: str
    case: str
    commit: str | None = None
    """against which it is duelled: the last at which it could be judged, or a release's, or that with
    which an epoch of the case began after the release"""
    same: bool = False  # the op's files are the same there
    failure: Reason | None = None  # why it is not duelled. None if it is
    since: str | None = None  # why people accepted a loss there: it is the beginning of an epoch, not the release
    stepped: str | None = None  # day of a step in its history, not explained, just before which that commit is
    commits: Count | None = None  # of the main line between it and what was measured
    touching: Count | None = None  # commits since then, merges left out, that touch files of the op that differ


@dataclass(frozen=True)
class Again:
    """What a run duels, each case against a separate commit."""

    run: str = ""  # id of the earlier run. Empty if cases are held against a release
    cases: tuple[AgainCase, ...] = ()
    release: str | None = None  # name of the release that cases are held against
    said: tuple[Reason, ...] = ()  # which cases are left out and why, and what else is to be known

    @functools.cached_property
    def by_case(self) -> Mapping[tuple[str, str], AgainCase]:
        """Its cases by op and id."""
        return {(case.op, case.case): case for case in self.cases}


@dataclass(frozen=True)
class Deadline:
    """When measuring has to end."""

    until: str  # ISO 8601, UTC
    limit_s: Amount  # seconds from the start of the job
    reserve_s: Amount = 0.0
    """seconds of them that are kept for the report and the job's artefacts: `until` lies so much earlier"""
    by: str = "--deadline"  # or CI_JOB_TIMEOUT


@dataclass(frozen=True)
class UsedBoard:
    """One of several devices that are used side by side."""

    visible: str  # what a process is given to see it: an index, a UUID
    uuid: str | None = None  # its own


DEFAULT_BUDGET_S = 1.0  # seconds of device time a case for the first looks


@dataclass(frozen=True)
class Plan:
    """Fixed before anything is measured."""

    ops: tuple[PlannedOp, ...]
    seed: Whole  # drawn for this run unless given by --seed
    budget_s: Amount  # device time a case for the first looks, seconds
    device: str  # cuda, npu, cpu or fake. auto in a plan of shards that need none
    suites: tuple[Suite, ...] = (Suite.ACCURACY, Suite.PERFORMANCE)
    filter: str | None = None  # the --case pattern. With one, missing cases are not REMOVED
    base: Base | None = None
    duel: DuelWhat = DuelWhat.NONE
    skip_unchanged: bool = False  # what the base proves unchanged is not run at all
    duel_family: Count = 0  # number of cases that may be duelled, fixed beforehand
    removed: tuple[str, ...] = ()  # ops that only the base has
    base_note: Reason | None = None  # why there is no base, if one was looked for
    devices: Count = 1  # of this kind on the host: later looks are taken on another
    shard_family: Count = 0  # performance cases of all shards together, where these ops are one shard's. Else 0
    boards: tuple[UsedBoard, ...] = ()
    """devices that were asked for by --devices, used side by side. none: one after the other"""
    put_aside: tuple[str, ...] = ()
    """UUIDs of boards that accepted runs show to be sick: they get no work that another can do, and fail nothing"""
    deadline: Deadline | None = None  # when measuring had to end. null without a time limit
    deadline_note: Reason | None = None  # why a time limit of the job's was ignored
    again: Again | None = None  # cases of an earlier run that are duelled again. Only these are measured
    thresholds: Mapping[str, str] = field(default_factory=dict)
    """key -> value of --threshold, as it was typed: what the run is judged by instead of the files' values"""
    peers: bool = False
    """--backend all: other backends and what suites name as peers are timed too. Nothing is judged by them"""
    seed_given: bool = False  # by --seed. Else each op gets a seed that no file holds while it is measured
    round: bool = False  # of perfci try: what counts is what changed, whatever the op is meant to reach

    @functools.cached_property
    def family(self) -> int:
        """Number of performance cases that are tested together."""
        return self.shard_family or sum(len(op.performance) for op in self.ops)


@dataclass(frozen=True)
class Shard:
    """Which part of a plan a run measured."""

    plan: str  # SHA-256 of plan.json, in hexadecimal
    index: Count  # from 1
    count: Count  # how many shards the plan has
    done: bool = False  # all that was given to it was measured, later looks included


@dataclass(frozen=True)
class Run:
    """One execution: the artefact from which everything else is rendered."""

    id: str
    created: str  # ISO 8601, UTC
    perfci: str  # version
    command: str
    environment: Environment
    plan: Plan
    ops: tuple[OpRun, ...] = ()
    limits: Limits = field(default_factory=Limits)
    stopped: str | None = None  # SIGINT, SIGTERM or SIGHUP if the run was stopped early
    wall_s: Amount | None = None  # seconds of its workers, the first and later ones
    spent_s: Mapping[str, Amount] = field(default_factory=dict)
    """seconds outside the ops' workers by step: base (to find it), describe, compile, judge"""
    static: Static | None = None  # what was compiled without a device
    coverage: tuple[Coverage, ...] = ()  # what accuracy exercises of what is timed
    shard: Shard | None = None  # of which plan this is one part
    missing: tuple[Reason, ...] = ()  # shards of a merged run that gave no result, or no whole one
    format: int = FORMAT

    @property
    def seed(self) -> int | None:
        """The `--seed` that repeats all inputs of the planned ops. None if several have one each."""
        planned = {op.op for op in self.plan.ops}
        seeds = {op.seed for op in self.ops if op.seed is not None and op.op in planned}
        return None if len(seeds) > 1 else next(iter(seeds), self.plan.seed)

    @property
    def took_s(self) -> float | None:
        """Seconds from its beginning until it was judged: those of its workers, and the steps around them."""
        # What is precompiled for a GPU counts with the workers.
        around = [took for step, took in self.spent_s.items() if step != "compile" or self.plan.device != "cuda"]
        return None if self.wall_s is None and not around else (self.wall_s or 0.0) + sum(around)
