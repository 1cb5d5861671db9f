"""What a case is judged by, by the files of a thresholds folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from perfci.core.model import Expected
from perfci.ops.spec import matches
from perfci.thresholds import layers
from perfci.thresholds.layers import Relaxed

Steps = tuple[tuple[float, float], ...]

Lines = Mapping[tuple[str | None, str], int]
"""(pattern of a case, or None, key) -> line, in the order in which values count."""


GATES = WARNS, FAILS = "warns", "fails"  # what a TAIL may do to the gate

WORK = "work"  # what a declaration names that a kernel leaves to others, such as a library


@dataclass(frozen=True)
class CaseThresholds:
    """What one case is judged by. Ratios are of 1, times microseconds."""

    margin: float = 0.02  # allowed slow-down against the stored baseline: part of the null hypothesis
    alpha: float = 0.01
    """chance that duels call any unchanged case of a run slower, by time, span or host time"""
    speedup: float | None = None  # target of reference time / kernel time. None: none
    rsd: float = 0.05  # relative standard deviation of a block's launches that is warned about
    span_margin: float = 0.10
    """allowed growth of the time from a launch's first start to its last end: host work is noisier"""
    span_floor_us: float = 5.0
    """growth of that time that never matters, us: another host alone may cost this much between two kernels"""
    host_margin: float = 0.15  # allowed growth of the time that a call keeps the host
    host_floor_us: float = 3.0  # growth of the host time that never matters, us
    regime: float = 0.05  # added to both margins if the reference left the baseline's range: another thermal regime
    floor_us: Mapping[str, float] = field(default_factory=lambda: {"activity": 0.1, "event": 0.5, "virtual": 0.0})
    """difference that never matters, by timer: what it cannot resolve, us"""
    tau: Steps = ((0.0, 0.05), (3.0, 0.025), (10.0, 0.015), (40.0, 0.01))
    """allowed slow-down against the base, by the kernel length (us) from which on it holds, ascending"""
    tail: str = WARNS  # what a TAIL does to the gate: one of GATES, warns or fails
    registers: float | None = None
    instructions: float | None = None
    shared_memory: float | None = None
    """allowed growth of what the compiler made against the base's, ratio. None: any"""
    occupancy: float | None = None
    tensor_instructions: float | None = None
    warpgroup_instructions: float | None = None
    asynchronous_copies: float | None = None
    access_width: float | None = None
    """allowed loss against the base, ratio. None: half the occupancy with the same configuration, all matrix
    instructions and all of those of several warps are too much, of the rest any is allowed"""
    spill_bytes: float | None = None
    local_bytes: float | None = None
    """allowed growth of what a thread has in local memory against the base, bytes. None: any, if the base has some"""
    double_instructions: float | None = None  # how many are allowed if the base has none. None: none
    peak_memory: float | None = None
    """allowed growth of the device memory that a call holds at most against the base, ratio. None: any"""
    bandwidth_share: float | None = None
    """least share of the copy bandwidth measured in the same run, of a kernel that memory bounds, ratio. None: any"""
    compile_s: float | None = None  # longest first call, compilation included, seconds. None: any
    mean_abs: float | None = None
    rmse: float | None = None
    p99_abs: float | None = None
    max_abs: float | None = None
    """largest error against the float64 reference, by figure: of an accuracy case the worst of its checks on ordinary
    values, of a timed case that of the outputs that were verified. None: what the suite's tolerance allows"""
    stored_p99: float | None = 3e-2
    """largest 99th percentile of the absolute errors of a tensor stored in low precision. Of no other case"""
    clip_ratio: float | None = 0.02
    """largest share of its values that the scale may leave beyond the dtype's range, ratio"""
    divergence: float | None = None
    """largest Kullback-Leibler divergence of its errors' histogram from the accepted one, nats. None: any"""

    def floor(self, timer: str | None) -> float:
        """Least difference that matters with this timer, microseconds."""
        return self.floor_us.get(timer or "", max(self.floor_us.values()))

    def tau_at(self, kernel_us: float) -> float:
        """Allowed slow-down of a kernel of this length against its base.

        >>> CaseThresholds().tau_at(12.0)
        0.015
        """
        return next(tau for start, tau in reversed(self.tau) if kernel_us >= start)

    def allowed(self, base_us: float, timer: str | None) -> float:
        """Slow-down against a base of this length that is allowed, ratio: tau, or what the timer cannot resolve.

        >>> CaseThresholds().allowed(100.0, "activity"), CaseThresholds().allowed(4.0, "event")
        (0.01, 0.125)
        """
        return max(self.tau_at(base_us), self.floor(timer) / base_us)

    def allowed_host(self, base_us: float) -> float:
        """Growth of the host time that is allowed against a base that keeps the host so long, ratio.

        >>> CaseThresholds().allowed_host(100.0), CaseThresholds().allowed_host(6.0)
        (0.15, 0.5)
        """
        return max(self.host_margin, self.host_floor_us / base_us)

    def widen(self, up_to: float) -> CaseThresholds:
        """These limits with a slow-down of `up_to`, a ratio, allowed: against base, baseline and targets of speed.

        >>> CaseThresholds(speedup=1.2).widen(0.2).speedup, CaseThresholds().widen(0.03).tau_at(2.0)
        (1.0, 0.05)
        """
        margin, span, host = (max(each, up_to) for each in (self.margin, self.span_margin, self.host_margin))
        tau = tuple((start, max(tau, up_to)) for start, tau in self.tau)
        speedup = self.speedup and self.speedup / (1 + up_to)
        share = self.bandwidth_share and self.bandwidth_share / (1 + up_to)
        return replace(
            self, margin=margin, span_margin=span, host_margin=host, tau=tau, speedup=speedup, bandwidth_share=share
        )


@dataclass(frozen=True)
class Origin:
    """Where a value was written."""

    file: str | None = None  # relative to the project's root. None: built in
    line: int = 0  # 0: the file as a whole
    case: str | None = None  # pattern under which it stands

    def __str__(self) -> str:
        """As people look it up: thresholds/softmax.yaml:12."""
        return "built in" if self.file is None else f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True)
class OpThresholds:
    """Thresholds of one op, with the overrides of its cases in file order."""

    common: CaseThresholds
    cases: tuple[tuple[str, Mapping[str, Any]], ...] = ()  # (--case pattern, fields of CaseThresholds)
    expected: tuple[Expected, ...] = ()  # slow-downs that were agreed on, in file order
    dropped: tuple[Expected, ...] = ()
    """of the base's entries those that the change takes out, which it is judged by still"""
    relaxed: tuple[Relaxed, ...] = ()  # what is looser for a time, in file order
    lines: Lines = field(default_factory=dict, compare=False)  # of the file's values


@dataclass(frozen=True)
class Thresholds:
    """Everything in a thresholds folder."""

    default: CaseThresholds = field(default_factory=CaseThresholds)
    ops: Mapping[str, OpThresholds] = field(default_factory=dict)
    folder: str = field(default="thresholds", compare=False)  # as people know it: relative to the project's root
    lines: Lines = field(default_factory=dict, compare=False)  # of the values of default.yaml
    excusing: int | None = None
    """place of the expected entry, among those of each case, whose slow-down is allowed too"""
    earned: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    """op -> case id -> key -> value that accepted runs have earned in the environment that is judged"""
    loosened: Mapping[str, tuple[Relaxed, ...]] = field(default_factory=dict)
    """op -> relaxed entries that hold on the device and day that are judged"""
    commanded: Mapping[str, float] = field(default_factory=dict)  # key -> value of --threshold

    @property
    def alpha(self) -> float:
        """Of the run: see CaseThresholds."""
        return self.commanded.get(layers.ALPHA, self.default.alpha)

    def for_case(self, op: str, case: str) -> CaseThresholds:
        """What this case is judged by."""
        own = self.ops.get(op)
        found = own.common if own else self.default
        for pattern, overrides in own.cases if own else ():
            if matches(case, pattern):
                found = override(found, overrides)
        if self.earned or self.loosened or self.commanded:
            entries = [entry for entry in self.loosened.get(op, ()) if entry.about(None, case)]
            found = layers.overlay(found, self.earned.get(op, {}).get(case, {}), entries, self.commanded)
        excuses = () if self.excusing is None else self.expected(op, case)[self.excusing :]
        return found.widen(excuses[0].up_to) if excuses else found

    def find_line(self, op: str, case: str | None, key: str) -> Origin:
        """Where people wrote the value of a key for a case, or for the op as a whole."""
        found = Origin()
        if line := self.lines.get((None, key)):
            found = Origin(f"{self.folder}/default.yaml", line)
        for (pattern, name), line in self.ops[op].lines.items() if op in self.ops else ():
            if name == key and (pattern is None or (case is not None and matches(case, pattern))):
                found = Origin(f"{self.folder}/{op}.yaml", line, pattern)
        return found

    def origin(self, op: str, case: str, key: str, device: str) -> str:
        """Where a case's value of a key comes from: a file, --threshold, or `default.yaml` if nobody set it."""
        written = replace(self, earned={}, loosened={}, commanded={}).for_case(op, case)
        asked = replace(self, loosened={}, commanded={}).for_case(op, case)
        if key in self.commanded:
            return "--threshold"
        relaxed = getattr(replace(self, commanded={}).for_case(op, case), key) != getattr(asked, key)
        if not relaxed and getattr(asked, key) != getattr(written, key):
            return f"{self.folder}/{device}/{op}.json"
        own = self.ops.get(op)
        of_case = own and any(key in fields and matches(case, pattern) for pattern, fields in own.cases)
        by_op = own and getattr(own.common, key) != getattr(self.default, key)
        return f"{self.folder}/{op if relaxed or of_case or by_op else 'default'}.yaml"

    def expected(self, op: str, case: str | None = None) -> tuple[Expected, ...]:
        """The op's expected entries, or those of them that are about one case."""
        own = self.ops.get(op)
        entries = (*own.expected, *own.dropped) if own else ()
        if case is None:
            return entries
        return tuple(entry for entry in entries if not entry.weaker and matches(case, entry.case))

    def with_change(self, entries: Sequence[Expected]) -> Thresholds:
        """These rules with all expected entries of the change that they judge."""
        ops = {}
        for op in sorted({*self.ops, *(entry.op for entry in entries)}):
            own = self.ops.get(op, OpThresholds(self.default))
            theirs = tuple(entry for entry in entries if entry.op == op)
            dropped = tuple(entry for entry in own.expected if entry not in theirs)
            ops[op] = replace(own, expected=theirs, dropped=dropped)
        return replace(self, ops=ops)


def override(limits: CaseThresholds, fields: Mapping[str, Any]) -> CaseThresholds:
    """The limits with the fields of a file in their place. A floor that the file leaves out stays."""
    merged = {**fields, "floor_us": {**limits.floor_us, **fields["floor_us"]}} if "floor_us" in fields else fields
    return replace(limits, **merged)
