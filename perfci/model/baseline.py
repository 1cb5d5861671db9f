"""What is stored for later runs to be held against."""

from __future__ import annotations

from dataclasses import dataclass

from perfci.model.place import Environment
from perfci.model.run import FORMAT


@dataclass(frozen=True)
class BaselineBlock:
    """A block as kept in a baseline."""

    run: str
    """id of the run it comes from"""
    kernel_us: float
    """median"""
    reference_us: float
    """median"""
    shift: float
    """of kernel against reference, log"""
    span_us: float | None = None
    activities: int | None = None
    """kernels, copies and memsets a launch"""


@dataclass(frozen=True)
class BaselineCase:
    """Accepted blocks of a case."""

    case: str
    blocks: tuple[BaselineBlock, ...]


@dataclass(frozen=True)
class BaselineRun:
    """Where blocks of a baseline come from."""

    id: str
    created: str
    environment: Environment


@dataclass(frozen=True)
class Baseline:
    """`baselines/<device key>/<op>.json`."""

    op: str
    device: str
    """device key"""
    timer: str
    runs: tuple[BaselineRun, ...]
    cases: tuple[BaselineCase, ...]
    format: int = FORMAT
