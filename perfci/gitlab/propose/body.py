"""The words of a proposal: title, commit message, and the merge request's description. Pure; all names are foreign."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from perfci.core import units
from perfci.core.model import Baseline, BaselineCase, Fact
from perfci.core.wording import say
from perfci.gitlab.note.markup import code
from perfci.gitlab.propose.files import File, Kind
from perfci.gitlab.propose.merging import baseline, history
from perfci.gitlab.propose.tightening import Moved
from perfci.report.text import plain

MARKER = "<!-- perfci:proposal -->"
"""The description's first line, which no reader sees: by it perfci knows its own merge requests."""

TRAILER = "Perfci-Proposal"
"""In the message of every commit of perfci's: from which commit's run it comes."""

ROWS = 300
"""Most cases in the description; those that moved most come first."""

TITLE = 120
"""Characters."""


@dataclass(frozen=True)
class CaseMoved:
    """A case whose stored median is another now."""

    op: str
    device: str
    case: str
    before_us: float | None
    after_us: float | None
    """None where the baseline has the case no more"""

    @property
    def change(self) -> float | None:
        """Ratio - 1; plus is slower. None where one side is not known."""
        return self.after_us / self.before_us - 1 if self.before_us and self.after_us else None


@dataclass(frozen=True)
class Proposal:
    """What is proposed, for people."""

    cases: tuple[CaseMoved, ...]
    same: int
    """cases whose stored median did not move, or by less than is shown"""
    thresholds: tuple[Moved, ...]
    runs: int
    """new lines of histories"""
    files: tuple[str, ...]


def proposal(changed: Sequence[File], before: Mapping[str, bytes], thresholds: Sequence[Moved]) -> Proposal:
    """What changed files say otherwise than those before, by path."""
    moved: list[CaseMoved] = []
    runs = 0
    for file in changed:
        old = before.get(file.path)
        if file.kind is Kind.BASELINE:
            moved += _cases(file, baseline(file, old) if old is not None else None, baseline(file, file.content))
        if file.kind is Kind.HISTORY:
            known = {run.run for run in (history(file, old) or ())} if old is not None else set()
            runs += sum(run.run not in known for run in history(file, file.content) or ())
    shown = [case for case in moved if case.change is None or abs(case.change) >= 5e-4]
    return Proposal(
        tuple(sorted(shown, key=_rank)),
        len(moved) - len(shown),
        tuple(thresholds),
        runs,
        tuple(f.path for f in changed),
    )


def _rank(case: CaseMoved) -> tuple[float, str, str, str]:
    """Those that became slower most come first, then the others by how far they moved."""
    change = case.change
    weight = 1e9 if change is None else abs(change) + (1e6 if change > 0 else 0.0)
    return -weight, case.op, case.device, case.case


def _cases(file: File, before: Baseline | None, after: Baseline | None) -> Iterator[CaseMoved]:
    old, new = _medians(before), _medians(after)
    for case in dict.fromkeys((*new, *old)):
        if old.get(case) != new.get(case) or case not in old:
            yield CaseMoved(file.op, file.device, case, old.get(case), new.get(case))


def _medians(found: Baseline | None) -> Mapping[str, float]:
    return {case.case: _median(case) for case in found.cases if case.blocks} if found else {}


def _median(case: BaselineCase) -> float:
    return statistics.median(block.kernel_us for block in case.blocks)


# --- words ------------------------------------------------------------------------------------------------------------


def title(wanted: str | None, found: Proposal) -> str:
    """One line, of the merge request and the commit."""
    if wanted:
        return plain(wanted, TITLE)
    facts: dict[str, Fact] = {
        "cases": len(found.cases) + found.same,
        "thresholds": len(found.thresholds),
        "runs": found.runs,
    }
    if found.thresholds:
        return say("perfci: baselines of {cases:case|cases}, thresholds tightened: {thresholds}", **facts)
    return say("perfci: baselines of {cases:case|cases}, runs in the history: {runs}", **facts)


def message(heading: str, base: str) -> str:
    """The commit's; by its last line perfci knows it again."""
    return f"{heading}\n\n{TRAILER}: {base}\n"


def is_own(text: str) -> bool:
    """Whether a commit's message says that perfci made it."""
    lines = text.strip().splitlines()
    return bool(lines) and lines[-1].startswith(f"{TRAILER}: ")


def description(found: Proposal, base: str) -> str:
    """Of the merge request, in Markdown; no line begins with foreign text, since there a slash would be a command."""
    parts = (
        MARKER,
        say("The run of commit {commit} on the main branch measured what is stored here anew.", commit=code(base[:12])),
        _baselines(found),
        _tightened(found.thresholds),
        say("Histories: {runs:more run|more runs}.", runs=found.runs) if found.runs else "",
        say(
            "Merge it to hold later runs against these numbers. Left open it is brought up to date by the next run; "
            "closed it is proposed anew, as long as the numbers differ."
        ),
        _files(found.files),
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def _baselines(found: Proposal) -> str:
    if not found.cases and not found.same:
        return ""
    heads = (say("op"), say("case"), say("device"), say("before"), say("after"), say("change"))
    lines = [heads, ("---", "---", "---", "--:", "--:", "--:"), *map(_row, found.cases[:ROWS])]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines) if found.cases else ""
    more = len(found.cases) - ROWS
    left = say("Cases left out here: {count}; the files have them.", count=more) if more > 0 else ""
    same = say("Cases stored anew whose median stayed: {count}.", count=found.same) if found.same else ""
    return "\n\n".join(part for part in (say("### Baselines"), table, left, same) if part)


def _row(case: CaseMoved) -> tuple[str, ...]:
    change = units.percent(case.change, signed=True) if case.change is not None else "-"
    return code(case.op), code(case.case), code(case.device), _time(case.before_us), _time(case.after_us), change


def _time(value: float | None) -> str:
    return units.time(value) if value is not None else "-"


def _tightened(found: Sequence[Moved]) -> str:
    if not found:
        return ""
    heads = (say("op"), say("case"), say("threshold"), say("before"), say("after"))
    lines = [heads, ("---", "---", "---", "--:", "--:"), *map(_threshold, found[:ROWS])]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    more = len(found) - ROWS
    left = say("Thresholds left out here: {count}; the files have them.", count=more) if more > 0 else ""
    return "\n\n".join(part for part in (say("### Thresholds, tightened"), table, left) if part)


def _threshold(each: Moved) -> tuple[str, ...]:
    case = code(each.case) if each.case else say("all")
    return code(each.op), case, code(each.key), _number(each.key, each.before), _number(each.key, each.after)


def _number(key: str, value: float | None) -> str:
    """As the files write it: ratios in per cent, all else as it is."""
    if value is None:
        return say("none")
    return units.significant(value) if key.startswith(_PLAIN) else units.percent(value)


_PLAIN = ("speedup", "span_floor_us", "floor_us", "spill_bytes")
"""What thresholds that are no ratios begin with."""


def _files(paths: Sequence[str]) -> str:
    shown = [code(path) for path in paths[:ROWS]]
    if len(paths) > ROWS:
        shown.append(say("and {count} more", count=len(paths) - ROWS))
    listed = "\n".join(f"- {each}" for each in shown)
    return f"<details>\n<summary>{say('Files')}</summary>\n\n{listed}\n\n</details>"
