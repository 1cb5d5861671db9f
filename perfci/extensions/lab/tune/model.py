"""How long a call takes on a device that is not here: a model (docs/tuning.md), never a measurement."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LATENCY_NS = 700.0  # assumed: from asking device memory to having it, under load
LOAD_BYTES = 32  # assumed: bytes under way of a thread that loads into registers, two vectors of 16

ISSUE_WARPS = 4
"""Assumed: resident warps, one for each of a processor's four schedulers, from which on products are not held up."""

SPILL_TRIPS = 2  # each spilled byte is stored once and loaded once


@dataclass(frozen=True)
class CompiledLaunch:
    """One launch as compiled."""

    programs: int
    warps: int  # of a program
    resident: int  # programs that a processor holds at once; 0: none fits
    shared_bytes: int
    spill_bytes: int = 0  # of a thread


@dataclass(frozen=True)
class Work:
    """A case's least work."""

    bytes: float | None
    flops: float | None
    dtype: str | None
    loads: float | None = None  # bytes that its programs load together, each program's counted


class NoModelError(ValueError):
    """The description lacks a number that the model needs. Its text is the number's name."""


def estimate(work: Work, launches: Sequence[CompiledLaunch], device: Mapping[str, Any]) -> float | None:
    """Microseconds of a call, None if a launch does not fit. device: the description's values. Raises NoModelError."""
    total = sum(launch.programs * launch.warps for launch in launches)
    if not total or any(launch.resident < 1 for launch in launches):
        return None
    return sum(_estimate_launch(work, launch, device, launch.programs * launch.warps / total) for launch in launches)


def _estimate_launch(work: Work, launch: CompiledLaunch, device: Mapping[str, Any], share: float) -> float:
    """The longest of three: what memory, the cache and the products of a launch take."""
    processors, bandwidth = _number(device, "processors"), _number(device, "bandwidth_gbps")
    resident = min(launch.resident, math.ceil(launch.programs / processors))
    memory = cache = products = 0.0
    if work.bytes:
        # Little's law: bytes under way = bandwidth x latency keeps memory at work.
        waiting = max(launch.shared_bytes, 32 * launch.warps * LOAD_BYTES)
        under_way = min(launch.programs, processors) * resident * waiting / (bandwidth * LATENCY_NS)
        memory = share * work.bytes / (bandwidth * min(under_way, 1.0)) / 1e3
    if l2_gbps := device.get("l2_gbps"):
        spilled = SPILL_TRIPS * launch.spill_bytes * 32 * launch.warps * launch.programs
        cache = ((work.loads or work.bytes or 0.0) * share + spilled) / float(l2_gbps) / 1e3
    if work.flops:
        rounds = math.ceil(launch.programs / processors)
        even = launch.programs / (processors * rounds)  # the last round leaves processors idle
        issued = min(resident * launch.warps / ISSUE_WARPS, 1.0)
        products = share * work.flops / (_rate(device, work.dtype) * even * issued) / 1e6
    return max(memory, cache, products)


def floor_us(work: Work, device: Mapping[str, Any]) -> float:
    """The least that any kernel takes on the device by its roofline, microseconds."""
    memory = (work.bytes or 0.0) / _number(device, "bandwidth_gbps") / 1e3
    products = work.flops / _rate(device, work.dtype) / 1e6 if work.flops else 0.0
    return max(memory, products)


def _number(device: Mapping[str, Any], name: str) -> float:
    value = device.get(name)
    if not isinstance(value, int | float) or value <= 0:
        raise NoModelError(name)
    return float(value)


def _rate(device: Mapping[str, Any], dtype: str | None) -> float:
    """Operations of the dtype, 1e12 a second. That of float32 if it is not known."""
    rates = device.get("tflops") or {}
    value = rates.get(dtype or "") or rates.get("float32")
    if not value:
        raise NoModelError(f"tflops of {dtype}")
    return float(value)
