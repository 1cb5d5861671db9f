"""All that may move a number without the kernel changing, and the environment that workers start with."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from perfci import revision
from perfci.model import Device, Environment, Fact, Reason
from perfci.settings import is_secret

PACKAGES = (
    "perfci",
    "torch",
    "triton",
    "pytorch-triton",
    "torch-npu",
    "triton-ascend",
    "numpy",
    "scipy",
    "nvidia-ml-py",
    "nvidia-cublas",
    "nvidia-cublas-cu12",
    "nvidia-cuda-cupti",
    "nvidia-cuda-cupti-cu12",
    "nvidia-cudnn-cu12",
    "nvidia-cudnn-cu13",
)
"""Distributions whose version is recorded: kernels, references and timers come from them."""

TELLING = ("TRITON_", "PYTORCH_", "TORCH_", "TORCHINDUCTOR_", "CUBLAS_", "CUDNN_", "ASCEND_", "NPU_", "HCCL_")
TELLING_NAMES = frozenset(
    {"CUDA_LAUNCH_BLOCKING", "CUDA_VISIBLE_DEVICES", "CUDA_MODULE_LOADING", "NVIDIA_TF32_OVERRIDE", "OMP_NUM_THREADS"}
)
"""Variables that change timing or code: recorded with a run."""

PASSED = (
    "ASCEND", "CUBLAS", "CUDA", "CUDNN", "GOMP_", "HCCL_", "KMP_", "LC_", "MKL_", "NCCL_", "NPU_", "NVIDIA", "OMP_",
    "PYTHON", "PYTORCH", "TORCH", "TRITON_",
)  # fmt: skip
PASSED_NAMES = frozenset(
    {
        "AR", "CC", "CI", "CONDA_PREFIX", "CXX", "HOME", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "LD_PRELOAD", "LOGNAME",
        "PATH", "SYSTEMROOT", "TEMP", "TMP", "TMPDIR", "TZ", "USER", "VIRTUAL_ENV",
    }
)  # fmt: skip
"""Variables that workers may see, by the beginning of the name or by the name; nothing else reaches them."""

CACHES = frozenset({"TRITON_CACHE_DIR", "TRITON_DUMP_DIR", "TRITON_OVERRIDE_DIR", "TORCHINDUCTOR_CACHE_DIR"})
"""Folders that could hand a worker what another process compiled."""

UNCOMPARED = frozenset({"commit", "dirty", "branch", "host"})
"""Fields of an environment that differ between runs without moving a number."""


def describe(device: Device, timer: str | None, root: Path, variables: Mapping[str, str] | None = None) -> Environment:
    """The environment of a run in the project at `root`; versions are read without importing the packages."""
    found = revision.read(root)
    here = found if isinstance(found, revision.Revision) else None
    return Environment(
        device=device,
        timer=timer,
        python=platform.python_version(),
        packages=installed(PACKAGES),
        host=socket.gethostname(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        commit=here.commit if here else None,
        dirty=bool(here and here.dirty),
        branch=here.branch if here else None,
        variables=telling(os.environ if variables is None else variables),
    )


def installed(names: Iterable[str]) -> dict[str, str]:
    """Versions of those of the distributions that are installed, from their metadata."""
    return {name: version for name in names if (version := _version(name)) is not None}


def telling(variables: Mapping[str, str]) -> dict[str, str]:
    """Variables that may change timing or code, by name; never one that may hold a secret."""
    names = sorted(name for name in variables if name in TELLING_NAMES or name.startswith(TELLING))
    return {name: variables[name] for name in names if not _holds_secret(name, variables[name])}


def differences(before: Environment, after: Environment) -> tuple[Reason, ...]:
    """What differs between two environments and may move a number, one reason a field; none if they are alike."""
    old, new = dict(_flat(before)), dict(_flat(after))
    fields = (*old, *(name for name in new if name not in old))
    return tuple(
        Reason("environment_differs", {"field": name, "before": old.get(name), "after": new.get(name)})
        for name in fields
        if old.get(name) != new.get(name)
    )


def worker_environment(
    base: Mapping[str, str], extra: Iterable[str], interpret: bool, cache_folder: Path
) -> dict[str, str]:
    """The variables that a worker starts with: allow-listed ones of `base`, caches of its own, no secret.

    `extra` names further variables that the project allows. `interpret` makes Triton interpret kernels: it must be set
    before the worker imports Triton; with it torch loads no accelerator's plugin, which dies where its driver is
    missing, and keeps to one thread, since the interpreter gains nothing from more.
    """
    allowed = frozenset(extra) | PASSED_NAMES
    passed = {name: value for name, value in base.items() if _passes(name, value, allowed)}
    own = {
        "TRITON_CACHE_DIR": str(cache_folder / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache_folder / "inductor"),
        # A comment above a kernel must not change what it compiles to.
        "TRITON_DISABLE_LINE_INFO": "1",
    }
    return passed | own | (_INTERPRETING if interpret else {})


_INTERPRETING = {"TRITON_INTERPRET": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"}


def _passes(name: str, value: str, allowed: frozenset[str]) -> bool:
    """TRITON_INTERPRET is perfci's to set: one left in a shell would time the interpreter in a kernel's place."""
    if name in CACHES or name == "TRITON_INTERPRET" or _holds_secret(name, value):
        return False
    return name in allowed or name.startswith(PASSED)


def _holds_secret(name: str, value: str) -> bool:
    """By its name, or by an address with a password: https://user:word@host."""
    return is_secret(name) or re.search(r"://[^/\s]*@", value) is not None


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _flat(environment: Environment) -> Iterator[tuple[str, Fact]]:
    """Every compared field by its dotted name: device.driver, packages.torch, variables.CUDA_LAUNCH_BLOCKING."""
    for name, value in vars(environment).items():
        if name in UNCOMPARED:
            continue
        if isinstance(value, Device):
            yield from ((f"{name}.{part}", fact) for part, fact in vars(value).items())
        elif isinstance(value, Mapping):
            yield from ((f"{name}.{part}", fact) for part, fact in value.items())
        else:
            yield name, value
