"""The search on the device at hand: candidates are checked and timed there."""

import functools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perfci.core.errors import ContractError, DeviceError, UsageError
from perfci.core.model import Reason
from perfci.device.seam import Accelerator
from perfci.extensions.lab.tune.records import FINAL, SEARCH, Attempt, Config, Regime, key
from perfci.extensions.lab.tune.task import Trying, Tune
from perfci.extensions.lab.tune.timing import CandidateError, time_candidates
from perfci.extensions.lab.tune.trials import Send, TuningSearch
from perfci.measure import verify as accuracy_stage
from perfci.measure.inputs import bound_inputs
from perfci.measure.outputs import wrong_output
from perfci.measure.prepare import rounds
from perfci.ops.spec import Params, case_id
from perfci.statistics.exact import launch_shift
from perfci.worker.load import LoadedOp, describe_exception
from perfci.worker.opening import load_files, open_op
from perfci.worker.protocol import Doing, MessageChannel

LOOK_BLOCKS, FINAL_BLOCKS = 2, 12
PROBES = 5


def run(task: Tune, channel: MessageChannel) -> None:
    """Search an op's configurations on the device at hand."""

    def load(device: Accelerator) -> LoadedOp:
        if device.absent:
            raise DeviceError("tune_not_timed", op=task.op)
        return load_files(task, task.place.ops[0])

    with open_op(task, channel, load) as (device, loaded):
        device.start_timer()
        _MeasuredSearch(task, channel.send, device, loaded).search()


class _MeasuredSearch(TuningSearch):
    """Candidates are timed."""

    def __init__(self, task: Tune, send: Send, device: Accelerator, loaded: LoadedOp) -> None:
        super().__init__(task, send, loaded.timed_suite())
        self._device, self._accuracy = device, loaded.accuracy
        self._describe = functools.partial(describe_exception, folder=self.folder)
        self._rounds: dict[str, int] = {}

    def call_quietly(self, params: Params) -> None:
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
