"""Targets to compile for without a device. Needs no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perfci.core import extensions
from perfci.core.errors import UsageError
from perfci.core.model import Reason

# What workers need before they import Triton: with line information a comment above a kernel changes its digest.
LINE_FREE = {"TRITON_DISABLE_LINE_INFO": "1"}


@dataclass(frozen=True)
class Target:
    """An architecture, and the board that stands for it. None is what no source gives."""

    name: str  # as users write it: sm_90, gfx942
    board: str  # name that the board's runtime reports
    capability: tuple[int, int]
    processors: int  # streaming multiprocessors, or compute units of what the runtime shows as one device
    shared_block: int  # most bytes of shared memory (LDS) of one program
    shared_processor: int  # bytes of shared memory that a processor shares out among its programs
    warps: int  # most warps (waves) resident on a processor
    blocks: int  # most programs resident on a processor
    l2_bytes: int
    memory_bytes: int | None = None
    clock_khz: int | None = None
    memory_clock_khz: int | None = None
    bus_bits: int | None = None
    tensor_columns: int = 0  # columns of tensor memory of a processor
    shared_unit: int = 128  # bytes in which shared memory is handed out
    shared_reserved: int = 1024  # bytes of shared memory that the system takes for each resident program

    @property
    def backend(self) -> str:
        """Triton's name of the compiler: cuda, hip, or what an extension's target has."""
        return "cuda" if self.name.startswith("sm_") else "hip"

    @property
    def arch(self) -> int | str:
        """Triton's name of the architecture: 90 for sm_90, gfx942 as it is."""
        return int(self.name.removeprefix("sm_")) if self.backend == "cuda" else self.name

    @property
    def warp_size(self) -> int:
        """Threads of a warp. Every AMD target here has waves of 64."""
        return 32 if self.backend == "cuda" else 64

    @property
    def registers(self) -> int:
        """32-bit registers of a processor as the runtimes report them. Of AMD's CUs half of what they have.

        0: no figures of its binaries are known.
        """
        return 65536

    @property
    def threads(self) -> int:
        """Most threads resident on a processor."""
        return self.warps * self.warp_size

    @property
    def driver_facts(self) -> dict[str, int | str]:
        """The board's properties by the names of Triton's driver."""
        values = {
            "max_shared_mem": self.shared_block,
            "max_num_regs": self.registers,
            "multiprocessor_count": self.processors,
            "warpSize": self.warp_size,
            "max_threads_per_sm": self.threads,
            "sm_clock_rate": self.clock_khz,
            "mem_clock_rate": self.memory_clock_khz,
            "mem_bus_width": self.bus_bits,
            "arch": self.name if self.backend == "hip" else None,
        }
        return {name: value for name, value in values.items() if value is not None}

    def prepare_compiler(self) -> None:
        """Have this process's Triton compile for it as far as that needs no device."""

    def explain_no_compiler(self) -> Reason | None:
        """Why this process's Triton cannot compile for it."""

    def explain_missing(self) -> Reason | None:
        """What of its compiler is not asked here."""

    def count(self, asm: Mapping[str, Any]) -> Any:
        """`InstructionCounts` of a kernel's code by stage, of a target without registers. None if nothing is known."""


# Processors, L2, memory and clocks: NVIDIA's architecture whitepapers (A100, GA102, Ada, H100, RTX Blackwell) and
# product briefs (A10, L40S), what an H200 and a B200 report, AMD's GPU specifications at rocm.docs.amd.com and what an
# MI300X reports. Warps, programs and shared memory of a processor: CUDA C++ Programming Guide, technical specifications
# per compute capability, and CUDA's cuda_occupancy.h. For AMD LLVM's AMDGPU backend (waves per SIMD, work groups, size
# and granularity of LDS).
_ALL = (
    Target(
        "sm_80", "NVIDIA A100-SXM4-80GB", (8, 0), 108, 166912, 167936, 64, 32, 40 << 20,
        clock_khz=1_410_000, memory_clock_khz=1_593_000, bus_bits=5120,
    ),
    Target("sm_86", "NVIDIA A10", (8, 6), 72, 101376, 102400, 48, 16, 6 << 20),
    Target("sm_89", "NVIDIA L40S", (8, 9), 142, 101376, 102400, 48, 24, 96 << 20),
    Target(
        "sm_90", "NVIDIA H200", (9, 0), 132, 232448, 233472, 64, 32, 60 << 20, memory_bytes=150_109_880_320,
        clock_khz=1_980_000, memory_clock_khz=3_201_000, bus_bits=6016,
    ),
    Target(
        "sm_100", "NVIDIA B200", (10, 0), 148, 232448, 233472, 64, 32, 132_644_864,
        memory_clock_khz=3_996_000, bus_bits=7680, tensor_columns=512,
    ),
    Target("sm_120", "NVIDIA RTX PRO 6000 Blackwell Server Edition", (12, 0), 188, 101376, 102400, 48, 24, 128 << 20),
    Target(
        "gfx90a", "AMD Instinct MI250X", (9, 0), 110, 65536, 65536, 32, 16, 8 << 20,
        shared_unit=512, shared_reserved=0,
    ),
    Target(
        "gfx942", "AMD Instinct MI300X", (9, 4), 304, 65536, 65536, 32, 16, 4 << 20,
        memory_bytes=196_592 << 20, clock_khz=2_100_000, shared_unit=512, shared_reserved=0,
    ),
    Target(
        "gfx950", "AMD Instinct MI355X", (9, 5), 256, 163840, 163840, 32, 16, 4 << 20,
        shared_unit=1280, shared_reserved=0,
    ),
)  # fmt: skip

TARGETS = {target.name: target for target in _ALL}


def target_named(name: str) -> Target:
    """The target that users call so. Raises UsageError for one that perfci has no facts of."""
    targets_known: dict[str, Target] = TARGETS | {
        target.name: target for targets in extensions.provided("target") for target in targets
    }
    if name not in targets_known:
        raise UsageError("unknown_target", target=name, known=", ".join(targets_known))
    return targets_known[name]
