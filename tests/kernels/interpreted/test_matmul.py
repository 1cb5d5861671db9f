import pytest
import torch

from tests import triton_versions

pytestmark = pytest.mark.nightly
OP = "matmul"


def normal(*shape, dtype=torch.float32, seed=5):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def h200():
    import _launch

    return _launch.Limits(**_launch._read("nvidia-h200"))


@pytest.fixture
def agrees(suite):
    """Compares the kernel's answer with the reference in float64, by torch.testing's tolerances."""

    def check(inputs, terms=1):
        got = suite.kernel(**inputs)
        wide = {name: value.double() if torch.is_tensor(value) else value for name, value in inputs.items()}
        exact = suite.reference(**wide)
        dtype = next(iter(inputs.values())).dtype
        assert got.dtype == dtype
        assert got.is_contiguous()
        rtol, atol = {torch.float32: (1.3e-6, 1e-5), torch.float16: (1e-3, 1e-5), torch.bfloat16: (1.6e-2, 1e-5)}[dtype]
        torch.testing.assert_close(got, exact.to(dtype), rtol=rtol, atol=atol * terms**0.5, equal_nan=True)
        return got

    return check


@pytest.mark.parametrize("group", [1, 3, 8])
def test_grouping_visits_every_tile(group, module, agrees, monkeypatch):
    monkeypatch.setattr(module, "choose_config", lambda *_: module.Config(16, 16, 16, group, 4, 2))

    agrees({"a": normal(16 * 7, 16), "b": normal(16, 16 * 3)}, terms=16)


# --- bias and activation ----------------------------------------------------------------------------------------------


def test_the_epilogue_is_done_before_the_one_rounding(module):
    a, b = torch.full((16, 1), 2049.0).half(), torch.ones(1, 16).half()  # 2049 is no float16: 2048

    got = module.matmul(torch.cat([a, a / a], 1), torch.cat([b, b]), torch.full((16,), 1.0).half())

    assert torch.equal(got, torch.full((16, 16), 2050.0).half())  # 2048 + 1 would be rounded to 2048 before the bias


# --- tiles by descriptor ----------------------------------------------------------------------------------------------


@pytest.fixture
def launched(module, monkeypatch):
    """Names of the kernels that were launched."""
    seen = []
    for name in ("_matmul_kernel", "_tma_kernel"):
        monkeypatch.setattr(module, name, Watched(getattr(module, name), name, seen))
    return seen


class Watched:
    def __init__(self, kernel, name, seen):
        self.kernel, self.name, self.seen = kernel, name, seen

    def __getitem__(self, grid):
        self.seen.append(self.name)
        return self.kernel[grid]


def half(*shape, seed=5):
    return normal(*shape, dtype=torch.float16, seed=seed)


@triton_versions.needs_descriptors
@pytest.mark.parametrize(
    ("a", "b", "kernel"),
    [
        (half(33, 40), half(40, 24), "_tma_kernel"),
        (half(40, 40).t(), half(40, 24), "_tma_kernel"),
        (half(33, 40), half(24, 40).t(), "_tma_kernel"),
        (half(40, 40).t(), half(24, 40).t(), "_tma_kernel"),
        (half(33, 48)[:, :40], half(48, 24)[8:], "_tma_kernel"),
        (half(33, 48)[:, 8:45], half(37, 24), "_tma_kernel"),
        (half(33, 40), half(40, 20), "_matmul_kernel"),
        (half(33, 41)[:, 1:], half(40, 24), "_matmul_kernel"),
        (half(33, 80)[:, ::2], half(40, 24), "_matmul_kernel"),
        (half(1, 40).expand(33, 40), half(40, 24), "_matmul_kernel"),
        (half(33 * 40 + 1)[1:].view(33, 40), half(40, 24), "_matmul_kernel"),
        (normal(33, 40), normal(40, 24), "_matmul_kernel"),
        (half(33, 0), half(0, 24), "_matmul_kernel"),
    ],
)
def test_descriptors_are_used_exactly_where_alignment_allows(a, b, kernel, launched, agrees):
    agrees({"a": a, "b": b}, terms=40)

    assert launched == [kernel]


@triton_versions.needs_descriptors
@pytest.mark.parametrize("split", [1, 2])
@pytest.mark.parametrize("processors", [3, 1000])
def test_tiles_by_descriptor_cover_the_product(split, processors, module, only, agrees, launched, monkeypatch):
    only(processors=processors)
    config = module.Config(32, 32, 32, 2, 4, 2, persistent=True, tma=True, split=split, flatten=True)
    monkeypatch.setattr(module, "choose_config", lambda *_: config)
    bias = half(104)

    agrees({"a": half(170, 72), "b": half(72, 104), "bias": bias, "activation": "silu"}, terms=72)
    assert launched == ["_tma_kernel"]


@triton_versions.needs_descriptors
@pytest.mark.parametrize("columns", ["", "a", "b", "ab"])
def test_what_lies_beyond_the_edge_of_a_descriptor_counts_for_nothing(columns, guarded, outputs, agrees):
    a, b = (guarded(half(72, 40)), guarded(half(24, 40)))
    a = a if "a" not in columns else guarded(half(40, 72)).t()
    b = b.t() if "b" in columns else guarded(half(40, 24))

    agrees({"a": a, "b": b}, terms=40)
    assert (outputs[0][:64] == -1).all() and (outputs[0][-64:] == -1).all()
