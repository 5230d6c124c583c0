"""The machine we run on: LLVM text into object code, and object code into something callable.

Only compiling needs LLVM. Object code from the cache is loaded by a few lines of our own where its format is known
(ELF on x86-64), so that a process that finds its kernels in the cache never loads LLVM; elsewhere LLVM's loader does it.
The environment variable QDDOT_LOADER chooses one (docs/machines.md).
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import platform
import struct
import sys
import threading
from typing import Any

from qddot.compiler.target import HOST, X86, Target, architecture, host, native
from qddot.errors import InputError

_lock = threading.Lock()


@functools.cache
def _llvm() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    return llvm


def _target_machine(target: Target) -> Any:
    """LLVM's description of a processor. An engine takes possession of the one it is given: each must have its own."""
    llvm = _llvm()
    # LLVM's loader cannot do with Windows' own object format: constants there are symbols that it does not find.
    triple = llvm.get_process_triple() + ("-elf" if sys.platform == "win32" else "")
    native = target.cpu == HOST
    return llvm.Target.from_triple(triple).create_target_machine(
        cpu=llvm.get_host_cpu_name() if native else target.cpu,
        features=llvm.get_host_cpu_features().flatten() if native else "",
        opt=2,
        reloc="pic",
        codemodel="small",
    )


_emitting = functools.cache(_target_machine)  # for compiling only: it is given to no engine


def compile_object(text: str, target: Target | None = None) -> bytes:
    """Object code of an LLVM module. The module is verified first: one that is not sound would end the process."""
    llvm = _llvm()
    with _lock:  # one LLVM context for all threads
        machine = _emitting(host() if target is None else target)
        module = llvm.parse_assembly(text)
        module.triple = machine.triple
        module.verify()
        options = llvm.create_pipeline_tuning_options(speed_level=0)
        passes = llvm.create_new_module_pass_manager()
        passes.add_always_inliner_pass()
        passes.run(module, llvm.create_pass_builder(machine, options))
        return bytes(machine.emit_object(module))


class Code:
    """Executable memory with the function `loop` in it, and `call` in most. It goes when the object goes."""

    def __init__(self, data: bytes) -> None:
        if loader() == "own":
            self._memory = _Image(data)
            functions = self._memory.functions
            self.address, self.call = functions["loop"], functions.get("call")
        else:
            self._engine = _loaded_by_llvm(data)
            self.address = self._engine.get_function_address("loop")
            self.call = self._engine.get_function_address("call") or None


def loader() -> str:
    """Who brings object code into memory, "own" or "llvm": the environment variable QDDOT_LOADER, else own where it can."""
    here = sys.platform == "linux" and architecture() == X86
    wanted = os.environ.get("QDDOT_LOADER") or ("own" if here else "llvm")
    if wanted not in ("own", "llvm"):
        raise InputError(f"QDDOT_LOADER={wanted!r} is not known; take 'own' or 'llvm', or leave it empty")
    if wanted == "own" and not here:
        system = f"{sys.platform} on {platform.machine()}"
        raise InputError(f"QDDOT_LOADER='own' works on x86-64 Linux only, and this is {system}; take 'llvm'")
    return wanted


def _loaded_by_llvm(data: bytes) -> Any:
    """An engine with the code in it, which goes with the engine.

    Engines go whenever Python drops them, on any thread, and must not wait for `_lock`: the one who holds it may be the
    one whose garbage is collected. They need not, for llvmlite has a lock of its own, a reentrant one, around every call.
    """
    llvm = _llvm()
    with _lock:
        # llvmlite's memory manager puts all sections side by side; LLVM's may put them too far apart for 32-bit references
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine(native()), use_lmm=True)
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
