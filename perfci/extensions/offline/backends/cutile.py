"""cuTile: its launch compiles for the driver's device and loads the cubin."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfci.extensions.common.targets import Target
    from perfci.extensions.offline.driver import VirtualDriver

PACKAGES = ("cuda-tile", "nvidia-cuda-tileiras")
PROGRAMS: dict[str, str] = {"tileiras": "cuda-tile[tileiras]"}
KEPT = "cuda.tile._compile:cache_lookup"


def prepare(target: Target, driver: VirtualDriver) -> None:
    """Nothing is needed but the driver."""
