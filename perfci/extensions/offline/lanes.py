"""Compiles what ops launch, into their caches, before the ops are looked at and beside looks at other ops.

Workers that compile cannot open the device, and stand still while anything is timed: they run code of other ops.
"""

import contextlib
import dataclasses
import itertools
import sys
import time
from collections.abc import Collection, Generator, Iterator, Sequence
from dataclasses import dataclass

from perfci.core.cores import count_cores
from perfci.core.model import Device, Reason, Suite
from perfci.core.variables import OPENS_NONE
from perfci.core.wording import say
from perfci.extensions.offline.backends import can_precompile
from perfci.extensions.offline.task import Precompile
from perfci.ops.backends import BACKENDS, backend_of, find_kernel
from perfci.runs.bench import Bench
from perfci.runs.schedule import Precompiler
from perfci.runs.tasks import Tasks
from perfci.worker import forks
from perfci.worker.process import Running, working
from perfci.worker.protocol import Doing, Message, Noted, Prepared
from perfci.worker.tasks import Measure, Place, WorkerEnvironment
from perfci.worker.warm import begin_forks, list_nodes

PARTS = 2  # of an op's cases: a process each


@dataclass(frozen=True, eq=False)  # keys of a table, each another one
class _Part:
    """What one worker compiles."""

    op: str
    of_base: bool
    task: Precompile
    around: WorkerEnvironment


class Lanes(Precompiler):
    """Compiles one op after the other. An op's look waits until nothing of it is left to compile."""

    def __init__(self, bench: Bench, tasks: Tasks, board: Device) -> None:
        super().__init__(bench, tasks, board)
        self._waiting, self._under_way = list[_Part](), dict[_Part, Sequence[Running]]()
        self._at_once: Collection[str] = ()
        self._is_still = False
        self._crashed = set[str]()

    def begin(
        self, tasks: Sequence[Measure], ends: float | None, at_once: Collection[str], *, with_base: bool
    ) -> list[Iterator[Sequence[Running]]]:
        if (target := Precompile.find_target(self._board)) is None:
            return []
        self._at_once, lanes = at_once, count_cores()
        for task in tasks:
            places = [(task.place, self._tasks.around(task))]
            if with_base and task.base:
                places.append((self._tasks.on_base(task).place, self._tasks.around(task, of_base=True)))
            places = [(place, _open_none(place, around)) for place, around in places if _is_kept(place)]
            # The first one is waited for: nothing is timed before it is compiled. Compilers beside Triton take longer.
            behind = task is not tasks[0]
            is_fast = behind and all(BACKENDS[_find_backend(place)].uses_triton for place, _ in places)
            # The base's are compiled already, unless the branch has moved: then every core is free for head's.
            sharing = 1 if task.op in at_once else max(len(places), 1)
            count = PARTS if is_fast else max(lanes // sharing, PARTS)
            for index, (place, around) in itertools.product(range(count), places):
                of_base = place is not task.place
                ahead = Precompile(
                    place=place, board=self._board, target=target, part=(index, count), of_base=of_base,
                    behind=behind, suites=task.suites, pattern=task.pattern, cases=task.cases,
                )  # fmt: skip
                self._waiting.append(_Part(task.op, of_base, ahead, around))
        # A control has few kernels, but they may be slow to compile, and the change's look is short.
        self._waiting.sort(key=lambda part: Suite.ACCURACY in part.task.suites)
        return [self._compile(ends) for _ in range(min(lanes, len(self._waiting)))]

    def wait(self, ops: Sequence[str]) -> Generator[Sequence[Running], None, str]:
        if (op := self.find_compiled(ops)) is None:
            self._bench.listener(Doing("static", say("{count:op|ops}", count=len(ops)) if ops[1:] else ops[0]))
            with self._bench.timing("compile"):
                while (op := self.find_compiled(ops)) is None:
                    yield ()
        return op

    def drop(self, *ops: str) -> None:
        self._waiting = [part for part in self._waiting if part.op not in ops]
        self._under_way = {part: workers for part, workers in self._under_way.items() if part.op not in ops}

    def stand_still(self, *, still: bool) -> None:
        if still == self._is_still:
            return
        self._is_still = still
        for worker in (worker for workers in self._under_way.values() for worker in workers):
            worker.stand_still(still=still)

    def find_compiled(self, ops: Sequence[str]) -> str | None:
        left = [part for part in (*self._waiting, *self._under_way) if part.op not in self._at_once]
        if not all(part.task.behind for part in left):
            return None
        return next((op for op in ops if all(part.op != op for part in left)), None)

    def _compile(self, ends: float | None) -> Iterator[Sequence[Running]]:
        while self._waiting:
            if self._is_still:
                yield ()
            elif ends is not None and time.time() >= ends:
                self._waiting = []
            elif part := next((part for part in self._waiting if forks.is_ready(part.around.environment)), None):
                self._waiting.remove(part)
                self._under_way[part] = ()
                try:
                    yield from self._compile_part(part, ends)
                finally:
                    self._under_way.pop(part, None)
            else:  # looks do not wait for a process that is still importing
                yield ()

    def _compile_part(self, part: _Part, ends: float | None) -> Iterator[Sequence[Running]]:
        def hear(message: Message) -> None:
            if isinstance(message, Prepared) and not part.of_base and message.case.compile_s:
                self.seconds[part.op, message.case.case] = message.case.compile_s

        # What it prints is not kept. Why it fails is found out by the op's process, unless it crashed.
        name = f"ahead-{part.op}-{'base' if part.of_base else 'head'}-{part.task.part[0]}.log"
        log, hidden = self._bench.folder / name, (*part.around.hidden, *list_nodes())
        around = dataclasses.replace(part.around, until_s=ends, log=log, hidden=hidden)
        with contextlib.closing(working(part.task, around, hear)) as compiling:
            while (workers := next(compiling, None)) is not None:
                if part not in self._under_way:
                    return
                self._under_way[part] = workers
                yield workers
        self._tell_crash(part)

    def _tell_crash(self, part: _Part) -> None:
        """Say once for each op that a process which compiled ahead crashed. The op's process may do all of it alone."""
        failures = [worker.failure for worker in self._under_way.get(part, ())]
        crash = next((why for why in failures if why and why.kind in {"worker_died", "worker_killed"}), None)
        if crash and part.op not in self._crashed:
            self._crashed.add(part.op)
            facts = {"op": part.op, "signal": crash.facts["signal"], "words": crash.facts["words"]}
            self._bench.listener(Noted(Reason("ahead_crashed", facts)))


def _is_kept(place: Place) -> bool:
    """Whether a worker can compile an op's kernels for others."""
    return can_precompile(_find_backend(place))


def _open_none(place: Place, around: WorkerEnvironment) -> WorkerEnvironment:
    """What a worker that compiles runs in. Kernels of Triton compile where the op's process runs.

    Other compilers ask the driver's library, which such a process has loaded. So their workers have another start.
    """
    if BACKENDS[_find_backend(place)].uses_triton:
        return around
    variables = {**around.environment, **OPENS_NONE}
    if around.python == sys.executable:
        begin_forks("offline", variables, around.folder)
    return dataclasses.replace(around, environment=variables)


def _find_backend(place: Place) -> str:
    (files,) = place.ops
    return backend_of(find_kernel(files.name, files.folder))
