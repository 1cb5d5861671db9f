"""The search for a device that is not here: candidates are compiled, and their times estimated by a model."""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perfci.core.errors import DeviceError, UsageError
from perfci.core.model import Fact, Reason
from perfci.device.targets import Target, target_named
from perfci.lab.tune import records
from perfci.lab.tune.files import Description, TunedFile, read_description, read_tuned
from perfci.lab.tune.model import CompiledLaunch, NoModelError, Work, estimate, floor_us
from perfci.lab.tune.records import FINAL, SEARCH, Attempt, Config, Regime
from perfci.lab.tune.space import pick_fixed
from perfci.measure.inputs import bound_inputs
from perfci.ops.spec import Params, Performance, case_id
from perfci.worker.load import load_op
from perfci.worker.protocol import Doing, Job, Modelled
from perfci.worker.static import explain_failure, import_path, install_target
from perfci.worker.tuning.seam import Entries
from perfci.worker.tuning.search import Send, TuningSearch

AS_DEVICE = "KERNELS_AS_DEVICE"
"""What the ops' own `_launch` reads: the description to launch by."""


def run_modelled(job: Job, send: Send) -> None:
    """Search for a device that is not here, by the model. The process is spent for anything else."""
    spec = read_description(Path(job.shared_folder), job.tune.spec or "")
    like = read_description(Path(job.shared_folder), job.tune.like or spec.key)
    name = spec.values.get("target")
    if not name:
        raise UsageError("tune_no_model", spec=spec.key, lacks="target")
    target = target_named(str(name))
    install_target(target)
    files = job.ops[0]
    with import_path(files, job):
        loaded = load_op(files.op, Path(files.folder), Path(job.shared_folder))
        try:
            _Modelled(job, send, loaded.performance, target, spec, like).search()
        except NoModelError as error:
            raise UsageError("tune_no_model", spec=spec.key, lacks=str(error)) from error


@dataclass(frozen=True)
class _Looked:
    """A call as the model sees it."""

    us: float | None
    failure: Reason | None = None
    registers: int | None = None
    spills: int | None = None
    shared_bytes: int | None = None


class _Modelled(TuningSearch):
    """Candidates are compiled, and their times estimated."""

    runs = False

    def __init__(
        self, job: Job, send: Send, suite: Performance, target: Target, spec: Description, like: Description
    ) -> None:
        super().__init__(job, send, suite)
        self._target, self._spec, self._like = target, spec, like
        self._inputs: dict[str, Mapping[str, Any]] = {}
        self._start_entries: Entries = ()
        self._original: dict[str, float | None] = {}
        self._be(spec)

    def _be(self, device: Description) -> None:
        """Have the op launch as on this device."""
        os.environ[AS_DEVICE] = device.key
        limits: Any = getattr(sys.modules.get("_launch"), "limits", None)
        if hasattr(limits, "cache_clear"):
            limits.cache_clear()
        self.seam.forget()

    def choose_start(self, key: str) -> TunedFile:
        """The device's own file, or that of the one that it varies."""
        start = self.file
        if not start.entries and self._like.key != key:
            start = read_tuned(self.file.path.with_name(f"{self._like.key}.json"))
        self._start_entries = start.entries
        return start

    def list_today(self) -> Entries | None:
        return self._start_entries

    def begin(self) -> None:
        """Every case on the device that the description varies, as it is launched there."""
        self._be(self._like)
        self.seam.use(None)
        for regime in self.all:
            for case in regime.cases:
                self.send(Doing("tune", self.op, case))
                names = self._name_config(regime, None)
                looked = self._look(self._call(self.cases[case]), self.cases[case], names, self._like)
                self._original[case] = looked.us
                work = self._work(self.cases[case], names, self._like)
                floors = [floor_us(work, device.values) for device in (self._like, self._spec)]
                self.send(Modelled(case, looked.us, *floors))
        self._be(self._spec)

    def _name_config(self, regime: Regime, config: Config | None) -> Mapping[str, Any]:
        """What rules may name of a configuration. Nothing if the op's own is in force, which nobody knows."""
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
                self.keep(self._estimate(regime, config))

    def _find_known(self, regime: Regime, config: Config | None) -> Attempt:
        return next(each for each in self.of(regime) if each.key == records.key(config) and not each.failure)

    def _estimate(self, regime: Regime, config: Config | None) -> Attempt:
        self.seam.use(self.entries(regime, config))
        us: dict[str, float] = {}
        looked = _Looked(None)
        for case in regime.cases:
            seen, names = self._call(self.cases[case]), self._name_config(regime, config)
            looked = self._look(seen, self.cases[case], names, self._spec)
            if looked.us is None:
                return Attempt(regime.label, config, failure=looked.failure)
            # Nothing is believed to beat today's choice on the device that it is for: that one was found by measuring,
            # which counts for more than the model.
            like_us, original = self._look(seen, self.cases[case], names, self._like).us, self._original.get(case)
            varied = original and like_us and self._like.key != self._spec.key
            us[case] = looked.us * (max(original / like_us, 1.0) if varied else 1.0)  # type: ignore[operator]
        try:
            anchor = self.find_anchor(regime) if config is not None else None
        except StopIteration:
            anchor = config
        anchor_us = us if anchor == config else self._find_known(regime, anchor).us
        shifts = {case: (math.log(us[case] / anchor_us[case]),) for case in us}
        return Attempt(
            regime.label, config, SEARCH, shifts, us, anchor,
            registers=looked.registers, spills=looked.spills, shared_bytes=looked.shared_bytes,
        )  # fmt: skip

    def _look(self, seen: Any, params: Params, names: Mapping[str, Any], device: Description) -> _Looked:
        from perfci.device import binaries
        from perfci.device.targets import find_occupancy

        case = case_id(params)
        if why := explain_failure(seen, self.folder, case, "tune_raised"):
            return _Looked(None, why)
        launches, heaviest = [], _Looked(None)
        for launched in seen.capture.launched:
            used, metadata = binaries.usage(launched.kernel), launched.kernel.metadata
            if used is None:
                raise DeviceError("tune_no_registers")
            held = find_occupancy(
                self._target, registers=used.registers, shared=metadata.shared, warps=metadata.num_warps,
                available=int(device.values.get("registers") or 0),
            )  # fmt: skip
            resident = round(held * self._target.warps / metadata.num_warps)
            spilled = used.spill_bytes if used.spill_bytes is not None else used.local_bytes
            programs = math.prod(launched.grid)
            launches.append(CompiledLaunch(programs, metadata.num_warps, resident, metadata.shared, spilled))
            if resident < 1:
                facts: dict[str, Fact] = {"case": case, "registers": used.registers, "shared": metadata.shared}
                return _Looked(None, Reason("tune_does_not_fit", {**facts, "spec": device.key}))
            if used.registers >= (heaviest.registers or 0):
                heaviest = _Looked(None, None, used.registers, spilled // 4, metadata.shared)
        found = estimate(self._work(params, names, device), launches, device.values)
        if found is None:
            return _Looked(None, Reason("nothing_launched", {"case": case, "arm": "kernel"}))
        return replace(heaviest, us=found.us)

    def _call(self, params: Params) -> Any:
        from perfci.device import offline

        case = case_id(params)
        if case not in self._inputs:
            made = offline.compiled(functools.partial(bound_inputs, self.suite, params, offline.DEVICE, self.job.seed))
            if why := explain_failure(made, self.folder, case, "tune_raised"):
                raise UsageError(why.kind, **why.facts)
            self._inputs[case] = made.value
        return offline.compiled(functools.partial(self.suite.kernel, **self._inputs[case]))

    def _work(self, params: Params, names: Mapping[str, Any], device: Description) -> Work:
        suite, dtype = self.suite, params.get("dtype")
        name = None if dtype is None else str(dtype).removeprefix("torch.")
        plain = {each: value for each, value in params.items() if isinstance(value, int | float | str)}
        known = {**device.numbers, **plain, "itemsize": getattr(dtype, "itemsize", 4), **names}
        loads = None
        if self.space.loads and names:
            loads = float(self.space.loads(known))
        moved = suite.bytes_moved(**params) if suite.bytes_moved else None
        flops = suite.flops(**params) if suite.flops else None
        return Work(moved, flops, name, loads)
