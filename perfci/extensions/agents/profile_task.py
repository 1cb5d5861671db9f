"""The profile task: compiled code and hardware counters of each case."""

import sys
from dataclasses import dataclass, replace
from typing import ClassVar

from perfci.core.model import KernelBinary
from perfci.core.temporary import temporary_folder
from perfci.device.seam import WARMING, Accelerator, CountedCalls
from perfci.extensions.agents.counters import count
from perfci.extensions.agents.profile_records import Looked
from perfci.extensions.common.binaries import binaries
from perfci.extensions.common.targets import TARGETS, Target
from perfci.measure.bench import KERNEL, Arm
from perfci.measure.inputs import bound_inputs
from perfci.worker.answers import Answers, Rule
from perfci.worker.load import LoadedOp, choose_cases
from perfci.worker.opening import load_files, open_op
from perfci.worker.protocol import Doing, MessageChannel
from perfci.worker.tasks import DeviceTask, pack_task

STDOUT = 1  # descriptor of what the worker's log gets


@dataclass(frozen=True, kw_only=True)
class ProfileOp(DeviceTask):
    """Find out where the time of an op's cases goes."""

    performer = "perfci.extensions.agents.profile_task:run"
    answers: ClassVar[Answers] = {**DeviceTask.answers, Looked: Rule()}
    last = (Looked,)

    cases: tuple[str, ...]
    marks: bool = False  # the calls are made for a profiler that watches this process


def run(task: ProfileOp, channel: MessageChannel) -> None:
    """Look at the task's cases. They have been measured before, so that their calls work."""
    with open_op(task, channel, lambda _: load_files(task, task.place.ops[0])) as (device, loaded):
        _look(task, channel, device, loaded)


def find_target(device: Accelerator) -> Target | None:
    """The architecture of a GPU, if perfci has the facts of it."""
    if device.info.kind != "cuda":
        return None
    return TARGETS.get("sm_{}{}".format(*sys.modules["torch"].cuda.get_device_capability()))


def _look(task: ProfileOp, channel: MessageChannel, device: Accelerator, loaded: LoadedOp) -> None:
    cases, suite = task.cases, loaded.timed_suite()

    def make(case: str) -> Arm:
        (params,) = choose_cases(suite.cases, None, (case,))
        call = Arm(KERNEL, suite.kernel, bound_inputs(suite, params, device.arrays.device, task.seed))
        for _ in range(WARMING):
            call()
        return call

    if task.marks:
        for case in cases:
            device.mark_call(make(case))
        return
    code: dict[str, tuple[KernelBinary, ...]] = {}
    if target := find_target(device):
        for case in cases:
            call = make(case)
            with device.capture_work() as capture:
                call()
            code[case] = binaries(getattr(capture, "launched", ()), target)
            del call
    channel.send(Doing("counters", task.op))
    with temporary_folder("profile") as folder:
        file = folder / "task.json"
        again = replace(task, marks=True, opening=replace(task.opening, lock=False))
        file.write_bytes(pack_task(again, STDOUT))
        command = (sys.executable, "-P", "-m", "perfci.worker.child", str(file))
        warm = suite.cache == "warm"
        counted = count(device, CountedCalls(cases, make, command, warm, channel.stay_alive))
    channel.send(Looked(counted, code, target.name if target else None))
