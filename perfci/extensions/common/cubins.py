"""Kernels as NVIDIA's driver has them: a cubin, and how it is launched. Structures are those of `cuda.h`."""

from __future__ import annotations

import ctypes
import functools
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import c_uint, c_void_p
from dataclasses import dataclass, field
from functools import cached_property
from types import SimpleNamespace

from perfci.device import binaries
from perfci.device.binaries import list_sections
from perfci.device.source import digest

ATTRIBUTE_BYTES = 72  # of a CUlaunchAttribute
COOPERATIVE = 2
_VALUE_BYTES = {COOPERATIVE: 4, 4: 12, 5: 4, 6: 4, 8: 4}  # the others: cluster, its policy, dependent launch, priority
ATTRIBUTES = frozenset(_VALUE_BYTES)
"""CUlaunchAttributeID of attributes without addresses or handles, which another process can pass too."""
ELF = b"\x7fELF"  # what such a file begins with
_RESERVED = 1024  # bytes of shared memory of a program that sections name and the system takes, since Hopper
_NO_BITS = 8  # SHT_NOBITS: a section that takes no room in its file
_OF_DEBUGGERS = (b".debug", b".nv_debug", b".note", b".rel.debug", b".rela.debug")  # beginnings of sections' names
_CONTENT = frozenset({1, 4, 9}) | set(range(0x70000000, 0x70000100))  # SHT_PROGBITS, relocations, and NVIDIA's kinds

_PARAMETER, _BASE = 0x17, 0x0A  # records of a cubin: a parameter, and where parameters lie among constants
_WITH_SIZE = 4  # form of a record whose size is given: the others have two bytes in its place
_UNIT, _SIMPLE, _DESCRIPTOR = 8, frozenset({1, 2, 4, 8}), 64  # bytes
_READS = re.compile(r"\*/\s+(?:@!?\w+ )?([A-Z][\w.]*)[^;\n]*?\bc\[0x0\]\[(U?R\w+)?\+?(?:0x([0-9a-f]+))?\]")
_READ_BYTES = ((re.compile(r"\.[US]8\b"), 1), (re.compile(r"\.[US]16\b"), 2), (re.compile(r"\.128\b"), 16),
               (re.compile(r"\.64\b|\.WIDE\b|\.F64\b|^D"), 8))  # fmt: skip
"""Bytes that an instruction reads of constants, by its name. 4 without one of these."""


class Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [("grid", c_uint * 3), ("block", c_uint * 3), ("shared", c_uint), ("stream", c_void_p),
                ("attributes", c_void_p), ("count", c_uint)]  # fmt: skip


@dataclass(frozen=True)
class DriverKernel:
    """A loaded kernel, with what perfci reads of Triton's `CompiledKernel`."""

    name: str
    image: bytes  # cubin
    attributes: Mapping[int, int] = field(default_factory=dict)  # those that a host sets
    n_regs: int | None = None
    local_bytes: int = 0  # of a thread
    warps: int | None = None
    shared: int = 0  # bytes, static and dynamic
    n_spills: None = None

    @cached_property
    def asm(self) -> Mapping[str, bytes]:
        """The cubin. Last what it is known by: its sections without those that name lines of the source."""
        return {"cubin": self.image, "code": _read_by_device(self.image)} if self.image else {}

    @cached_property
    def hash(self) -> str:
        """What the binary is known by."""
        return digest(self.image)

    @cached_property
    def metadata(self) -> SimpleNamespace:
        """How it is launched."""
        return SimpleNamespace(name=self.name, num_warps=self.warps, shared=self.shared)


def _read_by_device(image: bytes) -> bytes:
    """Name and content of the sections of an ELF file that a device reads."""
    # Symbols and their names move with what the debugger is told.
    sections = ((name, content) for name, kind, content in list_sections(image) if kind in _CONTENT)
    return b"".join(name + b"\0" + content for name, content in sections if not name.startswith(_OF_DEBUGGERS))


def count_shared_bytes(image: bytes, name: str) -> int:
    """The bytes of shared memory that a kernel of a cubin names, without what the system takes of it."""
    sizes = {section: size for section, (_, _, size) in zip(_list_names(image), _list_places(image), strict=True)}
    taken = sizes.get(b".nv.shared." + name.encode(), 0)
    return taken - _RESERVED if b".nv.shared.reserved.0" in sizes and taken >= _RESERVED else taken


def _list_names(image: bytes) -> list[bytes]:
    return [name for name, _, _ in list_sections(image)]


def _list_places(image: bytes) -> list[tuple[int, int, int]]:
    """Kind (`sh_type`), place and size of each section. One of kind _NO_BITS takes no room in the file."""
    (table,) = struct.unpack_from("<Q", image, 0x28)
    (size, count) = struct.unpack_from("<HH", image, 0x3A)
    return [struct.unpack_from("<4xI16xQQ", image, table + size * at) for at in range(count)]


def list_parameters(image: bytes, name: str) -> list[tuple[int, int]]:
    """Offset and size of each parameter of a kernel of a cubin, in bytes."""
    places = []
    for kind, content in _list_records(image, name):
        if kind == _PARAMETER:
            number, offset, size = struct.unpack_from("<4xHHI", content)
            places.append((number, offset, size >> 18))
    return [(offset, size) for _, offset, size in sorted(places)]


def _list_records(image: bytes, name: str) -> Iterator[tuple[int, bytes]]:
    """Yields kind and content of what a cubin says of a function, of records that have a size."""
    wanted = f".nv.info.{name}".encode()
    for section, _, content in list_sections(image):
        at = 0
        while section == wanted and at < len(content):
            form, kind, size = struct.unpack_from("<BBH", content, at)
            at += 4
            if form == _WITH_SIZE:
                yield kind, content[at : at + size]
                at += size


@functools.lru_cache(maxsize=256)
def find_padding(image: bytes, name: str) -> tuple[frozenset[int], ...]:
    """The bytes of each parameter of a kernel that are padding of a structure: whatever the host's stack had.

    Those are meant that the code does not read, behind some that it reads of the same eight bytes. Nothing is known to
    be padding without nvdisasm, or where the code works out which bytes it reads.
    """
    parameters = list_parameters(image, name)
    none = (frozenset[int](),) * len(parameters)
    (base,) = [struct.unpack_from("<H", body, 4)[0] for kind, body in _list_records(image, name) if kind == _BASE] or [
        0
    ]
    if not base or all(size in _SIMPLE or not size % _DESCRIPTOR for _, size in parameters):
        return none
    text = binaries.run_tool("nvdisasm", image, "-c") or ""
    code = re.split(rf"^\.text\.{re.escape(name)}:", text, flags=re.MULTILINE)[1:]
    read = set[int]()
    for opcode, register, place in _READS.findall("".join(code).partition("//-----")[0]):
        if register and int(place or "0", 16) >= (base if place else 0):
            return none
        width = next((width for pattern, width in _READ_BYTES if pattern.search(opcode)), 4)
        read |= {int(place or "0", 16) - base + byte for byte in range(width)}
    return tuple(
        frozenset(
            byte
            for start in range(0, size, _UNIT)
            if (seen := [byte for byte in range(start, min(start + _UNIT, size)) if offset + byte in read])
            for byte in range(seen[-1] + 1, min(start + _UNIT, size))
        )
        for offset, size in parameters
    )


def blank_padding(image: bytes, name: str, values: Sequence[bytes]) -> tuple[bytes, ...]:
    """The parameters of a launch, zero in padding."""
    return tuple(
        bytes(0 if at in padding else byte for at, byte in enumerate(value)) if padding else value
        for value, padding in zip(values, find_padding(image, name), strict=True)
    )


def list_attributes(attributes: bytes) -> set[int]:
    """The ids of launch attributes."""
    return {struct.unpack_from("<i", attributes, at)[0] for at in range(0, len(attributes), ATTRIBUTE_BYTES)}


def trim_attributes(attributes: bytes) -> bytes:
    """Launch attributes, zero behind their values: what a host leaves there is whatever its stack had."""
    trimmed = bytearray(len(attributes))
    for at in range(0, len(attributes), ATTRIBUTE_BYTES):
        (number,) = struct.unpack_from("<i", attributes, at)
        trimmed[at : at + 4] = attributes[at : at + 4]
        end = at + 8 + _VALUE_BYTES.get(number, ATTRIBUTE_BYTES - 8)
        trimmed[at + 8 : end] = attributes[at + 8 : end]
    return bytes(trimmed)


def count_elf_bytes(read: Callable[[int, int], bytes]) -> int:
    """The bytes of an ELF file up to the end of its last part. read: gives bytes from a place on.

    Raises struct.error for a file that ends too early.
    """
    header = read(0, 64)
    programs, table = struct.unpack_from("<QQ", header, 0x20)
    program_size, program_count, size, count = struct.unpack_from("<HHHH", header, 0x36)
    ends = [table + size * count, programs + program_size * program_count]
    for at in range(count):
        kind, offset, length = struct.unpack_from("<4xI16xQQ", read(table + size * at, size))
        ends.append(offset + (0 if kind == _NO_BITS else length))
    return int(max(ends))
