"""`perfci history --drift` and `--boards`: what histories say about kernels and about boards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType

from perfci.cli.exits import Exit, exit_code
from perfci.cli.output import STYLES, Grid, Paragraph, pick, print_json, print_parts, reason_data
from perfci.core import units
from perfci.core.errors import UsageError
from perfci.core.model import Fact, Gate, HistoryRun, Reason, board_key
from perfci.core.settings import Settings
from perfci.core.wording import say
from perfci.git.tags import Release
from perfci.ops.spec import matches
from perfci.report.view import make_table
from perfci.runs import drifts
from perfci.runs.drifts import CaseDrift, EnvironmentChange
from perfci.statistics import boards as known_boards
from perfci.statistics import changepoints
from perfci.statistics.boards import Board
from perfci.statistics.changepoints import ChangePoint
from perfci.statistics.drift import Creep
from perfci.store.history import History, history_devices, history_ops, read_history


def read_histories(where: Settings, ops: Sequence[str], device: str | None) -> list[History]:
    """The histories of these ops and this device. Raises UsageError for a device or an op that none has."""
    devices = history_devices(where.baselines)
    if device is not None:
        if device not in devices:
            raise UsageError("history_no_device", device=device, known=", ".join(devices) or "-")
        devices = [device]
    there = {each: history_ops(where.baselines, each) for each in devices}
    known = sorted({op for found in there.values() for op in found})
    for op in ops:
        if op not in known and devices:
            raise UsageError("history_no_op", op=op, known=", ".join(known))
    chosen = [(each, op) for each in devices for op in there[each] if not ops or op in ops]
    return [read_history(where.baselines, each, op) for each, op in chosen]


def separate(blocks: Sequence[Iterable[RenderableType]]) -> Iterator[RenderableType]:
    """Blocks with an empty line between two, or a sentence if there are none."""
    if not blocks:
        yield say("No run was accepted yet: perfci accept stores the first ones, and each run leaves a line.")
    for at, block in enumerate(blocks):
        if at:
            yield ""
        yield from block


def write_head(found: History) -> str:
    """Which history it is, and from when to when."""
    runs, facts = found.runs, dict[str, Fact](op=found.op, device=found.device)
    if not runs:
        return say("{op} on {device}: no accepted run", **facts)
    facts |= {"first": runs[0].created[:10], "last": runs[-1].created[:10]}
    if len(runs) == 1:
        return say("{op} on {device}: 1 accepted run, {last}", **facts)
    return say("{op} on {device}: {count:accepted run|accepted runs}, {first} to {last}", count=len(runs), **facts)


# --- drift ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Drift:
    """An op on a device."""

    history: History
    cases: tuple[CaseDrift, ...]
    releases: tuple[Release, ...]
    problems: tuple[Reason, ...]
    """what could not be read, and a release that it lacks"""
    surroundings: tuple[EnvironmentChange, ...]
    stored: tuple[tuple[Creep, str | None], ...] = ()
    """figures of what it stores in low precision that crept, and the release about which each anchor lies"""

    @property
    def found(self) -> bool:
        """Whether anything is to be done."""
        return bool(self.problems) or bool(self.stored) or any(case.found for case in self.cases)

    def stored_reasons(self) -> list[Reason]:
        """What is said of these figures."""
        return [
            drifts.describe_stored_creep(self.history.op, creep, self.history.runs, at) for creep, at in self.stored
        ]

    def reasons(self, case: CaseDrift) -> list[Reason]:
        """What is said of a case: creep first."""
        op, crept = self.history.op, case.creep if case.creep and case.creep.found else None
        first = [drifts.describe_creep(op, crept, self.history.runs, case.release)] if crept else []
        return [*first, *(changepoints.told_of(change, op) for change in case.changes)]


def show_drift(
    histories: Sequence[History],
    pattern: str | None,
    release: str | None,
    where: Settings,
    *,
    strict: bool,
    json: bool,
) -> int:
    """Print what crept and stepped; 3 if a kernel did and nothing explains it, 2 for that in strict mode."""
    every = [_find_drift(each, pattern, release, where) for each in histories]
    found = [one for one in every if one.cases or pattern is None or _stores(one, pattern)]
    if every and not found:
        raise UsageError("no_case_fits", pattern=pattern, ops=", ".join(one.history.op for one in every))
    if json:
        print_json([_to_json(one) for one in found])
    else:
        print_parts(separate([_show_drift(one) for one in found]))
    return exit_code(Gate.WARNS if any(one.found for one in found) else Gate.OK, strict=strict)


def _find_drift(found: History, pattern: str | None, release: str | None, where: Settings) -> _Drift:
    """Raises UsageError for a release that git does not know."""
    known = drifts.find_releases(found.runs, where, release)
    if isinstance(known, Reason):
        if release is not None:
            raise UsageError(known.kind, **known.facts)
        known = ()  # the first runs are the anchor where git tells nothing
    lacking = [
        Reason("drift_release_unknown", {"op": found.op, "device": found.device, "release": each.name})
        for each in known
        if not each.holds
    ]
    cases = drifts.find_drifts(found, [each for each in known if each.holds], pattern)
    around = tuple(drifts.list_environment_changes(found, drifts.read_steps(where.baselines, found)))
    stored = drifts.find_stored_drifts(found.runs, [each for each in known if each.holds], pattern)
    return _Drift(found, cases, known, (*found.problems, *lacking), around, stored)


def _stores(one: _Drift, pattern: str) -> bool:
    """Whether the newest run stores a tensor in low precision that fits the pattern."""
    return any(matches(each.case, pattern) for run in one.history.runs[-1:] for each in run.stored)


def _show_drift(one: _Drift) -> Iterator[RenderableType]:
    yield Paragraph(write_head(one.history), style="bold")
    yield from (Paragraph(problem, 2, STYLES[Gate.WARNS]) for problem in one.problems)
    for each in one.surroundings:
        facts = {"date": each.after.created[:10], "fields": each.fields}
        text = say("{date}, environment: {fields}", **facts)
        if each.why:
            text = say("{date}, environment: {fields} ({why})", why=each.why, **facts)
        yield Paragraph(text, 2, "magenta")
    for case in one.cases:
        style = STYLES[Gate.WARNS] if case.found else ""
        yield from (Paragraph(reason, 2, style) for reason in one.reasons(case))
    yield from (Paragraph(reason, 2, STYLES[Gate.WARNS]) for reason in one.stored_reasons())
    yield Paragraph(_sum_up(one), 2, "dim")


def _sum_up(one: _Drift) -> str:
    crept = sum(bool(case.creep and case.creep.found) for case in one.cases)
    steps = [change for case in one.cases for change in case.changes]
    unexplained = sum(change.unexplained for change in steps)
    facts = {"cases": len(one.cases), "crept": crept, "steps": len(steps), "unexplained": unexplained}
    told = say("Cases: {cases}; crept: {crept}; steps: {steps}, for the worse and unexplained: {unexplained}.", **facts)
    few, short = sum(case.few for case in one.cases), sum(case.creep is None for case in one.cases)
    if few:
        told += " " + say("Too few runs for steps ({least}): {few}.", least=changepoints.FEWEST, few=few)
    if short:
        told += " " + say(
            "Too few runs of this environment, since the release or an accepted loss, for creep: {few}.", few=short
        )
    return told


def _to_json(one: _Drift) -> Mapping[str, Any]:
    """Changes are ratios - 1, plus is slower."""
    return {
        **pick(one.history, "op device", runs=len(one.history.runs)),
        "releases": [release.name for release in one.releases],
        "problems": [reason_data(problem) for problem in one.problems],
        "environment": [
            {"before": _write_run(each.before), "after": _write_run(each.after), **pick(each, "fields why")}
            for each in one.surroundings
        ],
        "cases": [
            {
                **pick(case, "case runs found few release"),
                "creep": case.creep and pick(case.creep, "figure change threshold found spread anchor recent"),
                "changes": [_write_change(change) for change in case.changes],
                "said": [reason_data(reason) for reason in one.reasons(case)],
            }
            for case in one.cases
        ],
        "stored": [
            pick(creep, "case figure change threshold anchor recent", release=release, said=reason_data(reason))
            for (creep, release), reason in zip(one.stored, one.stored_reasons(), strict=True)
        ],
    }


def _write_change(change: ChangePoint) -> Mapping[str, Any]:
    return {
        "figure": change.figure,
        "before": _write_run(change.before),
        "after": _write_run(change.after),
        **pick(change, "size runs cause"),
        "moved": [pick(each, "field before after") for each in change.moved],
        **pick(change, "reference lasting unexplained", why=change.why or change.since),
    }


def _write_run(run: HistoryRun) -> Mapping[str, Any]:
    where = run.environment
    return pick(run, "run created", commit=where.commit, board=where.device.uuid)


# --- boards -----------------------------------------------------------------------------------------------------------


def show_boards(histories: Sequence[History], device: str | None, where: Settings, *, json: bool) -> int:
    """Compare boards, and print how they differ; 3 if one stands out that is not quarantined."""
    by_device = {one.device: [each for each in histories if each.device == one.device] for one in histories}
    found = {key: known_boards.boards({one.op: one.runs for one in ops}) for key, ops in by_device.items()}
    problems = [problem for one in histories for problem in one.problems]
    if device is None:  # quarantined boards that no history knows
        seen = {board_key(one.board) for each in found.values() for one in each}
        problems += [
            Reason("board_unknown", {"board": board}) for board in where.quarantine if board_key(board) not in seen
        ]
    quarantine = {board_key(each) for each in where.quarantine}
    if json:
        print_json([_write_boards(key, each, quarantine) for key, each in found.items()])
    else:
        print_parts(separate([_show_device(key, each, quarantine) for key, each in found.items()]))
        print_parts(Paragraph(problem, 2, STYLES[Gate.WARNS]) for problem in problems)
    outside = [one for each in found.values() for one in each if one.outside]
    return Exit.WARNINGS if problems or any(board_key(one.board) not in quarantine for one in outside) else Exit.OK


def _show_device(device: str, found: Sequence[Board], quarantine: set[str]) -> Iterator[RenderableType]:
    yield Paragraph(say("Boards of {device}: {count}", device=device, count=len(found)), style="bold")
    lines = [
        (
            one.board,
            str(one.runs),
            units.percent(one.inconclusive.value),
            units.percent(one.overturned.value),
            "-" if one.spread is None else f"{one.spread.ratio.value:.2f}x",
            say("quarantined") if board_key(one.board) in quarantine else say("outside") if one.outside else "-",
        )
        for one in found
    ]
    styles = [STYLES[Gate.WARNS] if one.outside else "" for one in found]
    if found:
        headings = "board | runs: | INCONCLUSIVE: | overturned: | A/A spread: | state:"
        yield Grid(make_table(headings, lines), styles=styles)
    for one in found:
        yield from (Paragraph(reason, 2, STYLES[Gate.WARNS]) for reason in known_boards.told_of(one, device))
    if len(found) == 1:
        yield Paragraph(say("There is no other board to compare it with."), 2, "dim")


def _write_boards(device: str, found: Sequence[Board], quarantine: set[str]) -> Mapping[str, Any]:
    return {
        "device": device,
        "boards": [
            {
                **pick(one, "board runs inconclusive overturned spread nulls outside"),
                "quarantined": board_key(one.board) in quarantine,
                "said": [reason_data(reason) for reason in known_boards.told_of(one, device)],
            }
            for one in found
        ],
    }
