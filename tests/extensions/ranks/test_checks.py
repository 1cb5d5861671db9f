"""A rank's part of a check."""

import pytest

torch = pytest.importorskip("torch")

from msgspec import convert, to_builtins  # noqa: E402

from perfci.device import open_device  # noqa: E402
from perfci.extensions.ranks.checks import check  # noqa: E402
from perfci.extensions.ranks.records import RankError  # noqa: E402
from perfci.ops.spec import Accuracy  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(("more", "outside"), [(0, 0), (3, 1)])
def test_what_a_kernel_writes_beside_its_output_is_counted_though_the_output_is_right(more, outside):
    def double(x):
        out = torch.empty_like(x)
        room = out.untyped_storage().nbytes() // out.element_size() - out.storage_offset()
        out.as_strided((min(len(x) + more, room),), (1,)).fill_(0)
        return out.copy_(2 * x)

    suite = Accuracy(kernel=double, reference=lambda x: 2 * x, make_inputs=dict, cases=())
    error = check(suite, {}, {"x": torch.arange(4.0)}, open_device("cpu", seed=1))["error"]

    assert (error.wrong, error.outside) == (0, outside)


@pytest.mark.parametrize("number", [3e38, float("inf"), float("nan")])
def test_an_error_of_any_size_is_one_that_a_rank_can_send(number):
    suite = Accuracy(kernel=lambda x: torch.full_like(x, number), reference=lambda x: 2 * x, make_inputs=dict, cases=())
    error = check(suite, {}, {"x": torch.arange(4.0)}, open_device("cpu", seed=1))["error"]

    assert convert(to_builtins(error), RankError) == error
    assert error.wrong and error.share > 1
