"""Everything that needs attention, and its cause: verdicts that warn or fail, and steps that nothing explains."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perfci.core.model import Gate, Judgements, Run, Suite, Verdict
from perfci.core.wording import join, sentence
from perfci.extensions.history.release import COMMIT
from perfci.report import rows
from perfci.report.text import plain

LIMIT = 1600  # characters of the sentences of an alert


@dataclass(frozen=True)
class Alert:
    """A verdict, or a step."""

    device: str  # key
    op: str
    case: str  # empty if it is about the whole op
    state: Verdict | str  # "stepped" for a step
    gate: Gate
    change: float | None  # ratio - 1, plus is slower
    commits: str  # between which it came, or that it was seen at
    why: str  # plain sentences: what, since when, the likely cause, what to do next
    kind: str = ""  # of the reason that decided, or `accuracy` for all that follows from wrong answers
    others: tuple[str, ...] = ()  # more cases of the op with the same state, kind and commits

    @property
    def key(self) -> tuple[str, str, str]:
        """Its subject."""
        return self.device, self.op, self.case


def list_alerts(judged: Iterable[tuple[Run, Judgements]], stored: Iterable[Any] = ()) -> list[Alert]:
    """Returns the alerts of runs and of a store's verdicts. Of two verdicts about a case the first one counts."""
    alerts: dict[tuple[str, ...], Alert] = {}
    for run, judgements in judged:
        base, head = run.plan.base, (run.environment.commit or "-")[:COMMIT]
        commits = f"{base.commit[:COMMIT]}..{head}" if base else head
        device = run.environment.device.key
        for row in judgements.rows:
            change, why = rows.find_change(row), join_sentences(map(sentence, row.reasons))
            about = (device, row.op, row.case or "")
            number, kind = change.value if change else None, row.reasons[0].kind if row.reasons else ""
            kind = _name_kind(kind, str(row.suite))
            alert = Alert(*about, row.verdict, row.gate, number, commits, why, kind)
            alerts.setdefault((*about, str(row.suite), row.target or ""), alert)
    for row in stored:
        about = (row.device, row.op, row.case_id)
        # A newer perfci may know more verdicts.
        state = next((verdict for verdict in Verdict if verdict == row.verdict), plain(row.verdict, 40))
        gate, commits = Gate(row.gate), (row.revision or "-")[:COMMIT]
        kind = _name_kind(row.reason or "", row.suite)
        alert = Alert(*about, state, gate, row.change, commits, join_sentences([row.said or ""]), kind)
        alerts.setdefault((*about, row.suite, row.target), alert)
    return [alert for alert in alerts.values() if alert.gate is not Gate.OK]


def _name_kind(kind: str, suite: str) -> str:
    """Verdicts that share a cause: those of an op's checks, and that it was not timed because of them."""
    return Suite.ACCURACY if kind == "not_timed" else suite if suite == Suite.ACCURACY else kind


def join_sentences(texts: Iterable[str]) -> str:
    """Returns plain sentences, each once."""
    return plain(join(dict.fromkeys(texts)), LIMIT)


def sort_alerts(alerts: Sequence[Alert], steps: Sequence[Alert]) -> list[Alert]:
    """Returns the gravest first, each with the other cases of its op that are alike.

    A step of a case that has a verdict too adds its sentences to that.
    """
    more, keys = {step.key: step.why for step in steps}, {alert.key for alert in alerts}
    every = [replace(alert, why=join_sentences([alert.why, more.get(alert.key, "")])) for alert in alerts]
    every += [step for step in steps if step.key not in keys]
    alike: dict[tuple[str, ...], list[Alert]] = {}
    for one in sorted(every, key=lambda one: (one.gate != Gate.FAILS, -(one.change or 0.0), one.key)):
        alike.setdefault((one.device, one.op, one.state, one.gate, one.kind, one.commits), []).append(one)
    # One about the whole op is about all its cases.
    return [replace(first, others=tuple(alert.case for alert in rest if first.case)) for first, *rest in alike.values()]
