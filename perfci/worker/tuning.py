"""The tune task: an op's candidates given out by the function that it reads its tuned file by, checked, and timed."""

from __future__ import annotations

import functools
import math
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perfci import tune
from perfci import verify as accuracy_stage
from perfci.codec import decode, encode
from perfci.device import Accelerator
from perfci.device.targets import Target, target_named
from perfci.errors import ContractError, DeviceError, UsageError
from perfci.inputs import bound_inputs
from perfci.measure.candidates import CandidateError, Rounds, time_candidates
from perfci.measure.prepare import rounds
from perfci.model import CompiledKernel, Fact, Reason
from perfci.outputs import wrong_output
from perfci.spec import Params, Performance, case_id, matches
from perfci.stats import launch_shift
from perfci.tune import Config, Grid, Regime, Tried
from perfci.worker.load import LoadedOp, call_reason, describe_exception, load_op
from perfci.worker.protocol import Candidate, Job, Message, Modelled, OpDone, Regimes, Step, Trying
from perfci.worker.static import installed, paths

BATCH = 8
"""Candidates that share their blocks: an interruption loses what so many compiled to."""

LOOK_BLOCKS, FINAL_BLOCKS = 2, 12
PROBES = 5

AS_DEVICE = "KERNELS_AS_DEVICE"
"""What the ops' own `_launch` reads: the description to launch by."""

_ENOUGH_READ = 2
"""Values of an entry that an op has read when it has taken it: one alone may have been asked of every entry."""

Say = Callable[[Message], None]
Entries = tuple[Mapping[str, Any], ...]


class Seam:
    """In the place of `_launch.tuned`: gives an op the entries that a search wants it to have."""

    def __init__(self, op: str, folder: Path, shared: Path) -> None:
        module: Any = sys.modules.get("_launch")
        if not hasattr(module, "tuned"):
            raise ContractError("tune_not_asked", op=op)
        self._folder, self._shared = folder / "tuned", shared
        self._real: Callable[..., Entries] = module.tuned
        self._entries: Entries | None = None
        self._watch: _Watch | None = None
        self._modules = 0
        self._clears: list[Callable[[], None]] = []
        self.key: str | None = None
        """of the device, as the op asks"""
        module.tuned = self._answer

    def use(self, entries: Entries | None) -> None:
        """Have the op read these entries from its next call on; None: those of its file."""
        if entries is not self._entries:
            self._entries = entries
            self.forget()

    def forget(self) -> None:
        """Have the op choose anew."""
        if len(sys.modules) != self._modules:  # between two launches there is no time to look through them all
            self._modules, self._clears = len(sys.modules), _caches(self._shared)
        for clear in self._clears:
            clear()

    @contextmanager
    def watched(self, entries: Entries) -> Iterator[_Watch]:
        """Look which entry a call takes."""
        self._watch = _Watch(len(entries))
        self.use(
            tuple({**entry, "config": _Asked(entry["config"], self._watch, at)} for at, entry in enumerate(entries))
        )
        try:
            yield self._watch
        finally:
            self.use(None)

    def _answer(self, folder: Path, key: str) -> Entries:
        if Path(folder).resolve() != self._folder.resolve():
            return self._real(folder, key)
        self.key = key
        return self._real(folder, key) if self._entries is None else self._entries


class _Watch:
    """What was read of the entries."""

    def __init__(self, entries: int) -> None:
        self._read: list[set[str]] = [set() for _ in range(entries)]
        self._whole: int | None = None
        self._last: int | None = None

    def read(self, entry: int, name: str) -> None:
        self._read[entry].add(name)
        self._last = entry

    def expanded(self, entry: int) -> None:
        self._whole = entry

    def taken(self, sizes: Sequence[int]) -> int | None:
        """The entry that was taken; None where none was."""
        if self._whole is not None or self._last is None:
            return self._whole
        enough = min(_ENOUGH_READ, sizes[self._last])
        return self._last if len(self._read[self._last]) >= enough else None


class _Asked(Mapping[str, Any]):
    """A configuration that tells what is read of it."""

    def __init__(self, values: Mapping[str, Any], watch: _Watch, entry: int) -> None:
        self._values, self._watch, self._entry = values, watch, entry

    def __getitem__(self, name: str) -> Any:
        value = self._values[name]
        self._watch.read(self._entry, name)
        return value

    def __iter__(self) -> Iterator[str]:
        self._watch.expanded(self._entry)
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def _caches(shared: Path) -> list[Callable[[], None]]:
    """What forgets earlier choices in the modules of ops; limits of the device stay known."""
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and name != "_launch" and Path(file).is_relative_to(shared):
            found += [value.cache_clear for value in vars(module).values() if hasattr(value, "cache_clear")]
    return found


class _Search:
    """One op's search; what times a candidate stands in the two classes below."""

    runs = True
    """whether candidates run, so that their answers can be checked"""

    def __init__(self, job: Job, say: Say, suite: Performance) -> None:
        files = job.ops[0]
        self.job, self.say, self.suite, self.op = job, say, suite, files.op
        self.folder, self.shared = Path(files.folder), Path(job.shared_folder)
        self.space = tune.read_space(files.op, self.folder)
        self.seam = Seam(files.op, self.folder, self.shared)
        self.cases = {case_id(params): params for params in suite.cases if matches(case_id(params), job.pattern)}
        # As it is written to disk and read again, so that a search that goes on compares like with like.
        self.known = [decode(encode(each), Tried) for each in job.tune.known]
        self.all: tuple[Regime, ...] = ()
        self.file = tune.TunedFile(Path())
        self.names: Mapping[str, Any] = {}
        self._kept: dict[str, Entries] = {}
        self._grids: dict[str, Grid] = {}

    def search(self) -> None:
        """Look through every entry that serves a case; says what it finds."""
        self._look_around()
        late = False
        for regime in self.all:
            if regime.cases and not late:
                late = not self._searched(regime)
        self.say(OpDone(late=late))

    # --- which entries there are ----------------------------------------------------------------------------------

    def _look_around(self) -> None:
        params = next(iter(self.cases.values()))
        self.say(Step("tune", self.op, case_id(params)))
        self._quietly(params)
        key = self.seam.key
        if key is None:
            raise ContractError("tune_not_asked", op=self.op)
        path = self.folder / "tuned" / f"{key}.json"
        self.file = tune.read_tuned(path)
        self.names = tune.describing(self.shared, key)
        found = tune.regimes(self.space, self._start(key).entries)
        self.all = tuple(replace(each, lists=dict(each.lists)) for each in found)
        served: dict[int | None, list[str]] = {}
        for case, params in self.cases.items():
            self.say(Step("tune", self.op, case))
            served.setdefault(self._serving(params), []).append(case)
        self.all = tuple(replace(each, cases=tuple(served.get(at, ()))) for at, each in enumerate(self.all))
        unserved = tuple(served.get(None, ()))
        self.say(Regimes(str(path), key, self.file.digest, self.all, unserved))
        if len(unserved) == len(self.cases):
            raise ContractError("tune_unserved", op=self.op, case=unserved[0])
        self._before()

    def _before(self) -> None:
        """What is told before the first candidate."""

    def _start(self, key: str) -> tune.TunedFile:
        """The file that the search starts from."""
        return self.file

    def _serving(self, params: Params) -> int | None:
        entries = self.entries(None, None)
        with self.seam.watched(entries) as watch:
            self._quietly(params)
        return watch.taken([len(entry["config"]) for entry in entries])

    def _quietly(self, params: Params) -> None:
        """Call the op for what it reads on the way to its launch; a configuration that fails is no matter yet."""
        raise NotImplementedError

    def entries(self, regime: Regime | None, config: Config | None) -> Entries:
        """All entries, one of them with this configuration; those without one get the simplest that is valid."""
        return tuple(
            {**each.when, "config": tune.nested(config if each is regime and config else self._usual(each))}
            for each in self.all
        )

    def given(self, regime: Regime, config: Config | None) -> Entries | None:
        """The entries that put a candidate in force, always the same ones; None for what the op takes today."""
        if config is None:
            return self.today()
        name = f"{regime.label} {tune.key(config)}"
        if name not in self._kept:
            self._kept[name] = self.entries(regime, config)
        return self._kept[name]

    def today(self) -> Entries | None:
        """What the op has today."""
        return None

    def _usual(self, regime: Regime) -> Config:
        if regime.current is not None:
            return regime.current
        return next(iter(self.grid(regime).coarse), {name: values[0] for name, values in regime.lists.items()})

    def grid(self, regime: Regime) -> Grid:
        """A regime's candidates."""
        if regime.label not in self._grids:
            self._grids[regime.label] = self._made(regime)
        return self._grids[regime.label]

    def _made(self, regime: Regime) -> Grid:
        names = {**self.names, **tune.fixed(regime.when)}
        near = regime.current if self.job.tune.spec else None
        return Grid(
            regime.lists, functools.partial(self.space.is_valid, names=names), self.job.seed, regime.current, near
        )

    # --- one entry ------------------------------------------------------------------------------------------------

    def _searched(self, regime: Regime) -> bool:
        """Whether the search of one entry came to its end in time."""
        grid = self.grid(regime)
        if not grid.coarse:
            raise UsageError("tune_space_empty", path=str(self.space.path), entry=regime.label)
        if not any(each.config is None for each in self.of(regime)) and not self._batch(regime, [None], tune.SEARCH):
            return False
        while batch := tune.coming(grid, self.of(regime)):
            size = 1 if self.job.tune.alone else BATCH
            if not self._batch(regime, batch[:size], tune.SEARCH):
                return False
        return self._settled(regime, grid)

    def _settled(self, regime: Regime, grid: Grid) -> bool:
        """The finalists held against today's choice, until one of them, or none, is right everywhere."""
        while True:
            done = {each.key for each in self.of(regime) if each.stage == tune.FINAL}
            left = [config for config in tune.finalists(grid, self.of(regime)) if tune.key(config) not in done]
            if left and not self._batch(regime, left, tune.FINAL):
                return False
            choice = tune.decide(grid, regime, self.of(regime), needed=True)
            checked = {each.key for each in self.of(regime) if each.stage == tune.SUITE}
            if left or not choice.changed or not self.runs or tune.key(choice.config) in checked:
                if not left:
                    return True
                continue
            if self._late():
                return False
            fault = self.fault(regime, choice.config)
            if fault and self.anchor(regime) is None and self.fault(regime, None):
                raise UsageError("tune_op_wrong", op=self.op, case=fault.facts.get("case"))
            self.keep(Tried(regime.label, choice.config, tune.SUITE, failure=fault))

    def _batch(self, regime: Regime, configs: Sequence[Config | None], stage: str) -> bool:
        """Try some candidates; False where the time is up before."""
        if self._late():
            return False
        self.try_batch(regime, configs, stage)
        return True

    def try_batch(self, regime: Regime, configs: Sequence[Config | None], stage: str) -> None:
        """Time candidates, and keep what each showed."""
        raise NotImplementedError

    def fault(self, regime: Regime, config: Config | None) -> Reason | None:
        """What the accuracy suite has against a configuration."""
        raise NotImplementedError

    def of(self, regime: Regime) -> list[Tried]:
        """What is known of an entry's candidates."""
        return [each for each in self.known if each.regime == regime.label]

    def anchor(self, regime: Regime) -> Config | None:
        """What candidates are held against: today's choice, or where that does not work the first that does.

        Raises LookupError where nothing has worked yet.
        """
        known = self.of(regime)
        if not any(each.config is None and each.failure for each in known):
            return None
        bad = {each.key for each in known if each.failure}
        return next(each.config for each in known if each.config is not None and each.key not in bad)

    def keep(self, tried: Tried) -> None:
        """Say what a candidate showed, and go on from it."""
        self.known.append(decode(encode(tried), Tried))
        self.say(Candidate(tried))

    def trying(self, regime: Regime, config: Config | None) -> None:
        """Say what comes now."""
        self.say(Trying(regime.label, config))
        self.say(Step("tune", self.op, f"{regime.label} {tune.shown(config)}".strip()))

    def _late(self) -> bool:
        return self.job.until_s is not None and time.time() >= self.job.until_s


# --- on the device ----------------------------------------------------------------------------------------------------


def run(job: Job, say: Say, device: Accelerator, loaded: LoadedOp) -> None:
    """Search on the device at hand."""
    accurate = loaded.accuracy
    suite = replace(
        loaded.performance,
        reduces=loaded.performance.reduces or accurate.reduces,
        tolerance=loaded.performance.tolerance or accurate.tolerance,
    )
    device.start_timer()
    _Measured(job, say, suite, device, loaded).search()


class _Measured(_Search):
    """Candidates are timed."""

    def __init__(self, job: Job, say: Say, suite: Performance, device: Accelerator, loaded: LoadedOp) -> None:
        super().__init__(job, say, suite)
        self._device, self._loaded = device, loaded
        self._rounds: dict[str, int] = {}

    def _quietly(self, params: Params) -> None:
        inputs = self._made_inputs(params)
        try:
            self.suite.kernel(**inputs)
        except Exception as error:
            self._refuse_lost(error)

    def _made_inputs(self, params: Params) -> Mapping[str, Any]:
        try:
            return bound_inputs(self.suite, params, self._device.arrays.device, self.job.seed)
        except Exception as error:
            facts = {"op": self.op, "case": case_id(params), "device": self._device.info.name}
            raise UsageError("tune_inputs_raised", **facts, **describe_exception(error, self.folder)) from error

    def try_batch(self, regime: Regime, configs: Sequence[Config | None], stage: str) -> None:
        working: dict[str, tuple[Config | None, CompiledKernel | None]] = {}
        for config in configs:
            self.trying(regime, config)
            failure, compiled = self._first_calls(regime, config) if stage == tune.SEARCH else (None, None)
            if failure:
                self.keep(Tried(regime.label, config, stage, failure=failure))
            else:
                working[tune.key(config)] = config, compiled
        if len(configs) > 1:
            self.say(Trying("", None))  # from here on any of them may be to blame
        while working and (broken := self._timed(regime, working, stage)):
            name, failure = broken
            self.keep(Tried(regime.label, working.pop(name)[0], stage, failure=failure))

    def _timed(
        self, regime: Regime, working: Mapping[str, tuple[Config | None, CompiledKernel | None]], stage: str
    ) -> tuple[str, Reason] | None:
        """Time and keep all of these beside the anchor; gives the one that raised, and why, with nothing kept."""
        try:
            anchor = self.anchor(regime)
        except StopIteration:
            anchor = next(config for config, _ in working.values())
        names = dict.fromkeys([tune.key(anchor), *working])
        configs = {**{name: config for name, (config, _) in working.items()}, tune.key(anchor): anchor}
        arms = {name: self._kernel(regime, configs[name]) for name in names}
        shifts: dict[str, dict[str, tuple[float, ...]]] = {name: {} for name in working}
        us: dict[str, dict[str, float]] = {name: {} for name in working}
        for case in regime.cases:
            self.say(Step("tune", self.op, case))
            try:
                times = time_candidates(self.suite, self._device, self.cases[case], arms, self._much(case, stage, arms))
            except CandidateError as error:
                if error.name not in working:
                    raise ContractError("tune_anchor_failed", op=self.op, case=case) from error
                return error.name, self._why(error.raised, case)
            held = times[tune.key(anchor)]
            for name in working:
                if not all(launch > 0 for block in (*times[name], *held) for launch in block):
                    return name, Reason("nothing_launched", {"case": case, "arm": "kernel"})
                pairs = zip(times[name], held, strict=True)
                shifts[name][case] = tuple(launch_shift(own, other) for own, other in pairs)
                launches = sorted(launch for block in times[name] for launch in block)
                us[name][case] = launches[len(launches) // 2]
        for name, (config, compiled) in working.items():
            self.keep(
                Tried(
                    regime.label, config, stage, shifts[name], us[name], anchor,
                    registers=compiled.registers if compiled else None,
                    spills=compiled.spills if compiled else None,
                    shared_bytes=compiled.shared_bytes if compiled else None,
                )
            )  # fmt: skip
        return None

    def _much(self, case: str, stage: str, arms: Mapping[str, Callable[..., Any]]) -> Rounds:
        params = self.cases[case]
        if case not in self._rounds:
            inputs = bound_inputs(self.suite, params, self._device.arrays.device, self.job.seed)
            call = functools.partial(next(iter(arms.values())), **inputs)
            self._rounds[case] = rounds(1e6 * self._device.window_s(call, PROBES) / PROBES)
        seed = random.Random(f"{self.job.seed}/{case}/{stage}/{','.join(arms)}").getrandbits(31)
        blocks = FINAL_BLOCKS if stage == tune.FINAL else LOOK_BLOCKS
        return Rounds(blocks, self._rounds[case], seed)

    def _first_calls(self, regime: Regime, config: Config | None) -> tuple[Reason | None, CompiledKernel | None]:
        """Compile, and hold the answer of every case against the reference."""
        kernel, heaviest = self._kernel(regime, config), None
        for case in regime.cases:
            params = self.cases[case]
            inputs = bound_inputs(self.suite, params, self._device.arrays.device, self.job.seed)
            try:
                with self._device.recorded() as kernels:
                    output = kernel(**inputs)
                    self._device.synchronize()
            except Exception as error:
                return self._why(error, case), None
            if wrong := wrong_output(self.suite, self._device.arrays, params, inputs, output):
                return wrong, None
            heaviest = max((heaviest, *kernels.values()), key=lambda each: (each and each.registers) or -1)
        return None, heaviest

    def _kernel(self, regime: Regime, config: Config | None) -> Callable[..., Any]:
        kernel, entries = self.suite.kernel, self.given(regime, config)

        def chosen(**inputs: Any) -> Any:
            self.seam.use(entries)
            return kernel(**inputs)

        return chosen

    def fault(self, regime: Regime, config: Config | None) -> Reason | None:
        self.trying(regime, config)
        self.seam.use(self.given(regime, config))
        suite = self._loaded.accuracy
        try:
            for check in accuracy_stage.checks(suite, self.job.seed, None):
                self.say(Step("accuracy", self.op, check.case))
                found = accuracy_stage.verify(suite, self._device, check, self._describe)
                if found.failure:
                    return found.failure
        finally:
            self.seam.use(None)
        return None

    def _why(self, error: Exception, case: str) -> Reason:
        """Why a candidate does not count; raises DeviceError where it cost this process its device."""
        self._refuse_lost(error)
        if type(error).__name__ == "OutOfResources" or self._device.out_of_memory(error):
            return Reason("tune_out_of_resources", {"case": case, "message": " ".join(str(error).split())})
        return call_reason("tune_raised", error, self.folder, case=case)

    def _refuse_lost(self, error: Exception) -> None:
        try:
            self._device.synchronize()
        except Exception:
            raise DeviceError("tune_device_lost", **self._describe(error)) from error

    def _describe(self, error: BaseException) -> dict[str, Fact]:
        return describe_exception(error, self.folder)


# --- without the device -----------------------------------------------------------------------------------------------


def run_modelled(job: Job, say: Say) -> None:
    """Search for a device that is not here, by the model; the process is spent for anything else."""
    spec = tune.described(Path(job.shared_folder), job.tune.spec or "")
    like = tune.described(Path(job.shared_folder), job.tune.like or spec.key)
    name = spec.values.get("target")
    if not name:
        raise UsageError("tune_no_model", spec=spec.key, lacks="target")
    target = target_named(str(name))
    installed(target)
    files = job.ops[0]
    with paths(files, job):
        loaded = load_op(files.op, Path(files.folder), Path(job.shared_folder))
        try:
            _Modelled(job, say, loaded.performance, target, spec, like).search()
        except tune.NoModelError as error:
            raise UsageError("tune_no_model", spec=spec.key, lacks=str(error)) from error


@dataclass(frozen=True)
class _Looked:
    """A call as the model sees it."""

    us: float | None
    failure: Reason | None = None
    registers: int | None = None
    spills: int | None = None
    shared_bytes: int | None = None


class _Modelled(_Search):
    """Candidates are compiled, and their times reckoned."""

    runs = False

    def __init__(
        self, job: Job, say: Say, suite: Performance, target: Target, spec: tune.Description, like: tune.Description
    ) -> None:
        super().__init__(job, say, suite)
        self._target, self._spec, self._like = target, spec, like
        self._inputs: dict[str, Mapping[str, Any]] = {}
        self._start_entries: Entries = ()
        self._original: dict[str, float | None] = {}
        self._be(spec)

    def _be(self, device: tune.Description) -> None:
        """Have the op launch as on this device."""
        os.environ[AS_DEVICE] = device.key
        limits: Any = getattr(sys.modules.get("_launch"), "limits", None)
        if hasattr(limits, "cache_clear"):
            limits.cache_clear()
        self.seam.forget()

    def _start(self, key: str) -> tune.TunedFile:
        """The device's own file, or that of the one that it varies."""
        start = self.file
        if not start.entries and self._like.key != key:
            start = tune.read_tuned(self.file.path.with_name(f"{self._like.key}.json"))
        self._start_entries = start.entries
        return start

    def today(self) -> Entries | None:
        return self._start_entries

    def _before(self) -> None:
        """Every case on the device that the description varies, as it is launched there."""
        self._be(self._like)
        self.seam.use(None)
        for regime in self.all:
            for case in regime.cases:
                self.say(Step("tune", self.op, case))
                names = self._named(regime, None)
                looked = self._looked(self._called(self.cases[case]), self.cases[case], names, self._like)
                self._original[case] = looked.us
                work = self._work(self.cases[case], names, self._like)
                floors = [tune.floor_us(work, device.values) for device in (self._like, self._spec)]
                self.say(Modelled(case, looked.us, *floors))
        self._be(self._spec)

    def _named(self, regime: Regime, config: Config | None) -> Mapping[str, Any]:
        """What rules may name of a configuration; nothing where the op's own is in force, which nobody knows."""
        chosen = regime.current if config is None else config
        return {} if chosen is None else {**tune.fixed(regime.when), **chosen}

    def _quietly(self, params: Params) -> None:
        self._called(params)

    def try_batch(self, regime: Regime, configs: Sequence[Config | None], stage: str) -> None:
        for config in configs:
            self.trying(regime, config)
            if stage == tune.FINAL:
                known = next(each for each in self.of(regime) if each.key == tune.key(config) and not each.failure)
                self.keep(replace(known, stage=tune.FINAL))
                continue
            self.keep(self._candidate(regime, config))

    def _candidate(self, regime: Regime, config: Config | None) -> Tried:
        self.seam.use(self.given(regime, config))
        us: dict[str, float] = {}
        looked = _Looked(None)
        for case in regime.cases:
            seen, names = self._called(self.cases[case]), self._named(regime, config)
            looked = self._looked(seen, self.cases[case], names, self._spec)
            if looked.us is None:
                return Tried(regime.label, config, failure=looked.failure)
            us[case] = looked.us * self._believed(case, self._looked(seen, self.cases[case], names, self._like).us)
        try:
            anchor = self.anchor(regime) if config is not None else None
        except StopIteration:
            anchor = config
        held = us if anchor == config else self._us(regime, anchor)
        shifts = {case: (math.log(us[case] / held[case]),) for case in us}
        return Tried(
            regime.label, config, tune.SEARCH, shifts, us, anchor,
            registers=looked.registers, spills=looked.spills, shared_bytes=looked.shared_bytes,
        )  # fmt: skip

    def _us(self, regime: Regime, config: Config | None) -> Mapping[str, float]:
        return next(each.us for each in self.of(regime) if each.key == tune.key(config) and not each.failure)

    def _believed(self, case: str, us: float | None) -> float:
        """By what a candidate's time is raised: nothing is believed to beat today's choice on the device it is for.

        That one was found by measuring, which counts for more than what the model says of the two.
        """
        original = self._original.get(case)
        return max(original / us, 1.0) if original and us and self._like.key != self._spec.key else 1.0

    def _looked(self, seen: Any, params: Params, names: Mapping[str, Any], device: tune.Description) -> _Looked:
        from perfci.device import artefacts
        from perfci.device.occupancy import occupancy

        case = case_id(params)
        if why := self._trouble(seen, case):
            return _Looked(None, why)
        launches, heaviest = [], _Looked(None)
        for launched in seen.capture.launched:
            used, metadata = artefacts.usage(launched.kernel), launched.kernel.metadata
            if used is None:
                raise DeviceError("tune_no_registers")
            held = occupancy(
                self._target, registers=used.registers, shared=metadata.shared, warps=metadata.num_warps,
                available=int(device.values.get("registers") or 0),
            )  # fmt: skip
            resident = round(held * self._target.warps / metadata.num_warps)
            spilled = used.spill_bytes if used.spill_bytes is not None else used.local_bytes
            programs = math.prod(launched.grid)
            launches.append(tune.Launch(programs, metadata.num_warps, resident, metadata.shared, spilled))
            if resident < 1:
                facts: dict[str, Fact] = {"case": case, "registers": used.registers, "shared": metadata.shared}
                return _Looked(None, Reason("tune_does_not_fit", {**facts, "spec": device.key}))
            if used.registers >= (heaviest.registers or 0):
                heaviest = _Looked(None, None, used.registers, spilled // 4, metadata.shared)
        found = tune.estimate(self._work(params, names, device), launches, device.values)
        if found is None:
            return _Looked(None, Reason("nothing_launched", {"case": case, "arm": "kernel"}))
        return replace(heaviest, us=found.us)

    def _called(self, params: Params) -> Any:
        from perfci.device import offline

        case = case_id(params)
        if case not in self._inputs:
            made = offline.compiled(functools.partial(bound_inputs, self.suite, params, offline.DEVICE, self.job.seed))
            if why := self._trouble(made, case):
                raise UsageError(why.kind, **why.facts)
            self._inputs[case] = made.value
        return offline.compiled(functools.partial(self.suite.kernel, **self._inputs[case]))

    def _trouble(self, seen: Any, case: str) -> Reason | None:
        why: Reason | None = seen.failure or seen.capture.blind
        if why is None and seen.raised is not None:
            why = call_reason("tune_raised", seen.raised, self.folder, case=case)
        return why

    def _work(self, params: Params, names: Mapping[str, Any], device: tune.Description) -> tune.Work:
        suite, dtype = self.suite, params.get("dtype")
        name = None if dtype is None else str(dtype).removeprefix("torch.")
        plain = {each: value for each, value in params.items() if isinstance(value, int | float | str)}
        known = {**device.numbers, **plain, "itemsize": getattr(dtype, "itemsize", 4), **names}
        loads = None
        if self.space.loads and names:
            loads = float(self.space.loads(known))
        moved = suite.bytes_moved(**params) if suite.bytes_moved else None
        flops = suite.flops(**params) if suite.flops else None
        return tune.Work(moved, flops, name, loads)
