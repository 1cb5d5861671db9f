"""Launches a kernel by having Triton's interpreter run it on the device's memory."""

import os
import types
from contextlib import contextmanager
from unittest import mock

from triton.backends import driver
from triton.backends.compiler import GPUTarget

ARCH = "Ascend910B2"
MOST_PROGRAMS = 65535
LAUNCH_NS = 2000
NS_PER_BYTE = 1.0
FLUSH = "perfci_l2_flush"
FLUSH_NS, MARK_NS = 40_000, 2_000
"""perfci's flush is not run, since there is no cache, no one reads what it adds up, and the interpreter would take
a second; it is recorded with a time that one could have, and its mark, a single program, with another."""


class NPUUtils:
    def load_binary(self, name, kernel, shared, device):
        return None, None, 0, 0, 1 << 20

    def get_device_properties(self, device):
        return {"max_shared_mem": 1, "num_aicore": 24, "num_vectorcore": 48}

    def get_arch(self):
        return ARCH

    def get_aicore_num(self):
        return 24


class NPULauncher:
    """One compiled kernel's; what it is called with are the kernel's arguments, constants among them."""

    def __init__(self, source, metadata):
        from triton.runtime.interpreter import InterpretedFunction

        self._name = metadata.name.split()[0]
        self._kernel = InterpretedFunction(source.fn.fn)

    def __call__(self, x, y, z, stream, function, packed, launch_metadata, enter, leave, *args):
        import npu_device

        if x * y * z > MOST_PROGRAMS:
            raise RuntimeError(
                "grid should be less than 65536! "
                'You can try "export TRITON_ALL_BLOCKS_PARALLEL=1" to avoid this problem.'
            )
        if enter is not None:
            enter(launch_metadata)
        programs = x * y * z
        if self._name == FLUSH:
            took, moved = MARK_NS if programs == 1 else FLUSH_NS, 0
        else:
            with _interpreting() as memory:
                self._kernel.run(*map(_on_host, args), grid=(x, y, z), warmup=False)
            took, moved = LAUNCH_NS + round(NS_PER_BYTE * memory.bytes), memory.bytes
        npu_device.launched(self._name, self._name, "AI_VECTOR_CORE", took, programs, moved)
        if leave is not None:
            leave(launch_metadata)


class NPUDriver(driver.DriverBase):
    def __init__(self):
        self.utils = NPUUtils()
        self.launcher_cls = NPULauncher
        super().__init__()

    @staticmethod
    def is_active():
        """Runs when torch_npu is loaded."""
        import sys

        return "torch_npu" in sys.modules

    def map_python_to_cpp_type(self, ty):
        return ty

    def get_current_target(self):
        return GPUTarget(os.environ.get("NPU_STAND_IN_TARGET", "npu"), ARCH, 0)

    def get_current_device(self):
        import torch

        return torch.npu.current_device()

    def set_current_device(self, device):
        import torch

        torch.npu.set_device(device)

    def get_current_stream(self, device=None):
        import npu_device

        return npu_device.stream()

    def get_active_torch_device(self):
        import torch

        return torch.device("npu", self.get_current_device())

    def get_benchmarker(self):
        from triton.testing import do_bench

        return do_bench

    def get_device_interface(self):
        import torch

        return torch.npu

    def get_empty_cache_for_benchmark(self):
        import torch

        return torch.empty(1 << 20, dtype=torch.int, device="npu")

    def clear_cache(self, cache):
        cache.zero_()


def _on_host(argument):
    """A tensor for the interpreter, which would copy one of the device and keep it for a while."""
    import npu_device
    import torch

    return npu_device.on_host(argument) if isinstance(argument, torch.Tensor) else argument


class _Counted:
    """The interpreter's memory, and how many bytes programs asked of it."""

    def __init__(self, memory):
        self._memory = memory
        self.bytes = 0

    def load(self, pointers, mask, other, dtype):
        result = self._memory.load(pointers, mask, other, dtype)
        self.bytes += int(mask.sum()) * result.dtype.itemsize
        return result

    def store(self, pointers, values, mask):
        self.bytes += int(mask.sum()) * values.dtype.itemsize
        return self._memory.store(pointers, values, mask)

    def __getattr__(self, name):
        return getattr(self._memory, name)


@contextmanager
def _interpreting():
    """Let kernels that Triton would compile be interpreted inside, with whatever they call, where their tensors lie."""
    import triton.language as tl
    from triton.runtime import interpreter
    from triton.runtime.jit import JITFunction

    def call(function, *args, **kwargs):
        return interpreter.InterpretedFunction(function.fn)(*args, **kwargs)

    counted = _Counted(interpreter._interpreter)
    # Calls inside a kernel patch the language without putting it back, so both its modules are patched here first.
    scope = interpreter._patch_lang(types.SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    with (
        mock.patch.object(interpreter, "_interpreter", counted),
        mock.patch.object(interpreter.GridExecutor, "_init_args_hst", lambda _, args, named: (args, named)),
        mock.patch.object(interpreter.GridExecutor, "_restore_args_dev"),
        mock.patch.object(JITFunction, "__call__", call),
    ):
        try:
            yield counted
        finally:
            scope.restore()
