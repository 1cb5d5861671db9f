"""Which bound a case has and what it is advised, for cases with an answer that is known."""

import pytest

from perfci.core.model import Device, KernelBinary, Reason
from perfci.extensions.agents.bottleneck import START_US, diagnose
from perfci.extensions.agents.profile_records import Bound, CaseProfile
from perfci.extensions.common.binaries import find_occupancy
from perfci.extensions.common.targets import TARGETS

H200 = TARGETS["sm_90"]
BOARD = Device("cuda", "NVIDIA H200", "nvidia-h200", processors=132)
CHIP = Device("npu", "Ascend910B2", "ascend910b2", processors=48)
COPY_GBPS, MATMUL_TFLOPS = 4000.0, 700.0


def case(us, moved=None, flops=None, **more):
    """A case of an H200 with the rates that these bytes and operations reach."""
    rates = {}
    if moved:
        rates |= {"gbps": moved / us / 1e3, "of_copy": moved / us / 1e3 / COPY_GBPS}
    if flops:
        rates |= {"tflops": flops / us / 1e6, "of_matmul": flops / us / 1e6 / MATMUL_TFLOPS}
    facts = {"activities": 1, "programs": 10_000} | more
    return CaseProfile("n=1", us, bytes_moved=moved, rates=rates, **facts)


def compiled(registers=32, warps=4, shared=0, spills=0, tensor=0):
    """A kernel as compiled for an H200."""
    room = find_occupancy(H200, registers=registers, shared=shared, warps=warps)
    mix = {"memory": 8, "tensor": tensor}
    return KernelBinary(
        "kernel", "abc", registers, spills, spills, shared, 100, mix=mix, warps=warps, occupancy=room
    )  # fmt: skip


def seen(timed):
    return diagnose(timed, BOARD, H200)


def advised(diagnosis):
    return [advice.id for advice in diagnosis.advice]


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_a_large_vector_addition_is_bound_by_memory():
    diagnosis = seen(case(115.0, moved=3 * 2**27, binaries=(compiled(),)))

    assert diagnosis.bound is Bound.MEMORY
    assert diagnosis.evidence[0].kind == "profile_busy"


def test_a_small_matrix_product_is_bound_by_its_launch():
    diagnosis = seen(
        case(6.5, moved=3 * 512 * 512 * 2, flops=2 * 512**3, programs=16, binaries=(compiled(128, 8, 65536),))
    )

    assert diagnosis.bound is Bound.LAUNCH
    assert diagnosis.evidence[0].kind == "profile_start"
    assert "more_programs" in advised(diagnosis)


PRODUCT = {"moved": 3 * 8192**2 * 2, "flops": 2 * 8192**3}
BOUNDS = {
    "a large product": (case(1900.0, **PRODUCT, binaries=(compiled(200, 8, 196608, tensor=64),)), Bound.COMPUTE),
    "a product of few warps": (case(4000.0, **PRODUCT, binaries=(compiled(200, 8, 196608, tensor=64),)), Bound.LATENCY),
    "a product of one warp": (case(4000.0, **PRODUCT, binaries=(compiled(255, 1),)), Bound.OCCUPANCY),
    "nearly a program a processor": (case(300.0, moved=2**27, programs=131, binaries=(compiled(),)), Bound.LATENCY),
    "faster than any copy": (case(4.0, moved=2**25, binaries=(compiled(),)), Bound.L2),
    "a busy cache": (case(300.0, moved=2**28, counters={"l2": 0.85, "dram": 0.3}), Bound.L2),
    # A broadcast of an H200, which writes 403 MB and reads nothing.
    "stores a little faster than a copy": (case(87.4, moved=int(1.108 * 87.4e3 * COPY_GBPS)), Bound.MEMORY),
    "an NPU that moves": (case(300.0, counters={"vector": 0.2, "mte": 0.8}), Bound.MEMORY),
    "an NPU that computes": (case(300.0, counters={"vector": 0.9, "mte": 0.3}), Bound.COMPUTE),
    "a short call without figures": (CaseProfile("n=1", START_US), Bound.LAUNCH),
    "a long call without figures": (CaseProfile("n=1", 1000.0), Bound.LATENCY),
}


@pytest.mark.parametrize(("timed", "bound"), BOUNDS.values(), ids=BOUNDS)
def test_a_case_has_the_bound_that_its_figures_show(timed, bound):
    assert seen(timed).bound is bound


WAITING = {"occupancy": 0.6, "dram": 0.3, "stall_long_scoreboard": 0.7}
EXCESS = {"dram": 0.9, "dram_bytes": 2.0**29, "l2_hit": 0.1}
SCATTERED = {"dram": 0.8, "coalesced": 0.125, "sectors_load": 32.0}
ADVICE = {
    # 65536 registers hold 8 warps of 255 registers and 16 of 127, where 32 programs fit.
    "255 registers": (
        case(900.0, moved=2**28, binaries=(compiled(255, 1),)), Bound.OCCUPANCY, "fewer_registers",
        (2.0, "occupancy"), None,
    ),
    "spilled registers": (
        case(900.0, moved=2**28, binaries=(compiled(128, 4, spills=64),)), None, "fewer_registers", None,
        "profile_spills",
    ),
    "few programs": (
        case(300.0, moved=2**27, programs=33, binaries=(compiled(),)), Bound.OCCUPANCY, "more_programs",
        (4.0, "waves"), None,
    ),
    "waiting": (
        case(300.0, moved=2**28, binaries=(compiled(),), counters=WAITING), Bound.LATENCY, "more_stages", (1 / 0.3,),
        "profile_stall",
    ),
    # 9.0 us less three starts of 1.5 us
    "many short kernels": (case(9.0, moved=2**24, activities=4), Bound.LAUNCH, "fuse_launches", (2.0,), None),
    "more traffic than declared": (
        case(200.0, moved=2**28, counters=EXCESS), Bound.MEMORY, "less_traffic", (2.0, "traffic"), None,
    ),
    "an eighth of each sector": (case(2000.0, moved=2**28, counters=SCATTERED), None, "coalesce", (8.0,), None),
    "a slow host": (case(2.0, moved=4096, host_us=18.0), Bound.LAUNCH, "lighter_wrapper", (9.0,), "profile_host"),
}  # fmt: skip


@pytest.mark.parametrize(("timed", "bound", "first", "brings", "evidence"), ADVICE.values(), ids=ADVICE)
def test_the_first_advice_is_what_brings_most_with_how_much_and_why(timed, bound, first, brings, evidence):
    """brings: how many times as fast, and by what, where that is known."""
    diagnosis = seen(timed)

    assert diagnosis.advice[0].id == first
    assert bound in {None, diagnosis.bound}
    if brings:
        assert diagnosis.advice[0].speedup == pytest.approx(brings[0])
        assert diagnosis.advice[0].by in brings[1:] or not brings[1:]
    assert evidence in {None, *(reason.kind for reason in diagnosis.evidence)}


def test_an_npu_is_advised_nothing_about_warps():
    diagnosis = diagnose(case(300.0, moved=2**26, programs=600), CHIP)

    assert diagnosis.bound is Bound.LATENCY
    assert diagnosis.advice
    assert not [advice.id for advice in diagnosis.advice if "warps" in advice.id or advice.id == "wider_loads"]


def test_a_case_that_failed_stays_as_it_is():
    failed = CaseProfile("n=1", failure=Reason("kernel_raised"))

    assert seen(failed) == failed


# --- advice -----------------------------------------------------------------------------------------------------------


def test_nobody_is_promised_more_than_the_roofline():
    # 2 MiB in 60 us: the copy's ceiling allows 112 times as fast, one program for 132 processors 132 times.
    diagnosis = seen(case(60.0, moved=2**21, programs=1))

    most = 60.0 / (2**21 / COPY_GBPS / 1e3)
    assert diagnosis.advice
    assert all(advice.speedup <= most * 1.001 for advice in diagnosis.advice)


def test_nobody_is_promised_less_time_than_a_start_takes():
    diagnosis = seen(case(3.0, moved=4096, programs=4))

    assert diagnosis.bound is Bound.LAUNCH
    assert diagnosis.advice
    assert all((advice.speedup, advice.by) == (2.0, "launch") for advice in diagnosis.advice)


def test_a_case_at_its_ceiling_is_advised_nothing():
    diagnosis = seen(case(102.0, moved=3 * 2**27, binaries=(compiled(),)))

    assert diagnosis.bound is Bound.MEMORY
    assert not diagnosis.advice


def test_products_without_the_tensor_pipe_are_to_use_it():
    plain = compiled(64, 4, tensor=0)

    diagnosis = seen(case(20_000.0, moved=3 * 4096**2 * 2, flops=2 * 4096**3, binaries=(plain,)))
    assert "use_tensor_cores" in advised(diagnosis)
    assert "use_tensor_cores" not in advised(
        seen(case(20_000.0, moved=3 * 4096**2 * 2, flops=2 * 4096**3, binaries=(compiled(64, 4, tensor=9),)))
    )


def test_two_directions_are_named_at_most_the_best_first():
    counters = {"occupancy": 0.2, "stall_long_scoreboard": 0.5, "coalesced": 0.25}
    diagnosis = seen(case(900.0, moved=2**26, programs=60, binaries=(compiled(255, 1),), counters=counters))

    assert len(diagnosis.advice) == 2
    assert diagnosis.advice[0].speedup >= diagnosis.advice[1].speedup
