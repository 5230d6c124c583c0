"""The machine we run on: LLVM text into object code, and object code into something callable.

Only compiling needs LLVM. Object code from the cache is loaded by a few lines of our own where its format is known
(ELF on x86-64), so that a process that finds its kernels in the cache never loads LLVM; elsewhere LLVM's loader does it.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import mmap
import platform
import struct
import sys
import threading
from pathlib import Path
from typing import Any

_lock = threading.Lock()


@functools.cache
def cpu() -> str:
    """What decides which code may run here: architecture, system, and the features of the processor."""
    flags = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        wanted = ("flags", "Features", "model name", "CPU part")
        lines = dict(line.split("\t", 1) for line in info.read_text().splitlines() if line.startswith(wanted))
        flags = repr(sorted(lines.items()))
    return f"{sys.platform} {platform.machine()} {hashlib.sha256(flags.encode()).hexdigest()}"


def is_x86() -> bool:
    """Whether this is a 64-bit x86 processor."""
    return platform.machine() in ("x86_64", "AMD64")


@functools.cache
def lanes(dtype: str) -> int:
    """How many numbers one instruction takes."""
    bits = 512 if has_avx512() else 256 if is_x86() and _llvm().get_host_cpu_features().get("avx2") else 128
    return bits // (64 if dtype == "float64" else 32)


@functools.cache
def has_avx512() -> bool:
    """Whether this processor has instructions on 512 bits."""
    features = _llvm().get_host_cpu_features() if is_x86() else {}
    return bool(features.get("avx512f") and features.get("avx512dq"))


@functools.cache
def has_fma() -> bool:
    """Whether products and sums are rounded once; where not, results have other bits."""
    return not is_x86() or bool(_llvm().get_host_cpu_features().get("fma"))


@functools.cache
def _llvm() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


@functools.cache
def _target_machine() -> Any:
    llvm = _llvm()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=2,
        reloc="pic",
        codemodel="small",
    )


def compile_object(text: str) -> bytes:
    """Object code of an LLVM module. The module is verified first: one that is not sound would end the process."""
    llvm = _llvm()
    with _lock:  # one LLVM context for all threads
        module = llvm.parse_assembly(text)
        module.verify()
        machine = _target_machine()
        options = llvm.create_pipeline_tuning_options(speed_level=0)
        passes = llvm.create_new_module_pass_manager()
        passes.add_always_inliner_pass()
        passes.run(module, llvm.create_pass_builder(machine, options))
        return bytes(machine.emit_object(module))


class Code:
    """Executable memory with the function `loop` in it, and `call` in most. It goes when the object goes."""

    def __init__(self, data: bytes) -> None:
        if sys.platform == "linux" and is_x86():
            self._memory = _Image(data)
            functions = self._memory.functions
            self.address, self.call = functions["loop"], functions.get("call")
        else:
            self._engine = _loaded_by_llvm(data)
            self.address = self._engine.get_function_address("loop")
            self.call = self._engine.get_function_address("call") or None


def _loaded_by_llvm(data: bytes) -> Any:
    llvm = _llvm()
    with _lock:
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine())
        engine.add_object_file(llvm.ObjectFileRef.from_data(data))
        engine.finalize_object()
    return engine


_PC_RELATIVE = {2: 4, 4: 4, 24: 8}  # R_X86_64_PC32, PLT32, PC64
_ABSOLUTE = 1  # R_X86_64_64
_ALLOCATED = 2  # SHF_ALLOC


class _Image:
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


@functools.cache
def library_functions() -> Any:
    """What kernels are given from outside, their `env`: sin, cos, atan2, the heap's take and free, and a place to say that
    the heap had nothing left.
    """
    from ctypes.util import find_library

    name = find_library("m") if sys.platform != "win32" else "msvcrt"
    library = ctypes.CDLL(name)
    pointers = [ctypes.cast(getattr(library, f), ctypes.c_void_p).value for f in ("sin", "cos", "atan2")]
    heap = [ctypes.cast(getattr(ctypes.pythonapi, f), ctypes.c_void_p).value for f in ("PyMem_RawMalloc", "PyMem_RawFree")]
    return (ctypes.c_void_p * 6)(*pointers, *heap, 0)
