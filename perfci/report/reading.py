"""How to read a report: what it has none of is left out."""

from __future__ import annotations

from collections.abc import Iterator

from perfci.core.model import Judgements, Run, Suite, Verdict
from perfci.core.wording import say
from perfci.report import means
from perfci.report.steps import only_compiled


def reading(run: Run, judgements: Judgements) -> Iterator[str]:
    """A paragraph a subject that the page has, as Markdown."""
    yield say(
        "Verdicts come first, the gravest on top; each names its reason with its numbers. REGRESSED, WRONG, TOO_SLOW "
        "and ERROR fail the gate, INCONCLUSIVE, DRIFTED, STALE, SUSPECT and REMOVED warn."
    )
    if not only_compiled(run):
        yield from _measured()
    if any(len(speedups) > 1 for speedups in means.sound(judgements.rows).values()):
        yield say(
            "The *geometric mean* of speedups has the interval that follows from the cases' own, taken as independent; "
            "it is about these cases and no others."
        )
    if any(row.comparison and row.comparison.duel for row in judgements.rows):
        yield say(
            "Where a case was timed beside the base, as its reason says, *change* is against the base and not against "
            "the baseline. A case is cleared as soon as its blocks show no slow-down, after four of them as a rule; it "
            "fails only if several processes agree. With fewer than six blocks the range beside the change spans them "
            "all, which holds at 88 % for four."
        )
    if any(row.verdict is Verdict.UNCHANGED and row.suite is not Suite.COMPILED for row in judgements.rows):
        yield say(
            "UNCHANGED: the files are the base's own, or the call does the same device work, launch for launch, so the "
            "change cannot have made it slower. Such cases are not timed, but for a few as a control of the "
            "measurement itself."
        )
    if run.static:
        yield say(
            "Rows *compiled for* a target are about the code that the compiler makes. It has no noise, and says no "
            "time."
        )


def _measured() -> Iterator[str]:
    yield say(
        "*Change* is current time / baseline time - 1: plus is slower. *Speedup* is reference time / kernel time: "
        "above 1 is good. The ranges beside them are 95 % confidence intervals unless a sentence says otherwise. Of a "
        "case that was measured again, the change is that of the last fresh process; its sentence has the first look "
        "and all of them."
    )
    yield say(
        "One block is one observation: fresh buffers, then rounds in which every arm is launched once in random "
        "order. Kernel and reference times are medians of block medians."
    )
    yield say(
        "Percentiles, relative standard deviation (RSD) and outliers describe the launches; no verdict rests on them."
    )
    yield say('Speed of a wrong kernel means nothing, so a WRONG case is not timed and shows "-".')
