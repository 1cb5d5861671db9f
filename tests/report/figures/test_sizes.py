import pytest

from perfci.report.figures.sizes import chosen, sizes
from perfci.report.figures.style import SERIES
from perfci.report.scaling import BYTES, OPERATIONS, Curve, Limit, Scaling

MIB = 2.0**20
COPY = Limit("copy limit, 4000 GB/s", 4e6)


def curve(name="", points=((MIB, 5.0), (8 * MIB, 9.0), (64 * MIB, 40.0))):
    return Curve(name, {"kernel": points, "reference": tuple((size, 2 * us) for size, us in points)})


def test_each_arm_is_a_line_over_the_sizes():
    (panel,) = sizes(Scaling(BYTES, (curve(),), COPY), "t").panels

    (kernel,), (reference,) = panel.points("kernel"), panel.points("reference")
    assert (kernel.xs, kernel.ys) == ((MIB, 8 * MIB, 64 * MIB), (5.0, 9.0, 40.0))
    assert reference.ys == (10.0, 18.0, 80.0)
    assert panel.x.log
    assert panel.y.log


def test_the_measured_copy_is_the_time_of_moving_the_bytes_once():
    (panel,) = sizes(Scaling(BYTES, (curve(),), COPY), "t").panels

    (limit,) = panel.lines("limit")
    assert limit.xs == (MIB, 64 * MIB)
    assert limit.ys == pytest.approx((MIB / 4e6, 64 * MIB / 4e6))
    assert panel.y.low < limit.ys[0]


def test_without_bytes_there_is_no_copy_limit():
    (panel,) = sizes(Scaling("n", (curve(),)), "t").panels

    assert panel.lines("limit") == []
    assert panel.x.label == "n"


def test_only_as_many_curves_are_drawn_as_can_be_told_apart_those_with_most_sizes():
    few = ((MIB, 5.0), (8 * MIB, 9.0))
    many = tuple(curve(f"dtype={n}", few if n == 2 else curve().arms["kernel"]) for n in range(len(SERIES) + 1))

    kept = chosen(Scaling(BYTES, many))

    assert [one.name for one in kept] == [one.name for one in many if one.name != "dtype=2"]


def test_points_of_one_size_are_all_drawn_and_the_line_passes_between_them():
    points = ((MIB, 5.0), (8 * MIB, 8.0), (8 * MIB, 18.0), (64 * MIB, 40.0))

    (panel,) = sizes(Scaling(BYTES, (curve("", points),)), "t").panels

    (line,) = panel.lines("kernel")
    assert panel.points("kernel")[0].xs == (MIB, 8 * MIB, 8 * MIB, 64 * MIB)
    assert line.ys == pytest.approx((5.0, 12.0, 40.0))


def test_operations_are_written_with_their_thousands():
    points = ((1e9, 5.0), (1e11, 90.0), (3e12, 4000.0))

    (panel,) = sizes(Scaling(OPERATIONS, (curve("", points),), Limit("matmul limit", 8e8)), "t").panels

    assert [label for _, label in panel.x.ticks] == ["1 G", "10 G", "100 G", "1 T"]
