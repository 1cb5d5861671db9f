import math

import pytest

from perfci.core.model import Interval, Verdict
from perfci.report.figures.duels import Duel, duels
from perfci.report.figures.sheet import Band


def panel(case="n=1", processes=((0.01,) * 4,), **changes):
    found = duels([Duel(case, None, processes, 0.015, Interval(0.01, 0.0, 0.02), **changes)], "t")
    return found.panels[0]


def test_a_long_case_keeps_its_name_and_loses_first_what_is_allowed_then_the_interval():
    assert panel("n=1").notes() == ["n=1", "+1.0 % (+0.0 % to +2.0 %), 1.5 % allowed"]
    assert panel("n=" + "1" * 60).notes() == ["n=" + "1" * 60, "+1.0 % (+0.0 % to +2.0 %)"]
    assert panel("n=" + "1" * 85).notes() == ["n=" + "1" * 85, "+1.0 %"]
    name, change = panel("n=" + "1" * 200).notes()
    assert change == "+1.0 %"
    assert "..." in name


def test_the_picture_of_duels_shades_what_is_allowed_and_half_of_it():
    bands = [mark for mark in panel().marks if isinstance(mark, Band)]

    assert [band.y for band in bands] == [pytest.approx((-1.5, 1.5)), pytest.approx((-0.75, 0.75))]


def test_every_block_is_a_point_in_per_cent_and_each_process_has_its_median():
    found = panel(processes=((0.01, 0.03, 0.02), (-0.01,)))

    first, second = found.points("blocks")
    assert first.ys == pytest.approx([100 * math.expm1(d) for d in (0.01, 0.03, 0.02)])
    assert (first.hollow, second.hollow) == (False, True)
    assert second.xs[0] > first.xs[-1] + 1
    assert [line.ys[0] for line in found.lines("median")] == pytest.approx(
        [100 * math.expm1(0.02), 100 * math.expm1(-0.01)]
    )


def test_a_verdict_that_is_not_fine_is_bold():
    case = Duel("n=1", Verdict.REGRESSED, ((0.1,) * 4,), 0.01, Interval(0.1, 0.1, 0.1))

    first = next(mark for mark in duels([case], "t").panels[0].marks if getattr(mark, "bold", False))

    assert first.text == "n=1  REGRESSED"
