import pytest
import torch

OP = "vector_add"


def test_agrees_with_the_reference_in_float64(case, suite, agrees):
    agrees(suite.make_inputs(**case, device="cpu", seed=7))


def test_says_what_is_wrong_with_its_arguments(reject, module):
    with pytest.raises((TypeError, ValueError), match=r"vector_add: .* (but|no single row stride)"):
        module.vector_add(**reject("cpu"))


def test_an_error_about_strides_names_the_tensor_that_has_them(module):
    x, y = torch.zeros(3, 4, 8), torch.zeros(4, 3, 8).transpose(0, 1)

    with pytest.raises(ValueError, match=r"y of shape .* Call it with y.contiguous\(\)"):
        module.vector_add(x, y)
    with pytest.raises(ValueError, match=r"x of shape .* Call it with x.contiguous\(\)"):
        module.vector_add(y, x)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[..., ::2],
        lambda x: x[:1, 0].expand(6, -1),
        lambda x: x[:, :1].expand(-1, 1, 40),
        lambda x: x[0].t(),
        lambda x: x[0, 0].expand(3, -1),
        lambda x: x.flatten()[1:],
    ],
)
def test_takes_every_view_whose_rows_lie_evenly(view, agrees):
    x = view(torch.randn(4, 5, 40))

    agrees({"x": x, "y": torch.randn(x.shape)})
    agrees({"x": torch.randn(x.shape), "y": x})


def test_offsets_reach_beyond_32_bits(module):
    far = 2**29 + 64  # itself within 32 bits
    x = torch.empty(4 * far + 8, dtype=torch.float16).as_strided((5, 8), (far, 1))  # 4 GiB, five pages of it touched
    x.copy_(torch.arange(40.0).view(5, 8))

    assert torch.equal(module.vector_add(x, torch.ones(5, 8).half()), torch.arange(1.0, 41.0).view(5, 8).half())


@pytest.mark.parametrize("size", [1, 64, 2048, 2049, 6143])
def test_writes_its_output_fully_and_nothing_beside_it(size, module, guarded, outputs):
    x, y = guarded(torch.arange(0.0, size) % 64), guarded(torch.ones(size))

    assert torch.equal(module.vector_add(x, y), x + 1)
    assert all((buffer == -1).sum() == 128 for buffer in outputs)


@pytest.mark.parametrize("fields", [{"programs": 3}, {"grid": (2, 1, 1)}])
def test_few_programs_still_do_every_element(fields, only, agrees):
    only(**fields)

    agrees({"x": torch.randn(15001), "y": torch.randn(15001)})
    agrees({"x": torch.randn(90, 64)[:, ::2], "y": torch.randn(90, 32)})


def test_large_tensors_get_larger_tiles_than_small_ones(module, only):
    limits = only(processors=132)

    small, large = (module.choose_tile(rows, 512, 4, limits) for rows in (100, 10**6))

    assert small.rows * small.cols < large.rows * large.cols


def test_launches_nothing_for_an_empty_input(module, monkeypatch):
    monkeypatch.setattr(module, "_flat_kernel", None)

    assert module.vector_add(torch.zeros(3, 0), torch.zeros(3, 0)).shape == (3, 0)
