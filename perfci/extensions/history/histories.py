"""Accepted runs of a run's ops before it, for its report."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfci.core.errors import StoredFileError
from perfci.core.model import UNTIMED, OpRun, PlannedOp, Run
from perfci.core.settings import Settings
from perfci.extensions.common.history import read_history, with_names_of_now
from perfci.extensions.history.past import Past, make_past, make_section
from perfci.report.view import Picture, Section

FEWEST_RUNS = 3  # accepted runs below which no history is drawn


def read_histories(run: Run, rules: Settings) -> Mapping[str, Past]:
    """Returns a run's histories by op, of a damaged one only the reason. rules: the project of the baselines."""
    planned = {op.op: op for op in run.plan.ops}
    timed = [op for op in run.ops if op.performance] if run.plan.device not in UNTIMED else []
    made = {op.op: _read_past(op, planned.get(op.op, PlannedOp(op.op)), run, rules) for op in timed}
    return {op: past for op, past in made.items() if past is not None}


def _read_past(op: OpRun, planned: PlannedOp, run: Run, rules: Settings) -> Past | None:
    """A history under the present names, or why it is not to be relied on."""
    device = run.environment.device.key
    try:
        history = read_history(rules.baselines, device, op.op, formerly=planned.renamed_from)
        damage = next(iter(history.problems), None)
    except StoredFileError as error:
        damage = error.reason
    if damage is not None:
        return Past(damage=damage.seen_from(rules.root))
    runs = with_names_of_now(history.runs, planned.renamed)
    past = next((place for place, earlier in enumerate(runs) if earlier.run == run.id), None)
    wanted = {case.case for case in op.performance}
    return make_past(runs[:past], wanted, accepted=past is not None) if runs[:past] else None


@dataclass(frozen=True)
class PastSections:
    """The History section of each op of a run."""

    run: Run
    histories: Mapping[str, Past]  # by op

    def section(self, op: OpRun, pictures: Sequence[Picture]) -> Section | None:
        """Make the section of an op. None if no history has any of its cases."""
        past = self.histories.get(op.op)
        return make_section(op, self.run, past, pictures) if past else None

    def draw(self, op: OpRun, painter: Any, name: str) -> Iterator[Picture]:
        """Draw the accepted runs of an op, if they are enough and undamaged."""
        past = self.histories.get(op.op)
        if op.op in painter.gravest and past and not past.damage and len(past.runs) >= FEWEST_RUNS:
            from perfci.extensions.history.charts import draw_history

            yield from draw_history(op, self.run, past, painter, name)


def read_sections(run: Run, _: Settings, rules: Settings) -> PastSections:
    """Returns the History sections of a run. rules: the project with histories that count."""
    return PastSections(run, read_histories(run, rules))
