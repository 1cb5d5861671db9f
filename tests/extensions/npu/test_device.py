"""The NPU device on a replaced torch_npu; its tensors are on the CPU."""

import doctest
import os
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest

if "CI" not in os.environ:  # in CI a missing package is a failure
    pytest.importorskip("torch")
    pytest.importorskip("triton")

import torch

from perfci.core.errors import DeviceError
from perfci.core.model import CompiledKernel, Identity
from perfci.device import open_device, torch_device
from perfci.device.seam import CountedCalls, Uncaptured
from perfci.extensions.npu import device as module
from perfci.extensions.npu import profiler as ascend_profiler
from perfci.extensions.npu import runtime
from perfci.extensions.npu.device import NpuDevice, NpuFlush
from perfci.extensions.npu.smi import Monitor, NpuChip, NpuPlace, NpuTable
from tests.extensions.npu import scripted_npu
from tests.extensions.npu.scripted_npu import Flush, Profiler, event_of

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
            mem_get_info=lambda: (65536 * MIB, 65536 * MIB),
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
    """A chip by npu-smi's planted output."""

    def __init__(self, health="OK", clocks=(1800,), rated=1800):
        self.place, self._rated, self._clocks = NpuPlace(0), rated, list(clocks)
        self._health = health
        self.asked = 0

    def table(self):
        return NpuTable("25.5.1", (NpuChip(NpuPlace(0), "910B2", self._health, 93.4, 47, 3402 * MIB),), ())

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
    monkeypatch.setattr(NpuDevice, "backend", "cpu")
    monkeypatch.setattr(ascend_profiler, "WAIT_S", 0.0)
    monkeypatch.setattr(ascend_profiler, "_POLL_S", 0.0)
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


# --- counters ---------------------------------------------------------------------------------------------------------

RATIOS = ("aic_mac_ratio", "aic_mte2_ratio", "aiv_vec_ratio", "aiv_mte2_ratio", "aiv_mte3_ratio", "aiv_scalar_ratio")


def ask(made, device, ratios, cases=("n=1", "n=2")):
    """Counters of calls that launch two kernels each. ratios: kernel -> what the profiler writes of it."""

    def spoil(lines):
        if made.profiler.asked["experimental_config"]["aic_metrics"] != "ACL_AICORE_PIPE_UTILIZATION":
            return lines
        return [[*lines[0], *RATIOS], *([*line, *ratios.get(line[1], ["N/A"] * len(RATIOS))] for line in lines[1:])]

    made.profiler.spoil = spoil

    def make(case):
        made.chip.run("warming", 99.0)
        return lambda: (made.chip.run(f"{case} short", 10.0), made.chip.run(f"{case} long", 30.0))

    return device.count_work(CountedCalls(cases, make, (), warm=False, alive=lambda: None))


def test_counters_of_a_call_are_those_of_its_kernels_by_their_times(made):
    counted = ask(
        made, made(), {
            "warming": ["1", "1", "1", "1", "1", "1"],
            "n=1 short": ["0.9", "0.1", "0", "0", "0", "0"], "n=1 long": ["0.5", "0.3", "0", "0.1", "0.2", "0.9"],
            "n=2 short": ["N/A", "N/A", "0.2", "0.8", "0.1", "0"], "n=2 long": ["N/A", "N/A", "0.2", "0.4", "0.8", "0"],
        },
    )  # fmt: skip

    assert (counted.source, counted.note) == ("aic_metrics", None)
    assert counted.cases["n=1"] == pytest.approx({"cube": 0.6, "mte": 0.25, "vector": 0.0})
    assert counted.cases["n=2"] == pytest.approx({"mte": 0.8, "vector": 0.2})


def test_timers_ask_for_no_counters_which_would_lengthen_kernels(made):
    device = made()
    device.start_timer()
    with device.session() as session:
        session.launch(lambda: made.chip.run("kernel", 5.0))

    assert made.profiler.asked["experimental_config"]["aic_metrics"] == "ACL_AICORE_NONE"


def test_a_profiler_that_leaves_nothing_gives_no_counters_and_the_reason(made):
    device = made()
    made.profiler.spoil = lambda lines: None
    work = device.count_work(CountedCalls(("n=1",), lambda case: lambda: None, (), warm=False, alive=lambda: None))

    assert (work.source, work.cases) == ("compiled", {})
    assert work.note is not None
    assert work.note.kind == "counters_failed"


# --- what it is -------------------------------------------------------------------------------------------------------


def test_it_is_described_by_model_die_driver_and_cann(made):
    info = made().info

    assert (info.kind, info.name, info.key, info.uuid) == ("npu", "Ascend910B2", "ascend910b2", "DIE")
    assert (info.driver, info.runtime) == ("25.5.1", "CANN 8.5.0")
    assert (info.processors, info.l2_bytes, info.memory_bytes) == (48, 192 * MIB, 65536 * MIB)


@pytest.mark.parametrize("health", ["Warning", "Alarm", "Critical"])
def test_a_sick_chip_is_refused_by_name(made, health):
    with pytest.raises(DeviceError, match=health) as caught:
        made(health=health)
    assert caught.value.reason.kind == "npu_unhealthy"


def test_opening_it_loads_torch_npu_before_it_looks_at_triton(made, monkeypatch):
    order = []
    npu = Npu(made.chip)
    monkeypatch.setattr(runtime, "load", lambda: order.append("torch_npu") or npu)
    monkeypatch.setattr(runtime, "check_triton", lambda: order.append("triton"))
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


@pytest.fixture
def busy(made, monkeypatch):
    """The boost's products, counted."""
    products = []
    monkeypatch.setattr(torch, "matmul", lambda left, right: products.append(left.dtype))
    return products


def test_an_idle_chip_is_kept_at_work_until_its_clock_is_up(made, busy):
    device = made(clocks=(800, 1200, 1650, 1800))
    device._boost()

    assert len(busy) == 3 * module._BOOST_LAUNCHES
    assert set(busy) == {torch.float16}


def test_a_replaced_timing_function_shows(made, monkeypatch):
    device = made()
    assert device.find_tampered() == ()

    monkeypatch.setattr(made.npu.Event, "elapsed_time", lambda self, end: 0.0)
    monkeypatch.setattr(sys.modules["torch_npu"].profiler, "tensorboard_trace_handler", lambda folder: None)
    names = [name.rpartition(".")[2] for name in device.find_tampered()]
    assert names == ["elapsed_time", "tensorboard_trace_handler"]


# --- what calls do ----------------------------------------------------------------------------------------------------


def test_registers_spills_and_shared_memory_are_not_told(made, monkeypatch):
    from contextlib import contextmanager

    @contextmanager
    def kernels():
        yield {"k": CompiledKernel("k", registers=0, spills=0, shared_bytes=1, warps=4, stages=1, constants="BLOCK=64")}

    monkeypatch.setattr(torch_device.launches, "record_kernels", kernels)
    with made().record_kernels() as found:
        pass

    assert found == {"k": CompiledKernel("k", warps=4, stages=1, constants="BLOCK=64")}


def test_operations_without_a_kernel_for_npus_are_named(made):
    # Here no operation has one; those made of others need none.
    done = ("aten.mm.default(#0 float16[8,16](16,1)@16)", "aten.mm.default(#1)", "aten.add.Tensor(#0)", "triton.k()")
    device = made()

    assert device.fallbacks(Identity(operations=done)) == ("aten::mm", "aten::add.Tensor")
    assert device.fallbacks(Identity(operations=("aten.reshape.default(#0)", "aten.no_such.thing(#0)"))) == ()
    assert device.fallbacks(Identity(unknown=None)) == ()


def test_interpreted_kernels_cannot_be_told_apart_and_have_no_ceilings(made, monkeypatch):
    monkeypatch.setattr(module, "interprets", lambda: True)
    device = made(clocks=(800,))
    device._boost()

    with device.capture_work() as capture:
        assert isinstance(capture, Uncaptured)
    assert capture.identity("x").unknown.kind == "captured_interpreted"
    assert device.limits(["float16"]).copy_gbps is None


def test_its_ceilings_are_measured_between_buffers_that_fit(made, monkeypatch):
    device = made()
    sizes = []

    def copied(source, zero, out):
        sizes.append(source.numel() * 4)
        made.chip.run("Add", 50.0, gap_us=0.0)

    monkeypatch.setattr(torch_device, "COPY_BYTES", MIB)
    monkeypatch.setattr(torch_device, "MATMUL_SIZE", 64)
    monkeypatch.setattr(torch, "add", copied)
    monkeypatch.setattr(torch, "matmul", lambda left, right: made.chip.run("MatMul", 100.0, gap_us=0.0))
    limits = device.limits(["float16", "float64"])

    assert limits.copy_gbps == pytest.approx(2 * MIB / 50e-6 / 1e9)
    assert limits.matmul_tflops == {"float16": pytest.approx(2 * 64**3 / 100e-6 / 1e12)}
    assert set(sizes) == {MIB}


def test_its_examples_hold():
    assert doctest.testmod(module) == (0, 1)


# --- the flush --------------------------------------------------------------------------------------------------------


class Kernel:
    """Stands in for the jitted function."""

    def __init__(self):
        self.launches = []

    def __getitem__(self, grid):
        def launch(source, sink, steps, block):
            self.launches.append((grid, source.numel(), sink.numel(), steps, block))

        return launch


@pytest.fixture
def kernel(monkeypatch):
    made = Kernel()
    monkeypatch.setattr(module, "perfci_l2_flush", made)
    monkeypatch.setattr(module, "interprets", lambda: False)
    return made


@pytest.mark.parametrize(("cores", "l2", "least"), [(40, 0, 192), (48, 192 * MIB, 384), (None, None, 192)])
def test_every_core_reads_the_same_and_together_twice_the_cache(kernel, cores, l2, least):
    NpuFlush(l2, cores, "meta")()
    ((programs,), elements, sinks, steps, block), = kernel.launches  # fmt: skip

    assert programs == sinks == (cores or 40)
    assert programs * steps * block == elements
    assert least * MIB <= 4 * elements < least * MIB + 4 * programs * block


CHECK = """
import torch
from perfci.extensions.npu.device import interprets, perfci_l2_flush
source, sink = torch.rand(4 * 256), torch.empty(2)
perfci_l2_flush[(2,)](source, sink, 2, 256)
assert interprets()
assert torch.allclose(sink, source.view(2, -1).sum(1), rtol=1e-5), sink
"""


@pytest.mark.nightly
def test_it_reads_each_element_once_and_stores_their_sum_so_that_no_compiler_leaves_the_reading_out():
    variables = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", CHECK], env=variables, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
