"""The coverage task: what an op's accuracy cases exercise of what its performance cases time, without launching any."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfci.core import extensions
from perfci.core.errors import PerfciError
from perfci.core.model import Feature, Reason, Suite
from perfci.extensions.common.targets import target_named
from perfci.extensions.offline.process import HIDDEN, Send, import_path
from perfci.extensions.static.tasks import Cover, Covered, Exercised, conclude
from perfci.measure.inputs import bound_inputs
from perfci.measure.verify import list_probes
from perfci.ops.spec import Accuracy, Params, Performance, case_id
from perfci.worker.load import describe_exception, load_op
from perfci.worker.protocol import Doing, MessageChannel

if TYPE_CHECKING:
    from perfci.extensions.static.dry_launch import Exercise

MOST_TRIES = 60  # calls that one proposed case may take to become small


def run(task: Cover, channel: MessageChannel) -> None:
    """Report on every op of the task.

    Needs TRITON_INTERPRET=1 from the start. The process can serve no other target.
    """
    send = channel.send
    os.environ.update(HIDDEN)
    from perfci.extensions.offline import compiling

    compiling.install(target_named(task.target))
    for correct in extensions.provided("interpreter"):
        correct()
    for files in task.place.ops:
        send(Doing("coverage", files.op))
        with import_path(task, files):
            try:
                loaded = load_op(files.op, files.folder, task.shared_folder)
            except PerfciError as error:
                send(Covered(files.op, task.target, failure=error.reason))
                continue
            send(_Suites(loaded.accuracy, loaded.performance, files.folder, send).report(task))


class _Suites:
    """One op's suites."""

    def __init__(self, accuracy: Accuracy, performance: Performance, folder: Path, send: Send) -> None:
        self._accuracy, self._performance, self._folder = accuracy, performance, folder
        self._said: list[Exercised] = []
        self._lines: set[str] = set()
        self._send = send

    def report(self, task: Cover) -> Covered:
        """Look through all calls, and report what each exercises."""
        from perfci.extensions.offline import compiling
        from perfci.extensions.static.dry_launch import list_lines

        # The interpreter looks through the launches, the target is a device, which gets these cases too.
        suite = self._accuracy
        cases, on_devices, large = (
            [(params, "contiguous") for params in given]
            for given in (suite.cases, suite.accelerator_cases, suite.large_cases)
        )
        probes = list(itertools.product(list_probes(suite, None), suite.layouts))
        for params, layout in (*cases, *on_devices, *probes):
            self._report_call(task, Suite.ACCURACY, params, self._look_through(suite, params, layout))
        for params in self._performance.cases:
            self._report_call(task, Suite.PERFORMANCE, params, self._look_through(self._performance, params))
        end = Covered(task.op, task.target, tuple(map(_spell_line, set(list_lines(self._folder)))))
        # Cases run elsewhere too: without an accelerator, and those of `perfci soak`.
        elsewhere = [*((call, "cpu") for call in (*cases, *probes)), *((call, compiling.DEVICE) for call in large)]
        for (params, layout), device in elsewhere:
            if self._lines.issuperset(end.lines):
                break
            self._report_call(task, None, params, self._look_through(suite, params, layout, device))
        if not task.propose:
            return end
        timed = {case_id(params): params for params in self._performance.cases}
        gaps = conclude(self._said, end).gaps
        small = {gap.case: self._shrink(timed[gap.case], set(gap.features)) for gap in gaps}
        return replace(end, add={case: _write_case(params) for case, params in small.items() if params is not None})

    def _report_call(self, task: Cover, suite: Suite | None, params: Params, done: Exercise) -> None:
        features = tuple(done.features) if suite else ()
        lines = tuple(map(_spell_line, done.lines))
        self._lines.update(lines)
        self._said.append(Exercised(task.op, task.target, suite, case_id(params), features, lines, done.unseen))
        self._send(self._said[-1])

    def _look_through(
        self, suite: Accuracy | Performance, params: Params, layout: str = "contiguous", device: str | None = None
    ) -> Exercise:
        """Look through one call, on the target or on another device."""
        from perfci.device.tensors import TorchArrays
        from perfci.extensions.offline import compiling
        from perfci.extensions.static.dry_launch import watch_dry_launches

        where = device or compiling.DEVICE

        def make() -> dict[str, Any]:
            inputs = bound_inputs(suite, params, where, 0)
            return inputs if layout == "contiguous" else TorchArrays(where).place(inputs, layout)

        self._send(Doing("coverage", self._folder.name, case_id(params)))
        with watch_dry_launches() as done:
            inputs = compiling.compile_call(make)
            seen = inputs if inputs.raised else compiling.compile_call(lambda: suite.kernel(**inputs.value))
        done.unseen = seen.failure
        if seen.raised is not None:
            facts = describe_exception(seen.raised, self._folder)
            done.unseen = Reason("unseen_raised", {"case": case_id(params), **facts})
        return done

    def _shrink(self, params: Params, wanted: set[Feature]) -> Params | None:
        """Returns the smallest sizes found with which the accuracy suite exercises the same."""
        tries = MOST_TRIES

        def keeps(candidate: Params) -> bool:
            nonlocal tries
            tries -= 1
            return tries >= 0 and wanted <= self._look_through(self._accuracy, candidate).features

        if not keeps(params):
            return None
        best = dict(params)
        for name in sorted((key for key, v in params.items() if _is_size(v)), key=lambda key: -params[key]):
            for smaller in _list_smaller(best[name]):
                if not keeps(best | {name: smaller}):
                    break
                best[name] = smaller
        return best


def _spell_line(line: tuple[str, int]) -> str:
    return f"{Path(line[0]).name}:{line[1]}"


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 1


def _list_smaller(size: int) -> Iterator[int]:
    while size > 1:
        size //= 2
        yield size


def _write_case(params: Params) -> str:
    return f"perfci.grid({', '.join(f'{name}=[{value!r}]' for name, value in params.items())})"
