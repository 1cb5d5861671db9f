"""Reads compiled kernels: cubins by programs that Triton bundles, AMD's by their assembly. Needs no torch."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from perfci.device.instructions import CLASSES, amd_class, counted, nvidia_class

TOOLS = {"cuobjdump": "registers, spills and occupancy", "nvdisasm": "instructions"}
"""NVIDIA's programs, and the figures that come from each."""

TIME_LIMIT_S = 120
_FRAME_UNIT = 8
"""Bytes in which a stack grows."""

_BYTES = 16
"""of an instruction, on every NVIDIA architecture since Volta"""


@dataclass(frozen=True)
class Usage:
    """What a thread of a kernel takes."""

    registers: int
    """on AMD vector and accumulation registers together"""
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
    """Registers and stack of a kernel as cuobjdump says; what of the stack its PTX does not declare was spilled.

    None where the program is missing or does not know the kernel; without the PTX nothing is known of spills.
    """
    text = _said("cuobjdump", cubin, "--dump-resource-usage")
    found = re.search(rf"Function {re.escape(name)}:\s*REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", text or "")
    if found is None:
        return None
    registers, stack, local = map(int, found.groups())
    declared = sum(map(int, re.findall(r"\.local [^;\[]*__local_depot\d+\[(\d+)\]", ptx or "")))
    asked = -(-declared // _FRAME_UNIT) * _FRAME_UNIT
    return Usage(registers, stack + local, None if ptx is None else max(stack + local - asked, 0))


def amd_usage(assembly: str) -> Usage | None:
    """From the metadata at the end of a kernel's assembly; None where it is not there."""
    found = {name: int(value) for name, value in re.findall(r"^\s*\.(\w+):\s+(\d+)$", assembly, re.MULTILINE)}
    if not {"vgpr_count", "vgpr_spill_count", "private_segment_fixed_size"} <= found.keys():
        return None
    return Usage(found["vgpr_count"], found["private_segment_fixed_size"], 4 * found["vgpr_spill_count"])


def nvidia_counts(cubins: Sequence[bytes], arch: str) -> list[dict[str, int] | None]:
    """Instructions by class of each cubin; None where nvdisasm is missing or fails. arch: SM80, SM90a.

    One run for all of them: the program takes 0.3 s to start, and hardly more for a hundred kernels than for one.
    """
    codes = [code_sections(cubin) for cubin in cubins]
    image = b"".join(code for parts in codes for code in parts)
    opcodes = nvidia_opcodes((_said("nvdisasm", image, "--binary", arch) if image else None) or "")
    if not image or len(opcodes) * _BYTES != len(image):
        return [None] * len(cubins)
    taken = iter(opcodes)
    return [_summed([counted(islice(taken, len(code) // _BYTES), nvidia_class) for code in parts]) for parts in codes]


def amd_counts(assembly: str) -> dict[str, int]:
    """Instructions by class of a kernel's assembly."""
    return counted(amd_opcodes(assembly), amd_class)


def code_sections(cubin: bytes) -> list[bytes]:
    """The sections of an ELF file that hold instructions: the kernel, and functions that it calls."""
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    count, names = struct.unpack_from("<HH", cubin, 0x3C)
    sections = [struct.unpack_from("<IIQQQQ", cubin, table + 64 * index) for index in range(count)]
    strings = sections[names][4]
    return [
        cubin[offset : offset + size]
        for name, _, _, _, offset, size in sections
        if cubin[strings + name : strings + name + 6] == b".text."
    ]


def nvidia_opcodes(text: str) -> list[str]:
    """Opcodes in order, without predicates and modifiers: `/*0010*/ @!P0 STG.E.128 [R2], R4 ;` is STG."""
    return re.findall(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?\w+\s+)?(\w+)", text, re.MULTILINE)


def amd_opcodes(text: str) -> list[str]:
    """Opcodes of the kernel: instructions are indented and start with a letter, directives with a dot."""
    return re.findall(r"^\t([a-z]\w+)", text.split(".Lfunc_end0:", maxsplit=1)[0], re.MULTILINE)


def _summed(parts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    return {name: sum(part[name] for part in parts) for name in CLASSES}


def _said(name: str, image: bytes, *options: str) -> str | None:
    """What one of NVIDIA's programs says of a file; None where it is missing or fails."""
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
