"""An invented torch_npu: a chip that records what it runs, and a profiler that writes the records."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

NAME = "perfci_l2_flush"
COLUMNS = (
    "Device_id",
    "Name",
    "Type",
    "Accelerator Core",
    "Start Time(us)",
    "Duration(us)",
    "Wait Time(us)",
    "Block Dim",
)
START_US = 1774670741777000
"""Microseconds since 1970, as real start times are: a float keeps no nanoseconds of them."""


@dataclass
class Chip:
    """Executes one thing after the other."""

    now_ns: int = 0
    rows: list[tuple[str, str, int, int]] = field(default_factory=list)
    waited: int = 0
    """synchronisations"""

    def run(self, name: str, us: float = 10.0, core: str = "AI_VECTOR_CORE", gap_us: float = 1.0) -> None:
        self.now_ns += round(gap_us * 1000)
        self.rows.append((name, core, self.now_ns, round(us * 1000)))
        self.now_ns += round(us * 1000)

    def synchronize(self) -> None:
        self.waited += 1


class Flush:
    """perfci's flush and mark on a chip."""

    def __init__(self, chip: Chip) -> None:
        self.chip = chip

    def __call__(self) -> None:
        self.chip.run(NAME, 240.0)

    def mark(self) -> None:
        self.chip.run(NAME, 2.0)


class Event:
    """An event that knows when it was recorded."""

    chip: Chip

    def __init__(self, enable_timing: bool = False) -> None:
        self.timed = enable_timing
        self.at_ns = 0

    def record(self) -> None:
        self.at_ns = self.chip.now_ns

    def elapsed_time(self, end: Event) -> float:
        assert self.timed
        assert end.timed
        return (end.at_ns - self.at_ns) / 1e6


def event_of(chip: Chip) -> type[Event]:
    return type("Event", (Event,), {"chip": chip})


def details(rows: list[tuple[str, str, int, int]], columns: tuple[str, ...] = COLUMNS) -> list[list[str]]:
    """The lines of a kernel_details.csv."""
    told = []
    for name, core, start_ns, duration_ns in rows:
        start = f"{START_US + start_ns // 1000}.{start_ns % 1000:03d}\t"
        told.append(["0", name, name, core, start, f"{duration_ns / 1000:.3f}", "0", "48"])
    return [list(columns), *told]


def write(folder: Path, lines: list[list[str]]) -> None:
    """The place of the file of torch_npu's parser."""
    output = folder / "host_1_20260101000000000_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True, exist_ok=True)
    with (output / "kernel_details.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(lines)


class Profiler:
    """torch_npu.profiler, as far as perfci uses it."""

    ProfilerActivity = SimpleNamespace(CPU="cpu", NPU="npu")
    ProfilerLevel = SimpleNamespace(Level0="Level0", Level1="Level1")
    AiCMetrics = SimpleNamespace(AiCoreNone="ACL_AICORE_NONE", PipeUtilization="ACL_AICORE_PIPE_UTILIZATION")
    ExportType = SimpleNamespace(Text="text", Db="db")

    def __init__(self, chip: Chip, spoil: Callable[[list[list[str]]], list[list[str]] | None] = lambda lines: lines):
        self.chip, self.spoil = chip, spoil
        self.asked: dict[str, object] = {}
        self.parsed = 0
        """how often the offline parser was asked"""
        self.profiler = SimpleNamespace(analyse=self.analyse)
        self._folder, self._began = Path(), 0
        self._kept: list[list[str]] = []

    def _ExperimentalConfig(self, **asked: object) -> dict[str, object]:  # noqa: N802 - its name in torch_npu
        return asked

    def schedule(self, **asked: int) -> dict[str, int]:
        return asked

    def tensorboard_trace_handler(self, folder: str) -> Path:
        return Path(folder)

    @contextmanager
    def profile(self, **asked: object) -> Iterator[Profiler]:
        self.asked, self._folder, self._steps = asked, asked["on_trace_ready"], 0  # type: ignore[assignment]
        yield self

    def step(self) -> None:
        """The first step ends the warm-up, the second the recording."""
        self._steps += 1
        if self._steps == 1:
            self._began, self._waited = len(self.chip.rows), self.chip.waited
            return
        # What is still queued when the step ends is not recorded.
        recorded = self.chip.rows[self._began :] if self.chip.waited > self._waited else []
        self._kept = details(recorded)
        self._write()

    def analyse(self, path: str) -> None:
        assert Path(path) == self._folder
        self.parsed += 1
        self._write()

    def _write(self) -> None:
        lines = self.spoil(self._kept)
        if lines is not None:
            write(self._folder, lines)
