"""First calls of a case: compile, verify the output, capture what is done, warm up. A case that fails is not timed."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any

from perfci.core.errors import ContractError
from perfci.core.model import BaseArm, Identity, PerformanceCase, Reason
from perfci.core.wording import caused
from perfci.device.seam import Accelerator, Capture, Inputs
from perfci.device.source import inputs_digest
from perfci.measure.base import BaseKernel, InseparableError, stranger
from perfci.measure.bench import KERNEL, Arm, Bench, Subject
from perfci.measure.inputs import bound_inputs, flat
from perfci.measure.outputs import wrong_output
from perfci.measure.suspect import calls_reference, switches_stream
from perfci.ops import identity
from perfci.ops.spec import Params, Performance, case_id

WARM_WINDOW = 10
WARM_AGREEMENT = 0.01
MOST = 2**62
"""Bytes or operations of a call: more than a week's work of any device."""

WARM_LIMIT_S = 0.3
"""Warming up ends when two windows of launches agree, or at the limit."""


def prepare(bench: Bench, params: Params) -> Subject:
    """Compile, verify the first output, capture and warm up; with an opponent, the same of the base's kernel.

    Raises InseparableError where an arm launches the other revision's code, ContractError where a base that has a
    process of its own launches head's.
    """
    facts = PerformanceCase(case_id(params), cache=bench.suite.cache)
    try:
        facts = _declared(bench.suite, params)
        inputs = bound_inputs(bench.suite, params, bench.device.arrays.device, bench.seed(facts.case, "prepare"))
    except Exception as error:
        return _failed(params, facts, bench.raised(facts.case, error, "reference_raised"), raised=True)
    opponent = bench.opponent if bench.opponent and facts.case in bench.opponent.cases else None
    # Whoever comes first compiles and allocates first: base and head take turns from process to process.
    base_first = opponent is not None and bench.settings.process % 2 == 1
    held = bench.device.arrays.memory_in_use()
    met = _meet(bench, params, inputs, opponent, held) if opponent and base_first else None
    try:
        facts, output = _first_call(bench, facts, inputs)
        if wrong := wrong_output(bench.suite, bench.device.arrays, params, inputs, output):
            return _failed(params, facts, wrong)
        del output
        captured, facts = _captured(bench, facts, inputs)
        warm, us = _warm_up(bench.device, Arm(KERNEL, bench.suite.kernel, inputs))
    except Exception as error:
        return _failed(params, facts, bench.raised(facts.case, error), raised=True)
    _refuse_head(bench, captured)
    facts = dataclasses.replace(facts, warmup_launches=warm)
    if opponent:
        met = met or _meet(bench, params, inputs, opponent, held)
        facts = dataclasses.replace(facts, base=_held_against(facts, opponent, met, captured))
    try:
        suspicion = _cheats(bench, facts, inputs)
    except Exception as error:
        return _failed(params, facts, bench.raised(facts.case, error, "reference_raised"), raised=True)
    return Subject(params, facts, rounds(us), suspicion=list(suspicion))


def rounds(us: float) -> int:
    """Rounds of a block: 30 up to 50 us, 8 from 800 us on, falling with the logarithm between.

    >>> rounds(5), rounds(200), rounds(5000)
    (30, 19, 8)
    """
    position = math.log(min(max(us, 50.0), 800.0) / 50.0) / math.log(800.0 / 50.0)
    return round(30 - 22 * position)


def _failed(params: Params, facts: PerformanceCase, failure: Reason, *, raised: bool = False) -> Subject:
    return Subject(params, dataclasses.replace(facts, failure=failure, raised=raised), 0)


def _count(name: str, function: Callable[..., float] | None, params: Params) -> int | None:
    """What an op declares of a case; raises ValueError for what no call can do."""
    if function is None:
        return None
    given = function(**params)
    if not 0 <= given <= MOST:
        raise ValueError(f"{name} gives {given!r}, which is no number of bytes or operations")
    return int(given)


def _declared(suite: Performance, params: Params) -> PerformanceCase:
    dtype = params.get("dtype")
    return PerformanceCase(
        case=case_id(params),
        bytes_moved=_count("bytes_moved", suite.bytes_moved, params),
        flops=_count("flops", suite.flops, params),
        dtype=None if dtype is None else str(dtype).removeprefix("torch."),
        cache=suite.cache,
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


def _captured(bench: Bench, facts: PerformanceCase, inputs: Inputs) -> tuple[Capture, PerformanceCase]:
    """The kernel's second call, which neither compiles nor tunes any more."""
    with bench.device.peak_memory() as peak:
        capture = _capture(bench, bench.suite.kernel, inputs)
    digest = inputs_digest(bench.suite.make_inputs)
    return capture, dataclasses.replace(facts, identity=capture.identity(digest), peak_bytes=peak.bytes)


def _capture(bench: Bench, function: Callable[..., Any], inputs: Inputs) -> Capture:
    with bench.device.captured() as capture:
        function(**inputs)
    bench.device.synchronize()
    return capture


def _refuse_head(bench: Bench, captured: Capture) -> None:
    own, head = bench.settings.own_root, bench.settings.head_root
    if own and head and (file := stranger(captured.sources, own, head)):
        raise ContractError("base_reaches_head", file=file)


def _cheats(bench: Bench, facts: PerformanceCase, inputs: Inputs) -> tuple[Reason, ...]:
    """A kernel that leaves the work to the reference's own operations."""
    if facts.identity is None:
        return ()
    reference = _capture(bench, bench.suite.reference, inputs).identity("")
    found = []
    if called := calls_reference(facts.identity, reference):
        found.append(Reason("calls_reference", {"case": facts.case, "operation": called}))
    if switches_stream(facts.identity):
        found.append(Reason("other_stream", {"case": facts.case}))
    if fallen := bench.device.fallbacks(facts.identity):
        found.append(Reason("fell_back", {"case": facts.case, "operation": ", ".join(fallen)}))
    return tuple(found)


@dataclasses.dataclass(frozen=True)
class _Met:
    """The opponent's first calls."""

    capture: Capture | None = None
    failure: Reason | None = None
    peak_bytes: int | None = None


def _meet(bench: Bench, params: Params, inputs: Inputs, opponent: BaseKernel, held: int | None) -> _Met:
    """Call the base's kernel on the same inputs: it has to be right to be worth a comparison.

    held: bytes on the device before any call; what the kernel under test has kept since is not the base's.
    """
    case = case_id(params)
    kept = (bench.device.arrays.memory_in_use() or 0) - (held or 0)
    try:
        output = opponent.kernel(**inputs)
        bench.device.synchronize()
        if wrong := wrong_output(bench.suite, bench.device.arrays, params, inputs, output):
            return _Met(failure=caused("base_wrong", wrong, case=case))
        del output
        with bench.device.peak_memory() as peak:
            capture = _capture(bench, opponent.kernel, inputs)
        return _Met(capture, peak_bytes=None if peak.bytes is None else peak.bytes - kept)
    except Exception as error:
        return _Met(failure=bench.base_raised(case, error))


def _held_against(facts: PerformanceCase, opponent: BaseKernel, met: _Met, captured: Capture) -> BaseArm:
    """The opponent as it stands before timing; raises InseparableError where an arm runs the other's code."""
    if met.capture is None:
        return BaseArm(failure=met.failure)
    for own, other, capture in (
        (opponent.root, opponent.head_root, met.capture),
        (opponent.head_root, opponent.root, captured),
    ):
        if file := stranger(capture.sources, own, other):
            raise InseparableError(Reason("runs_other_code", {"case": facts.case, "file": file}))
    before, after = met.capture.identity(opponent.inputs), facts.identity or Identity()
    same = identity.same(before, after)
    return BaseArm(
        identity=before if same is not True else None,
        same=same,
        changes=() if same else identity.changes(before, after),
        duelled=opponent.duels(facts.case, same),
        peak_bytes=met.peak_bytes,
    )


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
