"""Object code into executable memory: ELF objects for x86-64, as LLVM makes them of one module."""

from __future__ import annotations

import ctypes
import mmap
import struct
from typing import Any

_PC_RELATIVE = {2: 4, 4: 4, 24: 8}  # R_X86_64_PC32, PLT32, PC64
_ABSOLUTE = 1  # R_X86_64_64
_ALLOCATED = 2  # SHF_ALLOC


class Image:
    """An ELF object laid out in memory of its own: sections one after the other, references resolved among them."""

    def __init__(self, data: bytes) -> None:
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("not an object of this machine")
        table, _, _, _, _, size, count, names_at = struct.unpack_from("<QIHHHHHH", data, 0x28)
        sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + k * size) for k in range(count)]
        place, end = {}, 0
        for k, (_, kind, flags, _, _, length, _, _, align, _) in enumerate(sections):
            if flags & _ALLOCATED and kind in (1, 8) and length:
                end = -(-end // max(align, 1)) * max(align, 1)
                place[k] = end
                end += length
        self._map = mmap.mmap(-1, max(end, 1), prot=mmap.PROT_READ | mmap.PROT_WRITE)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        for k, at in place.items():
            if sections[k][1] == 1:
                self._map[at : at + sections[k][5]] = data[sections[k][4] : sections[k][4] + sections[k][5]]
        symbols, strings = self._symbols(data, sections)
        self.functions = {}
        for name, section, value in symbols:
            if section in place:
                text = strings[name : strings.index(b"\0", name)].decode()
                self.functions[text] = self._base + place[section] + value
        for _, kind, _, _, offset, length, _, target, _, entry in sections:
            if kind == 4 and target in place:
                for at in range(offset, offset + length, entry):
                    self._relocate(data, at, place, symbols, place[target])
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mprotect(ctypes.c_void_p(self._base), ctypes.c_size_t(len(self._map)), mmap.PROT_READ | mmap.PROT_EXEC):
            raise OSError(ctypes.get_errno(), "the system does not let memory be executed")
        del names_at

    @staticmethod
    def _symbols(data: bytes, sections: list[Any]) -> tuple[list[tuple[int, int, int]], bytes]:
        _, _, _, _, offset, length, link, _, _, entry = next(s for s in sections if s[1] == 2)
        out = []
        for at in range(offset, offset + length, entry):
            name, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", data, at)
            out.append((name, section, value))
        strings = sections[link]
        return out, data[strings[4] : strings[4] + strings[5]]

    def _relocate(self, data: bytes, at: int, place: dict[int, int], symbols: list[Any], section: int) -> None:
        offset, info, addend = struct.unpack_from("<QQq", data, at)
        _, home, value = symbols[info >> 32]
        kind = info & 0xFFFFFFFF
        if home not in place:
            raise ValueError("the code refers to something outside of itself")
        here, there = section + offset, place[home] + value + addend
        if kind in _PC_RELATIVE:
            struct.pack_into("<i" if _PC_RELATIVE[kind] == 4 else "<q", self._map, here, there - here)
        elif kind == _ABSOLUTE:
            struct.pack_into("<Q", self._map, here, self._base + there)
        else:
            raise ValueError(f"the code holds a reference of the unknown kind {kind}")
