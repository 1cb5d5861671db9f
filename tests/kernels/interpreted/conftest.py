import dataclasses
import functools
import importlib
import sys
from pathlib import Path

import pytest
import torch

from perfci.device.interpreter import correct

KERNELS = Path(__file__).resolve().parents[3] / "kernels"
OPS = (
    "broadcast", "bias_relu", "softmax", "matmul", "fp8_matmul", "attention", "attention_backward",
    "vector_add", "gelu", "layer_norm", "rms_norm", "cross_entropy",
    "conv2d", "fp8_attention",
)  # fmt: skip
sys.path[:0] = [str(KERNELS), *(str(KERNELS / op) for op in OPS)]
torch.set_num_threads(1)
correct()
GUARD = 64  # elements before and behind


def pytest_generate_tests(metafunc):
    """`case` and `reject` run over the accuracy suite of the op that the test's file names in OP."""
    if not hasattr(metafunc.module, "OP"):
        return
    import perfci

    suite = importlib.import_module(f"{metafunc.module.OP}_accuracy").accuracy
    if "case" in metafunc.fixturenames:
        metafunc.parametrize("case", suite.cases, ids=perfci.case_id)
    if "reject" in metafunc.fixturenames:
        metafunc.parametrize("reject", [pytest.param(make, id=name) for name, make in suite.rejects])


def pytest_collection_modifyitems(items):
    """The interpreter computes with numpy, which warns where the right answer is NaN or infinity."""
    for item in items:
        item.add_marker(pytest.mark.torch)
        item.add_marker(pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning"))
        # numpy's, of the interpreter before Triton 3.7; numpy 2.4 made an error of it.
        item.add_marker(pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning"))


@pytest.fixture
def module(request):
    return importlib.import_module(f"{request.module.OP}_triton")


@pytest.fixture
def suite(request):
    return importlib.import_module(f"{request.module.OP}_accuracy").accuracy


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


@pytest.fixture
def guarded():
    """A copy that lies within a buffer full of NaN: reading past its edge spoils the answer."""

    def put(tensor):
        buffer = torch.full((tensor.numel() + 2 * GUARD,), float("nan"), dtype=tensor.dtype)
        inside = buffer[GUARD : GUARD + tensor.numel()].view(tensor.shape)
        inside.copy_(tensor)
        return inside

    return put


@pytest.fixture
def outputs(monkeypatch):
    """Outputs start as NaN between guards of -1; gives the buffers to look at."""
    buffers = []

    def empty(shape, *, dtype, device):
        size = torch.Size(shape).numel()
        buffer = torch.full((size + 2 * GUARD,), -1.0, dtype=dtype, device=device)
        buffers.append(buffer)
        return buffer[GUARD : GUARD + size].fill_(float("nan")).view(shape)

    monkeypatch.setattr(torch, "empty", empty)
    return buffers


@pytest.fixture
def only(monkeypatch):
    """Makes `_launch.limits` give the generic limits with the named ones replaced."""
    import _launch

    usual = _launch.limits(torch.device("cpu"))

    def replace(**fields):
        limits = dataclasses.replace(usual, **fields)
        monkeypatch.setattr(_launch, "limits", functools.cache(lambda device: limits))
        return limits

    return replace
