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


def test_a_large_matrix_product_is_bound_by_arithmetic():
    diagnosis = seen(
        case(1900.0, moved=3 * 8192**2 * 2, flops=2 * 8192**3, binaries=(compiled(200, 8, 196608, tensor=64),))
    )

    assert diagnosis.bound is Bound.COMPUTE


def test_a_kernel_of_one_warp_with_255_registers_is_bound_by_occupancy():
    diagnosis = seen(case(900.0, moved=2**28, binaries=(compiled(255, 1),)))

    assert diagnosis.bound is Bound.OCCUPANCY
    assert diagnosis.advice[0].id == "fewer_registers"
    assert diagnosis.advice[0].by == "occupancy"
    # 65536 registers hold 8 warps of 255 registers and 16 of 127, where 32 programs fit.
    assert diagnosis.advice[0].speedup == pytest.approx(2.0)


def test_fewer_programs_than_processors_leave_some_idle():
    diagnosis = seen(case(300.0, moved=2**27, programs=33, binaries=(compiled(),)))
    assert seen(case(300.0, moved=2**27, programs=131, binaries=(compiled(),))).bound is Bound.LATENCY

    assert diagnosis.bound is Bound.OCCUPANCY
    assert (diagnosis.advice[0].id, diagnosis.advice[0].speedup, diagnosis.advice[0].by) == (
        "more_programs",
        4.0,
        "waves",
    )


def test_bytes_that_come_faster_than_any_copy_come_from_the_cache():
    assert seen(case(4.0, moved=2**25, binaries=(compiled(),))).bound is Bound.L2


def test_a_busy_cache_is_a_bound_of_its_own():
    assert seen(case(300.0, moved=2**28, counters={"l2": 0.85, "dram": 0.3})).bound is Bound.L2


def test_waiting_without_a_busy_peak_is_latency():
    counters = {"occupancy": 0.6, "dram": 0.3, "stall_long_scoreboard": 0.7}
    diagnosis = seen(case(300.0, moved=2**28, binaries=(compiled(),), counters=counters))

    assert diagnosis.bound is Bound.LATENCY
    assert "profile_stall" in {reason.kind for reason in diagnosis.evidence}
    assert diagnosis.advice[0].id == "more_stages"
    assert diagnosis.advice[0].speedup == pytest.approx(1 / 0.3)


def test_a_tensor_kernel_with_few_warps_is_not_called_idle():
    few = compiled(200, 8, 196608, tensor=64)

    assert few.occupancy == 0.125
    assert seen(case(4000.0, moved=3 * 8192**2 * 2, flops=2 * 8192**3, binaries=(few,))).bound is Bound.LATENCY
    assert (
        seen(case(4000.0, moved=3 * 8192**2 * 2, flops=2 * 8192**3, binaries=(compiled(255, 1),))).bound
        is Bound.OCCUPANCY
    )


def test_many_short_kernels_are_bound_by_their_launches():
    diagnosis = seen(case(9.0, moved=2**24, activities=4))

    assert diagnosis.bound is Bound.LAUNCH
    assert diagnosis.advice[0].id == "fuse_launches"
    assert diagnosis.advice[0].speedup == pytest.approx(2.0)  # 9.0 us less three starts of 1.5 us


def test_stores_that_are_a_little_faster_than_a_copy_still_go_to_memory():
    # A broadcast of an H200, which writes 403 MB and reads nothing.
    assert seen(case(87.4, moved=int(1.108 * 87.4e3 * COPY_GBPS))).bound is Bound.MEMORY


def test_counters_of_an_npu_decide_too():
    assert seen(case(300.0, counters={"vector": 0.2, "mte": 0.8})).bound is Bound.MEMORY
    assert seen(case(300.0, counters={"vector": 0.9, "mte": 0.3})).bound is Bound.COMPUTE


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


def test_traffic_beyond_the_declared_bytes_is_named_with_what_its_end_would_bring():
    counters = {"dram": 0.9, "dram_bytes": 2.0**29, "l2_hit": 0.1}
    diagnosis = seen(case(200.0, moved=2**28, counters=counters))

    assert diagnosis.bound is Bound.MEMORY
    assert (diagnosis.advice[0].id, diagnosis.advice[0].by) == ("less_traffic", "traffic")
    assert diagnosis.advice[0].speedup == pytest.approx(2.0)


def test_loads_that_use_an_eighth_of_their_sectors_are_to_be_coalesced():
    diagnosis = seen(case(2000.0, moved=2**28, counters={"dram": 0.8, "coalesced": 0.125, "sectors_load": 32.0}))

    assert diagnosis.advice[0].id == "coalesce"
    assert diagnosis.advice[0].speedup == pytest.approx(8.0)


def test_products_without_the_tensor_pipe_are_to_use_it():
    plain = compiled(64, 4, tensor=0)

    diagnosis = seen(case(20_000.0, moved=3 * 4096**2 * 2, flops=2 * 4096**3, binaries=(plain,)))
    assert "use_tensor_cores" in advised(diagnosis)
    assert "use_tensor_cores" not in advised(
        seen(case(20_000.0, moved=3 * 4096**2 * 2, flops=2 * 4096**3, binaries=(compiled(64, 4, tensor=9),)))
    )


def test_spilled_registers_are_named():
    diagnosis = seen(case(900.0, moved=2**28, binaries=(compiled(128, 4, spills=64),)))

    assert "profile_spills" in {reason.kind for reason in diagnosis.evidence}
    assert diagnosis.advice[0].id == "fewer_registers"


def test_two_directions_are_named_at_most_the_best_first():
    counters = {"occupancy": 0.2, "stall_long_scoreboard": 0.5, "coalesced": 0.25}
    diagnosis = seen(case(900.0, moved=2**26, programs=60, binaries=(compiled(255, 1),), counters=counters))

    assert len(diagnosis.advice) == 2
    assert diagnosis.advice[0].speedup >= diagnosis.advice[1].speedup


def test_a_host_that_takes_longer_than_the_device_is_named():
    diagnosis = seen(case(2.0, moved=4096, host_us=18.0))

    assert diagnosis.bound is Bound.LAUNCH
    assert "profile_host" in {reason.kind for reason in diagnosis.evidence}
    assert diagnosis.advice[0].id == "lighter_wrapper"
    assert diagnosis.advice[0].speedup == pytest.approx(9.0)


def test_without_any_figure_short_calls_are_launches_and_long_ones_latency():
    assert seen(CaseProfile("n=1", START_US)).bound is Bound.LAUNCH
    assert seen(CaseProfile("n=1", 1000.0)).bound is Bound.LATENCY
