import pytest
import torch

OP = "broadcast"
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def test_gives_the_references_very_bits(case, suite):
    inputs = suite.make_inputs(**case, device="cpu", seed=7)

    assert torch.equal(suite.kernel(**inputs), suite.reference(**inputs))


def test_inputs_are_drawn_from_the_seed(case, suite):
    once, again, other = (suite.make_inputs(**case, device="cpu", seed=seed)["bias"] for seed in (1, 1, 2))

    assert torch.equal(once, again)
    assert once.numel() == 0 or not torch.equal(once, other)


def test_says_what_is_wrong_with_its_arguments(reject, module):
    with pytest.raises((TypeError, ValueError), match=r"broadcast: .* (but|needs)"):
        module.broadcast(**reject("cpu"))


@pytest.mark.parametrize("dtype", DTYPES)
def test_never_reads_x(dtype, module):
    x = torch.full((5, 70), float("nan"), dtype=dtype)

    assert torch.equal(module.broadcast(x, torch.ones(70, dtype=dtype)), torch.ones_like(x))


def test_takes_any_strides(module):
    x = torch.zeros(3, 9, 2).transpose(0, 1)[..., ::2].expand(9, 3, 1)
    bias = torch.arange(100.0)

    assert torch.equal(module.broadcast(x.expand(9, 3, 50), bias[::2]), bias[::2].expand(9, 3, 50))
    assert torch.equal(module.broadcast(torch.zeros(4, 50), bias[:1].expand(50)), torch.zeros(4, 50))


def test_rounds_a_bias_of_another_dtype_to_that_of_x(module):
    bias = torch.tensor([1.0, 1 / 3, 65536.0, -0.0])

    got = module.broadcast(torch.zeros(2, 4, dtype=torch.float16), bias)

    assert torch.equal(got, bias.half().expand(2, 4))


def test_keeps_nan_infinity_and_the_sign_of_zero(module):
    bias = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0])

    got = module.broadcast(torch.zeros(3, 4), bias)

    assert torch.equal(got.view(torch.int32), bias.view(torch.int32).expand(3, 4))


@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (37, 1025), (1000, 3), (13, 64)])
def test_writes_its_output_fully_and_nothing_beside_it(rows, cols, module, guarded, outputs):
    bias = guarded(torch.arange(1.0, cols + 1))

    got = module.broadcast(torch.zeros(rows, cols), bias)

    assert torch.equal(got, bias.expand(rows, cols))
    assert all(buffer.sum() == got.sum() - 128 for buffer in outputs)


@pytest.mark.parametrize("fields", [{"programs": 3}, {"grid": (2, 65535, 65535)}, {"processors": 132}])
def test_few_programs_still_write_every_row(fields, module, only):
    only(**fields)
    bias = torch.randn(100)

    assert torch.equal(module.broadcast(torch.zeros(700, 100), bias), bias.expand(700, 100))


def test_widens_its_tiles_rather_than_leave_the_grid(module, only):
    limits = only(grid=(4, 3, 1))
    bias = torch.randn(5000)

    assert 5000 / module.choose_tile(3, 5000, 4, limits).cols <= 3
    assert torch.equal(module.broadcast(torch.zeros(3, 5000), bias), bias.expand(3, 5000))


def test_launches_nothing_for_an_empty_output(module, monkeypatch):
    monkeypatch.setattr(module, "_broadcast_kernel", None)

    assert module.broadcast(torch.zeros(0, 8), torch.zeros(8)).shape == (0, 8)
    assert module.broadcast(torch.zeros(3, 0), torch.zeros(0)).shape == (3, 0)


def test_large_outputs_get_large_tiles_and_small_ones_small_tiles(module, only):
    limits = only(processors=132)

    small, large = module.choose_tile(256, 256, 4, limits), module.choose_tile(2**15, 2**12, 4, limits)

    assert small.rows * small.cols < large.rows * large.cols
