"""What soaking needs of each device: the fake one, the CPU, and a GPU."""

import ctypes
import os

import pytest

if "CI" not in os.environ:  # in CI a missing package is a failure
    pytest.importorskip("torch")

import torch

from perfci.device import open_device
from perfci.device.fake import hold
from perfci.extensions.lab.soak.subject import open_endurance

pytestmark = pytest.mark.torch


def test_the_fake_device_counts_what_kernels_hold_and_what_they_hold_outside():
    endurance = open_endurance(open_device("fake", seed=1, fake={"memory_bytes": 1 << 30}))
    before = endurance.memory()
    endurance.reset_peak()

    hold(4096)
    hold(-4096)
    hold(512, outside=True)

    after = endurance.memory()
    hold(-512, outside=True)
    assert after.allocated == before.allocated
    assert after.peak == before.allocated + 4096
    assert after.outside == before.outside + 512
    assert endurance.room() == (1 << 30) - before.allocated - before.outside
    assert endurance.stream() is None


def test_the_host_tells_no_memory_and_has_no_streams():
    endurance = open_endurance(open_device("cpu", seed=1))

    assert endurance.memory().allocated is None
    assert endurance.room() is None
    assert endurance.stream() is None


def test_footprints_are_told_without_memory():
    endurance = open_endurance(open_device("cpu", seed=1))

    def huge():
        generator = torch.Generator("cpu").manual_seed(1)
        x = torch.randn((1 << 33, 4), generator=generator, dtype=torch.bfloat16)
        return [{"x": x, "n": 5}, torch.softmax(x, -1)]

    assert endurance.footprint(huge) == 2 * (1 << 33) * 4 * 2
    assert endurance.footprint(lambda: torch.ones(2).numpy()) is None


# --- on a GPU ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gpu():
    return open_device("cuda", seed=1)


@pytest.mark.cuda
def test_both_accounts_of_memory_see_what_is_theirs(gpu):
    endurance = open_endurance(gpu)
    before = endurance.memory()
    endurance.reset_peak()
    held = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    temporary = torch.empty(32 << 20, dtype=torch.uint8, device="cuda")
    del temporary
    after = endurance.memory()

    assert after.allocated - before.allocated == held.numel()
    assert after.peak - before.allocated == held.numel() + (32 << 20)
    assert abs(after.outside - before.outside) < 16 << 20
    assert endurance.room() <= torch.cuda.get_device_properties(0).total_memory


@pytest.mark.cuda
def test_memory_taken_behind_the_allocators_back_is_seen_by_the_driver(gpu):
    endurance, driver, pointer, size = open_endurance(gpu), ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64(), 256 << 20
    torch.ones(1, device="cuda")
    before = endurance.memory()
    assert driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)) == 0
    after = endurance.memory()
    assert driver.cuMemFree_v2(pointer) == 0

    assert after.allocated == before.allocated
    assert abs(after.outside - before.outside - size) < 16 << 20


@pytest.mark.cuda
def test_a_side_stream_does_not_wait_for_the_default_one_and_occupying_takes_its_time(gpu):
    endurance = open_endurance(gpu)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    side = endurance.stream()
    with endurance.on(side):  # what is loaded lazily is loaded here
        torch.ones(16, device="cuda")
    endurance.occupy()
    gpu.synchronize()
    endurance.occupy()  # the default stream
    with endurance.on(side):
        assert torch.cuda.current_stream() == side
        start.record()
        torch.ones(16, device="cuda")
        end.record()
    end.synchronize()
    assert not torch.cuda.default_stream().query()  # still at it
    with endurance.on(side), endurance.on(None):
        assert torch.cuda.current_stream() == torch.cuda.default_stream()
    gpu.synchronize()
    start.record()
    endurance.occupy()
    end.record()
    gpu.synchronize()
    assert 8 < start.elapsed_time(end) < 200
