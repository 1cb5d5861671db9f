"""The search on the device at hand: candidates are checked and timed there."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perfci.core.errors import ContractError, DeviceError, UsageError
from perfci.core.model import CompiledKernel, Fact, Reason
from perfci.device.seam import Accelerator
from perfci.lab.tune.records import FINAL, SEARCH, Attempt, Config, Regime, key
from perfci.measure import verify as accuracy_stage
from perfci.measure.blocks import CandidateError, Rounds, time_candidates
from perfci.measure.inputs import bound_inputs
from perfci.measure.outputs import wrong_output
from perfci.measure.prepare import rounds
from perfci.ops.spec import Params, case_id
from perfci.statistics.exact import launch_shift
from perfci.worker.load import LoadedOp, call_reason, describe_exception
from perfci.worker.protocol import Doing, Job, Trying
from perfci.worker.tuning.search import Send, TuningSearch

LOOK_BLOCKS, FINAL_BLOCKS = 2, 12
PROBES = 5


def run(job: Job, send: Send, device: Accelerator, loaded: LoadedOp) -> None:
    """Search on the device at hand."""
    device.start_timer()
    _Measured(job, send, device, loaded).search()


class _Measured(TuningSearch):
    """Candidates are timed."""

    def __init__(self, job: Job, send: Send, device: Accelerator, loaded: LoadedOp) -> None:
        super().__init__(job, send, loaded.timed_suite())
        self._device, self._loaded = device, loaded
        self._rounds: dict[str, int] = {}

    def call_quietly(self, params: Params) -> None:
        try:
            inputs = bound_inputs(self.suite, params, self._device.arrays.device, self.job.seed)
        except Exception as error:
            facts = {"op": self.op, "case": case_id(params), "device": self._device.info.name}
            raise UsageError("tune_inputs_raised", **facts, **describe_exception(error, self.folder)) from error
        try:
            self.suite.kernel(**inputs)
        except Exception as error:
            self._refuse_lost(error)

    def time_batch(self, regime: Regime, configs: Sequence[Config | None], stage: str) -> None:
        working: dict[str, tuple[Config | None, CompiledKernel | None]] = {}
        for config in configs:
            self.announce(regime, config)
            failure, compiled = self._check_first_calls(regime, config) if stage == SEARCH else (None, None)
            if failure:
                self.keep(Attempt(regime.label, config, stage, failure=failure))
            else:
                working[key(config)] = config, compiled
        if len(configs) > 1:
            self.send(Trying("", None))  # from here on any of them may be to blame
        while working and (broken := self._time_all(regime, working, stage)):
            name, failure = broken
            self.keep(Attempt(regime.label, working.pop(name)[0], stage, failure=failure))

    def _time_all(
        self, regime: Regime, working: Mapping[str, tuple[Config | None, CompiledKernel | None]], stage: str
    ) -> tuple[str, Reason] | None:
        """Time and keep all of these beside the anchor. Returns the one that raised, and why, with nothing kept."""
        try:
            anchor = self.find_anchor(regime)
        except StopIteration:
            anchor = next(config for config, _ in working.values())
        names = dict.fromkeys([key(anchor), *working])
        configs = {**{name: config for name, (config, _) in working.items()}, key(anchor): anchor}
        arms = {name: self._make_kernel(regime, configs[name]) for name in names}
        shifts: dict[str, dict[str, tuple[float, ...]]] = {name: {} for name in working}
        us: dict[str, dict[str, float]] = {name: {} for name in working}
        for case in regime.cases:
            self.send(Doing("tune", self.op, case))
            try:
                times = time_candidates(
                    self.suite, self._device, self.cases[case], arms, self._choose_rounds(case, stage, arms)
                )
            except CandidateError as error:
                if error.name not in working:
                    raise ContractError("tune_anchor_failed", op=self.op, case=case) from error
                return error.name, self._explain(error.raised, case)
            held = times[key(anchor)]
            for name in working:
                if not all(launch > 0 for block in (*times[name], *held) for launch in block):
                    return name, Reason("nothing_launched", {"case": case, "arm": "kernel"})
                pairs = zip(times[name], held, strict=True)
                shifts[name][case] = tuple(launch_shift(own, other) for own, other in pairs)
                launches = sorted(launch for block in times[name] for launch in block)
                us[name][case] = launches[len(launches) // 2]
        for name, (config, compiled) in working.items():
            self.keep(
                Attempt(
                    regime.label, config, stage, shifts[name], us[name], anchor,
                    registers=compiled.registers if compiled else None,
                    spills=compiled.spills if compiled else None,
                    shared_bytes=compiled.shared_bytes if compiled else None,
                )
            )  # fmt: skip
        return None

    def _choose_rounds(self, case: str, stage: str, arms: Mapping[str, Callable[..., Any]]) -> Rounds:
        params = self.cases[case]
        if case not in self._rounds:
            inputs = bound_inputs(self.suite, params, self._device.arrays.device, self.job.seed)
            call = functools.partial(next(iter(arms.values())), **inputs)
            self._rounds[case] = rounds(1e6 * self._device.window_s(call, PROBES) / PROBES)
        seed = random.Random(f"{self.job.seed}/{case}/{stage}/{','.join(arms)}").getrandbits(31)
        blocks = FINAL_BLOCKS if stage == FINAL else LOOK_BLOCKS
        return Rounds(blocks, self._rounds[case], seed)

    def _check_first_calls(self, regime: Regime, config: Config | None) -> tuple[Reason | None, CompiledKernel | None]:
        """Compile, and compare the answer of every case with the reference."""
        kernel, heaviest = self._make_kernel(regime, config), None
        for case in regime.cases:
            params = self.cases[case]
            inputs = bound_inputs(self.suite, params, self._device.arrays.device, self.job.seed)
            try:
                with self._device.recorded() as kernels:
                    output = kernel(**inputs)
                    self._device.synchronize()
            except Exception as error:
                return self._explain(error, case), None
            if wrong := wrong_output(self.suite, self._device.arrays, params, inputs, output):
                return wrong, None
            heaviest = max((heaviest, *kernels.values()), key=lambda each: (each and each.registers) or -1)
        return None, heaviest

    def _make_kernel(self, regime: Regime, config: Config | None) -> Callable[..., Any]:
        kernel, entries = self.suite.kernel, self.entries(regime, config)

        def chosen(**inputs: Any) -> Any:
            self.seam.use(entries)
            return kernel(**inputs)

        return chosen

    def find_fault(self, regime: Regime, config: Config | None) -> Reason | None:
        self.announce(regime, config)
        self.seam.use(self.entries(regime, config))
        suite = self._loaded.accuracy
        try:
            for check in accuracy_stage.checks(suite, self.job.seed, None):
                self.send(Doing("accuracy", self.op, check.case))
                found = accuracy_stage.verify(suite, self._device, check, self._describe)
                if found.failure:
                    return found.failure
        finally:
            self.seam.use(None)
        return None

    def _explain(self, error: Exception, case: str) -> Reason:
        """Why a candidate does not count. Raises DeviceError if it cost this process its device."""
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
