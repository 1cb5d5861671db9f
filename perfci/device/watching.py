"""Triton's launches watched on an accelerator; nothing is seen of a Triton that perfci does not know."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from perfci.core.model import CompiledKernel
from perfci.device.seam import Capture, Uncaptured
from perfci.device.triton_release import unknown_triton

if unknown_triton() is None:
    # Imported before any op's files: what they register and load is told from what was there.
    from perfci.device import capture, compiled


def recorded() -> AbstractContextManager[Mapping[str, CompiledKernel]]:
    """What the compiler made of the launches inside."""
    return nullcontext({}) if unknown_triton() else compiled.recorded_kernels()


def captured() -> AbstractContextManager[Capture]:
    """Launches, torch's operations, and what waits for the device."""
    unknown = unknown_triton()
    return nullcontext(Uncaptured(unknown)) if unknown else capture.captured()
