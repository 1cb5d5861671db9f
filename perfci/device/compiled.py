"""What Triton's compiler made of a launch: registers, spills, shared memory, the chosen constants."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from triton.runtime.jit import JITFunction

from perfci.model import CompiledKernel


@contextmanager
def recorded_kernels() -> Iterator[dict[str, CompiledKernel]]:
    """Note every compiled kernel that is launched inside, by name and constants; not for use while timing."""
    found: dict[str, CompiledKernel] = {}
    run = JITFunction.run

    def recording(self: Any, *args: Any, **kwargs: Any) -> Any:
        kernel = run(self, *args, **kwargs)
        if kernel is not None:
            facts = _facts(self, kernel)
            found[f"{facts.name} {facts.constants}"] = facts
        return kernel

    JITFunction.run = recording
    try:
        yield found
    finally:
        JITFunction.run = run


def _facts(function: Any, kernel: Any) -> CompiledKernel:
    metadata = kernel.metadata
    return CompiledKernel(
        name=function.fn.__name__,
        registers=getattr(kernel, "n_regs", None),
        spills=getattr(kernel, "n_spills", None),
        shared_bytes=getattr(metadata, "shared", None),
        warps=getattr(metadata, "num_warps", None),
        stages=getattr(metadata, "num_stages", None),
        constants=_constants(function, kernel),
    )


def _constants(function: Any, kernel: Any) -> str:
    """Named constants of the source; Triton keys them by position, nested for tuples."""
    constants = getattr(getattr(kernel, "src", None), "constants", None) or {}
    names = function.arg_names
    named = {_argument(key, names): value for key, value in constants.items()}
    return ",".join(f"{name}={value}" for name, value in sorted(named.items()) if name)


def _argument(key: Any, names: list[str]) -> str:
    if isinstance(key, tuple) and len(key) == 1:
        key = key[0]
    if isinstance(key, int) and key < len(names):
        return names[key]
    return key if isinstance(key, str) else ""
