"""A task that launches nothing: what the ops of a project declare."""

from contextlib import suppress

from perfci.core.errors import PerfciError
from perfci.core.model import PerformanceCase, PlannedOp, Suite
from perfci.device import detect, open_device
from perfci.device.seam import Accelerator
from perfci.ops.backends import BACKENDS, MARK, backend_of, find_kernel, list_keys, name_of
from perfci.ops.spec import case_id, matches
from perfci.worker.apart import forget_others
from perfci.worker.load import list_signature
from perfci.worker.opening import load_files
from perfci.worker.protocol import Doing, MessageChannel, Prepared, Ready
from perfci.worker.tasks import Describe, DeviceTask, OpFiles


def describe(task: Describe, channel: MessageChannel) -> None:
    """Report the device and the cases of each op, with what they declare."""
    device = open_asked(task)
    channel.send(Ready(device.info, devices=device.count(), visible=device.visible(), uuids=device.uuids()))
    for files in task.place.ops:
        channel.send(Doing("import", files.op))
        runs_on = BACKENDS[backend_of(find_kernel(files.name, files.folder))].runs_on
        if device.info.kind not in runs_on and not task.elsewhere:
            channel.send(PlannedOp(files.op))  # perfci reports why it cannot run
            continue
        # The op before may have modules of the same names.
        forget_others(files.folder, task.shared_folder)
        try:
            channel.send(_describe_op(task, files, channel))
        except PerfciError as error:
            channel.send(PlannedOp(files.op, failure=error.reason))


def open_asked(task: DeviceTask) -> Accelerator:
    """Returns the device that the parent asks for, or the one that there is."""
    opening = task.opening
    kind = detect() if opening.device == "auto" else opening.device
    return open_device(kind, seed=opening.seed, timer=opening.timer, fake=opening.fake)


def _describe_op(task: Describe, files: OpFiles, channel: MessageChannel) -> PlannedOp:
    from perfci.measure.prepare import read_declarations

    loaded = load_files(task, files)
    accuracy, performance = (
        tuple(case for case in map(case_id, suite.cases) if wanted in task.suites and matches(case, task.pattern))
        for wanted, suite in ((Suite.ACCURACY, loaded.accuracy), (Suite.PERFORMANCE, loaded.performance))
    )
    suite, stored = loaded.performance, tuple[str, ...]()
    for params in suite.cases:
        if case_id(params) in performance:
            with suppress(Exception):  # what an op cannot declare fails its case when that is prepared
                channel.send(Prepared(read_declarations(suite, params, PerformanceCase(case_id(params)))))
    if loaded.accuracy.quantised is not None and Suite.ACCURACY in task.suites:
        from perfci.measure.stored import find_checks

        stored = find_checks().list_cases(loaded.accuracy, task.pattern)
    others = [] if MARK in files.name else list_keys(files.folder)
    return PlannedOp(
        files.op,
        accuracy,
        performance,
        signature=list_signature(suite.kernel),
        cache=suite.cache,
        renamed=dict(suite.renamed),
        renamed_from=suite.renamed_from and files.op.replace(name_of(files.op), suite.renamed_from, 1),
        stored=stored,
        peers=(*(key for key in others if key != files.name), *suite.peers),
    )
