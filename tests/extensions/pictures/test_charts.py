"""The charts: no overlapping texts, cut axes, distinguishable arms, the same bytes every time."""

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from perfci.core.model import Gate, Interval, Limits, OpRun, Verdict
from perfci.extensions.common.accepted_runs import Epoch
from perfci.extensions.history import charts as trends
from perfci.extensions.history.past import Past, Trail
from perfci.extensions.pictures import cases, device, style
from perfci.extensions.pictures.cases import CaseChart
from perfci.report import ceilings, frame
from tests.history_examples import CASE, accepted, figures


def overlaps(figure):
    """Pairs of texts of a figure of which one covers the other, and texts that it cuts off."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    texts = [one for one in figure.findobj(Text) if one.get_visible() and one.get_text().strip()]
    # Of an annotation without its arrow.
    boxes = [(one.get_text(), Text.get_window_extent(one, canvas.get_renderer())) for one in texts]
    inside = figure.bbox.padded(2)
    shown = [(text, box) for text, box in boxes if box.width and ticks_in_view(figure, text, box)]
    cut = [text for text, box in shown if not inside.contains(box.x0, box.y0) or not inside.contains(box.x1, box.y1)]
    return cut + [
        (one, other)
        for (one, first), (other, second) in itertools.combinations(shown, 2)
        if first.padded(-1).overlaps(second.padded(-1))
    ]


def ticks_in_view(figure, text, box):
    """matplotlib keeps the labels of ticks beyond an axis, and does not draw them."""
    for axes in figure.axes:
        labels = [*axes.get_xticklabels(), *axes.get_yticklabels()]
        mine = [one for one in labels if one.get_text() == text and one.get_window_extent().bounds == box.bounds]
        for one in mine:
            (x, y), x_axis = one.get_position(), one in labels[: len(axes.get_xticklabels())]
            low, high = axes.get_xlim() if x_axis else axes.get_ylim()
            return low <= (x if x_axis else y) <= high
    return True


@pytest.fixture(scope="module")
def chart():
    """A case that regressed: 24 blocks of three processes, 960 launches, a duel."""
    rng = np.random.default_rng(1)
    launches = {"kernel": rng.normal(10, 0.1, 960), "reference": rng.normal(20, 0.2, 960)}
    medians = {arm: us[:24].copy() for arm, us in launches.items()}
    launches["kernel"][5] = 400.0
    return CaseChart(
        "rows=4096,cols=1024,dtype=float16", Verdict.REGRESSED, Gate.FAILS, (0,) * 8 + (1,) * 8 + (2,) * 8, medians,
        9.8, launches, tuple(np.array(ends) for ends in ((0.04, 0.05), (0.03, 0.04), (0.05, 0.04))),
        Interval(0.041, 0.03, 0.05, 0.95), 0.015, Interval(2.0, 1.9, 2.1, 0.95), 1.5,
    )  # fmt: skip


@pytest.fixture
def many(chart):
    return [replace(chart, case=f"rows={2**place},cols=1024,dtype=float16") for place in range(12)]


def test_blocks_stand_at_their_numbers_not_at_their_seconds(chart):
    (axes,) = cases.draw_blocks([chart], "softmax").axes

    assert axes.get_xlabel() == "block"
    assert axes.get_xlim() == pytest.approx((0.3, 24.7))


@pytest.mark.parametrize("draw", [cases.draw_blocks, cases.draw_launches, cases.draw_changes])
@pytest.mark.parametrize("count", [pytest.param(1, marks=pytest.mark.nightly), 12])
def test_texts_of_overviews_overlap_nowhere(many, draw, count):
    figure = draw(many[:count], "softmax: something", "12 of 40 cases, the worst first")

    assert overlaps(figure) == []


def test_long_names_of_cases_are_cut_to_the_width_of_their_panels(many):
    long = [
        replace(case, case=f"m={8192 + place},n={8192 - place},k=4{place:03},dtype=bfloat16,bias=True,activation=gelu")
        for place, case in enumerate(many[:6])
    ]
    long[0] = replace(long[0], case="m=1,n=1,k=1")  # so that no part of the names is shared

    assert overlaps(cases.draw_launches(long, "matmul")) == []


def test_texts_of_a_single_case_overlap_nowhere(chart):
    assert overlaps(cases.draw_case(chart, "softmax rows=4096: REGRESSED")) == []
    assert overlaps(cases.draw_case(replace(chart, launches={}, shifts=()), "softmax")) == []


def test_changes_show_intervals_and_what_is_allowed(chart):
    change, speedup = cases.draw_changes([chart, replace(chart, gate=Gate.OK)], "softmax").axes

    assert [text.get_text() for text in change.texts][:2] == ["+4.1 %", "+4.1 %"]
    assert [text.get_text() for text in speedup.texts] == ["2.00x", "2.00x"]
    assert len(change.patches) == 2
    assert change.get_xlabel() == "%"


def beside_base(chart, step=4.0, spread=1.0):
    """The same with launches in per cent against the base's, the kernel's slower by so much."""
    rng = np.random.default_rng(2)
    base, tail = rng.normal(0, spread, 960), 10 * rng.exponential(30, 960) * (rng.random(960) < 0.02)
    launches = {"kernel": rng.normal(step, spread, 960) + tail, "base": base, "reference": base + 100}
    return replace(chart, launches=launches)


@pytest.mark.parametrize("spread", [0.3, 1.0, 2.0])
def test_a_step_of_4_per_cent_is_seen_beside_the_bases_launches(chart, spread):
    (axes,) = cases.draw_launches([beside_base(chart, spread=spread)], "softmax").axes

    kernel, base = sorted(axes.lines, key=lambda line: -np.interp(0.5, line.get_ydata(), line.get_xdata()))
    middles = [float(np.interp(0.5, line.get_ydata(), line.get_xdata())) for line in (kernel, base)]
    low, high = axes.get_xlim()
    assert (kernel.get_color(), base.get_color()) == (style.COLOURS["kernel"], style.COLOURS["base"])
    assert middles[0] - middles[1] == pytest.approx(4.0, abs=0.3)
    assert middles[0] - middles[1] > 0.2 * (high - low)
    assert axes.get_xlabel().startswith("% beside the base")
    (allowed,) = axes.patches
    assert (allowed.get_x(), allowed.get_width()) == pytest.approx((-1.5, 3.0))


def test_without_a_base_the_launches_stand_beside_the_baseline(chart):
    (axes,) = cases.draw_launches([chart], "softmax").axes

    (baseline,) = [line for line in axes.lines if line.get_linestyle() == ":"]
    assert [*baseline.get_xdata()] == pytest.approx([9.8, 9.8])


# --- the device -------------------------------------------------------------------------------------------------------


@pytest.fixture
def places(examples):
    limits = Limits(4000.0, {"float16": 700.0, "bfloat16": 690.0})
    timed = [
        replace(examples.performance_case(f"m={2**n},n=4096,k=4096,dtype=float16", 10.0), bytes_moved=10**8,
                flops=int(10**9.5 * 1.05**n))
        for n in range(8)
    ]  # fmt: skip
    run = examples.run([OpRun("matmul", performance=tuple(timed))])
    spreads = frame.pool_spreads(run)
    return [one.place for one in ceilings.find_points(run.ops, spreads, (), limits)], limits


def test_labels_of_the_roofline_overlap_neither_each_other_nor_points(places):
    figure = device.draw_roofline(*places, "Roofline")
    (axes,) = figure.axes
    names = [one for one in axes.texts if "m=" in one.get_text()]

    assert len(names) == device.LABELS
    assert overlaps(figure) == []
    right = axes.get_window_extent().x1
    assert all(Text.get_window_extent(name).x0 > right for name in names)


def sized(examples, sizes=(1, 2, 4, 8), dtypes=("float16", "float32"), flops=0, limits=None, op="softmax"):
    """Cases of two lines, the largest of which comes nearest to its ceiling."""
    timed = [
        replace(examples.performance_case(f"n={n},dtype={dtype}", 10.0 * n + 5), bytes_moved=n << 25, flops=flops * n)
        for n in sizes
        for dtype in dtypes
    ]
    run = examples.run([OpRun(op, performance=tuple(timed))])
    return [*ceilings.find_points(run.ops, frame.pool_spreads(run), (), limits or Limits(4000.0, {"float16": 700.0}))]


def test_time_against_size_has_a_line_an_arm_and_dtype_and_marks_the_best_working_point(examples):
    points = device.choose_sized(sized(examples))

    (axes,) = device.draw_sizes(points, "Time against size").axes

    assert axes.get_xlabel() == "bytes moved"
    assert sorted(len(line.get_xdata()) for line in axes.lines) == [1, *[4] * 6]  # the last is the best
    best = max(points["softmax"], key=lambda one: one.share)
    assert axes.lines[-1].get_xydata().tolist() == [[best.case.bytes_moved, best.us["kernel"]]]
    assert "of a copy, at 268 MB" in axes.texts[-1].get_text()


def test_a_case_that_arithmetic_limits_is_as_large_as_its_operations(examples):
    points = device.choose_sized(sized(examples, dtypes=("float16",), flops=10**11))

    (axes,) = device.draw_sizes(points, "Time against size").axes

    assert axes.get_xlabel() == "operations"
    assert axes.lines[0].get_xdata().tolist() == [1e11, 2e11, 4e11, 8e11]
    assert "of its ceiling, at " in axes.texts[-1].get_text()


def test_of_fewer_than_three_sizes_there_is_no_line_and_without_limits_no_ceiling(examples):
    assert device.choose_sized(sized(examples, sizes=(1, 2))) == {}

    (axes,) = device.draw_sizes(device.choose_sized(sized(examples, limits=Limits())), "Time against size").axes
    assert len(axes.lines) == 4


@pytest.mark.parametrize("count", [*(pytest.param(count, marks=pytest.mark.nightly) for count in (1, 4)), 9])
def test_texts_of_times_against_sizes_overlap_nowhere(examples, count):
    points = [one for number in range(count) for one in sized(examples, op=f"a_long_name_of_an_op_{number}")]

    assert overlaps(device.draw_sizes(device.choose_sized(points), "Time against size")) == []


# --- runs and storage -------------------------------------------------------------------------------------------------


def runs(count, **changes):
    """Accepted runs of a case, and the case's trail over them."""
    made = [accepted(place % 28, figures(CASE, 10 + 0.1 * math.sin(place)), **changes) for place in range(count)]
    return Past(tuple(made)), Trail(CASE, tuple(run.cases[0] for run in made), (), 11.0, 0.1)


@pytest.mark.parametrize("count", [1, 30])
def test_texts_of_histories_overlap_nowhere(count):
    past, trail = runs(count)
    trails = [replace(trail, case=f"rows={2**n},cols=1024") for n in range(7)]
    trails[2] = replace(trails[2], changes=(SimpleNamespace(unexplained=True),))

    assert overlaps(trends.draw_runs(past, trails, "softmax: accepted runs, and this one")) == []


def test_a_history_shows_its_marks_and_this_run():
    past, trail = runs(30)
    lost = replace(past.runs[12], epoch=Epoch("float32 sums", (CASE,)))
    past = Past((*past.runs[:12], lost, *past.runs[13:]))
    (axes,) = trends.draw_runs(past, [trail], "softmax").axes

    assert [*axes.get_lines()[-1].get_xdata()] == [12.5, 12.5]
    assert [label.get_text() for label in axes.get_xticklabels()][-1] == "now"
    assert axes.get_ylim()[1] > 11


# --- files ------------------------------------------------------------------------------------------------------------


def test_the_same_picture_gives_the_same_bytes(chart):
    first, second = (cases.draw_blocks([chart], "softmax") for _ in range(2))

    assert style.save_png(first) == style.save_png(second)


def test_a_png_has_200_dots_an_inch_and_stays_small(chart, many):
    from io import BytesIO

    from PIL import Image

    data = style.save_png(cases.draw_blocks(many, "softmax"))
    with Image.open(BytesIO(data)) as image:
        assert image.width == 1800
    assert len(data) < 250_000


def test_a_name_is_drawn_as_it_is_written(chart):
    figure = cases.draw_blocks([replace(chart, case="n=$\\frac{a$")], "softmax")

    assert "n=$\\frac{a$" in [axes.get_title("left") for axes in figure.axes]
    assert style.save_png(figure).startswith(b"\x89PNG")


def test_picture_text_has_code_points_in_the_place_of_letters_that_no_font_has():
    assert style.glyphs("cost $x$ \u4e2d\u6587 \x1b[31mred", 40) == r"cost $x$ \u4e2d\u6587 red"
