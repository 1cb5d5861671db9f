"""Runs that become one: what each found out of an op, what must not differ, and their launches."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path

from perfci.core.environment import list_differences, unmixable
from perfci.core.errors import UsageError
from perfci.core.files import read_regular
from perfci.core.model import PlannedOp, Run, as_fact
from perfci.store.files import write_atomically
from perfci.store.launches import LAUNCHES_FILE, MOST, clear_launches, pack_rows, read_launches


def add_findings(planned: PlannedOp, runs: Sequence[Run]) -> PlannedOp:
    """Returns a planned op with what only its runs found out: it does not import, or needs a process per revision."""
    ran = [op for run in runs for op in run.plan.ops if op.op == planned.op]
    apart = next((op.base.apart for op in ran if op.base and op.base.apart), None)
    base = dataclasses.replace(planned.base, apart=apart) if planned.base and apart else planned.base
    failure = next((op.failure for op in ran if op.failure), None)
    return dataclasses.replace(planned, failure=planned.failure or failure, base=base)


def refuse_mixed(runs: Sequence[Run]) -> None:
    """Raise UsageError for runs with times that cannot be compared. Boards of one model may differ."""

    def refuse(run: Run, first: Run, what: str, value: str | None, other: str | None) -> None:
        if value != other:
            raise UsageError("merge_mixed", run=run.id, first=first.id, what=what, found=value, other=other)

    for run in runs[1:]:
        refuse(run, runs[0], as_fact("device"), run.environment.device.key, runs[0].environment.device.key)
    timed = [run for run in runs if run.environment.timer]
    for run in timed[1:]:
        apart = unmixable(timed[0].environment, run.environment)
        refuse(run, timed[0], as_fact("environment"), list_differences(apart) if apart else None, None)


def join_launches(folder: Path, parts: Iterable[Path]) -> None:
    """Write the launches of several folders as those of one, of a torn file what could be read."""
    members = []
    for part in parts:
        launches = read_launches(part)
        if launches.rows:
            members.append(pack_rows(launches.rows) if launches.note else read_regular(part / LAUNCHES_FILE, MOST))
    if members:
        write_atomically(folder / LAUNCHES_FILE, b"".join(members))
    else:
        clear_launches(folder)
