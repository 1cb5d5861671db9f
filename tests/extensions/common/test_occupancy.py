"""How many programs a processor holds, as vendors' calculators say."""

import pytest

from perfci.extensions.common.binaries import find_occupancy
from perfci.extensions.common.targets import TARGETS


def of(target, registers, shared=0, warps=4, columns=0):
    return find_occupancy(TARGETS[target], registers=registers, shared=shared, warps=warps, columns=columns)


def test_the_example_of_the_cuda_best_practices_guide():
    """37 registers a thread: 12 programs of 128 threads reach 75 %, 4 of 320 threads 63 %."""
    assert of("sm_80", 37, warps=4) == 0.75
    assert of("sm_80", 37, warps=10) == pytest.approx(0.625)


@pytest.mark.parametrize(
    ("registers", "expected"),
    [(32, 1.0), (33, 0.75), (40, 0.75), (41, 0.625), (64, 0.5), (65, 0.4375), (128, 0.25), (168, 0.1875), (255, 0.125)],
)
def test_registers_are_handed_out_in_units_of_256_a_warp(registers, expected):
    """The table of the CUDA Occupancy Calculator for compute capability 9.0 and programs of 128 threads."""
    assert of("sm_90", registers) == expected


@pytest.mark.parametrize(
    ("target", "shared", "programs"),
    [
        ("sm_90", 232448, 1),
        ("sm_90", 115712, 2),
        ("sm_90", 115713, 1),
        ("sm_80", 166912, 1),
        ("sm_80", 40960, 4),
        ("sm_86", 101376, 1),
        ("sm_86", 50176, 2),
        ("sm_89", 50177, 1),
        ("sm_100", 76800, 3),
        ("sm_120", 50176, 2),
    ],
)
def test_every_program_costs_a_kibibyte_of_shared_memory_beside_its_own(target, shared, programs):
    """164, 100 and 228 KiB of a processor, 1 KiB reserved for each program: CUDA C++ Programming Guide."""
    assert of(target, 32, shared) == programs * 4 / TARGETS[target].warps


@pytest.mark.parametrize(
    ("registers", "waves"),
    [(64, 8), (65, 7), (72, 7), (80, 6), (96, 5), (128, 4), (168, 3), (256, 2), (257, 1), (512, 1)],
)
def test_waves_of_a_simd_follow_the_512_registers_of_a_lane(registers, waves):
    """The table of waves per SIMD for CDNA2 and CDNA3: registers in units of 8, at most 8 waves."""
    assert of("gfx942", registers) == waves / 8


def test_programs_of_one_wave_need_no_barrier_on_amd():
    assert of("gfx942", 32, warps=1) == 1.0
    assert of("gfx942", 32, warps=2) == 1.0
