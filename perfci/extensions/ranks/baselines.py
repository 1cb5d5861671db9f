"""Stored times of groups: `baselines/<device key>/ranks/<op>-x<ranks>.json`, and what has moved against them."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perfci import git
from perfci.core import environment
from perfci.core.errors import UsageError
from perfci.core.model import FORMAT, Device, Environment, Fact, Gate, Reason, Time, Verdict
from perfci.core.settings import Settings
from perfci.extensions.ranks.records import ALL, KERNEL, REFERENCE, RanksBlock
from perfci.extensions.ranks.series import times_of
from perfci.extensions.ranks.verdicts import Measured, TimedCase
from perfci.statistics import exact
from perfci.store.files import decode, encode, write_atomically
from perfci.thresholds.case import CaseThresholds

FOLDER = "ranks"  # in that of a device's baselines
FEWEST = 6  # blocks of a case, here and there, without which nothing is said


@dataclass(frozen=True)
class GroupCase:
    """One case: medians of its blocks, launches as long as their slowest rank."""

    case: str
    kernel_us: tuple[Time, ...]
    reference_us: tuple[Time, ...]  # of the same blocks


@dataclass(frozen=True)
class GroupBaseline:
    """Accepted times of an op in groups of one size."""

    op: str
    ranks: int
    environment: Environment
    cases: tuple[GroupCase, ...] = ()
    format: int = FORMAT


def find_path(baselines: Path, device: str, op: str, ranks: int) -> Path:
    """Returns the file of an op in groups of this size. device: key of the model."""
    return baselines / device / FOLDER / f"{op}-x{ranks}.json"


def read(baselines: Path, device: str, op: str, ranks: int) -> GroupBaseline | None:
    """Returns what is stored, if anything is. Raises StoredFileError."""
    path = find_path(baselines, device, op, ranks)
    return decode(path, GroupBaseline) if path.exists() else None


def sum_up(measured: Measured) -> GroupCase | None:
    """Returns a case's medians, of the blocks with kernel and reference. None if there are too few."""
    blocks = [block for block in measured.blocks if REFERENCE in block.times_us]
    if len(blocks) < FEWEST:
        return None
    kernel, reference = (tuple(_median(block, arm) for block in blocks) for arm in (KERNEL, REFERENCE))
    return GroupCase(measured.prepared.case, kernel, reference)


def _median(block: RanksBlock, arm: str) -> float:
    return round(statistics.median(times_of(block, arm, ALL)), 4)


def screen(
    op: str,
    judged: Sequence[TimedCase],
    measured: Sequence[Measured],
    stored: GroupBaseline | None,
    limits: Mapping[str, CaseThresholds],
    alpha: float,
) -> list[TimedCase]:
    """Cases that nothing else fails become DRIFTED if the kernel lost against its reference since it was accepted.

    An exact Mann-Whitney test over blocks of the kernel's time by its reference's, log scale, against the margin that
    is allowed (`margin`), Holm-adjusted over the cases.
    """
    before = {case.case: case for case in stored.cases} if stored else {}
    now = {case.case: case for one in measured if (case := sum_up(one))}
    both = [case for case in now if case in before]
    pairs = {case: exact.pairs(_ratios(now[case]), _ratios(before[case])) for case in both}
    margins = {case: math.log1p(limits.get(case, CaseThresholds()).margin) for case in both}
    p = exact.holm([pairs[case].p_above(margins[case]) for case in both], max(len(both), 1))
    moved = {case for case, chance in zip(both, p, strict=True) if chance <= alpha}
    screened = [replace(one, medians=_medians(now.get(one.case))) for one in judged]
    for at, one in enumerate(screened):
        if stored and one.case in moved and one.verdict.gate is Gate.OK:
            change = exact.to_ratio(pairs[one.case].shift())
            facts: dict[str, Fact] = {
                "op": op, "case": one.case, "change": change.value, "low": change.low, "high": change.high,
                "margin": math.expm1(margins[one.case]), "commit": (stored.environment.commit or "?")[:10],
            }  # fmt: skip
            reasons = (Reason("ranks_drifted", facts), *one.reasons)
            screened[at] = replace(one, verdict=Verdict.DRIFTED, reasons=reasons)
    return screened


def _medians(case: GroupCase | None) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    return (case.kernel_us, case.reference_us) if case else None


def _ratios(case: GroupCase) -> list[float]:
    return [math.log(ours / theirs) for ours, theirs in zip(case.kernel_us, case.reference_us, strict=True)]


def accept(where: Settings, device: Device, op: str, ranks: int, judged: Sequence[TimedCase]) -> Path:
    """Write the times of a run as a baseline. Raises UsageError for a case that fails or warns, or has too few blocks.

    The project's files have to be committed: a baseline names the commit that it is of.
    """
    here = git.read(where.root)
    if not isinstance(here, git.Revision) or here.commit is None or here.dirty:
        raise UsageError("ranks_uncommitted", folder=str(where.root))
    unfit = next((case.case for case in judged if case.verdict.gate is not Gate.OK or case.medians is None), None)
    if unfit is not None or not judged:
        raise UsageError("ranks_unfit", op=op, case=unfit or "-")
    stored = GroupBaseline(
        op, ranks, environment.describe(device, "event", commit=here.commit),
        tuple(GroupCase(case.case, *case.medians) for case in judged if case.medians),
    )  # fmt: skip
    path = find_path(where.baselines, device.key, op, ranks)
    return write_atomically(path, encode(stored, path))
