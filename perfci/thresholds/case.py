"""The thresholds of one case: each, with the value that is built in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

Steps = tuple[tuple[float, float], ...]

GATES = WARNS, FAILS = "warns", "fails"  # what a TAIL may do to the gate


@dataclass(frozen=True)
class CaseThresholds:
    """The thresholds of one case. Ratios are of 1, times microseconds."""

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
    barriers: float | None = None
    """allowed growth of what the compiler made against the base's, ratio. None: any"""
    occupancy: float | None = None
    tensor_instructions: float | None = None
    warpgroup_instructions: float | None = None
    asynchronous_copies: float | None = None
    access_width: float | None = None
    double_buffers: float | None = None
    """allowed loss against the base, ratio. None: half the occupancy with the same configuration, all matrix
    instructions, all of those of several warps and all double buffers are too much, of the rest any is allowed"""
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
        margin, span, host = (max(limit, up_to) for limit in (self.margin, self.span_margin, self.host_margin))
        tau = tuple((start, max(tau, up_to)) for start, tau in self.tau)
        speedup = self.speedup and self.speedup / (1 + up_to)
        share = self.bandwidth_share and self.bandwidth_share / (1 + up_to)
        return replace(
            self, margin=margin, span_margin=span, host_margin=host, tau=tau, speedup=speedup, bandwidth_share=share
        )
