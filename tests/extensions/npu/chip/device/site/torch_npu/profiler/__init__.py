"""torch_npu.profiler of the stand-in: writes kernel_details.csv from the device's records.

NPU_STAND_IN_PROFILER=missing writes no file from the second session on, as happens on real machines.
"""

import csv
import enum
import os
import socket
import sys
import time
from pathlib import Path

import npu_device

from torch_npu.profiler import profiler  # noqa: F401 - a part of the package

__all__ = [
    "AiCMetrics",
    "ExportType",
    "ProfilerActivity",
    "ProfilerLevel",
    "_ExperimentalConfig",
    "profile",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]


HEADERS = [
    "Device_id", "Model ID", "Task ID", "Stream ID", "Name", "Type", "OP State", "Accelerator Core", "Start Time(us)",
    "Duration(us)", "Wait Time(us)", "Block Num", "Mix Block Num", "HF32 Eligible", "Input Shapes", "Input Data Types",
    "Input Formats", "Output Shapes", "Output Data Types", "Output Formats", "Context ID",
]  # fmt: skip

RATIOS = ["aic_mac_ratio", "aiv_vec_ratio", "aiv_mte2_ratio", "aiv_mte3_ratio"]
"""Of the shares of PipeUtilization, which profilers write behind the other columns."""

EPOCH_US = 1_760_000_000_000_000
"""Real start times are microseconds since 1970."""


class ProfilerActivity(enum.Enum):
    CPU = 0
    NPU = 1


class ProfilerLevel:
    Level0 = "Level0"
    Level1 = "Level1"
    Level2 = "Level2"
    Level_none = "Level_none"


class AiCMetrics:
    PipeUtilization = "PipeUtilization"
    AiCoreNone = "ACL_AICORE_NONE"


class ExportType:
    Db = "db"
    Text = "text"


class ProfilerAction(enum.Enum):
    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


class _ExperimentalConfig:
    def __init__(
        self,
        profiler_level=ProfilerLevel.Level0,
        aic_metrics=AiCMetrics.PipeUtilization,
        l2_cache=False,
        msprof_tx=False,
        data_simplification=True,
        record_op_args=False,
        op_attr=False,
        gc_detect_threshold=None,
        export_type=ExportType.Text,
    ):
        self.profiler_level = profiler_level
        self.aic_metrics = aic_metrics
        self.export_type = export_type


def supported_activities():
    return {ProfilerActivity.CPU, ProfilerActivity.NPU}


def schedule(wait, active, warmup=0, repeat=0, skip_first=0):
    """Which steps are recorded."""

    def action(step):
        step -= skip_first
        length = wait + warmup + active
        if step < 0 or (repeat and step >= repeat * length) or step % length < wait:
            return ProfilerAction.NONE
        if step % length < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if step % length < length - 1 else ProfilerAction.RECORD_AND_SAVE

    return action


def tensorboard_trace_handler(dir_name=None, worker_name=None, analyse_flag=True, async_mode=False):
    """Have each recorded window written below a folder; analysing is what makes the CSV."""

    def handler(session):
        session.folder = _new_folder(dir_name, worker_name)
        if analyse_flag:
            session.analyse()

    return handler


def _new_folder(dir_name, worker_name):
    name = f"{worker_name or socket.gethostname()}_{os.getpid()}_{time.time_ns() // 1_000_000}_ascend_pt"
    folder = Path(dir_name or ".") / name
    folder.mkdir(parents=True)
    return folder


class profile:  # noqa: N801 - its name in torch_npu
    """A session; one at a time."""

    running = False
    sessions = 0

    def __init__(
        self,
        *,
        activities=None,
        schedule=None,
        on_trace_ready=None,
        record_shapes=False,
        profile_memory=False,
        with_stack=False,
        with_flops=False,
        with_modules=False,
        experimental_config=None,
        use_cuda=None,
    ):
        self._schedule = schedule or (lambda _step: ProfilerAction.RECORD)
        self._ready = on_trace_ready
        self._level = experimental_config.profiler_level if experimental_config else ProfilerLevel.Level0
        self._metrics = experimental_config.aic_metrics if experimental_config else AiCMetrics.AiCoreNone
        self._step = 0
        self._records = []
        self.folder = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        if profile.running:
            raise RuntimeError("a profiler session is running in this process already")
        profile.running = True
        npu_device.forget()

    def step(self):
        action = self._schedule(self._step)
        if action in {ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE}:
            self._records += npu_device.records()
        npu_device.forget()
        if action is ProfilerAction.RECORD_AND_SAVE:
            self._save()
        self._step += 1

    def stop(self):
        if self._schedule(self._step) in {ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE}:
            self._records += npu_device.records()
        npu_device.forget()
        self._save()
        profile.running = False

    def _save(self):
        if self._records and self._ready is not None:
            self._ready(self)
        self._records = []

    def analyse(self):
        """Write the CSV, unless it is to be missing."""
        if not _is_missing():
            full = self._metrics == AiCMetrics.PipeUtilization
            _write(self.folder, [*HEADERS, *RATIOS] if full else HEADERS, self._records)


def _is_missing():
    """Whether no file is written now. Then perfci need not wait as long as for a real parser."""
    profile.sessions += 1
    missing = profile.sessions > 1 and os.environ.get("NPU_STAND_IN_PROFILER") == "missing"
    if missing and (timer := sys.modules.get("perfci.extensions.npu.profiler")):
        timer.WAIT_S = 0.2
    return missing


def _write(folder, headers, records):
    output = folder / "ASCEND_PROFILER_OUTPUT"
    output.mkdir()
    part = output / "kernel_details.part"
    with part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(headers)
        writer.writerows(_row(number, *record)[: len(headers)] for number, record in enumerate(records))
    part.rename(output / "kernel_details.csv")


def _row(number, name, kind, core, start_ns, duration_ns, stream, blocks, _bytes):
    start = f"{EPOCH_US + start_ns // 1000}.{start_ns % 1000:03d}\t"
    unknown = ["N/A"] * 6
    return [
        0, 4294967295, number, stream, name, kind, "N/A", core, start, f"{duration_ns / 1000:.3f}", "0.4", blocks, 0,
        "NO", *unknown, "N/A", "0.0", "0.125", "0.75", "0.25",
    ]  # fmt: skip
