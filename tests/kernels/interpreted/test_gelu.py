import pytest
import torch

OP = "gelu"
BOTH = pytest.mark.parametrize("approximate", ["none", "tanh"])


def test_agrees_with_the_reference_in_float64(case, suite, agrees):
    agrees(suite.make_inputs(**case, device="cpu", seed=7))


def test_says_what_is_wrong_with_its_arguments(reject, module):
    with pytest.raises((TypeError, ValueError), match=r"gelu: .* (but|no single row stride)"):
        module.gelu(**reject("cpu"))


@BOTH
def test_nan_infinity_and_zero_come_out_as_in_torch(approximate, module):
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 3e38, -3e38, 1e-40])

    got = module.gelu(x, approximate)

    exact = torch.nn.functional.gelu(x.double(), approximate=approximate).float()
    torch.testing.assert_close(got, exact, equal_nan=True, rtol=0, atol=1e-40)
    assert torch.equal(torch.signbit(got[3:5]), torch.tensor([False, True]))


def test_the_left_tail_keeps_its_digits_where_one_plus_erf_would_lose_them(module):
    x = torch.linspace(-6, -2, 1000)

    torch.testing.assert_close(module.gelu(x).double(), torch.nn.functional.gelu(x.double()), rtol=3e-5, atol=0)


def test_it_is_no_further_from_float64_than_pytorchs_own(module):
    x = torch.linspace(-15, 15, 20001)
    exact = torch.nn.functional.gelu(x.double())

    def rms(values):
        return (values.double() - exact).square().mean().sqrt()

    assert rms(module.gelu(x)) <= 1.1 * rms(torch.nn.functional.gelu(x))


@BOTH
@pytest.mark.parametrize(
    "view",
    [lambda x: x[..., ::2], lambda x: x[:1, 0].expand(6, -1), lambda x: x[0].t(), lambda x: x.flatten()[1:]],
)
def test_takes_every_view_whose_rows_lie_evenly(view, approximate, agrees):
    agrees({"x": view(torch.randn(4, 5, 40)), "approximate": approximate})


def test_offsets_reach_beyond_32_bits(module):
    far = 2**29 + 64  # itself within 32 bits
    x = torch.empty(4 * far + 8, dtype=torch.float16).as_strided((5, 8), (far, 1))  # 4 GiB, five pages of it touched
    x.copy_(torch.arange(40.0).view(5, 8) % 5 - 2)

    torch.testing.assert_close(module.gelu(x), torch.nn.functional.gelu(x.float()).half())


@pytest.mark.parametrize("size", [1, 64, 2048, 2049, 6143])
def test_writes_its_output_fully_and_nothing_beside_it(size, module, guarded, outputs):
    x = guarded(torch.linspace(-4, 4, size))

    assert not module.gelu(x).isnan().any()
    assert all((buffer == -1).sum() == 128 for buffer in outputs)


@pytest.mark.parametrize("fields", [{"programs": 3}, {"grid": (2, 1, 1)}])
def test_few_programs_still_do_every_element(fields, only, agrees):
    only(**fields)

    agrees({"x": torch.randn(15001)})
    agrees({"x": torch.randn(90, 64)[:, ::2]})


def test_launches_nothing_for_an_empty_input(module, monkeypatch):
    monkeypatch.setattr(module, "_flat_kernel", None)

    assert module.gelu(torch.zeros(3, 0)).shape == (3, 0)
