"""Which variables a worker gets. Imports little: it is needed before anything else of perfci is imported."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

PASSED = (
    "ASCEND", "CUBLAS", "CUDA", "CUDNN", "CUTE_DSL_", "GOMP_", "HCCL_", "HELION_", "KMP_", "LC_", "MKL_", "NCCL_",
    "NPU_", "NVIDIA", "OMP_", "PYTHON", "PYTORCH", "TILELANG_", "TL_", "TORCH", "TRITON_",
)  # fmt: skip
PASSED_NAMES = frozenset({
    "AR", "CC", "CI", "CONDA_PREFIX", "CPU_AFFINITY_CONF", "CXX", "HOME", "INF_NAN_MODE_ENABLE", "LANG", "LANGUAGE",
    "LD_LIBRARY_PATH", "LD_PRELOAD", "LOGNAME", "PATH", "SYSTEMROOT", "TASK_QUEUE_ENABLE", "TEMP", "TMP", "TMPDIR",
    "TOOLCHAIN_HOME", "TZ", "USER", "VIRTUAL_ENV",
})  # fmt: skip
"""Variables that workers may see, by prefix or by name. No other variable reaches them."""

CACHES = frozenset({"TRITON_CACHE_DIR", "TRITON_DUMP_DIR", "TRITON_OVERRIDE_DIR", "TORCHINDUCTOR_CACHE_DIR"})
"""Folders from which a worker could get what another process compiled."""

OWN = {
    "TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor", "TORCH_EXTENSIONS_DIR": "extensions",
    "CUDA_CACHE_PATH": "cuda", "CUDA_TILE_CACHE_DIR": "cutile", "CUDA_TILE_TEMP_DIR": "tmp", "CUPY_CACHE_DIR": "cupy",
    "CUTE_DSL_CACHE_DIR": "cutedsl", "CUTE_DSL_DUMP_DIR": "tmp", "HELION_CACHE_DIR": "helion",
    "TILELANG_CACHE_DIR": "tilelang", "FLAGGEMS_CACHE_DIR": "flaggems", "ASCEND_CACHE_PATH": "ascend",
    "ASCEND_WORK_PATH": "ascend", "ASCEND_PROCESS_LOG_PATH": "ascend/log", "TMPDIR": "tmp",
}  # fmt: skip
"""Folders that each worker has for itself, since it can write nowhere else, below one that it is given."""

OFFLINE = "PERFCI_OFFLINE"
OPENS_NONE = {OFFLINE: "1", "CUDA_VISIBLE_DEVICES": "", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
"""Variables of workers that compile without a device: they open none, even if there is one."""

SECRET = re.compile(
    r"TOKEN|SECRET|PASSPHRASE|PASSWORD|PASSWD|CREDENTIAL|PRIVATE|COOKIE|HEADERS|(PGPASS|_(AUTH|DSN|PASS|PAT|PWD))\Z|_KEY\Z",
    re.IGNORECASE,
)


def worker_environment(
    base: Mapping[str, str], extra: Iterable[str], interpret: bool, cache_folder: Path
) -> dict[str, str]:
    """Returns a worker's variables: those of `base` allowed here or by name in `extra`, its caches, no secret."""
    # Interpreters are chosen by perfci only: one left in a shell would be timed instead of the kernel.
    withheld = CACHES | {"TRITON_INTERPRET", "HELION_INTERPRET"}
    allowed = frozenset(extra) | PASSED_NAMES
    passed = {
        name: value
        for name, value in base.items()
        if name not in withheld and (name in allowed or name.startswith(PASSED)) and not holds_secret(name, value)
    }
    added = {
        **{name: str(cache_folder / folder) for name, folder in OWN.items()},
        "TRITON_DISABLE_LINE_INFO": "1",  # a comment above a kernel must not change what it compiles to
        "TRITON_CACHE_AUTOTUNING": "1",  # all processes of an op, which share its caches, run what the first one chose
    }
    if interpret:  # torch then loads no accelerator's plugin, which would fail without its driver
        added |= {"TRITON_INTERPRET": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"}
    return passed | added


def is_secret(name: str) -> bool:
    """Returns whether a variable of this name may hold a secret. Secrets never reach a worker.

    >>> is_secret("CI_JOB_TOKEN"), is_secret("api_key"), is_secret("PYTHONPATH")
    (True, True, False)
    """
    return SECRET.search(name) is not None


def holds_secret(name: str, value: str) -> bool:
    """Returns whether the name is a secret's, or the value an address with a password: https://user:word@host."""
    return is_secret(name) or re.search(r"://[^/\s]*@", value) is not None
