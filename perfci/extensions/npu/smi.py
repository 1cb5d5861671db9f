"""The state of an Ascend chip, from the texts that `npu-smi` prints. Needs no torch and no context on the chip.

The layouts are those of the tool's documentation, releases 21 to 25. What is absent, or laid out otherwise, is unknown.
"""

import itertools
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from perfci.core.model import DeviceState

VISIBLE = "ASCEND_RT_VISIBLE_DEVICES"  # A process's devices by logical number. npu-smi counts cards and their chips.
MEGABYTE = 1 << 20
USABLE = frozenset({"OK", "UNKNOWN"})  # healths of a chip that can be used
_PLACES = ("/usr/local/bin/npu-smi", "/usr/local/sbin/npu-smi")  # folders of the driver, which are not always on PATH
_LIMIT_S = 15.0
_FRESH_S = 1.0  # readings are at most so old: each starts a process of some tenths of a second
_UNNAMED = frozenset({"-", "NA", "N/A", ""})


@dataclass(frozen=True)
class NpuPlace:
    """Where npu-smi sees a chip: its card, and its number on the card."""

    npu: int
    chip: int = 0


@dataclass(frozen=True)
class NpuChip:
    """A chip's lines of `npu-smi info`. Memory is its HBM."""

    place: NpuPlace
    name: str
    health: str  # OK, Warning, Alarm, Critical or UNKNOWN
    power_w: float | None = None
    temperature_c: int | None = None
    memory_used_bytes: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True)
class NpuProcess:
    """A process on a chip."""

    place: NpuPlace
    pid: int
    inner_pid: int | None = None  # in its container, if the tool has that


@dataclass(frozen=True)
class NpuTable:
    """Contents of `npu-smi info`."""

    driver: str | None = None
    chips: tuple[NpuChip, ...] = ()
    processes: tuple[NpuProcess, ...] | None = None  # None if the output has no such table

    def chip(self, place: NpuPlace | None) -> NpuChip | None:
        return next((chip for chip in self.chips if chip.place == place), None)


# --- parsing ----------------------------------------------------------------------------------------------------------


def parse_info(text: str) -> NpuTable:
    """Both tables of `npu-smi info`. A line that fits neither is passed over."""
    rows = (line.strip() for line in text.splitlines())
    lines = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows if row.startswith("|")]
    version = re.search(r"Version:\s*(\S+)", text)
    start = next((place for place, cells in enumerate(lines) if "Process id" in cells), len(lines))
    chips = tuple(_parse_chips(lines[:start]))
    processes = []
    for cells in lines[start + 1 :]:
        row = dict(zip(lines[start], cells, strict=False))
        place, pid = [int(digits) for digits in re.findall(r"\d+", cells[0])], _parse_whole(row.get("Process id"))
        if len(cells) == len(lines[start]) and place and pid is not None:
            inner_pid = _parse_whole(row.get("Process id in container"))
            processes.append(NpuProcess(NpuPlace(*place[:2]), pid, inner_pid))
    return NpuTable(version[1] if version else None, chips, tuple(processes) if start < len(lines) else None)


def parse_mapping(text: str) -> dict[int, NpuPlace]:
    """Logical number of a device -> where it is, of `npu-smi info -m`. Chips without one, such as Mcu, are left out."""
    mapping: dict[int, NpuPlace] = {}
    header: list[str] = []
    for line in text.splitlines():
        cells = re.split(r"\s{2,}", line.strip())
        header = cells if "NPU ID" in cells else header
        row = dict(zip(header, cells, strict=False))
        number, npu, chip = (_parse_whole(row.get(name)) for name in ("Chip Logic ID", "NPU ID", "Chip ID"))
        if number is not None and npu is not None and chip is not None:
            mapping[number] = NpuPlace(npu, chip)
    return mapping


def parse_fields(text: str, chip: int = 0) -> dict[str, str]:
    """Fields of `npu-smi info -t ...` that belong to a chip, or to its card. Those of a card's controller do not."""
    fields: dict[str, str] = {}
    current: int | None = None
    for line in text.splitlines():
        name, colon, value = (part.strip() for part in line.partition(" :"))
        if name == "Chip ID":
            current = _parse_whole(value)
        elif name == "Chip Name" and value.casefold() == "mcu":
            break
        if colon and current in {None, chip}:
            fields.setdefault(name, value)
    return fields


def _parse_chips(lines: Sequence[list[str]]) -> Iterator[NpuChip]:
    """A chip has two lines: card, name, health, power, temperature. Then chip, bus, use of its cores and memories."""
    for upper, lower in itertools.pairwise(lines):
        card = re.fullmatch(r"(\d+)\s+(\S.*)", upper[0])
        inner = re.fullmatch(r"(\d+)(?:\s+[\d-]+)?", lower[0])
        if len(upper) != 3 or len(lower) != 3 or not card or not inner:
            continue
        power, temperature = [*upper[2].split(), "-", "-"][:2]
        # HBM stands behind the card's DDR, if there is both.
        used, whole = ([(0, 0), *re.findall(r"(\d+)\s*/\s*(\d+)", lower[2])])[-1]
        memory = (int(used) * MEGABYTE, int(whole) * MEGABYTE) if int(whole) else (None, None)
        watts = float(power) if re.fullmatch(r"\d+(\.\d+)?", power) else None
        place = NpuPlace(int(card[1]), int(inner[1]))
        yield NpuChip(place, card[2], upper[1], watts, _parse_whole(temperature), *memory)


def _parse_whole(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


# --- asking -----------------------------------------------------------------------------------------------------------


def ask(*arguments: str) -> str | None:
    """The output of `npu-smi`. None if there is no such tool, or it fails, or does not answer in time."""
    tool = shutil.which("npu-smi") or next((place for place in _PLACES if os.access(place, os.X_OK)), None)
    if tool is None:
        return None
    try:
        done = subprocess.run([tool, *arguments], capture_output=True, check=False, timeout=_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


def visible_number(variables: Mapping[str, str]) -> int | None:
    """The logical number of a process's first device. None if the variable names none."""
    first = variables.get(VISIBLE, "").split(",")[0].strip() or "0"
    return int(first) if first.isdecimal() else None


class Monitor:
    """One chip as the process knows it. Every reading is None if npu-smi does not give it."""

    def __init__(self, asking: Callable[..., str | None] = ask, variables: Mapping[str, str] = os.environ) -> None:
        self._ask = asking
        self._read_s = float("-inf")
        self._table = NpuTable()
        self.place: NpuPlace | None = None
        number = visible_number(variables)
        if number is not None:
            # As the tool maps it, else the chip that comes so many places after the first.
            mapping = parse_mapping(self._ask("info", "-m") or "")
            mapping = mapping or {at: chip.place for at, chip in enumerate(self.table().chips)}
            self.place = mapping.get(number)

    def table(self) -> NpuTable:
        """Contents of `npu-smi info`, at most a second old."""
        if time.monotonic() - self._read_s >= _FRESH_S:
            self._table = parse_info(self._ask("info") or "")
            self._read_s = time.monotonic()
        return self._table

    def serial(self) -> str | None:
        """The chip's number, burnt into its die. Else its card's, with the chip's place on it."""
        if self.place is None:
            return None
        chip = str(self.place.chip)
        die = self._fields("board", "-c", chip)
        for name in ("VDie ID", "Die ID"):
            if (named := die.get(name, "").replace(" ", "")) not in _UNNAMED:
                return named
        serial = self._fields("board").get("Serial Number", "")
        return None if serial in _UNNAMED else f"{serial}-{chip}"

    def clock_mhz(self) -> int | None:
        return _parse_whole(self._fields("common").get("Aicore curFreq(MHZ)"))

    def rated_mhz(self) -> int | None:
        return _parse_whole(self._fields("common").get("Aicore Freq(MHZ)"))

    def state(self) -> DeviceState:
        """Clock, temperature, power, memory in use and foreign processes now. The tool knows of no throttling."""
        chip = self.table().chip(self.place)
        if chip is None:
            return DeviceState(sm_clock_mhz=self.clock_mhz())
        return DeviceState(
            sm_clock_mhz=self.clock_mhz(),
            temperature_c=chip.temperature_c,
            power_w=chip.power_w,
            foreign_processes=count_foreign(self.table(), self.place, os.getpid()),
            memory_used_bytes=chip.memory_used_bytes,
        )

    def _fields(self, kind: str, *more: str) -> dict[str, str]:
        if self.place is None:
            return {}
        text = self._ask("info", "-t", kind, "-i", str(self.place.npu), *more)
        return parse_fields(text or "", self.place.chip)


def count_foreign(table: NpuTable, place: NpuPlace | None, own: int, *, own_context: bool = True) -> int | None:
    """Processes of others than `own` on a chip. None if the table does not list processes."""
    if table.processes is None or table.chip(place) is None:
        return None
    there = {process.pid: process.inner_pid for process in table.processes if process.place == place}
    others = [pid for pid, inner in there.items() if own not in {pid, inner}]
    # In a container the tool counts in the host's numbers, so one of the strangers is this process.
    unseen = own_context and len(others) == len(there)
    return max(len(others) - unseen, 0)
