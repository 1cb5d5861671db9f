"""First calls of a case: compile, verify the output, capture what is done, warm up. A case that fails is not timed."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perfci.core.errors import ContractError
from perfci.core.model import BaseArm, CompiledKernel, Fact, Identity, PeerArm, PerformanceCase, Reason, because
from perfci.core.model.measured import KERNEL, REFERENCE
from perfci.device.arrays import Inputs
from perfci.device.seam import Accelerator, Capture
from perfci.device.source import inputs_digest
from perfci.measure.bench import Arm, BaseKernel, InseparableError, Rig, Subject, find_foreign_source
from perfci.measure.inputs import call_fresh, flat
from perfci.measure.outputs import wrong_output
from perfci.measure.power import find_rest
from perfci.measure.suspect import calls_reference
from perfci.ops.spec import Params, Performance, case_id, is_maker

WARM_WINDOW = 10
WARM_AGREEMENT = 0.01
WARM_LIMIT_S = 0.3  # warming up ends when two windows of launches agree, or at the limit

SLOW_US, FEWEST_REFERENCES = 1000.0, 3
"""A reference that takes longer, and is 4, 6, ... times as slow as the kernel, is launched in every 2nd, 3rd, ... round
only, but so often in a block at least: it would take most of the time, for a ratio that few launches show."""


def prepare(bench: Rig, params: Params, case: str | None = None, performance: Performance | None = None) -> Subject:
    """Compile, verify the first output, capture and warm up. With a base, the same of its kernel.

    case: its id, if that is not what the parameters give. own: its suite, if not that of the rig.
    Raises InseparableError or ContractError if an arm launches the other revision's code.
    """
    suite = performance or bench.suite
    facts = PerformanceCase(case or case_id(params), cache=suite.cache)

    def fail(why: Reason, *, raised: bool = True) -> Subject:
        return Subject(params, replace(facts, failure=why, raised=raised), 0)

    try:
        facts = read_declarations(suite, params, facts)
        inputs = bench.make_inputs(suite, params, bench.draw_seed(facts.case, "prepare"))
    except Exception as error:
        return fail(bench.explain(facts.case, error, "reference_raised"))
    base = bench.base if bench.base and facts.case in bench.base.plan.cases else None
    # Anyone who comes first compiles and allocates first: base and head take turns from process to process.
    base_first = base is not None and bench.process % 2 == 1
    memory = bench.device.arrays.memory_in_use()
    call = _call_base(bench, base, params, facts.case, inputs, memory) if base and base_first else None
    try:
        facts, output = _call_kernel(bench, suite, facts, inputs)
        if wrong := wrong_output(suite, bench.device.arrays, params, inputs, output):
            return fail(wrong, raised=False)
        del output
        # The second call neither compiles nor tunes any more.
        with bench.device.peak_memory() as peak:
            capture = _capture(bench, suite.kernel, inputs)
        digest = inputs_digest(suite.make_inputs)
        facts = replace(facts, identity=capture.identity(digest), peak_bytes=peak.bytes)
        us = warm_up(bench.device, Arm(KERNEL, suite.kernel, inputs))
    except Exception as error:
        return fail(bench.explain(facts.case, error))
    root, head = bench.own_root, bench.head_root
    if root and head and (file := find_foreign_source(capture.sources, root, head)):
        raise ContractError("base_reaches_head", file=file)
    if base:
        right = suite.kernel if suite is bench.suite else None
        call = call or _call_base(bench, base, params, facts.case, inputs, memory, right)
        facts = replace(facts, base=_compare_with_base(facts, base, call, capture))
    try:
        suspicion = _find_cheats(bench, suite, facts, inputs)
        reference_us = 1e6 * bench.device.window_s(Arm(REFERENCE, suite.reference, inputs), 1)
    except Exception as error:
        return fail(bench.explain(facts.case, error, "reference_raised"))
    turns = min(rounds(us), bench.device.most_rounds)
    subject = Subject(params, facts, turns, suspicion=suspicion, suite=performance, wall_us=us)
    if reference_us > SLOW_US:
        subject.stride = max(min(int(reference_us / us / 2), subject.rounds // FEWEST_REFERENCES), 1)
    try:
        find_rest(bench, subject, Arm(KERNEL, suite.kernel, inputs))
    except Exception as error:
        return fail(bench.explain(facts.case, error))
    return subject


def rounds(us: float) -> int:
    """Returns the rounds of a block: 30 up to 50 us, 8 from 800 us on, falling with the logarithm between.

    >>> rounds(5), rounds(200), rounds(5000)
    (30, 19, 8)
    """
    position = math.log(min(max(us, 50.0), 800.0) / 50.0) / math.log(800.0 / 50.0)
    return round(30 - 22 * position)


def warm_up(device: Accelerator, call: Arm) -> float:
    """Returns microseconds a launch in the shortest window."""
    last, shortest, spent = 0.0, math.inf, 0.0
    while True:
        window = device.window_s(call, WARM_WINDOW)
        spent += window
        shortest = min(shortest, window)
        if abs(window - last) <= WARM_AGREEMENT * window or spent >= WARM_LIMIT_S:
            return 1e6 * shortest / WARM_WINDOW
        last = window


def read_declarations(suite: Performance, params: Params, facts: PerformanceCase) -> PerformanceCase:
    """The op's declarations of a case. Raises ValueError for what no call can do."""
    counts: dict[str, Any] = {}
    for name, function in (("bytes_moved", suite.bytes_moved), ("flops", suite.flops)):
        given = 0 if function is None else function(**params)
        if not 0 <= given <= 2**62:
            raise ValueError(f"{name} gives {given!r}, which is no number of bytes or operations")
        counts |= {} if function is None else {name: int(given)}
    dtype = str(params["dtype"]).removeprefix("torch.") if params.get("dtype") is not None else None
    return replace(facts, dtype=dtype, **counts)


def _call_kernel(bench: Rig, suite: Performance, facts: PerformanceCase, inputs: Inputs) -> tuple[PerformanceCase, Any]:
    with bench.device.record_kernels() as kernels:
        began = time.perf_counter()
        output = call_fresh(suite.kernel, inputs, bench.device.arrays, suite.mutates or ())
        bench.device.synchronize()
        seconds = time.perf_counter() - began
    held = sum(bench.device.arrays.nbytes(value) for value in [*inputs.values(), *flat(output)])
    compiled = tuple(kernel for _, kernel in sorted((kernels or {}).items()))
    return replace(facts, compile_s=seconds, footprint_bytes=held, compiled=compiled), output


def _capture(bench: Rig, function: Callable[..., Any], inputs: Inputs) -> Capture:
    with bench.device.capture_work() as capture:
        function(**inputs)
    bench.device.synchronize()
    return capture


def _find_cheats(bench: Rig, suite: Performance, facts: PerformanceCase, inputs: Inputs) -> list[Reason]:
    """A kernel that leaves the work to the reference's operations, to another stream or to the host."""
    if facts.identity is None:
        return []
    reference = _capture(bench, suite.reference, inputs).identity("")
    cheats = []
    if suite.backend != "torch" and (called := calls_reference(facts.identity, reference)):
        cheats.append(Reason("calls_reference", {"case": facts.case, "operation": called}))
    if any("setStream" in operation for operation in facts.identity.operations):  # a timer may miss such work
        cheats.append(Reason("other_stream", {"case": facts.case}))
    if fallen := bench.device.fallbacks(facts.identity):
        cheats.append(Reason("fell_back", {"case": facts.case, "operation": ", ".join(fallen)}))
    return cheats


@dataclass(frozen=True)
class _BaseCall:
    """The base's first calls."""

    capture: Capture | None = None
    failure: Reason | None = None
    peak_bytes: int | None = None
    compiled: tuple[CompiledKernel, ...] = ()


def _call_base(
    bench: Rig,
    base: BaseKernel,
    params: Params,
    case: str,
    inputs: Inputs,
    memory: int | None,
    right: Callable[..., Any] | None = None,
) -> _BaseCall:
    """Call the base's kernel on the same inputs. memory: bytes on the device before any call.

    right: head's kernel, once it has answered right: the same bits need no reference, which may take seconds.
    """
    kept = (bench.device.arrays.memory_in_use() or 0) - (memory or 0)
    try:
        with bench.device.record_kernels() as kernels:
            output = call_fresh(base.kernel, inputs, bench.device.arrays, bench.suite.mutates or ())
            bench.device.synchronize()
        alike = right and _gives(bench, right, inputs, output)
        if not alike and (wrong := wrong_output(bench.suite, bench.device.arrays, params, inputs, output)):
            return _BaseCall(failure=because("base_wrong", wrong, case=case))
        del output
        with bench.device.peak_memory() as peak:
            capture = _capture(bench, base.kernel, inputs)
        used = None if peak.bytes is None else max(peak.bytes - kept, 0)
        return _BaseCall(
            capture, peak_bytes=used, compiled=tuple(kernel for _, kernel in sorted((kernels or {}).items()))
        )
    except Exception as error:
        return _BaseCall(failure=bench.explain(case, error, "base_raised"))


def _gives(bench: Rig, function: Callable[..., Any], inputs: Inputs, output: Sequence[Any]) -> bool:
    """Whether a function gives this output, bit for bit. One that raises does not."""
    arrays = bench.device.arrays
    try:
        given = call_fresh(function, inputs, arrays, bench.suite.mutates or ())
    except Exception:  # of head's kernel, where the base is looked at
        return False
    pairs = list(zip(given, output, strict=False))
    return len(given) == len(output) and all(
        arrays.is_array(one) and arrays.is_array(other) and arrays.same_bits(one, other) for one, other in pairs
    )


def _compare_with_base(facts: PerformanceCase, base: BaseKernel, call: _BaseCall, captured: Capture) -> BaseArm:
    """The base before timing. Raises InseparableError if an arm runs the other's code."""
    if call.capture is None:
        return BaseArm(failure=call.failure)
    roots = (base.root, base.head_root, call.capture), (base.head_root, base.root, captured)
    for root, other, capture in roots:
        if file := find_foreign_source(capture.sources, root, other):
            raise InseparableError(Reason("runs_other_code", {"case": facts.case, "file": file}))
    before, after = call.capture.identity(base.inputs), facts.identity or Identity()
    arm = base.plan.compare(facts.case, before, after, call.peak_bytes)
    return arm if arm.same else replace(arm, compiled=call.compiled)


def warm_up_peers(bench: Rig, subject: Subject, announce: Callable[[str, str], None]) -> None:
    """Make, call and verify each peer of a case, announced first. Raises PeerLostError if one costs the device."""
    if subject.broken:
        return
    seed, suite = bench.draw_seed(subject.case, "peers"), bench.suite_of(subject)
    try:
        inputs = bench.make_inputs(suite, subject.params, seed)
    except Exception as error:
        subject.failure, subject.raised = bench.explain(subject.case, error, "reference_raised"), True
        return
    for name, given in suite.peers.items():
        announce(subject.case, name)
        peer, function = _call_peer(bench, subject, name, given, inputs)
        subject.note_peer(peer)
        if function is not None:
            subject.peers[name] = function
        if peer.failure and peer.failure.kind == "peer_changes_inputs":
            inputs = bench.make_inputs(suite, subject.params, seed)


def _call_peer(
    bench: Rig, subject: Subject, name: str, given: Callable[..., Any], inputs: Inputs
) -> tuple[PeerArm, Callable[..., Any] | None]:
    """A peer after its first call, and the function to be timed. None if there is none."""
    arrays = bench.device.arrays
    facts: dict[str, Fact] = {"op": bench.op, "peer": name, "case": subject.case}
    failure: Reason | None = None
    try:
        before = arrays.copies(inputs)
        function = given() if is_maker(given) else given
        output = function(**inputs)
        bench.device.synchronize()
        # The kernel and the reference are given the same inputs.
        changed = (
            key for key, value in inputs.items() if arrays.is_array(value) and not arrays.same_bits(value, before[key])
        )
        if argument := next(changed, None):
            failure = Reason("peer_changes_inputs", {**facts, "argument": argument})
        elif not all(map(arrays.is_array, flat(output))):
            failure = Reason("peer_wrong_type", {**facts, "got": type(output).__name__})
        elif wrong := wrong_output(bench.suite_of(subject), arrays, subject.params, inputs, output):
            failure = because("peer_wrong", wrong, **facts)
    except NotImplementedError as error:
        message = " ".join(str(error).split())[:300].rstrip(".")
        return PeerArm(name, failure=Reason("peer_unsupported", {**facts, "message": message or "no message"})), None
    except Exception as error:
        return PeerArm(name, failure=bench.explain_peer(subject.case, name, error)), None
    return PeerArm(name, failure), None if failure else function
