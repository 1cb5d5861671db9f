"""Speed: blocks of interleaved launches, spread over time and over an op's cases.

A block is one observation: fresh buffers, a short warm-up, then rounds in which every arm is launched once in random
order behind a cache flush. What a block needs is decided by the length of the kernel, how many blocks a case gets by the
width of its interval and by the budget; never by which arm looks faster.
"""

from __future__ import annotations

import dataclasses
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perfci import stats
from perfci.closeness import tolerance
from perfci.device.seam import Accelerator, Inputs, Launch
from perfci.inputs import bound_inputs, flat
from perfci.model import ArmBlock, Block, ErrorStats, PerformanceCase, Reason
from perfci.spec import Params, Performance, case_id

Describe = Callable[[BaseException], Mapping[str, Any]]

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
    state: Any


@dataclass(frozen=True)
class Settings:
    """How much is measured, and with which seeds."""

    seed: int
    process: int
    budget_s: float
    run_started: float


Heard = Callable[[str, Block, Mapping[str, tuple[float, ...]]], None]


def prepare(suite: Performance, device: Accelerator, params: Params, settings: Settings, describe: Describe) -> Subject:
    """Compile, verify the first output and warm up; a case that fails here is not timed."""
    facts = _declared(suite, device, params)
    try:
        inputs = bound_inputs(suite, params, device.arrays.device, _seed(settings, facts.case, "prepare"))
        facts, output = _first_call(suite, device, facts, inputs)
        facts = _verified(suite, device, facts, params, inputs, output)
        if facts.failure:
            return Subject(params, facts, 0)
        warm, us = _warm_up(device, Arm("kernel", suite.kernel, inputs))
        return Subject(params, dataclasses.replace(facts, warmup_launches=warm), rounds(us))
    except Exception as error:
        kind = "out_of_memory" if device.out_of_memory(error) else "kernel_raised"
        failure = Reason(kind, {"case": facts.case, **describe(error)})
        return Subject(params, dataclasses.replace(facts, failure=failure, raised=True), 0)


def measure(
    suite: Performance, device: Accelerator, subjects: Sequence[Subject], settings: Settings, heard: Heard
) -> float:
    """Measure all subjects in turn; gives the seconds in which the device was at work."""
    order = random.Random(settings.seed + settings.process)
    busy_s, sweep = 0.0, 0
    while waiting := [subject for subject in subjects if _wants_more(subject, settings)]:
        plan = [(subject, sweep + i) for i in range(SWEEPS_A_SESSION) for subject in _shuffled(waiting, order)]
        busy_s += _session(suite, device, plan, settings, order, heard)
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


def _declared(suite: Performance, device: Accelerator, params: Params) -> PerformanceCase:
    dtype = params.get("dtype")
    return PerformanceCase(
        case=case_id(params),
        bytes_moved=int(suite.bytes_moved(**params)) if suite.bytes_moved else None,
        flops=int(suite.flops(**params)) if suite.flops else None,
        dtype=None if dtype is None else str(dtype).removeprefix("torch."),
    )


def _first_call(
    suite: Performance, device: Accelerator, facts: PerformanceCase, inputs: Inputs
) -> tuple[PerformanceCase, Any]:
    with device.recorded() as kernels:
        began = time.perf_counter()
        output = suite.kernel(**inputs)
        device.synchronize()
        seconds = time.perf_counter() - began
    held = sum(device.arrays.nbytes(value) for value in [*inputs.values(), *flat(output)])
    compiled = tuple(kernels[name] for name in sorted(kernels))
    return dataclasses.replace(facts, compile_s=seconds, footprint_bytes=held, compiled=compiled), output


def _verified(
    suite: Performance, device: Accelerator, facts: PerformanceCase, params: Params, inputs: Inputs, output: Any
) -> PerformanceCase:
    """The facts with the output's verdict: the float64 reference on the device, compared where the output lies."""
    expected = flat(suite.reference(**device.arrays.upcast(inputs)))
    terms = suite.reduces(**params) if suite.reduces else 1
    for actual, wanted in zip(flat(output), expected, strict=True):
        seen, right = device.arrays.facts(actual), device.arrays.facts(wanted)
        if seen.shape != right.shape:
            shapes = {"case": facts.case, "got": str(seen.shape), "expected": str(right.shape)}
            return dataclasses.replace(facts, failure=Reason("wrong_shape", shapes))
        rtol, atol = tolerance(seen.dtype, suite.tolerance, terms)
        found = device.arrays.mismatch(actual, wanted, rtol, atol)
        if found.count:
            wrong = {"case": facts.case, "count": found.count, "index": str(found.worst_index)}
            numbers = {"error": found.worst_abs, "rtol": rtol, "atol": atol}
            return dataclasses.replace(facts, failure=Reason("timed_output_wrong", {**wrong, **numbers}))
        facts = dataclasses.replace(facts, errors=ErrorStats(count=math.prod(seen.shape)))
    return facts


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


def _session(
    suite: Performance,
    device: Accelerator,
    plan: Sequence[tuple[Subject, int]],
    settings: Settings,
    order: random.Random,
    heard: Heard,
) -> float:
    with device.session() as session:
        taken = [
            block
            for subject, index in plan
            if (block := _block(suite, device, session, subject, index, settings, order)) is not None
        ]
    launches = iter(session.launches())
    for block in taken:
        _read(block, launches, settings, heard)
    return session.busy_s()


def _block(
    suite: Performance,
    device: Accelerator,
    session: Any,
    subject: Subject,
    index: int,
    settings: Settings,
    order: random.Random,
) -> Taken | None:
    """Queue one block; None once its case has failed."""
    if subject.failure:
        return None
    seed = _seed(settings, subject.case, index)
    started_s = time.time() - settings.run_started
    padding = device.pad(seed)
    inputs = bound_inputs(suite, subject.params, device.arrays.device, seed)
    arms = [Arm("kernel", suite.kernel, inputs), Arm("reference", suite.reference, inputs)]
    for arm in arms:
        for _ in range(BLOCK_WARMUP):
            arm()
    kept_round = _kept_round(subject, index, order)
    sequence: list[str] = []
    kept = None
    for turn in range(subject.rounds):
        for arm in order.sample(arms, len(arms)):
            output = session.launch(arm)
            sequence.append(arm.arm)
            if turn == kept_round and arm.arm == "kernel":
                kept = output
            del output
    session.pause()
    if kept is not None:
        facts = _verified(suite, device, subject.facts, subject.params, inputs, kept)
        subject.failure = facts.failure
    del padding
    return Taken(subject, index, started_s, tuple(sequence), device.state())


def _kept_round(subject: Subject, index: int, order: random.Random) -> int | None:
    """The round whose output is verified: the very first, one at random, and the last of the first looks."""
    chosen = {0: 0, FIRST_BLOCKS // 2: order.randrange(subject.rounds), FIRST_BLOCKS - 1: subject.rounds - 1}
    return chosen.get(index)


def _read(taken: Taken, launches: Iterator[Launch], settings: Settings, heard: Heard) -> None:
    by_arm: dict[str, list[Launch]] = {}
    for arm in taken.order:
        by_arm.setdefault(arm, []).append(next(launches))
    subject = taken.subject
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
    counts = {launch.activities for launch in launches}
    return ArmBlock(
        time=stats.summary([launch.time_us for launch in launches]),
        span_us=_median([launch.span_us for launch in launches]),
        host_us=_median([launch.host_us for launch in launches]),
        activities=max((count for count in counts if count is not None), default=None),
    )


def _median(values: Sequence[float | None]) -> float | None:
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    middle = len(known) // 2
    return known[middle] if len(known) % 2 else (known[middle - 1] + known[middle]) / 2


def _shuffled(subjects: Sequence[Subject], order: random.Random) -> list[Subject]:
    return order.sample(list(subjects), len(subjects))


def _seed(settings: Settings, case: str, index: object) -> int:
    """A seed of its own for every block: inputs never repeat, and --seed repeats them all."""
    return random.Random(f"{settings.seed}/{settings.process}/{case}/{index}").getrandbits(31)
