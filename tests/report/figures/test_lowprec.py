"""Pictures of storage in low precision, as data and as files."""

import dataclasses

import pytest

from perfci.measure.lowprec.advice import add_history, families
from perfci.measure.lowprec.storage import EDGES
from perfci.report import figures
from perfci.report.figures import lowprec
from perfci.report.figures.lowprec import ACCEPTED, ACROSS, LIMIT, P99, THIS_RUN, Limits, columns
from perfci.report.figures.sheet import Line, Points
from tests.storage_examples import E4M3, E5M2, clipped, line, measured, normal, one, stored


@pytest.fixture(scope="module")
def ways():
    return families(clipped().stored)["stored=a"]


def test_modes_stand_side_by_side_and_dtypes_share_a_panel(ways):
    assert [(each.name, [way.dtype for way in each.ways]) for each in columns(ways)] == [
        ("scaling=tensor", [E4M3, E5M2]), ("scaling=row", [E4M3, E5M2]), ("scaling=group", [E4M3, E5M2]),
    ]  # fmt: skip
    sheet = figures.histograms(ways, "errors")
    assert len(sheet.panels) == 6
    assert [panel.box[0] for panel in sheet.panels[::2]] == sorted(panel.box[0] for panel in sheet.panels[::2])
    for top, below in zip(sheet.panels[::2], sheet.panels[1::2], strict=True):
        assert top.box[0] == below.box[0] and top.box[1] > below.box[1]


def test_histograms_are_on_log_axes_that_all_panels_share(ways):
    sheet = figures.histograms(ways, "errors")

    assert len({(panel.x.low, panel.x.high) for panel in sheet.panels}) == 1
    assert all(panel.x.log for panel in sheet.panels)
    assert all(panel.y.log and panel.y.high == 1.0 for panel in sheet.panels[::2])
    assert sheet.panels[1].x.label == "absolute error"
    assert len(sheet.panels[1].x.ticks) >= 2


def test_the_outline_is_the_share_of_values_in_each_bin(ways):
    found = ways[2]
    (line_,) = figures.histograms(ways, "errors").panels[2].lines(found.dtype)
    counts = found.histogram.counts
    most = max(counts)
    place = found.histogram.start + counts.index(most)

    assert max(line_.ys) == pytest.approx(most / sum(counts))
    at = line_.ys.index(max(line_.ys))
    assert line_.xs[at : at + 2] == pytest.approx((EDGES[place - 1], EDGES[place]))
    inside = dict(zip(line_.xs[::2], line_.ys[::2], strict=True))
    assert sum(inside.values()) == pytest.approx(1, abs=0.05)


def test_the_cumulative_curve_rises_to_one_and_passes_the_99th_percentile(ways):
    panels = figures.histograms(ways, "errors").panels

    for column, panel in zip(columns(ways), panels[1::2], strict=True):
        for way in column.ways:
            (curve,) = panel.lines(way.dtype)
            assert list(curve.ys) == sorted(curve.ys)
            assert curve.ys[-1] == pytest.approx(1.0)
            share = dict(zip(curve.xs, curve.ys, strict=True))
            assert max(y for x, y in share.items() if x < way.errors.p99_abs) <= 0.995
            assert min(y for x, y in share.items() if x > way.errors.p99_abs) >= 0.985
        (mark, *_) = panel.points(P99)
        assert mark.ys == (0.99,)


def test_the_accepted_run_stands_behind_where_there_is_one(ways):
    assert any(panel.lines(ACCEPTED) for panel in figures.histograms(ways, "").panels)
    alone = list(measured()[:6:2])
    assert not any(panel.lines(ACCEPTED) for panel in figures.histograms(alone, "").panels)
    assert ACCEPTED not in dict(figures.histograms(alone, "").legend)


def test_trends_have_a_panel_for_each_figure_with_a_limit_and_end_at_this_run(ways):
    sheet = figures.storage_trends(ways, "trends", Limits(p99=0.03))

    assert [panel.name for panel in sheet.panels] == list(lowprec.FIGURES)
    p99, clip, divergence = sheet.panels
    assert p99.lines(LIMIT) and not clip.lines(LIMIT)
    (now, *_) = p99.points(THIS_RUN)
    assert now.xs == (12.0,)
    assert now.ys == (ways[0].errors.p99_abs,)
    (clipped_now, *_) = clip.points(THIS_RUN)
    assert clipped_now.ys == (100 * ways[0].clip_ratio,)
    assert divergence.points(THIS_RUN)[0].ys == (ways[0].divergence,)
    assert len(dict(sheet.legend)) == len(sheet.legend)


def test_every_mark_lies_within_its_panel(ways):
    for sheet in (figures.histograms(ways, ""), figures.storage_trends(ways, "", Limits())):
        for panel in sheet.panels:
            assert panel.box[0] >= 0 and panel.box[1] >= 0
            assert panel.box[0] + panel.box[2] <= 7.5 and panel.box[1] + panel.box[3] <= sheet.height
            for mark in panel.marks:
                if isinstance(mark, Line | Points) and mark.xs:
                    assert (panel.x.at(mark.xs) >= -1e-3).all() and (panel.x.at(mark.xs) <= 1.001).all()
                    assert (panel.y.at(mark.ys) >= -1e-3).all() and (panel.y.at(mark.ys) <= 1.001).all()


def test_errors_of_zero_alone_and_one_accepted_run_are_drawn_too(tmp_path):
    x = normal(rows=4, cols=8)
    exact = stored(x).values * stored(x).scale
    found = one(exact)
    assert found.errors.max_abs == 0

    figures.save(figures.histograms([found], "exact"), tmp_path / "exact.png")
    again = add_history(found, [line(0, [found])])
    figures.save(figures.storage_trends([again], "one", Limits(0.03, 2.0, 0.1)), tmp_path / "one.png")

    assert {path.read_bytes()[:4] for path in tmp_path.iterdir()} == {b"\x89PNG"}


def test_a_histogram_that_counts_nothing_has_no_line(ways):
    nothing = dataclasses.replace(ways[0].histogram, counts=(0, 0))
    empty = dataclasses.replace(ways[0], histogram=nothing, accepted=nothing)

    panels = figures.histograms([empty], "errors").panels

    assert [list(panel.lines(name)) for panel in panels for name in (empty.dtype, ACCEPTED)] == [[]] * 4


def test_more_ways_than_fit_are_left_to_the_next_picture():
    cases = tuple({"scaling": "group", "group": width, "dtype": E4M3} for width in (8, 16, 32, 64, 128))
    ways = measured(lambda scaling, group, dtype, device, seed: {"x": stored(normal(), dtype, scaling, group)}, cases)

    assert len(columns(ways)) == 5
    assert len(figures.histograms(ways, "").panels) == 2 * ACROSS


def test_the_same_tensors_give_the_same_picture(ways, tmp_path):
    for name in ("a.png", "b.png"):
        with figures.style():
            figures.save(figures.histograms(ways, "errors"), tmp_path / name)

    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert (tmp_path / "a.png").stat().st_size < 60_000
