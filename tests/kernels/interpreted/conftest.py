import dataclasses
import functools
import importlib
import sys
from pathlib import Path

import pytest
import torch

from perfci.extensions.interpreter.corrected import correct
from tests.kernels.interpreted.suites import OPS

KERNELS = Path(__file__).resolve().parents[3] / "kernels"
sys.path[:0] = [str(KERNELS), str(KERNELS.parent / "examples"), *(str(KERNELS / op) for op in OPS)]
torch.set_num_threads(1)
correct()


GUARD = 64  # elements before and behind


def pytest_collection_modifyitems(items):
    """The interpreter computes with numpy, which warns if the right answer is NaN or infinity."""
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
def guarded():
    """A copy within a buffer full of NaN: reading past its edge breaks the answer."""

    def put(tensor):
        buffer = torch.full((tensor.numel() + 2 * GUARD,), float("nan"), dtype=tensor.dtype)
        inside = buffer[GUARD : GUARD + tensor.numel()].view(tensor.shape)
        inside.copy_(tensor)
        return inside

    return put


@pytest.fixture
def outputs(monkeypatch):
    """Outputs start as NaN between guards of -1; returns the buffers to check."""
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
    """Makes `_launch.limits` return the generic limits with the named ones replaced."""
    import _launch

    usual = _launch.limits(torch.device("meta"))

    def replace(**fields):
        limits = dataclasses.replace(usual, **fields)
        monkeypatch.setattr(_launch, "limits", functools.cache(lambda device: limits))
        return limits

    return replace
