"""`perfci tune`: workers that search until done or out of time, a new one if a candidate kills one, and the file."""

import dataclasses
import difflib
import hashlib
import time
from dataclasses import dataclass
from pathlib import Path

from perfci.core import VERSION, environment
from perfci.core.errors import ContractError, DeviceError, PerfciError, StoredFileError, UsageError
from perfci.core.model import UNTIMED, Fact, Reason, board_key
from perfci.core.settings import Settings
from perfci.extensions.lab.tune.files import GENERIC, change_tuned, read_space, read_tuned
from perfci.extensions.lab.tune.records import SUITE, Attempt, Choice, Choices, SearchFile, decide, key, open_search
from perfci.extensions.lab.tune.task import Regimes, Trying, Tune
from perfci.ops.discover import OpFolder, select_one
from perfci.ops.fingerprint.tree import Tree
from perfci.runs.bench import (
    Bench,
    Listener,
    WorkerPlace,
    claim_bench,
    list_files,
    make_environment,
    place_ops,
    plan_opening,
)
from perfci.runs.boards import put_sick_aside
from perfci.runs.describe import describe_ops, find_violation
from perfci.runs.plan import Request, draw_seed
from perfci.store.files import write_atomically
from perfci.worker.process import run_worker
from perfci.worker.protocol import Message, OpDone

FOLDER = "tune"  # in the reports folder: a file of each search

_DEATHS = ("worker_", "tune_device_lost")  # how kinds of failure begin that took the worker with them


@dataclass(frozen=True)
class Tuning:
    """The result of a search."""

    op: str
    device: str
    file: Path  # the tuned file
    search: SearchFile
    choices: tuple[Choice, ...] = ()  # one for each entry that serves a case
    diff: tuple[str, ...] = ()
    written: bool = False
    late: bool = False  # the time was up before the search was over
    unserved: tuple[str, ...] = ()
    notes: tuple[Reason, ...] = ()


def tune_op(settings: Settings, request: Request, listener: Listener, *, write: bool = False) -> Tuning:
    """Searches an op's configurations. Writes its tuned file if that was asked for. Raises PerfciError."""
    op = check_tunable(select_one(settings, *request.ops))
    kept = dataclasses.replace(settings, reports=settings.reports / FOLDER)
    with claim_bench(kept, listener) as bench:
        tuner = _Tuner(bench, settings, request, op)
        tuner.run()
        return tuner.conclude(write=write)


def check_tunable(op: OpFolder) -> OpFolder:
    """Returns the op. Raises PerfciError if its files show that it cannot be tuned."""
    if reason := find_violation(op):
        raise ContractError(reason.kind, **reason.facts)
    read_space(op.op, op.folder)
    return op


class _Tuner:
    """One search, from worker to worker."""

    def __init__(self, bench: Bench, settings: Settings, request: Request, op: OpFolder) -> None:
        """Raises UsageError if no case fits the pattern."""
        self._bench, self._settings, self._request, self._op = bench, settings, request, op
        self._regimes: Regimes | None = None
        self._trying: Trying | None = None
        self._late = False
        ops = describe_ops(bench, request)
        (planned,) = ops.ops
        if planned.failure:
            raise PerfciError(planned.failure.kind, **planned.failure.facts)
        if ops.device.kind in UNTIMED:
            raise DeviceError("tune_not_timed", op=planned.op)
        if not planned.performance:
            raise UsageError("no_case_fits", ops=planned.op, pattern=request.pattern)
        self._kind, self._key = ops.device.kind, ops.device.key
        sick = put_sick_aside(bench, ops, settings)
        if not bench.boards and board_key(ops.device.uuid or "") in set(map(board_key, sick)):
            raise DeviceError("tune_sick", board=ops.device.uuid)
        packages = environment.installed_versions(environment.PACKAGES)
        files = Tree(settings.root, settings.kernels).fingerprint(op.op).digest
        asked: dict[str, Fact] = {"op": op.op, "device": self._key, "case": request.pattern, "timer": request.timer}
        asked |= {"files": files, "perfci": VERSION}
        asked["packages"] = ", ".join(f"{name} {version}" for name, version in sorted(packages.items()))
        part = f"-{hashlib.sha256(request.pattern.encode()).hexdigest()[:8]}" if request.pattern else ""
        path = bench.settings.reports / f"{op.op}-{self._key}{part}.jsonl"
        self._search: SearchFile = open_search(path, asked, request.seed, draw_seed())

    def run(self) -> None:
        """Has workers search until one comes to the end. Raises what keeps them all from it."""
        request, op = self._request, self._op
        until_s = time.time() + request.budget_s
        place = WorkerPlace(f"tune-{op.op}", self._kind, self._settings.root, backend=op.backend)
        around = make_environment(self._bench, place)
        alone = False
        while True:
            self._trying = None
            task = Tune(
                place=place_ops(self._settings, list_files((op,))),
                opening=plan_opening(self._settings, self._kind, self._search.head.seed, request.timer),
                pattern=request.pattern,
                until_s=until_s,
                known=tuple(self._search.tried),
                alone=alone,
            )
            failure = run_worker(task, around, self._hear)
            if failure is None:
                return
            trying: Trying | None = self._trying
            # If several were timed together, each is tried alone to find the one that kills its worker.
            if trying is None or not failure.kind.startswith(_DEATHS) or (alone and not trying.regime):
                raise PerfciError(failure.kind, **failure.facts)
            if trying.regime:
                self._search.add(Attempt(trying.regime, trying.config, failure=failure))
            else:
                alone = True

    def _hear(self, message: Message) -> None:
        match message:
            case Regimes():
                self._regimes = message
            case Trying():
                self._trying = message
            case Attempt():
                self._search.add(message)
            case OpDone():
                self._late = message.late
        self._bench.listener(message)

    def conclude(self, *, write: bool) -> Tuning:
        """The result. The tuned file is written if that is asked for and something changes."""
        seen, search, op = self._regimes, self._search, self._op.op
        if seen is None:
            raise PerfciError("worker_silent")
        choices: list[Choice] = []
        for regime in (regime for regime in reversed(seen.regimes) if regime.cases):
            tried = [attempt for attempt in search.tried if attempt.regime == regime.label]
            grid = Choices(regime.lists, lambda _: True, search.head.seed, regime.current)
            # An entry after one that is not there would take its calls.
            choice = decide(grid, regime, tried, needed=any(choice.changed for choice in choices))
            passed = {attempt.key for attempt in tried if attempt.stage == SUITE and not attempt.failure}
            if choice.changed and key(choice.config) not in passed:
                # A candidate that has not passed the accuracy suite yet is none.
                choice = dataclasses.replace(choice, config=None, change=None)
            choices.insert(0, choice)
        path, root = Path(seen.file), self._settings.root
        file = read_tuned(path)
        if file.digest != seen.digest:
            raise StoredFileError("tune_edited", path=str(path), state=str(search.path))
        text = change_tuned(file, seen.regimes, choices)
        written = write and text != file.text
        if written:
            if seen.key == GENERIC:
                raise UsageError("tune_generic", device=self._key, folder=str(self._settings.kernels / "_devices"))
            write_atomically(path, text.encode())
        notes = [Reason("tune_anew", {"path": str(search.path)})] if search.anew else []
        if seen.unserved:
            notes.append(Reason("tune_unserved_some", {"count": len(seen.unserved), "case": seen.unserved[0]}))
        if self._late:
            notes.append(Reason("tune_late", {"op": op}))
        name = path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
        old, new = file.text.splitlines(), text.splitlines()
        diff = difflib.unified_diff(old, new, name if old else "nothing", name, lineterm="", n=1)
        return Tuning(
            op, self._key, path, search, tuple(choices), tuple(diff), written, self._late, seen.unserved, tuple(notes),
        )  # fmt: skip
