"""A shared library for Linux from an ELF object that LLVM has just made of our code: what a linker does, and no more.

References within the code are resolved here. The only ones outside are functions of the C library, whose addresses the code
has in a table: the system fills it in when the library is loaded. There are section headers, because linkers read them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from qddot.errors import ObjectError

_PAGE = 1 << 16  # bytes: the largest pages of Linux
_LIBRARY_MAX_BYTES = 1 << 26  # which all branches reach
_C_LIBRARY = "libm.so.6"

_HEADER, _SECTION = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQIIQQ")
_SYMBOL, _RELOCATION, _SEGMENT = struct.Struct("<IBBHQQ"), struct.Struct("<QQq"), struct.Struct("<IIQQQQQQ")
_BITS, _SYMBOLS, _STRINGS, _RELOCATIONS, _HASH, _DYNAMIC, _DYNAMIC_SYMBOLS = 1, 2, 3, 4, 5, 6, 11  # kinds of sections
_WRITABLE, _ALLOCATED, _EXECUTABLE = 1, 2, 4  # flags of sections
_LOAD, _DYNAMIC_SEGMENT, _STACK, _READ_ONLY_LATER = 1, 2, 0x6474E551, 0x6474E552  # kinds of segments
_SEGMENTS = 6
_GLOBAL_FUNCTION = 0x12
_ALIGN = 64  # bytes, of every part
_RISC_V, _LOW_OF_OTHER = 243, 24  # R_RISCV_PCREL_LO12_I refers to the place of another reference
_IDENTITY = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")  # 64 bits, little-endian


class _Symbol(NamedTuple):
    name: str
    kind: int
    section: int  # 0: it is not in the object
    value: int
    size: int


class _Reference(NamedTuple):
    """A place in a section of the object that depends on the address of a symbol."""

    section: int
    offset: int
    kind: int
    symbol: _Symbol
    addend: int


class _Object:
    """What is in an object file."""

    def __init__(self, data: bytes) -> None:
        header = _HEADER.unpack_from(data)
        self.machine, self.flags = header[2], header[7]
        if not data.startswith(_IDENTITY[:7]) or self.machine not in _MACHINES:
            raise ObjectError("shared libraries can be made for Linux on x86-64, ARM64 and RISC-V only")
        self.sections = [_SECTION.unpack_from(data, header[6] + k * _SECTION.size) for k in range(header[12])]
        self._data = data
        titles = self.content(header[13])
        self.kept = [  # code and constants, without tables for exceptions
            k
            for k, (at, kind, flags, _, _, size, *_) in enumerate(self.sections)
            if flags & _ALLOCATED and kind == _BITS and size and not titles[at:].startswith(b".eh_frame")
        ]
        (table,) = (k for k, section in enumerate(self.sections) if section[1] == _SYMBOLS)
        names = self.content(self.sections[table][6])
        self.symbols = [
            _Symbol(names[at : names.index(b"\0", at)].decode(), kind, section, value, size)
            for at, kind, _, section, value, size in _SYMBOL.iter_unpack(self.content(table))
        ]
        self.outside = [s for s in self.symbols if s.name and s.section == 0]
        self.exported = [s for s in self.symbols if s.kind == _GLOBAL_FUNCTION and s.section]

    def content(self, k: int) -> bytes:
        """The bytes of a section."""
        return self._data[self.sections[k][4] :][: self.sections[k][5]]

    def references(self) -> Iterator[_Reference]:
        """Those in sections that become part of the library; the ones that depend on another reference come last."""
        tables = [(k, s[7]) for k, s in enumerate(self.sections) if s[1] == _RELOCATIONS]
        found = [
            _Reference(target, offset, info & 0xFFFFFFFF, self.symbols[info >> 32], addend)
            for k, target in tables
            if target in self.kept
            for offset, info, addend in _RELOCATION.iter_unpack(self.content(k))
        ]
        yield from sorted(found, key=lambda x: self.machine == _RISC_V and x.kind == _LOW_OF_OTHER)


class _Part(NamedTuple):
    """A section of the library."""

    kind: int
    flags: int
    content: bytes | bytearray
    entry: int = 0
    link: str = ""
    info: int = 0


def linked(data: bytes, name: str) -> bytes:
    """The library of an object; `name` is the one by which programs that were linked with it look for it."""
    it = _Object(data)
    place = _places(_Contents(it, name, {}).parts)  # whose sizes do not depend on addresses
    parts = _Contents(it, name, {part: address for part, (_, address) in place.items()}).parts
    out = bytearray(_HEADER.size + _SEGMENTS * _SEGMENT.size)
    for part, (offset, _) in place.items():
        out += bytes(offset - len(out)) + parts[part].content
    if len(out) > _LIBRARY_MAX_BYTES:
        raise ObjectError(f"the library would have {len(out):,} bytes; {_LIBRARY_MAX_BYTES:,} are the most")
    for k, segment in enumerate(_segments(parts, place)):
        _SEGMENT.pack_into(out, _HEADER.size + k * _SEGMENT.size, *segment)
    return _with_section_headers(out, it, parts, place)


# ---- contents --------------------------------------------------------------------------------------------------------

# The parts in the order of the file. Those with the same flags are one segment.
_ORDER = {
    ".dynsym": 0,
    ".dynstr": 0,
    ".hash": 0,
    ".rela.dyn": 0,
    ".rodata": 0,
    ".text": _EXECUTABLE,
    ".data.rel.ro": _WRITABLE,
    ".dynamic": _WRITABLE,
}


class _Contents:
    """What is in the parts if they are at these addresses; at 0 where only sizes matter."""

    def __init__(self, it: _Object, name: str, address: Mapping[str, int]) -> None:
        self.it, self.address = it, {part: address.get(part, 0) for part in _ORDER}
        self.strings = bytearray(b"\0")
        self.merged, self.home = self._merged()
        own, needed = self._string(name), self._string(_C_LIBRARY) if it.outside else 0
        symbols, addresses = self._symbols(), self._resolved()
        count = 1 + len(it.outside) + len(it.exported)
        names = [1, count, 1, 0, *range(2, count), 0]  # a hash table of one bucket, with all names in a chain
        tags = self._tags(own, needed, len(addresses))
        made = {
            ".dynsym": _Part(_DYNAMIC_SYMBOLS, _ALLOCATED, symbols, _SYMBOL.size, ".dynstr", 1),
            ".dynstr": _Part(_STRINGS, _ALLOCATED, self.strings),
            ".hash": _Part(_HASH, _ALLOCATED, struct.pack(f"<{len(names)}I", *names), 4, ".dynsym"),
            ".rela.dyn": _Part(_RELOCATIONS, _ALLOCATED, addresses, _RELOCATION.size, ".dynsym"),
            ".dynamic": _Part(_DYNAMIC, _ALLOCATED | _WRITABLE, tags, 16, ".dynstr"),
        }
        made |= {part: _Part(_BITS, _ALLOCATED | _ORDER[part], content) for part, content in self.merged.items()}
        self.parts = {part: made[part] for part in _ORDER}

    def _merged(self) -> tuple[dict[str, bytearray], dict[int, tuple[str, int]]]:
        """Code, constants and the table of addresses; and where each section of the object is in them."""
        merged = {part: bytearray() for part in (".rodata", ".text", ".data.rel.ro")}
        by_flags, home = {_ORDER[part]: part for part in merged}, {}
        for k in self.it.kept:
            _, _, flags, _, _, _, _, _, align, _ = self.it.sections[k]
            part = by_flags[flags & (_WRITABLE | _EXECUTABLE)]
            merged[part] += bytes(-len(merged[part]) % max(align, 1))
            home[k] = part, len(merged[part])
            merged[part] += self.it.content(k)
        return merged, home

    def _where(self, section: int) -> int:
        part, offset = self.home[section]
        return self.address[part] + offset

    def _string(self, text: str) -> int:
        at = len(self.strings)
        self.strings += text.encode("utf-8", "surrogateescape") + b"\0"
        return at

    def _symbols(self) -> bytes:
        """What the library calls, and what it offers."""
        rows = [(self._string(s.name), _GLOBAL_FUNCTION, 0, 0, 0, 0) for s in self.it.outside]
        for s in self.it.exported:
            section = 1 + [*_ORDER].index(self.home[s.section][0])
            rows.append((self._string(s.name), s.kind, 0, section, self._where(s.section) + s.value, s.size))
        return b"".join(_SYMBOL.pack(*row) for row in ((0,) * 6, *rows))

    def _resolved(self) -> bytes:
        """Resolves references inside; those outside are left to the system."""
        absolute, patch = _MACHINES[self.it.machine]
        left, high = [], dict[int, int]()
        for x in self.it.references():
            here = self._where(x.section) + x.offset
            if x.kind == absolute and x.symbol in self.it.outside:
                left.append(_RELOCATION.pack(here, 1 + self.it.outside.index(x.symbol) << 32 | x.kind, x.addend))
            elif x.kind != absolute and x.symbol.section in self.home:
                part, offset = self.home[x.section]
                there = self._where(x.symbol.section) + x.symbol.value + x.addend
                patch(x.kind, (self.merged[part], offset + x.offset), here, there, high)
            else:
                raise ObjectError(f"a reference of kind {x.kind} to {x.symbol.name!r} cannot be resolved")
        return b"".join(left)

    def _tags(self, name: int, needed: int, relocations: int) -> bytes:
        """What the system has to know."""
        at = self.address
        rows = [(14, name), (4, at[".hash"]), (5, at[".dynstr"]), (6, at[".dynsym"])]
        rows += [(10, len(self.strings)), (11, _SYMBOL.size)]
        if self.it.outside:
            rows += [(1, needed), (7, at[".rela.dyn"]), (8, relocations), (9, _RELOCATION.size)]
        return b"".join(struct.pack("<QQ", *row) for row in (*rows, (0, 0)))


# ---- the file --------------------------------------------------------------------------------------------------------


def _places(parts: Mapping[str, _Part]) -> dict[str, tuple[int, int]]:
    """The offset in the file and the address of each part. Segments have pages of their own in memory, not in the file."""
    found, end, page, before = {}, _HEADER.size + _SEGMENTS * _SEGMENT.size, 0, 0
    for part, flags in _ORDER.items():
        page, before = page + (flags != before), flags
        end += -end % _ALIGN
        found[part] = end, end + page * _PAGE
        end += len(parts[part].content)
    return found


def _segments(parts: Mapping[str, _Part], place: Mapping[str, tuple[int, int]]) -> Iterator[tuple[int, ...]]:
    for flags, protection in ((0, 4), (_EXECUTABLE, 5), (_WRITABLE, 6)):
        own = [part for part, f in _ORDER.items() if f == flags]
        (offset, address), (last, _) = place[own[0]], place[own[-1]]
        if flags == 0:
            offset = address = 0  # the headers too
        size = last + len(parts[own[-1]].content) - offset
        whole = size if flags != _WRITABLE else -(-(address + size) // _PAGE) * _PAGE - address
        yield _LOAD, protection, offset, address, address, size, whole, _PAGE
    yield _READ_ONLY_LATER, 4, offset, address, address, size, whole, 1  # once the table is filled in
    (offset, address), size = place[".dynamic"], len(parts[".dynamic"].content)
    yield _DYNAMIC_SEGMENT, 6, offset, address, address, size, size, 8
    yield _STACK, 6, 0, 0, 0, 0, 0, 16


def _with_section_headers(
    out: bytearray, it: _Object, parts: Mapping[str, _Part], place: Mapping[str, tuple[int, int]]
) -> bytes:
    """The finished file."""
    order = ["", *parts, ".shstrtab"]
    names, at = b"\0".join(x.encode() for x in order) + b"\0", len(out)
    rows = [(0,) * 10]
    for part, (offset, address) in place.items():
        kind, flags, content, entry, link, info = parts[part]
        rows.append((0, kind, flags, address, offset, len(content), order.index(link), info, _ALIGN, entry))
    rows.append((0, _STRINGS, 0, 0, at, len(names), 0, 0, 1, 0))
    out += names + bytes(-(at + len(names)) % 8)
    table = len(out)
    for row, name in zip(rows, order, strict=True):
        out += _SECTION.pack(names.index(name.encode() + b"\0"), *row[1:])
    header = (_IDENTITY, 3, it.machine, 1, 0, _HEADER.size, table, it.flags, _HEADER.size)
    _HEADER.pack_into(out, 0, *header, _SEGMENT.size, _SEGMENTS, _SECTION.size, len(rows), len(rows) - 1)
    return bytes(out)


# ---- references by machine -------------------------------------------------------------------------------------------

Spot = tuple[bytearray, int]  # memory, and an offset in it


def _add_bits(spot: Spot, bits: int) -> None:
    (word,) = struct.unpack_from("<I", *spot)
    struct.pack_into("<I", *spot, word | bits)


def _unknown(kind: int) -> ObjectError:
    return ObjectError(f"a reference of the unknown kind {kind}")


def _x86_64(kind: int, spot: Spot, here: int, there: int, _: dict[int, int]) -> None:
    if kind not in (2, 4):  # R_X86_64_PC32, PLT32
        raise _unknown(kind)
    struct.pack_into("<i", *spot, there - here)


_LOAD_LOW = {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4}  # R_AARCH64_ADD_ABS_LO12_NC, LDST8 to LDST128: log2 of bytes


def _aarch64(kind: int, spot: Spot, here: int, there: int, _: dict[int, int]) -> None:
    if kind == 275:  # R_AARCH64_ADR_PREL_PG_HI21
        pages = (there >> 12) - (here >> 12)
        _add_bits(spot, (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5)
    elif kind in _LOAD_LOW:
        _add_bits(spot, (there & 0xFFF) >> _LOAD_LOW[kind] << 10)
    elif kind in (282, 283):  # R_AARCH64_JUMP26, CALL26
        _add_bits(spot, there - here >> 2 & 0x3FFFFFF)
    else:
        raise _unknown(kind)


def _riscv64(kind: int, spot: Spot, here: int, there: int, high: dict[int, int]) -> None:
    """`high` has the distance that each AUIPC begins, by its address; its low bits are in instructions after it."""
    if kind in (19, 23):  # R_RISCV_CALL_PLT, PCREL_HI20
        high[here] = there - here
        _add_bits(spot, there - here + 0x800 & 0xFFFFF000)
        if kind == 19:
            _add_bits((spot[0], spot[1] + 4), (there - here & 0xFFF) << 20)
    elif kind == _LOW_OF_OTHER:
        _add_bits(spot, (high[there] & 0xFFF) << 20)
    elif kind in (35, 39):  # R_RISCV_ADD32, SUB32: tables of jumps
        (word,) = struct.unpack_from("<I", *spot)
        struct.pack_into("<I", *spot, word + (there if kind == 35 else -there) & 0xFFFFFFFF)
    else:
        raise _unknown(kind)


class _Machine(NamedTuple):
    absolute: int  # the kind of a reference that is a whole address, which the system may fill in
    patch: Callable[[int, Spot, int, int, dict[int, int]], None]


_MACHINES = {62: _Machine(1, _x86_64), 183: _Machine(257, _aarch64), _RISC_V: _Machine(2, _riscv64)}
