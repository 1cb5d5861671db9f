"""The profile task: compiled code and hardware counters of each case."""

import sys
from dataclasses import replace

from perfci.core.codec import encode
from perfci.core.model import KernelBinary
from perfci.core.temporary import temporary_folder
from perfci.device.binaries import binaries
from perfci.device.seam import WARMING, Accelerator, CountedCalls
from perfci.measure.bench import KERNEL, Arm
from perfci.measure.inputs import bound_inputs
from perfci.worker.load import LoadedOp, choose_cases
from perfci.worker.protocol import Doing, Job, MessageChannel

STDOUT = 1  # descriptor of what the worker's log gets


def run(job: Job, channel: MessageChannel, device: Accelerator, loaded: LoadedOp) -> None:
    """Look at the job's cases. They have been measured before, so that their calls work."""
    cases, suite = job.cases or (), loaded.timed_suite()

    def make(case: str) -> Arm:
        (params,) = choose_cases(suite.cases, None, (case,))
        call = Arm(KERNEL, suite.kernel, bound_inputs(suite, params, device.arrays.device, job.seed))
        for _ in range(WARMING):
            call()
        return call

    if job.marks:
        for case in cases:
            device.mark_call(make(case))
        return
    code: dict[str, tuple[KernelBinary, ...]] = {}
    if target := device.target:
        for case in cases:
            call = make(case)
            with device.capture_work() as capture:
                call()
            code[case] = binaries(getattr(capture, "launched", ()), target)
            del call
    channel.send(Doing("counters", job.ops[0].op))
    with temporary_folder("profile") as folder:
        file = folder / "job.json"
        file.write_bytes(encode(replace(job, marks=True, lock=False, events_fd=STDOUT)))
        again = (sys.executable, "-P", "-m", "perfci.worker.child", str(file))
        warm = suite.cache == "warm"
        found = device.count_work(CountedCalls(cases, make, again, warm, channel.stay_alive))
    channel.send(replace(found, binaries=code, target=target.name if target else None))
