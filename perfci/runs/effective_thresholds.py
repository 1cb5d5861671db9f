"""The thresholds in force for a run: what people wrote, and what was earned, relaxed and asked for above it."""

import dataclasses
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TypeVar

from perfci.core import environment
from perfci.core.errors import StoredFileError, UsageError
from perfci.core.model import Environment, Fact, Plan, Reason, Run
from perfci.core.settings import Settings
from perfci.core.wording import say
from perfci.judge.expected import parse_day
from perfci.ops.spec import matches
from perfci.runs.rules import list_known_ops
from perfci.thresholds.earned import EarnedFile, read_earned
from perfci.thresholds.layers import ALPHA, Relaxed, find_strictest, is_stricter
from perfci.thresholds.limits import Thresholds
from perfci.thresholds.place import list_nearest_first
from perfci.thresholds.read import NUMBERS, load
from perfci.thresholds.write import read_value, show

T = TypeVar("T")

MOST_OPS = 3  # ops that are named in a sentence


@dataclass(frozen=True)
class InForce:
    """The thresholds by which a device is judged on a day, and where they come from."""

    limits: Thresholds
    written: Thresholds  # the same as people wrote them, nothing earned or relaxed
    earned: Mapping[str, EarnedFile]  # by op
    apart: Mapping[str, str]  # op -> how the environment of its values differs from this one: they have no effect
    day: date | None


def in_force(
    rules: Settings,
    where: Environment,
    created: str | None,
    ops: Collection[str] | None = None,
    asked: Mapping[str, str] | None = None,
    plan: Plan | None = None,
) -> InForce:
    """Thresholds in force for a run of this environment and time (ISO 8601), by the files of these settings.

    Earned values have no effect in another environment, but boards may differ. A relaxed entry has none after its last
    day. ops: as `thresholds.load` takes them. asked: values of --threshold. plan: of a run with ops and cases that have
    other names in the files. Raises StoredFileError.
    """
    written, earned = load(rules.thresholds, ops, rules.root), read_earned(rules.thresholds, where.device.key)
    before = _list_names(plan) if plan else {}
    written = dataclasses.replace(
        written, ops=_add_names(written.ops, before), former=_list_cases(plan) if plan else {}
    )
    return over(written, _add_names(earned, before), where, created, asked)


def _add_names(by_op: Mapping[str, T], before: Mapping[str, str]) -> dict[str, T]:
    return {**{op: by_op[old] for op, old in before.items() if old in by_op}, **by_op}


def over(
    written: Thresholds,
    earned_files: Mapping[str, EarnedFile],
    where: Environment,
    created: str | None,
    asked: Mapping[str, str] | None = None,
) -> InForce:
    """The same of files that were read."""
    apart, key, day = {}, where.device.key, parse_day((created or "")[:10])
    for op, file in earned_files.items():
        # Before anything was timed no one knows by what.
        learnt = file.environment or where
        timed = dataclasses.replace(where, timer=where.timer or learnt.timer)
        if differs := environment.unmixable(learnt, timed):
            apart[op] = environment.list_differences(differs)
    limits = dataclasses.replace(
        written,
        earned={op: file.by_case() for op, file in earned_files.items() if op not in apart},
        loosened={
            op: tuple(entry for entry in thresholds.relaxed if entry.about(key) and entry.holds(day))
            for op, thresholds in written.ops.items()
        },
        commanded=parse_values(asked or {}),
    )
    return InForce(limits, written, earned_files, apart, day)


def of_run(run: Run, rules: Settings, *, check_ops: bool = False) -> InForce:
    """Returns what holds for a run. check_ops: a file of no op of the project is an error. Raises StoredFileError."""
    ops = list_known_ops(rules) if check_ops else None
    return in_force(rules, run.environment, run.created, ops, run.plan.thresholds, run.plan)


def _list_names(plan: Plan) -> Mapping[str, str]:
    """The names at the base of ops that have another now: the rules that judge are those of the base."""
    return {op.op: op.base.op for op in plan.ops if op.base and op.base.op and not op.base.lent}


def _list_cases(plan: Plan) -> Mapping[str, Mapping[str, str]]:
    """The same of cases by op, where a change is judged. A default branch's files have the names of now."""
    is_change = plan.base is not None and plan.base.rules
    return {op.op: op.base.renamed for op in plan.ops if is_change and op.base and not op.base.lent}


def alpha_of(rules: Settings, asked: Mapping[str, str]) -> float:
    """The chance of any false alarm in a run, by --threshold or the files. Raises StoredFileError."""
    return parse_values(asked).get(ALPHA, load(rules.thresholds).alpha)


def parse_options(given: Collection[str]) -> dict[str, str]:
    """KEY=VALUE by key. The last counts if a key is given twice. Raises UsageError."""
    options: dict[str, str] = {}
    for option in given:
        key, equals, text = option.partition("=")
        if not equals or not key.strip() or not text.strip():
            raise UsageError("threshold_option", given=option)
        options[key.strip()] = text.strip()
    parse_values(options)
    return options


def parse_values(asked: Mapping[str, str]) -> dict[str, float]:
    """The numbers of --threshold by key. Raises UsageError for what the files' reader would not take."""
    values = {}
    for key, text in asked.items():
        if key not in NUMBERS:
            raise UsageError("threshold_option_key", key=key, keys=list_nearest_first(key, NUMBERS))
        try:
            values[key] = read_value(key, text, "--threshold")
        except StoredFileError as error:
            want = error.reason.facts.get("want") or say("a value")
            raise UsageError("threshold_option_value", key=key, found=text, want=want) from error
    return values


def refuse_looser(plan: Plan, rules: Settings, where: Environment, created: str | None) -> None:
    """Raises UsageError in CI for a value of --threshold that asks for less than what is in force in any case."""
    if not plan.thresholds or not environment.in_ci(os.environ):
        return
    for loose in _find_looser(plan, in_force(rules, where, created, None, plan.thresholds, plan)):
        raise UsageError("threshold_looser", **loose)


def _find_looser(plan: Plan, in_force: InForce) -> Iterator[dict[str, Fact]]:
    """The first case of each value of the command line that asks for less than what would hold without it."""
    without = dataclasses.replace(in_force.limits, commanded={})
    cases = [(op.op, case) for op in plan.ops for case in dict.fromkeys((*op.performance, *op.accuracy))]
    for key, value in in_force.limits.commanded.items():
        for op, case in [("", "")] if key == ALPHA else cases:
            usual = without.alpha if key == ALPHA else find_strictest(without.for_case(op, case), key)
            if is_stricter(key, usual, value):
                where = f"{op} {case}".strip() or "the whole run"
                yield {"key": key, "value": show(key, value), "holds": show(key, usual), "where": where}
                break


def notes(run: Run, in_force: InForce) -> tuple[tuple[Reason, ...], tuple[Reason, ...]]:
    """Notes on a run's thresholds: those before anything else, and those after."""
    plan, device = run.plan, run.environment.device.key
    first = [Reason("threshold_loosened", loose) for loose in _find_looser(plan, in_force)]
    if plan.thresholds:
        facts: dict[str, Fact] = {"given": "; ".join(f"{key} {text}" for key, text in plan.thresholds.items())}
        carried = {"run": plan.again.run} if plan.again and plan.again.run else {}
        first.append(Reason("thresholds_carried" if carried else "thresholds_given", facts | carried))
    last, ops = [], [op.op for op in plan.ops if op.op in in_force.apart]
    for op in plan.ops:
        for entry in in_force.written.ops[op.op].relaxed if op.op in in_force.written.ops else ():
            fits = op.unlisted or any(matches(case, entry.case) for case in (*op.performance, *op.accuracy))
            if entry.about(device) and fits:
                last.append(relaxed_note(entry, in_force.day))
    if ops:
        named = ", ".join(ops[:MOST_OPS]) + (", ..." if len(ops) > MOST_OPS else "")
        facts = {"ops": named, "fields": in_force.apart[ops[0]], "device": device}
        last.append(Reason("earned_apart", facts))
    return tuple(first), tuple(last)


def relaxed_note(entry: Relaxed, day: date | None) -> Reason:
    """How a relaxed entry stands on a day."""
    to = show(entry.key, entry.to) if entry.to is not None else None
    facts: dict[str, Fact] = {"op": entry.op, "key": entry.key, "case": entry.case or "*", "to": to}
    facts |= {"until": entry.until, "why": entry.why.rstrip(".。"), "file": entry.file, "line": entry.line}
    if not entry.holds(day):
        return Reason("relaxed_ended", facts)
    return Reason("relaxed_to" if to is not None else "relaxed_unearned", facts)


def place(path: Path, root: Path) -> str:
    """A file as people know it: relative to the project's root."""
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
