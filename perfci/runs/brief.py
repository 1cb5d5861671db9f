"""Gathers what is known of an op: its words and suites, its times, its last profile, and the rounds so far."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from perfci import store
from perfci.core.errors import PerfciError
from perfci.core.files import read_regular
from perfci.core.model import Environment, Interval, Limits, PerformanceCase, PlannedOp, Reason, Suite
from perfci.core.settings import Settings
from perfci.ops.discover import OpFolder, select
from perfci.ops.spec import matches
from perfci.report.brief import Brief, BriefCase
from perfci.report.speed import find_rates
from perfci.runs import flow
from perfci.runs.bench import Listener
from perfci.runs.decide import decide
from perfci.runs.effective_thresholds import in_force
from perfci.runs.plan import Request
from perfci.statistics import exact
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
    words = _read_words(folder)
    cases = [declared.get(case) or PerformanceCase(case) for case in planned.performance]
    times = _find_times(settings, folder.op)
    parameters: dict[str, dict[str, None]] = {}
    for case in planned.performance:
        for name, _, value in (part.partition("=") for part in case.split(",")):
            parameters.setdefault(name, {})[value] = None
    return Brief(
        op=folder.op,
        words=words or "",
        differs=tuple(check_words(words, planned))
        if words is not None
        else (Reason("brief_wordless", {"op": folder.op, "file": f"{folder.op}.md"}),),
        call=_write_call(planned),
        parameters={name: tuple(values) for name, values in parameters.items()},
        checks=len(planned.accuracy),
        device=times.where.device.key if times.where else None,
        source=times.source,
        cases=tuple(_place_cases(settings, folder.op, cases, times)),
        profile=None,
        rounds=(),
        rounds_left=0,
        files={},
    )


def check_words(words: str, op: PlannedOp) -> Iterator[Reason]:
    """Yields what an op's page says in backticks and its suites do not have: its call, dtypes, and shapes of cases.

    A shape is what --case takes, with a name that cases have: `rows=4096,cols=1024`.
    """
    parts = [part.partition("=") for case in (*op.performance, *op.accuracy) for part in case.split(",")]
    names, values = {name for name, _, _ in parts}, {value for _, _, value in parts}
    for span in dict.fromkeys(" ".join(each.split()) for each in _SPAN.findall(words)):
        facts = {"file": f"{op.op}.md", "text": span}
        if span.startswith(f"{op.op}(") and span.endswith(")"):
            if span != _write_call(op):
                yield Reason("brief_call", {**facts, "call": _write_call(op)})
        elif _DTYPE.fullmatch(span):
            if span not in values:
                yield Reason("brief_dtype", facts)
        elif (
            re.fullmatch(r"(?:\w+=[^=\s]+)+", span)
            and names.intersection(re.findall(r"(\w+)=", span))
            and not any(matches(case, span) for case in (*op.performance, *op.accuracy))
        ):
            yield Reason("brief_case", facts)


def _write_call(op: PlannedOp) -> str:
    # Of defaults nobody knows any more which lists were tuples, as most are.
    return f"{op.op}({', '.join(op.signature)})".translate(str.maketrans("[]", "()"))


def _read_words(op: OpFolder) -> str | None:
    """Returns the op's page. None if it has none."""
    try:
        return read_regular(op.folder / f"{op.op}.md").decode(errors="replace")
    except OSError:
        return None


@dataclass(frozen=True)
class _Times:
    """What was measured of an op, and where."""

    source: Reason
    where: Environment | None = None
    created: str | None = None
    limits: Limits = field(default_factory=Limits)
    cases: Mapping[str, BriefCase] = field(default_factory=dict)


def _find_times(settings: Settings, op: str) -> _Times:
    """Returns those of the last run, else those of the newest baseline."""
    path = settings.reports / store.RUN_FILE
    run = store.read_run(path) if path.exists() else None
    if run and any(case.blocks for each in run.ops if each.op == op for case in each.performance):
        facts = {"run": run.id, "device": run.environment.device.name, "created": run.created}
        rows = [row for row in decide(run, settings).rows if row.op == op and row.suite is Suite.PERFORMANCE]
        cases = {}
        for row in rows:
            if row.case and (seen := row.comparison):
                cases[row.case] = BriefCase(
                    row.case,
                    us=seen.kernel_us,
                    reference_us=seen.reference_us,
                    speedup=seen.speedup,
                    verdict=row.verdict,
                )
        return _Times(Reason("brief_run", facts), run.environment, run.created, run.limits, cases)
    baselines = [store.read_baseline(path) for path in settings.baselines.glob(f"*/{op}.json")]
    newest = max((each for each in baselines if each.runs), key=lambda each: each.runs[-1].created, default=None)
    if newest is None:
        return _Times(Reason("brief_untimed", {"op": op}))
    last, cases = newest.runs[-1], {}
    for case in newest.cases:
        us, reference_us = (
            find_median(getattr(each, name) for each in case.blocks) for name in ("kernel_us", "reference_us")
        )
        d = exact.location([each.shift for each in case.blocks])
        speedup = Interval(math.exp(-d.value), math.exp(-d.high), math.exp(-d.low), d.confidence)
        cases[case.case] = BriefCase(case.case, us=us, reference_us=reference_us, speedup=speedup)
    facts = {"device": last.environment.device.name, "created": last.created}
    return _Times(Reason("brief_baseline", facts), last.environment, last.created, cases=cases)


def _place_cases(
    settings: Settings, op: str, declared: Iterable[PerformanceCase], times: _Times
) -> Iterator[BriefCase]:
    """Yields the cases with what their suite declares, their targets, and where they are below the ceilings."""
    limits = in_force(settings, times.where, times.created).limits if times.where else load(settings.thresholds)
    for case in declared:
        found = times.cases.get(case.case, BriefCase(case.case))
        rates = find_rates(case, found.us, times.limits) if found.us else {}
        shares = {"memory": rates.get("of_copy"), "arithmetic": rates.get("of_matmul")}
        known = {name: share for name, share in shares.items() if share}
        bound = max(known, key=lambda name: known[name], default=None)
        yield replace(
            found,
            bytes_moved=case.bytes_moved,
            flops=case.flops,
            intensity=case.flops / case.bytes_moved if case.flops is not None and case.bytes_moved else None,
            target=limits.for_case(op, case.case).speedup,
            bound=bound,
            share=known[bound] if bound else None,
        )
