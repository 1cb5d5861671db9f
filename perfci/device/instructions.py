"""Classes of machine instructions: memory, tensor, control, float, integer; other is moves, shuffles and the like."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

CLASSES = ("memory", "tensor", "float", "integer", "control", "other")

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


def nvidia_class(opcode: str) -> str:
    """Class of an opcode without modifiers (STG of STG.E.128), by the instruction sets in CUDA Binary Utilities.

    What works on uniform registers (UIADD3) belongs with its like.
    """
    family = next((name for beginning, name in _FAMILIES.items() if opcode.startswith(beginning)), None)
    return family or _CLASS.get(opcode) or _CLASS.get(opcode.removeprefix("U"), "other")


def amd_class(opcode: str) -> str:
    """Class of an opcode, by the naming of AMD's CDNA3 instruction set architecture."""
    return next((name for name, pattern in _AMD if pattern.match(opcode)), "other")


def counted(opcodes: Iterable[str], class_of: Callable[[str], str]) -> dict[str, int]:
    """Instructions of every class; padding behind the last instruction is left out."""
    kept = list(opcodes)
    while kept and kept[-1] in PADDING:
        kept.pop()
    counts = dict.fromkeys(CLASSES, 0)
    for opcode in kept:
        counts[class_of(opcode)] += 1
    return counts
