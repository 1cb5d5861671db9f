"""Arrays that lie in memory as no suite has them: unaligned, with gaps along each axis, far apart."""

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from perfci.device import open_device  # noqa: E402 - which imports torch
from perfci.extensions.beyond.structure import FAR, OFFSETS, UnfitError, check_placed, list_placed, shift, spread  # noqa: E402
from perfci.ops.spec import Accuracy, grid  # noqa: E402

CASES = grid(rows=[5], cols=[9], dtype=[torch.float16])


def describe(error):
    return {"error": type(error).__name__, "message": str(error)}


def make_inputs(rows, cols, dtype, device, seed):
    generator = torch.Generator(device).manual_seed(seed)
    return {"x": torch.randn(rows, cols, generator=generator, dtype=dtype, device=device)}


def double(x):
    return 2 * x


def find(kernel, **stated):
    suite = Accuracy(kernel, double, make_inputs, CASES, **stated)
    device = open_device("cpu", seed=0)
    found = (check_placed(suite, device, CASES[0], placed, describe) for placed in list_placed(suite))
    return [result.failure.facts["placed"] for result in found if result]


def test_a_right_kernel_passes_wherever_its_arrays_lie():
    assert find(double) == []


def test_a_kernel_that_takes_addresses_for_aligned_is_found():
    def reads_from_the_aligned_place(x):
        """As a vector load does that drops the lowest bits of an address."""
        place = x.storage_offset() // 8 * 8
        return 2 * torch.as_strided(x, x.shape, x.stride(), place)

    assert find(reads_from_the_aligned_place) == [OFFSETS[2], OFFSETS[4], OFFSETS[8]]


def test_a_stride_that_is_taken_for_another_is_found_where_the_suite_has_gaps():
    def takes_rows_for_dense(x):
        return 2 * torch.as_strided(x, x.shape, (x.shape[1], x.stride(1)), x.storage_offset())

    assert "gaps along the second axis" in find(takes_rows_for_dense)
    assert find(takes_rows_for_dense, layouts=("contiguous",)) == []


def test_places_past_32_bits_are_reached_by_few_elements():
    def wraps(x):
        """A place computed in 32 bits, from which no element is read that is not there."""
        places = (torch.arange(len(x)) * x.stride(0)).to(torch.int32)
        return 2 * x * (places >= 0)[:, None]

    assert find(wraps) == ["rows 2^30 elements apart"]


def test_what_a_kernel_refuses_is_no_fault():
    def refuses(x):
        if not x.is_contiguous() or x.data_ptr() % 16:
            raise ValueError("x has to be dense and aligned")
        return 2 * x

    assert find(refuses) == []


def test_arrays_hold_the_same_values_at_the_place_asked_for():
    x = torch.randn(4, 3)

    assert torch.equal(shift(4, x), x)
    assert shift(4, x).data_ptr() % 16 == 4
    assert torch.equal(spread(x), x)
    assert spread(x).stride() == (FAR, 1)
    with pytest.raises(UnfitError):
        shift(2, x)
