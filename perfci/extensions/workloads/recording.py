"""`perfci.record`: what a model calls of a project's ops, and what else the device runs meanwhile.

On a GPU the device's activity records (CUPTI through torch's profiler) say what each launch took. On a CPU it is how
long calls kept the host. Steps are recorded first, then run as they are, which says what recording costs, and one more
with torch's operators says who launches what no op of the project does.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import perf_counter
from types import FunctionType
from typing import Any, Self

from perfci.core import settings
from perfci.core.environment import PACKAGES, installed_versions
from perfci.core.errors import PerfciError, UsageError
from perfci.core.model import DeviceState, Reason
from perfci.core.model.measured import find_median
from perfci.core.settings import Settings
from perfci.core.wording import sentence
from perfci.device.nvml import NvmlBoard
from perfci.extensions.workloads import fits
from perfci.extensions.workloads.attribution import Activity, Taken, attribute, fill, find_offset, name_kind
from perfci.extensions.workloads.fits import Hearing, TensorForm
from perfci.extensions.workloads.records import Call, Tensor, Value, Workload, find_path, merge_calls, write_workload
from perfci.ops.backends import MARK
from perfci.ops.discover import OpFolder, ops
from perfci.worker.load import import_from, project_roots

STEPS = 5  # that are recorded
MOST_S = 30.0  # longest recording: what CUPTI keeps grows with each launch
NAMED_S = 1.0  # how long launches are named where steps are not marked
WATCH_S = 0.02  # between two readings of the clock
SURE = 0.97  # share of calls that have as many launches as others of their kind, below which a note doubts all shares


class Recorder(AbstractContextManager["Recorder"]):
    """Records between its beginning and its end, and stores the workload then.

    >>> with perfci.record("llama-decode") as recorder:  # doctest: +SKIP
    ...     for _ in range(12):
    ...         step()
    ...         recorder.step()

    Ops are heard from when it is made, so make it before graphs are captured. Raises UsageError for a name that is no
    file's, or if no call of an op was recorded.
    """

    def __init__(
        self,
        name: str,
        project: str | os.PathLike[str] | None = None,
        *,
        also: Sequence[str] = (),
        steps: int = STEPS,
        after_s: float | None = None,
    ) -> None:
        """also: further functions, PACKAGE.MODULE:FUNCTION, that are no op yet. steps: how many are recorded.

        after_s: None, or seconds from the first call on, as steps are not marked.
        """
        import torch

        self._torch, self._cuda = torch, torch.cuda.is_available()
        self._where = settings.load(Path(project or Path.cwd()))
        find_path(self._where.kernels, name)
        self._name, self._most, self._after_s, self._first = name, steps, after_s, 0.0
        self._folders, self._notes = {op.op: op for op in ops(self._where)}, list[Reason]()
        self._functions = dict(self._find_functions(also))
        self._hearing = Hearing(self._functions, torch, self._tick)
        self._phase, self._forked, self._profiler = "waiting", False, ExitStack()
        self._began = self._recorded_s = self._plain_s = 0.0
        self._steps = self._plain_steps = self._first_steps = self._children = 0
        self._profile: Any = None
        self._watch: _Watch | None = None
        self._state: DeviceState | None = None
        self._records: list[Activity] = []
        self._makers: dict[str, str] = {}
        self._fitters: dict[str, fits.Fitter] = {}
        self.workload: Workload | None = None
        os.register_at_fork(after_in_child=self._turn_deaf)

    def __enter__(self) -> Self:
        if self._after_s is None:
            self._turn_to("recorded")
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._forked:
            return
        self._turn_to("done")
        self._hearing.close()
        if kind in {None, SystemExit, KeyboardInterrupt}:
            self.workload = self._conclude()
            write_workload(self._where.kernels, self.workload)

    def step(self) -> None:
        """Mark the end of a step."""
        self._steps += self._phase == "recorded"
        self._plain_steps += self._phase == "plain"
        late = perf_counter() - self._began > MOST_S
        if self._phase == "recorded" and self._steps == 1 and self._cuda:  # it had to start the device's recording
            self._torch.cuda.synchronize()
            self._began, self._first_steps = perf_counter(), 1
        if self._phase == "named":
            self._turn_to("done")
        elif self._phase == "recorded" and (self._steps >= self._most or late):
            self._turn_to("plain")
        elif self._phase == "plain" and (self._plain_steps >= self._most or late):
            self._turn_to("named" if self._cuda else "done")

    def _tick(self) -> None:
        """After each call: where steps are not marked, time turns to the next phase."""
        if self._phase == "forked":
            self._phase = "done"
            warnings.warn(sentence(Reason("child_unheard", {"process": os.getpid()})), stacklevel=2)
        if self._after_s is None or self._phase == "done":
            return
        now = perf_counter()
        self._first = self._first or now
        if self._phase == "waiting" and now - self._first >= self._after_s:
            self._turn_to("recorded")
        elif self._phase == "recorded" and now - self._began > MOST_S / 3:
            self._turn_to("named" if self._cuda else "done")
        elif self._phase == "named" and now - self._began > NAMED_S:
            self._turn_to("done")

    def _turn_to(self, phase: str) -> None:
        if self._cuda:
            self._torch.cuda.synchronize()
        ended = perf_counter()
        if self._phase == "recorded":
            self._hearing.on, self._recorded_s = False, ended - self._began
            self._children = _count_children()
            self._records = self._close_profiler()
        elif self._phase == "plain":
            self._plain_s = ended - self._began
        if self._watch and phase != "plain":
            self._state, self._watch = self._watch.close(), None
        if phase == "recorded" and self._cuda:
            self._watch = _Watch()
        if self._phase == "named":
            self._makers = {one.name: one.by for one in self._close_profiler() if one.by}
        self._phase = phase
        if phase in {"recorded", "named"} and self._cuda:
            from torch.autograd.profiler import profile

            self._profile = profile(use_cpu=phase == "named", use_device="cuda", use_kineto=True)
            self._profiler.enter_context(self._profile)
        self._hearing.on = phase == "recorded"
        self._began = perf_counter()

    def _close_profiler(self) -> list[Activity]:
        """Returns the records since it was opened. On a CPU there are none."""
        self._profiler.close()
        return list(_read_events(list(self._profile.kineto_results.events()))) if self._cuda else []

    def _turn_deaf(self) -> None:
        """In a forked process: nothing is recorded there, as its first call tells."""
        self._phase, self._hearing.on, self._forked = "forked", False, True

    # --- what is heard

    def _find_functions(self, also: Sequence[str]) -> Iterator[tuple[str, FunctionType]]:
        """Yields the function of each op, as its file defines or imports it, and others. What cannot be is noted."""
        sys.path.extend(project_roots(self._where.root))
        named = [(op.op, partial(_import, op.files[0], op, self._where), op.name) for op in self._folders.values()]
        for text in also:
            module, _, function = text.partition(":")
            named.append((function, partial(importlib.import_module, module), function))
        for name, load, wanted in named:
            try:
                function = getattr(load(), wanted)
                if not isinstance(function, FunctionType):
                    raise TypeError(type(function).__name__)  # noqa: TRY301
                yield name, function
            except (Exception, SystemExit) as error:
                if MARK not in name:  # most programs lack the package of some backend
                    self._note("op_unheard", error, op=name)

    def _note(self, kind: str, error: BaseException, **facts: str) -> None:
        reason = Reason(kind, {**facts, "error": f"{type(error).__name__}: {error}"[:200]})
        self._notes += [] if reason in self._notes else [reason]

    # --- what it comes to

    def _conclude(self) -> Workload:
        hearing, steps, heard = self._hearing, max(self._steps, 1), self._hearing.calls
        if not self._cuda:
            self._records = [Activity("kernel", "", call.start_ns, call.end_ns) for call in heard]
        elif heard or hearing.replays:
            launches = [record for record in self._records if record.kind == "launch"]
            offset, agreed = find_offset(launches, [*heard, *hearing.replays])
            moved = [(record, record.start_ns + offset, record.end_ns + offset) for record in self._records]
            self._records = [replace(record, start_ns=start, end_ns=end) for record, start, end in moved]
            self._notes += [Reason("calls_apart", {"share": 1 - agreed})] if agreed < SURE else []
        seen = attribute(self._records, heard, hearing.replays, hearing.graphs)
        signatures = {key: form for form, key in hearing.signatures.items()}
        if not seen.calls:
            names = ", ".join(op for op in self._folders if MARK not in op)
            raise UsageError("nothing_recorded", name=self._name, ops=names)
        self._notes += [Reason("graphs_untold", {"count": seen.untold})] if seen.untold else []
        others = self._state.foreign_processes if self._state else None
        self._notes += [Reason("others_on_device", {"count": others})] if others else []
        self._notes += [Reason("children_unheard", {"count": self._children})] if self._children else []
        npu = getattr(self._torch, "npu", None)
        self._notes += [Reason("npu_unrecorded")] if npu and npu.is_available() else []
        recorded_us = 1e6 * self._recorded_s / max(steps - self._first_steps, 1)
        plain_us = 1e6 * self._plain_s / self._plain_steps if self._plain_steps else recorded_us
        calls = merge_calls(self._describe_call(signatures[key], key, taken) for key, taken in seen.calls.items())
        workload = Workload(
            self._name, datetime.now(UTC).isoformat(timespec="seconds"), packages=installed_versions(PACKAGES),
            clock="device" if self._cuda else "host", steps=steps, step_us=plain_us, recorded_us=recorded_us,
            state=self._state, calls=tuple(sorted(calls, key=lambda call: -(call.us or 0.0))),
        )  # fmt: skip
        workload = self._measure_device(workload)
        return replace(fill(workload, seen, {key: op for key, (op, *_) in signatures.items()}, self._makers),
                       notes=tuple(self._notes))  # fmt: skip

    def _describe_call(self, signature: tuple[Any, ...], key: int, taken: Taken) -> Call:
        name, args, named, forms = signature
        op, takes = self._folders.get(name), inspect.signature(self._hearing.originals[name])
        names = takes.bind(*args, **dict(zip(named, forms, strict=True))).arguments  # without defaults
        arguments = {name: self._write_argument(value) for name, value in names.items()}
        outputs = tuple(self._write_tensor(form) for form in self._hearing.outputs.get(key, ()))
        call = Call(name, arguments, outputs, taken.count, taken.us, taken.kernels)
        try:
            if op:
                if op.op not in self._fitters:
                    suite = _import(op.folder / f"{op.name}_performance.py", op, self._where).performance
                    self._fitters[op.op] = fits.Fitter(suite, self._torch)
                call = self._fitters[op.op].fit(call, names)
        except (Exception, SystemExit) as error:
            self._note("call_unfit", error, op=name)
        return call

    def _write_tensor(self, form: TensorForm) -> Tensor:
        usual = self._torch.empty(form.shape, device="meta").stride()
        return Tensor(
            form.shape, str(form.dtype).removeprefix("torch."), None if form.strides == usual else form.strides
        )

    def _write_argument(self, value: Any) -> Value:
        if isinstance(value, TensorForm):
            return self._write_tensor(value)
        if isinstance(value, tuple):
            return tuple(map(_write_fact, value))
        return _write_fact(value)

    def _measure_device(self, workload: Workload) -> Workload:
        """Returns it with the device, and with what a copy and a matrix product reach there."""
        from perfci.device import open_device

        try:
            device = open_device("cuda" if self._cuda else "cpu", seed=0)
            workload = replace(workload, device=device.info)
            if self._cuda:
                dtypes = {call.dtype for call in workload.calls if call.dtype and "float" in call.dtype}
                free_mhz = NvmlBoard(device.info.uuid).highest_clock_mhz()
                workload = replace(workload, free_mhz=free_mhz, limits=device.limits(sorted(dtypes)))
        except (PerfciError, RuntimeError) as error:  # the model has the memory, for example
            self._note("limits_unmeasured", error)
        return workload


def _import(file: Path, op: OpFolder, where: Settings) -> Any:
    """Returns the module of one of an op's files: the one that the program has, if it has imported it."""
    for module in list(sys.modules.values()):
        if (path := getattr(module, "__file__", None)) and Path(path) == file:
            return module
    with import_from(op.folder, where.kernels):
        return importlib.import_module(file.stem)


def _write_fact(value: Any) -> bool | int | float | str | None:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _count_children() -> int:
    """How many processes that this one has started are alive. 0 on a system that does not tell."""
    count = 0
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread that has ended
            count += len(path.read_text().split())
    return count


class _Watch:
    """Reads what the board does while steps run, beside them."""

    def __init__(self) -> None:
        self._states, self._over = list[DeviceState](), threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        import torch

        board = NvmlBoard(f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}")
        while not self._over.wait(WATCH_S):
            self._states.append(board.state())

    def close(self) -> DeviceState | None:
        """Returns what it read, summed up."""
        self._over.set()
        self._thread.join()
        return sum_up(self._states)


def sum_up(states: Sequence[DeviceState]) -> DeviceState | None:
    """Returns medians, and why the clock was held down in at least half of the readings."""
    clock, others = (
        find_median(getattr(one, name) for one in states) for name in ("sm_clock_mhz", "foreign_processes")
    )
    reasons = Counter(reason for state in states for reason in state.throttle)
    throttle = tuple(reason for reason, count in reasons.items() if 2 * count >= len(states))
    if clock is None:
        return None
    others = None if others is None else round(others)
    return DeviceState(sm_clock_mhz=round(clock), foreign_processes=others, throttle=throttle)


def _read_events(events: list[Any]) -> Iterator[Activity]:
    """Yields launches and what the device did, of kineto's events."""
    import torch

    cuda = torch.autograd.DeviceType.CUDA
    hosts = (event for event in events if event.device_type() != cuda)
    made = {event.correlation_id(): event.name() for event in hosts if "::" in event.name()}
    for event in events:
        name, device = event.name(), event.device_type() == cuda
        if event.is_user_annotation() or not (device or name.startswith("cu")):
            continue
        by = made.get(event.linked_correlation_id()) if device and made else None
        start = event.start_ns()
        yield Activity(name_kind(name) if device else "launch", name, start, start + event.duration_ns(),
                       event.correlation_id(), event.device_resource_id() if device else 0, by)  # fmt: skip
