import pytest
import torch
from layer_norm_baseline import layer_norm as reference

OP = "layer_norm"
COLS = 2500


@pytest.fixture
def way(request, module, only, monkeypatch):
    """How rows are cut: whole, kept or loaded anew for each pass, walked by one program each, or shared by several."""
    import _rows

    def choose(rows, cols, *_):
        chunks = -(-cols // 512)
        parts = {"walked": 1, "shared": -(-chunks // 2)}
        if request.param in {"whole", "again"}:
            return _rows.Tile(2, 4096, 4, 1, 0, 0, 1, again=request.param == "again")
        return _rows.Tile(1, 512, 4, 1, 2, 128, parts[request.param])

    monkeypatch.setattr(module, "choose_tile", choose)
    return request.param


EVERY_WAY = pytest.mark.parametrize("way", ["whole", "again", "walked", "shared"], indirect=True)


def right(module, x, weight=None, bias=None, eps=1e-5):
    """Answer and statistics are near float64's."""
    got = module.layer_norm(x, weight, bias, eps, stats=True)
    wide = [None if value is None else value.double() for value in (x, weight, bias)]
    for one, exact in zip(got, reference(*wide, eps, True), strict=True):
        torch.testing.assert_close(one.double(), exact, rtol=2e-6, atol=2e-5)
    assert torch.equal(module.layer_norm(x, weight, bias, eps), got[0])
    return got


def test_agrees_with_the_reference_in_float64(case, suite):
    inputs = suite.make_inputs(**case, device="cpu", seed=7)
    got, exact = (each if isinstance(each, tuple) else (each,) for each in (suite.kernel(**inputs), _exact(inputs)))

    rtol = {torch.float32: 1.3e-6, torch.float16: 1e-3, torch.bfloat16: 1.6e-2}[inputs["x"].dtype]
    torch.testing.assert_close(got[0], exact[0].to(got[0].dtype), rtol=rtol, atol=1e-5)
    for one, other in zip(got[1:], exact[1:], strict=True):
        torch.testing.assert_close(one, other.float(), rtol=1.3e-6, atol=1e-5)


def _exact(inputs):
    return reference(**{name: value.double() if torch.is_tensor(value) else value for name, value in inputs.items()})


def test_says_what_is_wrong_with_its_arguments(reject, module):
    with pytest.raises((TypeError, ValueError), match=r"layer_norm: .* (but|no single row stride)"):
        module.layer_norm(**reject("cpu"))


@EVERY_WAY
@pytest.mark.parametrize("cols", [COLS, 1, 511, 1536, 4096])
def test_every_way_of_cutting_rows_gives_the_same(way, cols, module):
    generator = torch.Generator().manual_seed(cols)
    x, weight, bias = (torch.randn(shape, generator=generator) for shape in ((3, cols), (cols,), (cols,)))

    right(module, x, weight, bias)
    right(module, x[:, ::2], None, bias[::2])


@EVERY_WAY
@pytest.mark.parametrize("rows", [4, 5])
def test_full_tiles_and_others_of_every_stride_give_the_same(way, rows, module):
    """Columns 1536 and 4096 fill chunks and tiles."""
    generator = torch.Generator().manual_seed(rows)
    x, weight, bias = (torch.randn(shape, generator=generator) for shape in ((rows, 8192), (8192,), (8192,)))

    for cols in (1536, 4096):
        right(module, x[:, :cols], weight[:cols], bias[:cols])
        right(module, x[:, : 2 * cols : 2], weight[: 2 * cols : 2], None)


@EVERY_WAY
@pytest.mark.parametrize("cols", [COLS, 4096])
def test_a_mean_far_from_zero_costs_no_digits_of_the_spread(way, cols, module):
    spread = torch.randn(2, cols, generator=torch.Generator().manual_seed(1))
    x = (1e4 + spread.round(decimals=1)).float()  # what float32 holds of it exactly is a few digits

    _, mean, rstd = module.layer_norm(x, stats=True)

    torch.testing.assert_close(mean.double(), x.double().mean(-1, keepdim=True), rtol=5e-7, atol=0)
    exact = torch.rsqrt(x.double().var(-1, correction=0, keepdim=True) + 1e-5)
    torch.testing.assert_close(rstd.double(), exact, rtol=1e-4, atol=0)  # float32 holds the mean to 1e-3


@EVERY_WAY
@pytest.mark.parametrize("cols", [COLS, 4096])
def test_equal_elements_give_the_bias_exactly(way, cols, module):
    bias = torch.randn(cols)

    for value in (1.0, -2.0, 0.0):
        assert torch.equal(module.layer_norm(torch.full((2, cols), value), None, bias), bias.expand(2, -1))


@EVERY_WAY
@pytest.mark.parametrize("cols", [COLS, 4096])
def test_the_largest_values_have_a_mean(way, cols, module):
    x = torch.full((1, cols), 3e38)

    answer, mean, _ = module.layer_norm(x, stats=True)

    torch.testing.assert_close(mean, torch.full((1, 1), 3e38))
    assert not answer.isnan().any()


@EVERY_WAY
def test_nan_and_infinity_stay_in_their_row(way, module):
    x = torch.randn(4, COLS)
    x[1, 7], x[2, -1] = float("nan"), float("inf")

    assert module.layer_norm(x).isnan().all(dim=-1).tolist() == [False, True, True, False]
    assert not module.layer_norm(x)[[0, 3]].isnan().any()


@EVERY_WAY
def test_offsets_reach_beyond_32_bits(way, module):
    far = 2**29 + 64  # itself within 32 bits
    x = torch.empty(4 * far + 8, dtype=torch.float16).as_strided((5, 8), (far, 1))  # 4 GiB, five pages of it touched
    x.copy_(torch.arange(40.0).view(5, 8) % 7)

    torch.testing.assert_close(module.layer_norm(x), reference(x.float()).half())


@EVERY_WAY
def test_writes_its_outputs_fully_and_nothing_beside_them(way, module, guarded, outputs):
    x, weight = guarded(torch.randn(3, COLS)), guarded(torch.randn(COLS))

    assert not any(each.isnan().any() for each in module.layer_norm(x, weight, stats=True))
    assert all((buffer == -1).sum() == 128 for buffer in outputs)


@EVERY_WAY
@pytest.mark.parametrize("fields", [{"programs": 2}, {"grid": (3, 1, 1)}])
def test_few_programs_still_do_every_row(way, fields, only, module):
    only(**fields)

    right(module, torch.randn(7, 600), torch.randn(600))


def test_launches_nothing_for_an_empty_input(module, monkeypatch):
    monkeypatch.setattr(module, "_rows_kernel", None)

    assert [each.shape for each in module.layer_norm(torch.zeros(0, 8), stats=True)] == [(0, 8), (0, 1), (0, 1)]
    assert module.layer_norm(torch.zeros(3, 0)).shape == (3, 0)
