"""The profile task: compiled code and hardware counters of each case."""

import contextlib
import csv
import math
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from perfci.core.model import KernelBinary, Reason
from perfci.core.model.measured import KERNEL
from perfci.core.temporary import temporary_folder
from perfci.device.seam import WARMING, Accelerator, CountedCalls, Counters
from perfci.extensions.agents.profile_records import Looked
from perfci.extensions.common.binaries import binaries
from perfci.extensions.common.counters import average_counters
from perfci.extensions.common.targets import TARGETS, Target
from perfci.measure.bench import Arm
from perfci.measure.inputs import bound_inputs
from perfci.worker.answers import Answers, Rule
from perfci.worker.load import LoadedOp, choose_cases
from perfci.worker.opening import load_files, open_op
from perfci.worker.protocol import Doing, MessageChannel
from perfci.worker.tasks import DeviceTask, pack_task

MARK = "perfci_l2_flush"  # name of the kernel that is launched before each case's call
FURTHER = "/usr/local/cuda/bin"  # folder of Nsight Compute if it is not on the path
LIMIT_S = 300.0  # of all calls under Nsight Compute, which makes each some ten times

_TIME, _LATENCY = "gpu__time_duration.sum", "smsp__average_warp_latency_per_inst_issued.ratio"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
_STALLS = ("barrier", "gmma", "lg_throttle", "long_scoreboard", "math_pipe_throttle", "mio_throttle", "no_instruction",
           "not_selected", "short_scoreboard", "wait")  # fmt: skip
NAMES = {
    "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",  # of the warps that a processor holds
    "l1_hit": "l1tex__t_sector_hit_rate.pct",
    "l2_hit": "lts__t_sector_hit_rate.pct",
    "dram_bytes": "dram__bytes.sum",  # read and written
    "l2_bytes": "lts__t_bytes.sum",
    "dram": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "l2": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "tensor": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "issue": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "sectors_load": "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
    "sectors_store": "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio",
    "coalesced": "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct",  # bytes used of each sector loaded
    # Of the time between two instructions of a warp.
    **{f"stall_{name}": f"smsp__average_warps_issue_stalled_{name}_per_issue_active.ratio" for name in _STALLS},
}
"""Counter -> metric. Percentages become shares. Beside them there is bank_conflicts, the share of accesses to shared
memory that conflicts add. Of several kernels bytes are summed. The rest is the mean, weighted by time."""


def count(device: Accelerator, calls: CountedCalls) -> Counters:
    """Read hardware counters of one call of each case: of a GPU by Nsight Compute, else as the device itself does."""
    if device.info.kind != "cuda":
        return device.count_work(calls)
    import torch

    torch.cuda.empty_cache()  # for the process that makes the calls
    return count_by_ncu(calls)


def count_by_ncu(calls: CountedCalls) -> Counters:
    """Returns no counters, and why, if there is no ncu, no right to counters, or another failure."""
    ncu = shutil.which("ncu", path=os.pathsep.join((os.environ.get("PATH", ""), FURTHER)))
    if ncu is None:
        return Counters(note=Reason("counters_no_ncu"))
    wanted, until = [_TIME, _LATENCY, _CONFLICTS, _WAVEFRONTS, *NAMES.values()], time.monotonic() + LIMIT_S
    with temporary_folder("ncu") as folder:
        log = folder / "ncu.csv"
        while True:
            # Clocks stay as they are: perfci changes none. Without a flush a warm call finds its data in L2.
            options = ["--csv", "--print-units", "base", "--log-file", str(log), "--force-overwrite"]
            options += ["--profile-from-start", "off", "--target-processes", "all", "--clock-control", "none"]
            options += ["--cache-control", "none" if calls.warm else "all", "--metrics", ",".join(wanted)]
            # It keeps separate files in the home folder, where a worker cannot write.
            home = {**os.environ, "HOME": str(folder)}
            process = subprocess.Popen([ncu, *options, *calls.again], stdin=subprocess.DEVNULL, env=home)
            try:
                while process.poll() is None and time.monotonic() < until:
                    calls.alive()
                    time.sleep(0.1)
            finally:
                process.kill()
                process.wait()
            text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
            # An older or newer ncu lacks some metrics, and then counts nothing: "find metric regex:^dram__bytes\.(sum".
            names = re.findall(r"find metric (?:regex:\^)?([\w\\.]+)", text)
            unknown = [name.replace("\\", "").rstrip(".") for name in names]
            kept = [metric for metric in wanted if not any(f"{metric}.".startswith(f"{name}.") for name in unknown)]
            if len(kept) in {0, len(wanted)}:
                break
            wanted = kept
    if "ERR_NVGPUCTRPERM" in text:
        return Counters(note=Reason("counters_refused"))
    if counters := read_counters(text, calls.cases):
        return Counters("ncu", counters)
    late = [f"it took longer than {LIMIT_S:.0f} s"] if time.monotonic() >= until else []
    errors = [*re.findall(r"^==ERROR== (.+?)\.?$", text, re.M), *re.findall(r"^==WARNING== (.+?)\.?$", text, re.M)]
    message = [*late, *errors, f"exit code {process.returncode}"][0]
    return Counters(note=Reason("counters_failed", {"message": message}))


def read_counters(text: str, cases: Sequence[str]) -> dict[str, dict[str, float]]:
    """Counters of each case from what `ncu --csv --metrics` prints: a row for each kernel and metric, in order."""
    calls: list[dict[str, dict[str, float]]] = []  # of each call: metrics of each kernel
    last = ""
    for row in csv.DictReader(line for line in text.splitlines() if line.startswith('"')):
        kernel = row.get("ID") or ""
        if (row.get("Kernel Name") or "").startswith(MARK):
            calls += [{}] if kernel != last else []
        elif calls:
            with contextlib.suppress(ValueError):  # n/a or nan: this chip has no such metric
                if math.isfinite(value := float((row.get("Metric Value") or "").replace(",", ""))):
                    calls[-1].setdefault(kernel, {})[row.get("Metric Name") or ""] = value
        last = kernel
    found = {case: dict(_sum_up(call.values())) for case, call in zip(cases, calls, strict=False)}
    return {case: counters for case, counters in found.items() if counters}


def _sum_up(kernels: Iterable[Mapping[str, float]]) -> Iterator[tuple[str, float]]:
    """Counters of a call from its kernels' metrics."""
    launches = list(kernels)
    averages = average_counters((metrics, metrics.get(_TIME, 1.0)) for metrics in launches)
    averages |= {
        name: sum(counters.get(name, 0.0) for counters in launches) for name in averages if name.endswith(".sum")
    }
    for name, metric in NAMES.items():
        unit = averages.get(_LATENCY) if name.startswith("stall_") else 100.0 if "pct" in metric else 1.0
        if metric in averages and unit:
            yield name, averages[metric] / unit
    if averages.get(_WAVEFRONTS):
        yield "bank_conflicts", min(averages.get(_CONFLICTS, 0.0) / averages[_WAVEFRONTS], 1.0)


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
