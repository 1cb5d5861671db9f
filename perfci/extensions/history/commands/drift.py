"""`perfci history --drift` and `--boards`: what histories show of kernels and of boards."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from perfci.cli.exits import Exit, exit_code
from perfci.cli.output import STYLES, Grid, Paragraph, print_found
from perfci.core import commands, units
from perfci.core.environment import list_differences
from perfci.core.errors import GitError, StoredFileError, UsageError
from perfci.core.model import Fact, Gate, Judgement, Reason, Verdict, board_key
from perfci.core.settings import Settings
from perfci.core.wording import say
from perfci.extensions.common.accepted_runs import HistoryRun
from perfci.extensions.common.history import History, history_devices, history_ops, read_history
from perfci.extensions.history import changepoints, tables
from perfci.extensions.history.boards import Board, compare_boards, describe_board, find_difference, list_reopened
from perfci.extensions.history.changepoints import ChangePoint
from perfci.extensions.history.commits import is_ancestor
from perfci.extensions.history.series import list_steps
from perfci.extensions.history.tables import StoredRun
from perfci.ops.discover import pick as pick_ops
from perfci.ops.spec import matches
from perfci.report.data import pick
from perfci.report.view import make_table
from perfci.store import RUN_FILE, baseline_path, read_baseline

if TYPE_CHECKING:
    from perfci.extensions.history.database import HistoryStore

CREEP = "creep"  # in the reports folder: the run of `perfci check --against-release`


def read_histories(
    where: Settings, ops: Sequence[str], device: str | None, store: HistoryStore | None = None
) -> list[History]:
    """The histories of these ops and this device, from git or a store.

    Raises UsageError for a device or an op that none has.
    """
    folder = where.baselines
    there = store.list_ops() if store else {key: history_ops(folder, key) for key in history_devices(folder)}
    devices = list(there)
    if device is not None:
        if device not in devices:
            raise UsageError("history_no_device", device=device, known=", ".join(devices) or "-")
        devices = [device]
    there = {name: there[name] for name in devices}
    known = sorted({op for names in there.values() for op in names})
    wanted = pick_ops(known, ops if devices else (), "history_no_op")
    chosen = [(name, op) for name in devices for op in there[name] if op in wanted]
    return [store.read_history(*pair) if store else read_history(folder, *pair) for pair in chosen]


def separate(blocks: Sequence[Iterable[RenderableType]]) -> Iterator[RenderableType]:
    """Blocks with an empty line between two, or a sentence if there are none."""
    if not blocks:
        yield say("No run was accepted yet: `perfci accept` stores the first ones, and each run leaves a line.")
    for at, block in enumerate(blocks):
        if at:
            yield ""
        yield from block


def write_head(history: History) -> str:
    """Which history it is, and from when to when."""
    runs, facts = history.runs, dict[str, Fact](op=history.op, device=history.device)
    if not runs:
        return say("{op} on {device}: no accepted run", **facts)
    facts |= {"first": runs[0].created[:10], "last": runs[-1].created[:10]}
    if len(runs) == 1:
        return say("{op} on {device}: 1 accepted run, {last}", **facts)
    return say("{op} on {device}: {count:accepted run|accepted runs}, {first} to {last}", count=len(runs), **facts)


@dataclass(frozen=True)
class _Drift:
    """An op on a device."""

    history: History
    cases: Mapping[str, tuple[int, tuple[ChangePoint, ...]]]  # case -> comparable runs, steps
    tensors: tuple[str, ...]  # what the newest run stores in low precision
    stored: tuple[ChangePoint, ...]  # steps of these
    environment: tuple[tuple[HistoryRun, HistoryRun, str, str | None], ...]
    """changes of the environment, boards aside: the runs before and after, fields, and people's reason"""

    @property
    def found(self) -> bool:
        """Whether anything needs to be done."""
        steps = [change for _, changes in self.cases.values() for change in changes]
        return bool(self.history.problems or self.stored) or any(change.unexplained for change in steps)


def show_drift(histories: Sequence[History], pattern: str | None, where: Settings, *, strict: bool, json: bool) -> int:
    """Print steps and what explains them; 3 if a kernel became slower and nothing explains it, 2 if strict."""
    every = [_find_drift(history, pattern, where) for history in histories]
    drift = [one for one in every if one.cases or one.tensors or pattern is None]
    if every and not drift:
        raise UsageError("no_case_fits", pattern=pattern, ops=", ".join(one.history.op for one in every))
    print_found([_to_json(one) for one in drift], separate([_show_drift(one) for one in drift]), json=json)
    return exit_code(Gate.WARNS if any(one.found for one in drift) else Gate.OK, strict=strict)


def _find_drift(history: History, pattern: str | None, where: Settings) -> _Drift:
    drift = {case: runs for case, runs in changepoints.index_cases(history.runs).items() if matches(case, pattern)}
    tensors = tuple(tensor.case for run in history.runs[-1:] for tensor in run.stored if matches(tensor.case, pattern))
    why: dict[str, str] = {}  # of the steps that `perfci accept --environment` recorded
    with contextlib.suppress(StoredFileError):
        path = baseline_path(where.baselines, history.device, history.op)
        steps = read_baseline(path).steps if path.is_file() else ()
        why = {run: step.why for step in steps for run in step.after.run_ids}
    moved = [
        (before, after, list_differences(fields), why.get(after.run))
        for before, after in itertools.pairwise(history.runs)
        if (fields := list_steps(before, after))
    ]
    refuted = _Refuted(where, history.op)
    return _Drift(
        history,
        {case: (len(runs), tuple(map(refuted.mark, changepoints.find_changes(runs)))) for case, runs in drift.items()},
        tensors,
        tuple(change for case in tensors for change in changepoints.find_stored_changes(history.runs, case)),
        tuple(moved),
    )


class _Refuted:
    """What the last `perfci check --against-release` of this project shows of the steps in an op's history."""

    def __init__(self, where: Settings, op: str) -> None:
        self._where, self._op = where, op

    def mark(self, change: ChangePoint) -> ChangePoint:
        """The step, as the machine's if the newest commit showed no such loss beside a commit from before it."""
        before, after = (run.environment.commit for run in (change.before, change.after))
        if not (change.unexplained and before and after and self._is_refuted(change, before, after)):
            return change
        return replace(change, cause=changepoints.Cause.MACHINE)

    def _is_refuted(self, change: ChangePoint, before: str, after: str) -> bool:
        if self._duels is None:
            return False
        root, run = self._where.root, self._duels.run
        cases = run.plan.again.cases if run.plan.again else ()
        case = next((one for one in cases if (one.op, one.case) == (self._op, change.case)), None)
        if case is None or not case.commit or not run.environment.commit:
            return False
        try:
            ends = is_ancestor(root, case.commit, before) and is_ancestor(root, after, run.environment.commit)
        except GitError:
            return False
        rows = (row for row in self._duels.judgements.rows if (row.op, row.case) == (self._op, change.case))
        return ends and any(_shows_less(row, change) for row in rows)

    @functools.cached_property
    def _duels(self) -> StoredRun | None:
        folder = self._where.reports / CREEP
        return tables.read(folder, self._where.root) if (folder / RUN_FILE).exists() else None


def _shows_less(row: Judgement, change: ChangePoint) -> bool:
    """Whether a duel leaves no room for the step: the same work, or a slow-down that is less by its noise too."""
    duel = row.comparison.duel if row.comparison else None
    if duel is None:
        return row.verdict is Verdict.UNCHANGED
    return duel.shift.value + duel.reach < math.log1p(change.size.value)


def _show_drift(one: _Drift) -> Iterator[RenderableType]:
    op, warning = one.history.op, STYLES[Gate.WARNS]
    yield Paragraph(write_head(one.history), style="bold")
    yield from (Paragraph(problem, 2, warning) for problem in one.history.problems)
    for _, after, fields, why in one.environment:
        text = say("{date}, environment: {fields}", date=after.created[:10], fields=fields)
        yield Paragraph(text + (f" ({why})" if why else ""), 2, "magenta")
    steps = [change for _, changes in one.cases.values() for change in changes]
    for change in (*steps, *one.stored):
        style = warning if change.unexplained else ""
        yield Paragraph(changepoints.describe_change(change, op), 2, style)
    facts = {"cases": len(one.cases), "steps": len(steps), "unexplained": sum(step.unexplained for step in steps)}
    text = say("Cases: {cases}; steps: {steps}, for the worse and unexplained: {unexplained}.", **facts)
    if few := sum(count < changepoints.FEWEST for count, _ in one.cases.values()):
        text += " " + say("Too few runs for steps ({least}): {few}.", least=changepoints.FEWEST, few=few)
    yield Paragraph(text, 2, "dim")


def _to_json(one: _Drift) -> Mapping[str, Any]:
    """Changes are ratios - 1, plus is slower."""
    op = one.history.op

    def write_change(change: ChangePoint) -> Mapping[str, Any]:
        names = "figure size runs cause reference lasting unexplained why moved"
        ends = {"before": _write_run(change.before), "after": _write_run(change.after)}
        return pick(change, names, **ends, said=changepoints.describe_change(change, op))

    return {
        **pick(one.history, "op device problems", runs=len(one.history.runs)),
        "environment": [
            {"before": _write_run(before), "after": _write_run(after), "fields": fields, "why": why}
            for before, after, fields, why in one.environment
        ],
        "cases": [
            {
                "case": case,
                "runs": count,
                "found": any(change.unexplained for change in changes),
                "changes": [write_change(change) for change in changes],
            }
            for case, (count, changes) in one.cases.items()
        ],
        "stored": [{"case": change.case, **write_change(change)} for change in one.stored],
    }


def _write_run(run: HistoryRun) -> Mapping[str, Any]:
    where = run.environment
    return pick(run, "run created", commit=where.commit, board=where.device.uuid)


def show_boards(histories: Sequence[History], device: str | None, where: Settings, *, json: bool) -> int:
    """Compare boards, and print how they differ; 3 if one stands out that is not quarantined."""
    by_device = {one.device: [history for history in histories if history.device == one.device] for one in histories}
    runs = {key: {one.op: one.runs for one in ops} for key, ops in by_device.items()}
    compared = {key: compare_boards(ops) for key, ops in runs.items()}
    problems = [problem for one in histories for problem in one.problems]
    if device is None:  # quarantined boards that no history knows
        seen = {board_key(one.board) for boards in compared.values() for one in boards}
        unknown = [board for board in where.quarantine if board_key(board) not in seen]
        problems += [Reason("board_unknown", {"board": board}) for board in unknown]
    quarantine, cleared = ({board_key(board) for board in listed} for listed in (where.quarantine, where.cleared))
    names = "board runs inconclusive overturned spread nulls slow clock ecc_errors outside since"
    answer = []
    for key, each in compared.items():
        boards = [
            pick(
                one,
                names,
                quarantined=board_key(one.board) in quarantine,
                put_aside=one.sick and board_key(one.board) not in cleared,
                said=(*describe_board(one, key), *_reopen(one, key, runs[key])),
            )
            for one in each
        ]
        answer.append({"device": key, "difference": find_difference(each), "boards": boards})
    shown = separate([_show_device(key, boards, quarantine, cleared, runs[key]) for key, boards in compared.items()])
    warnings = (Paragraph(problem, 2, STYLES[Gate.WARNS]) for problem in problems)
    print_found(answer, (*shown, *warnings), json=json)
    outside = [one for boards in compared.values() for one in boards if one.outside]
    return Exit.WARNINGS if problems or any(board_key(one.board) not in quarantine for one in outside) else Exit.OK


def _reopen(board: Board, device: str, runs: Mapping[str, Sequence[HistoryRun]]) -> tuple[Reason, ...]:
    """Cases that a sick board alone has decided since it is sick, with the command that asks again."""
    reopened = list_reopened(board, runs) if board.sick else {}
    if not reopened:
        return ()
    facts: dict[str, Fact] = {"board": board.board, "device": device, "since": (board.began or "")[:10]}
    facts |= {"count": sum(map(len, reopened.values())), "command": commands.write("check", *reopened)}
    return (Reason("board_reopened", facts),)


def _show_device(
    device: str,
    boards: Sequence[Board],
    quarantine: set[str],
    cleared: set[str],
    runs: Mapping[str, Sequence[HistoryRun]],
) -> Iterator[RenderableType]:
    yield Paragraph(say("Boards of {device}: {count}", device=device, count=len(boards)), style="bold")

    def name_state(one: Board) -> str:
        key = board_key(one.board)
        if key in quarantine:
            return say("quarantined")
        return say("put aside") if one.sick and key not in cleared else say("outside") if one.outside else "-"

    lines = [
        (
            one.board,
            str(one.runs),
            units.percent(one.inconclusive.value),
            units.percent(one.overturned.value),
            "-" if one.spread is None else f"{one.spread.ratio.value:.2f}x",
            "-" if one.slow is None else units.percent(one.slow.ratio.value - 1, signed=True),
            "-" if one.clock is None else units.percent(1 / one.clock.ratio.value - 1, signed=True),
            name_state(one),
        )
        for one in boards
    ]
    styles = [STYLES[Gate.WARNS] if one.outside else "" for one in boards]
    if boards:
        headings = "board | runs: | INCONCLUSIVE: | overturned: | A/A spread: | times: | clock: | state:"
        yield Grid(make_table(headings, lines), styles=styles)
    for one in boards:
        told = (*describe_board(one, device), *_reopen(one, device, runs))
        yield from (Paragraph(reason, 2, STYLES[Gate.WARNS]) for reason in told)
    if (difference := find_difference(boards)) is not None:
        text = say("Standard deviation of a reference's time between boards: {sd}.", sd=units.percent(difference))
        yield Paragraph(text, 2, "dim")
    if len(boards) == 1:
        yield Paragraph(say("There is no other board to compare it with."), 2, "dim")
