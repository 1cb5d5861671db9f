import math

import pytest

from perfci.core import units


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (None, "-"),
        (0.0, "0 us"),
        (4.931, "4.93 us"),
        (812.34, "812 us"),
        (1000.0, "1.00 ms"),
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
        (0.0, True, "0.0 %"),
        (-0.0002, True, "0.0 %"),
    ],
)
def test_a_ratio_is_a_percentage(ratio, signed, text):
    assert units.percent(ratio, signed=signed) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "-"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (268435456, "256 MiB"),
        (1 << 50, "1024 TiB"),
    ],
)
def test_a_size_is_in_binary_units(count, text):
    assert units.size(count) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (4.9312, "4.93"),
        (0.0123456, "0.0123"),
        (0.001, "0.00100"),
        (0.000999, "9.99e-04"),
        (256.0, "256"),
        (123_456.0, "123456"),
        (1e6, "1.00e+06"),
        (math.inf, "inf"),
        (math.nan, "nan"),
        (9.999, "10.0"),
    ],
)
def test_numbers_have_three_significant_digits(value, text):
    assert units.significant(value) == text


def test_more_digits_can_be_asked_for():
    assert units.significant(4.93127, digits=5) == "4.9313"
