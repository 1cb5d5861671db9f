"""The search for a device that is not here: candidates are compiled, and their times estimated by a model."""

import functools
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from perfci.core.errors import DeviceError, UsageError
from perfci.core.model import Fact, Reason
from perfci.device.targets import Target, find_occupancy, target_named
from perfci.extensions.lab.tune.files import Description, pick_fixed, read_description
from perfci.extensions.lab.tune.model import CompiledLaunch, NoModelError, Work, estimate, floor_us
from perfci.extensions.lab.tune.records import FINAL, SEARCH, Attempt, Config, Regime, key
from perfci.extensions.lab.tune.task import Modelled, Tune
from perfci.extensions.lab.tune.trials import Send, TuningSearch
from perfci.measure.inputs import bound_inputs
from perfci.ops.spec import Params, Performance, case_id
from perfci.worker.load import load_op
from perfci.worker.offline import explain_failure, import_path, install_target
from perfci.worker.protocol import Doing

AS_DEVICE = "KERNELS_AS_DEVICE"  # what the ops' `_launch` reads: the description to launch by

Names = Mapping[str, Any]


def run_modelled(task: Tune, send: Send) -> None:
    """Search for a device that is not here, by the model. The process is spent for anything else."""
    spec = read_description(task.shared_folder, task.spec or "")
    like = read_description(task.shared_folder, task.like or spec.key)
    name = spec.values.get("target")
    if not name:
        raise UsageError("tune_no_model", spec=spec.key, lacks="target")
    target = target_named(str(name))
    install_target(target)
    with import_path(task, task.place.ops[0]):
        loaded = load_op(task.op, task.folder, task.shared_folder)
        try:
            _ModelledSearch(task, send, loaded.performance, target, spec, like).search()
        except NoModelError as error:
            raise UsageError("tune_no_model", spec=spec.key, lacks=str(error)) from error


class _ModelledSearch(TuningSearch):
    """Candidates are compiled, and their times estimated."""

    def __init__(
        self, task: Tune, send: Send, suite: Performance, target: Target, spec: Description, like: Description
    ) -> None:
        super().__init__(task, send, suite)
        self._target, self._spec, self._like = target, spec, like
        self._inputs: dict[str, Mapping[str, Any]] = {}
        self._original: dict[str, float] = {}
        """case -> time on the device that the description varies, with what is launched there today"""
        self._launch_as(spec)

    def _launch_as(self, device: Description) -> None:
        """Have the op launch as on this device."""
        os.environ[AS_DEVICE] = device.key
        limits: Any = getattr(sys.modules.get("_launch"), "limits", None)
        if hasattr(limits, "cache_clear"):
            limits.cache_clear()
        self.seam.forget()

    def find_regimes(self) -> None:
        super().find_regimes()
        self._launch_as(self._like)
        self.seam.use(None)
        for regime in self.regimes:
            for case in regime.cases:
                self.send(Doing("tune", self.op, case))
                names, params = self._name_config(regime, None), self.cases[case]
                us = self._estimate(self._call(params), params, names, self._like)
                if isinstance(us, float):
                    self._original[case] = us
                work = self._find_work(params, names, self._like)
                floors = [floor_us(work, device.values) for device in (self._like, self._spec)]
                self.send(Modelled(case, self._original.get(case), *floors))
        self._launch_as(self._spec)

    def _name_config(self, regime: Regime, config: Config | None) -> Names:
        """Names of a configuration for rules. Nothing if the op's is in force, which no one knows."""
        chosen = regime.current if config is None else config
        return {} if chosen is None else {**pick_fixed(regime.when), **chosen}

    def call_quietly(self, params: Params) -> None:
        self._call(params)

    def time_batch(self, regime: Regime, configs: Sequence[Config | None], stage: str) -> None:
        for config in configs:
            self.announce(regime, config)
            if stage == FINAL:
                self.keep(replace(self._find_known(regime, config), stage=FINAL))
            else:
                self.keep(self._try(regime, config))

    def _find_known(self, regime: Regime, config: Config | None) -> Attempt:
        return next(
            attempt for attempt in self.list_known(regime) if attempt.key == key(config) and not attempt.failure
        )

    def _try(self, regime: Regime, config: Config | None) -> Attempt:
        self.seam.use(self.list_entries(regime, config))
        us: dict[str, float] = {}
        for case in regime.cases:
            params, names = self.cases[case], self._name_config(regime, config)
            seen = self._call(params)
            estimated_us = self._estimate(seen, params, names, self._spec)
            if isinstance(estimated_us, Reason):
                return Attempt(regime.label, config, failure=estimated_us)
            us[case] = estimated_us
            # Nothing is believed to beat today's choice on the device that it is for: that one was found by measuring,
            # which counts for more than the model.
            like_us, original = self._estimate(seen, params, names, self._like), self._original.get(case)
            if original and isinstance(like_us, float) and self._like.key != self._spec.key:
                us[case] *= max(original / like_us, 1.0)
        anchor = self.find_anchor(regime, config) if config is not None else None
        anchor_us = us if anchor == config else self._find_known(regime, anchor).us
        shifts = {case: (math.log(us[case] / anchor_us[case]),) for case in us}
        return Attempt(regime.label, config, SEARCH, shifts, us, anchor)

    def _estimate(self, seen: Any, params: Params, names: Names, device: Description) -> float | Reason:
        """Returns microseconds of a captured call on a device, or why it does not run there."""
        from perfci.device import binaries

        case, launches = case_id(params), []
        if why := explain_failure(seen, self.folder, case, "tune_raised"):
            return why
        for launched in seen.capture.launched:
            used, metadata = binaries.usage(launched.kernel), launched.kernel.metadata
            if used is None:
                raise DeviceError("tune_no_registers")
            held = find_occupancy(
                self._target, registers=used.registers, shared=metadata.shared, warps=metadata.num_warps,
                available=int(device.values.get("registers") or 0),
            )  # fmt: skip
            resident = round(held * self._target.warps / metadata.num_warps)
            if resident < 1:
                facts: dict[str, Fact] = {"case": case, "registers": used.registers, "shared": metadata.shared}
                return Reason("tune_does_not_fit", {**facts, "spec": device.key})
            spilled = used.spill_bytes if used.spill_bytes is not None else used.local_bytes
            launch = CompiledLaunch(math.prod(launched.grid), metadata.num_warps, resident, metadata.shared, spilled)
            launches.append(launch)
        us = estimate(self._find_work(params, names, device), launches, device.values)
        return Reason("nothing_launched", {"case": case, "arm": "kernel"}) if us is None else us

    def _call(self, params: Params) -> Any:
        """Returns a call that is captured and compiled, not run."""
        from perfci.device import offline

        case = case_id(params)
        if case not in self._inputs:
            make = functools.partial(bound_inputs, self.suite, params, offline.DEVICE, self.task.seed)
            made = offline.compile_call(make)
            if why := explain_failure(made, self.folder, case, "tune_raised"):
                raise UsageError(why.kind, **why.facts)
            self._inputs[case] = made.value
        return offline.compile_call(functools.partial(self.suite.kernel, **self._inputs[case]))

    def _find_work(self, params: Params, names: Names, device: Description) -> Work:
        suite, dtype, loads = self.suite, params.get("dtype"), None
        if self.space.loads and names:
            plain = {name: value for name, value in params.items() if isinstance(value, int | float | str)}
            values = {**device.numbers, **plain, "itemsize": getattr(dtype, "itemsize", 4), **names}
            loads = float(self.space.loads(values))
        return Work(
            suite.bytes_moved(**params) if suite.bytes_moved else None,
            suite.flops(**params) if suite.flops else None,
            None if dtype is None else str(dtype).removeprefix("torch."),
            loads,
        )
