"""Where the seconds of a run went: its steps, and those of each op's workers."""

from collections.abc import Mapping

from perfci.core.model import Run
from perfci.core.wording import say
from perfci.report.text import plain
from perfci.report.view import Table, make_table
from perfci.report.words import write_seconds

STEPS = ("start", "accuracy", "prepare", "measure", "later")  # of an op's workers
HEADINGS = "step or op | in all: | start and import: | accuracy: | prepare: | measure: | later looks:"


def tabulate_seconds(run: Run, report_s: float = 0.0) -> Table:
    """Returns a row for each step of the run and each op, in their order. report_s: of the report, if it is known."""
    before = {
        "base": say("finding the base"),
        "describe": say("describing the ops"),
        "compile": say("compiling, nothing beside it"),
    }
    after = {"judge": say("judging"), "report": say("report")}
    spent = {**run.spent_s, "report": report_s}
    rows: list[tuple[str, Mapping[str, float]]] = [(name, {"": spent.get(step, 0.0)}) for step, name in before.items()]
    rows += [(plain(op.op), op.spent_s) for op in run.ops]
    rows += [(name, {"": spent.get(step, 0.0)}) for step, name in after.items()]
    cells = ((name, sum(parts.values()), [write_seconds(parts.get(step)) for step in STEPS]) for name, parts in rows)
    return make_table(HEADINGS, ((name, write_seconds(seconds), *steps) for name, seconds, steps in cells if seconds))
