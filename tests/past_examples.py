"""Runs with what was accepted before them: a new driver, an accepted loss, a step, a creep; for tests of reports."""

import dataclasses
import random
from pathlib import Path

from perfci.core import settings
from perfci.core.model import Judgements, OpRun, Run, Verdict
from perfci.extensions.common.accepted_runs import Epoch, HistoryRun
from perfci.extensions.history.histories import read_histories
from perfci.extensions.history.past import Past
from tests import example_runs as examples
from tests import site_histories as histories

CASES = list(histories.SOFTMAX)
STEPPED, CREPT, TAKEN = CASES[2], CASES[3], CASES[4]
DRIVER, LOSS, STEP = 18, 26, 40
"""Runs from which on each is there."""

CREATED = "2026-05-02T09:30:00Z"


def accepted(count: int = 60) -> tuple[HistoryRun, ...]:
    """Sixty nights of softmax."""
    rng = random.Random(9)
    return tuple(_accepted(number, rng) for number in range(count))


def _accepted(number: int, rng: random.Random) -> HistoryRun:
    cases = [
        histories.case(rng, name, us * _slower(name, number), reference, moved, flops, noise=0.002)
        for name, (us, reference, moved, flops) in histories.SOFTMAX.items()
        if not (name == CASES[0] and number in {11, 12, 31})
    ]
    more = {"epoch": Epoch("float32 accumulation for bfloat16, agreed in !412", (TAKEN,))} if number == LOSS else {}
    if number in {11, 12, 31}:
        more["inconclusive"] = (CASES[0],)
    driver = "590.12.01" if number >= DRIVER else "580.65.06"
    return histories.run(number, cases, driver=driver, uuid=histories.BOARDS[number % 3 == 2], **more)


def _slower(name: str, number: int) -> float:
    slower = 0.972 if number >= DRIVER else 1.0
    if name == STEPPED and number >= STEP:
        slower *= 1.02
    if name == CREPT:
        slower *= 1 + 0.0012 * max(number - LOSS, 0)
    return slower * (1.018 if name == TAKEN and number >= LOSS else 1.0)


def softmax(**changes) -> tuple[Run, Judgements]:
    """The run of a night later, one of its cases slower, on the same kind of device."""
    cases = [
        examples.performance_case(
            name, us * _slower(name, 60) * (1.04 if name == CASES[1] else 1.0), reference / us, blocks=6
        )
        for name, (us, reference, _, _) in histories.SOFTMAX.items()
    ]
    op = OpRun("softmax", performance=tuple(cases), verify_s=3.1, measure_s=4.2)
    where = histories.environment(60, driver="590.12.01")
    slow = examples.judgement("softmax", CASES[1], Verdict.REGRESSED, examples.reason("example_slower", change=0.041))
    rows = [
        examples.judgement(
            "softmax", case.case, Verdict.PASS, examples.reason("example_same", change=0.001),
            examples.comparison("softmax", case, speedup=1.6),
        )
        for case in cases
    ]  # fmt: skip
    rows[1] = dataclasses.replace(slow, comparison=rows[1].comparison)
    return examples.run([op], where, created=CREATED, **changes), Judgements(tuple(rows))


def make_histories(run: Run, folder: Path, runs: tuple[HistoryRun, ...] | None = None) -> dict[str, Past]:
    """What the pipeline reads for a run, from a project made in the folder."""
    histories.project(folder, {("nvidia-h200", "softmax"): accepted() if runs is None else runs})
    where = settings.load(folder)
    return dict(read_histories(run, where))


def large(ops: int, cases: int, runs: int = 100) -> dict[str, tuple[HistoryRun, ...]]:
    """Histories for `examples.large`: by op, a new driver in the middle, one case of each op that crept."""
    made = {}
    for place in range(ops):
        rng = random.Random(place)
        names = [(f"rows={2 ** (c % 14)},cols={c},dtype=float16", 5.0 + c) for c in range(cases)]
        made[f"op{place}"] = tuple(
            histories.run(
                number,
                [
                    histories.case(rng, name, us * (1 + 0.001 * number * (c == 7)), 1.5 * us, 4096)
                    for c, (name, us) in enumerate(names)
                ],
                key="nvidia-h200",
                driver="590.12.01" if number >= runs // 2 else "580.65.06",
            )
            for number in range(runs)
        )
    return made
