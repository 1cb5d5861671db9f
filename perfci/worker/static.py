"""The static task: an op's performance cases captured and compiled for one target, on a machine without a device."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from perfci.core.errors import DeviceError, PerfciError
from perfci.core.model import Identity, Reason, StaticCase, StaticOp
from perfci.device.targets import LINE_FREE, Target, explain_unknown_triton, target_named
from perfci.measure.inputs import bound_inputs
from perfci.measure.suspect import calls_reference
from perfci.ops.spec import Params, Performance, case_id
from perfci.worker.apart import forget_others
from perfci.worker.load import choose_cases, describe_exception, import_from, load_op
from perfci.worker.protocol import Doing, Message, MessageChannel
from perfci.worker.tasks import Compile, OpFiles, Task

if TYPE_CHECKING:
    from perfci.device.launches import Launched
    from perfci.device.offline import CallOutcome

HIDDEN = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""}
"""A device that the machine may have is not the target's."""

Send = Callable[[Message], None]


def run(task: Compile, channel: MessageChannel) -> None:
    """Report for every op of the task what its cases do on the target. The process can serve no other target."""
    send, target = channel.send, target_named(task.target)
    try:
        install_target(target)
    except DeviceError as error:  # of all ops: another worker would not get further
        for files in task.place.ops:
            send(StaticOp(files.op, target.name, failure=error.reason))
        return
    for files in task.place.ops:
        send(Doing("static", files.op))
        with import_path(task, files):
            send(_compile_op(task, files, target, send))


def install_target(target: Target) -> None:
    """Have this process compile for the target. Raises DeviceError if torch or Triton do not allow that."""
    os.environ.update(LINE_FREE | HIDDEN)
    os.environ.pop("TRITON_INTERPRET", None)
    if unknown := explain_unknown_triton():
        raise DeviceError(unknown.kind, **unknown.facts)
    try:
        from perfci.device import offline
    except ImportError as error:
        raise DeviceError("static_needs_triton", error=str(error)) from error
    offline.install(target)


def import_path(task: Task, files: OpFiles) -> AbstractContextManager[None]:
    """The op's folders, for imports that its functions make when they are called."""
    forget_others(files.folder, task.shared_folder)
    return import_from(files.folder, task.shared_folder)


def explain_failure(seen: CallOutcome, folder: Path, case: str, kind: str) -> Reason | None:
    """Returns why a call was not captured: what it needed of a device, what does not compile, or what it raised."""
    why = seen.failure or seen.capture.blind
    if why is None and seen.raised is not None:
        why = Reason(kind, {"case": case, **describe_exception(seen.raised, folder)})
    return why


def _compile_op(task: Compile, files: OpFiles, target: Target, send: Send) -> StaticOp:
    from perfci.device import binaries

    folder = files.folder
    try:
        suite = load_op(files.op, folder, task.shared_folder).performance
    except PerfciError as error:
        return StaticOp(files.op, target.name, failure=error.reason)
    chosen, seen = choose_cases(suite.cases, task.pattern, task.cases), []
    for done, params in enumerate(chosen):
        send(Doing("static", files.op, case_id(params), done, len(chosen)))
        seen.append(_compile_case(suite, folder, params))
    # All at once: the disassembler takes longer to start than to work.
    binaries.examine([launch for _, launches in seen for launch in launches], target)
    cases = [replace(case, binaries=binaries.binaries(launches, target)) for case, launches in seen]
    return StaticOp(files.op, target.name, tuple(cases), unavailable=binaries.unavailable(target))


def _compile_case(suite: Performance, folder: Path, params: Params) -> tuple[StaticCase, Sequence[Launched]]:
    """What a case does, and its launches."""
    from perfci.device import offline
    from perfci.device.source import inputs_digest

    case, inputs = case_id(params), inputs_digest(suite.make_inputs)
    made = offline.compile_call(partial(bound_inputs, suite, params, offline.DEVICE, 0))
    if why := explain_failure(made, folder, case, "captured_raised"):
        return StaticCase(case, Identity(inputs=inputs, unknown=why)), ()
    seen = offline.compile_call(partial(suite.kernel, **made.value))
    identity = seen.capture.identity(inputs)
    if identity.unknown is None and not seen.failure:
        plain = offline.compile_call(partial(suite.reference, **made.value)).capture.identity(inputs)
        if operation := calls_reference(identity, plain):
            identity = replace(identity, unknown=Reason("calls_reference", {"case": case, "operation": operation}))
    if identity.unknown is None and not seen.capture.launched:
        identity = replace(identity, unknown=Reason("launches_nothing", {"case": case}))
    why = explain_failure(seen, folder, case, "captured_raised") or identity.unknown
    return StaticCase(case, replace(identity, unknown=why), failure=seen.failure), seen.capture.launched
