"""A driver for Triton that names a target, loads nothing and launches nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.compiler import CompiledKernel

from perfci.device import virtual
from perfci.device.noted import note_unknown
from perfci.device.targets import Target

try:
    from triton.runtime import _allocation
except ImportError:  # before 3.3 no kernel asked its launcher for memory
    _allocation = None


class StubDriver:
    """What Triton asks of a driver; ops ask some of it too."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.utils = _Utils(target)
        self.launcher_cls = _Launcher

    def get_current_target(self) -> GPUTarget:
        """The target."""
        npu = self._target.backend == "npu"  # whose own driver tells no warps
        return GPUTarget(self._target.backend, self._target.arch, 0 if npu else self._target.warp_size)

    def get_current_device(self) -> int:
        """The only device."""
        return 0

    def set_current_device(self, device: Any) -> None:
        """Have no other device."""

    def get_current_stream(self, device: Any = None) -> int:
        """The default stream."""
        return 0

    def get_device_capability(self, device: Any = None) -> tuple[int, int]:
        """The board's compute capability."""
        return self._target.capability

    def get_active_torch_device(self) -> torch.device:
        """Torch's name of the device."""
        return virtual.DEVICE

    def get_device_interface(self) -> Any:
        """Torch's module of the device, which answers for the target."""
        return torch.cuda

    def get_benchmarker(self) -> Callable[..., Any]:
        """Something that refuses: nothing can be timed."""
        return no_benchmark

    def assemble_tensormap_to_arg(self, tensormaps: Any, args: Any) -> Any:
        """Arguments as they are."""
        return args

    def __getattr__(self, name: str) -> Any:
        note_unknown("captured_offline", f"Triton's driver.{name}")
        raise AttributeError(name)


class _Properties(dict[str, Any]):
    """What Triton's driver tells of the board, by its own names."""

    def __missing__(self, name: str) -> Any:
        note_unknown("captured_offline", f"the property {name} of the device")
        raise KeyError(name)


class _Utils:
    def __init__(self, target: Target) -> None:
        known = {
            "max_shared_mem": target.shared_block,
            "max_num_regs": target.registers,
            "multiprocessor_count": target.processors,
            "warpSize": target.warp_size,
            "max_threads_per_sm": target.threads,
            "sm_clock_rate": target.clock_khz,
            "mem_clock_rate": target.memory_clock_khz,
            "mem_bus_width": target.bus_bits,
            "arch": target.name if target.backend == "hip" else None,
        }
        if target.backend == "npu":
            known = {"max_shared_mem": 1, "num_aicore": target.processors // 2, "num_vectorcore": target.processors}
        self._properties = _Properties({name: value for name, value in known.items() if value is not None})

    def get_device_properties(self, device: Any = None) -> _Properties:
        return self._properties

    def load_binary(self, name: str, binary: bytes, shared: int, device: Any) -> tuple[Any, ...]:
        """Nothing is loaded; registers and spills are worked out when somebody asks (`install`)."""
        wanted = CompiledKernel._init_handles.__code__.co_names
        return (None, None, 0, 0, 1024) if "n_max_threads" in wanted else (None, None, 0, 0)

    def set_printf_fifo_size(self, size: int) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        note_unknown("captured_offline", f"Triton's driver.utils.{name}")
        raise AttributeError(name)


class _Launcher:
    """Does what a launch does on the host: memory that the kernel needs is allocated."""

    def __init__(self, source: Any, metadata: Any) -> None:
        self._size = getattr(metadata, "global_scratch_size", 0) or 0
        self._alignment = getattr(metadata, "global_scratch_align", 1)
        self._programs = getattr(metadata, "num_ctas", 1)

    def __call__(self, grid_x: int, grid_y: int, grid_z: int, stream: Any, *_: Any) -> None:
        if self._size:
            allocate = _allocation._allocator
            allocate = allocate.get() if hasattr(allocate, "get") else allocate
            allocate(grid_x * grid_y * grid_z * self._programs * self._size, self._alignment, stream)


def no_benchmark(*_: Any, **__: Any) -> Any:
    """In place of whatever times kernels: a choice that it would make cannot be told."""
    note_unknown("captured_offline", "timing of kernels to choose one (triton.testing.do_bench)")
    raise RuntimeError("nothing can be timed without a device")
