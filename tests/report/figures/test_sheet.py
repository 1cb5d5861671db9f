import math

import pytest

from perfci.report.figures.sheet import Panel, boxes, linear, logarithmic, powers, round_steps, spread


def values(axis):
    return [tick for tick, _ in axis.ticks]


def labels(axis):
    return [label for _, label in axis.ticks]


def test_a_linear_axis_has_round_ticks_with_as_many_digits_as_they_need():
    assert labels(linear(123.2, 127.4, most=5)) == ["124", "125", "126", "127"]
    assert labels(linear(0, 1, most=5)) == ["0.00", "0.25", "0.50", "0.75", "1.00"]
    assert labels(linear(3.49, 5.1, most=5)) == ["3.5", "4.0", "4.5", "5.0"]


@pytest.mark.parametrize("low", [1e-6, 0.013, 1.0, 17.0, 4e9])
@pytest.mark.parametrize("ratio", [1.0001, 1.03, 2.0, 55.0])
@pytest.mark.parametrize("make", [linear, logarithmic])
def test_every_axis_has_ticks_between_its_ends(make, low, ratio):
    axis = make(low, low * ratio)

    assert 2 <= len(axis.ticks) <= 8
    assert all(axis.low * (1 - 1e-6) <= tick <= axis.high * (1 + 1e-6) for tick in values(axis))
    assert len(set(labels(axis))) == len(axis.ticks) or ratio == 1.0001


@pytest.mark.parametrize("make", [linear, logarithmic])
def test_equal_ends_are_moved_apart(make):
    axis = make(5.0, 5.0)

    assert axis.low < 5.0 < axis.high
    assert axis.at([5.0])[0] == pytest.approx(0.5)


def test_a_logarithmic_axis_has_decades_and_steps_between_where_it_spans_few():
    assert values(logarithmic(1, 1e6)) == [1, 10, 100, 1e3, 1e4, 1e5, 1e6]
    assert values(logarithmic(4, 900)) == [10, 30, 100, 300]
    assert values(logarithmic(4, 50)) == [5, 10, 20, 50]


def test_places_on_a_logarithmic_axis_are_those_of_the_logarithm():
    axis = logarithmic(1, 100)

    assert axis.at([1, 10, 100]).tolist() == pytest.approx([0, 0.5, 1])


def test_an_axis_of_sizes_has_powers_of_two():
    axis = powers(2**20, 2**30, "bytes", shown=lambda size: f"{size / 2**20:g} MiB")

    assert all(math.log2(tick).is_integer() for tick in values(axis))
    assert labels(axis)[:2] == ["1 MiB", "4 MiB"]
    assert len(axis.ticks) <= 7


def test_round_steps_are_never_more_than_asked_for():
    assert all(len(round_steps(low, low + width, 4)) <= 4 for low in (0.3, -7.0) for width in (0.01, 1.0, 9.9, 777.0))


def test_small_noise_looks_small():
    low, high = spread([10.0, 10.01], least=0.02)

    assert low < 9.81
    assert high > 10.2


def test_panels_of_a_grid_do_not_overlap_and_lie_within_the_picture():
    height, grid = boxes(3, 2, 1.1)

    found = [box for row in grid for box in row]
    assert all(left >= 0 and bottom >= 0 and left + w <= 7.5 and bottom + h <= height for left, bottom, w, h in found)
    assert grid[0][0][1] > grid[1][0][1] + grid[1][0][3]
    assert grid[0][1][0] > grid[0][0][0] + grid[0][0][2]


def test_a_panel_tells_its_marks_by_name():
    panel = Panel((0, 0, 1, 1), linear(0, 1), linear(0, 1))

    assert (panel.lines(), panel.points("kernel"), panel.notes()) == ([], [], [])
