from itertools import permutations

import pytest

from perfci.core.model import Limits
from perfci.report.ceilings import Place
from perfci.report.figures.roofline import LABELS, roofline
from perfci.report.figures.style import CHARACTER

LIMITS = Limits(4000.0, {"float16": 800.0, "bfloat16": 760.0})


def place(intensity, share, op="mm", case="m=1", dtype="float16"):
    ceiling = min(4.0 * intensity, LIMITS.matmul_tflops.get(dtype, 1e9))
    ridge = LIMITS.matmul_tflops[dtype] / 4.0 if dtype in LIMITS.matmul_tflops else None
    return Place(op, case, dtype, 10.0, intensity, share * ceiling, ceiling, ridge)


def panel(*places, **changes):
    return roofline(places, LIMITS, "t", **changes).panels[0]


def test_the_ceilings_are_the_measured_ones_and_meet_at_the_ridge():
    found = panel(place(50, 0.9), place(900, 0.7), place(900, 0.6, dtype="bfloat16"))

    (copy,) = found.lines("copy")
    assert copy.ys == pytest.approx([4.0 * x for x in copy.xs])
    (level,) = found.lines("float16")
    assert level.xs[0] == pytest.approx(200.0)
    assert level.ys == (800.0, 800.0)
    assert sorted(line.xs[0] for line in found.lines("ridge")) == pytest.approx([190.0, 200.0])


def test_every_case_is_a_point_at_its_intensity():
    found = panel(place(50, 0.9), place(900, 0.7))

    (points,) = found.points()
    assert points.xs == (50, 900)
    assert points.ys == pytest.approx((180.0, 560.0))


def test_ops_differ_in_colour_and_dtypes_in_shape():
    first, second, third = panel(
        place(50, 0.9), place(60, 0.9, dtype="bfloat16"), place(70, 0.9, op="attention")
    ).points()

    assert first.colour == second.colour != third.colour
    assert first.marker != second.marker


def test_the_points_furthest_below_their_ceiling_are_named_with_their_share():
    places = [place(20.0 * 2**n, 0.05 * (n + 1), case=f"m={n},dtype=float16") for n in range(10)]

    notes = panel(*places).notes()

    named = [text for text in notes if text.startswith("m=")]
    assert "m=0 5.0 %" in named
    assert 1 <= len(named) <= LABELS
    assert not any(text.startswith("m=9 ") for text in named)


def test_names_cover_neither_each_other_nor_a_point():
    places = [place(300 + n, 0.5 + n / 1000, case=f"m={n},n=4096,k=4096,dtype=float16") for n in range(8)]

    found = panel(*places)

    _, _, width, height = found.box
    names = [note for note in found.marks if getattr(note, "text", "").startswith("m=")]
    boxes = [(note.x * width, note.y * height, len(note.text) * CHARACTER) for note in names]
    assert len(boxes) > 1
    for (left, up, wide), (other, above, _) in permutations(boxes, 2):
        assert abs(up - above) > 0.12 or not left <= other < left + wide
    at = [zip(found.x.at(each.xs), found.y.at(each.ys), strict=True) for each in found.points()]
    spots = [(x * width, y * height) for each in at for x, y in each]
    assert not any(start < x < start + w and abs(y - up) < 0.06 for start, up, w in boxes for x, y in spots)


def test_a_case_far_below_its_ceiling_is_on_the_picture():
    found = panel(place(900, 0.0004), place(900, 0.9))

    assert found.y.low < 0.0004 * 800
    assert any("0.0 %" in text for text in found.notes())


def test_without_a_matrix_product_of_the_dtype_only_memory_is_a_ceiling():
    found = panel(place(50, 0.9, dtype="float8"))

    assert found.lines("ridge") == []
    assert found.lines("copy")[0].xs[1] > 50
