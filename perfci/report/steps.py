"""What to type next: the command that repeats a run, and one, or lines to add, for each verdict that is not fine."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from perfci.core import commands, units
from perfci.core.model import DEFAULT_BUDGET_S, DuelWhat, Gate, Judgement, Judgements, Run, Suite, Verdict
from perfci.core.wording import say
from perfci.report.rows import is_model
from perfci.report.text import phrase, plain
from perfci.report.view import NextStep

KEY = "expected:"
MOST_ENTRIES = 12  # Most entries of one file, and commands of a run, that are written out. Files of JSON have them all.

_SHOW = "show --op --case"
_DIFF = "git diff"  # completed with the base and the files that differ from it
_BISECT = "bisect OP --case --against"
_LIMITS = "thresholds show --op --case"
_BASE = "--against --duel --base-python"
_AGAIN = f"check OP --case {_BASE}"
_SAME = "check OP --case --seed"
_ACCEPT = "accept --op"
_RANKS = "ranks OP --size --case --seed --against --duel"
_COMPILE = f"static OP --case --target {_BASE}"

_WIDER = ("--thorough", "--sanitize")
"""Options of a check without which it lacks what it found by them."""

_WATCHED = "sanitize="  # how the case of a check by a sanitizer begins
_PLACED = ", "  # between a case and the place in memory, or the values, with which --thorough tries it

PLACES = 6  # most folders and files that a command names

_SLOWER = frozenset({Verdict.REGRESSED, Verdict.TAIL})  # than the base: the reason lies in what changed

_RELAXABLE = (
    "compile_too_slow", "accuracy_beyond_limits", "checked_errors_overall", "checked_errors_in_places",
    "timed_errors_overall", "timed_errors_in_places", "stored_beyond_",
)  # fmt: skip
"""Reasons about a limit that an entry may relax. The last is the beginning of several."""

_TOLD = frozenset({"removed_since_base", "op_removed", "copy_behind", "copy_orphaned"})
"""Reasons with a sentence that is enough."""

_MOVED = frozenset({"stale_environment", "stale_environment_span", "stale_environment_regime"})

_Advice = tuple[str, str]
"""What to do, and its commands, a line each: their words, and the options that the row has a value for."""


def make_steps(run: Run, judgements: Judgements) -> tuple[NextStep, ...]:
    """One a kind of advice, its command filled in for the first such row, of a case if there is one."""
    first: dict[tuple[str, _Advice], Judgement] = {}
    for row in sorted(judgements.rows, key=lambda row: row.case is None):
        compiled = row.suite is Suite.COMPILED
        advice = _advise_compiled(row.verdict) if compiled else _advise(row, run)
        if _find_ranks(row):
            advice = say("repeat it with all of its ranks."), _RANKS
        title = say("{verdict}, compiled", verdict=row.verdict) if compiled else str(row.verdict)
        if advice:
            first.setdefault((title, advice), row)
    order = list(_advise_by_verdict())
    ranked = sorted(first.items(), key=lambda item: order.index(item[1].verdict))
    steps = [NextStep(title, advice, _fill(command, row, run)) for (title, (advice, command)), row in ranked]
    failing = sum(row.gate is Gate.FAILS for _, row in ranked)
    slow = ", ".join(dict.fromkeys(str(row.verdict) for row in judgements.rows if row.suggested))
    meant = (NextStep(slow, plain(text), "\n".join(lines)) for text, lines in make_pastings(judgements))
    return (*steps[:failing], *meant, *steps[failing:])


def _advise(row: Judgement, run: Run) -> _Advice | None:
    """By the reason if that asks for something else than its verdict usually does. None if its sentence is enough."""
    kind = row.reasons[0].kind if row.reasons else ""
    if kind in _TOLD or row.suite is Suite.SUITES or is_model(row.op):  # a model is no op that could be checked alone
        return None
    if row.suite is Suite.ACCURACY and row.verdict is Verdict.INCONCLUSIVE:  # nothing of it was timed
        return None
    if kind in _MOVED:
        why = say("see what the environment moved; `--write --why TEXT` stores it as a step.")
        return why, "accept --environment"
    if kind == "control_failed":
        why = say(
            "kernel and base do the same work here, so it is the measurement that is off: see whether it can be "
            "trusted."
        )
        return why, "doctor\ndoctor --selftest OP"
    if kind == "duel_undecided":
        why = say("look for throttling and other processes, then time it beside the base once more.")
        return why, f"doctor\n{_AGAIN}"
    if kind == "bandwidth_low":  # an expected entry takes what misses this limit, and is shown beside it
        return say("see where its limit comes from."), _LIMITS
    if kind.startswith(_RELAXABLE):
        return say("see where its limit comes from; if the change is meant, relax it for a time."), _LIMITS
    if row.verdict in _SLOWER and _list_places(run, row.op):
        # What is not committed is in no revision that could be tried.
        if run.environment.dirty or not run.environment.commit:
            return say("read what the change does, here its first lines."), _DIFF
        why = say("read what the change does, here its first lines; of several commits, bisect finds the one.")
        return why, f"{_DIFF}\n{_BISECT}"
    return _advise_by_verdict().get(row.verdict)


def _find_ranks(row: Judgement) -> str | None:
    """How many ranks a row is about, if it is about a group: its case then begins with them."""
    ranks = str(row.reasons[0].facts.get("ranks")) if row.reasons else None
    return ranks if (row.case or "").partition(",")[0] == f"ranks={ranks}" else None


def _advise_by_verdict() -> dict[Verdict, _Advice]:
    """The gravest first."""
    quieter = f"doctor\n{_AGAIN} --budget"
    expected = say(
        "its entry holds until the day in its sentence, warns for two weeks more and then fails; once the change is "
        "merged, store the new numbers and delete the entry."
    )
    return {
        Verdict.REGRESSED: (say("see every look at it; after a change, `perfci check` the same case again."), _SHOW),
        Verdict.WRONG: (say("repeat exactly the inputs that its sentence names: values, layout and seed."), _SAME),
        Verdict.TOO_SLOW: (say("see how far it is from what `thresholds/` asks for."), _SHOW),
        Verdict.ERROR: (say("read the message in the op's section; this repeats it alone."), _SAME),
        Verdict.INCONCLUSIVE: (say("look for throttling and other processes, then give it more time."), quieter),
        Verdict.TAIL: (say("see which launches, blocks or processes take longer than the base's."), _SHOW),
        Verdict.DRIFTED: (say("driver, board or reference moved; if that was meant, store the new numbers."), _ACCEPT),
        Verdict.STALE: (say("the stored baseline cannot speak here; this stores one that can."), _ACCEPT),
        Verdict.SUSPECT: (say("read what was seen before believing the time."), _SHOW),
        Verdict.EXPECTED: (expected, _ACCEPT),
        Verdict.REMOVED: (say("if the case went on purpose, store the run without it."), _ACCEPT),
        Verdict.NEW: (say("once its numbers are what you want, store them as the baseline."), _ACCEPT),
    }


def _advise_compiled(verdict: Verdict) -> _Advice | None:
    if verdict is Verdict.REGRESSED:
        return phrase("see what grew under *Compiled kernels*; after a change, compile it again."), _COMPILE
    if verdict is Verdict.ERROR:
        return say("its sentence has the message; this compiles it alone."), _COMPILE
    if verdict is Verdict.INCONCLUSIVE:
        return say("only a device can tell what the call does: check it on one."), _AGAIN
    return None


def _fill(advised: str, row: Judgement, run: Run) -> str:
    """The commands for this row. A row about a whole op has no case to name."""
    ranks = _find_ranks(row)
    options: dict[str, str | None] = {
        "--size": ranks,
        "OP": row.op,
        "--op": row.op,
        "--case": _name_case(row, ranks),
        "--seed": str(next((op.seed for op in run.ops if op.op == row.op and op.seed is not None), run.plan.seed)),
        "--budget": units.significant(4 * run.plan.budget_s),
        "--target": row.target,
        **_name_base(run, row),
    }
    if row.suite is Suite.ACCURACY:
        wider = " ".join(option for option in _WIDER if option in run.command.split())
        advised = advised.replace(_SAME, f"{_SAME} {wider}")
    if row.suite is Suite.COMPILED:  # what is not known of it, an accelerator shows
        run = replace(run, command="")
    return "\n".join(
        _write_diff(run, row.op) if line == _DIFF else _write(line.split(), options, run)
        for line in advised.split("\n")
    )


def _name_case(row: Judgement, ranks: str | None) -> str | None:
    """The case of a row as --case takes it: of a group without its ranks, none of what no suite has."""
    case = row.case or ""
    if ranks is not None:
        return case.partition(",")[2] or None
    return None if case.startswith(_WATCHED) or _PLACED in case else row.case


def _write_diff(run: Run, op: str) -> str:
    """The command of git's that shows what an op's files differ by from the base's."""
    project = commands.get_reader().project
    commit = run.plan.base.commit[:12] if run.plan.base else "HEAD"
    words = ["git", *(["-C", project] if project else []), "diff", commit, "--", *_list_places(run, op)]
    return shlex.join(map(plain, words))


def _list_places(run: Run, op: str) -> list[str]:
    """The op's folder and the files that it shares, if they differ from the base's."""
    base = next((planned.base for planned in run.plan.ops if planned.op == op), None)
    places = dict[str, None]()
    for name in base.changed if base and run.plan.base else ():
        parts = name.split("/")[:-1]
        places["/".join(parts[: parts.index(op) + 1]) if op in parts else name] = None
    return list(places)[:PLACES]


def _write(words: Sequence[str], values: Mapping[str, str | None], run: Run) -> str:
    """A command of these words, with the values of options and arguments. An option without a value is left out."""
    found: list[str] = []
    for word in words:
        value = values.get(word, word)
        if value is not None:
            found += [word, plain(value)] if word in values and word.startswith("-") else [plain(value)]
    with commands.reading(commands.get_reader().asked_for(run)):
        return commands.write(*found)


def show(run: Run, op: str, case: str) -> str:
    """Returns the command that shows every look at a case."""
    return _write(_SHOW.split(), {"--op": op, "--case": case}, run)


def repeat(run: Run) -> str:
    """Returns the commands that repeat a run against the same base with the same inputs: one, or one a seed."""
    if run.plan.again:
        seed = "" if run.seed is None or "--seed" in run.command else f" --seed {run.seed}"
        return run.command + seed
    ops, usual = [op.op for op in run.plan.ops or run.ops if not is_model(op.op)], run.plan.budget_s == DEFAULT_BUDGET_S
    values: dict[str, str | None] = {"--case": run.plan.filter, **_name_base(run)}
    rest = [word for key, text in run.plan.thresholds.items() for word in ("--threshold", f"{key}={text}")]
    rest = [*_BASE.split(), *rest, *(["--backend", "all"] if run.plan.peers else [])]
    if run.static and is_only_compiled(run):
        values["--target"] = ",".join(run.static.targets)
        return _write(["static", *ops, "--case", "--target", *rest], values, run)
    values["--budget"] = None if usual else units.significant(run.plan.budget_s)
    seeds, groups = {op.op: op.seed for op in run.ops}, dict[int | None, list[str]]()
    for op in ops:
        groups.setdefault(seeds.get(op) if run.seed is None else run.seed, []).append(op)
    lines = [
        _write(
            ["check", *named, "--case", "--seed", "--budget", *rest],
            {**values, "--seed": None if seed is None else str(seed)},
            run,
        )
        for seed, named in groups.items()
    ]
    if (left := len(lines) - MOST_ENTRIES) > 0:
        told = say("Ops that are left out here: {count}; run.json has the seed of each.", count=left)
        lines = [*lines[:MOST_ENTRIES], f"# {told}"]
    return "\n".join(lines)


def _name_base(run: Run, row: Judgement | None = None) -> dict[str, str | None]:
    """The options that name the same base. The commit of the baselines is found without them."""
    base = run.plan.base
    if base is None or base.how == "baseline":
        return dict.fromkeys(_BASE.split())
    # Each case of a run that was made again may have a base of its own.
    again = run.plan.again.by_case.get((row.op, row.case or "")) if run.plan.again and row else None
    commit = again.commit if again and again.commit else base.commit
    every = "all" if run.plan.duel is DuelWhat.ALL else None
    return {"--against": commit[:12], "--duel": every, "--base-python": base.python}


def is_only_compiled(run: Run) -> bool:
    """Whether nothing of the run was launched: its ops were compiled without a device."""
    return run.static is not None and not run.ops


def make_pastings(judgements: Judgements) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The entries that would make this run's slow-downs EXPECTED: where they are to be put, and their lines."""
    suggested = sorted((row.suggested for row in judgements.rows if row.suggested), key=lambda entry: entry.file)
    for file, group in groupby(suggested, lambda entry: entry.file):
        entries = [entry.line for entry in group]
        text = say(
            "If the slow-down is meant: in a merge request, agree on it by the entry below; on the default branch, "
            "store it by `perfci accept --slower --why TEXT`. Add this to "
            "{file}, in the place of an entry for the same case, with the reason filled in; the owner of that file "
            "approves it with the change:",
            file=plain(file),
        )
        if (left := len(entries) - MOST_ENTRIES) > 0:
            text = say("Entries that are left out here: {count}; --format json has them all.", count=left) + " " + text
        yield text, (KEY, *entries[:MOST_ENTRIES])
