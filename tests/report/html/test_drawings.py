from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from perfci.core.model import Interval, Limits, Verdict
from perfci.report import frame
from perfci.report.figures.duels import Duel
from perfci.report.html import drawings
from perfci.report.html.drawings import Timed
from perfci.report.rows import to_ratio
from perfci.report.scaling import scaling


@pytest.fixture
def case(examples):
    timed = examples.performance_case("rows=1", 16.0, base=True, processes=2)
    return Timed("rows=1", Verdict.PASS, timed.blocks, 15.9)


def charts_of(case):
    return {chart.sheet.title: chart for chart in drawings.charts(case)}


def test_blocks_stand_over_clock_and_temperature_on_one_axis_of_time(case):
    found = charts_of(case)["Block medians over time"].sheet

    assert [panel.notes() for panel in found.panels] == [
        ["kernel, base, us"],
        ["reference, us"],
        ["SM clock, MHz"],
        ["temperature, C"],
    ]
    assert len({(panel.x.low, panel.x.high) for panel in found.panels}) == 1
    assert [panel.x_labels for panel in found.panels] == [False, False, False, True]
    assert {(panel.box[0], panel.box[2]) for panel in found.panels} == {(0.5, 3.0)}


def test_panels_lie_below_each_other(case):
    found = charts_of(case)["Block medians over time"].sheet
    ends = [(panel.box[1], panel.box[1] + panel.box[3]) for panel in found.panels]

    assert all(upper[0] > lower[1] for upper, lower in pairwise(ends))
    assert ends[0][1] < found.height
    assert ends[-1][0] > 0.3


def test_the_baseline_is_a_line_beside_the_kernel(case):
    kernel, reference, *_ = charts_of(case)["Block medians over time"].sheet.panels

    assert [line.ys for line in kernel.lines("baseline")] == [(15.9, 15.9)]
    assert reference.lines("baseline") == []


def test_no_line_joins_two_processes(case):
    clock = charts_of(case)["Block medians over time"].sheet.panels[2]

    assert [len(line.xs) for line in clock.lines()] == [8, 8]


def test_a_device_that_tells_no_clock_has_no_panel_of_it(case):
    blocks = tuple(replace(block, state=type(block.state)()) for block in case.blocks)

    assert len(charts_of(replace(case, blocks=blocks))["Block medians over time"].sheet.panels) == 2


def test_the_description_has_the_numbers(case):
    text = charts_of(case)["Block medians over time"].text

    assert "kernel: 16 blocks, median 1" in text
    assert "MHz" in text


def test_without_launches_the_medians_of_the_blocks_are_distributed(case):
    found = charts_of(case)["Distribution of block medians"].sheet

    assert len(found.panels[0].lines("kernel")[0].xs) == 2 * 16 + 1


def test_launches_are_distributed_beside_the_blocks_of_the_baseline(case):
    launches = {"kernel": np.linspace(15, 17, 500), "reference": np.linspace(24, 26, 500)}
    found = charts_of(replace(case, launches=launches, stored=np.array([15.8, 16.1])))["Distribution of launches"].sheet

    assert len(found.panels) == 2  # the reference is far off
    assert len(found.panels[0].lines("kernel")[0].xs) == 2 * drawings.STEPS + 1
    assert len(found.panels[0].lines("baseline")) == 1
    assert found.panels[1].box[0] > found.panels[0].box[0] + found.panels[0].box[2]


def test_a_duel_is_drawn_with_what_is_allowed(case):
    duel = Duel("", Verdict.REGRESSED, ((0.04, 0.05), (0.04, 0.06)), 0.015, to_ratio(Interval(0.04, 0.03, 0.05)))
    chart = charts_of(replace(case, duel=duel))["Kernel against base, block by block"]

    (panel,) = chart.sheet.panels
    assert [len(points.xs) for points in panel.points("blocks")] == [2, 2]
    assert [name for _, name in panel.x.ticks] == ["1", "2"]
    assert "1.5 % is allowed" in chart.text


def test_a_case_without_blocks_has_no_charts():
    assert list(drawings.charts(Timed("rows=1", None, ()))) == []


def test_an_ops_sizes_fit_a_phone(examples):
    run, _ = examples.full()
    op = next(op for op in run.ops if op.op == "softmax")
    found = scaling(op, frame.spreads(frame.blocks(replace(run, ops=(op,)))), Limits())
    chart = drawings.sizes(found)

    (panel,) = chart.sheet.panels
    assert panel.box[0] + panel.box[2] <= chart.width
    assert "float16 kernel" in chart.text
