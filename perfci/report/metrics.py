"""A few numbers as OpenMetrics text, for the metrics that GitLab shows beside a merge request.

GitLab compares the file of a merge request with the target branch's, text with text, and shows every line that differs.
Five hundred kernel times that were measured twice would be five hundred changed lines, so a number stands here only if
it moves for a reason:

    perfci_verdicts            how many verdicts of each kind that fails, warns or was agreed on, but not of fine ones,
                               which turn from PASS to UNCHANGED and back with what a change touches
    perfci_planned_cases       cases by suite
    perfci_speedup_ratio       geometric mean of an op over all its cases. A case counts with the stored baseline's
                               speedup, which is the same on both branches, and with what was measured only if its
                               verdict is that it moved. Ops with a case that has no baseline, or no sound time, have
                               none
    perfci_kernel_microseconds
    perfci_change_ratio        of cases that moved. They are listed as new beside the target branch
    perfci_error_max           largest absolute error of accuracy cases that are wrong

Names and labels stay as they are. A label's value has no `#`, at which GitLab cuts a line.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from perfci.core import units
from perfci.core.model import Baseline, Judgements, Run, Suite, Verdict
from perfci.report import rows
from perfci.report.ceilings import find_unsound
from perfci.report.text import plain
from perfci.store.files import write_atomically

FILE = "metrics.txt"

COUNTED = tuple(
    verdict for verdict in Verdict if verdict not in {Verdict.PASS, Verdict.UNCHANGED, Verdict.IMPROVED, Verdict.NEW}
)
"""Verdicts that are counted, each in every file, so that a count changes and never comes or goes."""

MOVED = frozenset({Verdict.REGRESSED, Verdict.IMPROVED, Verdict.EXPECTED, Verdict.TOO_SLOW, Verdict.DRIFTED})
"""Verdicts by which a time is another than the baseline's."""

LABEL_LIMIT = 400
"""Characters of a label's value."""


@dataclass
class Metric:
    """A metric with its samples. A label set occurs once."""

    name: str
    help: str
    unit: str = ""
    samples: dict[str, str] = field(default_factory=dict)

    def add(self, value: float | None, **labels: str) -> None:
        """A number that is not known, or none, is left out."""
        if value is not None and math.isfinite(value):
            written = "{" + ",".join(f'{name}="{_escape(text)}"' for name, text in labels.items()) + "}"
            self.samples.setdefault(written, str(value) if isinstance(value, int) else units.significant(value))

    def write(self) -> Iterator[str]:
        """Its lines, none if it has no sample."""
        if not self.samples:
            return
        yield f"# TYPE {self.name} gauge"
        if self.unit:
            yield f"# UNIT {self.name} {self.unit}"
        yield f"# HELP {self.name} {self.help}"
        yield from (f"{self.name}{labels} {value}" for labels, value in sorted(self.samples.items()))


def _escape(value: str) -> str:
    r"""A label's value as OpenMetrics and a shell read it alike, in quotes.

    >>> print(_escape('rows=1 "x" \\ #2'))
    rows=1 \"x\" \\ %232
    """
    shown = plain(value, LABEL_LIMIT).replace("#", "%23")
    return shown.replace("\\", "\\\\").replace('"', '\\"')


def write(run: Run, judgements: Judgements, folder: Path, baselines: Mapping[str, Baseline] | None = None) -> Path:
    """Write `metrics.txt` into the folder and return its path. `baselines`: op -> what is stored for it.

    Raises StoredFileError if the file cannot be written.
    """
    return write_atomically(folder / FILE, make_text(run, judgements, baselines).encode())


def make_text(run: Run, judgements: Judgements, baselines: Mapping[str, Baseline] | None = None) -> str:
    """The file's text."""
    metrics = (
        _count_verdicts(judgements),
        _count_cases(run),
        _average_speedups(run, judgements, baselines or {}),
        *_find_moved(run, judgements),
        _find_errors(run, judgements),
    )
    return "".join(line + "\n" for metric in metrics for line in metric.write()) + "# EOF\n"


def _count_verdicts(judgements: Judgements) -> Metric:
    metric = Metric("perfci_verdicts", "Verdicts of a kind, by verdict.")
    found = rows.count_verdicts(rows.make_rows(judgements))
    for verdict in COUNTED:
        metric.add(found[verdict], verdict=str(verdict))
    return metric


def _count_cases(run: Run) -> Metric:
    metric = Metric("perfci_planned_cases", "Cases of all ops, by suite.")
    metric.add(sum(len(op.accuracy) for op in run.plan.ops), suite=str(Suite.ACCURACY))
    metric.add(run.plan.family, suite=str(Suite.PERFORMANCE))
    return metric


def _average_speedups(run: Run, judgements: Judgements, baselines: Mapping[str, Baseline]) -> Metric:
    """Stored speedups, the median over each case's blocks, or the measured one of a case that moved."""
    metric = Metric("perfci_speedup_ratio", "Reference time / kernel time, geometric mean of an op's cases.", "ratio")
    device, timer = run.environment.device.key, run.environment.timer
    bad = {op for op, _ in find_unsound(judgements.rows)}
    moved = {
        (row.op, row.case): row.comparison.speedup.value
        for row in judgements.rows
        if row.suite is Suite.PERFORMANCE and row.verdict in MOVED and row.comparison and row.comparison.speedup
    }
    for op in run.plan.ops:
        stored = baselines.get(op.op)
        if stored is None or op.op in bad or run.plan.filter is not None:
            continue
        if (stored.device, stored.timer) != (device, timer or stored.timer):
            continue
        blocks = {case.case: case.blocks for case in stored.cases if case.blocks}
        speedups = {
            case: statistics.median([block.reference_us / block.kernel_us for block in found])
            for case, found in blocks.items()
        }
        found = [moved.get((op.op, case), speedups.get(case)) for case in op.performance]
        known = [one for one in found if one is not None and one > 0]
        if known and len(known) == len(found):
            metric.add(math.exp(statistics.fmean(map(math.log, known))), op=op.op, device=device)
    return metric


def _find_moved(run: Run, judgements: Judgements) -> tuple[Metric, Metric]:
    kernel = Metric("perfci_kernel_microseconds", "Median time of the kernel.", "microseconds")
    change = Metric("perfci_change_ratio", "Time against the base, else the baseline, ratio - 1.", "ratio")
    for row in judgements.rows:
        if row.case is not None and row.comparison and row.suite is Suite.PERFORMANCE and row.verdict in MOVED:
            found, labels = rows.find_change(row), {"op": row.op, "case": row.case}
            labels["device"] = run.environment.device.key
            kernel.add(row.comparison.kernel_us, **labels)
            change.add(round(found.value, 3) + 0.0 if found else None, **labels)  # no -0
    return kernel, change


def _find_errors(run: Run, judgements: Judgements) -> Metric:
    metric = Metric("perfci_error_max", "Largest absolute error of an accuracy case.")
    rows_of = (row for row in judgements.rows if row.suite is Suite.ACCURACY)
    wrong = {(row.op, row.case) for row in rows_of if row.verdict is Verdict.WRONG}
    worst: dict[tuple[str, str], float] = {}
    for op in run.ops:
        for check in op.accuracy:
            if (op.op, check.case) in wrong and check.errors and check.errors.max_abs is not None:
                worst[op.op, check.case] = max(check.errors.max_abs, worst.get((op.op, check.case), 0.0))
    for (name, case), error in worst.items():
        metric.add(error, op=name, case=case, device=run.environment.device.key)
    return metric
