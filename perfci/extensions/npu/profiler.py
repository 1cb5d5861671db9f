"""Timer of the first tier on Ascend: the chip's records, as torch_npu.profiler writes them to kernel_details.csv.

Copies by the chip's copy engine are in task_time_*.csv beside it, if the parser leaves that. Whatever is missing, cut
off or unreadable ends the session with a DeviceError.
"""

import contextlib
import csv
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from perfci.core.errors import DeviceError, RecordsLostError
from perfci.core.model.measured import Launch
from perfci.core.temporary import temporary_folder
from perfci.device.timers import NAME, ActivitySession, CacheFlush, Record, split_at_flushes
from perfci.extensions.common.counters import average_counters

DETAILS = "kernel_details.csv"  # below ASCEND_PROFILER_OUTPUT
TASKS = "task_time_*.csv"  # below PROF_*/mindstudio_profiler_output

WAIT_S, _POLL_S = 20.0, 0.5  # The parser works in separate processes. So long its file is waited for, each time.
RETRIES = 2  # how often the parser is asked again

_COLUMNS = {  # ours -> those of kernel_details.csv and of the op_summary that it is made from
    "name": ("Name", "Op Name"),
    "kind": ("Type", "OP Type"),
    "core": ("Accelerator Core", "Task Type"),
    "start": ("Start Time(us)", "Task Start Time(us)"),
    "duration": ("Duration(us)", "Task Duration(us)"),
    "stream": ("Stream ID", "Stream Id"),
}
_UNITS = {"mac": "cube", "vec": "vector", "mte1": "mte", "mte2": "mte", "mte3": "mte"}
"""Unit in the name of a ratio of AiCMetrics.PipeUtilization (aic_mac_ratio) -> counter. The busiest unit counts."""
_CORE_TIMES = ("aicore_time(us)", "aiv_time(us)")  # how long a kernel's cube and vector cores worked, on average
_NEEDED = ("name", "start", "duration")
_HOST_CORES = frozenset({"AI_CPU", "AICPU", "HOST_CPU"})  # for operations that no AI core computes
_COPIES = re.compile(r"MEMCPY|SDMA|PCIE_DMA|MEMSET", re.IGNORECASE)  # kernel_type of tasks that move memory


@dataclass(frozen=True)
class NpuRecord(Record):
    """One kernel or copy. `core` is what computed it, if that is known."""

    core: str = ""
    counters: Mapping[str, float] = field(default_factory=dict)


# --- reading ----------------------------------------------------------------------------------------------------------


def read_details(text: str) -> list[NpuRecord]:
    """Kernels of a kernel_details.csv, in the file's order. Raises ValueError with the reason."""
    lines = list(csv.reader(text.removeprefix("\ufeff").splitlines()))
    if not lines:
        raise ValueError("it is empty")
    header = [cell.strip() for cell in lines[0]]
    places = {ours: header.index(name) for ours, names in _COLUMNS.items() for name in names if name in header}
    if missing := [_COLUMNS[name][0] for name in _NEEDED if name not in places]:
        raise ValueError(f"it has no column {missing[0]}")
    rows = []
    for number, cells in enumerate(lines[1:], 2):
        if len(cells) != len(header):
            raise ValueError(f"line {number} has {len(cells)} of {len(header)} columns")
        # Start times have a tab behind them, so that spreadsheets leave them alone.
        row = _parse_row({ours: cells[place].strip() for ours, place in places.items()}, number)
        counters: dict[str, float] = {}
        for name, cell in zip(header, cells, strict=True):
            unit = _UNITS.get(name.removesuffix("_ratio").rpartition("_")[2]) if name.endswith("_ratio") else None
            with contextlib.suppress(ValueError):  # N/A
                counters |= {unit: max(counters.get(unit, 0.0), float(cell))} if unit else {}
                if name in _CORE_TIMES and row.duration_ns:
                    share = min(1000 * float(cell) / row.duration_ns, 1.0)
                    counters["ai_core"] = max(counters.get("ai_core", 0.0), share)
        rows.append(replace(row, counters=counters))
    return rows


def read_copies(text: str) -> list[NpuRecord]:
    """Copies of a task_time_*.csv. None if it is laid out otherwise, since kernels stand in another file."""
    copies = []
    try:
        for number, cells in enumerate(csv.DictReader(text.removeprefix("\ufeff").splitlines()), 2):
            kind = (cells.get("kernel_type") or "").strip()
            if _COPIES.search(kind):
                task_cells = {ours: (cells.get(theirs) or "").strip() for ours, theirs in _TASK_COLUMNS.items()}
                copies.append(replace(_parse_row(task_cells, number), name=kind, core=""))
    except (ValueError, csv.Error):
        return []
    return copies


_TASK_COLUMNS = {"name": "kernel_name", "start": "task_start(us)", "duration": "task_time(us)", "stream": "stream_id"}


def _parse_row(cells: Mapping[str, str], number: int) -> NpuRecord:
    start, duration = _nanoseconds(cells["start"], number), _nanoseconds(cells["duration"], number)
    is_flush = NAME in (cells["name"], cells.get("kind")) or cells["name"].startswith(f"{NAME}_")
    stream = cells.get("stream", "")
    number = int(stream) if stream.isdigit() else 0
    return NpuRecord(start, duration, NAME if is_flush else cells["name"], number, cells.get("core", ""))


def _nanoseconds(text: str, number: int) -> int:
    """Of microseconds as text, which are too many digits for a float. One written as 1.7E+15 has lost its last ones."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite() or value < 0 or "E" in text.upper():
        raise ValueError(f"line {number} has the time {text!r}")
    return int(value * 1000)


# --- a session --------------------------------------------------------------------------------------------------------


class NpuActivitySession(ActivitySession):
    """Queues launches between flushes. Reads the chip's records when the profiler's files are parsed."""

    def counters(self) -> list[dict[str, float]]:
        """Counters of each launch: of several kernels the means, weighted by time."""
        groups = split_at_flushes(self._records, self._marks)
        return [
            average_counters(
                (group.counters, group.duration_ns) for group in groups[mark] if isinstance(group, NpuRecord)
            )
            for mark, _ in self._timed
        ]

    def launches(self) -> Sequence[Launch]:
        groups = split_at_flushes(self._records, self._marks)
        on_cpu = [[row.name for row in group if getattr(row, "core", "") in _HOST_CORES] for group in groups]
        timed = zip(super().launches(), self._timed, strict=True)
        return [replace(launch, fell_back=next(iter(on_cpu[mark]), None)) for launch, (mark, _) in timed]


@contextmanager
def npu_profiler_session(
    profiler: Any, flush: CacheFlush, synchronize: Callable[[], None], ready: Callable[[], None],
    metrics: str = "AiCoreNone",
) -> Iterator[NpuActivitySession]:  # fmt: skip
    """Run a session of torch_npu.profiler, one at a time in a process. Raises DeviceError if there are no records.

    metrics: name of the counters in torch_npu.profiler.AiCMetrics. They lengthen kernels, so that timers read none.
    """
    session = NpuActivitySession(flush)
    config = profiler._ExperimentalConfig(
        profiler_level=profiler.ProfilerLevel.Level1,
        aic_metrics=getattr(profiler.AiCMetrics, metrics),
        export_type=profiler.ExportType.Text,
        data_simplification=False,  # else copies are thrown away with CANN's files
    )
    with temporary_folder("npu") as folder:
        profile = profiler.profile(
            activities=[profiler.ProfilerActivity.NPU],
            schedule=profiler.schedule(wait=0, warmup=1, active=1, repeat=1),
            on_trace_ready=profiler.tensorboard_trace_handler(str(folder)),
            experimental_config=config,
        )
        with profile as running:
            synchronize()
            running.step()  # from warming up to recording
            ready()
            yield session
            session.pause()
            # Kernels that are still queued when the step ends fall outside of it.
            synchronize()
            running.step()
        session.finish(list(_collect(profiler, folder, session._marks)))


def _collect(profiler: Any, folder: Path, expected: int) -> list[NpuRecord]:
    """The session's records. Asks the offline parser again, on what the session has left, if they are not there."""
    analyse = getattr(getattr(profiler, "profiler", None), "analyse", None)
    tries, until = 0, time.monotonic() + WAIT_S
    while True:
        try:
            return _read_records(folder, expected)
        except DeviceError:
            if time.monotonic() < until:
                time.sleep(_POLL_S)
                continue
            if tries == RETRIES or analyse is None:
                raise
        tries, until = tries + 1, time.monotonic() + WAIT_S
        analyse(str(folder))


def _read_records(folder: Path, expected: int) -> list[NpuRecord]:
    files = sorted(folder.rglob(DETAILS))
    if not files:
        raise DeviceError("npu_details_missing", file=DETAILS)
    try:
        rows = read_details(files[-1].read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError, csv.Error) as error:
        raise DeviceError("npu_details_garbled", file=DETAILS, error=str(error)) from error
    seen = sum(row.name == NAME for row in rows)
    if seen != expected:
        error_type = RecordsLostError if seen < expected else DeviceError
        raise error_type("npu_details_short", file=DETAILS, expected=expected, seen=seen)
    for path in folder.rglob(TASKS):
        rows += read_copies(path.read_text(encoding="utf-8", errors="replace"))
    return rows
