"""How much of a processor's warps a kernel can keep resident, from its registers, shared memory and warps alone."""

from __future__ import annotations

from perfci.device.targets import Target

REGISTERS = 65536
REGISTER_UNIT = 256
"""NVIDIA: registers are handed out to a warp in multiples of this."""

WARP_UNIT = 4
"""NVIDIA: a processor's registers lie in four parts, and so many warps are placed at once."""

LANE_REGISTERS = 512
"""AMD, CDNA2 and later: registers that a lane of a SIMD has for all its waves, vector and accumulation together."""

LANE_UNIT = 8
SIMDS = 4


def occupancy(
    target: Target, *, registers: int, shared: int, warps: int, columns: int = 0, available: int = REGISTERS
) -> float:
    """Resident warps of the most that a processor holds, 0 to 1; 0 where not even one program fits.

    registers: of a thread, on AMD vector and accumulation registers together. shared: bytes of a program. warps: of a
    program. columns: of tensor memory that a program takes (Blackwell). available: registers of an NVIDIA processor.

    NVIDIA: the rules of the CUDA Occupancy Calculator (registers by warp in units of 256, warps four at a time, shared
    memory in units of 128 bytes with 1 KiB of the system's for each program). AMD: the CDNA3 ISA guide, registers of a
    lane in units of 8, and the limits of LLVM's AMDGPU backend, where waves are spread over four SIMDs.
    """
    fits = _waves(target, registers) if target.backend == "hip" else _warps(target, registers, available)
    limits = [target.blocks, target.warps // warps, fits // warps, _by_shared(target, shared)]
    if target.backend == "hip" and warps == 1:
        limits[0] = target.warps  # a program of one wave needs no barrier, and barriers are what runs out
    if columns:
        limits.append(target.tensor_columns // columns)
    return min(limits) * warps / target.warps


def _warps(target: Target, registers: int, available: int) -> int:
    """Warps whose registers fit on an NVIDIA processor."""
    if not registers:
        return target.warps
    of_warp = _round_up(registers * target.warp_size, REGISTER_UNIT)
    return available // of_warp // WARP_UNIT * WARP_UNIT


def _waves(target: Target, registers: int) -> int:
    """Waves whose registers fit on an AMD processor."""
    if not registers:
        return target.warps
    return min(LANE_REGISTERS // _round_up(registers, LANE_UNIT) * SIMDS, target.warps)


def _by_shared(target: Target, shared: int) -> int:
    taken = _round_up(shared + target.shared_reserved, target.shared_unit)
    return target.shared_processor // taken if taken else target.warps


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
