"""Stands in for torch_npu: the device of npu_device.cpp under its names, as far as perfci and its tests use them.

Its names and signatures are those of the real package, which test_contracts.py reads.
"""

import os

_AUTOLOAD = os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1")
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # importing torch here would load this package once more

import torch  # noqa: E402

if os.environ.get("NPU_STAND_IN_CANN") == "missing":
    raise ImportError("libhccl.so: cannot open shared object file: No such file or directory")
if torch._C._get_accelerator().type not in {"cpu", "npu"}:
    raise RuntimeError(
        f"Two accelerators cannot be used at the same time in PyTorch: npu and {torch._C._get_accelerator().type}."
    )

import npu_device  # noqa: E402, F401 - registers the device

torch.utils.rename_privateuse1_backend("npu")

from torch_npu import npu, profiler  # noqa: E402

torch._register_device_module("npu", npu)
torch.utils.generate_methods_for_privateuse1_backend()

__all__ = ["npu", "profiler"]


def _autoload():
    """What torch calls when it is imported."""
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = _AUTOLOAD


_autoload()
