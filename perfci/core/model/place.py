"""Where a run took place: device, environment, ceilings, and the state beside a block."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from perfci.core.model.basics import Amount, Count, Whole

OFFLINE = "offline"  # kind of device of a run that compiles and does nothing else
UNTIMED = frozenset({"cpu", OFFLINE})  # kinds of devices on which nothing is timed


@dataclass(frozen=True)
class Device:
    """The accelerator of a run, or its stand-in."""

    kind: str  # cuda, npu, cpu or fake
    name: str  # the maker's model name: NVIDIA H200
    key: str  # folder of its baselines: the model, not the board: nvidia-h200
    uuid: str | None = None  # the board
    driver: str | None = None
    runtime: str | None = None  # CUDA or CANN version, with its name: CUDA 13.0
    processors: Count | None = None  # streaming multiprocessors, or vector cores
    l2_bytes: Count | None = None
    memory_bytes: Count | None = None
    mig: str | None = None
    """the slice of the board that this is, 1g.18gb. None for a whole board, and where that is not known"""
    power_limit_w: Amount | None = None  # what the driver holds the board to


def board_key(uuid: str) -> str:
    """A board's UUID in one spelling: drivers and people write it with and without GPU-, hyphens and capitals.

    >>> board_key("GPU-BAC0B368-7024"), board_key(" bac0b3687024 ")
    ('bac0b3687024', 'bac0b3687024')
    """
    return uuid.strip().casefold().removeprefix("gpu-").replace("-", "")


@dataclass(frozen=True)
class Environment:
    """All that may move a number without the kernel changing."""

    device: Device
    timer: str | None  # how launches were timed: activity, event, virtual. None if nothing was timed
    python: str
    packages: Mapping[str, str]  # installed versions of what matters: torch, triton, numpy, ...
    host: str
    system: str
    commit: str | None = None  # HEAD of the project under test
    dirty: bool = False  # tracked files differ from that commit
    branch: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    """environment variables that change timing or code, such as CUDA_LAUNCH_BLOCKING"""


class Bearing(StrEnum):
    """The meaning for stored numbers of another value of a field of the environment."""

    APART = "apart"  # the two are never compared
    MOVES = "moves"
    """it can move a number without the kernel changing, so nothing is blamed on the kernel. One value a baseline"""
    BOARD = "board"  # the same, but runs of several boards may make up one baseline, and widen what it calls usual
    NAMED = "named"  # it is named, and changes no verdict


@dataclass(frozen=True)
class Difference:
    """A field in which two environments differ."""

    field: str  # dotted: device.driver, packages.torch, variables.CUDA_LAUNCH_BLOCKING
    before: str | None  # None if it was not set, or not installed
    after: str | None
    bearing: Bearing = Bearing.MOVES

    @property
    def moves(self) -> bool:
        """Whether it can move a number without the kernel changing."""
        return self.bearing is not Bearing.NAMED


@dataclass(frozen=True)
class Limits:
    """Ceilings of this very device, measured in this very run."""

    copy_gbps: Amount | None = None  # read plus written gigabytes (1e9) a second of a large device-to-device copy
    matmul_tflops: Mapping[str, Amount] = field(default_factory=dict)
    """dtype -> tera floating-point operations a second of a large library matrix product"""


@dataclass(frozen=True)
class DeviceState:
    """Read from the device beside a block."""

    sm_clock_mhz: Count | None = None
    memory_clock_mhz: Count | None = None
    temperature_c: Whole | None = None
    power_w: Amount | None = None
    throttle: tuple[str, ...] = ()  # why the clock is held down: power_cap, thermal, power_brake, ...
    foreign_processes: Count | None = None  # processes of others on the device
    memory_used_bytes: Count | None = None  # of the device's memory, by whomever. None if that is not known
    ecc_errors: Count | None = None  # in its memory, that could not be corrected, since the driver was loaded
