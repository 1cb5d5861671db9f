"""torch_npu and triton-ascend, loaded in the order that they need; each way in which that fails has its sentence.

torch_npu comes before Triton, and torch must not load it by itself: where CANN is missing, `import torch` then fails.
"""

from __future__ import annotations

import importlib.util
import os
import re
from importlib import import_module
from pathlib import Path
from typing import Any

from perfci.core.environment import installed
from perfci.core.errors import DeviceError
from perfci.core.model import Reason

AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
"""Variable by which torch is told to load no plugin by itself."""

BACKEND = "npu"
"""What triton-ascend's driver calls its target."""

NODES = "davinci[0-9]*"
"""Device files of the chips in /dev; davinci_manager is for all of them."""

_MESSAGE_LIMIT = 300

_TROUBLES = (
    ("npu_beside_cuda", r"Two accelerators cannot be used"),
    ("npu_numpy_too_new", r"compiled using NumPy 1\.x|numpy\.core\.multiarray failed|_ARRAY_API not found"),
    ("npu_no_cann", r"lib(?:hccl|ascendcl|acl_op_compiler|ge_runner|graph|runtime|msprofiler)\w*\.so"),
    ("npu_wrong_wheel", r"undefined symbol|has no attribute '_C'|version `?GLIBCXX"),
    (
        "npu_driver_mismatch",
        r"driver.{0,60}(?:not compatible|mismatch|incompatible)|version.{0,20}(?:mismatch|not match)",
    ),
    ("npu_no_permission", r"[Pp]ermission denied|EACCES|drvRet=(?:4|13)\b"),
    ("npu_busy", r"EL0005|Resource_Busy|resources? (?:is|are) busy|drvRet=87\b"),
)
"""Kind of reason -> what the messages of torch_npu and CANN say then; the first that fits counts."""


def npu_installed() -> bool:
    """Whether torch_npu could be imported, as far as can be told without importing it."""
    return importlib.util.find_spec("torch_npu") is not None


def has_nodes() -> bool:
    """Whether this machine, or container, has an Ascend chip's device file."""
    return bool(nodes())


def nodes(folder: Path = Path("/dev")) -> list[Path]:
    """The chips' device files."""
    return sorted(folder.glob(NODES))


def shun_plugin() -> None:
    """Before torch is imported: with a plugin that torch loads by itself its import fails where CANN is missing."""
    if npu_installed():
        os.environ.setdefault(AUTOLOAD, "0")


def load() -> Any:
    """torch.npu with its first device in use; raises DeviceError, whose sentence says why it is not to be had."""
    os.environ[AUTOLOAD] = "0"
    try:
        import torch
    except ImportError as error:
        raise DeviceError("torch_missing") from error
    if not npu_installed():
        raise DeviceError("npu_no_torch_npu", torch=str(torch.__version__))
    _refuse_other_wheel(str(torch.__version__))
    try:
        import_module("torch_npu")
        npu = torch.npu
    except Exception as error:  # whatever a plugin's import may raise
        raise _told(trouble(error)) from error
    _open_first(npu)
    return npu


def check_triton() -> None:
    """Triton must compile for NPUs; raises DeviceError where it is another Triton, or lacks what it needs."""
    try:
        import triton
        from triton.backends import backends
    except ModuleNotFoundError as error:
        kind = "npu_no_pybind11" if error.name == "pybind11" else "npu_no_triton"
        raise DeviceError(kind, package=error.name) from error
    version = str(getattr(triton, "__version__", "?"))
    try:
        target = triton.runtime.driver.active.get_current_target()
    except Exception as error:  # also what its driver's own start raises
        kind = "npu_no_compiler" if "ascend" in backends else "npu_triton_overwritten"
        raise DeviceError(kind, triton=version, message=_first_line(error)) from error
    if target.backend != BACKEND:
        raise DeviceError("npu_wrong_target", triton=version, target=str(target.backend))


def trouble(error: BaseException, otherwise: str = "npu_import_failed") -> Reason:
    """What a message of torch_npu or CANN means."""
    text = str(error)
    kind = next((kind for kind, pattern in _TROUBLES if re.search(pattern, text, re.DOTALL)), otherwise)
    return Reason(kind, {"message": _first_line(error), **_versions()})


def _refuse_other_wheel(torch_version: str) -> None:
    """A wheel of torch_npu is built for one torch; with another its import may end the process."""
    version = installed(["torch-npu"]).get("torch-npu")
    if version and version.split(".")[:2] != torch_version.split(".")[:2]:
        raise _told(Reason("npu_wrong_wheel", {"message": "the versions differ", **_versions()}))


def _open_first(npu: Any) -> None:
    try:
        seen = npu.is_available() and npu.device_count()
    except Exception as error:
        raise _told(trouble(error, "npu_open_failed")) from error
    if not seen:
        raise _told(_unseen())
    try:
        npu.set_device(0)
        npu.synchronize()
    except Exception as error:
        raise _told(trouble(error, "npu_open_failed")) from error


def _unseen() -> Reason:
    """Why no device is seen, from the device files."""
    found = nodes()
    if not found:
        return Reason("npu_no_device")
    shut = [str(node) for node in (*found, found[0].parent / "davinci_manager") if not may_use(node)]
    return Reason("npu_no_permission", {"message": ", ".join(shut)}) if shut else Reason("npu_unseen", _visible())


def may_use(node: Path) -> bool:
    """Whether this user may open a device file."""
    return os.access(node, os.R_OK | os.W_OK)


def _visible() -> dict[str, str]:
    return {"visible": os.environ.get("ASCEND_RT_VISIBLE_DEVICES", "") or "-"}


def _versions() -> dict[str, str | None]:
    found = installed(["torch", "torch-npu"])
    return {"torch": found.get("torch"), "torch_npu": found.get("torch-npu")}


def _told(reason: Reason) -> DeviceError:
    return DeviceError(reason.kind, **reason.facts)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[0][:_MESSAGE_LIMIT].rstrip(".")
