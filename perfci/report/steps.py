"""What to type next: the command that repeats a run, and one for each verdict that is not what one hoped for."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from perfci.core import units
from perfci.core.model import DuelWhat, Gate, Judgement, Judgements, Run, Suite, Verdict
from perfci.core.wording import say
from perfci.report.pasting import pastings
from perfci.report.text import block, inline, plain
from perfci.report.view import Step

RUN_FILE = "reports/run.json"

_SHOW = "perfci show {run} --op {op} --case {case}"
_LIMITS = "perfci thresholds show --op {op} --case {case}"
_LESS_EXACT = (
    "accuracy_beyond_limits",
    "checked_errors_overall",
    "checked_errors_in_places",
    "stored_beyond_channels",
    "stored_beyond_coarse",
    "stored_beyond_moved",
    "stored_beyond_scale_large",
    "stored_beyond_scale_small",
    "stored_beyond_tail",
    "stored_beyond_unknown",
    "timed_errors_overall",
    "timed_errors_in_places",
)
_AGAIN = "perfci check {op} --case {case}{against}"
_SAME = "perfci check {op} --case {case} --seed {seed}"
_QUIETER = f"perfci doctor\n{_AGAIN} --budget {{budget}}"
_ACCEPT = "perfci accept {run} --op {op}"
_REBASELINE = "perfci accept --environment {run}"
_COMPILE = "perfci check --static {op} --case {case} --target {target}{against}"

_Advice = tuple[str, str]
"""What to do, and the command to be filled in."""


@dataclass(frozen=True)
class _Known:
    """All advice, in the reader's language."""

    verdicts: Mapping[Verdict, _Advice]
    kinds: Mapping[str, _Advice | None]
    compiled: Mapping[Verdict, _Advice]


def _by_verdict() -> dict[Verdict, _Advice]:
    return {
        Verdict.REGRESSED: (say("see every look at it; after a change, `perfci check` the same case again."), _SHOW),
        Verdict.WRONG: (say("its sentence names values, layout and seed; this repeats exactly those inputs."), _SAME),
        Verdict.TOO_SLOW: (say("see how far it is from what `thresholds/` asks for."), _SHOW),
        Verdict.ERROR: (say("read the message in the op's section above; this repeats it alone."), _SAME),
        Verdict.INCONCLUSIVE: (say("look for throttling and other processes, then give it more time."), _QUIETER),
        Verdict.DRIFTED: (say("driver, board or reference moved; if that was meant, store the new numbers."), _ACCEPT),
        Verdict.STALE: (say("the stored baseline cannot speak here; this stores one that can."), _ACCEPT),
        Verdict.SUSPECT: (say("read what was seen before believing the time."), _SHOW),
        Verdict.EXPECTED: (
            say(
                "its entry holds until the day in its sentence, warns for two weeks more and then fails; once the "
                "change is merged, store the new numbers and delete the entry."
            ),
            _ACCEPT,
        ),
        Verdict.REMOVED: (say("if the case went on purpose, store the run without it."), _ACCEPT),
        Verdict.NEW: (say("once its numbers are what you want, store them as the baseline."), _ACCEPT),
    }


def _by_kind() -> dict[str, _Advice | None]:
    """Where the reason asks for something else than its verdict usually does; None where the sentence says it all."""
    moved = (say("see what the environment moved; `--write --why TEXT` stores it as a step."), _REBASELINE)
    limit = (say("see where its limit comes from; if the change is meant, relax it for a time."), _LIMITS)
    # An expected entry takes what misses this limit, and is shown beside it.
    target = (say("see where its limit comes from."), _LIMITS)
    return {
        **dict.fromkeys(("stale_environment", "stale_environment_span", "stale_environment_regime"), moved),
        "control_failed": (
            say(
                "kernel and base do the same work here, so it is the measurement that is off: see whether it can be "
                "trusted."
            ),
            "perfci doctor\nperfci doctor --selftest --op {op}",
        ),
        "duel_undecided": (
            say("look for throttling and other processes, then time it beside the base once more."),
            f"perfci doctor\n{_AGAIN}",
        ),
        "bandwidth_low": target,
        **dict.fromkeys(("compile_too_slow", *_LESS_EXACT), limit),
        "removed_since_base": None,
        "op_removed": None,
    }


def _by_verdict_compiled() -> dict[Verdict, _Advice]:
    return {
        Verdict.REGRESSED: (say("see what grew under *Compiled kernels*; after a change, compile it again."), _COMPILE),
        Verdict.ERROR: (say("its sentence has the message; this compiles it alone."), _COMPILE),
        Verdict.INCONCLUSIVE: (say("only a device can tell what the call does: check it on one."), _AGAIN),
    }


def steps(run: Run, judgements: Judgements) -> tuple[Step, ...]:
    """One a kind of advice, its command filled in for the first such row, of a case if there is one."""
    first: dict[tuple[str, _Advice], Judgement] = {}
    known = _Known(_by_verdict(), _by_kind(), _by_verdict_compiled())
    for row in sorted(judgements.rows, key=lambda row: row.case is None):
        if advice := _advice(row, known):
            first.setdefault((_title(row), advice), row)
    ranked = sorted(first, key=lambda step: list(known.verdicts).index(first[step].verdict))
    told = [Step(step[0], step[1][0], block(_filled(step[1][1], first[step], run))) for step in ranked]
    failing = sum(first[step].gate is Gate.FAILS for step in ranked)
    return (*told[:failing], *_meant(judgements), *told[failing:])


def _meant(judgements: Judgements) -> Iterator[Step]:
    """Slow-downs that are meant: what to paste where."""
    slow = dict.fromkeys(str(row.verdict) for row in judgements.rows if row.suggested)
    for one in pastings(judgements):
        yield Step(", ".join(slow), inline(f"{one.said} {one.more}"), block("\n".join(one.lines)))


def _title(row: Judgement) -> str:
    return say("{verdict}, compiled", verdict=row.verdict) if row.suite is Suite.COMPILED else str(row.verdict)


def _advice(row: Judgement, known: _Known) -> _Advice | None:
    if row.suite is Suite.COMPILED:
        return known.compiled.get(row.verdict)
    kind = row.reasons[0].kind if row.reasons else ""
    return known.kinds.get(kind, known.verdicts.get(row.verdict))


def _filled(command: str, row: Judgement, run: Run) -> str:
    """The command for this row; a row about a whole op has no case to name."""
    command = command if row.case is not None else command.replace(" --case {case}", "")
    return command.format(
        run=RUN_FILE,
        op=quoted(row.op),
        case=quoted(row.case or ""),
        seed=run.plan.seed,
        budget=units.significant(4 * run.plan.budget_s),
        target=quoted(row.target or ""),
        against=_against(run, row),
    )


def repeat(run: Run) -> str:
    """The command that repeats a run: the same inputs, the same order of measuring, the same base."""
    if run.plan.again:
        return run.command if "--seed" in run.command else f"{run.command} --seed {run.plan.seed}"
    ops = " ".join(quoted(op.op) for op in run.plan.ops or run.ops)
    only = f" --case {quoted(run.plan.filter)}" if run.plan.filter else ""
    given = "".join(f" --threshold {quoted(f'{key}={text}')}" for key, text in run.plan.thresholds.items())
    given += " --peers" if run.plan.peers else ""
    if run.static and only_compiled(run):
        return (
            f"perfci check --static {ops}{only} --target {quoted(','.join(run.static.targets))}{_against(run)}{given}"
        )
    return " ".join(f"perfci check {ops}{only} --seed {run.plan.seed}{_against(run)}".split()) + given


def _against(run: Run, row: Judgement | None = None) -> str:
    """The options that name the same base; the commit of the baselines is found without them."""
    base = run.plan.base
    if base is None or base.how == "baseline":
        return ""
    every = " --duel all" if run.plan.duel is DuelWhat.ALL else ""
    python = f" --base-python {quoted(base.python)}" if base.python else ""
    return f" --against {quoted(_commit(run, row) or base.commit[:12])}{every}{python}"


def _commit(run: Run, row: Judgement | None) -> str | None:
    """The commit that the row's case was held against, where each case has its own."""
    again = run.plan.again.by_case.get((row.op, row.case or "")) if run.plan.again and row else None
    return again.commit[:12] if again and again.commit else None


def quoted(text: str) -> str:
    """A name as a shell's argument."""
    return shlex.quote(plain(text))


def only_compiled(run: Run) -> bool:
    """Whether nothing of the run was launched: its ops were compiled without a device."""
    return run.static is not None and not run.ops
