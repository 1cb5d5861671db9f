"""Coverage: what accuracy exercises of what performance times, by a worker an op, several at a time."""

import os
from collections.abc import Iterator, Sequence

from perfci.core.model import Coverage, Reason
from perfci.extensions.common.targets import TARGETS
from perfci.extensions.static.gaps import Covered, Exercised, conclude
from perfci.extensions.static.tasks import Cover
from perfci.ops.discover import OpFolder
from perfci.runs.bench import Bench, WorkerPlace, list_files, make_environment, place_ops
from perfci.runs.describe import find_violation
from perfci.worker.process import Running, side_by_side, working
from perfci.worker.protocol import Message


def cover_ops(bench: Bench, ops: Sequence[OpFolder], *, propose: bool = False) -> tuple[Coverage, ...]:
    """Look through the launches of every case, as on the first target of the settings.

    propose: find cases to add too, which takes most of the time.
    """
    target = next((name for name in bench.settings.targets if name in TARGETS), "sm_90")
    waiting, coverage = list(ops), dict[str, Coverage]()

    def look() -> Iterator[Sequence[Running]]:
        while waiting:
            op = waiting.pop(0)
            if broken := find_violation(op):
                coverage[op.op] = Coverage(op.op, target, failure=broken)
                continue

            said = list[Exercised]()

            def hear(message: Message, said: list[Exercised] = said) -> None:
                if isinstance(message, Exercised):
                    said.append(message)
                elif isinstance(message, Covered):
                    coverage[message.op] = conclude(said, message)
                bench.listener(message)

            task = Cover(place=place_ops(bench.settings, list_files([op])), target=target, propose=propose)
            # Its kernels are interpreted, whatever device there is.
            around = make_environment(bench, WorkerPlace(f"coverage-{op.op}", "cpu", bench.settings.root))
            failure = yield from working(task, around, hear)
            coverage.setdefault(op.op, Coverage(op.op, target, failure=failure or Reason("worker_silent")))

    side_by_side([look() for _ in range(min(len(waiting), os.cpu_count() or 1))])
    return tuple(coverage[op.op] for op in ops)
