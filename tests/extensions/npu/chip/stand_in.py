"""Builds the `npu` device of the tests and makes the environment in which perfci finds it.

The device is one C++ file (device/npu_device.cpp) that g++ compiles against torch's headers, in some fifteen seconds.
It is kept in the user's cache for this torch, this Python and this source. `device/site` holds what stands in for
torch_npu and for triton-ascend's backend, `device/bin` what stands in for npu-smi.

By hand, from the repository: eval "$(python tests/extensions/npu/chip/stand_in.py)", then perfci check --device npu
"""

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent / "device"
SOURCE = HERE / "npu_device.cpp"
FLAGS = (
    "-O1",
    "-shared",
    "-fPIC",
    "-std=c++20",
    "-DTORCH_EXTENSION_NAME=npu_device",
    "-DTORCH_API_INCLUDE_EXTENSION_H",
)
OTHERS = ("CI_", "TRITON_", "ASCEND_", "TORCH_")
"""Beginnings of the variables that are not this machine's."""
ASCEND = "3.2.0"
"""The version of the stand-in for triton-ascend."""


class CompilerMissingError(Exception):
    """What building needs is not here: named."""


def cache() -> Path:
    """The user's folder of what tests keep between runs."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "perfci-tests" / "npu"


def library() -> Path:
    """The folder with the built device; built now if it is not there. Raises CompilerMissingError."""
    key = "\n".join((SOURCE.read_text("utf-8"), *FLAGS, version("torch"), sys.version))
    folder = cache() / f"device-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "npu_device.so").exists():
            _build(folder / "npu_device.so")
    return folder


def _build(target: Path) -> None:
    if shutil.which("g++") is None:
        raise CompilerMissingError("g++")
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        raise CompilerMissingError("Python.h (python3-dev)")
    import torch
    from torch.utils import cpp_extension

    folders = [*cpp_extension.include_paths(), sysconfig.get_path("include")]
    library_paths = cpp_extension.library_paths()
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        made = Path(scratch) / target.name
        command = ["g++", *FLAGS, f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}", str(SOURCE)]
        command += [f"-I{folder}" for folder in folders] + [f"-L{folder}" for folder in library_paths]
        command += ["-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python", "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise AssertionError(f"g++ does not build {SOURCE.name}:\n{done.stderr[:4000]}")
        made.replace(target)


def environment(folder: Path) -> dict[str, str]:
    """Variables under which a process has an `npu`; `folder` takes the stand-ins' metadata, and a CANN to be found."""
    site = folder / "site-packages"
    _distribution(
        site, "torch-npu", version("torch").split("+")[0], "[torch.backends]\ntorch_npu = torch_npu:_autoload\n"
    )
    _distribution(site, "pybind11", "3.0.0", "")
    _distribution(site, "triton-ascend", ASCEND, "[triton.backends]\nascend = npu_triton\n")
    toolkit = _toolkit(folder)
    path = os.pathsep.join([str(library()), str(HERE / "site"), str(site)])
    passed = {name: value for name, value in os.environ.items() if not name.startswith(OTHERS)}
    return passed | {
        "PYTHONPATH": path,
        "PATH": os.pathsep.join([str(HERE / "bin"), os.environ.get("PATH", "")]),
        "ASCEND_HOME_PATH": str(toolkit),
        "ASCEND_TOOLKIT_HOME": str(toolkit),
        "OMP_NUM_THREADS": "1",
    }


def _distribution(site: Path, name: str, number: str, entries: str) -> None:
    folder = site / f"{name.replace('-', '_')}-{number}.dist-info"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n", encoding="utf-8")
    (folder / "entry_points.txt").write_text(entries, encoding="utf-8")


def _toolkit(folder: Path) -> Path:
    toolkit = folder / "ascend-toolkit"
    (toolkit / "lib64").mkdir(parents=True, exist_ok=True)
    (toolkit / "lib64" / "libascendcl.so").touch()
    (toolkit / "version.cfg").write_text("[Version]\nversion=8.5.0\n", encoding="utf-8")
    return toolkit


if __name__ == "__main__":
    wanted = environment(cache() / "by-hand")
    for name in ("PYTHONPATH", "PATH", "ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"):
        print(f"export {name}={shlex.quote(wanted[name])}")
