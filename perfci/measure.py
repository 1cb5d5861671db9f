"""Speed: blocks of interleaved launches, spread over time and over an op's cases.

A block is one observation: fresh buffers, a short warm-up, then rounds in which every arm is launched once in random
order behind a cache flush. How many rounds a block has follows from the length of the kernel, how many blocks a case
gets from the width of its interval and the budget; never from which arm looks faster.
"""

from __future__ import annotations

import dataclasses
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perfci import stats
from perfci.device.seam import Accelerator, Inputs, Launch, Session
from perfci.inputs import bound_inputs, flat
from perfci.model import ArmBlock, Block, DeviceState, Fact, PerformanceCase, Reason
from perfci.outputs import wrong_output
from perfci.spec import Params, Performance, case_id

Describe = Callable[[BaseException], Mapping[str, Fact]]

FIRST_BLOCKS = 8
"""Blocks of a case before its interval is looked at."""

MOST_BLOCKS = 24
"""Blocks of a case at most in one process."""

ENOUGH_WIDTH = 0.01
"""A case needs no more blocks once the interval of its kernel's time is narrower than this, log scale."""

SWEEPS_A_SESSION = 8
"""Blocks of every case in one profiler session: to stop one and to read its records costs some 30 ms."""

BLOCK_WARMUP = 3
"""Launches of each arm on a block's fresh buffers before the first timed one."""

WARM_WINDOW = 10
WARM_AGREEMENT = 0.01
WARM_LIMIT_S = 0.3
"""Warming up ends when two windows of launches agree, or at the limit."""

FLUSH_US = 35.0
"""What a flush costs of the budget; measured on an H200."""

SUSPICIOUS_SHARE = 1.05
"""Of the measured copy bandwidth; more cannot be, once what the cache may still hold is left out."""

CACHE_MULTIPLE = 4
"""Only a case that moves so many times the L2 cache can be held against the bandwidth of memory."""


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
    spent_s: float = 0.0
    failure: Reason | None = None
    raised: bool = False

    @property
    def case(self) -> str:
        """The case's id."""
        return self.facts.case


@dataclass(frozen=True)
class Taken:
    """A block that waits for its session to end, when its times are known."""

    subject: Subject
    index: int
    started_s: float
    order: tuple[str, ...]
    state: DeviceState
    whole: bool
    """False where the kernel or the reference raised on the way"""


@dataclass(frozen=True)
class Settings:
    """How much is measured, and with which seeds."""

    seed: int
    process: int
    budget_s: float
    run_started: float


Heard = Callable[[str, Block, Mapping[str, tuple[float, ...]]], None]


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

    def raised(self, case: str, error: Exception, kind: str = "kernel_raised") -> Reason:
        """Why a case whose functions raised is not timed."""
        kind = "out_of_memory" if self.device.out_of_memory(error) else kind
        return Reason(kind, {"case": case, **self.describe(error)})


def _quiet(_: str) -> None:
    """Say nothing."""


def bench(
    suite: Performance,
    device: Accelerator,
    settings: Settings,
    describe: Describe,
    step: Callable[[str], None] = _quiet,
) -> Bench:
    """A bench whose order of everything follows from the seed."""
    return Bench(suite, device, settings, describe, step, random.Random(settings.seed + settings.process))


def prepare(bench: Bench, params: Params) -> Subject:
    """Compile, verify the first output and warm up; a case that fails here is not timed."""
    facts = PerformanceCase(case_id(params))
    try:
        facts = _declared(bench.suite, params)
        inputs = bound_inputs(bench.suite, params, bench.device.arrays.device, _seed(bench, facts.case, "prepare"))
    except Exception as error:
        failure = bench.raised(facts.case, error, "reference_raised")
        return Subject(params, dataclasses.replace(facts, failure=failure, raised=True), 0)
    try:
        facts, output = _first_call(bench, facts, inputs)
        if wrong := wrong_output(bench.suite, bench.device.arrays, params, inputs, output):
            return Subject(params, dataclasses.replace(facts, failure=wrong), 0)
        warm, us = _warm_up(bench.device, Arm("kernel", bench.suite.kernel, inputs))
        return Subject(params, dataclasses.replace(facts, warmup_launches=warm), rounds(us))
    except Exception as error:
        return Subject(params, dataclasses.replace(facts, failure=bench.raised(facts.case, error), raised=True), 0)


def measure(bench: Bench, subjects: Sequence[Subject], heard: Heard) -> float:
    """Measure all subjects in turn; gives the seconds in which the device was at work."""
    busy_s, sweep = 0.0, 0
    while waiting := [subject for subject in subjects if _wants_more(subject, bench.settings)]:
        sweeps = range(sweep, sweep + SWEEPS_A_SESSION)
        plan = [(subject, index) for index in sweeps for subject in bench.order.sample(waiting, len(waiting))]
        busy_s += _session(bench, plan, heard)
        sweep += SWEEPS_A_SESSION
    return busy_s


def rounds(us: float) -> int:
    """Rounds of a block: 30 up to 50 us, 8 from 800 us on, falling with the logarithm between.

    >>> rounds(5), rounds(200), rounds(5000)
    (30, 19, 8)
    """
    position = math.log(min(max(us, 50.0), 800.0) / 50.0) / math.log(800.0 / 50.0)
    return round(30 - 22 * position)


def suspicions(case: PerformanceCase, device: Accelerator, copy_gbps: float | None) -> tuple[Reason, ...]:
    """What looks like cheating or a broken measurement."""
    found = [Reason("timing_function_replaced", {"name": name}) for name in device.tampered()]
    l2 = device.info.l2_bytes
    if case.blocks and case.bytes_moved and copy_gbps and l2 and case.bytes_moved >= CACHE_MULTIPLE * l2:
        us = stats.summary([block.arms["kernel"].time.median_us for block in case.blocks]).median_us
        # As much as the cache holds may be written back only after the kernel has ended.
        gbps = (case.bytes_moved - l2) / us / 1e3
        if gbps > SUSPICIOUS_SHARE * copy_gbps:
            found.append(Reason("above_bandwidth", {"case": case.case, "gbps": gbps, "limit": copy_gbps}))
    return tuple(found)


def _declared(suite: Performance, params: Params) -> PerformanceCase:
    dtype = params.get("dtype")
    return PerformanceCase(
        case=case_id(params),
        bytes_moved=int(suite.bytes_moved(**params)) if suite.bytes_moved else None,
        flops=int(suite.flops(**params)) if suite.flops else None,
        dtype=None if dtype is None else str(dtype).removeprefix("torch."),
    )


def _first_call(bench: Bench, facts: PerformanceCase, inputs: Inputs) -> tuple[PerformanceCase, Any]:
    with bench.device.recorded() as kernels:
        began = time.perf_counter()
        output = bench.suite.kernel(**inputs)
        bench.device.synchronize()
        seconds = time.perf_counter() - began
    held = sum(bench.device.arrays.nbytes(value) for value in [*inputs.values(), *flat(output)])
    compiled = tuple(kernels[name] for name in sorted(kernels))
    return dataclasses.replace(facts, compile_s=seconds, footprint_bytes=held, compiled=compiled), output


def _warm_up(device: Accelerator, call: Arm) -> tuple[int, float]:
    """Launches made, and microseconds a launch in the last window."""
    last, spent, made = 0.0, 0.0, 0
    while True:
        window = device.window_s(call, WARM_WINDOW)
        made += WARM_WINDOW
        spent += window
        if abs(window - last) <= WARM_AGREEMENT * window or spent >= WARM_LIMIT_S:
            return made, 1e6 * window / WARM_WINDOW
        last = window


def _wants_more(subject: Subject, settings: Settings) -> bool:
    if subject.facts.failure or subject.failure:
        return False
    count = len(subject.blocks)
    if count < FIRST_BLOCKS:
        return True
    if count >= MOST_BLOCKS or settings.process > 0 or subject.spent_s >= settings.budget_s:
        return False
    times = [math.log(block.arms["kernel"].time.median_us) for block in subject.blocks]
    interval = stats.location(times)
    return interval.high - interval.low > ENOUGH_WIDTH


def _session(bench: Bench, plan: Sequence[tuple[Subject, int]], heard: Heard) -> float:
    with bench.device.session() as session:
        queued = [_block(bench, session, subject, index) for subject, index in plan if not subject.failure]
    launches = iter(session.launches())
    for block in queued:
        _read(block, launches, bench.settings, heard)
    return session.busy_s()


def _block(bench: Bench, session: Session, subject: Subject, index: int) -> Taken:
    """Queue one block: fresh buffers, warm-up, rounds."""
    bench.step(subject.case)
    started_s = time.time() - bench.settings.run_started
    launched: list[str] = []
    try:
        _launch_all(bench, session, subject, index, launched)
    except Exception as error:
        subject.failure, subject.raised = bench.raised(subject.case, error), True
        session.pause()
    return Taken(subject, index, started_s, tuple(launched), bench.device.state(), not subject.raised)


def _launch_all(bench: Bench, session: Session, subject: Subject, index: int, launched: list[str]) -> None:
    """A block's launches; the arms' names are noted as they are launched."""
    seed = _seed(bench, subject.case, index)
    padding = bench.device.pad(seed)
    inputs = bound_inputs(bench.suite, subject.params, bench.device.arrays.device, seed)
    arms = [Arm("kernel", bench.suite.kernel, inputs), Arm("reference", bench.suite.reference, inputs)]
    for arm in arms * BLOCK_WARMUP:
        arm()
    kept, kept_round = None, _kept_round(subject, index, bench.order)
    for turn in range(subject.rounds):
        for arm in bench.order.sample(arms, len(arms)):
            output = session.launch(arm)
            launched.append(arm.arm)
            if turn == kept_round and arm.arm == "kernel":
                kept = output
            # Freed before the next launch, so that every launch draws its output from the same pool.
            del output
    session.pause()
    if kept_round is not None:
        subject.failure = wrong_output(bench.suite, bench.device.arrays, subject.params, inputs, kept)
    del padding


def _kept_round(subject: Subject, index: int, order: random.Random) -> int | None:
    """The round whose output is verified: the very first, one at random, and the last of the first looks."""
    chosen = {0: 0, FIRST_BLOCKS // 2: order.randrange(subject.rounds), FIRST_BLOCKS - 1: subject.rounds - 1}
    return chosen.get(index)


def _read(taken: Taken, launches: Iterator[Launch], settings: Settings, heard: Heard) -> None:
    by_arm: dict[str, list[Launch]] = {}
    for arm in taken.order:
        by_arm.setdefault(arm, []).append(next(launches))
    subject = taken.subject
    if not taken.whole:
        return
    subject.spent_s += sum(launch.time_us + FLUSH_US for many in by_arm.values() for launch in many) / 1e6
    idle = next((arm for arm, many in by_arm.items() if not all(launch.time_us > 0 for launch in many)), None)
    if idle is not None:
        subject.failure = Reason("nothing_launched", {"case": subject.case, "arm": idle})
        return
    times = {arm: tuple(launch.time_us for launch in many) for arm, many in by_arm.items()}
    block = Block(
        index=taken.index,
        process=settings.process,
        started_s=round(taken.started_s, 3),
        arms={arm: _arm_block(many) for arm, many in by_arm.items()},
        shifts={"kernel/reference": stats.launch_shift(times["kernel"], times["reference"])},
        state=taken.state,
    )
    subject.blocks.append(block)
    heard(subject.case, block, times)


def _arm_block(launches: Sequence[Launch]) -> ArmBlock:
    counts = [launch.activities for launch in launches if launch.activities is not None]
    return ArmBlock(
        time=stats.summary([launch.time_us for launch in launches]),
        span_us=_median([launch.span_us for launch in launches]),
        host_us=_median([launch.host_us for launch in launches]),
        activities=max(counts, default=None),
    )


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _seed(bench: Bench, case: str, index: object) -> int:
    """A seed of its own for every block: inputs never repeat, and --seed repeats them all."""
    return random.Random(f"{bench.settings.seed}/{bench.settings.process}/{case}/{index}").getrandbits(31)
