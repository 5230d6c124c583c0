"""The machine we run on: LLVM text into object code, and object code into something callable.

Only compiling needs LLVM. Object code from the cache is loaded by a few lines of our own where its format is known
(ELF on x86-64), so that a process that finds its kernels in the cache never loads LLVM; elsewhere LLVM's loader does it.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import platform
import sys
from pathlib import Path
from typing import Any

from qddot.compiler.elf import Image
from qddot.compiler.forks import guarded_lock
from qddot.errors import ObjectError

_lock = guarded_lock()
_system_lock = guarded_lock()  # for what is asked of the system: compiling, which may take long, has the other one


@functools.cache
def cpu() -> str:
    """What decides which code may run here: architecture, system, and the features of the processor."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        wanted = ("flags", "Features", "model name", "CPU part")
        lines = dict(line.split("\t", 1) for line in info.read_text().splitlines() if line.startswith(wanted))
        flags = repr(sorted(lines.items()))
    else:
        with _system_lock:  # it holds a lock of its own in Python 3.11
            flags = platform.processor()
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
def _llvm() -> Any:
    with _lock:
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
            self._memory = Image(data)
            functions = self._memory.functions
            if "loop" not in functions:
                raise ObjectError("it has no function 'loop'")
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


_library: Any = None


def library_functions() -> Any:
    """What kernels are given from outside, their `env`: sin, cos, atan2, the heap's take and free, and what raises
    MemoryError: PyGILState_Ensure, PyErr_NoMemory, PyGILState_Release.

    There is one for ever: kernels have its address.
    """
    global _library
    with _system_lock:
        if _library is None:
            from ctypes.util import find_library

            name = find_library("m") if sys.platform != "win32" else "msvcrt"
            library = ctypes.CDLL(name)
            of_python = ("PyMem_RawMalloc", "PyMem_RawFree", "PyGILState_Ensure", "PyErr_NoMemory", "PyGILState_Release")
            functions = [getattr(library, f) for f in ("sin", "cos", "atan2")]
            functions += [getattr(ctypes.pythonapi, f) for f in of_python]
            _library = (ctypes.c_void_p * 8)(*(ctypes.cast(f, ctypes.c_void_p).value for f in functions))
        return _library
