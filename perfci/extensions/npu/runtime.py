"""Loads torch_npu and triton-ascend in the order that they need. Each way in which that fails has its sentence.

torch_npu comes before Triton, and torch must not load it by itself: where CANN is missing, `import torch` then fails.
"""

import importlib.util
import os
import re
from importlib import import_module
from pathlib import Path
from typing import Any

from perfci.core.environment import installed_versions
from perfci.core.errors import DeviceError

AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"  # variable that has torch load no plugin by itself
BACKEND = "npu"  # what triton-ascend's driver calls its target

_TROUBLES = (  # kind of reason, and pattern of torch_npu's and CANN's messages: the first that fits counts
    ("npu_beside_cuda", r"Two accelerators cannot be used"),
    ("npu_numpy_too_new", r"compiled using NumPy 1\.x|numpy\.core\.multiarray failed|_ARRAY_API not found"),
    ("npu_no_cann", r"lib(?:hccl|ascendcl|acl_op_compiler|ge_runner|graph|runtime|msprofiler)\w*\.so"),
    ("npu_wrong_wheel", r"undefined symbol|has no attribute '_C'|version `?GLIBCXX"),
    ("npu_driver_mismatch", r"driver.{0,60}(?:not compatible|mismatch|incompatible)|version.{0,20}(?:mis|not )match"),
    ("npu_no_permission", r"[Pp]ermission denied|EACCES|drvRet=(?:4|13)\b"),
    ("npu_busy", r"EL0005|Resource_Busy|resources? (?:is|are) busy|drvRet=87\b"),
)


def npu_installed() -> bool:
    """Whether torch_npu could be imported."""
    return importlib.util.find_spec("torch_npu") is not None


def nodes(folder: Path = Path("/dev")) -> list[Path]:
    """Device files of the Ascend chips of this machine, or container."""
    return sorted(folder.glob("davinci[0-9]*"))


def find_shut(files: list[Path]) -> tuple[str, ...]:
    """Device files that this user may not open. davinci_manager is for all chips."""
    needed = [*files, files[0].parent / "davinci_manager"] if files else []
    return tuple(str(node) for node in needed if not os.access(node, os.R_OK | os.W_OK))


def shun_plugin() -> None:
    """Before torch is imported: with a plugin that torch loads by itself its import fails if CANN is missing."""
    if npu_installed():
        os.environ.setdefault(AUTOLOAD, "0")


def load() -> Any:
    """torch.npu with its first device in use. Raises DeviceError, with the reason."""
    os.environ[AUTOLOAD] = "0"
    try:
        import torch
    except ImportError as error:
        raise DeviceError("torch_missing") from error
    if not npu_installed():
        raise DeviceError("npu_no_torch_npu", torch=str(torch.__version__))
    # A wheel of torch_npu is built for one torch. With another its import may end the process.
    version = installed_versions(["torch-npu"]).get("torch-npu")
    if version and version.split(".")[:2] != str(torch.__version__).split(".")[:2]:
        raise DeviceError("npu_wrong_wheel", message="the versions differ", **_find_versions())
    try:
        import_module("torch_npu")
    except Exception as error:  # whatever a plugin's import may raise
        raise _explain(error, "npu_import_failed") from error
    npu: Any = torch.npu
    try:
        seen = npu.is_available() and npu.device_count()
        if seen:
            npu.set_device(0)
            npu.synchronize()
    except Exception as error:
        raise _explain(error, "npu_open_failed") from error
    if seen:
        return npu
    if not nodes():
        raise DeviceError("npu_no_device")
    if shut := find_shut(nodes()):
        raise DeviceError("npu_no_permission", message=", ".join(shut))
    raise DeviceError("npu_unseen", visible=os.environ.get("ASCEND_RT_VISIBLE_DEVICES", "") or "-")


def check_triton() -> None:
    """Triton must compile for NPUs. Raises DeviceError if it is another Triton, or lacks what it needs."""
    try:
        import triton
        from triton.backends import backends
    except ModuleNotFoundError as error:
        kind = "npu_no_pybind11" if error.name == "pybind11" else "npu_no_triton"
        raise DeviceError(kind, package=error.name) from error
    version = str(getattr(triton, "__version__", "?"))
    try:
        target = triton.runtime.driver.active.get_current_target()
    except Exception as error:  # also what its driver's start raises
        kind = "npu_no_compiler" if "ascend" in backends else "npu_triton_overwritten"
        raise DeviceError(kind, triton=version, message=_take_first_line(error)) from error
    if target.backend != BACKEND:
        raise DeviceError("npu_wrong_target", triton=version, target=str(target.backend))


def _explain(error: BaseException, otherwise: str) -> DeviceError:
    """The meaning of a message of torch_npu or CANN."""
    kind = next((kind for kind, pattern in _TROUBLES if re.search(pattern, str(error), re.DOTALL)), otherwise)
    return DeviceError(kind, message=_take_first_line(error), **_find_versions())


def _find_versions() -> dict[str, str | None]:
    return {name.replace("-", "_"): installed_versions([name]).get(name) for name in ("torch", "torch-npu")}


def _take_first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[0][:300].rstrip(".")
