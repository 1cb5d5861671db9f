"""Backends that compile kernels without a device: a module each, with the backend's name. Triton needs none.

The compiler is asked by the op itself, and what it makes is seen where it asks the driver to load and to launch it. A
module has what a compiler needs besides, so that it works on a machine without a device:

    PACKAGES    distributions whose versions decide what its kernels compile to
    PROGRAMS    what it needs and a message names if it is missing -> what to install for that
    KEPT        its function that looks for a kernel which was compiled and kept, by its second argument: `module:name`.
                Empty if there is no such function, None if nothing is kept for other processes
    prepare     called once in the process, with the target and its driver, before files of the op are imported
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, cast

from perfci.extensions.offline import library
from perfci.ops.backends import BACKENDS

if TYPE_CHECKING:
    from perfci.extensions.common.targets import Target
    from perfci.extensions.offline.driver import VirtualDriver


class Compiler(Protocol):
    """What a module here has."""

    PACKAGES: tuple[str, ...]
    PROGRAMS: Mapping[str, str]
    KEPT: str | None

    def prepare(self, target: Target, driver: VirtualDriver) -> None:
        """Have the compiler work for the target."""


def find_compiler(backend: str) -> Compiler | None:
    """How a backend's kernels compile without a device. None if they do not, or not on this machine."""
    if backend not in {module.name for module in pkgutil.iter_modules(__path__)} or not library.is_possible():
        return None
    return cast(Compiler, importlib.import_module(f"{__name__}.{backend}"))


def can_precompile(backend: str) -> bool:
    """Whether kernels of a backend compile without a device, and a process finds what another compiled."""
    compiler = find_compiler(backend)
    return BACKENDS[backend].uses_triton or (compiler is not None and compiler.KEPT is not None)
