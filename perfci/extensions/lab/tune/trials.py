"""The search through an op's candidates on the device at hand: each is checked, then timed beside today's choice."""

import functools
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from perfci.core.errors import ContractError, DeviceError, UsageError
from perfci.core.model import Reason
from perfci.device.seam import Accelerator
from perfci.extensions.common.tuned import Entries, Seam
from perfci.extensions.lab.tune.files import list_regimes, pick_fixed, read_numbers, read_space, read_tuned
from perfci.extensions.lab.tune.records import (
    FINAL,
    SEARCH,
    SUITE,
    Attempt,
    Choices,
    Config,
    Regime,
    choose_finalists,
    decide,
    describe_config,
    find_next,
    key,
    nest,
)
from perfci.extensions.lab.tune.task import Regimes, Trying, Tune
from perfci.measure import verify as accuracy_stage
from perfci.measure.bench import Arm
from perfci.measure.blocks import BLOCK_WARMUP
from perfci.measure.inputs import bound_inputs
from perfci.measure.outputs import wrong_output
from perfci.measure.prepare import rounds
from perfci.ops.spec import Params, Performance, case_id
from perfci.statistics.exact import launch_shift
from perfci.worker.load import LoadedOp, choose_cases, describe_exception
from perfci.worker.opening import load_files, open_op
from perfci.worker.protocol import Doing, Message, MessageChannel, OpDone


class CandidateError(Exception):
    """A candidate raised: its name, and what it raised."""

    def __init__(self, name: str, raised: Exception) -> None:
        super().__init__(name)
        self.name, self.raised = name, raised


def time_candidates(
    suite: Performance,
    device: Accelerator,
    params: Params,
    candidates: Mapping[str, Callable[..., Any]],
    *,
    blocks: int,
    rounds: int,
    seed: int,
) -> Mapping[str, tuple[tuple[float, ...], ...]]:
    """Time ways to do the same work, in blocks that all share, so that a clock that drifts moves them alike.

    Returns the launches of each block by name, microseconds. Raises CandidateError if a candidate raises.
    """
    order: list[list[str]] = []
    running = ""
    try:
        with device.session() as session:
            for index in range(blocks):
                own_seed = random.Random(f"{seed}/{index}").getrandbits(31)
                drawn = random.Random(own_seed)
                padding = device.pad(own_seed)
                inputs = bound_inputs(suite, params, device.arrays.device, own_seed)
                arms = [Arm(name, function, inputs) for name, function in candidates.items()]
                for arm in arms * BLOCK_WARMUP:
                    running = arm.arm
                    arm()
                order.append([])
                for arm in (one for _ in range(rounds) for one in drawn.sample(arms, len(arms))):
                    running = arm.arm
                    session.launch(arm, warm=suite.cache == "warm")
                    order[-1].append(running)
                del padding
                running = ""
                session.pause()
    except Exception as error:
        if running:
            raise CandidateError(running, error) from error
        raise
    launches = iter(session.launches())
    timed = [[(name, next(launches).time_us) for name in block] for block in order]
    return {name: tuple(tuple(us for other, us in block if other == name) for block in timed) for name in candidates}


BATCH = 8  # candidates that share their blocks: an interruption loses what so many compiled to
LOOK_BLOCKS, FINAL_BLOCKS = 2, 12
PROBES = 5

Send = Callable[[Message], None]


def run(task: Tune, channel: MessageChannel) -> None:
    """Search an op's configurations on the device at hand."""

    def load(device: Accelerator) -> LoadedOp:
        if device.absent:
            raise DeviceError("tune_not_timed", op=task.op)
        return load_files(task, task.place.ops[0])

    with open_op(task, channel, load) as (device, loaded):
        device.start_timer()
        TuningSearch(task, channel.send, device, loaded).search()


class TuningSearch:
    """One op's search: entries, batches, finalists, the decision; candidates are timed beside the best."""

    def __init__(self, task: Tune, send: Send, device: Accelerator, loaded: LoadedOp) -> None:
        suite = loaded.timed_suite()
        self.task, self.send, self.suite, self.op = task, send, suite, task.op
        self._device, self._accuracy = device, loaded.accuracy
        self._describe = functools.partial(describe_exception, folder=task.folder)
        self._rounds: dict[str, int] = {}
        self.folder, self.shared = task.folder, task.shared_folder
        self.space = read_space(self.op, self.folder)
        self.seam = Seam(self.op, self.folder, self.shared)
        self.cases = {case_id(params): params for params in choose_cases(suite.cases, task.pattern)}
        self.known = list(task.known)
        self.regimes: tuple[Regime, ...] = ()
        self._names: Mapping[str, Any] = {}
        self._entries: dict[str, Entries] = {}
        self._grids: dict[str, Choices] = {}

    def search(self) -> None:
        """Look through every entry that serves a case, as far as time allows."""
        self.find_regimes()
        done = all(self._search_regime(regime) for regime in self.regimes if regime.cases)
        self.send(OpDone(late=not done))

    def find_regimes(self) -> None:
        """Find the entries, and the cases that each serves."""
        first, params = next(iter(self.cases.items()))
        self.send(Doing("tune", self.op, first))
        self.call_quietly(params)
        if self.seam.key is None:
            raise ContractError("tune_not_asked", op=self.op)
        file = read_tuned(self.folder / "tuned" / f"{self.seam.key}.json")
        self._names = read_numbers(self.shared, self.seam.key)
        regimes = list_regimes(self.space, file.entries)
        self.regimes = tuple(replace(regime, lists=dict(regime.lists)) for regime in regimes)
        served: dict[int | None, list[str]] = {}
        entries = self._list_entries(None, None)
        for case, params in self.cases.items():
            self.send(Doing("tune", self.op, case))
            taken = self.seam.find_taken(entries, functools.partial(self.call_quietly, params))
            served.setdefault(taken, []).append(case)
        self.regimes = tuple(replace(other, cases=tuple(served.get(at, ()))) for at, other in enumerate(self.regimes))
        unserved = tuple(served.get(None, ()))
        self.send(Regimes(str(file.path), self.seam.key, file.digest, self.regimes, unserved))
        if len(unserved) == len(self.cases):
            raise ContractError("tune_unserved", op=self.op, case=unserved[0])

    def _search_regime(self, regime: Regime) -> bool:
        """Search one entry. Returns whether that came to its end in time."""
        grid = self.grid(regime)
        if not grid.coarse:
            raise UsageError("tune_space_empty", path=str(self.space.path), entry=regime.label)
        while self.task.until_s is None or time.time() < self.task.until_s:
            attempts = self.list_known(regime)
            done = {stage: {attempt.key for attempt in attempts if attempt.stage == stage} for stage in (FINAL, SUITE)}
            if not any(attempt.config is None for attempt in attempts):
                self.time_batch(regime, [None], SEARCH)
            elif batch := find_next(grid, attempts):
                self.time_batch(regime, batch[: 1 if self.task.alone else BATCH], SEARCH)
            elif left := [
                finalist for finalist in choose_finalists(grid, attempts) if key(finalist) not in done[FINAL]
            ]:
                self.time_batch(regime, left, FINAL)
            else:
                # The finalists were timed beside today's choice. One of them, or none, is right everywhere.
                choice = decide(grid, regime, attempts, needed=True)
                if not choice.changed or key(choice.config) in done[SUITE]:
                    return True
                fault = self.find_fault(regime, choice.config)
                if fault and self.find_anchor(regime) is None and self.find_fault(regime, None):
                    raise UsageError("tune_op_wrong", op=self.op, case=fault.facts.get("case"))
                self.keep(Attempt(regime.label, choice.config, SUITE, failure=fault))
        return False

    def list_entries(self, regime: Regime, config: Config | None) -> Entries | None:
        """Returns the entries that put a candidate in force, always the same ones. None: those of its file."""
        if config is None:
            return None
        name = f"{regime.label} {key(config)}"
        if name not in self._entries:
            self._entries[name] = self._list_entries(regime, config)
        return self._entries[name]

    def _list_entries(self, regime: Regime | None, config: Config | None) -> Entries:
        """All entries, one of them with this configuration. Those without one get the simplest that is valid."""
        entries = []
        for other in self.regimes:
            current = config if other is regime and config else other.current
            if current is None:
                simplest = {name: values[0] for name, values in other.lists.items()}
                current = next(iter(self.grid(other).coarse), simplest)
            entries.append({**other.when, "config": nest(current)})
        return tuple(entries)

    def grid(self, regime: Regime) -> Choices:
        """Returns a regime's candidates."""
        if regime.label not in self._grids:
            valid = functools.partial(self.space.is_valid, names={**self._names, **pick_fixed(regime.when)})
            self._grids[regime.label] = Choices(regime.lists, valid, self.task.seed, regime.current)
        return self._grids[regime.label]

    def list_known(self, regime: Regime) -> list[Attempt]:
        """Returns what is known of an entry's candidates."""
        return [attempt for attempt in self.known if attempt.regime == regime.label]

    def find_anchor(self, regime: Regime, default: Config | None = None) -> Config | None:
        """Returns what candidates are compared with: today's choice (None), or if that fails the first that works."""
        anchor = self.list_known(regime)
        if not any(attempt.config is None and attempt.failure for attempt in anchor):
            return None
        bad = {attempt.key for attempt in anchor if attempt.failure}
        return next(
            (attempt.config for attempt in anchor if attempt.config is not None and attempt.key not in bad), default
        )

    def keep(self, tried: Attempt) -> None:
        """Report the result of a candidate, and go on from it."""
        self.known.append(tried)
        self.send(tried)

    def announce(self, regime: Regime, config: Config | None) -> None:
        """Report what is tried now."""
        self.send(Trying(regime.label, config))
        self.send(Doing("tune", self.op, f"{regime.label} {describe_config(config)}".strip()))

    def call_quietly(self, params: Params) -> None:
        """Call the op for what it reads on the way to its launch. A configuration may fail here."""
        try:
            inputs = self._make_inputs(params)
        except Exception as error:
            facts = {"op": self.op, "case": case_id(params), "device": self._device.info.name}
            raise UsageError("tune_inputs_raised", **facts, **self._describe(error)) from error
        try:
            self.suite.kernel(**inputs)
        except Exception as error:
            self._refuse_lost(error)

    def time_batch(self, regime: Regime, configs: Sequence[Config | None], stage: str) -> None:
        """Time candidates, and keep the result of each."""
        working: dict[str, Config | None] = {}
        for config in configs:
            self.announce(regime, config)
            if stage == SEARCH and (failure := self._check_first_calls(regime, config)):
                self.keep(Attempt(regime.label, config, stage, failure=failure))
            else:
                working[key(config)] = config
        if len(configs) > 1:
            self.send(Trying("", None))  # from here on any of them may be to blame
        while working and (broken := self._time_all(regime, working, stage)):
            name, failure = broken
            self.keep(Attempt(regime.label, working.pop(name), stage, failure=failure))

    def _time_all(self, regime: Regime, working: Mapping[str, Config | None], stage: str) -> tuple[str, Reason] | None:
        """Time and keep all of these beside the anchor. Returns the one that raised, and why, with nothing kept."""
        anchor = self.find_anchor(regime, next(iter(working.values())))
        configs = {key(anchor): anchor, **working}
        arms = {name: self._make_kernel(regime, config) for name, config in configs.items()}
        shifts: dict[str, dict[str, tuple[float, ...]]] = {name: {} for name in working}
        us: dict[str, dict[str, float]] = {name: {} for name in working}
        for case in regime.cases:
            self.send(Doing("tune", self.op, case))
            try:
                if case not in self._rounds:
                    call = functools.partial(next(iter(arms.values())), **self._make_inputs(self.cases[case]))
                    self._rounds[case] = rounds(1e6 * self._device.window_s(call, PROBES) / PROBES)
                blocks = FINAL_BLOCKS if stage == FINAL else LOOK_BLOCKS
                seed = random.Random(f"{self.task.seed}/{case}/{stage}/{','.join(arms)}").getrandbits(31)
                times = time_candidates(
                    self.suite, self._device, self.cases[case], arms,
                    blocks=blocks, rounds=self._rounds[case], seed=seed,
                )  # fmt: skip
            except CandidateError as error:
                if error.name not in working:
                    raise ContractError("tune_anchor_failed", op=self.op, case=case) from error
                return error.name, self._explain(error.raised, case)
            held = times[key(anchor)]
            for name in working:
                launches = sorted(launch for block in times[name] for launch in block)
                if min(launches[0], *(launch for block in held for launch in block)) <= 0:
                    return name, Reason("nothing_launched", {"case": case, "arm": "kernel"})
                pairs = zip(times[name], held, strict=True)
                shifts[name][case] = tuple(launch_shift(times_here, other) for times_here, other in pairs)
                us[name][case] = launches[len(launches) // 2]
        for name, config in working.items():
            self.keep(Attempt(regime.label, config, stage, shifts[name], us[name], anchor))
        return None

    def _check_first_calls(self, regime: Regime, config: Config | None) -> Reason | None:
        """Compile, and compare the answer of every case with the reference."""
        kernel = self._make_kernel(regime, config)
        for case in regime.cases:
            params = self.cases[case]
            inputs = self._make_inputs(params)
            try:
                output = kernel(**inputs)
                self._device.synchronize()
            except Exception as error:
                return self._explain(error, case)
            if wrong := wrong_output(self.suite, self._device.arrays, params, inputs, output):
                return wrong
        return None

    def _make_inputs(self, params: Params) -> dict[str, Any]:
        return bound_inputs(self.suite, params, self._device.arrays.device, self.task.seed)

    def _make_kernel(self, regime: Regime, config: Config | None) -> Callable[..., Any]:
        entries = self.list_entries(regime, config)

        def call(**inputs: Any) -> Any:
            self.seam.use(entries)
            return self.suite.kernel(**inputs)

        return call

    def find_fault(self, regime: Regime, config: Config | None) -> Reason | None:
        """Returns what the accuracy suite finds wrong with a configuration."""
        self.announce(regime, config)
        self.seam.use(self.list_entries(regime, config))
        try:
            for check in accuracy_stage.checks(self._accuracy, self.task.seed, None):
                self.send(Doing("accuracy", self.op, check.case))
                fault = accuracy_stage.verify(self._accuracy, self._device, check, self._describe)
                if fault.failure:
                    return fault.failure
        finally:
            self.seam.use(None)
        return None

    def _explain(self, error: Exception, case: str) -> Reason:
        """Why a candidate does not count. Raises DeviceError if it cost this process its device."""
        self._refuse_lost(error)
        if type(error).__name__ == "OutOfResources" or self._device.out_of_memory(error):
            return Reason("tune_out_of_resources", {"case": case, "message": " ".join(str(error).split())})
        return Reason("tune_raised", {"case": case, **describe_exception(error, self.folder)})

    def _refuse_lost(self, error: Exception) -> None:
        try:
            self._device.synchronize()
        except Exception:
            raise DeviceError("tune_device_lost", **self._describe(error)) from error
