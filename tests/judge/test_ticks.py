"""A timer that is coarser than its floor raises it: what no tick shows is not called equal."""

from dataclasses import replace

import numpy as np
import pytest

from perfci.core.model import ArmBlock, Block, Verdict
from perfci.core.wording import sentence
from perfci.judge.compare import find_step
from perfci.statistics import exact
from tests.decision_examples import against, duel_plan, environment, judged, row_of, run


def _blocks(ratio=1.0, tick_us=1.0, us=5.0, count=48):
    rng = np.random.default_rng(3)

    def arm(length_us):
        return np.round(length_us * rng.lognormal(0, 0.06, 30) / tick_us) * tick_us

    blocks = []
    for index in range(count):
        arms = {"kernel": arm(us * ratio), "base": arm(us), "reference": arm(8.0)}
        shifts = {f"kernel/{other}": exact.launch_shift(arms["kernel"], arms[other]) for other in ("base", "reference")}
        summed = {name: ArmBlock(exact.summary(times)) for name, times in arms.items()}
        blocks.append(Block(index % 12, index // 12, 0.0, summed, shifts))
    return tuple(blocks)


@pytest.mark.parametrize(("tick_us", "step"), [(1.0, 1.0), (0.5, 0.5), (0.032, 0.0), (1e-3, 0.0)])
def test_the_step_is_seen_where_it_is_more_than_the_floor(tick_us, step):
    assert find_step(run(against(_blocks(tick_us=tick_us)), planned=duel_plan()), 0.1) == pytest.approx(step)


def test_launches_that_take_one_of_two_times_by_no_grid_show_no_step():
    block = _blocks(count=1)[0]
    arm = ArmBlock(exact.summary([10.3] * 20 + [13.1] * 5))

    assert find_step(run(against((Block(0, 0, 0.0, {"kernel": arm, "base": arm}, block.shifts),))), 0.1) == 0.0


@pytest.mark.parametrize(("ratio", "verdict"), [(1.1, Verdict.PASS), (1.4, Verdict.REGRESSED)])
def test_a_short_kernel_is_allowed_a_step_and_found_beyond_two(ratio, verdict):
    judgements = judged(run(against(_blocks(ratio)), planned=duel_plan(), now=replace(environment(), timer="activity")))

    row = row_of(judgements)
    assert (row.verdict, round(row.reasons[0].facts["tau"], 2)) == (verdict, 0.2)
    (note,) = [note for note in judgements.notes if note.kind == "timer_steps"]
    assert (
        sentence(note)
        == "The timer counts in steps of 1.00 us, so a kernel of 5.00 us is found slower from +40.0 % on."
    )


def test_ticks_that_widen_no_allowance_are_not_mentioned():
    judgements = judged(
        run(against(_blocks(us=400.0)), planned=duel_plan(), now=replace(environment(), timer="activity"))
    )

    assert row_of(judgements).verdict is Verdict.PASS
    assert "timer_steps" not in [note.kind for note in judgements.notes]
