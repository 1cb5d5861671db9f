"""The whole of `perfci tune`: workers that search until they are done or the time is up, and the file that comes of it.

All that a candidate showed is on disk before the next is tried. A worker that a candidate killed is followed by
another, which goes on behind it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import perfci
from perfci.core import environment
from perfci.core.errors import ContractError, DeviceError, PerfciError, StoredFileError, UsageError
from perfci.core.model import UNTIMED, Fact, Reason
from perfci.core.settings import Settings
from perfci.lab.tune import records, tuned_file
from perfci.lab.tune.devices import described
from perfci.lab.tune.records import SUITE, Regime, Tried
from perfci.lab.tune.search import Choice, Grid, decide
from perfci.lab.tune.space import read_space
from perfci.lab.tune.state import State, opened
from perfci.lab.tune.tuned_file import TunedFile, changed, read_tuned
from perfci.ops.discover import OpFolder, select
from perfci.ops.fingerprint.tree import Tree
from perfci.runs.bench import Bench, Listener, Place, claimed, surroundings
from perfci.runs.describe import contract_violation, describe_ops
from perfci.runs.plan import Request, draw_seed
from perfci.store.files import write_atomically
from perfci.worker.parent import WorkerEnvironment, run_worker
from perfci.worker.protocol import Job, Message, Modelled, OpDone, OpFiles, Regimes, Trying, TuneFiles

FOLDER = "tune"
"""In the reports folder: a file of each search, and a table of its candidates."""

GENERIC = "generic"
"""Device key of every device without a description."""

_DEATHS = ("worker_", "tune_device_lost")
"""Beginnings of the kinds that say that a candidate took its worker with it."""

_MODELLED = "By perfci's static model for a device that is not at hand, not measured. "


@dataclass(frozen=True)
class TuneOptions:
    """What is to be tuned."""

    op: str
    pattern: str | None = None
    device: str = "auto"
    budget_s: float = 600.0
    seed: int | None = None
    timer: str = "auto"
    spec: str | None = None
    write: bool = False


@dataclass(frozen=True)
class Tuning:
    """What came of a search."""

    op: str
    device: str
    file: Path
    """the tuned file"""
    seed: int
    choices: tuple[Choice, ...] = ()
    """one for each entry that serves a case"""
    tried: tuple[Tried, ...] = ()
    diff: tuple[str, ...] = ()
    written: bool = False
    late: bool = False
    """the time was up before the search was over"""
    resumed: bool = False
    unserved: tuple[str, ...] = ()
    spec: str | None = None
    like: str | None = None
    modelled: Mapping[str, Modelled] = field(default_factory=dict)
    state: Path = Path()
    said: tuple[Reason, ...] = ()


def tune_op(
    settings: Settings, options: TuneOptions, listener: Listener, heard: Callable[[Tried], None] = lambda _: None
) -> Tuning:
    """Search an op's configurations; writes its tuned file where that was asked for.

    Raises UsageError, ContractError and StoredFileError for what keeps it from searching, DeviceError without a device,
    and StoredFileError where the file was edited meanwhile.
    """
    op = _op(settings, options.op)
    read_space(op.op, op.folder)  # said before any worker starts
    spec = described(settings.kernels, options.spec) if options.spec is not None else None
    own = dataclasses.replace(settings, reports=settings.reports / FOLDER)
    with claimed(own, listener) as bench:
        kind, key = (options.device, spec.key) if spec else _device(bench, options, op)
        hunt = _Hunt(bench, settings, options, op, kind, key, heard)
        hunt.like = str(spec.values.get("like") or spec.key) if spec else None
        hunt.run()
        return hunt.answer()


def _op(settings: Settings, name: str) -> OpFolder:
    found = select(settings, (name,))
    if len(found) != 1:
        raise UsageError("tune_one_op", name=name, ops=", ".join(op.op for op in found))
    if reason := contract_violation(found[0]):
        raise ContractError(reason.kind, **reason.facts)
    return found[0]


def _device(bench: Bench, options: TuneOptions, op: OpFolder) -> tuple[str, str]:
    """Kind and key of the device at hand; raises UsageError where no case fits the pattern."""
    request = Request(ops=(op.op,), pattern=options.pattern, device=options.device, timer=options.timer)
    found = describe_ops(bench, request)
    (planned,) = found.ops
    if planned.failure:
        raise PerfciError(planned.failure.kind, **planned.failure.facts)
    if found.device.kind in UNTIMED:
        raise DeviceError("tune_not_timed", op=op.op)
    if not planned.performance:
        raise UsageError("tune_no_case", op=op.op, pattern=options.pattern)
    return found.device.kind, found.device.key


class _Hunt:
    """One search, from worker to worker."""

    def __init__(
        self,
        bench: Bench,
        settings: Settings,
        options: TuneOptions,
        op: OpFolder,
        kind: str,
        key: str,
        heard: Callable[[Tried], None],
    ) -> None:
        self._bench, self._settings, self._wishes, self._op = bench, settings, options, op
        self._kind, self._key, self._heard = kind, key, heard
        self.like: str | None = None
        self._regimes: Regimes | None = None
        self._trying: Trying | None = None
        self._modelled: dict[str, Modelled] = {}
        self._late = False
        self._until = time.time() + options.budget_s
        self._state = self._opened()

    def _opened(self) -> State:
        options, op = self._wishes, self._op
        print_ = Tree(self._settings.root, self._settings.kernels).fingerprint(op.op)
        packages = environment.installed(environment.PACKAGES)
        asked: dict[str, Fact] = {
            "op": op.op,
            "device": self._key,
            "case": options.pattern,
            "timer": options.timer,
            "files": print_.digest,
            "perfci": perfci.__version__,
            "packages": ", ".join(f"{name} {version}" for name, version in sorted(packages.items())),
        }
        part = f"-{hashlib.sha256(options.pattern.encode()).hexdigest()[:8]}" if options.pattern else ""
        path = self._bench.settings.reports / f"{op.op}-{self._key}{part}.jsonl"
        return opened(path, asked, options.seed, draw_seed())

    # --- workers --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Have workers search until one comes to the end; raises what keeps them all from it."""
        alone = False
        while True:
            self._trying = None
            failure = run_worker(self._job(alone=alone), self._around(), self._hear)
            if failure is None:
                return
            trying = self._trying
            if trying is None or not failure.kind.startswith(_DEATHS):
                raise _as_error(failure)
            if not trying.regime:
                if alone:
                    raise _as_error(failure)
                alone = True
                continue
            self._add(Tried(trying.regime, trying.config, failure=failure))

    def _job(self, *, alone: bool) -> Job:
        settings, options = self._settings, self._wishes
        return Job(
            task="tune",
            ops=(OpFiles(self._op.op, str(self._op.folder)),),
            shared_folder=str(settings.kernels),
            device="cuda" if options.spec else self._kind,
            seed=self._state.head.seed,
            pattern=options.pattern,
            run_started=time.time(),
            timer=options.timer,
            lock_folder=str(settings.lock_folder) if settings.lock_folder else None,
            lock_wait_s=settings.lock_wait_s,
            root=str(settings.root),
            until_s=self._until,
            fake=settings.fake,
            tune=TuneFiles(tuple(self._state.tried), options.spec, self.like, alone),
        )

    def _around(self) -> WorkerEnvironment:
        spec = self._wishes.spec
        place = Place(f"tune-{self._op.op}", "offline" if spec else self._kind, self._settings.root)
        around = surroundings(self._bench, place)
        if spec is None:
            return around
        hidden = {"CUDA_VISIBLE_DEVICES": "", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        return dataclasses.replace(around, environment={**around.environment, **hidden})

    def _hear(self, message: Message) -> None:
        match message:
            case Regimes():
                self._regimes = message
            case Trying():
                self._trying = message
            case Tried():
                self._add(message)
            case Modelled():
                self._modelled[message.case] = message
            case OpDone():
                self._late = message.late
        self._bench.listener(message)

    def _add(self, tried: Tried) -> None:
        self._state.add(tried)
        self._heard(tried)

    # --- the answer -----------------------------------------------------------------------------------------------

    def answer(self) -> Tuning:
        """What was found; the tuned file is written where it was asked for and something changes."""
        seen, state = self._regimes, self._state
        if seen is None:
            raise PerfciError("worker_silent")
        choices = self._choices(seen.regimes)
        path = Path(seen.file)
        file = read_tuned(path)
        if file.digest != seen.digest:
            raise StoredFileError("tune_edited", path=str(path), state=str(state.path))
        text = changed(file, seen.regimes, choices, _MODELLED + file.about if self._wishes.spec else None)
        said = (*self._said(seen), *_taken_over(self._op.op, seen.regimes, choices))
        written = self._written(file, text, seen)
        name = (
            path.relative_to(self._settings.root).as_posix() if path.is_relative_to(self._settings.root) else str(path)
        )
        return Tuning(
            self._op.op, self._key, path, state.head.seed, choices, tuple(state.tried),
            tuple(tuned_file.diff(file, text, name)), written, self._late, state.resumed, seen.unserved,
            self._wishes.spec, self.like, self._modelled, state.path, said,
        )  # fmt: skip

    def _choices(self, regimes: Sequence[Regime]) -> tuple[Choice, ...]:
        """One for each entry that serves a case; an entry behind one that is not there would take its calls."""
        choices: list[Choice] = []
        for regime in reversed(regimes):
            if regime.cases:
                needed = any(choice.changed for choice in choices)
                choices.insert(0, self._choice(regime, needed=needed))
        return tuple(choices)

    def _choice(self, regime: Regime, *, needed: bool) -> Choice:
        """An entry's; a candidate that the accuracy suite has not seen yet is no choice."""
        known = [each for each in self._state.tried if each.regime == regime.label]
        near = regime.current if self._wishes.spec else None
        grid = Grid(regime.lists, lambda _: True, self._state.head.seed, regime.current, near)
        choice = decide(grid, regime, known, needed=needed)
        passed = {each.key for each in known if each.stage == SUITE and not each.failure}
        if choice.changed and self._wishes.spec is None and records.key(choice.config) not in passed:
            return dataclasses.replace(choice, config=None, change=None)
        return choice

    def _written(self, file: TunedFile, text: str, seen: Regimes) -> bool:
        if not self._wishes.write or text == file.text:
            return False
        if seen.key == GENERIC:
            raise UsageError("tune_generic", device=self._key, folder=str(self._settings.kernels / "_devices"))
        write_atomically(file.path, text.encode())
        return True

    def _said(self, seen: Regimes) -> tuple[Reason, ...]:
        reasons = []
        if self._state.anew:
            reasons.append(Reason("tune_anew", {"path": str(self._state.path)}))
        if seen.unserved:
            reasons.append(Reason("tune_unserved_some", {"count": len(seen.unserved), "case": seen.unserved[0]}))
        if self._late:
            reasons.append(Reason("tune_late", {"op": self._op.op}))
        return tuple(reasons)


def _taken_over(op: str, regimes: Sequence[Regime], choices: Sequence[Choice]) -> tuple[Reason, ...]:
    """Entries that were not looked at and are not in the file: calls of theirs go to a new one further down."""
    new = [choice.regime.label for choice in choices if choice.changed and choice.regime.current is None]
    if not new:
        return ()
    last = max(at for at, regime in enumerate(regimes) if regime.label in new)
    passed = [each.label for each in regimes[:last] if each.current is None and not each.cases]
    facts: dict[str, Fact] = {"op": op, "entries": "; ".join(passed), "entry": regimes[last].label}
    return (Reason("tune_taken_over", facts),) if passed else ()


def _as_error(failure: Reason) -> PerfciError:
    return PerfciError(failure.kind, **failure.facts)
