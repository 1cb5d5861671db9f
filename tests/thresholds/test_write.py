"""Values as text."""

import pytest

from perfci.thresholds.read import NUMBERS
from perfci.thresholds.write import read_value, write_value


@pytest.mark.parametrize("key", NUMBERS)
def test_every_key_has_a_way_to_write_a_value_that_is_read_back(key):
    for value in (0.0003, 0.0125, 0.3):
        text = write_value(key, value)
        assert text is not None
        assert read_value(key, text, "-") == pytest.approx(value, rel=1e-9)
