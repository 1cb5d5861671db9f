"""From a stored run to verdicts, by the rules and baselines that it is judged by."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from perfci import store
from perfci.core import extensions
from perfci.core.errors import GitError, UsageError
from perfci.core.model import Baseline, Judgements, OpRun, Reason, Run, StaticOp
from perfci.core.renames import with_aliases
from perfci.core.settings import Settings
from perfci.core.temporary import temporary_folder
from perfci.git.checkout import materialise
from perfci.git.command import parse_commit
from perfci.judge import judge
from perfci.judge.quarantine import advise
from perfci.ops.discover import pick
from perfci.ops.spec import matches
from perfci.report.sections import OpExtra
from perfci.runs import effective_thresholds
from perfci.runs.accept import accept
from perfci.runs.rules import is_judged_by_base, list_known_ops, mark_added, move_settings
from perfci.thresholds.limits import Thresholds
from perfci.thresholds.read import load

_Cases = TypeVar("_Cases", OpRun, StaticOp)


def decide(run: Run, settings: Settings, against: Path | None = None, judged_by: Settings | None = None) -> Judgements:
    """Judge a run by stored baselines and thresholds, which are read first.

    against: a folder of baselines, or another run. None: the project's. judged_by: with rules that hold. None: by git.
    """
    with nullcontext(judged_by) if judged_by else open_rules(run, settings) as rules:
        in_force = effective_thresholds.of_run(run, rules, check_ops=True)
        run, limits = _add_change(run, in_force.limits, settings, planned=judged_by is not None or rules is settings)
        first, last = effective_thresholds.notes(run, in_force)
        judgements = judge(run, _read_baselines(run, rules, against), limits)
        for weigh in extensions.provided("weigh"):
            judgements = weigh(run, judgements, rules.kernels, limits.model)
        notes = (*first, *judgements.notes, *last)
        if rules is settings and not judged_by and is_judged_by_base(run.plan.base):  # those of the base are gone
            notes = tuple(Reason("rules_gone", note.facts) if note.kind == "rules_changed" else note for note in notes)
        listed = (*rules.quarantine, *run.plan.put_aside)
        return advise(run, dataclasses.replace(judgements, notes=notes), listed)


@dataclass(frozen=True)
class ReportContext:
    """Further data of a report, beside a run and its judgements."""

    baselines: Mapping[str, Baseline]  # by op
    extras: tuple[OpExtra, ...]  # of extensions


def read_context(run: Run, settings: Settings, against: Path | None = None) -> ReportContext:
    """Stored numbers of a run's ops, with histories unless `against` is a run. Raises StoredFileError."""
    with open_rules(run, settings) as rules:
        beside = dataclasses.replace(rules, baselines=against) if against else rules
        extras = tuple(read(run, settings, beside) for read in extensions.provided("sections"))
        return ReportContext(_read_baselines(run, rules, against), extras)


def narrow(
    run: Run, judgements: Judgements, names: Sequence[str], pattern: str | None = None
) -> tuple[Run, Judgements]:
    """Leaves some ops and cases of a run, which was judged as a whole. A row about an op as a whole stays with it.

    Raises UsageError for an op that the run does not have, and if no case fits.
    """
    if not names and pattern is None:
        return run, judgements
    static = run.static.ops if run.static else ()
    ops_of_run = list(dict.fromkeys([*(op.op for op in run.ops), *(op.op for op in static)]))
    chosen = pick(ops_of_run, names, "op_not_in_run")
    ops = tuple(_keep_cases(op, pattern) for op in run.ops if op.op in chosen)
    compiled = tuple(_keep_cases(op, pattern) for op in static if op.op in chosen)
    kept = (len(op.accuracy) + len(op.performance) + len(op.stored) for op in ops)
    if pattern is not None and not any((*kept, *(len(op.cases) for op in compiled))):
        raise UsageError("no_case_fits", ops=", ".join(chosen), pattern=pattern)
    rows = [row for row in judgements.rows if row.op in chosen and (row.case is None or matches(row.case, pattern))]
    whole = dataclasses.replace(run.static, ops=compiled) if run.static else None
    plan = dataclasses.replace(run.plan, ops=tuple(op for op in run.plan.ops if op.op in chosen))
    run = dataclasses.replace(run, plan=plan, ops=ops, static=whole)
    return run, dataclasses.replace(judgements, rows=tuple(rows))


def _keep_cases(op: _Cases, pattern: str | None) -> _Cases:
    kinds = ("cases",) if isinstance(op, StaticOp) else ("accuracy", "performance", "stored")
    kept = {kind: tuple(one for one in getattr(op, kind) if matches(one.case, pattern)) for kind in kinds}
    return dataclasses.replace(op, **kept)  # type: ignore[arg-type]


@contextmanager
def open_rules(run: Run, settings: Settings) -> Iterator[Settings]:
    """Yields the settings that judge: those of a merge request's base, or the work tree's if git has lost them."""
    base = run.plan.base
    if base is None or not is_judged_by_base(base):
        yield settings
        return
    with temporary_folder("rules") as folder:
        rules = settings
        with suppress(GitError):
            rules = move_settings(settings, materialise(settings.root, base.commit, folder / "base"))
        yield rules


def _add_change(run: Run, limits: Thresholds, settings: Settings, *, planned: bool) -> tuple[Run, Thresholds]:
    """The rules with a change's expected entries: as recorded, or the tree's if it is still at the run's commit."""
    base = run.plan.base
    if base is None or not is_judged_by_base(base):
        return run, limits
    head = parse_commit(settings.root, "HEAD")
    if head is None or head != run.environment.commit:
        return run, limits.with_change(base.expected)
    change = load(settings.thresholds, list_known_ops(settings), settings.root)
    entries = base.expected if planned else mark_added(change, limits)
    plan = dataclasses.replace(run.plan, base=dataclasses.replace(base, expected=entries))
    return dataclasses.replace(run, plan=plan), limits.with_change(entries)


def _read_baselines(run: Run, settings: Settings, against: Path | None) -> Mapping[str, Baseline]:
    folder = against or settings.baselines
    if not folder.is_file() and not (folder / store.RUN_FILE).is_file():
        return with_aliases(store.read_baselines(folder, run.environment.device.key), run.plan)
    # Another run takes the place of the stored baselines, without the cases that `accept` refuses.
    other = store.read_run(folder)
    evidence = [(other, judge(other, {}, effective_thresholds.of_run(other, settings, check_ops=True).limits))]
    answers = [accept(op.op, evidence, dirty=True) for op in other.ops]
    return with_aliases({answer.op: answer.baseline for answer in answers if answer.baseline}, run.plan)
