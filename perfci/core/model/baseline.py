"""What is stored for later runs to be held against."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from perfci.core.model.basics import Change, Count, Shift, Time
from perfci.core.model.measured import Cache
from perfci.core.model.place import Difference, Environment
from perfci.core.model.run import FORMAT


@dataclass(frozen=True)
class BaselineBlock:
    """A block as kept in a baseline."""

    run: str  # id of the run it comes from
    kernel_us: Time  # median
    reference_us: Time  # median
    shift: Shift  # of kernel against reference, log
    span_us: Time | None = None
    activities: Count | None = None  # kernels, copies and memsets a launch


@dataclass(frozen=True)
class BaselineCase:
    """Accepted blocks of a case."""

    case: str
    blocks: tuple[BaselineBlock, ...]
    cache: Cache = "cold"


@dataclass(frozen=True)
class BaselineRun:
    """Where blocks of a baseline come from."""

    id: str
    created: str
    environment: Environment


@dataclass(frozen=True)
class StepSide:
    """What was measured on one side of a step."""

    run_ids: tuple[str, ...]
    commits: tuple[str, ...]  # of the project under test
    boards: tuple[str, ...] = ()  # UUIDs
    driver: str | None = None
    runtime: str | None = None
    python: str | None = None
    packages: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class StepCase:
    """How one case moved with the environment: ratios - 1, plus is slower."""

    case: str
    kernel: Change
    reference: Change


@dataclass(frozen=True)
class Step:
    """A change of the environment after which numbers were recorded anew: no one's kernel did it."""

    date: str  # ISO 8601, UTC
    why: str
    before: StepSide
    after: StepSide
    differs: tuple[Difference, ...]
    cases: tuple[StepCase, ...]


@dataclass(frozen=True)
class Baseline:
    """`baselines/<device key>/<op>.json`."""

    op: str
    device: str  # device key
    timer: str
    runs: tuple[BaselineRun, ...]
    cases: tuple[BaselineCase, ...]
    steps: tuple[Step, ...] = ()
    """changes of the environment that these numbers went through, the oldest first. Never taken away"""
    format: int = FORMAT
