"""What is measured, on what, how: the records that preparing and timing share."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from perfci.core.model import Block, ErrorStats, Fact, PeerArm, PerformanceCase, Reason
from perfci.device.seam import Accelerator, Inputs
from perfci.measure.base import BaseKernel, InseparableError
from perfci.ops.spec import Params, Performance
from perfci.thresholds.limits import CaseThresholds

Describe = Callable[[BaseException], Mapping[str, Fact]]

Heard = Callable[[str, Block, Mapping[str, tuple[float, ...]]], None]
"""Called with case, block and the launches of each arm in order of time, microseconds."""

KERNEL, REFERENCE, BASE = "kernel", "reference", "base"


class PeerLostError(Exception):
    """A peer took the device with it: nothing more can be timed in this process."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.kind)
        self.reason = reason


@dataclass(frozen=True)
class Arm:
    """One call to be timed; `arm` is its name."""

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
    begun: int = 0
    """blocks begun, whole or not"""
    spent_s: float = 0.0
    failure: Reason | None = None
    raised: bool = False
    suspicion: list[Reason] = field(default_factory=list)
    errors: list[ErrorStats] = field(default_factory=list)
    """of its verified outputs"""
    peers: dict[str, Callable[..., Any]] = field(default_factory=dict)
    """by name, those that are timed, still"""

    @property
    def case(self) -> str:
        """The case's id."""
        return self.facts.case

    def suspect(self, reason: Reason) -> None:
        """Note what looks like cheating, each kind once."""
        if all(known.kind != reason.kind for known in self.suspicion):
            self.suspicion.append(reason)

    def note_peer(self, met: PeerArm) -> None:
        """Note what is known of a peer; one that failed is timed no more."""
        known = {peer.name: peer for peer in self.facts.peers} | {met.name: met}
        self.facts = replace(self.facts, peers=tuple(known.values()))
        if met.failure:
            self.peers.pop(met.name, None)

    def drop_peer(self, name: str, why: Reason) -> None:
        """Time a peer no more."""
        known = next((peer for peer in self.facts.peers if peer.name == name), PeerArm(name))
        self.note_peer(replace(known, failure=why))

    @property
    def duelled(self) -> bool:
        """Whether the base is timed beside the kernel, still."""
        base = self.facts.base
        return base is not None and base.duelled and base.failure is None

    @property
    def broken(self) -> bool:
        """Whether it cannot be timed (any more)."""
        return self.facts.failure is not None or self.failure is not None


@dataclass(frozen=True)
class Settings:
    """How much is measured, and with which seeds."""

    seed: int
    process: int
    budget_s: float
    run_started: float
    planted: float = 0.0
    """a self-check: the kernel is made slower by so many times the slow-down that is allowed"""
    as_base: bool = False
    """the suite's kernel is the base, and the only arm: its opponent runs in another process"""
    own_root: Path | None = None
    head_root: Path | None = None
    """where the base's files lie, and head's that it must not launch; None where this is not the base alone"""
    partners: int = 0
    """processes on the device that belong to this measurement too"""
    until_s: float | None = None
    """when to come to an end, seconds since the epoch"""
    op: str = ""
    """its name, for sentences about peers"""

    @property
    def late(self) -> bool:
        """Whether the time is up."""
        return self.until_s is not None and time.time() >= self.until_s


@dataclass(frozen=True)
class Bench:
    """What is measured, on what, how."""

    suite: Performance
    device: Accelerator
    settings: Settings
    describe: Describe
    """facts about an exception that an op raised"""
    step: Callable[[str], None]
    """called with a case's id before each of its blocks: a sign of life, and the place to name if the process dies"""
    order: random.Random
    """draws the order of everything"""
    opponent: BaseKernel | None = None
    limits: Mapping[str, CaseThresholds] = field(default_factory=dict)
    """what each case is judged by; those left out by the built-in values"""

    def raised(self, case: str, error: Exception, kind: str = "kernel_raised") -> Reason:
        """Why a case whose functions raised is not timed.

        Raises InseparableError where that cost this process its device: either revision may have done it.
        """
        self._refuse_lost(case, error)
        kind = "out_of_memory" if self.device.out_of_memory(error) else kind
        return Reason(kind, {"case": case, **self.describe(error)})

    def base_raised(self, case: str, error: Exception) -> Reason:
        """Why a case is not timed beside the base; raises InseparableError as `raised` does."""
        self._refuse_lost(case, error)
        return Reason("base_raised", {"case": case, **self.describe(error)})

    def peer_raised(self, case: str, peer: str, error: Exception) -> Reason:
        """Why a peer is not timed in a case; raises PeerLostError where nothing can be timed any more."""
        facts: dict[str, Fact] = {"op": self.settings.op, "peer": peer, "case": case, **self.describe(error)}
        if self._is_lost():
            raise PeerLostError(Reason("peer_lost_device", facts)) from error
        return Reason("peer_raised", facts)

    def _refuse_lost(self, case: str, error: Exception) -> None:
        if self.opponent and self._is_lost():
            raise InseparableError(Reason("lost_together", {"case": case, **self.describe(error)})) from error

    def _is_lost(self) -> bool:
        """Whether the device answers nothing any more, as after an illegal memory access."""
        try:
            self.device.synchronize()
        except Exception:
            return True
        return False

    def seed(self, case: str, index: object) -> int:
        """A seed of its own for every block: inputs never repeat, and --seed repeats them all."""
        settings = self.settings
        return random.Random(f"{settings.seed}/{settings.process}/{case}/{index}").getrandbits(31)


def _quiet(_: str) -> None:
    """Say nothing."""


def bench(
    suite: Performance,
    device: Accelerator,
    settings: Settings,
    describe: Describe,
    step: Callable[[str], None] = _quiet,
    opponent: BaseKernel | None = None,
    limits: Mapping[str, CaseThresholds] | None = None,
) -> Bench:
    """A bench whose order of everything follows from the seed."""
    order = random.Random(settings.seed + settings.process)
    return Bench(suite, device, settings, describe, step, order, opponent, limits or {})
