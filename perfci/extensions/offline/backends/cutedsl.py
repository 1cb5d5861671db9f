"""CuTe DSL: its host code asks a library, which asks the CUDA runtime. That library is replaced."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import tempfile
from ctypes import POINTER, c_int, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfci.extensions.common.cubins import Config

if TYPE_CHECKING:
    from perfci.extensions.common.targets import Target
    from perfci.extensions.offline.driver import VirtualDriver

PACKAGES = ("nvidia-cutlass-dsl",)
PROGRAMS: dict[str, str] = {}
KEPT = None

RUNTIME = "libcute_dsl_runtime.so"


class _RuntimeConfig(ctypes.Structure):  # cudaLaunchConfig_t
    _fields_ = [("grid", c_uint * 3), ("block", c_uint * 3), ("shared", c_size_t), ("stream", c_void_p),
                ("attributes", c_void_p), ("count", c_uint)]  # fmt: skip


_Load = ctypes.CFUNCTYPE(c_int, c_void_p)
_LoadOnDevice = ctypes.CFUNCTYPE(c_int, c_void_p, c_int)


def prepare(target: Target, driver: VirtualDriver) -> None:
    """Have it compile for the target, and put a library in place of the one that its host code asks."""
    if "CUTE_DSL_ARCH" not in os.environ:
        os.environ["CUTE_DSL_ARCH"] = f"{target.name}a" if target.capability >= (9, 0) else target.name
    spec = importlib.util.find_spec("nvidia_cutlass_dsl")
    homes = spec.submodule_search_locations if spec else None
    there = [path for home in homes or () for path in sorted(Path(home).rglob(RUNTIME)) if "stubs" not in path.parts]
    if there:
        os.environ["CUTE_DSL_LIBS"] = _replace(there[0], driver)
        with contextlib.suppress(ImportError):
            _answer_for_runtime()


def _replace(path: Path, driver: VirtualDriver) -> str:
    """Returns the path of a library like the one given, in which the driver answers."""
    from perfci.extensions.offline.library import Library, list_functions
    from perfci.extensions.offline.runtime import find_function

    def launch(config: Any, function: int, parameters: Any) -> int:
        wanted = config[0]
        plain = Config(wanted.grid, wanted.block, wanted.shared, None, wanted.attributes, wanted.count)
        return driver.launch_by(ctypes.pointer(plain), function, parameters)

    def launch_plainly(function: int, *rest: Any) -> int:
        (*sides, _stream, shared, parameters) = rest
        return driver.launch(function, sides[:3], sides[3:], shared, b"", parameters)

    def load_once(library: Any, load: int, load_on_device: int) -> int:
        if library[0]:
            return 0
        place = c_void_p()
        reference = ctypes.byref(place)
        status = _Load(load)(reference) or (load_on_device and _LoadOnDevice(load_on_device)(reference, 0))
        library[0] = place.value
        return int(status)

    answers: dict[str, tuple[Any, Any]] = {
        "_cudaLaunchKernelEx": ((POINTER(_RuntimeConfig), c_void_p, POINTER(c_void_p)), launch),
        "_cudaLaunchKernel": (
            (c_void_p, *(c_uint,) * 6, c_void_p, c_size_t, POINTER(c_void_p)), launch_plainly,
        ),
        "_cudaKernelSetAttributeForDevice": (
            (c_void_p, c_int, c_int, c_int), lambda kernel, name, value, _: driver.set_attribute(kernel, name, value),
        ),
        "cuda_dialect_init_library_once": ((POINTER(c_void_p), c_void_p, c_void_p), load_once),
        "cuda_dialect_unload_library_once": ((), lambda: 0),
        "_cudaMemsetAsync": ((c_uint64, c_uint, c_size_t), lambda *asked: driver.fill(1, *asked)),
    }  # fmt: skip
    real, functions = ctypes.CDLL(str(path)), dict[str, Any]()
    for name in list_functions(path.read_bytes()):
        if name in answers:
            functions[name] = driver.answer(name, *answers[name])
        elif name.startswith("_cu"):
            functions[name] = find_function(driver, name.removeprefix("_"))
        else:
            functions[name] = real[name]
    return Library(RUNTIME, functions, folder=Path(tempfile.mkdtemp())).give(functions).path


def _answer_for_runtime() -> None:
    """The CUDA runtime of Python, which has another driver: what the compiler's Python asks of it."""
    from cuda.bindings import runtime

    done = runtime.cudaError_t.cudaSuccess
    runtime.cudaGetDeviceCount = lambda: (done, 1)
    runtime.cudaGetDevice = lambda: (done, 0)
    runtime.cudaLibraryUnload = lambda _: (done,)
