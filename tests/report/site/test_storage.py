"""What an op stores in low precision, on its page of the site."""

from dataclasses import replace

import pytest

from perfci.report.site import cases, drawings, trend
from perfci.report.site.kept import Kept, Place
from perfci.report.site.trend import State
from tests.history_examples import accepted
from tests.storage_examples import changed, line, sound

TENSOR = sound()[0]


def op(runs=12, **own):
    """An op whose tensor has these figures, functions of the run's number."""
    figures = [{name: at(number) for name, at in own.items()} for number in range(runs)]
    lines = [line(number, [changed(TENSOR, **each)]) for number, each in enumerate(figures)]
    timed = [replace(accepted(number), stored=each.stored) for number, each in enumerate(lines)]
    return trend.op(Kept(Place("nvidia-h200", "op"), tuple(timed)))


def row(found):
    return next(each for each in cases.rows(found, drawings.order(found.kept.runs)) if TENSOR.case in each.key)


def test_a_stored_tensor_has_a_row_behind_the_cases_that_were_timed():
    found = op()
    shown = cases.rows(found, drawings.order(found.kept.runs))

    assert [each.state for each in shown][-1] is State.ACCURACY
    assert TENSOR.case in shown[-1].key
    assert shown[-1].cells[4].number == 12


def test_its_change_is_that_of_the_99th_percentile():
    assert row(op(p99=lambda number: 1 + 0.5 * (number >= 6))).cells[2].number == 0.5
    assert "changed by +50.0 %" in row(op(p99=lambda number: 1 + 0.5 * (number >= 6))).detail.why[1]


def test_three_trends_are_drawn_over_the_runs():
    found = op(clip_ratio=lambda number: 0.001 * number, divergence=lambda number: 0.01)
    (chart,) = row(found).detail.charts

    assert len(chart.sheet.panels) == 3
    columns = {column.name: column.values for column in row(found).detail.blocks if column.values}
    assert columns["clipped, %"][11] == pytest.approx(1.1)
    assert columns["divergence, nats"] == (0.01,) * 12


def test_the_command_beside_it_asks_for_the_tensor_alone():
    ((_, command),) = row(op()).detail.commands

    assert command == f"perfci check op --case {TENSOR.case} --suite accuracy"


def test_an_op_that_stores_nothing_has_no_such_row():
    found = trend.op(Kept(Place("nvidia-h200", "op"), (accepted(0), accepted(1))))

    assert found.stored == ()
