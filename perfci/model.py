"""The nouns of perfci: frozen records that flow from measuring to reports.

Times are microseconds (`_us`), shifts are natural logarithms of a ratio (0.01 is about +1 %), sizes are bytes.
A missing number is None, never 0 or infinity. Every record is stored as JSON by `perfci.store`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Fact = str | int | float | bool | None
"""A number or word that a sentence about a reason may need."""

FORMAT = 1
"""Version of run.json and of the baseline files. 1: the first."""


@dataclass(frozen=True)
class Reason:
    """Why something is as it is: a kind, and the numbers that its sentence needs (worded by `perfci.wording`)."""

    kind: str
    facts: Mapping[str, Fact] = field(default_factory=dict)


class Gate(StrEnum):
    """What a verdict does to the merge request."""

    OK = "ok"
    WARNS = "warns"
    FAILS = "fails"


class Verdict(StrEnum):
    """The answer about one case."""

    PASS = "PASS"
    UNCHANGED = "UNCHANGED"
    IMPROVED = "IMPROVED"
    REGRESSED = "REGRESSED"
    WRONG = "WRONG"
    TOO_SLOW = "TOO_SLOW"
    ERROR = "ERROR"
    INCONCLUSIVE = "INCONCLUSIVE"
    EXPECTED = "EXPECTED"
    DRIFTED = "DRIFTED"
    STALE = "STALE"
    SUSPECT = "SUSPECT"
    REMOVED = "REMOVED"
    NEW = "NEW"

    @property
    def gate(self) -> Gate:
        """What this verdict does to the merge request."""
        if self in _FAILS:
            return Gate.FAILS
        return Gate.WARNS if self in _WARNS else Gate.OK


_FAILS = frozenset({Verdict.REGRESSED, Verdict.WRONG, Verdict.TOO_SLOW, Verdict.ERROR})
_WARNS = frozenset({Verdict.INCONCLUSIVE, Verdict.DRIFTED, Verdict.STALE, Verdict.SUSPECT, Verdict.REMOVED})


class Suite(StrEnum):
    """Which of an op's two suites a case belongs to."""

    ACCURACY = "accuracy"
    PERFORMANCE = "performance"


# --- where it ran -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Device:
    """The accelerator of a run, or its stand-in."""

    kind: str
    """cuda, npu, cpu or fake"""
    name: str
    """the maker's model name: NVIDIA H200"""
    key: str
    """folder of its baselines: the model, not the board: nvidia-h200"""
    uuid: str | None = None
    """the board"""
    driver: str | None = None
    runtime: str | None = None
    """CUDA or CANN version, with its name: CUDA 13.0"""
    processors: int | None = None
    """streaming multiprocessors, or vector cores"""
    l2_bytes: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True)
class Environment:
    """All that may move a number without the kernel changing."""

    device: Device
    timer: str | None
    """how launches were timed: activity, event, virtual; None where nothing was timed"""
    python: str
    packages: Mapping[str, str]
    """installed versions of what matters: torch, triton, numpy, ..."""
    host: str
    system: str
    commit: str | None = None
    """HEAD of the project under test"""
    dirty: bool = False
    """tracked files differ from that commit"""
    branch: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    """environment variables that change timing or code, such as CUDA_LAUNCH_BLOCKING"""


@dataclass(frozen=True)
class Limits:
    """Ceilings of this very device, measured in this very run."""

    copy_gbps: float | None = None
    """read plus written gigabytes (1e9) a second of a large device-to-device copy"""
    matmul_tflops: Mapping[str, float] = field(default_factory=dict)
    """dtype -> tera floating-point operations a second of a large library matrix product"""


@dataclass(frozen=True)
class DeviceState:
    """Read from the device beside a block."""

    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    throttle: tuple[str, ...] = ()
    """why the clock is held down: power_cap, thermal, power_brake, ..."""
    foreign_processes: int | None = None
    """processes of others on the device"""


# --- accuracy ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ErrorStats:
    """Errors of an output against the float64 reference, over its finite elements."""

    count: int
    max_abs: float | None = None
    mean_abs: float | None = None
    max_rel: float | None = None
    mean_rel: float | None = None
    p50_abs: float | None = None
    p90_abs: float | None = None
    p99_abs: float | None = None
    rmse: float | None = None
    worst_index: tuple[int, ...] = ()
    """where max_abs stands in the output"""


@dataclass(frozen=True)
class AccuracyCase:
    """One accuracy check: a case with one kind of values, layout and seed."""

    case: str
    """id: rows=7,cols=1023,dtype=float16"""
    values: str
    """normal, zeros, ones, tiny, large, subnormal, nan, inf, cancellation"""
    layout: str
    """contiguous, strided, expanded"""
    seed: int
    fresh: bool = False
    """this seed was drawn for this run; `--seed` repeats it"""
    errors: ErrorStats | None = None
    reference_errors: ErrorStats | None = None
    """errors of the reference in the case's own dtype"""
    rtol: float | None = None
    atol: float | None = None
    failure: Reason | None = None
    """why the kernel is wrong; None if it passed"""
    raised: bool = False
    """the failure is an exception, not a wrong answer: ERROR instead of WRONG"""
    unchecked: Reason | None = None
    """why this check could not be made on this machine"""


# --- performance ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Summary:
    """Launches of one arm in one block, microseconds; diagnostics but for the median."""

    launches: int
    median_us: float
    min_us: float
    p05_us: float
    p25_us: float
    p75_us: float
    p95_us: float
    max_us: float
    mean_us: float
    rsd: float
    """sample standard deviation / mean"""
    outliers: int
    """launches beyond the quartiles by more than 1.5 times their distance (Tukey's fence)"""


@dataclass(frozen=True)
class ArmBlock:
    """One arm in one block."""

    time: Summary
    """device time: all kernels, copies and memsets of a launch summed"""
    span_us: float | None = None
    """median time from a launch's first start to its last end"""
    host_us: float | None = None
    """median time that the call itself kept the host busy"""
    activities: int | None = None
    """kernels, copies and memsets a launch"""


@dataclass(frozen=True)
class Block:
    """One observation: fresh buffers, then rounds in which every arm is launched once in random order."""

    index: int
    process: int
    """0 is the run's first look; 1, 2, ... are re-measurements in fresh processes"""
    started_s: float
    """seconds since the start of the run"""
    arms: Mapping[str, ArmBlock]
    """kernel, reference, base"""
    shifts: Mapping[str, float]
    """'kernel/reference' -> Hodges-Lehmann shift of the launches' logarithms; positive: the first is slower"""
    state: DeviceState = field(default_factory=DeviceState)


@dataclass(frozen=True)
class CompiledKernel:
    """What the compiler made of one kernel of a launch."""

    name: str
    registers: int | None = None
    spills: int | None = None
    shared_bytes: int | None = None
    warps: int | None = None
    stages: int | None = None
    constants: str | None = None
    """values of the compile-time constants: the chosen configuration"""


@dataclass(frozen=True)
class PerformanceCase:
    """One performance case as measured."""

    case: str
    bytes_moved: int | None = None
    """declared by the op: fewest bytes that must move"""
    flops: int | None = None
    """declared by the op: floating-point operations"""
    dtype: str | None = None
    compile_s: float | None = None
    """first call of the kernel, compilation included, cold cache"""
    warmup_launches: int | None = None
    footprint_bytes: int | None = None
    """device memory held by inputs and output"""
    compiled: tuple[CompiledKernel, ...] = ()
    errors: ErrorStats | None = None
    """of the timed outputs that were verified, the worst"""
    blocks: tuple[Block, ...] = ()
    failure: Reason | None = None
    raised: bool = False
    suspicion: tuple[Reason, ...] = ()
    """what looks like cheating or a broken measurement"""


@dataclass(frozen=True)
class OpRun:
    """Everything that one op's worker processes reported."""

    op: str
    accuracy: tuple[AccuracyCase, ...] = ()
    performance: tuple[PerformanceCase, ...] = ()
    failure: Reason | None = None
    """the op as a whole broke: did not import, crashed, hung, ran out of memory"""
    unmeasured: Reason | None = None
    """why speed was not measured at all, such as no accelerator"""
    notes: tuple[Reason, ...] = ()
    tuned: str | None = None
    """digest of the tuned file in force, if the op has one"""
    verify_s: float | None = None
    measure_s: float | None = None
    busy_share: float | None = None
    """share of the measuring phase's wall time in which the device was at work, flush included"""


@dataclass(frozen=True)
class PlannedOp:
    """What an op's suites hold, before anything is measured."""

    op: str
    accuracy: tuple[str, ...] = ()
    performance: tuple[str, ...] = ()
    failure: Reason | None = None
    """the op breaks the contract or does not import"""


@dataclass(frozen=True)
class Plan:
    """Fixed before anything is measured."""

    ops: tuple[PlannedOp, ...]
    seed: int
    """drawn for this run unless given by --seed"""
    budget_s: float
    """device time a case for the first looks, seconds"""
    device: str
    """cuda, npu, cpu or fake"""
    suites: tuple[Suite, ...] = (Suite.ACCURACY, Suite.PERFORMANCE)
    filter: str | None = None
    """the --case pattern; with one, missing cases are not REMOVED"""

    @property
    def family(self) -> int:
        """Number of performance cases that are tested together."""
        return sum(len(op.performance) for op in self.ops)


@dataclass(frozen=True)
class Run:
    """One execution: the artefact from which everything else is rendered."""

    id: str
    created: str
    """ISO 8601, UTC"""
    perfci: str
    """version"""
    command: str
    environment: Environment
    plan: Plan
    ops: tuple[OpRun, ...] = ()
    limits: Limits = field(default_factory=Limits)
    stopped: str | None = None
    """SIGINT or SIGTERM where the run was stopped early"""
    wall_s: float | None = None
    format: int = FORMAT


# --- baselines --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BaselineBlock:
    """A block as kept in a baseline."""

    run: str
    """id of the run it comes from"""
    kernel_us: float
    """median"""
    reference_us: float
    """median"""
    shift: float
    """of kernel against reference, log"""
    span_us: float | None = None
    activities: int | None = None
    """kernels, copies and memsets a launch"""


@dataclass(frozen=True)
class BaselineCase:
    """Accepted blocks of a case."""

    case: str
    blocks: tuple[BaselineBlock, ...]


@dataclass(frozen=True)
class BaselineRun:
    """Where blocks of a baseline come from."""

    id: str
    created: str
    environment: Environment


@dataclass(frozen=True)
class Baseline:
    """`baselines/<device key>/<op>.json`."""

    op: str
    device: str
    """device key"""
    timer: str
    runs: tuple[BaselineRun, ...]
    cases: tuple[BaselineCase, ...]
    format: int = FORMAT


# --- deciding ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Interval:
    """An estimate with the ends of its confidence interval."""

    value: float
    low: float
    high: float
    confidence: float = 0.95


@dataclass(frozen=True)
class Screen:
    """One process's blocks of a case against its stored baseline."""

    process: int
    blocks: int
    baseline_blocks: int
    change: Interval
    """ratio - 1 after the control variate; plus is slower"""
    p_slower: float
    """one-sided, the margin inside the null hypothesis"""
    p_faster: float
    beta: float
    """weight of the control variate"""
    correlation: float | None
    margin: float
    """allowed slow-down, ratio - 1"""
    difference_us: float
    """of the medians, microseconds; plus is slower"""
    reference_change: float
    """of the reference against its baseline, ratio - 1"""
    smallest_p: float
    """the least p that these numbers of blocks can give"""


@dataclass(frozen=True)
class Comparison:
    """A performance case held against its baseline."""

    op: str
    case: str
    screens: tuple[Screen, ...] = ()
    """one a process, the first look first; empty where there is nothing to compare"""
    spans: tuple[Screen, ...] = ()
    """the same of the launch's span, with its wider margin; empty where a launch is one kernel or spans are unknown"""
    stale: Reason | None = None
    """why the stored baseline cannot speak"""
    known: bool = False
    """the baseline has the case"""
    measured: bool = True
    """this run has the case"""
    speedup: Interval | None = None
    """reference time / kernel time"""
    kernel_us: float | None = None
    reference_us: float | None = None
    baseline_us: float | None = None
    """medians of block medians"""
    activities: float | None = None
    """kernels, copies and memsets a launch, median over blocks"""
    baseline_activities: float | None = None


@dataclass(frozen=True)
class Judgement:
    """The verdict about one case, or about an op as a whole where case is None."""

    op: str
    suite: Suite
    case: str | None
    verdict: Verdict
    reasons: tuple[Reason, ...]
    """the first one decided; the others are worth knowing"""
    comparison: Comparison | None = None
    p_adjusted: float | None = None


@dataclass(frozen=True)
class Need:
    """Evidence that the judge lacks; the pipeline gets it."""

    op: str
    case: str
    processes: int
    """fresh processes in which to measure the case again"""


@dataclass(frozen=True)
class Judgements:
    """All verdicts of a run, and what would make them firmer."""

    rows: tuple[Judgement, ...]
    needs: tuple[Need, ...] = ()
    notes: tuple[Reason, ...] = ()
    """about the run as a whole: stopped early, foreign processes, throttling, how it is judged"""

    @property
    def gate(self) -> Gate:
        """The worst gate of all verdicts."""
        gates = {row.verdict.gate for row in self.rows}
        return next((gate for gate in (Gate.FAILS, Gate.WARNS) if gate in gates), Gate.OK)
