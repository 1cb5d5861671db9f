"""What CUDA GPUs and NPUs have in common."""

import itertools
import os

import pytest

if "CI" not in os.environ:  # in CI a missing package is a failure
    pytest.importorskip("torch")
    pytest.importorskip("triton")

import torch

from perfci.device.cuda import CudaDevice
from perfci.device.torch_device import find_fastest_s

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("names", "count"), [(["H200"], 1), (["H200"] * 4, 4), (["H200", "H200", "T4"], 1), (["T4", "H200"], 1)]
)
def test_boards_of_another_model_are_seen_and_do_not_count(monkeypatch, names, count):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(names))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: names[index])
    device = object.__new__(CudaDevice)
    device._module = torch.cuda

    assert (device.count(), device.visible()) == (count, len(names))


# --- how fast a device copies at best ---------------------------------------------------------------------------------


def pair(*seconds):
    """A pair of buffers with copies that take these times, including the untimed first one; the last time repeats."""
    times = itertools.chain(seconds, itertools.repeat(seconds[-1]))
    return lambda: next(times)


def still():
    return 0.0


def test_a_pair_counts_with_its_median_and_no_lucky_reading_sets_the_ceiling():
    lucky = pair(9.0, 0.2, 1.1, 1.1, 1.2, 1.1)

    assert find_fastest_s([lucky, pair(1.15)], still) == 1.1
