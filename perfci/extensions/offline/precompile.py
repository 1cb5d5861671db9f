"""Compiles what an op's cases launch for the device at hand, without it. Its workers share the cache."""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from perfci.core.model import PerformanceCase, Suite
from perfci.device.arrays import Inputs
from perfci.device.tritons import find_triton_versions, release
from perfci.extensions.common.targets import TARGETS
from perfci.extensions.offline.backends import find_compiler
from perfci.extensions.offline.process import import_path, install_target
from perfci.extensions.offline.task import Precompile
from perfci.measure.inputs import bound_inputs
from perfci.measure.search import list_candidates
from perfci.measure.verify import checks
from perfci.ops.backends import backend_of, find_kernel
from perfci.ops.spec import LAYOUTS, Accuracy, Params, Performance, case_id
from perfci.worker.load import LoadedOp, choose_cases, load_op
from perfci.worker.protocol import Doing, MessageChannel, OpDone, Prepared

NICE = 10  # not more: other work of a busy machine would stop it, and the device would wait

Call = tuple[Performance | Accuracy, Params, str]
"""A suite, the parameters of a case, and the layout of its inputs."""


def run(task: Precompile, channel: MessageChannel) -> None:
    """Compile this worker's part of the cases, those to be timed first, and report how long these took.

    Nothing is reported of what fails, as the op's process will meet it. Does nothing for a Triton with a cache that
    cannot be trusted. The device is not touched: something may be timed meanwhile.
    """
    if task.behind:
        os.nice(NICE)
    send, board, target = channel.send, task.board, TARGETS[task.target]
    backend = backend_of(find_kernel(task.place.ops[0].name, task.folder))
    if any(release(version) < (3, 5) for version in find_triton_versions()):
        send(OpDone())
        return
    target = replace(
        target,
        board=board.name,
        processors=board.processors or target.processors,
        l2_bytes=board.l2_bytes or target.l2_bytes,
        memory_bytes=board.memory_bytes or target.memory_bytes,
    )
    install_target(target)
    from perfci.device.cuda import Flush
    from perfci.device.tensors import TorchArrays
    from perfci.extensions.offline import claims, compiling

    compiling.add_compiler(backend)
    compiler = find_compiler(backend)
    compiling.claim_kernels(Path(os.environ["TRITON_CACHE_DIR"], "claims"), (compiler and compiler.KEPT) or "")
    with import_path(task, task.place.ops[0]):
        op = load_op(task.place.ops[0].name, task.folder, task.shared_folder)
        if Suite.PERFORMANCE in task.suites and task.part[0] == 0:  # what launches are timed between
            flushed = compiling.compile_call(Flush(target.l2_bytes, compiling.DEVICE))
            compiling.build_launchers([launched.kernel for launched in flushed.capture.launched])
        arrays = TorchArrays(compiling.DEVICE)
        timed, checked = _list_timed(task, op), list_checked(task, op)
        for suite, params, layout in [*timed[task.part[0] :: task.part[1]], *order_calls(checked, task)]:
            case = case_id(params)
            send(Doing("static", task.op, case))
            if suite is op.accuracy:
                claims.leave()  # each timed case says how long its kernels take; others compile once

            def make(suite: Any = suite, params: Params = params, layout: str = layout) -> Inputs:
                return arrays.place(bound_inputs(suite, params, compiling.DEVICE, 0), layout)

            made = compiling.compile_call(make)
            if made.value is None:
                continue
            began_s = _count_cpu_s()
            called = compiling.compile_call(partial(suite.kernel, **made.value))
            compiling.build_launchers([launched.kernel for launched in called.capture.launched])
            if suite is op.performance and called.value is not None:
                send(Prepared(PerformanceCase(case, compile_s=_count_cpu_s() - began_s)))
    send(OpDone())


def order_calls(checked: Sequence[Call], task: Precompile) -> list[Call]:
    """Returns a worker's share of the checked calls and then the others', unless other work of the machine goes first.

    What another has claimed is not compiled again. Shares of as many calls may have few kernels, or most of them.
    """
    index, count = task.part
    return [call for ahead in range(1 if task.behind else count) for call in checked[(index + ahead) % count :: count]]


def _count_cpu_s() -> float:
    """Seconds that this process and compilers that it ran were at work: it may have to wait for a core."""
    return sum(os.times()[:4])


def _list_timed(task: Precompile, op: LoadedOp) -> list[Call]:
    if Suite.PERFORMANCE not in task.suites:
        return []
    chosen = choose_cases(op.performance.cases, task.pattern, task.cases)
    return [(op.performance, params, LAYOUTS[0]) for params in chosen]


def list_checked(task: Precompile, op: LoadedOp) -> list[Call]:
    """The suite's, then all that a search may choose: what it does is not to be known before the op's process asks."""
    if Suite.ACCURACY not in task.suites:
        return []
    planned = [*checks(op.accuracy, 0, task.pattern), *list_candidates(op.accuracy, 0, task.pattern, duel=True)]
    planned = [check for check in planned if check.fresh] if task.of_base else planned
    return [*{(check.case, check.layout): (op.accuracy, check.params, check.layout) for check in planned}.values()]
