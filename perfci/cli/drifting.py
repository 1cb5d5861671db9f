"""`perfci history --drift` and `--boards`: what histories say about kernels and about boards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from perfci.cli.exits import Exit, exit_code
from perfci.cli.histories.kept import HistoryOptions, kept
from perfci.cli.histories.tables import apart, columns, head, text_of
from perfci.cli.output import print_json, print_parts, reason_data
from perfci.cli.tables import STYLES
from perfci.core import units
from perfci.core.errors import UsageError
from perfci.core.model import Gate, HistoryRun, Reason, board_key
from perfci.core.settings import Settings
from perfci.core.wording import say, sentence
from perfci.git.tags import Release
from perfci.ops.spec import matches
from perfci.report.text import plain
from perfci.runs import drifts
from perfci.runs.drifts import CaseDrift, EnvironmentChange
from perfci.statistics import boards as known_boards
from perfci.statistics import changepoints
from perfci.statistics.boards import Board, Share
from perfci.statistics.changepoints import Change
from perfci.statistics.drift import Creep
from perfci.store.history import History

_BOARD, _RUNS, _SHARE, _SPREAD, _STATE = 42, 5, 13, 10, 12


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


def drift(options: HistoryOptions, release: str | None, where: Settings, *, strict: bool, json: bool) -> int:
    """Print what crept and stepped; 3 if a kernel did and nothing explains it, 2 for that in strict mode."""
    pattern = options.pattern
    every = [_drift(each, pattern, release, where) for each in kept(options, where)]
    if every and pattern is not None and not any(one.cases or _stores(one, pattern) for one in every):
        raise UsageError("no_case_fits", pattern=pattern, ops=", ".join(one.history.op for one in every))
    found = [one for one in every if one.cases or pattern is None or _stores(one, pattern)]
    if json:
        print_json([_as_data(one) for one in found])
    else:
        print_parts(apart(found, _told))
    return exit_code(Gate.WARNS if any(one.found for one in found) else Gate.OK, strict=strict)


def boards(options: HistoryOptions, where: Settings, *, json: bool) -> int:
    """Compare boards, and print how they differ; 3 if one stands out that is not quarantined."""
    histories = kept(options, where)
    by_device = {one.device: [each for each in histories if each.device == one.device] for one in histories}
    found = {key: known_boards.boards({one.op: one.runs for one in ops}) for key, ops in by_device.items()}
    problems = [problem for one in histories for problem in one.problems]
    unknown = _unknown(where, found) if options.device is None else []
    if json:
        print_json([_device_data(key, each, where) for key, each in found.items()])
    else:
        print_parts(_boards_told(found, where, [*problems, *unknown]))
    open_ones = [one for each in found.values() for one in each if one.outside and not _quarantined(one.board, where)]
    return Exit.WARNINGS if open_ones or problems or unknown else Exit.OK


# --- drift ------------------------------------------------------------------------------------------------------------


def _drift(found: History, pattern: str | None, release: str | None, where: Settings) -> _Drift:
    """Raises UsageError for a release that git does not know."""
    known = drifts.find_releases(found.runs, where, release)
    if isinstance(known, Reason):
        if release is not None:
            raise UsageError(known.kind, **known.facts)
        known = ()  # the first runs are the anchor where git tells nothing
    lacking = [Reason("drift_release_unknown", _place(found, each)) for each in known if not each.holds]
    cases = drifts.find_drifts(found, [each for each in known if each.holds], pattern)
    around = tuple(drifts.list_environment_changes(found, drifts.read_steps(where.baselines, found)))
    stored = drifts.find_stored_drifts(found.runs, [each for each in known if each.holds], pattern)
    return _Drift(found, cases, known, (*found.problems, *lacking), around, stored)


def _stores(one: _Drift, pattern: str) -> bool:
    """Whether the newest run stores a tensor in low precision that fits the pattern."""
    return any(matches(each.case, pattern) for run in one.history.runs[-1:] for each in run.stored)


def _place(found: History, release: Release) -> dict[str, str]:
    return {"op": found.op, "device": found.device, "release": release.name}


def _told(one: _Drift) -> Iterator[RenderableType]:
    yield Text(head(one.history), style="bold")
    yield from (text_of(sentence(problem), "  ", STYLES[Gate.WARNS]) for problem in one.problems)
    yield from (text_of(_surrounding(each), "  ", "magenta") for each in one.surroundings)
    for case in one.cases:
        style = STYLES[Gate.WARNS] if case.found else ""
        yield from (text_of(sentence(reason), "  ", style) for reason in one.reasons(case))
    yield from (text_of(sentence(reason), "  ", STYLES[Gate.WARNS]) for reason in one.stored_reasons())
    yield text_of(_summary(one), "  ", "dim")


def _surrounding(each: EnvironmentChange) -> str:
    facts = {"date": plain(each.after.created[:10], 10), "fields": plain(each.fields)}
    if each.why:
        return say("{date}, environment: {fields} ({why})", why=plain(each.why), **facts)
    return say("{date}, environment: {fields}", **facts)


def _summary(one: _Drift) -> str:
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


def _as_data(one: _Drift) -> Mapping[str, Any]:
    """Changes are ratios - 1, plus is slower."""
    return {
        "op": one.history.op,
        "device": one.history.device,
        "runs": len(one.history.runs),
        "releases": [release.name for release in one.releases],
        "problems": [reason_data(problem) for problem in one.problems],
        "environment": [
            {"before": _run(each.before), "after": _run(each.after), "fields": each.fields, "why": each.why}
            for each in one.surroundings
        ],
        "cases": [
            {
                "case": case.case,
                "runs": case.runs,
                "found": case.found,
                "few": case.few,
                "release": case.release,
                "creep": _creep(case),
                "changes": [_change(change) for change in case.changes],
                "said": [reason_data(reason) for reason in one.reasons(case)],
            }
            for case in one.cases
        ],
        "stored": [
            {
                "case": creep.case,
                "figure": creep.figure,
                "release": release,
                "change": creep.change,
                "threshold": creep.threshold,
                "anchor": creep.anchor,
                "recent": creep.recent,
                "said": reason_data(reason),
            }
            for (creep, release), reason in zip(one.stored, one.stored_reasons(), strict=True)
        ],
    }


def _creep(case: CaseDrift) -> Mapping[str, Any] | None:
    creep = case.creep
    if creep is None:
        return None
    return {
        "figure": creep.figure,
        "change": creep.change,
        "threshold": creep.threshold,
        "found": creep.found,
        "spread": creep.spread,
        "anchor": creep.anchor,
        "recent": creep.recent,
    }


def _change(change: Change) -> Mapping[str, Any]:
    return {
        "figure": change.figure,
        "before": _run(change.before),
        "after": _run(change.after),
        "size": change.size,
        "runs": change.runs,
        "cause": change.cause,
        "moved": [{"field": each.field, "before": each.before, "after": each.after} for each in change.moved],
        "reference": change.reference,
        "why": change.why or change.since,
        "lasting": change.lasting,
        "unexplained": change.unexplained,
    }


def _run(run: HistoryRun) -> Mapping[str, Any]:
    where = run.environment
    return {"run": run.run, "created": run.created, "commit": where.commit, "board": where.device.uuid}


# --- boards -----------------------------------------------------------------------------------------------------------


def _unknown(where: Settings, found: Mapping[str, Sequence[Board]]) -> list[Reason]:
    """Quarantined boards that no history knows."""
    seen = {board_key(one.board) for each in found.values() for one in each}
    return [Reason("board_unknown", {"board": board}) for board in where.quarantine if board_key(board) not in seen]


def _quarantined(board: str, where: Settings) -> bool:
    return board_key(board) in {board_key(each) for each in where.quarantine}


def _boards_told(
    found: Mapping[str, Sequence[Board]], where: Settings, problems: Sequence[Reason]
) -> Iterator[RenderableType]:
    yield from apart(list(found.items()), lambda one: _device_told(*one, where))
    yield from (text_of(sentence(problem), "  ", STYLES[Gate.WARNS]) for problem in problems)


def _device_told(device: str, each: Sequence[Board], where: Settings) -> Iterator[RenderableType]:
    yield Text(say("Boards of {device}: {count}", device=plain(device, 80), count=len(each)), style="bold")
    if each:
        yield Text(_row(_heads()), style="dim")
    for one in each:
        yield Text(_row(_cells(one, where)), style=STYLES[Gate.WARNS] if one.outside else "")
    for one in each:
        yield from (text_of(sentence(reason), "  ", STYLES[Gate.WARNS]) for reason in known_boards.told_of(one, device))
    if len(each) == 1:
        yield text_of(say("There is no other board to compare it with."), "  ", "dim")


def _heads() -> tuple[str, ...]:
    return say("board"), say("runs"), "INCONCLUSIVE", say("overturned"), say("A/A spread"), say("state")


def _cells(one: Board, where: Settings) -> tuple[str, ...]:
    state = say("quarantined") if _quarantined(one.board, where) else say("outside") if one.outside else "-"
    spread = "-" if one.spread is None else f"{one.spread.ratio.value:.2f}x"
    name = plain(one.board, _BOARD)
    return name, str(one.runs), _share(one.inconclusive), _share(one.overturned), spread, state


def _share(share: Share) -> str:
    return units.percent(share.value)


def _row(cells: Sequence[str]) -> str:
    return "  " + columns(cells, (_BOARD, _RUNS, _SHARE, _SHARE, _SPREAD, _STATE), left=1)


def _device_data(device: str, found: Sequence[Board], where: Settings) -> Mapping[str, Any]:
    return {
        "device": device,
        "boards": [
            {
                "board": one.board,
                "runs": one.runs,
                "inconclusive": one.inconclusive,
                "overturned": one.overturned,
                "spread": one.spread,
                "nulls": one.nulls,
                "outside": one.outside,
                "quarantined": _quarantined(one.board, where),
                "said": [reason_data(reason) for reason in known_boards.told_of(one, device)],
            }
            for one in found
        ],
    }
