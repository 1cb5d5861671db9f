"""A worker's part: the least wrong case of one op, or what its suite does not check."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from perfci.core.model import AccuracyCase, Fact, Reason, because
from perfci.core.model.basics import CAUSE
from perfci.device.seam import Accelerator
from perfci.extensions.beyond.configurations import Looked, check_configurations, list_configurations
from perfci.extensions.beyond.formula import trace_calls
from perfci.extensions.beyond.graphs import check_graphs, find_capture
from perfci.extensions.beyond.least import Judge, Show, Shrinker
from perfci.extensions.beyond.lines import write_lines
from perfci.extensions.beyond.properties import check_properties
from perfci.extensions.beyond.repeats import check_repeats
from perfci.extensions.beyond.sanitize import watched_memory
from perfci.extensions.beyond.task import SHRINK_S, LookBeyond
from perfci.measure.inputs import bound_inputs, call_fresh
from perfci.measure.search import list_candidates, list_long, search
from perfci.measure.verify import Check, list_probes, verify
from perfci.ops.spec import Accuracy, Params, case_id, matches
from perfci.worker.load import LoadedOp, describe_exception
from perfci.worker.opening import load_files, open_op
from perfci.worker.protocol import Doing, MessageChannel, OpDone

if TYPE_CHECKING:
    from perfci.extensions.beyond.structure import Placed


def perform(task: LookBeyond, channel: MessageChannel) -> None:
    """Shrink a wrong case, or make further checks. Each result is sent at once."""
    with open_op(task, channel, lambda _: load_files(task, task.place.ops[0])) as (device, loaded):
        look = Look(task, channel, device, loaded)
        for result in look.look():
            channel.send(result)
        channel.send(OpDone(notes=tuple(look.notes)))


class Look:
    """One op on one device."""

    def __init__(self, task: LookBeyond, channel: MessageChannel, device: Accelerator, loaded: LoadedOp) -> None:
        self._task, self._channel, self._device, self._loaded = task, channel, device, loaded
        self._describe = functools.partial(describe_exception, folder=task.folder)
        self._until_s = math.inf if task.budget_s is None else time.monotonic() + task.budget_s
        self.notes: list[Reason] = []

    def look(self) -> Iterator[AccuracyCase]:
        """Do what the task asks for, and yield the checks that were made."""
        if self._task.traced:
            return self.trace()
        if self._task.watched:
            return self.call()
        return self.shrink(self._task.wrong) if self._task.wrong else self.check()

    def call(self) -> Iterator[AccuracyCase]:
        """Call each probe case once. Yields nothing: what watches the process tells."""
        suite, arrays = self._loaded.accuracy, self._device.arrays
        for params in list_probes(suite, self._task.pattern):
            self._channel.send(Doing("sanitize", self._task.op, case_id(params)))
            with watched_memory():
                call_fresh(suite.kernel, bound_inputs(suite, params, arrays.device, 0), arrays, suite.mutates)
                self._device.synchronize()
        yield from ()

    def trace(self) -> Iterator[AccuracyCase]:
        """Note what each probe case gives, in each configuration. Yields nothing."""
        suite, device, task = self._loaded.accuracy, self._device, self._task
        self._channel.send(Doing("formula", task.op))
        probes = list_probes(suite, task.pattern)
        configs = list_configurations(suite, device, task.op, task.folder, task.shared_folder, probes, task.chosen)
        self.notes += [trace.spell() for trace in trace_calls(suite, device, probes, configs)]
        yield from ()

    def shrink(self, wrong: AccuracyCase) -> Iterator[AccuracyCase]:
        """Yields the smallest wrong case as a check, with the lines that show it. Nothing if it did not show again."""
        self._channel.send(Doing("shrink", self._task.op, wrong.case))
        until_s = min(self._until_s, time.monotonic() + SHRINK_S)
        least = Shrinker(self._loaded.accuracy, self._device, wrong, self._describe, until_s).shrink()
        if least:
            python = write_lines(self._task, self._loaded, self._device, least)
            reason = because("least_wrong", least.failure, origin=wrong.case, tries=least.tries, python=python)
            yield least.check.result(failure=reason)

    def check(self) -> Iterator[AccuracyCase]:
        """Yields what was found beyond the suite."""
        suite, pattern = self._loaded.accuracy, self._task.pattern
        if suite.invariant or suite.permutes or suite.idempotent or suite.graph:
            self._channel.send(Doing("properties", self._task.op))
        yield from check_properties(suite, self._device, pattern, self._describe, self._shrink_found)
        if suite.gradients:
            from perfci.extensions.beyond.gradients import check_gradients

            self._channel.send(Doing("gradients", self._task.op))
            yield from check_gradients(suite, self._device, pattern, self._describe)
        capture = find_capture(self._device)
        yield from check_graphs(suite, self._device, pattern, self._describe, capture, self._shrink_found)
        yield from self._check_configurations()
        if self._task.budget_s is not None:
            return
        self._channel.send(Doing("repeats", self._task.op))
        yield from check_repeats(suite, self._device, pattern)
        if self._device.info.kind != "fake":
            yield from self._check_structure()

    def _check_structure(self) -> Iterator[AccuracyCase]:
        """Every size and value of a search, and arrays that lie in memory as no suite has them."""
        from perfci.extensions.beyond.structure import check_placed, list_placed, reach_far

        task, suite, device = self._task, self._loaded.accuracy, self._device
        self._channel.send(Doing("structure", task.op))
        shrunk: list[AccuracyCase] = []  # one alone: the others mostly have the same fault
        for check in list_candidates(suite, task.seed, task.pattern, duel=False):
            self._channel.send(Doing("structure", task.op, f"{check.case}, {check.values}"))
            answer = search(suite, device, check, self._describe, None)
            if answer and answer.failure:
                yield answer
                shrunk = shrunk or [*self.shrink(answer)]
        for params in list_probes(suite, task.pattern) if not suite.mutates else ():
            for placed in list_placed(suite):
                self._channel.send(Doing("structure", task.op, f"{case_id(params)}, {placed.name}"))
                made = reach_far(params) if placed.far else params
                if wrong := check_placed(suite, device, made, placed, self._describe):
                    yield wrong
                    shrunk = shrunk or [*self._shrink_placed(wrong, made, placed)]
        yield from shrunk

    def _shrink_placed(self, wrong: AccuracyCase, params: Params, placed: Placed) -> Iterator[AccuracyCase]:
        """Yields the smallest case that is wrong where arrays lie so, with the lines that show it, as above."""
        from perfci.extensions.beyond.structure import place_suite

        device = self._device
        self._channel.send(Doing("shrink", self._task.op, wrong.case))

        def judge(suite: Accuracy, check: Check) -> AccuracyCase:
            return verify(place_suite(suite, device, check, placed), device, check, self._describe)

        until_s = time.monotonic() + SHRINK_S
        shrinker = Shrinker(self._loaded.accuracy, device, wrong, self._describe, until_s, judge)
        if least := shrinker.shrink(Check(params, "normal", "contiguous", 0, fresh=False)):
            python = write_lines(self._task, self._loaded, device, least, placed.form)
            facts: dict[str, Fact] = {"placed": placed.name, "origin": wrong.case, "tries": least.tries}
            yield least.check.result(failure=because("least_placed", least.failure, python=python, **facts))

    def _shrink_found(self, wrong: AccuracyCase, check: Check, judge: Judge, show: Show) -> Iterator[AccuracyCase]:
        """Yields the smallest case that is wrong in the way of one that is no suite's, with lines, as above."""
        if wrong.failure is None:
            return
        self._channel.send(Doing("shrink", self._task.op, wrong.case))
        until_s = time.monotonic() + SHRINK_S
        shrinker = Shrinker(self._loaded.accuracy, self._device, wrong, self._describe, until_s, judge, fills=False)
        if least := shrinker.shrink(check):
            python, why = write_lines(self._task, self._loaded, self._device, least, show=show), least.failure
            cause = Reason(str(why.facts.get(CAUSE, why.kind)), why.facts)
            facts: dict[str, Fact] = {**show.facts, "origin": wrong.case, "tries": least.tries}
            yield least.check.result(failure=because(show.kind, cause, python=python, **facts))

    def _check_configurations(self) -> Iterator[AccuracyCase]:
        task, suite, device, looked = self._task, self._loaded.accuracy, self._device, Looked()
        self._channel.send(Doing("configurations", task.op))
        probes = [*list_long(suite, task.pattern)[:1], *list_probes(suite, task.pattern)]
        others = [params for params in suite.cases if task.budget_s is None and matches(case_id(params), task.pattern)]
        configs = list_configurations(
            suite, device, task.op, task.folder, task.shared_folder, probes, task.chosen, others
        )
        yield from check_configurations(
            suite, device, probes, configs, self._describe, self._until_s, looked, self._shrink_found
        )
        if configs:
            facts: dict[str, Fact] = {
                "op": task.op,
                "checked": looked.checked,
                "of": looked.of,
                "refused": looked.refused,
            }
            left = looked.checked < looked.of
            self.notes.append(Reason("configurations_left" if left else "configurations_checked", facts))
