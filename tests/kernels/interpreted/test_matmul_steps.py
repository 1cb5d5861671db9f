import matmul_steps
import pytest
import torch
from matmul_baseline import matmul as reference

from tests import triton_versions

pytestmark = pytest.mark.nightly
SHAPES = [(33, 24, 40), (70, 72, 40)]


def inputs(m, n, k, dtype=torch.float16):
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in ((m, k), (k, n), (n,))]


def variants(dtype):
    return [name for name in matmul_steps.VARIANTS if name != "tma" or dtype is not torch.float32]


@triton_versions.needs_descriptors
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("variant", "dtype"), [(name, dtype) for dtype in (torch.float32, torch.float16) for name in variants(dtype)]
)
def test_every_step_gives_the_references_answer(variant, dtype, shape):
    a, b, bias = inputs(*shape, dtype)
    room = {torch.float32: (1.3e-6, 1e-5), torch.float16: (2e-3, 2e-3)}[dtype]  # those apart round twice

    for epilogue in ({}, {"bias": bias, "activation": "gelu"}):
        exact = reference(a.double(), b.double(), **{k: v.double() if v is bias else v for k, v in epilogue.items()})
        got = matmul_steps.matmul_step(a, b, variant, **epilogue)
        torch.testing.assert_close(got, exact.to(dtype), rtol=room[0], atol=room[1] * shape[2] ** 0.5)


@pytest.mark.parametrize("variant", ["Naive", "", None, "tensor cores"])
def test_a_variant_that_does_not_exist_is_told_with_those_that_do(variant):
    a, b, _ = inputs(*SHAPES[0])

    with pytest.raises(ValueError, match=r"matmul_step: variant is .*'naive', 'tiled', .*'fused'"):
        matmul_steps.matmul_step(a, b, variant)


@pytest.mark.parametrize("variant", [name for name in matmul_steps.VARIANTS if name != "tma"])
def test_every_step_takes_any_strides_and_no_elements(variant):
    a, b, _ = inputs(40, 48, 24)
    got = matmul_steps.matmul_step(b.t(), a.t(), variant)

    torch.testing.assert_close(got, (b.t().double() @ a.t().double()).half(), rtol=2e-3, atol=1e-3)
    assert matmul_steps.matmul_step(a[:0], b, variant).shape == (0, 48)
