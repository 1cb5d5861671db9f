"""The whole of `perfci tune`: workers that search until they are done or the time is up, and the tuned file.

All results of a candidate are on disk before the next is tried. A worker that a candidate killed is followed by
another, which goes on behind it.
"""

from __future__ import annotations

import dataclasses
import difflib
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
from perfci.lab.tune.files import GENERIC, Description, change_tuned, read_description, read_tuned
from perfci.lab.tune.records import SUITE, Attempt, Regime, key, open_state
from perfci.lab.tune.search import Choice, Choices, decide
from perfci.lab.tune.space import read_space
from perfci.ops.discover import OpFolder, select
from perfci.ops.fingerprint.tree import Tree
from perfci.runs.bench import Bench, Listener, WorkerPlace, claimed, make_job, surroundings
from perfci.runs.describe import contract_violation, describe_ops
from perfci.runs.plan import Request, draw_seed
from perfci.store.files import write_atomically
from perfci.worker.parent import run_worker
from perfci.worker.protocol import Message, Modelled, OpDone, Regimes, Trying, TuneFiles

FOLDER = "tune"
"""In the reports folder: a file of each search, and a table of its candidates."""

_DEATHS = ("worker_", "tune_device_lost")
"""Beginnings of the kinds of failure of a candidate that took its worker with it."""

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
    """The result of a search."""

    op: str
    device: str
    file: Path
    """the tuned file"""
    seed: int
    choices: tuple[Choice, ...] = ()
    """one for each entry that serves a case"""
    tried: tuple[Attempt, ...] = ()
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
    settings: Settings, options: TuneOptions, listener: Listener, heard: Callable[[Attempt], None] = lambda _: None
) -> Tuning:
    """Searches an op's configurations. Writes its tuned file if that was asked for.

    Raises UsageError, ContractError and StoredFileError for what keeps it from searching, DeviceError without a device,
    and StoredFileError if the file was edited meanwhile.
    """
    found = select(settings, (options.op,))
    if len(found) != 1:
        raise UsageError("tune_one_op", name=options.op, ops=", ".join(op.op for op in found))
    (op,) = found
    if reason := contract_violation(op):
        raise ContractError(reason.kind, **reason.facts)
    read_space(op.op, op.folder)  # fails before any worker starts
    spec = read_description(settings.kernels, options.spec) if options.spec is not None else None
    own = dataclasses.replace(settings, reports=settings.reports / FOLDER)
    with claimed(own, listener) as bench:
        search = _TuneSearch(bench, settings, options, op, spec, heard)
        search.run()
        return search.conclude()


class _TuneSearch:
    """One search, from worker to worker."""

    def __init__(
        self,
        bench: Bench,
        settings: Settings,
        options: TuneOptions,
        op: OpFolder,
        spec: Description | None,
        heard: Callable[[Attempt], None],
    ) -> None:
        self._bench, self._settings, self._options, self._op, self._heard = bench, settings, options, op, heard
        self._like = str(spec.values.get("like") or spec.key) if spec else None
        self._kind, self._key = ("cuda", spec.key) if spec else self._find_device()
        self._regimes: Regimes | None = None
        self._trying: Trying | None = None
        self._modelled: dict[str, Modelled] = {}
        self._late = False
        self._until = time.time() + options.budget_s
        packages = environment.installed_versions(environment.PACKAGES)
        asked: dict[str, Fact] = {
            "op": op.op,
            "device": self._key,
            "case": options.pattern,
            "timer": options.timer,
            "files": Tree(settings.root, settings.kernels).fingerprint(op.op).digest,
            "perfci": perfci.__version__,
            "packages": ", ".join(f"{name} {version}" for name, version in sorted(packages.items())),
        }
        part = f"-{hashlib.sha256(options.pattern.encode()).hexdigest()[:8]}" if options.pattern else ""
        path = bench.settings.reports / f"{op.op}-{self._key}{part}.jsonl"
        self._state = open_state(path, asked, options.seed, draw_seed())

    def _find_device(self) -> tuple[str, str]:
        """Kind and key of the device at hand. Raises UsageError if no case fits the pattern."""
        options, op = self._options, self._op.op
        request = Request(ops=(op,), pattern=options.pattern, device=options.device, timer=options.timer)
        found = describe_ops(self._bench, request)
        (planned,) = found.ops
        if planned.failure:
            raise PerfciError(planned.failure.kind, **planned.failure.facts)
        if found.device.kind in UNTIMED:
            raise DeviceError("tune_not_timed", op=op)
        if not planned.performance:
            raise UsageError("tune_no_case", op=op, pattern=options.pattern)
        return found.device.kind, found.device.key

    # --- workers --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Has workers search until one comes to the end. Raises what keeps them all from it."""
        options, op = self._options, self._op
        place = WorkerPlace(f"tune-{op.op}", "offline" if options.spec else self._kind, self._settings.root)
        around = surroundings(self._bench, place)
        if options.spec:
            hidden = {"CUDA_VISIBLE_DEVICES": "", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
            around = dataclasses.replace(around, environment={**around.environment, **hidden})
        alone = False
        while True:
            self._trying = None
            files = TuneFiles(tuple(self._state.tried), options.spec, self._like, alone)
            job = make_job(
                self._settings, "tune", op.op, op.folder, self._kind, self._state.head.seed,
                pattern=options.pattern, timer=options.timer, until_s=self._until, tune=files,
            )  # fmt: skip
            failure = run_worker(job, around, self._hear)
            if failure is None:
                return
            trying = self._trying
            # If several were timed together, each is tried alone to find the one that kills its worker.
            if trying is None or not failure.kind.startswith(_DEATHS) or (alone and not trying.regime):
                raise PerfciError(failure.kind, **failure.facts)
            if trying.regime:
                self._add(Attempt(trying.regime, trying.config, failure=failure))
            else:
                alone = True

    def _hear(self, message: Message) -> None:
        match message:
            case Regimes():
                self._regimes = message
            case Trying():
                self._trying = message
            case Attempt():
                self._add(message)
            case Modelled():
                self._modelled[message.case] = message
            case OpDone():
                self._late = message.late
        self._bench.listener(message)

    def _add(self, tried: Attempt) -> None:
        self._state.add(tried)
        self._heard(tried)

    # --- the result -----------------------------------------------------------------------------------------------

    def conclude(self) -> Tuning:
        """The result. The tuned file is written if that was asked for and something changes."""
        seen, state, spec, op = self._regimes, self._state, self._options.spec, self._op.op
        if seen is None:
            raise PerfciError("worker_silent")
        choices: list[Choice] = []
        for regime in reversed(seen.regimes):
            if regime.cases:
                # An entry behind one that is not there would take its calls.
                choices.insert(0, self._choose(regime, needed=any(choice.changed for choice in choices)))
        path, root = Path(seen.file), self._settings.root
        file = read_tuned(path)
        if file.digest != seen.digest:
            raise StoredFileError("tune_edited", path=str(path), state=str(state.path))
        text = change_tuned(file, seen.regimes, choices, _MODELLED + file.about if spec else None)
        written = self._options.write and text != file.text
        if written:
            if seen.key == GENERIC:
                raise UsageError("tune_generic", device=self._key, folder=str(self._settings.kernels / "_devices"))
            write_atomically(path, text.encode())
        said = []
        if state.anew:
            said.append(Reason("tune_anew", {"path": str(state.path)}))
        if seen.unserved:
            said.append(Reason("tune_unserved_some", {"count": len(seen.unserved), "case": seen.unserved[0]}))
        if self._late:
            said.append(Reason("tune_late", {"op": op}))
        name = path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
        old, new = file.text.splitlines(), text.splitlines()
        diff = difflib.unified_diff(old, new, name if old else "nothing", name, lineterm="", n=1)
        return Tuning(
            op, self._key, path, state.head.seed, tuple(choices), tuple(state.tried), tuple(diff), written, self._late,
            state.resumed, seen.unserved, spec, self._like, self._modelled, state.path,
            (*said, *_find_taken_over(op, seen.regimes, choices)),
        )  # fmt: skip

    def _choose(self, regime: Regime, *, needed: bool) -> Choice:
        """An entry's choice. A candidate that has not passed the accuracy suite yet is none."""
        known = [each for each in self._state.tried if each.regime == regime.label]
        near = regime.current if self._options.spec else None
        grid = Choices(regime.lists, lambda _: True, self._state.head.seed, regime.current, near)
        choice = decide(grid, regime, known, needed=needed)
        passed = {each.key for each in known if each.stage == SUITE and not each.failure}
        if choice.changed and self._options.spec is None and key(choice.config) not in passed:
            return dataclasses.replace(choice, config=None, change=None)
        return choice


def _find_taken_over(op: str, regimes: Sequence[Regime], choices: Sequence[Choice]) -> tuple[Reason, ...]:
    """Entries that were not searched and are not in the file: their calls go to a new entry further down."""
    new = [choice.regime.label for choice in choices if choice.changed and choice.regime.current is None]
    if not new:
        return ()
    last = max(at for at, regime in enumerate(regimes) if regime.label in new)
    passed = [each.label for each in regimes[:last] if each.current is None and not each.cases]
    facts: dict[str, Fact] = {"op": op, "entries": "; ".join(passed), "entry": regimes[last].label}
    return (Reason("tune_taken_over", facts),) if passed else ()
