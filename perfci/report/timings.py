"""Where the seconds of a run went: its own steps, and those of each op's workers."""

from __future__ import annotations

from collections.abc import Iterator

from perfci.core.model import Run
from perfci.core.wording import say
from perfci.report.text import plain
from perfci.report.view import Table, make_table
from perfci.report.words import write_seconds

STEPS = ("start", "accuracy", "prepare", "measure", "later")  # of an op's workers
HEADINGS = "step or op | in all: | start and import: | accuracy: | prepare: | measure: | later looks:"


def tabulate_seconds(run: Run, report_s: float | None = None) -> Table:
    """Returns a row for each step of the run and each op, in their order. report_s: of the report, if it is known."""
    before = {"base": say("finding the base"), "describe": say("describing the ops")}
    before |= {"describe base": say("describing the base")}
    after = {"compile": say("compiling without a device"), "judge": say("judging"), "report": say("report")}
    known = {**run.spent_s, "report": report_s} if report_s is not None else run.spent_s

    def list_steps(names: dict[str, str]) -> Iterator[tuple[str, ...]]:
        for step, name in names.items():
            if known.get(step):
                yield name, write_seconds(known[step]), *("-" for _ in STEPS)

    ops = (
        (
            plain(op.op),
            write_seconds(sum(op.spent_s.values())),
            *(write_seconds(op.spent_s.get(step)) for step in STEPS),
        )
        for op in run.ops
        if op.spent_s
    )
    return make_table(HEADINGS, (*list_steps(before), *ops, *list_steps(after)))
