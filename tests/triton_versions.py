"""What the installed Triton can do at all; importing this imports no Triton."""

import importlib.metadata
import re

import pytest


def _version() -> tuple[int, ...]:
    try:
        return tuple(map(int, re.findall(r"\d+", importlib.metadata.version("triton"))[:2]))
    except importlib.metadata.PackageNotFoundError:
        return (3, 7)


VERSION = _version()
DESCRIPTORS = VERSION >= (3, 4)
"""tensor descriptors, made on the host or on the device"""
ROCM_LINKER = VERSION >= (3, 5)
"""AMD's linker comes along, so that there is code for gfx942 without ROCm"""
OWN_OPS = VERSION >= (3, 3)
"""this project's matmul, as tuned for an H200, fits into shared memory: 3.2 asks for 14 % more than there is"""
SPILLS = 0 if VERSION >= (3, 4) else 16
"""bytes a thread that the assembler which comes along may spill of this project's ops: older ones do not fit one in"""
ERROR_LINES = VERSION >= (3, 5)
"""an unknown name is reported with its line, not with the kernel's first"""
ASSEMBLER = "ptxas-blackwell" if VERSION >= (3, 9) else "ptxas"
"""what compiles for sm_90"""
SINES_ON_STACK = VERSION < (3, 9)
"""the sine that comes along needs local memory"""
TUPLES = VERSION >= (3, 3)
"""values in tuples within a kernel"""
CALLABLES = VERSION >= (3, 3)
"""functions may be compile-time constants"""


def targets(*names: str) -> tuple[str, ...]:
    """Those of the targets that the installed Triton compiles for without more."""
    since = {"sm_100": (3, 3), "sm_120": (3, 4), "gfx942": (3, 5)}
    return tuple(name for name in names if since.get(name, (0, 0)) <= VERSION)


needs_descriptors = pytest.mark.skipif(not DESCRIPTORS, reason="Triton before 3.4 has no tensor descriptors")
needs_own_ops = pytest.mark.skipif(not OWN_OPS, reason="Triton 3.2 cannot fit this project's matmul into an H200")
needs_rocm_linker = pytest.mark.skipif(not ROCM_LINKER, reason="Triton before 3.5 brings no linker for gfx942")
