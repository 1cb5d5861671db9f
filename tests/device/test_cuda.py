"""Both timers and the device itself, on a real GPU."""

import importlib.util
import os
import statistics
import time

import pytest

from perfci.core.model import DeviceState
from perfci.extensions.agents.profile_task import find_target
from perfci.extensions.common.targets import TARGETS

if "CI" not in os.environ:  # in CI a missing package is a failure
    pytest.importorskip("torch")

import torch

pytestmark = [
    pytest.mark.torch,
    pytest.mark.cuda,
    # torch warns that a session keeps its last cycle only, but it has only one.
    pytest.mark.filterwarnings("ignore:.*Profiler clears events.*"),
]

LAUNCHES = 30


@pytest.fixture(scope="module")
def open_cuda():
    from perfci.device.cuda import CudaDevice

    opened = {}

    def make(timer):
        if timer not in opened:
            opened[timer] = CudaDevice(timer)
            opened[timer].start_timer()
        return opened[timer]

    yield make
    opened.clear()
    torch.cuda.empty_cache()


@pytest.fixture
def device(open_cuda):
    return open_cuda("auto")


def copy_of(count_bytes):
    """A call that launches one copy kernel."""
    source = torch.ones(count_bytes // 4, device="cuda")
    target = torch.empty_like(source)
    return lambda: torch.add(source, 1.0, out=target)


def timed(device, call, launches=LAUNCHES):
    for _ in range(3):
        call()
    with device.session() as session:
        for _ in range(launches):
            session.launch(call)
        session.pause()
    return session


def test_activity_records_count_the_kernels_of_a_launch(open_cuda):
    add = copy_of(1 << 20)

    def thrice():
        for _ in range(3):
            add()

    launches = timed(open_cuda("activity"), thrice).launches()

    assert {launch.activities for launch in launches} == {3}
    assert all(launch.span_us >= launch.time_us for launch in launches)


def test_a_call_that_raises_in_a_session_costs_its_own_launch_only(open_cuda):
    add = copy_of(1 << 20)

    def broken():
        add()
        raise RuntimeError("planted")

    with open_cuda("activity").session() as session:
        session.launch(add)
        with pytest.raises(RuntimeError, match="planted"):
            session.launch(broken)
        session.launch(add)

    assert [launch.activities for launch in session.launches()] == [1, 1]


def test_both_timers_agree_on_a_kernel_of_100_us(open_cuda):
    device = open_cuda("activity")
    # Read and written once each; sized so that the copy takes some 100 us on this very board.
    bandwidth = device.limits([]).copy_gbps * 1e9
    call = copy_of(int(100e-6 * bandwidth / 2) // 4096 * 4096)

    # In turns, and the first turn does not count: a GPU that was idle takes up to a tenth longer for some milliseconds.
    times = [
        statistics.median(launch.time_us for launch in timed(open_cuda(timer), call).launches())
        for timer in ("activity", "event") * 2
    ]
    activity, event = times[2:]

    assert 60 < activity < 200
    # An event pair adds some microseconds, and never takes any away.
    assert -0.03 * activity < event - activity < 0.03 * activity + 8


def test_the_flush_makes_a_small_kernel_read_memory_and_not_the_cache(open_cuda):
    device = open_cuda("activity")
    call = copy_of(device.info.l2_bytes // 4)
    flushed = statistics.median(launch.time_us for launch in timed(device, call).launches())
    with device.session() as session:
        for _ in range(LAUNCHES):
            session.launch(lambda: (call(), call()))
    pair = statistics.median(launch.time_us for launch in session.launches())

    # The second of two calls finds its operands in the cache.
    assert pair - flushed < 0.95 * flushed


def launched(device, call, *, warm, launches=LAUNCHES):
    """The times of launches of one call."""
    for _ in range(3):
        call()
    with device.session() as session:
        for _ in range(launches):
            session.launch(call, warm=warm)
        session.pause()
    return session.launches()


def ratio_of_warm_to_cold(device, count_bytes):
    call = copy_of(count_bytes)
    warm, cold = (
        statistics.median(launch.time_us for launch in launched(device, call, warm=warm)) for warm in (True, False)
    )
    return warm / cold


@pytest.mark.parametrize("timer", ["activity", "event"])
def test_a_warm_launch_is_faster_where_the_cache_holds_what_it_needs_and_as_slow_where_it_cannot(open_cuda, timer):
    device = open_cuda(timer)

    # Read and written: half of the cache, and 20 times the cache.
    assert ratio_of_warm_to_cold(device, device.info.l2_bytes // 4) < 0.9
    assert ratio_of_warm_to_cold(device, device.info.l2_bytes * 10) == pytest.approx(1, abs=0.03)


def test_limits_are_those_of_a_gpu(device):
    limits = device.limits(["float16", "float32"])

    assert 100 < limits.copy_gbps < 20_000
    assert 1 < limits.matmul_tflops["float32"] < limits.matmul_tflops["float16"] < 10_000


def test_float8_has_a_rate_above_that_of_16_bits_and_what_cannot_be_multiplied_has_none(device):
    rates = device.limits(["bfloat16", "float8_e4m3fn", "float8_e5m2", "int16"]).matmul_tflops

    assert rates.keys() == {"bfloat16", "float8_e4m3fn", "float8_e5m2"}
    assert 1.2 * rates["bfloat16"] < min(rates["float8_e4m3fn"], rates["float8_e5m2"])


def test_the_copy_that_everything_is_held_against_does_not_hang_on_what_was_allocated_before(device):
    """Of single buffers, later ones of a process copied a tenth slower on an H200."""
    first = device.limits([]).copy_gbps
    held = [torch.empty(megabytes << 20, dtype=torch.uint8, device="cuda") for megabytes in (3, 700, 1100, 65, 300)]
    began = time.perf_counter()
    later = device.limits([]).copy_gbps
    seconds = time.perf_counter() - began

    assert len(held) == 5
    assert later == pytest.approx(first, rel=0.03)
    assert seconds < 0.2, "allocation included"


def test_the_device_says_what_it_is(device):
    info = device.info

    assert info.kind == "cuda"
    assert info.name == torch.cuda.get_device_name(0)
    assert info.key == "-".join(info.name.lower().split())
    assert info.uuid and info.runtime == f"CUDA {torch.version.cuda}"
    assert info.l2_bytes > 1 << 20 and info.memory_bytes > 1 << 30 and info.processors > 1


def test_the_state_has_clocks_temperature_and_power_where_the_library_is_installed(device):
    state = device.state()
    if importlib.util.find_spec("pynvml") is None:
        assert state == DeviceState()
        return

    assert 100 < state.sm_clock_mhz < 5000
    assert 0 < state.temperature_c < 120
    assert state.power_w is None or state.power_w > 1
    assert state.foreign_processes is None or state.foreign_processes >= 0


def test_recorded_kernels_name_registers_and_constants(device):
    from perfci.device.cuda import Flush

    flush = Flush(1 << 20, "cuda")
    with device.record_kernels() as kernels:
        flush()

    (kernel,) = kernels.values()
    assert kernel.name == "perfci_l2_flush"
    assert kernel.registers > 0 and kernel.spills == 0
    assert kernel.warps == 8
    assert "BLOCK=4096" in kernel.constants and "STEPS=4" in kernel.constants


def test_an_event_pair_reads_twice_the_time_for_twice_the_work(open_cuda):
    x = torch.randn(2048, 2048, device="cuda")
    out = torch.empty_like(x)

    def median(count):
        session = timed(open_cuda("event"), lambda: [torch.matmul(x, x, out=out) for _ in range(count)])
        return statistics.median(launch.time_us for launch in session.launches())

    assert median(8) / median(4) == pytest.approx(2, rel=0.15)


def test_host_work_before_the_launch_is_hidden_by_the_events_spin(open_cuda):
    add = copy_of(4 << 20)

    def slow_wrapper():
        sum(range(1000))  # some 10 us of the host
        add()

    plain, slow = (timed(open_cuda("event"), call).launches() for call in (add, slow_wrapper))

    assert statistics.median(launch.time_us for launch in slow) == pytest.approx(
        statistics.median(launch.time_us for launch in plain), abs=3
    )
    assert statistics.median(launch.host_us for launch in slow) > 5
    assert all(launch.span_us == launch.time_us and launch.activities is None for launch in slow)


def test_the_flush_reads_all_of_its_buffer(device):
    flush = device._flush
    flush._source.fill_(1)
    flush()
    torch.cuda.synchronize()

    assert int(flush._sink.sum()) == flush._count
    flush._source.zero_()


def test_a_board_has_the_facts_of_its_architecture_if_perfci_has_them(device):
    name = "sm_{}{}".format(*torch.cuda.get_device_capability())

    assert find_target(device) is TARGETS.get(name)


def test_memory_without_bytes_is_handed_over_too(open_cuda):
    arrays = open_cuda("event").arrays

    handle = arrays.open_to_others(torch.empty(0, 3, device="cuda"))

    assert arrays.open_foreign(handle).numel() == 0
