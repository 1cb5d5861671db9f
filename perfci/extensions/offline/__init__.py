"""Kernels compiled for a device that is not there, or not yet taken: torch and Triton pretend to have it.

pretender    torch and Triton of a board that is not there
dlpack       tensors without memory, handed on to other packages
library      a shared library with functions in Python: that of NVIDIA's driver, before torch opens it
driver       NVIDIA's driver of that board, which is what other compilers than Triton ask
runtime      the CUDA runtime of that board, by its driver
backends     what these compilers need besides, a module each
compiling    calls on it: kernels are compiled and not launched
process      a process that does so
precompile   what an op launches, compiled for the device at hand before it is measured
claims       kernels that several processes compile together
task         what its workers are asked
lanes        such workers, beside what is measured
"""

from perfci.core.extensions import Extension

HERE = "perfci.extensions.offline"

EXTENSION = Extension(
    provides={
        "task": (f"{HERE}.task:Precompile",),
        "precompile": (f"{HERE}.lanes:Lanes",),
        "preload": (f"{HERE}.library:load_early", f"{HERE}.compiling:install"),
        "preload_later": ("sympy:Integer", "torch.fx.experimental.symbolic_shapes:expect_true"),  # for meta tensors
    }
)
