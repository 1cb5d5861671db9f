"""Gathers what is known of an op: its words and suites, its times, its last profile, and the rounds so far."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from perfci import store
from perfci.core.errors import PerfciError
from perfci.core.model import Baseline, Interval, PerformanceCase, PlannedOp, Reason, Run, Suite
from perfci.core.settings import Settings
from perfci.ops.discover import OpFolder, ops, select
from perfci.ops.fingerprint.tree import Tree
from perfci.ops.spec import matches
from perfci.report.brief import Brief, BriefCase
from perfci.report.speed import find_rates
from perfci.runs import flow
from perfci.runs.bench import Listener
from perfci.runs.decide import decide
from perfci.runs.effective_thresholds import in_force
from perfci.runs.plan import Request
from perfci.runs.profile import read_profile
from perfci.statistics import exact
from perfci.store.logbook import read_logbook
from perfci.store.past.lines import find_median
from perfci.thresholds.read import load
from perfci.worker.protocol import Message, Prepared

_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_DTYPE = re.compile(r"bool|(?:b?float|u?int|complex)\d+(?:_\w+)?")


def brief(settings: Settings, op: str, device: str, listener: Listener) -> Brief:
    """Returns what is known of an op, whose suites are imported for it. Raises PerfciError if they cannot be."""
    [folder] = select(settings, [op])
    declared: dict[str, PerformanceCase] = {}

    def hear(message: Message) -> None:
        if isinstance(message, Prepared):
            declared[message.case.case] = message.case
        listener(message)

    [planned] = flow.describe(settings, Request((folder.op,), device=device), hear).ops
    if planned.failure:
        raise PerfciError(planned.failure.kind, **planned.failure.facts)
    page = folder.folder / f"{folder.op}.md"
    words = page.read_text(encoding="utf-8", errors="replace") if page.is_file() and not page.is_symlink() else None
    run, baseline = _read_run(settings, folder.op), _read_baseline(settings, folder.op)
    cases = [declared.get(case) or PerformanceCase(case) for case in planned.performance]
    logbook = read_logbook(folder.folder)
    judged = len(logbook.list_of(logbook.rounds[-1].start)) if logbook.rounds else 0
    wordless = Reason("brief_wordless", {"op": folder.op, "file": page.name})
    wrong = [wordless] if words is None else check_words(words, planned)
    return Brief(
        op=folder.op, words=words or "", warnings=(*wrong, *logbook.problems),
        call=_write_call(planned), checks=len(planned.accuracy), source=_name_source(folder.op, run, baseline),
        cases=tuple(_place_cases(settings, folder.op, cases, run, baseline)), profile=read_profile(settings, folder.op),
        rounds=logbook.rounds, rounds_left=max(settings.rounds - judged, 0), files=_list_files(settings, folder),
    )  # fmt: skip


def _list_files(settings: Settings, op: OpFolder) -> dict[str, tuple[str, ...]]:
    """Returns the files that each kind of change may touch: the kernel's, with what ops share, and tuned ones."""
    others = [each.folder for each in ops(settings) if each.op != op.op]
    needed = (settings.root / name for name in Tree(settings.root, settings.kernels).list_code(op.op, op.files[0]))
    code = [
        each for each in needed if each.is_relative_to(settings.kernels) and not any(map(each.is_relative_to, others))
    ]
    tuned = sorted((op.folder / "tuned").glob("*.json"))
    found = {"tuning": [*code, *tuned], "logic": code, "interface": [*op.files, op.folder / f"{op.op}.md"]}
    return {kind: tuple(path.relative_to(settings.root).as_posix() for path in paths) for kind, paths in found.items()}


def check_words(words: str, op: PlannedOp) -> Iterator[Reason]:
    """Yields what an op's page says in backticks and its suites do not have: its call, dtypes, and shapes of cases.

    A shape is what --case takes, with a name that cases have: `rows=4096,cols=1024`.
    """
    cases = (*op.performance, *op.accuracy)
    parts = [part.partition("=") for case in cases for part in case.split(",")]
    names, values = {name for name, _, _ in parts}, {value for _, _, value in parts}
    for span in dict.fromkeys(" ".join(each.split()) for each in _SPAN.findall(words)):
        if span.startswith(f"{op.op}(") and span.endswith(")"):
            kind, known = "brief_call", span == _write_call(op)
        elif _DTYPE.fullmatch(span):
            kind, known = "brief_dtype", span in values
        elif " " not in span and names.intersection(re.findall(r"(\w+)=", span)):
            kind, known = "brief_case", any(matches(case, span) for case in cases)
        else:
            continue
        if not known:
            yield Reason(kind, {"file": f"{op.op}.md", "text": span, "call": _write_call(op)})


def _write_call(op: PlannedOp) -> str:
    # Of defaults nobody knows any more which lists were tuples, as most are.
    return f"{op.op}({', '.join(op.signature)})".translate(str.maketrans("[]", "()"))


# --- where it stands --------------------------------------------------------------------------------------------------


def _read_run(settings: Settings, op: str) -> Run | None:
    """Returns the last run if it timed the op."""
    path = settings.reports / store.RUN_FILE
    run = store.read_run(path) if path.exists() else None
    timed = run and any(case.blocks for each in run.ops if each.op == op for case in each.performance)
    return run if timed else None


def _read_baseline(settings: Settings, op: str) -> Baseline | None:
    """Returns the baseline of the device on which the op was accepted last."""
    found = [store.read_baseline(path) for path in settings.baselines.glob(f"*/{op}.json")]
    return max((each for each in found if each.runs), key=lambda each: each.runs[-1].created, default=None)


def _name_source(op: str, run: Run | None, baseline: Baseline | None) -> Reason:
    last = run or (baseline.runs[-1] if baseline else None)
    if last is None:
        return Reason("brief_untimed", {"op": op})
    facts = {"run": last.id, "created": last.created, "device": last.environment.device.name}
    return Reason("brief_run" if run else "brief_baseline", facts)


def _list_times(settings: Settings, op: str, run: Run | None, baseline: Baseline | None) -> Iterator[BriefCase]:
    """Yields the times of the run, else of the baseline."""
    if run:
        for row in decide(run, settings).rows:
            if row.op == op and row.suite is Suite.PERFORMANCE and row.case and (seen := row.comparison):
                yield BriefCase(row.case, seen.kernel_us, seen.reference_us, seen.speedup, row.verdict)
        return
    for case in baseline.cases if baseline else ():
        d = exact.location([each.shift for each in case.blocks])
        speedup = Interval(math.exp(-d.value), math.exp(-d.high), math.exp(-d.low), d.confidence)
        us, reference_us = (
            find_median(getattr(each, name) for each in case.blocks) for name in ("kernel_us", "reference_us")
        )
        yield BriefCase(case.case, us, reference_us, speedup)


def _place_cases(
    settings: Settings, op: str, declared: Iterable[PerformanceCase], run: Run | None, baseline: Baseline | None
) -> Iterator[BriefCase]:
    """Yields the cases with what their suite declares, their targets, and where they are below the ceilings."""
    last = run or (baseline.runs[-1] if baseline else None)
    rules = in_force(settings, last.environment, last.created).limits if last else load(settings.thresholds)
    times = {each.case: each for each in _list_times(settings, op, run, baseline)}
    for case in declared:
        found = times.get(case.case, BriefCase(case.case))
        yield replace(
            found, bytes_moved=case.bytes_moved, flops=case.flops, target=rules.for_case(op, case.case).speedup,
            intensity=case.flops / case.bytes_moved if case.flops is not None and case.bytes_moved else None,
            rates=find_rates(case, found.us, run.limits) if run and found.us else {},
        )  # fmt: skip
