"""Obstacles to a trustworthy run on this machine: facts are gathered first, then judged by pure rules."""

import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from perfci import git
from perfci.core import extensions, locks
from perfci.core.environment import PACKAGES, installed_versions, telling
from perfci.core.errors import PerfciError, StoredFileError
from perfci.core.model import Device, DeviceState, Fact, Reason, board_key
from perfci.core.settings import Settings
from perfci.device.tritons import KNOWN, release
from perfci.extensions.doctor.task import Examine, Examined
from perfci.ops.backends import BACKENDS, Interpreter
from perfci.ops.discover import select
from perfci.runs.bench import (
    Bench,
    Listener,
    WorkerPlace,
    call_both,
    explain_slow_start,
    make_environment,
    open_bench,
    place_ops,
    plan_opening,
    warm_up,
)
from perfci.runs.boards import find_sick
from perfci.runs.effective_thresholds import list_known_ops, relaxed_note
from perfci.runs.plan import draw_seed
from perfci.thresholds.read import load
from perfci.worker import confine
from perfci.worker.process import confined, run_worker
from perfci.worker.protocol import Message, Ready

DECLARED = {"Python": ((3, 11), (3, 13)), "torch": ((2, 6), (2, 15)), "Triton": KNOWN}
"""First and last release that perfci is made for; docs/versions.md has the combinations that were run."""


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    NOTE = "note"  # worth knowing; results can still be trusted
    PROBLEM = "problem"  # results would be wrong, noisy or missing


OK, NOTE, PROBLEM = Level


@dataclass(frozen=True)
class DoctorFinding:
    """One thing that was looked at. The reason's sentence holds the remedy."""

    level: Level
    reason: Reason


@dataclass(frozen=True)
class Facts:
    """All that the rules look at."""

    python: str
    packages: Mapping[str, str]
    variables: Mapping[str, str] = field(default_factory=dict)
    device: Device | None = None
    state: DeviceState | None = None
    device_failure: Reason | None = None  # why the device or its timer cannot be used
    timer: str | None = None  # activity, event or virtual. None if nothing can be timed
    has_nvidia: bool = False  # the NVIDIA driver is loaded, whatever torch sees
    looks: tuple["HostLook", ...] = ()  # of extensions, at their hardware
    slow_start: Reason | None = None  # why each worker imports its packages anew
    landlock: int = 0  # version. 0: kernels can write whatever their user can
    fenced: bool = False  # no process can leave its worker's group
    isolated: bool = False  # workers see no process outside
    here: git.Revision | Reason | None = None  # what is checked out, or why git does not know
    lock_folder: str = ""
    lock_writable: bool = True
    lock_shared: bool = True  # other containers on this machine see it too
    lock_displaced: Reason | None = None  # why it lies elsewhere than it should
    reports: str = ""
    reports_writable: bool = True
    quarantine: tuple[str, ...] = ()
    sick: tuple[str, ...] = ()  # boards that accepted runs show to be sick
    thresholds: tuple[Reason, ...] = ()  # entries that have ended, files that cannot be read
    ops: Reason | None = None  # why the project has no op to check
    interpreters: Mapping[str, Interpreter | Reason] = field(default_factory=dict)
    """backend -> the Python that the settings name for it, or why that cannot be used"""


NOTHING_RUNS = frozenset({"doctor_no_toolchain", "doctor_no_torch", "doctor_no_triton"})
"""Kinds of findings with which no kernel can run, but on the fake device"""

CPU_INDEX = "https://download.pytorch.org/whl/cpu"


class HostLook(Protocol):
    """An extension's facts of a machine."""

    def judge(self, facts: Facts) -> Iterator[tuple[bool, Reason]]:
        """Yield what stands in the way of the extension's hardware, and whether it is a problem. Pure."""


def gather(settings: Settings, kind: str, listener: Listener) -> Facts:
    """Look at the machine without importing torch. A worker opens the device and starts its timer."""
    heard: list[Message] = []
    with open_bench(settings, listener) as bench:
        task = Examine(place=place_ops(settings, ()), opening=plan_opening(settings, kind, draw_seed()))
        warm_up(bench, kind)
        around = make_environment(bench, WorkerPlace("doctor", kind))
        failure = run_worker(task, around, call_both(heard.append, listener))
        interpreters = {
            backend: _find_interpreter(bench, backend, kind)
            for backend in BACKENDS
            if backend in bench.settings.backends
        }
    seen = next((message for message in heard if isinstance(message, Examined)), None)
    device = next((message.device for message in heard if isinstance(message, Ready)), None)
    try:
        select(settings, ())
        ops = None
    except PerfciError as error:
        ops = error.reason
    lock = settings.lock_folder or Path(tempfile.gettempdir())
    # A container of Docker, Podman or Kubernetes.
    marks = (Path("/.dockerenv"), Path("/run/.containerenv"))
    contained = any(mark.exists() for mark in marks) or "KUBERNETES_SERVICE_HOST" in os.environ
    mounted = _find_existing(lock).stat().st_dev != Path("/").stat().st_dev
    has_nvidia = Path("/proc/driver/nvidia/version").exists()
    # Behind the one that collects ended processes, a worker is the second of its namespace.
    number = confined([sys.executable, "-Sc", "import os; print(os.getpid())"], ())
    isolated = subprocess.run(number, capture_output=True, check=False).stdout.strip() == b"2"
    return Facts(
        python=platform.python_version(), packages=installed_versions(PACKAGES), variables=telling(os.environ),
        device=device, device_failure=failure,
        state=seen.state if seen else None, timer=seen.timer if seen else None,
        has_nvidia=has_nvidia,
        looks=tuple(look(os.environ, has_gpu=has_nvidia) for look in extensions.provided("doctor")),
        slow_start=explain_slow_start(),
        landlock=confine.landlock_version(), fenced=confine.can_fence(), isolated=isolated,
        here=git.read(settings.root), lock_folder=str(lock), lock_writable=is_writable(lock),
        lock_shared=not contained or (settings.lock_folder is not None and mounted),
        lock_displaced=locks.find_displaced(settings.lock_folder),
        reports=str(settings.reports), reports_writable=is_writable(settings.reports),
        quarantine=settings.quarantine, sick=find_sick(settings), thresholds=_list_ended(settings, device), ops=ops,
        interpreters=interpreters,
    )  # fmt: skip


def examine(facts: Facts) -> tuple[DoctorFinding, ...]:
    """Every finding, in the order in which a run would stumble over it."""
    return (*_judge_packages(facts), *_judge_host(facts), *_judge_device(facts), *_judge_project(facts))


def is_writable(folder: Path) -> bool:
    """Whether files can be made in a folder, or in the nearest one above it that exists."""
    try:  # asked for its rights alone, root may write everywhere, a read-only or a system's file system too
        with tempfile.TemporaryFile(dir=_find_existing(folder)):
            return True
    except OSError:
        return False


def _list_ended(rules: Settings, device: Device | None) -> tuple[Reason, ...]:
    """Relaxed entries that have no effect any more, on a device or on any. Else why the files cannot be read."""
    today, key = datetime.now(UTC).date(), device.key if device else None
    try:
        written = load(rules.thresholds, list_known_ops(rules), rules.root)
    except StoredFileError as error:
        return (error.reason,)
    entries = (entry for op in sorted(written.ops) for entry in written.ops[op].relaxed)
    return tuple(relaxed_note(entry, today) for entry in entries if entry.about(key) and not entry.holds(today))


def _find_existing(folder: Path) -> Path:
    return next((parent for parent in (folder, *folder.parents) if parent.exists()), folder)


def _find_interpreter(bench: Bench, backend: str, kind: str) -> Interpreter | Reason:
    """The Python that the settings name for a backend. A reason that it cannot be used."""
    facts: dict[str, Fact] = {"backend": backend, "python": bench.find_python(backend)}
    other = bench.find_interpreter(backend, kind)
    if not isinstance(other, Interpreter):
        return Reason("doctor_backend_python_broken", {**facts, "why": other})
    packages = BACKENDS[backend].packages
    if not other.modules.intersection(packages):
        return Reason("doctor_backend_python_lacks", {**facts, "package": next(iter(packages.values()))})
    return other


def _find(level: Level, kind: str, **facts: Fact) -> DoctorFinding:
    return DoctorFinding(level, Reason(kind, facts))


def _judge_packages(facts: Facts) -> Iterator[DoctorFinding]:
    packages, npu = facts.packages, "torch-npu" in facts.packages
    torch, ascend = packages.get("torch"), packages.get("triton-ascend")
    upstream = packages.get("triton") or packages.get("pytorch-triton")  # its name in nightly builds of torch
    if torch is None and not (upstream or ascend) and not _has_other_hardware(facts):
        # A GPU's torch is what pip takes by itself, with the package that shows its clocks.
        packages_to_install = (
            "torch triton nvidia-ml-py" if facts.has_nvidia else f"torch triton --extra-index-url {CPU_INDEX}"
        )
        yield _find(PROBLEM, "doctor_no_toolchain", command=f"pip install {packages_to_install}")
        return
    if torch is None:
        yield _find(PROBLEM, "doctor_no_torch", index=CPU_INDEX)
    elif facts.has_nvidia and "+cpu" in torch and not npu:
        yield _find(PROBLEM, "doctor_torch_without_cuda", version=torch)
    else:
        yield _find(OK, "doctor_torch", version=torch, python=facts.python)
    if upstream or ascend:
        yield _find(OK, "doctor_triton", name="Triton" if upstream else "triton-ascend", version=upstream or ascend)
    else:
        yield _find(PROBLEM, "doctor_no_triton")
    for backend, other in facts.interpreters.items():
        if isinstance(other, Reason):
            yield DoctorFinding(PROBLEM, other)
        else:
            names = ("python", "torch", *(name.partition("[")[0] for name in BACKENDS[backend].packages.values()))
            told = ", ".join(f"{name} {other.versions[name]}" for name in names if name in other.versions)
            yield _find(OK, "doctor_backend_python", backend=backend, python=other.path, versions=told)
    # perfci was never run with other versions. It may well work, but no one has looked.
    versions = {"Python": facts.python, "torch": torch, "Triton": upstream}
    for name, (first, last) in DECLARED.items():
        version = versions[name]
        if version and not first <= release(version) <= last:
            low, high = ("{}.{}".format(*end) for end in (first, last))
            yield _find(NOTE, "doctor_version_undeclared", name=name, version=version, first=low, last=high)
    # Triton's interpreter before 3.7 fails on loops over a runtime bound with numpy 2.4 and later.
    numpy, triton = packages.get("numpy"), ascend or upstream
    if numpy and triton and release(triton) < (3, 7) and release(numpy) >= (2, 4):
        level = NOTE if facts.device is not None and facts.device.kind in {"cuda", "npu"} else PROBLEM
        yield _find(level, "doctor_numpy_too_new", triton=triton, numpy=numpy)


def _has_other_hardware(facts: Facts) -> bool:
    """Whether an extension names what its hardware lacks."""
    return any(is_problem for look in facts.looks for is_problem, _ in look.judge(facts))


def _judge_host(facts: Facts) -> Iterator[DoctorFinding]:
    """Obstacles to a device: what extensions know of theirs, a package that is missing, variables."""
    for look in facts.looks:
        yield from (DoctorFinding(PROBLEM if is_problem else NOTE, why) for is_problem, why in look.judge(facts))
    if facts.has_nvidia and "torch" in facts.packages and "nvidia-ml-py" not in facts.packages:
        yield _find(NOTE, "doctor_no_nvml")
    blocking, interpret = (facts.variables.get(name, "") for name in ("CUDA_LAUNCH_BLOCKING", "TRITON_INTERPRET"))
    if blocking not in {"", "0"}:
        yield _find(PROBLEM, "doctor_launch_blocking", name="CUDA_LAUNCH_BLOCKING", value=blocking)
    if interpret not in {"", "0"}:
        yield _find(NOTE, "doctor_interpret", value=interpret)
    if facts.slow_start:
        yield DoctorFinding(NOTE, facts.slow_start)
    if facts.landlock and facts.fenced:
        yield _find(OK, "doctor_isolated" if facts.isolated else "doctor_confined", version=facts.landlock)
    else:
        yield _find(NOTE, "doctor_unconfined" if not facts.landlock else "doctor_unfenced")


_HELD_DOWN = frozenset({"thermal", "power_brake", "hw_slowdown"})  # the ordinary power cap is none of them


def _judge_device(facts: Facts) -> Iterator[DoctorFinding]:
    device, failure, state = facts.device, facts.device_failure, facts.state
    if failure is not None:
        if failure.kind != "torch_missing":  # among the findings about packages already
            yield DoctorFinding(PROBLEM, failure)
    elif device is None or device.kind == "cpu":
        yield (_find(PROBLEM, "doctor_device_unseen") if facts.has_nvidia else _find(NOTE, "doctor_no_device"))
    else:
        yield _find(OK, "doctor_device", name=device.name, driver=device.driver, runtime=device.runtime, key=device.key)
    board = device.uuid if device else None
    if board and board_key(board) in set(map(board_key, facts.quarantine)):
        yield _find(NOTE, "doctor_quarantined", board=board)
    if board and board_key(board) in set(map(board_key, facts.sick)):
        yield _find(PROBLEM, "doctor_board_sick", board=board)
    if facts.timer == "event":
        yield _find(NOTE, "doctor_npu_timer_events" if _is_npu(facts) else "doctor_timer_events")
    elif facts.timer is not None:
        yield _find(OK, "doctor_timer", timer=facts.timer)
    if state is None:
        return
    if held := sorted(_HELD_DOWN.intersection(state.throttle)):
        yield _find(PROBLEM, "doctor_throttled", why=", ".join(held), temperature=state.temperature_c)
    if state.ecc_errors:
        yield _find(PROBLEM, "ecc_errors", count=state.ecc_errors)
    if state.foreign_processes:
        yield _find(PROBLEM, "doctor_foreign", count=state.foreign_processes)
    if state.sm_clock_mhz is not None:
        kind = "doctor_npu_state" if _is_npu(facts) else "doctor_state"
        yield _find(OK, kind, clock=state.sm_clock_mhz, temperature=state.temperature_c, power=state.power_w)


def _is_npu(facts: Facts) -> bool:
    return facts.device is not None and facts.device.kind == "npu"


def _judge_project(facts: Facts) -> Iterator[DoctorFinding]:
    match facts.here:
        case Reason():
            yield DoctorFinding(NOTE, facts.here)
        case git.Revision(commit=str(commit), dirty=dirty):
            yield _find(NOTE if dirty else OK, "doctor_dirty" if dirty else "doctor_commit", commit=commit[:12])
        case _:
            yield _find(NOTE, "doctor_no_commit")
    if facts.ops is not None:
        yield DoctorFinding(PROBLEM, facts.ops)
    timed = facts.device is not None and facts.device.kind != "cpu"
    if facts.lock_displaced:
        yield DoctorFinding(PROBLEM if timed else NOTE, facts.lock_displaced)
    if not facts.lock_writable:
        yield _find(PROBLEM, "lock_unwritable", path=facts.lock_folder, error="permission denied, or no such folder")
    elif not facts.lock_shared and timed:
        yield _find(NOTE, "doctor_lock_in_container", folder=facts.lock_folder)
    if facts.reports_writable:
        yield _find(OK, "doctor_reports", folder=facts.reports)
    else:
        yield _find(PROBLEM, "doctor_reports_unwritable", folder=facts.reports)
    for reason in facts.thresholds:
        yield DoctorFinding(NOTE if reason.kind == "relaxed_ended" else PROBLEM, reason)
