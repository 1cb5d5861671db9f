"""Figures of compiled binaries: registers, spills, instructions by class, occupancy.

Cubins are read by programs that Triton bundles, AMD's binaries by their assembly.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfci.core.model import KernelBinary, Reason
from perfci.device.source import artefact
from perfci.extensions.common.elf import list_sections
from perfci.extensions.common.targets import Target

if TYPE_CHECKING:
    from perfci.device.launches import Launched

CLASSES = ("memory", "tensor", "float", "integer", "control", "other")  # other: moves, shuffles and the like
PADDING = frozenset({"NOP", "s_nop", "s_code_end"})

_NVIDIA = {
    "memory": """
        ATOM ATOMG ATOMS CCTL CCTLL CCTLT ERRBAR FENCE LD LDC LDCU LDG LDGMC LDGSTS LDL LDS LDSM LDT LDTM MEMBAR QSPC
        RED REDAS REDG ST STAS STG STL STS STSM STT STTM SUATOM SULD SURED SUST TEX TLD TLD4 TMML TXD TXQ""",
    "tensor": "BMMA DMMA HMMA IMMA OMMA QMMA BGMMA HGMMA IGMMA QGMMA WARPGROUP WARPGROUPSET",
    "float": """
        DADD DFMA DMNMX DMUL DSETP F2F F2FP F2I F2IP FADD FADD2 FADD32I FCHK FFMA FFMA2 FFMA32I FHADD FHFMA FMNMX FMNMX3
        FMUL FMUL2 FMUL32I FRND FSEL FSET FSETP FSWZADD HADD2 HADD2_32I HFMA2 HFMA2_32I HMNMX2 HMUL2 HMUL2_32I HSET2
        HSETP2 I2F I2FP MUFU""",
    "integer": """
        BMSK BREV CREDUX FLO I2I I2IP IABS IADD IADD3 IADD32I IADD64 IDP IDP4A IMAD IMAD32I IMNMX IMUL IMUL32I ISCADD
        ISCADD32I ISETP LEA LOP LOP3 LOP32I PLOP3 POPC PSETP REDUX SGXT SHF SHL SHR VABSDIFF VABSDIFF4 VHMNMX VIADD
        VIADDMNMX VIMNMX VIMNMX3""",
    "control": """
        ACQBULK BAR BMOV BPT BRA BREAK BRX BRXU BSSY BSYNC CALL CGABAR_ARV CGABAR_GET CGABAR_SET CGABAR_WAIT CGAERRBAR
        DEPBAR ELECT ENDCOLLECTIVE EXIT JMP JMX JMXU KILL LDGDEPBAR NANOSLEEP PREEXIT RET RPCMOV SETMAXREG SYNCS
        WARPSYNC YIELD""",
}
_CLASS = {opcode: name for name, opcodes in _NVIDIA.items() for opcode in opcodes.split()}
_FAMILIES = {"UTC": "tensor", "UTMA": "memory", "UBLK": "memory"}

_AMD = (
    (
        "memory",
        re.compile(r"(global|flat|t?buffer|scratch|ds)_|s_(load|store|buffer|atomic|dcache|memtime|memrealtime)"),
    ),
    ("tensor", re.compile(r"v_(mfma|smfmac|s?wmma|dot)")),
    ("control", re.compile(r"s_(c?branch|endpgm|barrier|waitcnt|setpc|swappc|getpc|call|sleep|sethalt|trap|setprio)")),
    ("other", re.compile(r"[vs]_(c?mov|cndmask|cselect|readfirstlane|readlane|writelane|perm|swap|accvgpr|nop)")),
    ("float", re.compile(r"v_\w*_b?f(8|16|32|64)(_|$)")),
    ("integer", re.compile(r"[vs]_\w*_[biu](1|8|16|24|32|64)(_|$)")),
)

_TRAITS = {  # backend -> what separates a good compilation from a bad one -> opcodes with their modifiers
    "cuda": {
        "double": re.compile(r"D(ADD|FMA|MMA|MNMX|MUL|SETP)\b|.*\.(F64|\w+64H)\b"),
        "tensor": re.compile(r"U?[A-Z]*MMA\b"),
        "warpgroup": re.compile(r"[BHIQ]GMMA\b|UTC[A-Z]*MMA\b"),
        "asynchronous": re.compile(r"LDGSTS\b|UTMALDG\b|UBLKCP\b"),
        "global": re.compile(r"(LDG|STG|LDGSTS)\b"),
    },
    "hip": {
        "double": re.compile(r"v_\w+_f64(_|$)"),
        "tensor": _AMD[1][1],
        "asynchronous": re.compile(r"(global|buffer)_load_(lds|\w+_lds)"),
        "global": re.compile(r"(global|flat|buffer)_(load|store)_"),
    },
}
_WIDTHS = ((re.compile(r"\.256\b"), 32), (re.compile(r"\.128\b|x4(_|$)|b128$"), 16), (re.compile(r"x3$|b96$"), 12),
           (re.compile(r"\.64\b|x2$|b64$"), 8), (re.compile(r"\.[US]16\b|short|[bui]16"), 2),
           (re.compile(r"\.[US]8\b|byte|[bui]8"), 1))  # fmt: skip
"""Bytes that an access of global memory moves for a thread, by its modifiers. 4 without one of these."""

TOOLS = {"cuobjdump": "registers, spills and occupancy", "nvdisasm": "instructions"}  # NVIDIA's programs, their figures
TIME_LIMIT_S = 120  # of one of these programs
_FRAME_UNIT, _BYTES = 8, 16  # in which a stack grows, and of an instruction since Volta


@dataclass(frozen=True)
class Usage:
    """The resources of a thread."""

    registers: int  # on AMD vector and accumulation registers together
    local_bytes: int
    spill_bytes: int | None


def tool(name: str) -> str | None:
    """Path of one of NVIDIA's programs: named by Triton's variable, bundled with Triton, or on the path."""
    spec = importlib.util.find_spec("triton")
    home = Path(spec.origin).parent if spec is not None and spec.origin else Path()
    bundled = home / "backends" / "nvidia" / "bin" / name
    for path in (os.environ.get(f"TRITON_{name.upper()}_PATH"), bundled, shutil.which(name)):
        if path and os.access(path, os.X_OK):
            return str(path)
    return None


def nvidia_usage(cubin: bytes, ptx: str | None, name: str) -> Usage | None:
    """Registers and stack of a kernel by cuobjdump. What of the stack its PTX does not declare was spilled."""
    text = run_tool("cuobjdump", cubin, "--dump-resource-usage")
    match = re.search(rf"Function {re.escape(name)}:\s*REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", text or "")
    if match is None:
        return None
    registers, stack, local = map(int, match.groups())
    declared = sum(map(int, re.findall(r"\.local [^;\[]*__local_depot\d+\[(\d+)\]", ptx or "")))
    asked = -(-declared // _FRAME_UNIT) * _FRAME_UNIT
    return Usage(registers, stack + local, None if ptx is None else max(stack + local - asked, 0))


def amd_usage(assembly: str) -> Usage | None:
    """From the metadata at the end of a kernel's assembly. None if it is not there."""
    figures = {name: int(value) for name, value in re.findall(r"^\s*\.(\w+):\s+(\d+)$", assembly, re.MULTILINE)}
    if not {"vgpr_count", "vgpr_spill_count", "private_segment_fixed_size"} <= figures.keys():
        return None
    return Usage(figures["vgpr_count"], figures["private_segment_fixed_size"], 4 * figures["vgpr_spill_count"])


@dataclass(frozen=True)
class InstructionCounts:
    """The instructions of a kernel."""

    classes: dict[str, int]  # by class
    traits: dict[str, int]  # as in `KernelBinary`


def nvidia_counts(cubins: Sequence[bytes], arch: str) -> list[InstructionCounts | None]:
    """The instructions of each cubin. None if nvdisasm is missing or fails. arch: SM80, SM90a."""
    # One run for all of them: it takes 0.3 s to start, and hardly more for a hundred kernels than for one.
    codes = [code_sections(cubin) for cubin in cubins]
    image = b"".join(code for parts in codes for code in parts)
    opcodes = nvidia_opcodes((run_tool("nvdisasm", image, "--binary", arch) if image else None) or "")
    if not image or len(opcodes) * _BYTES != len(image):
        return [None] * len(cubins)
    taken = iter(opcodes)
    return [count([opcode for code in parts for opcode in _cut(islice(taken, len(code) // _BYTES))]) for parts in codes]


def code_sections(cubin: bytes) -> list[bytes]:
    """The sections of an ELF file that hold instructions: the kernel, and functions that it calls."""
    return [section.content for section in list_sections(cubin) if section.name.startswith(b".text.")]


def nvidia_opcodes(text: str) -> list[str]:
    """Opcodes in order, without predicates: `/*0010*/ @!P0 STG.E.128 [R2], R4 ;` is STG.E.128."""
    return re.findall(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?\w+\s+)?([\w.]+)", text, re.MULTILINE)


def amd_opcodes(text: str) -> list[str]:
    """Opcodes of the kernel: instructions are indented and start with a letter, directives with a dot.

    Loads into shared memory have `lds` at the end of the line: here _lds behind the opcode.
    """
    kernel = text.split(".Lfunc_end0:", maxsplit=1)[0]
    lines = re.findall(r"^\t([a-z]\w+)(?:[^;\n]*\s(lds)\s*(?:;.*)?$)?", kernel, re.MULTILINE)
    return [f"{opcode}_lds" if shared else opcode for opcode, shared in lines]


def run_tool(name: str, image: bytes, *options: str) -> str | None:
    """Output of one of NVIDIA's programs about a file. None if it is missing or fails."""
    path = tool(name)
    if path is None:
        return None
    with tempfile.NamedTemporaryFile(suffix=".bin") as file:
        file.write(image)
        file.flush()
        command = [path, *options, file.name]
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", check=False, timeout=TIME_LIMIT_S
        )
    return done.stdout if done.returncode == 0 else None


def nvidia_class(opcode: str) -> str:
    """Class of an opcode without modifiers (STG of STG.E.128), by the instruction sets in CUDA Binary Utilities."""
    family = next((name for beginning, name in _FAMILIES.items() if opcode.startswith(beginning)), None)
    return family or _CLASS.get(opcode) or _CLASS.get(opcode.removeprefix("U"), "other")  # U: uniform registers


def amd_class(opcode: str) -> str:
    """Class of an opcode, by the naming of AMD's CDNA3 instruction set architecture."""
    return next((name for name, pattern in _AMD if pattern.match(opcode)), "other")


def count(opcodes: Sequence[str], backend: str = "cuda") -> InstructionCounts:
    """The instructions of a kernel, by class and by trait. opcodes: with their modifiers, without padding."""
    class_of, classes = amd_class if backend == "hip" else nvidia_class, dict.fromkeys(CLASSES, 0)
    traits = dict.fromkeys((*_TRAITS["cuda"], "global_bytes"), 0)
    for opcode, times in Counter(opcodes).items():
        classes[class_of(opcode.partition(".")[0])] += times
        for trait, pattern in _TRAITS[backend].items():
            traits[trait] += times * bool(pattern.match(opcode))
        if _TRAITS[backend]["global"].match(opcode):
            width = next((width for pattern, width in _WIDTHS if pattern.search(opcode)), 4)
            traits["global_bytes"] += times * width
    return InstructionCounts(classes, traits)


def _cut(opcodes: Iterable[str]) -> list[str]:
    """Opcodes without the padding behind the last instruction."""
    kept = list(opcodes)
    while kept and kept[-1] in PADDING:
        kept.pop()
    return kept


# --- of launches ------------------------------------------------------------------------------------------------------

_usages: dict[str, Usage | None] = {}
_counts: dict[str, InstructionCounts | None] = {}


def examine(launches: Iterable[Launched], target: Target) -> None:
    """Count the instructions of binaries that are not known yet, all of them at once."""
    kernels = {artefact(launch.kernel): launch.kernel for launch in launches}
    fresh = {key: kernel.asm for key, kernel in kernels.items() if key not in _counts}
    if not target.registers:  # what is compared is no binary
        _counts.update({key: target.count(asm) for key, asm in fresh.items()})
        return
    if target.backend == "hip":
        _counts.update({key: count(_cut(amd_opcodes(asm["amdgcn"])), "hip") for key, asm in fresh.items()})
        return
    suffix = "a" if target.capability >= (9, 0) else ""  # as Triton compiles: for features of this architecture alone
    counts = nvidia_counts([asm["cubin"] for asm in fresh.values()], f"SM{target.arch}{suffix}")
    _counts.update(zip(fresh, counts, strict=True))


def binaries(launches: Iterable[Launched], target: Target) -> tuple[KernelBinary, ...]:
    """Every distinct kernel once, in order of its first launch. Figures that no tool gives are None."""
    first: dict[tuple[str, str], Launched] = {}
    for launch in launches:
        first.setdefault((launch.name, artefact(launch.kernel)), launch)
    examine(first.values(), target)
    return tuple(_binary(launch, target) for launch in first.values())


def unavailable(target: Target) -> Reason | None:
    """Which figures of a target's kernels are missing for want of a program, or what of its compiler was not asked."""
    missing = [name for name in TOOLS if tool(name) is None] if target.backend == "cuda" else []
    figures = " and ".join(TOOLS[name] for name in missing)
    lacking = Reason("static_tool_missing", {"tools": ", ".join(missing), "figures": figures})
    return lacking if missing else target.explain_missing()


def usage(kernel: Any) -> Usage | None:
    """The resources of a thread of a compiled kernel. None if that is unknown."""
    key, asm = artefact(kernel), {"ptx": getattr(kernel, "declared", None), **kernel.asm}
    if key not in _usages:
        if "amdgcn" in asm:
            _usages[key] = amd_usage(asm["amdgcn"])
        elif "cubin" in asm:
            _usages[key] = nvidia_usage(asm["cubin"], asm.get("ptx"), kernel.metadata.name)
    return _usages.get(key)


def _binary(launch: Launched, target: Target) -> KernelBinary:
    metadata, key = launch.kernel.metadata, artefact(launch.kernel)
    used, counts, occupancy = usage(launch.kernel), _counts[key], None
    if used:
        columns = getattr(metadata, "tmem_size", None) or 0
        figures = {"registers": used.registers, "shared": metadata.shared, "warps": metadata.num_warps}
        occupancy = find_occupancy(target, **figures, columns=columns)
    return KernelBinary(
        name=launch.name,
        artefact=key,
        registers=used.registers if used else None,
        spill_bytes=used.spill_bytes if used else None,
        local_bytes=used.local_bytes if used else None,
        shared_bytes=metadata.shared if target.registers else counts.traits.get("ub_bytes", 0) if counts else None,
        instructions=sum(counts.classes.values()) if counts and counts.classes else None,
        mix=counts.classes if counts else {},
        traits=counts.traits if counts else {},
        warps=metadata.num_warps if target.registers else None,
        occupancy=occupancy,
    )


# --- occupancy --------------------------------------------------------------------------------------------------------

REGISTERS = 65536
REGISTER_UNIT = 256  # NVIDIA: registers are handed out to a warp in multiples of this
WARP_UNIT = 4  # NVIDIA: a processor's registers lie in four parts, and so many warps are placed at once
LANE_REGISTERS = 512  # AMD, CDNA2 and later: of a lane of a SIMD for all its waves, vector and accumulation together
LANE_UNIT, SIMDS = 8, 4


def find_occupancy(
    target: Target, *, registers: int, shared: int, warps: int, columns: int = 0, available: int = REGISTERS
) -> float:
    """Resident warps of the most that a processor holds, 0 to 1. 0 if not even one program fits.

    registers: of a thread, on AMD with accumulation registers. shared (bytes), warps, columns (tensor memory): of a
    program. available: registers of an NVIDIA processor. NVIDIA: the rules of the CUDA Occupancy Calculator. AMD: the
    CDNA3 ISA guide, and the limits of LLVM's AMDGPU backend, where waves are spread over four SIMDs.
    """
    if target.backend == "hip":
        lanes = LANE_REGISTERS // _round_up(registers, LANE_UNIT) if registers else target.warps
        fits = min(lanes * SIMDS, target.warps)
        # A program of one wave needs no barrier, and barriers are what runs out.
        programs = target.warps if warps == 1 else target.blocks
    else:
        of_warp = _round_up(registers * target.warp_size, REGISTER_UNIT)
        fits = available // of_warp // WARP_UNIT * WARP_UNIT if of_warp else target.warps
        programs = target.blocks
    limits = [programs, target.warps // warps, fits // warps]
    if taken := _round_up(shared + target.shared_reserved, target.shared_unit):
        limits.append(target.shared_processor // taken)
    if columns:
        limits.append(target.tensor_columns // columns)
    return min(limits) * warps / target.warps


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
