"""perfci tried on itself: the project's ops against themselves, a planted slow-down, a planted wrong kernel."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfci.core.errors import DeviceError
from perfci.core.model import Base, DuelWhat, Judgement, Judgements, OpRun, Run, Suite, Verdict
from perfci.core.settings import Settings
from perfci.runs.base import FOLDER, BaseTree, moved
from perfci.runs.bench import Bench
from perfci.runs.effective_thresholds import limits_of
from perfci.runs.plan import Request
from perfci.runs.record import Plant
from perfci.statistics import duel_rule, power
from perfci.thresholds.limits import Thresholds

TRIALS = ("unchanged", "slower", "wrong")

SLOWDOWN = 2.0
"""Times tau: what perfci promises to see."""

DUEL = "kernel/base"

LEFT_OUT = (".git", ".venv", "venv", "node_modules", "__pycache__", "*.pyc")

SLOWER, FASTER = "duel_slower", "duel_faster"
"""Kinds of reasons by which a case is called slower or faster beyond doubt."""

BROKEN = frozenset({Verdict.ERROR, Verdict.WRONG})
"""Verdicts of what could not be tried."""


@dataclass(frozen=True)
class Trial:
    """One of the three tries."""

    name: str
    """unchanged, slower or wrong"""
    checked: int
    """cases"""
    seen: int
    """alarms, planted slow-downs found, or wrong ops found"""
    wanted: int
    """how many there should be"""
    missed: tuple[str, ...] = ()
    """what did not come out as it should, by name"""

    @property
    def passed(self) -> bool:
        """Whether it came out as it should."""
        return not self.missed and self.seen == self.wanted and self.checked > 0


@dataclass(frozen=True)
class CaseNoise:
    """A case's line in the noise table."""

    op: str
    case: str
    base_us: float
    tau: float
    noise: power.Noise


@dataclass(frozen=True)
class SelfTest:
    """What the three tries showed."""

    trials: tuple[Trial, ...]
    noise: tuple[CaseNoise, ...]
    device: str

    @property
    def passed(self) -> bool:
        """Whether all came out as they should."""
        return all(trial.passed for trial in self.trials)


def itself(bench: Bench) -> BaseTree:
    """The work tree copied, as its own base."""
    settings = bench.settings
    target = bench.folder / FOLDER
    ours = {settings.reports.parent, settings.reports.parent.parent, bench.folder}
    by_name = shutil.ignore_patterns(*LEFT_OUT)

    def left_out(folder: str, names: list[str]) -> set[str]:
        return {*by_name(folder, names), *(name for name in names if Path(folder, name) in ours)}

    shutil.copytree(settings.root, target, symlinks=True, ignore=left_out, copy_function=_linked)
    base = Base("the work tree", "asked", "itself")
    return BaseTree(base, moved(settings, target))


def asked(name: str, request: Request, ops: Sequence[str]) -> tuple[Request, Plant]:
    """What one of the three runs asks for, and what is planted. The planted ones take one op, the first."""
    timed = dataclasses.replace(request, suites=(Suite.PERFORMANCE,), duel=DuelWhat.ALL, against=None)
    one = dataclasses.replace(timed, ops=tuple(ops[:1]))
    if name == "unchanged":
        return timed, Plant()
    if name == "slower":
        return one, Plant(slowdown=SLOWDOWN)
    return dataclasses.replace(one, suites=(Suite.ACCURACY,), duel=DuelWhat.NONE), Plant(spoiled=True)


def timed_first(ops: Sequence[str], judgements: Judgements) -> list[str]:
    """The ops, those first that could be timed: in a broken one nothing can be planted."""
    timed = {row.op for row in judgements.rows if row.comparison and row.comparison.duel}
    return sorted(ops, key=lambda op: op not in timed)


def trial(name: str, judgements: Judgements) -> Trial:
    """What a run shows. Raises DeviceError where nothing could be timed."""
    if name == "wrong":
        rows = [row for row in judgements.rows if row.suite is Suite.ACCURACY and row.case is None]
        missed = tuple(row.op for row in rows if row.verdict is not Verdict.WRONG)
        return Trial(name, len(rows), len(rows) - len(missed), len(rows), missed)
    rows = [row for row in judgements.rows if row.suite is Suite.PERFORMANCE]
    timed = [row for row in rows if row.comparison and row.comparison.duel]
    broken = tuple(_named(row) for row in judgements.rows if row.verdict in BROKEN)
    if not timed and not broken:
        raise DeviceError("selftest_not_timed")
    if name == "unchanged":
        alarms = tuple(_named(row) for row in timed if _says(row, SLOWER) or _says(row, FASTER))
        return Trial(name, len(timed), len(alarms), 0, (*alarms, *broken))
    missed = tuple(_named(row) for row in timed if not _says(row, SLOWER))
    return Trial(name, len(timed), len(timed) - len(missed), len(timed), (*missed, *broken))


def _says(row: Judgement, kind: str) -> bool:
    return any(reason.kind == kind for reason in row.reasons)


def noise_table(run: Run, judgements: Judgements, settings: Settings) -> tuple[CaseNoise, ...]:
    """Every duelled case with the spread of its blocks and the smallest slow-down that would have been seen."""
    limits = limits_of(run, settings)
    rows = {(row.op, row.case): row for row in judgements.rows}
    return tuple(line for op in run.ops for line in _noise_of(op, rows, run, limits))


def _noise_of(
    op: OpRun, rows: dict[tuple[str, str | None], Judgement], run: Run, limits: Thresholds
) -> Iterator[CaseNoise]:
    for case in op.performance:
        row = rows.get((op.op, case.case))
        shifts = [block.shifts[DUEL] for block in case.blocks if DUEL in block.shifts]
        base_us = row.comparison.base_us if row and row.comparison else None
        if base_us is None or len(shifts) < duel_rule.FIRST:
            continue
        tau = limits.for_case(op.op, case.case).allowed(base_us, run.environment.timer)
        yield CaseNoise(op.op, case.case, base_us, tau, power.noise(shifts, tau, limits.alpha, run.plan.duel_family))


def _named(row: Judgement) -> str:
    return f"{row.op} {row.case}" if row.case else row.op


def _linked(source: str, target: str) -> str:
    """A second name for the file where that is possible, since data beside kernels may be large."""
    try:
        os.link(source, target)
    except OSError:
        return str(shutil.copy2(source, target))
    return target


def reports_of(settings: Settings, name: str) -> Settings:
    """Each try leaves its run in a folder of its own: reports/selftest/<name>."""
    folder: Path = settings.reports / "selftest" / name
    return dataclasses.replace(settings, reports=folder)
