"""What the low-precision formats hold."""

import doctest

import numpy as np
import pytest

from perfci.measure.lowprec import formats
from perfci.measure.lowprec.formats import FORMATS
from tests.storage_examples import rounded


def test_the_examples_in_the_documentation_are_true():
    assert doctest.testmod(formats).failed == 0
    assert doctest.testmod(formats).attempted > 0


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "int4" and "float" in name])
def test_every_number_of_a_format_is_held_and_what_lies_between_is_not(name):
    form = FORMATS[name]
    steps = np.arange(2**form.mantissa, 2 ** (form.mantissa + 1))
    exponents = np.arange(form.exponent, int(np.log2(form.largest)) + 1)
    normal = np.ldexp(steps[:, None].astype(float), exponents - form.mantissa).ravel()
    normal = normal[normal <= form.largest]
    subnormal = np.arange(2**form.mantissa) * 2.0 ** (form.exponent - form.mantissa)
    values = np.concatenate([subnormal, normal, -normal])

    assert form.unheld(values) == 0
    assert form.largest in normal
    between = (normal + 2.0 ** (form.exponent - form.mantissa - 1))[:3]
    assert form.unheld(between) == 3
    assert form.unheld(np.array([form.largest * 1.5, np.nan, np.inf])) == 1


def test_integers_are_held_to_their_range():
    assert FORMATS["int8"].unheld(np.array([-128.0, -127.0, 0.0, 127.0])) == 0
    assert FORMATS["int8"].unheld(np.array([0.5, 129.0])) == 2


@pytest.mark.torch
@pytest.mark.parametrize("name", [name for name in FORMATS if name.startswith("float8")])
def test_the_range_and_the_numbers_of_float8_are_those_of_torch(name):
    torch = pytest.importorskip("torch")
    dtype, form = getattr(torch, name), FORMATS[name]
    every = torch.arange(256, dtype=torch.uint8).view(dtype).to(torch.float32).to(torch.float64).numpy()

    assert torch.finfo(dtype).max == form.largest
    assert torch.finfo(dtype).smallest_normal == 2.0**form.exponent
    assert form.unheld(every) == 0
    values = np.random.default_rng(1).normal(size=4000) * np.logspace(-5, 3, 4000)
    cast = torch.from_numpy(np.clip(values, -form.largest, form.largest)).to(torch.float32).to(dtype)
    np.testing.assert_array_equal(rounded(values.astype(np.float32), name), cast.to(torch.float32).numpy())


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "int8"])
@pytest.mark.parametrize("size", [0.3, 1.0, 7.0])
def test_rounding_errs_by_half_a_step_at_most(name, size):
    form = FORMATS[name]
    scale = size / form.largest
    values = np.linspace(-size, size, 10001)

    errors = np.abs(rounded(values / scale, name) * scale - values)

    assert errors.max() <= form.half_step(size, scale) * 1.0001
    assert errors.max() >= form.half_step(size, scale) * 0.95
