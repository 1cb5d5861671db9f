import math

import pytest

from perfci.report.figures.sheet import Axis, Band, Line, Note, Panel, Points, Sheet
from perfci.report.figures.style import COLOURS, SERIES, SHAPES
from perfci.report.html import charts
from perfci.report.html.charts import Chart, Store


def sheet(*marks, x=None, y=None, title="t", legend=()):
    x = x or Axis(0, 10, ((0, "0"), (10, "10")), "seconds")
    y = y or Axis(0, 4, ((0, "0"), (4, "4")))
    return Sheet(title, 1.5, (Panel((0.5, 0.5, 2.0, 1.0), x, y, marks),), legend)


def drawn(parse, *marks, **more):
    return parse(charts.svg(Chart(sheet(*marks, **more), "what it shows")).source).one("svg")


def test_a_chart_names_and_describes_itself(parse):
    found = drawn(parse, title="a <b>", y=None)

    assert found.attributes["role"] == "img"
    assert [found.one("title").text, found.one("desc").text] == ["a <b>", "what it shows"]


def test_a_point_stands_where_its_axes_put_it(parse):
    (path,) = drawn(parse, Points((5.0,), (1.0,), COLOURS["kernel"])).all("path", class_="p")

    # left 48, width 192; the panel's bottom is at 1.0 in of 1.5, 96 high
    assert path.attributes["d"].startswith("M144 72m")
    assert path.attributes["class"] == "p cb"


def test_a_logarithmic_axis_is_one():
    at = charts._shares(Axis(1, 100, log=True), [1, 10, 100])

    assert at == pytest.approx([0, 0.5, 1])


def test_lines_bands_and_notes_are_drawn(parse):
    found = drawn(
        parse,
        Line((0, 10), (1, 1), dash=":"),
        Band((2, 99), None, COLOURS["base"], 0.2),
        Note("here", 0.5, 0.5, align="center"),
    )

    (line,) = found.all("path", class_="l")
    (band,) = found.all("rect")
    assert line.attributes["d"] == "M48 72L240 72"
    assert line.attributes["stroke-dasharray"]
    assert float(band.attributes["x"]) + float(band.attributes["width"]) == 240  # cut at the panel's end
    assert [text.attributes["class"] for text in found.all("text") if text.text == "here"] == ["m mono"]


def test_a_legend_takes_lines_of_its_own():
    entries = tuple((f"what number {i} stands for", Line((), ())) for i in range(4))

    assert charts.height(Chart(sheet(legend=entries), "")) == 1.5 * 96 + 4 * charts.LEGEND
    assert charts.height(Chart(sheet(), "")) == 1.5 * 96


@pytest.mark.parametrize("marker", SHAPES)
def test_every_marker_is_drawn_around_its_point(marker):
    outline = charts.shape(marker, 3)

    assert outline.startswith("m")
    assert outline != charts.shape("o", 3) or marker == "o"


def test_every_colour_of_the_pictures_has_one_of_the_page():
    assert len({charts._colour(colour) for colour in SERIES}) == len(SERIES)


@pytest.mark.parametrize(
    "values",
    [
        [4.93, 4.95, 5.01],
        [212345.6, 212340.1],
        [0.0, 0.25, 1.0],
        [1980.0, None, 1755.0],
        [],
        [-0.012, 0.034],
        [1e-7, 2e-7],
    ],
)
def test_packed_numbers_come_back(values):
    store = Store()
    digits, *steps = store.series[store.numbers(values)]
    total, found = 0, []
    for step in steps:
        total += step or 0
        found.append(None if step is None else total / 10**digits)

    known = [value for value in values if value is not None]
    span = max(known, default=1) - min(known, default=0)
    assert [value is None for value in found] == [value is None for value in values]
    assert all(
        math.isclose(a, b, rel_tol=0, abs_tol=5.1e-4 * span)
        for a, b in zip(found, values, strict=True)
        if b is not None
    )


def test_what_is_no_number_is_packed_as_missing():
    store = Store()

    assert store.series[store.numbers([1.0, math.nan, math.inf])][2:] == (None, None)


def test_what_charts_share_is_stored_once():
    store = Store()
    chart = Chart(sheet(Line((0.0, 1.0), (2.0, 3.0)), Points((0.0, 1.0), (2.0, 3.0))), "text")
    charts.packed(chart, store)
    counts = [len(store.series), len(store.axes), len(store.styles)]
    charts.packed(chart, store)

    assert counts == [len(store.series), len(store.axes), len(store.styles)]
    assert counts[:2] == [2, 2]


def test_many_launches_are_thinned_to_both_ends():
    found = charts.thinned([float(i) for i in range(1000, 0, -1)], 48)

    assert (len(found), found[0], found[-1]) == (48, 1.0, 1000.0)
    assert list(charts.thinned([2.0, 1.0], 48)) == [1.0, 2.0]
