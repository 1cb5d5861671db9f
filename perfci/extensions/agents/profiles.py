"""`perfci profile`: where the time of an op's cases goes, and what promises to shorten it."""

import dataclasses
from datetime import UTC, datetime
from math import prod
from pathlib import Path

from perfci.core.errors import PerfciError
from perfci.core.model import DuelWhat, Limits, PerformanceCase, Suite
from perfci.core.model.measured import find_median
from perfci.core.settings import Settings
from perfci.extensions.agents.bottleneck import diagnose
from perfci.extensions.agents.profile_records import CaseProfile, Looked, Profile
from perfci.extensions.agents.profile_task import ProfileOp
from perfci.extensions.common.targets import TARGETS
from perfci.ops.discover import select_one
from perfci.ops.fingerprint.tree import Tree
from perfci.report.speed import find_rates
from perfci.runs.bench import Listener, WorkerPlace, claim_bench, list_files, make_environment, place_ops, plan_opening
from perfci.runs.experiment import Experiment
from perfci.runs.plan import Request
from perfci.store import NAME
from perfci.store.files import decode, encode, write_atomically
from perfci.worker.process import run_worker

FOLDER = "profiles"  # in the reports folder: the last profile of each op, and what the workers printed

BUDGET_S = 0.2  # seconds of device time a case: for a place below a ceiling, not for a verdict


def profile_op(settings: Settings, request: Request, listener: Listener, command: str = "perfci profile") -> Profile:
    """Measures the cases of the request's only op, looks at their code and counters, and keeps what that means.

    Raises UsageError if no case fits, PerfciError if the op breaks, or the device cannot be opened or times nothing.
    """
    chosen, moved = select_one(settings, *request.ops), dataclasses.replace(settings, reports=settings.reports / FOLDER)
    budget_s = min(request.budget_s, BUDGET_S)
    request = dataclasses.replace(request, suites=(Suite.PERFORMANCE,), duel=DuelWhat.NONE, budget_s=budget_s)
    digest = Tree(settings.root, settings.kernels).fingerprint(chosen.op).digest
    with claim_bench(moved, listener) as bench:
        run = Experiment.find(bench, request, command).measure()
        (op,), device = run.ops, run.environment.device
        if failure := op.failure or op.unmeasured:
            raise PerfciError(failure.kind, **failure.facts)
        seen = [case.case for case in op.performance if case.blocks and not case.failure]
        heard = [Looked()]
        opening = plan_opening(moved, device.kind, run.plan.seed, request.timer)
        task = ProfileOp(place=place_ops(moved, list_files([chosen])), opening=opening, cases=tuple(seen))
        around = make_environment(bench, WorkerPlace(f"profile-{op.op}", device.kind, backend=chosen.backend))
        # A process of the profiler's makes the calls, in which CUDA names its threads.
        around = dataclasses.replace(around, writable=(*around.writable, Path("/proc")))
        note = run_worker(
            task, around, lambda message: heard.append(message) if isinstance(message, Looked) else listener(message)
        )
        looked = heard[-1]
        target = TARGETS.get(looked.target or "")
        read = (_read_case(case, looked, run.limits) for case in op.performance)
        cases = tuple(diagnose(case, device, target) for case in read)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        profile = Profile(op.op, device, now, looked.counters.source, note or looked.counters.note, cases, digest)
        path = find_path(settings, op.op)
        write_atomically(path, encode(profile, path))
    return profile


def _read_case(case: PerformanceCase, looked: Looked, limits: Limits) -> CaseProfile:
    """A case's measurements, medians over its blocks."""
    kernels = [block.arms["kernel"] for block in case.blocks]
    us = find_median(arm.time.median_us for arm in kernels)
    rates = find_rates(case, us, limits) if us else {}
    return CaseProfile(
        case.case, us,
        counters=looked.counters.cases.get(case.case, {}),
        host_us=find_median(block.arms["kernel"].host_us for block in case.host),
        activities=kernels[0].activities if kernels else None,
        programs=max((prod(launch.grid) for launch in case.identity.launches), default=None) if case.identity else None,
        bytes_moved=case.bytes_moved,
        rates={name: rate for name, rate in rates.items() if rate is not None},
        binaries=looked.binaries.get(case.case, ()),
        failure=case.failure,
    )  # fmt: skip


def find_path(settings: Settings, op: str) -> Path:
    """Where the last profile of an op is stored."""
    return settings.reports / FOLDER / f"{op}.json"


def read_profile(settings: Settings, op: str) -> Profile | None:
    """The last profile of an op. None if there is none. Raises StoredFileError for one that cannot be read.

    op: of a run's file, for example, where it may be any text: one that names no file has no profile.
    """
    if not NAME.fullmatch(op):
        return None
    path = find_path(settings, op)
    return decode(path, Profile) if path.exists() else None
