"""The environment: all that may move a number although the kernel did not change."""

import functools
import os
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase

from perfci.core.model import BaselineRun, Bearing, Device, Difference, Environment, Fact
from perfci.core.variables import holds_secret

BACKEND_PACKAGES = ("ascendnpu-ir", "cuda-core", "cuda-tile", "helion", "nvidia-cutlass-dsl", "tilelang")
"""Compilers of some ops or targets only"""

PACKAGES = (
    "perfci", "torch", "triton", "pytorch-triton", "torch-npu", "triton-ascend", "numpy", "scipy", "nvidia-ml-py",
    "nvidia-cublas", "nvidia-cublas-cu12", "nvidia-cuda-cupti", "nvidia-cuda-cupti-cu12", "nvidia-cudnn-cu12",
    "nvidia-cudnn-cu13", *BACKEND_PACKAGES,
)  # fmt: skip
"""Distributions with a version that is recorded. Kernels, references and timers come from them."""

REFERENCE_PACKAGES = (
    "torch", "torch-npu", "nvidia-cublas", "nvidia-cublas-cu12", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13",
)  # fmt: skip
"""References come from these. With another version their times give no information about the clock."""

TELLING = (
    "TRITON_", "CUTE_DSL_", "CUDA_TILE_", "HELION_", "TILELANG_", "TL_", "PYTORCH_", "TORCH_", "TORCHINDUCTOR_",
    "CUBLAS_", "CUDNN_", "ASCEND_", "NPU_", "HCCL_",
)  # fmt: skip
TELLING_NAMES = frozenset({
    "CPU_AFFINITY_CONF", "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING", "CUDA_VISIBLE_DEVICES", "INF_NAN_MODE_ENABLE",
    "NVIDIA_TF32_OVERRIDE", "OMP_NUM_THREADS", "TASK_QUEUE_ENABLE",
})  # fmt: skip
"""Variables that change timing or code. They are recorded with a run."""

UNCOMPARED = frozenset({"commit", "dirty", "branch"})  # fields that identify the code, not its environment

UNTOLD = (
    "ASCEND_AICPU_PATH", "ASCEND_CACHE_PATH", "ASCEND_HOME_PATH", "ASCEND_OPP_PATH", "ASCEND_PROCESS_LOG_PATH",
    "ASCEND_RT_VISIBLE_DEVICES", "ASCEND_TOOLKIT_HOME", "ASCEND_VISIBLE_DEVICES", "ASCEND_WORK_PATH",
    "CUDA_TILE_CACHE_DIR", "CUDA_TILE_TEMP_DIR", "CUDA_VISIBLE_DEVICES", "CUTE_DSL_CACHE_DIR", "CUTE_DSL_DUMP_DIR",
    "HELION_CACHE_DIR", "HELION_INTERPRET", "OMP_NUM_THREADS", "TILELANG_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR",
    "TORCH_CUDA_ARCH_LIST", "TORCH_DEVICE_BACKEND_AUTOLOAD", "TORCH_EXTENSIONS_DIR", "TORCH_HOME", "TORCH_INDEX",
    "TORCH_LOGS", "TORCH_SYMM_MEM_DISABLE_MULTICAST", "TRITON_CACHE_DIR", "TRITON_CUOBJDUMP_PATH",
    "TRITON_DISABLE_LINE_INFO", "TRITON_DUMP_DIR", "TRITON_HOME", "TRITON_INTERPRET", "TRITON_NVDISASM_PATH",
    "TRITON_OVERRIDE_DIR", "TRITON_PRINT_AUTOTUNING",
)  # fmt: skip
"""Recorded variables that move no number. What they select is recorded separately, concerns only the host or a build,
or is set by perfci in every worker."""

BEARINGS: tuple[tuple[str, Bearing], ...] = (
    ("timer", Bearing.APART),
    ("device.kind", Bearing.APART),
    ("device.key", Bearing.APART),
    ("device.uuid", Bearing.BOARD),
    ("device.*", Bearing.MOVES),
    ("python", Bearing.MOVES),  # its patch level is only named
    ("packages.perfci", Bearing.NAMED),  # one that times otherwise gives its timer another name
    *((f"packages.{name}", Bearing.NAMED) for name in ("numpy", "scipy", "nvidia-ml-py", *BACKEND_PACKAGES)),
    ("packages.*", Bearing.MOVES),
    *((f"variables.{name}", Bearing.NAMED) for name in UNTOLD),
    ("variables.*", Bearing.MOVES),
    ("host", Bearing.NAMED),
    ("system", Bearing.NAMED),
)
"""Pattern of a field's dotted name -> what a difference means for stored numbers. The first match decides.
docs/how-perfci-decides.md has the reasons."""

TOLD = 5  # most fields in one sentence


def describe(
    device: Device,
    timer: str | None,
    *,
    commit: str | None = None,
    branch: str | None = None,
    dirty: bool = False,
    variables: Mapping[str, str] | None = None,
) -> Environment:
    """Returns the environment of a run at a commit. Versions are read without importing the packages."""
    import socket

    return Environment(
        device=device, timer=timer, python=platform.python_version(), packages=installed_versions(PACKAGES),
        host=socket.gethostname(), system=f"{platform.system()} {platform.release()} {platform.machine()}",
        commit=commit, dirty=dirty, branch=branch,
        variables=telling(os.environ if variables is None else variables),
    )  # fmt: skip


def in_ci(variables: Mapping[str, str]) -> bool:
    """Returns whether a pipeline runs this: GitLab's, GitHub's and most others set one of these variables.

    >>> in_ci({"CI": "true"}), in_ci({"CI": "false"}), in_ci({"GITLAB_CI": "true"}), in_ci({})
    (True, False, True, False)
    """
    return any(variables.get(name, "").lower() not in {"", "0", "false", "no"} for name in ("CI", "GITLAB_CI"))


COMPILERS = ("triton", "triton-ascend", "torch", "ascendnpu-ir")  # what decides what a kernel compiles to


def installed_versions(names: Iterable[str]) -> dict[str, str]:
    """Returns the versions of the installed ones of these distributions, from their metadata."""
    return {name: version for name in names if (version := _version(name)) is not None}


def telling(variables: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that may change timing or code, without any that may hold a secret."""
    names = sorted(name for name in variables if name in TELLING_NAMES or name.startswith(TELLING))
    return {name: variables[name] for name in names if not holds_secret(name, variables[name])}


def differences(before: Sequence[Environment], after: Environment) -> tuple[Difference, ...]:
    """Returns the fields with a value that no earlier environment has, those that may move a number first."""
    old, new = [dict(flatten(one)) for one in before], dict(flatten(after))
    fields = dict.fromkeys(name for flat in (*old, new) for name in flat)
    differing = [
        difference for name in fields if (difference := _compare(name, [one.get(name) for one in old], new.get(name)))
    ]
    return tuple(sorted(differing, key=lambda difference: not difference.moves))


def unmixable(first: Environment, other: Environment) -> tuple[Difference, ...]:
    """Returns the differences that keep two runs out of one baseline. None if only their boards differ."""
    return tuple(
        difference for difference in differences([first], other) if difference.bearing in {Bearing.APART, Bearing.MOVES}
    )


def list_differences(differences: Sequence[Difference], most: int = TOLD) -> str:
    """Returns one line for all languages: device.driver 580.65 -> 590.12; packages.torch - -> 2.13; ... (+3)."""
    named = [
        f"{difference.field} {_clip(difference.before)} -> {_clip(difference.after)}"
        for difference in differences[:most]
    ]
    rest = [f"... (+{len(differences) - most})"] if len(differences) > most else []
    return "; ".join([*named, *rest])


def _clip(value: str | None) -> str:
    if value is None:
        return "-"
    return value if len(value) <= 48 else f"{value[:45]}..."


@functools.cache  # an environment is described before and after every op, and metadata are files
def _version(name: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _compare(name: str, before: Sequence[Fact], after: Fact) -> Difference | None:
    if name.startswith("device."):  # a missing fact is no difference: the management library may be missing
        before = [value for value in before if value is not None]
        if not before or after is None:
            return None
    if after in before or not before:
        return None
    values = dict.fromkeys("-" if value is None else str(value) for value in before)
    old = None if before[0] is None and len(values) == 1 else ", ".join(values)
    new = None if after is None else str(after)
    bearing = next((bearing for pattern, bearing in BEARINGS if fnmatchcase(name, pattern)), Bearing.MOVES)
    if name == "python" and old and new and new.split(".")[:2] in [part.split(".")[:2] for part in old.split(", ")]:
        bearing = Bearing.NAMED
    return Difference(name, old, new, bearing)


def flatten(environment: Environment) -> Iterator[tuple[str, Fact]]:
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


def find_newest(runs: Iterable[BaselineRun]) -> BaselineRun:
    """Returns the run that was made last, by clocks that are right: one from the future comes before all others."""
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    return max(runs, key=lambda run: (run.created <= now, run.created))
