import numpy as np
import pytest
from PIL import Image

from perfci.report import figures
from perfci.report.figures import canvas
from perfci.report.figures.sheet import Band, Line, Note, Panel, Points, Sheet, linear
from perfci.report.figures.style import CHARACTER, COLOURS, DPI


def sheet(*marks, **changes):
    panel = Panel((0.5, 0.5, 6.5, 1.0), linear(0, 10, most=5), linear(0, 1, most=3), marks, grid="")
    return Sheet("title", 2.0, (panel,), **changes)


def drawn(tmp_path, *marks, **changes):
    with figures.style():
        figures.save(sheet(*marks, **changes), tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as image:
        return np.asarray(image.convert("RGB")).astype(int)


def where(pixels, colour):
    """Rows, from below, and columns of the pixels of a colour."""
    wanted = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    rows, columns = np.nonzero((np.abs(pixels - wanted) <= 2).all(axis=2))
    return pixels.shape[0] - rows, columns


def test_a_picture_is_as_large_as_its_sheet(tmp_path):
    assert drawn(tmp_path).shape == (2 * DPI, 7.5 * DPI, 3)


def test_a_point_is_drawn_where_its_data_are(tmp_path):
    rows, columns = where(drawn(tmp_path, Points((5.0,), (0.5,), COLOURS["base"], size=8)), COLOURS["base"])

    assert columns.mean() == pytest.approx((0.5 + 3.25) * DPI, abs=1.5)
    assert rows.mean() == pytest.approx(1.0 * DPI, abs=1.5)


def test_a_line_reaches_from_its_first_to_its_last_point(tmp_path):
    _, columns = where(drawn(tmp_path, Line((0, 10), (0.5, 0.5), COLOURS["base"], 3)), COLOURS["base"])

    assert columns.min() == pytest.approx(0.5 * DPI, abs=4)
    assert columns.max() == pytest.approx(7.0 * DPI, abs=4)


def test_a_band_fills_its_rectangle(tmp_path):
    rows, columns = where(drawn(tmp_path, Band((2, 4), (0, 0.5), COLOURS["base"])), COLOURS["base"])

    assert columns.max() - columns.min() == pytest.approx(1.3 * DPI, abs=2)
    assert rows.max() - rows.min() == pytest.approx(0.5 * DPI, abs=2)


def test_a_text_stands_where_it_was_put_and_is_as_wide_as_reckoned(tmp_path):
    note = Note("m" * 20, 0.5, 0.5, align="center", upright="center", colour=COLOURS["base"])

    rows, columns = where(drawn(tmp_path, note), COLOURS["base"])

    assert columns.mean() == pytest.approx((0.5 + 3.25) * DPI, abs=6)
    assert rows.mean() == pytest.approx(1.0 * DPI, abs=4)
    assert columns.max() - columns.min() == pytest.approx(20 * CHARACTER * DPI, rel=0.06)


def test_a_label_of_an_upright_axis_runs_upwards(tmp_path):
    panel = Panel((0.7, 0.5, 6.3, 1.0), linear(0, 1), linear(0, 1, "a long label"), (), grid="")

    with figures.style():
        figures.save(Sheet("", 2.0, (panel,)), tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as image:
        rows, columns = np.nonzero(np.asarray(image.convert("L"))[:, : round(0.3 * DPI)] < 100)

    assert rows.max() - rows.min() > 4 * (columns.max() - columns.min())


def test_dollars_and_backslashes_are_drawn_as_they_are(tmp_path):
    plain = drawn(tmp_path, Note(r"$x$ \frac{1}{2}", 0.1, 0.5))

    assert (plain < 250).any()


def test_a_long_legend_takes_a_second_line(tmp_path):
    entries = tuple((f"dtype=float{n}" * 2, Line((), (), COLOURS["base"])) for n in range(8))

    rows = {y for _, _, y in canvas.legend.places(sheet(legend=entries))}

    assert len(rows) > 1
    assert canvas.legend.extra(name for name, _ in entries) > 0


def test_long_case_ids_take_two_lines_broken_at_a_comma():
    label = figures.label("batch=16,heads=32,sequence=4096,head_dim=128,causal=True,dtype=bfloat16")

    assert label == "batch=16,heads=32,sequence=4096,\nhead_dim=128,causal=True,dtype=bfloat16"
    assert all(len(line) <= figures.LABEL for line in figures.label("x" * 500).split("\n"))
