import pytest
import torch

OP = "bias_relu"
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def test_agrees_with_the_reference_in_float64(case, suite, agrees):
    agrees(suite.make_inputs(**case, device="cpu", seed=7))


def test_says_what_is_wrong_with_its_arguments(reject, module):
    with pytest.raises((TypeError, ValueError), match=r"bias_relu: .* (but|needs|no single row stride)"):
        module.bias_relu(**reject("cpu"))


@pytest.mark.parametrize("dtype", DTYPES)
def test_keeps_nan_and_infinity_as_torch_does(dtype, module):
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([[nan, inf, -inf, inf, 1.0, -1.0, 0.0]], dtype=dtype)
    bias = torch.tensor([1.0, 1.0, 1.0, -inf, nan, 0.0, 0.0], dtype=dtype)

    got = module.bias_relu(x, bias)

    assert torch.equal(got.isnan(), torch.tensor([[True, False, False, True, True, False, False]]))
    assert got[0, [1, 2, 5, 6]].tolist() == [inf, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[..., ::2],
        lambda x: x[:1, 0].expand(6, -1),
        lambda x: x[:, :1].expand(-1, 1, 40),
        lambda x: x[0].t(),
        lambda x: x[::2, 0],
        lambda x: x[1:2, ::2],
        lambda x: x.permute(2, 0, 1)[:, :1],
    ],
)
def test_takes_every_view_whose_rows_lie_evenly(view, agrees):
    x = view(torch.randn(4, 5, 40))

    agrees({"x": x, "bias": torch.randn(x.shape[-1])})


def test_offsets_reach_beyond_32_bits(module):
    far = 2**29 + 64  # itself within 32 bits
    x = torch.empty(4 * far + 8, dtype=torch.float16).as_strided((5, 8), (far, 1))  # 4 GiB, five pages of it touched
    x.copy_(torch.arange(40.0).view(5, 8))

    assert torch.equal(module.bias_relu(x, torch.ones(8).half()), torch.arange(1.0, 41.0).view(5, 8).half())


@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (37, 1025), (1000, 3), (13, 64)])
def test_writes_its_output_fully_and_nothing_beside_it(rows, cols, module, guarded, outputs):
    x, bias = guarded(torch.arange(0.0, rows * cols).view(rows, cols) % 64), guarded(torch.ones(cols))

    got = module.bias_relu(x, bias)

    assert torch.equal(got, x + 1)
    assert all((buffer == -1).sum() == 128 for buffer in outputs)


@pytest.mark.parametrize("fields", [{"programs": 3}, {"grid": (2, 65535, 65535)}, {"grid": (2, 1, 1)}])
def test_few_programs_still_do_every_row(fields, only, agrees):
    only(**fields)

    agrees({"x": torch.randn(301, 600), "bias": torch.randn(600)})
    agrees({"x": torch.randn(301, 1200)[:, ::2], "bias": torch.randn(600)})


@pytest.mark.parametrize("narrow", [0, 2**30])
@pytest.mark.parametrize("cols", [3, 8, 1000, 2040, 5001])
def test_a_dense_input_is_one_run_of_tiles_that_begin_anywhere_in_a_row(cols, narrow, module, agrees, monkeypatch):
    monkeypatch.setattr(module, "NARROW", max(narrow, cols + 1))

    agrees({"x": torch.randn(11, cols), "bias": torch.randn(cols)})
    agrees({"x": torch.randn(11, cols), "bias": torch.randn(cols + 1)[1:]})
    agrees({"x": torch.randn(11, cols), "bias": torch.randn(2 * cols)[::2]})


def test_rows_too_wide_for_32_bits_go_by_the_other_kernel(module, agrees, monkeypatch):
    monkeypatch.setattr(module, "NARROW", 1000)
    monkeypatch.setattr(module, "_flat_kernel", None)

    agrees({"x": torch.randn(3, 1000), "bias": torch.randn(1000)})


def test_launches_nothing_for_an_empty_input(module, monkeypatch):
    monkeypatch.setattr(module, "_flat_kernel", None)

    assert module.bias_relu(torch.zeros(0, 8), torch.zeros(8)).shape == (0, 8)
    assert module.bias_relu(torch.zeros(3, 0), torch.zeros(0)).shape == (3, 0)


def test_leaves_its_inputs_alone(module):
    x, bias = torch.randn(9, 33), torch.randn(33)
    before = x.clone(), bias.clone()

    module.bias_relu(x, bias)

    assert torch.equal(x, before[0]) and torch.equal(bias, before[1])
