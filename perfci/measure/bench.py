"""The subject, the device and the manner of a measurement: the records that preparing and timing share."""

import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from perfci.core.model.basics import ErrorStats, Fact, Reason, worst
from perfci.core.model.measured import Block, HostBlock, Measured, PeerArm, PerformanceCase, SustainedTurn
from perfci.device.arrays import Inputs
from perfci.device.seam import Accelerator
from perfci.measure.baton import Baton
from perfci.measure.inputs import bound_inputs
from perfci.ops.identity import DuelPlan
from perfci.ops.spec import Params, Performance, case_id
from perfci.thresholds.case import CaseThresholds

Describe = Callable[[BaseException], Mapping[str, Fact]]

Listener = Callable[[Measured], None]  # hears each block as soon as it is read


class ReasonError(Exception):
    """Measuring in this process ends for a reason."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.kind)
        self.reason = reason


class PeerLostError(ReasonError):
    """A peer took the device with it: nothing more can be timed in this process."""


class InseparableError(ReasonError):
    """One process cannot keep the two revisions apart."""


MakeCalls = Callable[[int], tuple[float, float]]
"""Makes so many calls in a row. Returns the seconds until the last one has returned, and until the device was done."""


@dataclass(frozen=True)
class BaseKernel:
    """The kernel as of the base revision, imported beside the kernel under test."""

    kernel: Callable[..., Any]
    root: Path  # folder of all that it imports
    head_root: Path  # folder of all that the kernel under test imports
    inputs: str  # digest of its make_inputs
    plan: DuelPlan
    differs: bool = True  # some file of the op does
    registered: frozenset[str] = frozenset()  # namespaces of torch operators before either revision was imported


def refuse_operators(device: Accelerator, before: frozenset[str]) -> None:
    """Raises InseparableError if torch operators were registered since: of two with one name, one serves both."""
    if added := sorted(device.list_namespaces() - before):
        raise InseparableError(Reason("registers_operators", {"namespace": added[0]}))


def find_foreign_source(sources: tuple[str, ...], own: Path, other: Path) -> str | None:
    """Returns a launched function's file that belongs to the other revision. None if every launch is the arm's own."""
    foreign = (file for file in sources if Path(file).is_relative_to(other) and not Path(file).is_relative_to(own))
    return next(foreign, None)


@dataclass(frozen=True)
class Arm:
    """One call to be timed. `arm` is its name."""

    arm: str
    function: Callable[..., Any]
    inputs: Inputs

    def __call__(self) -> Any:
        """Launch once."""
        return self.function(**self.inputs)


@dataclass
class Subject:
    """A case under measurement."""

    params: Params
    facts: PerformanceCase
    rounds: int
    blocks: list[Block] = field(default_factory=list)
    begun: int = 0  # blocks begun, whole or not
    spent_s: float = 0.0
    failure: Reason | None = None
    raised: bool = False
    suspicion: list[Reason] = field(default_factory=list)
    errors: list[ErrorStats] = field(default_factory=list)
    dtypes: list[str] = field(default_factory=list)  # of the reference's outputs, once they are known
    stride: int = 1  # every how many rounds the reference is launched
    peers: dict[str, Callable[..., Any]] = field(default_factory=dict)
    suite: Performance | None = None  # of its case, if not that of the rig
    host: list[HostBlock] = field(default_factory=list)
    turn_calls: int = 16  # of a turn of host time, until it is known how long they take
    hidden: bool = False  # no one can measure its host time
    wall_us: float = math.inf  # what a call of the kernel takes by the clock at least, of calls in a row
    renewals: list[float] = field(default_factory=list)
    """how much longer than usual the first launch on other values took, log scale, less the same of the reference"""
    rest_us: float = 0.0  # of light work before each launch. 0 if the board is too idle anyway for a power limit
    limited_us: float | None = None
    """what a call of the kernel takes back to back, if that reaches the power limit"""
    sustained: list[SustainedTurn] = field(default_factory=list)
    baton: Baton | None = None  # with which another process takes its part of the next block

    @property
    def case(self) -> str:
        """The case's id."""
        return self.facts.case

    @property
    def duelled(self) -> bool:
        """Whether the base is still timed beside the kernel."""
        base = self.facts.base
        return base is not None and base.duelled and base.failure is None

    @property
    def broken(self) -> bool:
        """Whether it cannot be timed (any more)."""
        return self.facts.failure is not None or self.failure is not None

    def take_baton(self) -> Baton | None:
        """Returns the baton of the next block, which a block that is taken again has not."""
        baton, self.baton = self.baton, None
        return baton

    def summarise(self) -> PerformanceCase:
        """Returns the case with what became of it. Its blocks were heard one by one."""
        return replace(
            self.facts,
            sustained=tuple(self.sustained),
            host=tuple(self.host),
            failure=self.facts.failure or self.failure,
            raised=self.facts.raised or self.raised,
            errors=worst(self.errors) if self.errors else None,
        )

    def suspect(self, reason: Reason) -> None:
        """Note what looks like cheating, each kind once."""
        if all(earlier.kind != reason.kind for earlier in self.suspicion):
            self.suspicion.append(reason)

    def drop_base(self, why: Reason) -> None:
        """Time the base no more."""
        assert self.facts.base is not None
        self.facts = replace(self.facts, base=replace(self.facts.base, failure=why))

    def note_peer(self, peer: PeerArm) -> None:
        """Note what is known of a peer. One that failed is timed no more."""
        peers = {one.name: one for one in self.facts.peers} | {peer.name: peer}
        self.facts = replace(self.facts, peers=tuple(peers.values()))
        if peer.failure:
            self.peers.pop(peer.name, None)

    def drop_peer(self, name: str, why: Reason) -> None:
        """Time a peer no more."""
        before = next((peer for peer in self.facts.peers if peer.name == name), PeerArm(name))
        self.note_peer(replace(before, failure=why))


@dataclass(frozen=True)
class Rig:
    """The subject, the device and the manner of a measurement."""

    suite: Performance
    device: Accelerator
    describe: Describe  # facts about an exception that an op raised
    seed: int
    process: int
    budget_s: float
    run_started: float
    step: Callable[[str], None] = lambda _: None
    """called with a case's id before each of its blocks: a sign of life, and the place to name if the process dies"""
    base: BaseKernel | None = None
    limits: Mapping[str, CaseThresholds] = field(default_factory=dict)
    """what each case is judged by. Built-in values for those left out"""
    planted: float = 0.0  # a self-check: the kernel is made slower by so many times the slow-down that is allowed
    as_base: bool = False  # the suite's kernel is the base and the only arm: head runs in another process
    own_root: Path | None = None
    head_root: Path | None = None
    """of a base alone: the folder of its files, and that of head's, which it must not launch"""
    partners: Callable[[], int] = lambda: 0  # processes on the device that belong to this measurement too
    callers: dict[str, Callable[[Inputs], MakeCalls]] = field(default_factory=dict)
    """how another process makes turns of calls on such inputs, by arm. Others are made here"""
    until_s: float | None = None
    op: str = ""
    repeated: bool = False  # calls are recorded ones: how long it takes to repeat them shows nothing
    order: random.Random = field(init=False)
    _numbers: dict[str, Mapping[str, Any]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", random.Random(self.seed + self.process))

    def suite_of(self, subject: Subject) -> Performance:
        """Returns the suite that a case belongs to."""
        return subject.suite or self.suite

    def make_inputs(self, suite: Performance, params: Params, seed: int) -> dict[str, Any]:
        """Returns a case's inputs. Where calls are repeated, numbers are its first ones, as a recording holds them."""
        made = bound_inputs(suite, params, self.device.arrays.device, seed)
        if self.device.can_replay:
            numbers = {name: value for name, value in made.items() if isinstance(value, int | float)}
            made |= self._numbers.setdefault(case_id(params), numbers)
        return made

    @property
    def late(self) -> bool:
        """Whether the time is up."""
        return self.until_s is not None and time.time() >= self.until_s

    def comes_first(self, index: int) -> bool:
        """Whether this revision takes its part of a block before the other process: A B B A, then B A A B."""
        return ((index + self.process) % 2 == 0) is not self.as_base

    def skips(self, subject: Subject) -> bool:
        """Returns whether a case is proven unchanged, and no one asked for its time."""
        return self.base is not None and self.base.plan.skips(subject.facts.base)

    def draw_seed(self, case: str, index: object) -> int:
        """Returns a separate seed for every block: inputs never repeat, and --seed repeats them all."""
        return random.Random(f"{self.seed}/{self.process}/{case}/{index}").getrandbits(31)

    def explain(self, case: str, error: Exception, kind: str = "kernel_raised") -> Reason:
        """Returns why a case, or its base, is not timed. Raises InseparableError if either revision lost the device."""
        if self.base and self._is_lost():
            raise InseparableError(Reason("lost_together", {"case": case, **self.describe(error)})) from error
        if kind != "base_raised" and self.device.out_of_memory(error):
            kind = "out_of_memory"
        return Reason(kind, {"case": case, **self.describe(error)})

    def explain_peer(self, case: str, peer: str, error: Exception) -> Reason:
        """Returns why a peer is not timed in a case. Raises PeerLostError if nothing can be timed any more."""
        facts: dict[str, Fact] = {"op": self.op, "peer": peer, "case": case, **self.describe(error)}
        if self._is_lost():
            raise PeerLostError(Reason("peer_lost_device", facts)) from error
        return Reason("peer_raised", facts)

    def _is_lost(self) -> bool:
        """Whether the device answers nothing any more, as after an illegal memory access."""
        try:
            self.device.synchronize()
        except Exception:
            return True
        return False
