"""What only tensor cores can show of matmul and fp8_matmul: copies by descriptor, and how they sum float8."""

import importlib
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.cuda]
KERNELS = Path(__file__).resolve().parents[2] / "kernels"
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


@pytest.fixture
def ops(monkeypatch):
    """The modules of both ops."""
    for folder in (KERNELS / "matmul", KERNELS / "fp8_matmul", KERNELS, KERNELS.parent / "examples"):
        monkeypatch.syspath_prepend(str(folder))
    names = ("matmul_triton", "matmul_baseline", "matmul_steps", "fp8_matmul_triton", "fp8_matmul_baseline")
    return {name: importlib.import_module(name) for name in names}


def relative(got, wanted):
    return float((got.double() - wanted).norm() / wanted.norm())


def wide(inputs):
    return {name: value.float().double() if torch.is_tensor(value) else value for name, value in inputs.items()}


def needs_float8():
    if torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("this GPU's tensor cores do not take float8")


@pytest.mark.parametrize("out_dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("dtype", [E4M3, E5M2])
@pytest.mark.parametrize(
    "shape", [(513, 256, 128), (640, 264, 400), (1000, 1040, 1552), (4096, 520, 8192), (2048, 8192, 16)]
)
def test_blocks_are_right_whichever_warps_multiply(shape, dtype, out_dtype, ops, monkeypatch):
    """By groups of warps, if this GPU and this Triton have them, on edges of tiles and over many tiles a program."""
    needs_float8()
    made = ops["fp8_matmul_baseline"].make_inputs(*shape, "block", dtype, out_dtype, "cuda", 3)
    wanted = ops["fp8_matmul_baseline"].fp8_matmul(**wide(made))
    module = ops["fp8_matmul_triton"]

    in_groups = [module.fp8_matmul(**made) for _ in range(3)]
    monkeypatch.setattr(module, "_fp8_blocks", None)
    module.choose_config.cache_clear()
    alone = module.fp8_matmul(**made)
    module.choose_config.cache_clear()

    for got in (*in_groups, alone):
        assert relative(got, wanted) < (5e-3 if out_dtype is torch.bfloat16 else 2e-3)
    assert all(torch.equal(got, in_groups[0]) for got in in_groups)


def test_sums_of_float32_outputs_do_not_drift_with_their_length(ops):
    """Equal terms. Tensor cores alone would cut off at every step."""
    needs_float8()
    k = 1 << 16
    a = torch.full((128, k), 1.125, device="cuda").to(E4M3)
    one = torch.ones((), device="cuda")

    got = ops["fp8_matmul_triton"].fp8_matmul(a, a.t(), one, one, torch.float32)

    assert float((got / (k * 1.125**2) - 1).abs().max()) < 1e-3
