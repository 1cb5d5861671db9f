"""ELF files: their sections and symbols, by the names of `elf.h`."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

ELF = b"\x7fELF"  # what such a file begins with
TEXTS, SYMBOLS, RELOCATIONS = 3, 2, frozenset({4, 9})  # SHT_STRTAB, SHT_SYMTAB, SHT_RELA and SHT_REL
DYNAMIC_SYMBOLS = 11  # SHT_DYNSYM
IN_MEMORY = 2  # SHF_ALLOC
_NO_BITS = 8  # SHT_NOBITS: a section that takes no room in its file
_VARIABLE = 1  # STT_OBJECT


class Section(NamedTuple):
    """An entry of the table of sections, as `elf.h` has it, and what it stands for."""

    title: int  # place of its name among the names
    kind: int
    flags: int
    address: int
    place: int
    size: int
    link: int
    info: int
    align: int
    unit: int
    name: bytes = b""
    content: bytes = b""  # none of kind _NO_BITS


class Symbol(NamedTuple):
    """An entry of a table of symbols."""

    name: bytes
    info: int  # its kind in the lower four bits
    other: int
    section: int
    value: int
    size: int

    @property
    def is_variable(self) -> bool:
        """Whether it is a variable of the file's own, which its code does not ask for by a name."""
        return self.info & 0xF == _VARIABLE and self.section > 0


def list_sections(image: bytes) -> list[Section]:
    """The sections of an ELF file of 64 bits. Raises struct.error, IndexError or ValueError for what is none."""
    (table,) = struct.unpack_from("<Q", image, 0x28)
    size, count, titles = struct.unpack_from("<HHH", image, 0x3A)
    sections = [Section(*struct.unpack_from("<IIQQQQIIQQ", image, table + size * at)) for at in range(count)]
    for at, section in enumerate(sections):
        start = sections[titles].place + section.title
        end = section.place + (0 if section.kind == _NO_BITS else section.size)
        name = image[start : image.index(b"\0", start)]
        sections[at] = section._replace(name=name, content=image[section.place : end])
    return sections


def list_symbols(sections: Sequence[Section], kind: int = SYMBOLS) -> Iterator[Symbol]:
    """Yields the symbols of an ELF file in order. kind: SYMBOLS, or DYNAMIC_SYMBOLS for those that others link to."""
    for section in sections:
        if section.kind == kind:
            texts = sections[section.link].content
            for title, *rest in struct.iter_unpack("<IBBHQQ", section.content):
                yield Symbol(texts[title : texts.index(b"\0", title)], *rest)


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


def read_elf(place: int | None) -> bytes:
    """The ELF file at an address. Empty if there is none."""
    if not place or ctypes.string_at(place, 4) != ELF:
        return b""
    return ctypes.string_at(place, count_elf_bytes(lambda at, size: ctypes.string_at(place + at, size)))
