"""NPUs as a kind of device, for the gate. The device's module imports Triton, which has its turn in `open`."""

from perfci.core.errors import DeviceError
from perfci.device.seam import Accelerator
from perfci.extensions.npu import runtime


class NpuKind:
    """A kind of device, as `perfci.device` asks for it."""

    name = "npu"
    shun_plugin = staticmethod(runtime.shun_plugin)

    @staticmethod
    def is_here() -> bool:
        """Whether this process could open an NPU. Raises DeviceError for one that is there and can't be opened."""
        if not runtime.npu_installed():
            return False
        try:
            runtime.load()
        except DeviceError:
            if runtime.nodes():
                raise
            return False
        return True

    @staticmethod
    def open(timer: str) -> Accelerator:
        """Open the device. Raises DeviceError."""
        npu = runtime.load()  # before Triton, which the device's module imports
        runtime.check_triton()
        from perfci.extensions.npu.device import NpuDevice

        return NpuDevice(npu, timer)
