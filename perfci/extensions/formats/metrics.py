"""A few numbers as OpenMetrics text, for the metrics that GitLab shows beside a merge request.

GitLab shows every line that differs from the target branch's. So a number stands here only if it moves for a reason: a
speedup is the stored baseline's, and a case's time is written if its verdict is that it moved.
"""

import math
import statistics
from collections.abc import Iterator, Mapping

from perfci.core import units
from perfci.core.model import Baseline, Gate, Judgement, Judgements, Run, Suite, Verdict
from perfci.report import FileFormat, rows
from perfci.report.ceilings import find_unsound
from perfci.report.text import plain

COUNTED = tuple(verdict for verdict in Verdict if verdict.gate is not Gate.OK or verdict is Verdict.EXPECTED)
"""Verdicts that are counted, each in every file, so that a count changes and never comes or goes."""

MOVED = frozenset({Verdict.REGRESSED, Verdict.IMPROVED, Verdict.EXPECTED, Verdict.TOO_SLOW, Verdict.DRIFTED})
"""Verdicts by which a time is another than the baseline's."""

LABEL_LIMIT = 400  # characters of a label's value

METRICS = {
    "perfci_verdicts": ("Verdicts of a kind, by verdict.", ""),
    "perfci_planned_cases": ("Cases of all ops, by suite.", ""),
    "perfci_speedup_ratio": ("Reference time / kernel time, geometric mean of an op's cases.", "ratio"),
    "perfci_kernel_microseconds": ("Median time of the kernel.", "microseconds"),
    "perfci_change_ratio": ("Time against the base, else the baseline, ratio - 1.", "ratio"),
    "perfci_error_max": ("Largest absolute error of an accuracy case.", ""),
}
"""Help and unit, in the order of the file."""


def make_text(run: Run, judgements: Judgements, baselines: Mapping[str, Baseline] | None = None) -> str:
    """The file's text. Numbers that are not known, or none, are left out, and so is a metric without any."""
    rows: dict[str, dict[str, str]] = {name: {} for name in METRICS}
    for name, labels, value in _list_samples(run, judgements, baselines or {}):
        if value is not None and math.isfinite(value):
            written = ",".join(f'{label}="{_escape(text)}"' for label, text in labels.items())
            rows[name].setdefault(written, str(value) if isinstance(value, int) else units.significant(value))
    lines = []
    for name, (about, unit) in METRICS.items():
        if rows[name]:
            lines += [f"# TYPE {name} gauge", *([f"# UNIT {name} {unit}"] if unit else []), f"# HELP {name} {about}"]
            lines += [f"{name}{{{labels}}} {value}" for labels, value in sorted(rows[name].items())]
    return "\n".join([*lines, "# EOF\n"])


def _list_samples(
    run: Run, judgements: Judgements, baselines: Mapping[str, Baseline]
) -> Iterator[tuple[str, dict[str, str], float | None]]:
    device = run.environment.device.key
    counts = rows.count_verdicts(rows.make_rows(judgements))
    for verdict in COUNTED:
        yield "perfci_verdicts", {"verdict": str(verdict)}, counts[verdict]
    yield "perfci_planned_cases", {"suite": str(Suite.ACCURACY)}, sum(len(op.accuracy) for op in run.plan.ops)
    yield "perfci_planned_cases", {"suite": str(Suite.PERFORMANCE)}, run.plan.family
    moved = {
        (row.op, row.case): row
        for row in judgements.rows
        if row.suite is Suite.PERFORMANCE and row.case is not None and row.comparison and row.verdict in MOVED
    }
    for op, mean in _average_speedups(run, judgements, moved, baselines):
        yield "perfci_speedup_ratio", {"op": op, "device": device}, mean
    for (op, case), row in moved.items():
        labels, change = {"op": op, "case": case, "device": device}, rows.find_change(row)
        yield "perfci_kernel_microseconds", labels, row.comparison.kernel_us if row.comparison else None
        yield "perfci_change_ratio", labels, round(change.value, 3) + 0.0 if change else None  # no -0
    wrong = {
        (row.op, row.case) for row in judgements.rows if row.suite is Suite.ACCURACY and row.verdict is Verdict.WRONG
    }
    worst: dict[tuple[str, str], float] = {}
    for ran in run.ops:
        for check in ran.accuracy:
            if (ran.op, check.case) in wrong and check.errors and check.errors.max_abs is not None:
                worst[ran.op, check.case] = max(check.errors.max_abs, worst.get((ran.op, check.case), 0.0))
    for (op, case), error in worst.items():
        yield "perfci_error_max", {"op": op, "case": case, "device": device}, error


def _escape(value: str) -> str:
    r"""A label's value as OpenMetrics and a shell read it alike, in quotes.

    >>> print(_escape('rows=1 "x" \\ #2'))
    rows=1 \"x\" \\ %232
    """
    shown = plain(value, LABEL_LIMIT).replace("#", "%23")  # at which GitLab cuts a line
    return shown.replace("\\", "\\\\").replace('"', '\\"')


def _average_speedups(
    run: Run, judgements: Judgements, moved: Mapping[tuple[str, str], Judgement], baselines: Mapping[str, Baseline]
) -> Iterator[tuple[str, float]]:
    """Stored speedups, the median over each case's blocks, or the measured one of a case that moved."""
    device, timer = run.environment.device.key, run.environment.timer
    bad = {op for op, _ in find_unsound(judgements.rows)}
    measured = {key: row.comparison.speedup for key, row in moved.items() if row.comparison}
    for op in run.plan.ops if run.plan.filter is None else ():
        stored = baselines.get(op.op)
        if stored is None or op.op in bad or (stored.device, stored.timer) != (device, timer or stored.timer):
            continue
        speedups = {
            case.case: statistics.median([block.reference_us / block.kernel_us for block in case.blocks])
            for case in stored.cases
            if case.blocks
        }
        speedups |= {case: speedup.value for case in op.performance if (speedup := measured.get((op.op, case)))}
        measured_speedups = [speedups.get(case, 0.0) for case in op.performance]
        if measured_speedups and min(measured_speedups) > 0:
            yield op.op, statistics.geometric_mean(measured_speedups)


def _write(run: Run, judgements: Judgements, baselines: Mapping[str, Baseline]) -> bytes:
    return make_text(run, judgements, baselines).encode()


OPENMETRICS = FileFormat("metrics", "metrics.txt", _write)
