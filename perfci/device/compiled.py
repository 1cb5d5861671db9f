"""What Triton's compiler made of a launch: registers, spills, shared memory, the chosen constants."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from perfci.core.model import CompiledKernel
from perfci.device.launches import Launched, watched_launches


@contextmanager
def recorded_kernels() -> Iterator[dict[str, CompiledKernel]]:
    """Note every compiled kernel that is launched inside, by name and constants; not for use while timing."""
    found: dict[str, CompiledKernel] = {}

    def heard(launch: Launched) -> None:
        facts = _facts(launch)
        found[f"{facts.name} {facts.constants}"] = facts

    with watched_launches(heard):
        yield found


def _facts(launch: Launched) -> CompiledKernel:
    kernel, metadata = launch.kernel, launch.kernel.metadata
    return CompiledKernel(
        name=launch.name,
        registers=getattr(kernel, "n_regs", None),
        spills=getattr(kernel, "n_spills", None),
        shared_bytes=getattr(metadata, "shared", None),
        warps=getattr(metadata, "num_warps", None),
        stages=getattr(metadata, "num_stages", None),
        constants=_constants(launch),
    )


def _constants(launch: Launched) -> str:
    """Named constants of the source; Triton keys them by position, nested for tuples."""
    constants = getattr(getattr(launch.kernel, "src", None), "constants", None) or {}
    names = getattr(launch.function, "arg_names", [])
    named = {_argument(key, names): value for key, value in constants.items()}
    return ",".join(f"{name}={value}" for name, value in sorted(named.items()) if name)


def _argument(key: Any, names: list[str]) -> str:
    if isinstance(key, tuple) and len(key) == 1:
        key = key[0]
    if isinstance(key, int) and key < len(names):
        return names[key]
    return key if isinstance(key, str) else ""
