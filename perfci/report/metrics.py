"""A few numbers as OpenMetrics text, for the metrics that GitLab shows beside a merge request.

GitLab compares the file of a merge request with the target branch's, text with text, and shows every line that differs.
Five hundred kernel times that were measured twice would be five hundred changed lines, so a number stands here only if
it moves for a reason:

    perfci_verdicts            how many verdicts of each kind that fails, warns or was agreed on; not of the fine ones,
                               which turn from PASS to UNCHANGED and back with what a change touches
    perfci_planned_cases       cases by suite
    perfci_speedup_ratio       geometric mean of an op over all its cases. A case counts with what the stored baseline
                               says, which is the same on both branches, and with what was measured only where the
                               verdict says that it moved. Ops with a case that has no baseline, or no sound time, have
                               none
    perfci_kernel_microseconds
    perfci_change_ratio        of cases that moved; they are listed as new beside the target branch
    perfci_error_max           largest absolute error of accuracy cases that are wrong

`every=True` gives all kernel times, speedups, changes and errors, and each peer's time / kernel time as
perfci_peer_ratio, for a reader that keeps series. Names and labels stay as they are; a label's value has no `#`, at
which GitLab cuts a line.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from perfci.core import units
from perfci.core.model import Baseline, Judgement, Judgements, PlannedOp, Run, Suite, Verdict
from perfci.report import rows
from perfci.report.ceilings import unsound
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

Labels = tuple[tuple[str, str], ...]


@dataclass
class _Family:
    """A metric with its samples; a label set comes once."""

    name: str
    help: str
    unit: str = ""
    samples: dict[Labels, str] = field(default_factory=dict)

    def add(self, value: float | None, **labels: str) -> None:
        """A number that is not known, or none, is left out."""
        if value is not None and math.isfinite(value):
            self.samples.setdefault(tuple(labels.items()), _number(value))


def write(
    run: Run,
    judgements: Judgements,
    folder: Path,
    baselines: Mapping[str, Baseline] | None = None,
    *,
    every: bool = False,
) -> Path:
    """Write `metrics.txt` into the folder; its path. `baselines`: op -> what is stored for it.

    Raises StoredFileError where the file cannot be written.
    """
    return write_atomically(folder / FILE, text(run, judgements, baselines, every=every).encode())


def text(
    run: Run, judgements: Judgements, baselines: Mapping[str, Baseline] | None = None, *, every: bool = False
) -> str:
    """The file's text."""
    families = [
        _verdicts(judgements),
        _cases(run),
        _speedups(run, judgements, baselines or {}),
        *_times(run, judgements.rows, every=every),
        _errors(run, judgements.rows, every=every),
        _peers(run, judgements.rows, every=every),
    ]
    return "".join(line + "\n" for family in families for line in _lines(family)) + "# EOF\n"


def _verdicts(judgements: Judgements) -> _Family:
    family = _Family("perfci_verdicts", "Verdicts of a kind, by verdict.")
    found = rows.count_verdicts(rows.make_rows(judgements))
    for verdict in COUNTED:
        family.add(found[verdict], verdict=str(verdict))
    return family


def _cases(run: Run) -> _Family:
    family = _Family("perfci_planned_cases", "Cases of all ops, by suite.")
    family.add(sum(len(op.accuracy) for op in run.plan.ops), suite=str(Suite.ACCURACY))
    family.add(run.plan.family, suite=str(Suite.PERFORMANCE))
    return family


# --- speedups that stand still unless a verdict moves -----------------------------------------------------------------


def _speedups(run: Run, judgements: Judgements, baselines: Mapping[str, Baseline]) -> _Family:
    family = _Family("perfci_speedup_ratio", "Reference time / kernel time, geometric mean of an op's cases.", "ratio")
    device, timer = run.environment.device.key, run.environment.timer
    bad = {op for op, _ in unsound(judgements.rows)}
    judged = {(row.op, row.case): row for row in judgements.rows if row.suite is Suite.PERFORMANCE}
    for op in run.plan.ops:
        stored = baselines.get(op.op)
        fits = stored is not None and (stored.device, stored.timer) == (device, timer or stored.timer)
        if stored and fits and op.op not in bad and run.plan.filter is None:
            family.add(_mean(op, _stored(stored), judged), op=op.op, device=device)
    return family


def _stored(baseline: Baseline) -> dict[str, float]:
    """Speedup of each case as stored: the median over its blocks."""
    known = ((case.case, [block.reference_us / block.kernel_us for block in case.blocks]) for case in baseline.cases)
    return {case: statistics.median(ratios) for case, ratios in known if ratios}


def _mean(
    op: PlannedOp, stored: Mapping[str, float], judged: Mapping[tuple[str, str | None], Judgement]
) -> float | None:
    found = [_speedup(judged.get((op.op, case)), stored.get(case)) for case in op.performance]
    known = [one for one in found if one is not None and one > 0]
    return math.exp(statistics.fmean(map(math.log, known))) if known and len(known) == len(found) else None


def _speedup(row: Judgement | None, stored: float | None) -> float | None:
    measured = row.comparison.speedup if row and row.comparison else None
    return measured.value if row and measured and row.verdict in MOVED else stored


# --- cases ------------------------------------------------------------------------------------------------------------


def _times(run: Run, judged: Iterable[Judgement], *, every: bool) -> Iterator[_Family]:
    kernel = _Family("perfci_kernel_microseconds", "Median time of the kernel.", "microseconds")
    change = _Family("perfci_change_ratio", "Time against the base, else the baseline, ratio - 1.", "ratio")
    speedup = _Family("perfci_case_speedup_ratio", "Reference time / kernel time of a case.", "ratio")
    device = run.environment.device.key
    for row in judged:
        if row.case is None or row.comparison is None or row.suite is not Suite.PERFORMANCE:
            continue
        if every or row.verdict in MOVED:
            found, labels = rows.find_change(row), {"op": row.op, "case": row.case, "device": device}
            kernel.add(row.comparison.kernel_us, **labels)
            change.add(round(found.value, 3) + 0.0 if found else None, **labels)  # no -0
        if every and row.comparison.speedup:
            speedup.add(row.comparison.speedup.value, op=row.op, case=row.case, device=device)
    yield from (kernel, change, speedup)


def _errors(run: Run, judged: Iterable[Judgement], *, every: bool) -> _Family:
    family = _Family("perfci_error_max", "Largest absolute error of an accuracy case.")
    wrong = {(row.op, row.case) for row in judged if row.verdict is Verdict.WRONG and row.suite is Suite.ACCURACY}
    worst: dict[tuple[str, str], float] = {}
    for op in run.ops:
        for check in op.accuracy:
            error = check.errors.max_abs if check.errors else None
            if error is not None and (every or (op.op, check.case) in wrong):
                worst[op.op, check.case] = max(error, worst.get((op.op, check.case), 0.0))
    for (name, case), error in worst.items():
        family.add(error, op=name, case=case, device=run.environment.device.key)
    return family


def _peers(run: Run, judged: Iterable[Judgement], *, every: bool) -> _Family:
    family = _Family("perfci_peer_ratio", "Time of another implementation / kernel time of a case.", "ratio")
    for row in judged if every else ():
        for peer in row.comparison.peers if row.comparison and row.case is not None else ():
            ratio = peer.ratio.value if peer.ratio else None
            family.add(ratio, op=row.op, case=row.case or "", peer=peer.name, device=run.environment.device.key)
    return family


# --- the format -------------------------------------------------------------------------------------------------------


def _lines(family: _Family) -> Iterator[str]:
    """Nothing of a metric without samples."""
    if not family.samples:
        return
    yield f"# TYPE {family.name} gauge"
    if family.unit:
        yield f"# UNIT {family.name} {family.unit}"
    yield f"# HELP {family.name} {family.help}"
    written = {_labels(labels): value for labels, value in reversed(family.samples.items())}
    yield from (f"{family.name}{labels} {value}" for labels, value in sorted(written.items()))


def _labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    r"""A label's value as OpenMetrics and a shell read it alike, in quotes.

    >>> print(_escaped('rows=1 "x" \\ #2'))
    rows=1 \"x\" \\ %232
    """
    shown = plain(value, LABEL_LIMIT).replace("#", "%23")
    return shown.replace("\\", "\\\\").replace('"', '\\"')


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else units.significant(value)
