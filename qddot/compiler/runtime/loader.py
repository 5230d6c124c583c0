"""Object code into executable memory: ELF objects for x86-64 Linux, as LLVM makes them of one module.

Object code comes from a file, so nothing in it is believed: every offset, count, size, alignment, name and reference is
checked before it is used, and `ObjectError` says what is wrong. What the code does once it runs is not checked: only the
cache's authentication (`qddot.compiler.runtime.cache`) says that it is ours.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from qddot.errors import ObjectError

IMAGE_MAX_BYTES = 1 << 28  # the largest kernels have a few MB, and references of 32 bits must reach all of it

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_IDENTITY = b"\x7fELF\x02\x01\x01"  # 64 bits, little-endian
_MACH_O = b"\xcf\xfa\xed\xfe"
_RELOCATABLE, _X86_64 = 1, 62
_BITS, _SYMBOLS, _STRINGS, _RELOCATIONS, _ZEROS, _OTHER_RELOCATIONS = 1, 2, 3, 4, 8, 9  # kinds of sections
_ALLOCATED, _EXECUTABLE = 2, 4  # flags of sections
_GLOBAL_FUNCTION = 0x12
_PC_RELATIVE = {2: "<i", 4: "<i", 24: "<q"}  # R_X86_64_PC32, PLT32, PC64
_ABSOLUTE = 1  # R_X86_64_64
_LONGEST_INSTRUCTION = 15  # a reference counts from the end of its instruction: it may point before its symbol by this
_PAGE = 4096  # the alignment of the memory; no section can have more


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int


class _Symbol(NamedTuple):
    name: int
    kind: int
    other: int
    section: int
    value: int
    size: int


def check_header(data: bytes) -> None:
    """That these bytes are a whole object, of ELF or of Mach-O: of which kind, and no more."""
    if data[:4] == _MACH_O and len(data) > _HEADER.size:
        return
    if len(data) < _HEADER.size or not data.startswith(_IDENTITY):
        raise ObjectError(f"{len(data)} bytes that begin with {data[:4]!r} are no object code")
    kind, table, size, count = (_HEADER.unpack_from(data)[k] for k in (1, 6, 11, 12))
    if kind != _RELOCATABLE or size != _SECTION.size or not count or table + count * size > len(data):
        raise ObjectError(f"the table of {count} sections of {size} bytes at {table} does not fit the file")


class Image:
    """An object laid out in memory of its own: sections one after the other, references resolved among them.

    `functions` has the addresses of the global functions.
    """

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._sections = self._read_sections()
        self._place, size = self._laid_out()
        self._symbols, strings = self._read_symbols()
        self._map = mmap.mmap(-1, max(size, 1), prot=mmap.PROT_READ | mmap.PROT_WRITE)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        for k, at in self._place.items():
            if self._sections[k].kind == _BITS:
                self._map[at : at + self._sections[k].size] = self._content(k)
        for k, section in enumerate(self._sections):
            if section.kind in (_RELOCATIONS, _OTHER_RELOCATIONS) and section.info in self._place:
                self._relocate(k, section.info)
        self.functions = dict(self._read_functions(strings))
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mprotect(ctypes.c_void_p(self._base), ctypes.c_size_t(len(self._map)), mmap.PROT_READ | mmap.PROT_EXEC):
            raise OSError(ctypes.get_errno(), "the system does not let memory be executed")
        del self._data, self._sections, self._symbols

    def _read_sections(self) -> list[_Section]:
        if len(self._data) < _HEADER.size:
            raise ObjectError(f"{len(self._data)} bytes are too few for an ELF header")
        identity, kind, machine, _, _, _, table, _, _, _, _, size, count, _ = _HEADER.unpack_from(self._data)
        if not identity.startswith(_IDENTITY) or (kind, machine) != (_RELOCATABLE, _X86_64):
            raise ObjectError("not an ELF object for x86-64")
        if size != _SECTION.size or table + count * size > len(self._data):
            raise ObjectError(f"the table of {count} sections of {size} bytes at {table} does not fit the file")
        return [_Section(*x) for x in _SECTION.iter_unpack(self._data[table : table + count * size])]

    def _content(self, k: int) -> memoryview:
        section = self._sections[k]
        if section.offset + section.size > len(self._data):
            raise ObjectError(f"section {k}, {section.size} bytes at {section.offset}, goes beyond the end of the file")
        return self._data[section.offset : section.offset + section.size]

    def _table(self, k: int, form: struct.Struct) -> Iterator[tuple[Any, ...]]:
        section = self._sections[k]
        if section.entry != form.size or section.size % form.size:
            raise ObjectError(f"section {k}, {section.size} bytes, is no table with entries of {form.size} bytes")
        return form.iter_unpack(self._content(k))

    def _laid_out(self) -> tuple[dict[int, int], int]:
        """Where in memory each section begins that is part of the program, and where the last of them ends."""
        place, end = {}, 0
        for k, section in enumerate(self._sections):
            if section.flags & _ALLOCATED and section.kind in (_BITS, _ZEROS) and section.size:
                align = max(section.align, 1)
                if align & (align - 1) or align > _PAGE:
                    raise ObjectError(f"section {k} is to be aligned to {align} bytes; up to {_PAGE} can be had")
                place[k] = -(-end // align) * align
                end = place[k] + section.size
                if end > IMAGE_MAX_BYTES:
                    raise ObjectError(f"with section {k} the code takes {end} bytes; {IMAGE_MAX_BYTES} are the most")
        return place, end

    def _read_symbols(self) -> tuple[list[_Symbol], memoryview]:
        tables = [k for k, section in enumerate(self._sections) if section.kind == _SYMBOLS]
        if len(tables) != 1:
            raise ObjectError(f"there are {len(tables)} tables of symbols instead of one")
        strings = self._sections[tables[0]].link
        if strings >= len(self._sections) or self._sections[strings].kind != _STRINGS:
            raise ObjectError(f"the names of symbols are to be in section {strings}, which holds no names")
        symbols = [_Symbol(*x) for x in self._table(tables[0], _SYMBOL)]
        for symbol in symbols:
            if symbol.section in self._place and symbol.value > self._sections[symbol.section].size:
                raise ObjectError(f"a symbol at {symbol.value} lies outside of its section {symbol.section}")
        return symbols, self._content(strings)

    def _read_functions(self, strings: memoryview) -> Iterator[tuple[str, int]]:
        text = bytes(strings)
        for symbol in self._symbols:
            if symbol.kind == _GLOBAL_FUNCTION and symbol.section in self._place:
                section, end = self._sections[symbol.section], text.find(b"\0", symbol.name)
                if end < 0:
                    raise ObjectError(f"the name of a function is at {symbol.name}, outside of the names")
                name = text[symbol.name : end].decode("utf-8", "replace")
                if not section.flags & _EXECUTABLE or symbol.value >= section.size:
                    raise ObjectError(f"the function {name!r} lies outside of executable code")
                yield name, self._base + self._place[symbol.section] + symbol.value

    def _relocate(self, table: int, target: int) -> None:
        """Writes into section `target` where the things are that it refers to."""
        if self._sections[table].kind != _RELOCATIONS:
            raise ObjectError(f"section {table} holds references without addends")
        for offset, info, addend in self._table(table, _RELOCATION):
            number, kind = info >> 32, info & 0xFFFFFFFF
            if number >= len(self._symbols):
                raise ObjectError(f"a reference is to symbol {number}; there are {len(self._symbols)}")
            _, _, _, home, value, _ = self._symbols[number]
            if home not in self._place:
                raise ObjectError("the code refers to something outside of itself")
            if not -_LONGEST_INSTRUCTION <= value + addend <= self._sections[home].size:
                raise ObjectError(f"a reference to {value + addend} goes beyond section {home}")
            here, there = self._place[target] + offset, self._place[home] + value + addend
            form, number = ("<Q", self._base + there) if kind == _ABSOLUTE else (_PC_RELATIVE.get(kind), there - here)
            if form is None:
                raise ObjectError(f"the code holds a reference of the unknown kind {kind}")
            if offset + struct.calcsize(form) > self._sections[target].size:
                raise ObjectError(f"a reference at {offset} lies outside of its section {target}")
            struct.pack_into(form, self._map, here, number)
