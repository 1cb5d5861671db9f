"""The task of compiling: an op's performance cases captured and compiled for one target, without a device."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from perfci.core.errors import DeviceError, PerfciError
from perfci.core.extensions import provided
from perfci.core.model import Identity, Reason, StaticCase, StaticOp
from perfci.extensions.common.targets import Target, target_named
from perfci.extensions.offline.process import Send, explain_failure, import_path, install_target
from perfci.extensions.static.tasks import Compile
from perfci.measure.inputs import bound_inputs
from perfci.measure.suspect import calls_reference
from perfci.ops.backends import backend_of, find_kernel
from perfci.ops.spec import Params, Performance, case_id
from perfci.worker.load import choose_cases, load_op
from perfci.worker.protocol import Doing, MessageChannel
from perfci.worker.tasks import OpFiles

if TYPE_CHECKING:
    from perfci.device.launches import Launched


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
        with import_path(task, files):
            send(_compile_op(task, files, target, send))


def _compile_op(task: Compile, files: OpFiles, target: Target, send: Send) -> StaticOp:
    from perfci.extensions.common import binaries
    from perfci.extensions.offline import compiling

    folder = files.folder
    compiling.add_compiler(backend_of(find_kernel(files.op, folder)))
    try:
        op = load_op(files.op, folder, task.shared_folder)
    except PerfciError as error:
        return StaticOp(files.op, target.name, failure=error.reason)
    suite, seen = op.performance, []
    chosen = choose_cases(suite.cases, task.pattern, task.cases)
    ways = [("", nullcontext, suite.make_inputs)] + [way for ways in provided("ways") for way in ways(op)]
    for done, (way, params) in enumerate(product(ways, chosen)):
        before, around, make = way
        case = f"{before}{case_id(params)}"
        doing = Doing("static", files.op, case, done, len(ways) * len(chosen))
        send(doing)
        compiling.tell_alive(partial(send, doing))
        with around():
            seen.append(_compile_case(replace(suite, make_inputs=make), folder, params, case))
    # All at once: the disassembler takes longer to start than to work.
    binaries.examine([launch for _, launches in seen for launch in launches], target)
    cases = [replace(case, binaries=binaries.binaries(launches, target)) for case, launches in seen]
    return StaticOp(files.op, target.name, tuple(cases), unavailable=binaries.unavailable(target))


def _compile_case(suite: Performance, folder: Path, params: Params, case: str) -> tuple[StaticCase, Sequence[Launched]]:
    """A case's work, and its launches."""
    from perfci.device.source import inputs_digest
    from perfci.extensions.offline import compiling

    inputs = inputs_digest(suite.make_inputs)
    made = compiling.compile_call(partial(bound_inputs, suite, params, compiling.DEVICE, 0))
    if why := explain_failure(made, folder, case, "captured_raised"):
        return StaticCase(case, Identity(inputs=inputs, unknown=why)), ()
    seen = compiling.compile_call(partial(suite.kernel, **made.value))
    identity = seen.capture.identity(inputs)
    if identity.unknown is None and not seen.failure:
        plain = compiling.compile_call(partial(suite.reference, **made.value)).capture.identity(inputs)
        if operation := calls_reference(identity, plain):
            identity = replace(identity, unknown=Reason("calls_reference", {"case": case, "operation": operation}))
    if identity.unknown is None and not seen.capture.launched:
        identity = replace(identity, unknown=Reason("launches_nothing", {"case": case}))
    why = explain_failure(seen, folder, case, "captured_raised") or identity.unknown
    return StaticCase(case, replace(identity, unknown=why), failure=seen.failure), seen.capture.launched
