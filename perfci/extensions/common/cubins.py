"""Kernels as NVIDIA's driver has them: a cubin, and how it is launched. Structures are those of `cuda.h`."""

from __future__ import annotations

import ctypes
import functools
import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import c_size_t, c_uint, c_void_p
from dataclasses import dataclass, field
from functools import cached_property
from types import SimpleNamespace
from typing import Any, TypeVar

from perfci.device.source import digest
from perfci.extensions.common import binaries
from perfci.extensions.common.elf import IN_MEMORY, RELOCATIONS, SYMBOLS, TEXTS, list_sections, list_symbols

ATTRIBUTE_BYTES = 72  # of a CUlaunchAttribute
COOPERATIVE = 2
_VALUE_BYTES = {0: 0, COOPERATIVE: 4, 4: 12, 5: 4, 6: 4, 8: 4, 9: 2, 10: 4, 11: 12, 14: 4}
"""The others: none, cluster, its policy, dependent launch, priority, domains of fences, preferred cluster, share of
shared memory."""
ATTRIBUTES = frozenset(_VALUE_BYTES)
"""CUlaunchAttributeID of attributes without addresses or handles, which another process can pass too."""
CACHE = -1  # no attribute of a function: what cuFuncSetCacheConfig gets
BY_DEFAULT = {CACHE: 0, 9: -1, 14: 0, 15: 0}
"""Attributes of a function that the host may set and its time depends on, and their values. The others: the share of
shared memory, large clusters, their policy."""
_BUFFER, _BUFFER_SIZE = 1, 2  # CU_LAUNCH_PARAM_BUFFER_POINTER and _SIZE
_RESERVED = 1024  # bytes of shared memory of a program that sections name and the system takes, since Hopper
_OF_DEBUGGERS = tuple(
    start + name
    for start in (b"", b".rel", b".rela")
    for name in (b".debug", b".nv_debug", b".nv.tileir.debug", b".note")
)
_OF_MERCURY = b".nv.merc"  # before a section's name, of the second form that files have since Blackwell

_PARAMETER, _BASE, _THREADS, _STACK = 0x17, 0x0A, 0x10, 0x12
"""Records of a cubin: a parameter, where parameters lie among constants, threads of a block, a function's stack."""
_OPERANDS = re.compile(r"\*/\s+(?:@!?\w+ )?[A-Z][\w.]* ([^;\n]*)")
_STACK_ADDRESS = re.compile(r"(?<![\[\w.])R1\b")  # but where memory is read or written by it
_WITH_SIZE = 4  # form of a record with a size: the others have two bytes in its place
_SIMPLE, _ALIGNED, _DESCRIPTOR = frozenset({1, 2, 4, 8}), 64, 128  # bytes
_READS = re.compile(r"\*/\s+(?:@!?\w+ )?([A-Z][\w.]*)[^;\n]*?\bc\[0x0\]\[(U?R[\w.]+)?\+?-?(?:0x([0-9a-f]+))?\]")
_ANYWHERE = re.compile(r"\*/\s+(?:@!?\w+ )?(?:LD[. ]|CALL\S* (?!`\(\$))|\bcx\[")
"""Instructions that may read constants by an address in the one space of all memory, or in a function elsewhere."""
_READ_BYTES = ((re.compile(r"\.[US]8\b"), 1), (re.compile(r"\.[US]16\b"), 2), (re.compile(r"\.128\b"), 16),
               (re.compile(r"\.64\b|\.WIDE\b|\.F64\b|^D"), 8))  # fmt: skip
"""Bytes that an instruction reads of constants, by its name. 4 without one of these."""

_Place = TypeVar("_Place")


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
        """The cubin. Last what it is known by: what it holds but for lines of the source and the like."""
        return {"cubin": self.image, "code": _read_by_device(self.image)} if self.image else {}

    @cached_property
    def declared(self) -> str | None:
        """What stands for its PTX, where that shows how much local memory variables take: nothing, or unknown."""
        return "" if self.image and has_frame(self.image, self.name) is False else None

    @cached_property
    def hash(self) -> str:
        """What the binary is known by."""
        return digest(self.image)

    @cached_property
    def metadata(self) -> SimpleNamespace:
        """How it is launched."""
        return SimpleNamespace(name=self.name, num_warps=self.warps, shared=self.shared)


# --- what a cubin's file holds ----------------------------------------------------------------------------------------


def _read_by_device(image: bytes) -> bytes:
    """An ELF file without data for debuggers, names of variables, and the places of its parts."""
    sections = list_sections(image)
    parts = [image[:0x20], image[0x30:0x40]]  # of its beginning what names no place
    for number, section in enumerate(sections):
        told = section.name.removeprefix(_OF_MERCURY).startswith(_OF_DEBUGGERS) and not section.flags & IN_MEMORY
        if not told and section.kind not in {TEXTS, SYMBOLS}:
            facts = number, section.kind, section.flags, section.address, section.size, *section[6:10]
            parts += [repr(facts).encode(), section.name, section.content]
    for symbol in list_symbols(sections):
        # A compiler may name variables by a digest of the source, comments included.
        parts.append(repr(symbol[1:] if symbol.is_variable else symbol).encode())
    (table,), (size, count) = struct.unpack_from("<Q", image, 0x20), struct.unpack_from("<HH", image, 0x36)
    for number in range(count):
        kind, flags, place, *addresses, length, held, align = struct.unpack_from(
            "<IIQQQQQQ", image, table + size * number
        )
        parts.append(repr((kind, flags, *addresses, length, held, align)).encode())
        parts.append(b"" if place == table else image[place : place + length])
    return b"\0".join(parts)


def list_variables(image: bytes) -> dict[bytes, bytes]:
    """Name and first content of the variables of a cubin that its kernels can write, and that outlive a launch."""
    sections, variables = list_sections(image), {}
    moved = {section.info for section in sections if section.kind in RELOCATIONS}  # what the driver writes itself
    for symbol in list_symbols(sections):
        if symbol.is_variable and symbol.section < len(sections) and symbol.section not in moved:
            owner = sections[symbol.section]
            if owner.name.startswith(b".nv.global"):
                content = owner.content[symbol.value :][: symbol.size]
                variables[symbol.name] = content.ljust(symbol.size, b"\0")
    return variables


def count_shared_bytes(image: bytes, name: str) -> int:
    """The bytes of shared memory that a kernel of a cubin names, without what the system takes of it."""
    sizes = {section.name: section.size for section in list_sections(image)}
    taken = sizes.get(b".nv.shared." + name.encode(), 0)
    return taken - _RESERVED if b".nv.shared.reserved.0" in sizes and taken >= _RESERVED else taken


def list_parameters(image: bytes, name: str) -> list[tuple[int, int]]:
    """Offset and size of each parameter of a kernel of a cubin, in bytes."""
    places = []
    for kind, content in _list_records(image, name):
        if kind == _PARAMETER:
            number, offset, size = struct.unpack_from("<4xHHI", content)
            places.append((number, offset, size >> 18))
    return [(offset, size) for _, offset, size in sorted(places)]


def _list_records(image: bytes, name: str) -> Iterator[tuple[int, bytes]]:
    """Yields kind and content of a cubin's records about a function, or about all, that have a size."""
    wanted = f".nv.info.{name}".rstrip(".").encode()
    for section in list_sections(image):
        at = 0
        while section.name == wanted and at < len(section.content):
            form, kind, size = struct.unpack_from("<BBH", section.content, at)
            at += 4
            if form == _WITH_SIZE:
                yield kind, section.content[at : at + size]
                at += size


@functools.lru_cache(maxsize=16)
def disassemble(image: bytes, name: str) -> str:
    """The instructions of a function of a cubin. Empty without nvdisasm."""
    text = binaries.run_tool("nvdisasm", image, "-c") or ""
    return "".join(re.split(rf"^\.text\.{re.escape(name)}:", text, flags=re.MULTILINE)[1:]).partition("//-----")[0]


def count_threads(image: bytes, name: str) -> int:
    """The threads that a kernel's blocks have to have, by its declaration. 1 if it declares none."""
    return next(
        (math.prod(struct.unpack("<3I", body)) for kind, body in _list_records(image, name) if kind == _THREADS), 1
    )


def has_frame(image: bytes, name: str) -> bool | None:
    """Whether a kernel has variables in local memory, beside registers that did not fit. None if that is unknown.

    Spilled registers lie at fixed places of the stack, while code that has variables there works out their addresses.
    """
    if not any(struct.unpack("<4xI", body)[0] for kind, body in _list_records(image, "") if kind == _STACK):
        return False
    code = disassemble(image, name)
    operands = (line.partition(",") for line in _OPERANDS.findall(code))
    return any(first.strip() != "R1" and _STACK_ADDRESS.search(rest) for first, _, rest in operands) if code else None


@functools.lru_cache(maxsize=256)
def find_unread(image: bytes, name: str) -> tuple[frozenset[int], ...]:
    """The bytes of each structure among a kernel's parameters that its code does not read, as padding.

    A host may leave there whatever its stack had. Of a descriptor of a tensor the second half is such, which CuTe DSL
    does not write. Nothing is known to be unread without nvdisasm, where the code works out which bytes it reads, or
    where it may read them by their address.
    """
    parameters = list_parameters(image, name)
    none = (frozenset[int](),) * len(parameters)
    records = _list_records(image, name)
    base = next((int.from_bytes(body[4:6], "little") for kind, body in records if kind == _BASE), 0)
    if not base or all(size in _SIMPLE for _, size in parameters):
        return none
    code = disassemble(image, name)
    if not code or _ANYWHERE.search(code):
        return none
    read = set[int]()
    for opcode, register, place in _READS.findall(code):
        if register:
            return none
        width = next((width for pattern, width in _READ_BYTES if pattern.search(opcode)), 4)
        read |= {int(place or "0", 16) - base + byte for byte in range(width)}
    unread = []
    for offset, size in parameters:
        rest = frozenset(range(size)) - {place - offset for place in read}
        if size in _SIMPLE:
            rest = frozenset[int]()
        elif not size % _ALIGNED:  # what is taken by its address, at which code reads too
            is_descriptor = size == _DESCRIPTOR and len(rest) == size and "UTMA" in code
            rest = frozenset(range(size // 2, size)) if is_descriptor else frozenset[int]()
        unread.append(rest)
    return tuple(unread)


def blank_unread(image: bytes, name: str, values: Sequence[bytes]) -> tuple[bytes, ...]:
    """The parameters of a launch, zero where the code does not read them."""
    return tuple(
        bytes(0 if at in unread else byte for at, byte in enumerate(value)) if unread else value
        for value, unread in zip(values, find_unread(image, name), strict=True)
    )


def describe_choice(attributes: Mapping[int, int]) -> dict[str, dict[int, int]]:
    """Attributes of a function that the host has chosen, as an argument of its launches. Empty if none is."""
    chosen = {at: value for at, value in attributes.items() if value != BY_DEFAULT.get(at, value)}
    return {"attributes of the function": chosen} if chosen else {}


def read_parameters(sizes: Sequence[tuple[int, int]], places: Any, extra: Any) -> tuple[bytes, ...]:
    """The bytes of each parameter of a launch, given apart or packed. sizes: offset and size of each."""
    if places:
        return tuple(ctypes.string_at(places[number], size) for number, (_, size) in enumerate(sizes))
    if not extra:
        return ()
    pairs = {extra[at]: extra[at + 1] for at in (0, 2)}
    packed = ctypes.string_at(pairs[_BUFFER], c_size_t.from_address(pairs[_BUFFER_SIZE]).value)
    return tuple(packed[offset : offset + size] for offset, size in sizes)


def find_addresses(value: bytes, locate: Callable[[int], _Place | None]) -> tuple[bytes, list[tuple[int, _Place]]]:
    """A parameter with zero in the place of its addresses, and of each its offset and where it leads."""
    content, places = bytearray(value), []
    for offset in range(0, len(value) - 7, 8):
        place = locate(*struct.unpack_from("<Q", value, offset))
        if place is not None:
            content[offset : offset + 8] = bytes(8)
            places.append((offset, place))
    return bytes(content), places


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
