import math

import pytest

from perfci.core import units


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (None, "-"),
        (0.0, "0 us"),
        (0.032, "0.0320 us"),
        (4.931, "4.93 us"),
        (812.34, "812 us"),
        (999.0, "999 us"),
        (1000.0, "1.00 ms"),
        (1530.0, "1.53 ms"),
        (999_400.0, "999 ms"),
        (2.5e6, "2.50 s"),
        (-1530.0, "-1.53 ms"),
    ],
)
def test_a_time_is_in_the_unit_that_fits(us, text):
    assert units.time(us) == text


@pytest.mark.parametrize(
    ("ratio", "signed", "text"),
    [
        (None, True, "-"),
        (0.0213, False, "2.1 %"),
        (0.04, True, "+4.0 %"),
        (-0.1234, True, "-12.3 %"),
        (0.0, True, "+0.0 %"),
        (3.0, False, "300.0 %"),
    ],
)
def test_a_ratio_is_a_percentage(ratio, signed, text):
    assert units.percent(ratio, signed=signed) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "-"),
        (0, "0 B"),
        (512, "512 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1536, "1.50 KiB"),
        (268435456, "256 MiB"),
        (1 << 30, "1.00 GiB"),
        (1 << 50, "1024 TiB"),
    ],
)
def test_a_size_is_in_binary_units(count, text):
    assert units.size(count) == text


@pytest.mark.parametrize("power", range(1, 5))
def test_a_size_at_and_just_below_a_step_has_its_unit(power):
    unit = ["KiB", "MiB", "GiB", "TiB"][power - 1]

    assert units.size(1024**power) == f"1.00 {unit}"
    assert units.size(3 * 1024**power) == f"3.00 {unit}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (4.9312, "4.93"),
        (812.34, "812"),
        (0.0123456, "0.0123"),
        (0.001, "0.00100"),
        (0.000999, "9.99e-04"),
        (1e-9, "1.00e-09"),
        (256.0, "256"),
        (123_456.0, "123456"),
        (1e6, "1.00e+06"),
        (-4.9312, "-4.93"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (math.nan, "nan"),
        (9.999, "10.0"),
        (99.96, "100"),
    ],
)
def test_numbers_have_three_significant_digits(value, text):
    assert units.significant(value) == text


def test_more_digits_can_be_asked_for():
    assert units.significant(4.93127, digits=5) == "4.9313"
