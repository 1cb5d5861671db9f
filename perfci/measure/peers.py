"""Peers: further implementations that a suite names, timed in the blocks of the kernel where that was asked for.

A peer that raises, is wrong or does not support a case is left out of it with its reason; the kernel's blocks, and what
is judged by them, are what they would be without it. One that takes the device with it cannot be left out here: the
process is given up, and the op measured again without peers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from perfci.core.model import Fact, PeerArm, Reason
from perfci.core.wording import caused
from perfci.device.seam import Inputs
from perfci.measure.bench import Bench, Subject
from perfci.measure.inputs import bound_inputs, flat
from perfci.measure.outputs import wrong_output
from perfci.ops.spec import is_maker

MESSAGE = 300
"""Most characters of what a peer says of a case that it does not support."""

Told = Callable[[str, str], None]
"""Called with case and peer before that is called: it may take long, and the process may not survive it."""


def meet(bench: Bench, subject: Subject, told: Told) -> None:
    """Make and call each peer of a case once, and hold its answer against the reference: it is timed if that is right.

    Raises PeerLostError where one takes the device with it.
    """
    if subject.broken:
        return
    seed = bench.seed(subject.case, "peers")
    try:
        inputs = bound_inputs(bench.suite, subject.params, bench.device.arrays.device, seed)
    except Exception as error:
        subject.failure, subject.raised = bench.raised(subject.case, error, "reference_raised"), True
        return
    for name, given in bench.suite.peers.items():
        told(subject.case, name)
        met, function = _met(bench, subject, name, given, inputs)
        subject.note_peer(met)
        if function is not None:
            subject.peers[name] = function
        if met.failure and met.failure.kind == "peer_changes_inputs":
            inputs = bound_inputs(bench.suite, subject.params, bench.device.arrays.device, seed)


def _met(
    bench: Bench, subject: Subject, name: str, given: Callable[..., Any], inputs: Inputs
) -> tuple[PeerArm, Callable[..., Any] | None]:
    """What is known of a peer after its first call, and what is to be timed; None where nothing is."""
    facts: dict[str, Fact] = {"op": bench.settings.op, "peer": name, "case": subject.case}
    try:
        before = bench.device.arrays.copies(inputs)
        began = time.perf_counter()
        function = given() if is_maker(given) else given
        output = function(**inputs)
        bench.device.synchronize()
        seconds = time.perf_counter() - began
        failure = _changed(bench, inputs, before, facts) or _wrong(bench, subject, inputs, output, facts)
    except NotImplementedError as error:
        message = " ".join(str(error).split())[:MESSAGE].rstrip(".")
        return PeerArm(name, failure=Reason("peer_unsupported", {**facts, "message": message or "no message"})), None
    except Exception as error:
        return PeerArm(name, failure=bench.peer_raised(subject.case, name, error)), None
    return PeerArm(name, seconds, failure), None if failure else function


def _wrong(bench: Bench, subject: Subject, inputs: Inputs, output: Any, facts: dict[str, Fact]) -> Reason | None:
    """What is wrong with a peer's first answer; None if it may be timed."""
    arrays = bench.device.arrays
    if not all(map(arrays.is_array, flat(output))):
        return Reason("peer_wrong_type", {**facts, "got": type(output).__name__})
    wrong = wrong_output(bench.suite, arrays, subject.params, inputs, output)
    return caused("peer_wrong", wrong, **facts) if wrong else None


def _changed(bench: Bench, inputs: Inputs, before: Inputs, facts: dict[str, Fact]) -> Reason | None:
    """That a peer writes into its inputs, which the kernel and the reference are given too."""
    arrays = bench.device.arrays
    pairs = ((name, now, before[name]) for name, now in inputs.items() if arrays.is_array(now))
    argument = next((name for name, now, then in pairs if not arrays.same_bits(now, then)), None)
    return Reason("peer_changes_inputs", {**facts, "argument": argument}) if argument else None
