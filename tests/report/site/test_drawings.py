import itertools
from dataclasses import replace

import pytest

from perfci.report.figures.sheet import Line
from perfci.report.html import charts
from perfci.report.site import drawings, trend


@pytest.fixture(scope="module")
def drawn(softmax):
    """The charts of a case by its place."""
    axis = drawings.order(softmax.kept.runs)
    return lambda name: list(drawings.charts(next(c for c in softmax.cases if name in c.case), softmax.kept.runs, axis))


def headings(chart):
    return [panel.notes()[-1] for panel in chart.sheet.panels]


def test_everything_that_is_kept_is_drawn(drawn):
    found = drawn("cols=32768")

    assert [heading for chart in found for heading in headings(chart)] == [
        "kernel, us", "reference, us", "speedup", "share of the copy bandwidth, %", "compile time, s",
        "peak memory, MiB", "99th percentile of the error, 1e-4", "greatest error, 1e-4",
    ]  # fmt: skip


def test_arithmetic_is_drawn_where_it_is_counted(histories):
    op = trend.op(histories.kept(histories.steady(), op="matmul"))
    (_, use, _) = drawings.charts(op.cases[0], op.kept.runs, drawings.order(op.kept.runs))

    assert headings(use)[0] == "TFLOP/s"
    (points,) = use.sheet.panels[0].points()
    assert points.ys[0] == pytest.approx(17.18 / 33.4 * 1000, rel=0.05)


def test_panels_show_the_runs_by_their_number(drawn, softmax):
    (points, *_) = drawn("cols=32768")[0].sheet.panels[0].points()

    assert points.xs == tuple(float(number) for number in range(1, 61))
    assert points.ys == next(c for c in softmax.cases if "32768" in c.case).kernel


def test_a_gap_is_not_bridged(drawn):
    panel = drawn("cols=512")[0].sheet.panels[0]
    ends = [(line.xs[0], line.xs[-1]) for line in panel.lines() if line.width == 0.9 and line.xs[0] != line.xs[-1]]

    assert ends == [(1, 11), (14, 31), (33, 60)]
    withheld = next(points for points in panel.points() if points.marker == "X")
    assert withheld.xs == (12, 13, 32)


def test_quartiles_stand_around_the_median(drawn):
    panel = drawn("cols=32768")[0].sheet.panels[0]
    low, high = (line for line in panel.lines() if line.width == 0.6)
    (points, *_) = panel.points()

    assert all(a < b < c for a, b, c in zip(low.ys, points.ys, high.ys, strict=True))


def test_a_case_has_the_marks_that_concern_it(drawn):
    upright = lambda chart: [  # noqa: E731
        mark.xs[0] for mark in chart.sheet.panels[0].marks if isinstance(mark, Line) and len(set(mark.xs)) == 1
    ]

    assert upright(drawn("cols=32768")[0]) == [11.5, 24.5, 50.5]
    assert upright(drawn("rows=131072")[0]) == [11.5, 24.5, 40.5, 50.5]


def test_letters_of_marks_that_stand_close_do_not_overlap(histories):
    runs = histories.steady(count=60)
    runs = [
        replace(one, environment=replace(one.environment, packages={"torch": f"2.{at // 2}"}))
        for at, one in enumerate(runs)
    ]
    op = trend.op(histories.kept(runs))
    panel = next(drawings.charts(op.cases[0], runs, drawings.order(runs))).sheet.panels[0]
    places = sorted(mark.x for mark in panel.marks if getattr(mark, "bold", False))

    assert len(op.marks) == 29
    gaps = [b - a for a, b in itertools.pairwise(places)]
    assert min(gaps) * 288 / 61 >= drawings.LETTERS


@pytest.mark.parametrize("count", [1, 2, 3, 7, 100])
def test_dates_stand_within_the_axis(histories, count):
    axis = drawings.order(histories.steady(count=count))

    assert 1 <= len(axis.ticks) <= 4
    assert all(1 <= number <= count for number, _ in axis.ticks)
    assert len({text for _, text in axis.ticks}) == len(axis.ticks)


def test_one_run_is_a_point(histories):
    op = trend.op(histories.kept(histories.steady(count=1)))
    found = list(drawings.charts(op.cases[0], op.kept.runs, drawings.order(op.kept.runs)))

    assert len(found) == 3
    for chart in found:
        assert "NaN" not in charts.svg(chart).source
        assert "nan" not in charts.svg(chart).source


def test_the_description_has_the_numbers(drawn):
    assert drawn("cols=32768")[0].text.startswith("kernel: 60 runs, first 132 us, last 131 us, from ")


def test_long_times_have_a_unit_that_fits(histories):
    op = trend.op(histories.kept(histories.steady({"n=1": (52_000.0, 61_000.0, None, None)}, count=5)))
    (times, *_) = drawings.charts(op.cases[0], op.kept.runs, drawings.order(op.kept.runs))

    assert headings(times)[:2] == ["kernel, ms", "reference, ms"]
    assert 50 < times.sheet.panels[0].points()[0].ys[0] < 54


def test_a_small_trend_says_its_ends(softmax):
    found = drawings.spark(softmax.relative, softmax.marks).source

    assert "<title>60 runs, from -" in found
    assert found.count("0V28") == 3  # the board parts nothing
    assert drawings.spark((None, None)).source == ""
    assert "M60.0 14.0h0" in drawings.spark((0.0,)).source


def test_noise_looks_small_in_a_small_trend():
    path = drawings.spark((0.0, 0.001, -0.001, 0.0)).source.split('class="way" d="')[1].split('"')[0]
    heights = [float(step.split(" ")[1]) for step in path.replace("M", "L").split("L")[1:]]

    assert max(heights) - min(heights) < 3
