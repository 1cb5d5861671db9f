"""NVIDIA's driver of a board that is not there."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from perfci.core.variables import OFFLINE
from perfci.extensions.offline import library
from perfci.extensions.offline.library import NAME

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.skipif(not library.is_possible(), reason="there is no driver without a device for this processor"),
]

AFTER_ANOTHER = """
import ctypes
from perfci.device.capture import watch_calls
from perfci.extensions.common.targets import target_named
from perfci.extensions.offline import compiling
from perfci.extensions.offline.driver import VirtualDriver
from perfci.extensions.offline.library import NAME
from perfci.extensions.offline.library import Library

other = Library(NAME, ["cuInit"])
target = target_named("sm_90")
compiling.install(target)
driver = VirtualDriver(target)
with watch_calls(driver=driver) as capture:
    pass
print(driver.is_asked, capture.identity("").unknown.facts["what"])
"""

BEFORE_TORCH = """
import ctypes, importlib, os
from perfci.worker.warm import list_imports

for module in list_imports("offline", os.environ):
    if module == "torch":  # which opens it if it is built for CUDA
        cuda = ctypes.CDLL("libcuda.so.1")
    importlib.import_module(module)
status = cuda.cuInit(0)
from perfci.extensions.common.targets import target_named
from perfci.extensions.offline import compiling
from perfci.extensions.offline.driver import VirtualDriver

target = target_named("sm_90")
compiling.install(target)
driver = VirtualDriver(target)
print(status, driver.is_asked, cuda.cuInit(0))
"""

ANSWERS = """
import ctypes, sys
from ctypes import byref, c_int, c_size_t, c_void_p
import torch
from perfci.extensions.common.targets import target_named
from perfci.extensions.offline import compiling, dlpack, library
from perfci.extensions.offline.driver import VirtualDriver

target = target_named("sm_90")
compiling.install(target)
driver = VirtualDriver(target)
assert driver.functions.keys() == {library.name_plainly(symbol) for symbol in library.SYMBOLS}
cuda = ctypes.CDLL("libcuda.so.1")
place, number = c_void_p(), c_int()
assert cuda.cuGetProcAddress_v2(b"cuDeviceGetAttribute", byref(place), 12000, ctypes.c_uint64(0), byref(c_int(7))) == 0
ask = ctypes.CFUNCTYPE(c_int, c_void_p, c_int, c_int)(place.value)
assert ask(ctypes.addressof(number), 75, 0) == 0
tensor = torch.empty(4, 6, dtype=torch.bfloat16, device="cuda")[1:, 2:]
capsule = tensor.__dlpack__()
ctypes.pythonapi.PyCapsule_GetPointer.restype = c_void_p
ctypes.pythonapi.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
managed = dlpack._Managed.from_address(ctypes.pythonapi.PyCapsule_GetPointer(capsule, b"dltensor")).tensor
assert (torch.arange(4, device="cuda") * 2.0).sum().shape == () and "torch._dynamo" not in sys.modules  # takes seconds
facts = managed.data - tensor.data_ptr(), managed.device, managed.code, managed.bits
print(number.value, *facts, *managed.shape[:2], *managed.strides[:2], cuda.cuMemAlloc_v2(byref(place), c_size_t(8)))
"""


def run(program: str, **variables: str) -> str:
    root = Path(__file__).resolve().parents[3]
    command, around = [sys.executable, "-c", program], os.environ | variables
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root, env=around)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.nightly
def test_a_driver_that_is_loaded_already_is_asked_in_its_place_and_no_launch_is_missed_in_silence():
    assert run(AFTER_ANOTHER) == "False NVIDIA's driver, which the process has loaded,"


@pytest.mark.nightly
@pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler")
@pytest.mark.parametrize(
    ("variables", "said"),
    [({OFFLINE: "1"}, "100 True 0"), pytest.param({}, "0 False 0", marks=pytest.mark.nightly)],
)
def test_a_process_that_compiles_has_its_driver_before_torch_opens_the_machines(tmp_path, variables, said):
    source = tmp_path / "real.c"
    source.write_text("int cuInit(unsigned flags) { return 0; }")
    subprocess.run(["cc", "-shared", "-fPIC", f"-Wl,-soname,{NAME}", "-o", tmp_path / NAME, source], check=True)
    assert run(BEFORE_TORCH, LD_LIBRARY_PATH=str(tmp_path), **variables) == said


@pytest.mark.nightly
def test_it_answers_for_the_target_and_hands_on_tensors_by_their_addresses():
    assert run(ANSWERS) == "9 0 2 4 16 3 4 6 1 801"
