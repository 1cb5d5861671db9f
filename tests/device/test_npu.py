"""The NPU device on a torch_npu put in its place; its tensors lie on the CPU."""

from __future__ import annotations

import doctest
import os
import sys
import time
from types import ModuleType, SimpleNamespace

import pytest

if "CI" not in os.environ:  # where a missing package is a failure
    pytest.importorskip("torch")
    pytest.importorskip("triton")

import torch

from perfci.core.errors import DeviceError
from perfci.core.model import CompiledKernel, DeviceState, Identity
from perfci.device import npu as module
from perfci.device import npu_events, npu_flush, npu_profiler, npu_runtime, open_device
from perfci.device.npu import NpuDevice, device_key
from perfci.device.npu_smi import Chip, Monitor, Place, Table
from perfci.device.seam import Uncaptured
from tests.device import scripted_npu
from tests.device.scripted_npu import Flush, Profiler, event_of

pytestmark = pytest.mark.torch

MIB = 1 << 20


class Npu(SimpleNamespace):
    """torch.npu."""

    def __init__(self, chip, names=("Ascend910B2",)):
        class Stream:
            def synchronize(self):
                pass

        super().__init__(
            chip=chip, names=names, Event=event_of(chip), Stream=Stream, allocated=0, peak=0,
            synchronize=chip.synchronize, is_available=lambda: True, device_count=lambda: len(names),
            set_device=lambda index: None, current_stream=lambda: None, empty_cache=lambda: None,
            get_device_name=lambda index: names[index], max_memory_allocated=lambda: self.peak,
            reset_peak_memory_stats=lambda: setattr(self, "peak", self.allocated),
        )  # fmt: skip

    def get_device_properties(self, index):
        return SimpleNamespace(
            name=self.names[index],
            total_memory=65536 * MIB,
            cube_core_num=24,
            vector_core_num=48,
            L2_cache_size=192 * MIB,
        )


class Watching(Monitor):
    """A chip by what npu-smi is made to say."""

    def __init__(self, health="OK", clocks=(1800,), rated=1800):
        self.place, self._rated, self._clocks = Place(0), rated, list(clocks)
        self._health = health
        self.asked = 0

    def table(self):
        return Table("25.5.1", (Chip(Place(0), "910B2", self._health, 93.4, 47, 3402 * MIB),), ())

    def clock_mhz(self):
        self.asked += 1
        return self._clocks.pop(0) if len(self._clocks) > 1 else self._clocks[0]

    def rated_mhz(self):
        return self._rated

    def serial(self):
        return "DIE"


@pytest.fixture
def made(monkeypatch):
    """Make the device; its profiler is `made.profiler`, its chip `made.chip`."""
    monkeypatch.setattr(module, "BACKEND", "cpu")
    monkeypatch.setattr(npu_profiler, "WAIT_S", 0.0)
    monkeypatch.setattr(npu_profiler, "_POLL_S", 0.0)
    chip = scripted_npu.Chip()
    plugin, utils = ModuleType("torch_npu"), ModuleType("torch_npu.npu.utils")
    utils.get_cann_version = lambda: "8.5.0"

    class Profile:
        """Methods that an op might replace."""

        def __enter__(self): ...
        def __exit__(self, *_): ...
        def step(self): ...

    profiler = Profiler(chip)
    profile = profiler.profile
    plugin.profiler = profiler
    profiler.profile = type("profile", (Profile,), {"__new__": lambda cls, **asked: profile(**asked)})
    monkeypatch.setitem(sys.modules, "torch_npu", plugin)
    monkeypatch.setitem(sys.modules, "torch_npu.npu.utils", utils)
    profiler.tensorboard_trace_handler = profiler.tensorboard_trace_handler  # one object, as a function is
    own = {"__init__": lambda self, l2, cores, device: Flush.__init__(self, chip)}
    monkeypatch.setattr(module, "NpuFlush", type("NpuFlush", (Flush,), own))

    def make(timer="auto", names=("Ascend910B2",), **watching):
        npu = Npu(chip, names)
        device = NpuDevice(npu, timer, Watching(**watching))
        make.npu = npu
        return device

    make.chip, make.profiler, make.utils = chip, profiler, utils
    return make


# --- what it is -------------------------------------------------------------------------------------------------------


def test_it_is_described_by_model_die_driver_and_cann(made):
    info = made().info

    assert (info.kind, info.name, info.key, info.uuid) == ("npu", "Ascend910B2", "ascend910b2", "DIE")
    assert (info.driver, info.runtime) == ("25.5.1", "CANN 8.5.0")
    assert (info.processors, info.l2_bytes, info.memory_bytes) == (48, 192 * MIB, 65536 * MIB)


def test_an_older_torch_npu_that_tells_less_is_described_as_far_as_it_goes(made, monkeypatch):
    monkeypatch.setattr(Npu, "get_device_properties", lambda self, index: SimpleNamespace(name="Ascend910B3"))
    monkeypatch.delattr(made.utils, "get_cann_version")
    info = made().info

    assert (info.key, info.runtime, info.processors, info.l2_bytes) == ("ascend910b3", None, None, None)


def test_a_cann_that_cannot_tell_its_version_is_no_failure(made):
    def refuse():
        raise RuntimeError("no version file")

    made.utils.get_cann_version = refuse

    assert made().info.runtime is None


@pytest.mark.parametrize("health", ["Warning", "Alarm", "Critical"])
def test_a_sick_chip_is_refused_by_name(made, health):
    with pytest.raises(DeviceError, match=health) as caught:
        made(health=health)
    assert caught.value.reason.kind == "npu_unhealthy"


def test_a_chip_whose_health_is_not_known_is_used(made):
    assert made(health="UNKNOWN").info.key == "ascend910b2"


def test_devices_count_together_only_where_they_are_alike(made):
    assert made(names=("Ascend910B2",) * 8).count() == 8
    mixed = made(names=("Ascend910B2", "Ascend910B4"))
    assert (mixed.count(), mixed.visible()) == (1, 2)


def test_keys_name_the_model_however_it_is_spelt():
    assert {device_key(name) for name in ("Ascend910B2", "910B2", " ascend910b2 ")} == {"ascend910b2"}
    assert device_key("Ascend910_9392") == "ascend910-9392"


def test_its_state_is_what_npu_smi_says(made):
    assert made().state() == DeviceState(
        sm_clock_mhz=1800, temperature_c=47, power_w=93.4, foreign_processes=0, memory_used_bytes=3402 * MIB
    )


def test_opening_it_loads_torch_npu_before_it_looks_at_triton(made, monkeypatch):
    order = []
    npu = Npu(made.chip)
    monkeypatch.setattr(npu_runtime, "load", lambda: order.append("torch_npu") or npu)
    monkeypatch.setattr(npu_runtime, "check_triton", lambda: order.append("triton"))
    monkeypatch.setattr(module, "Monitor", Watching)

    device = open_device("npu", seed=1)

    assert isinstance(device, NpuDevice)
    assert order == ["torch_npu", "triton"]


# --- timing -----------------------------------------------------------------------------------------------------------


def test_the_profilers_records_are_its_first_timer(made):
    device = made()
    device.start_timer()
    with device.session() as session:
        session.launch(lambda: made.chip.run("kernel", 5.0))

    assert device.timer == "activity"
    assert [launch.time_us for launch in session.launches()] == [5.0]


@pytest.mark.parametrize("spoil", [lambda lines: None, lambda lines: lines[:1], lambda lines: [*lines, ["cut"]]])
def test_events_take_over_where_the_trial_session_leaves_nothing_that_can_be_read(made, spoil):
    made.profiler.spoil = spoil
    device = made()
    device.start_timer()
    with device.session() as session:
        session.launch(lambda: made.chip.run("kernel", 5.0, gap_us=0.0))

    assert device.timer == "event"
    assert [launch.time_us for launch in session.launches()] == pytest.approx([5.0])


def test_a_timer_asked_for_by_name_must_work(made):
    made.profiler.spoil = lambda lines: None
    device = made(timer="activity")

    with pytest.raises(DeviceError, match="no records") as caught:
        device.start_timer()
    assert caught.value.reason.kind == "npu_activity_unavailable"


def test_events_asked_for_by_name_start_no_profiler(made):
    device = made(timer="event")
    device.start_timer()

    assert device.timer == "event"
    assert made.profiler.asked == {}


def test_a_profiler_that_raises_is_no_timer(made):
    def refuse(**_):
        raise RuntimeError("the profiler is running already")

    made.profiler.profile.__new__ = staticmethod(lambda cls, **asked: refuse())
    device = made()
    device.start_timer()

    assert device.timer == "event"


@pytest.fixture
def busy(made, monkeypatch):
    """The boost's products, counted."""
    products = []
    monkeypatch.setattr(torch, "matmul", lambda left, right: products.append(left.dtype))
    return products


def test_a_chip_at_its_own_clock_is_not_kept_at_work(made, busy):
    made(clocks=(1800,))._boost()

    assert busy == []


def test_an_idle_chip_is_kept_at_work_until_its_clock_is_up(made, busy):
    device = made(clocks=(800, 1200, 1650, 1800))
    device._boost()

    assert len(busy) == 3 * module._BOOST_LAUNCHES
    assert set(busy) == {torch.float16}


def test_a_clock_that_stands_still_below_its_own_is_good_enough(made, busy):
    made(clocks=(800, 1500, 1500))._boost()

    assert len(busy) == 2 * module._BOOST_LAUNCHES


def test_where_the_clock_is_not_told_the_chip_is_kept_at_work_for_a_while_and_no_longer(made, busy, monkeypatch):
    monkeypatch.setattr(module, "BOOST_S", 0.02)
    device = made(clocks=(None,), rated=None)
    began = time.monotonic()
    device._boost()

    assert busy
    assert 0.02 <= time.monotonic() - began < 10


def test_a_replaced_timing_function_shows(made, monkeypatch):
    device = made()
    assert device.tampered() == ()

    monkeypatch.setattr(made.npu.Event, "elapsed_time", lambda self, end: 0.0)
    monkeypatch.setattr(sys.modules["torch_npu"].profiler, "tensorboard_trace_handler", lambda folder: None)
    assert device.tampered() == ("torch.npu.Event.elapsed_time", "torch_npu.profiler.tensorboard_trace_handler")


def test_an_event_replaced_after_opening_times_nothing(made):
    device = made(timer="event")
    device.start_timer()
    made.npu.Event = None

    with device.session() as session:
        session.launch(lambda: made.chip.run("kernel", 5.0, gap_us=0.0))
    assert session.launches()[0].time_us == pytest.approx(5.0)


def test_a_profiled_session_opens_no_second_one(made):
    """torch_npu.profiler has one pool of a process for its parsers."""
    device = made()
    device.start_timer()
    before = made.chip.waited
    with device.session() as session:
        session.launch(lambda: made.chip.run("kernel"))

    assert made.chip.waited == before + 2
    assert isinstance(session, npu_profiler.NpuActivitySession)
    assert not isinstance(session, npu_events.NpuEventSession)


# --- what calls do ----------------------------------------------------------------------------------------------------


def test_registers_spills_and_shared_memory_are_not_told(made, monkeypatch):
    from contextlib import contextmanager

    @contextmanager
    def kernels():
        yield {"k": CompiledKernel("k", registers=0, spills=0, shared_bytes=1, warps=4, stages=1, constants="BLOCK=64")}

    monkeypatch.setattr(module.watching, "recorded", kernels)
    with made().recorded() as found:
        pass

    assert found == {"k": CompiledKernel("k", warps=4, stages=1, constants="BLOCK=64")}


def test_operations_without_a_kernel_for_npus_are_named(made):
    # Here no operation has one; those that are made of others need none.
    done = ("aten.mm.default(#0 float16[8,16](16,1)@16)", "aten.mm.default(#1)", "aten.add.Tensor(#0)", "triton.k()")
    device = made()

    assert device.fallbacks(Identity(operations=done)) == ("aten::mm", "aten::add.Tensor")
    assert device.fallbacks(Identity(operations=("aten.reshape.default(#0)", "aten.no_such.thing(#0)"))) == ()
    assert device.fallbacks(Identity(unknown=None)) == ()


def test_what_an_npu_has_a_kernel_for_does_not_fall_back(made, monkeypatch):
    monkeypatch.setattr(
        torch._C, "_dispatch_has_kernel_for_dispatch_key", lambda name, key: (name, key) == ("aten::mm", "PrivateUse1")
    )

    assert made().fallbacks(Identity(operations=("aten.mm.default(#0)", "aten.sin.default(#0)"))) == ("aten::sin",)


def test_an_operation_whose_out_form_an_npu_has_does_not_fall_back(made, monkeypatch):
    had = ("aten::mm.out", "aten::add.out")
    monkeypatch.setattr(
        torch._C, "_dispatch_has_kernel_for_dispatch_key", lambda name, key: name in had and key == "PrivateUse1"
    )
    done = ("aten.mm.default()", "aten.add.Tensor()", "aten.sin.default()")

    assert made().fallbacks(Identity(operations=done)) == ("aten::sin",)


def test_interpreted_kernels_cannot_be_told_apart_and_have_no_ceilings(made, monkeypatch):
    monkeypatch.setattr(module, "interprets", lambda: True)
    device = made(clocks=(800,))
    device._boost()

    with device.captured() as capture:
        assert isinstance(capture, Uncaptured)
    assert capture.identity("x").unknown.kind == "captured_interpreted"
    assert device.limits(["float16"]).copy_gbps is None


def test_its_ceilings_are_measured_between_buffers_that_fit(made, monkeypatch):
    device = made()
    sizes = []

    def copied(source, zero, out):
        sizes.append(source.numel() * 4)
        made.chip.run("Add", 50.0, gap_us=0.0)

    monkeypatch.setattr(module, "COPY_BYTES", MIB)
    monkeypatch.setattr(module, "MATMUL_SIZE", 64)
    monkeypatch.setattr(torch, "add", copied)
    monkeypatch.setattr(torch, "matmul", lambda left, right: made.chip.run("MatMul", 100.0, gap_us=0.0))
    found = device.limits(["float16", "float64"])

    assert found.copy_gbps == pytest.approx(2 * MIB / 50e-6 / 1e9)
    assert found.matmul_tflops == {"float16": pytest.approx(2 * 64**3 / 100e-6 / 1e12)}
    assert set(sizes) == {MIB}


def test_peak_memory_is_the_allocators(made):
    device = made()
    with device.peak_memory() as peak:
        made.npu.peak = 4096

    assert peak.bytes == 4096


def test_memory_that_ran_out_is_known_by_its_type_or_by_torch_npus_words(made):
    device = made()

    assert device.out_of_memory(torch.OutOfMemoryError("x"))
    assert device.out_of_memory(RuntimeError("NPU out of memory. Tried to allocate 2.00 GiB"))
    assert not device.out_of_memory(RuntimeError("NPU error, code 507015"))


def test_references_in_float64_are_computed_on_the_host(made):
    arrays = made().arrays

    assert arrays._reference_device == "cpu"
    assert npu_runtime.BACKEND == "npu"
    assert npu_flush.LEAST_BYTES == 192 * MIB


def test_its_examples_hold():
    assert doctest.testmod(module) == (0, 1)
