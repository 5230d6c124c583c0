"""LLVM text into object code for a processor, and object code into memory.

Only compiling needs LLVM. Object code from the cache is loaded by qddot itself where its format is known (ELF on x86-64),
so that a process that finds its kernels in the cache never loads LLVM; elsewhere LLVM's loader does it. The environment
variable QDDOT_LOADER chooses one (docs/machines.md).
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from qddot.compiler.runtime import debug
from qddot.compiler.runtime.forks import guarded_lock
from qddot.compiler.runtime.loader import Image, check_header
from qddot.compiler.targets.host import architecture, cache_bytes, host, native, obstacle
from qddot.compiler.targets.target import HOST, X86, Target
from qddot.errors import InputError, ObjectError

llvm_lock = guarded_lock()
_system_lock = guarded_lock()  # for questions to the system: compiling, which may take long, has the other one


@functools.cache
def load_llvm() -> Any:
    """LLVM with all its targets; its assembler is for this machine's only."""
    with llvm_lock:
        import llvmlite.binding as llvm

        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        llvm.initialize_native_asmparser()
        return llvm


def _target_machine(target: Target) -> Any:
    """LLVM's description of a processor. An engine takes possession of the one it is given: each must have its own."""
    llvm = load_llvm()
    # LLVM's loader cannot do with Windows' own object format: constants there are symbols that it does not find.
    triple = llvm.get_process_triple() + ("-elf" if sys.platform == "win32" else "")
    if target.arch != architecture():
        triple = target.architecture.triple
    return machine_for(target, triple)


def machine_for(target: Target, triple: str) -> Any:
    """LLVM's description of a processor on some system."""
    llvm, native = load_llvm(), target.cpu == HOST
    return llvm.Target.from_triple(triple).create_target_machine(
        cpu=llvm.get_host_cpu_name() if native else target.cpu,
        features=llvm.get_host_cpu_features().flatten() if native else target.architecture.features,
        opt=2,
        reloc=target.architecture.relocation,
        codemodel="small",
        abiname=target.architecture.abi,
    )


_emitting = functools.cache(_target_machine)  # for compiling only: it is given to no engine


def compile_object(text: str, target: Target | None = None, name: str = "") -> bytes:
    """Object code of an LLVM module. The module is verified first: an invalid one would end the process.

    `name` is for QDDOT_DEBUG.
    """
    begin = time.perf_counter()
    target = host() if target is None else target
    with llvm_lock:  # one LLVM context for all threads
        machine, module = _optimised(text, target)
        data = bytes(machine.emit_object(module))
    if debug.wanted():
        debug.report(name, text, lambda: assembly(text, target), time.perf_counter() - begin, len(data))
    return data


def assembly(text: str, target: Target | None = None) -> str:
    """The assembly of an LLVM module, to be read: the same instructions as in its object code."""
    with llvm_lock:
        machine, module = _optimised(text, host() if target is None else target)
        return str(machine.emit_assembly(module))


def _optimised(text: str, target: Target) -> tuple[Any, Any]:
    """A target machine, and the module with the functions inlined that must be; `llvm_lock` is held."""
    machine = _emitting(target)
    module = parsed(text, machine)
    _inline(module, machine)
    return machine, module


def parsed(text: str, machine: Any) -> Any:
    """A module, verified; `llvm_lock` is held."""
    module = load_llvm().parse_assembly(text)
    module.triple = machine.triple
    module.verify()
    return module


def _inline(module: Any, machine: Any) -> None:
    llvm = load_llvm()
    options = llvm.create_pipeline_tuning_options(speed_level=0)
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.run(module, llvm.create_pass_builder(machine, options))


class ObjectFile(NamedTuple):
    """Object code for other people's linkers, and the system and the processor that it is for."""

    data: bytes
    triple: str
    cpu: str


def object_file(texts: Sequence[str], target: Target, triple: str = "") -> ObjectFile:
    """Several modules as one object file; what is internal to a module stays so. No triple: this machine's system."""
    llvm = load_llvm()
    with llvm_lock:
        own = llvm.get_process_triple() if target.arch == architecture() else target.architecture.triple
        machine = machine_for(target, triple or own)
        module, *others = (parsed(text, machine) for text in texts)
        for other in others:
            module.link_in(other)
        _inline(module, machine)
        cpu = llvm.get_host_cpu_name() if target.cpu == HOST else target.cpu
        return ObjectFile(bytes(machine.emit_object(module)), machine.triple, cpu)


class Code:
    """Executable memory with the function `loop` in it, and `call` in most. It goes when the object goes.

    Code for a target that this machine cannot run is not loaded: `obstacle` says why, and `address` is None.
    """

    def __init__(self, data: bytes, target: Target | None = None) -> None:
        self.address: int | None = None
        self.call: int | None = None
        self.obstacle = None if target is None else obstacle(target)
        if self.obstacle is not None:
            return
        if loader() == "own":
            self._memory = Image(data)
            functions = self._memory.functions
            if "loop" not in functions:
                raise ObjectError("it has no function 'loop'")
            self.address, self.call = functions["loop"], functions.get("call")
        else:
            self._engine = engine_of(data)
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


def engine_of(data: bytes) -> Any:
    """An engine with the code in it, which goes with the engine.

    Engines go whenever Python drops them, on any thread, and must not wait for `llvm_lock`: the one who holds it may be the
    one whose garbage is collected. They need not, for llvmlite has a lock of its own, a reentrant one, around every call.
    """
    check_header(data)  # LLVM ends the process if there is no object in it
    llvm = load_llvm()
    with llvm_lock:
        # llvmlite's memory manager puts sections next to each other; LLVM's may exceed the reach of 32-bit references
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine(native()), use_lmm=True)
        engine.add_object_file(llvm.ObjectFileRef.from_data(data))
        engine.finalize_object()
    return engine


ENVIRONMENT_WORDS = 11
_STREAMING_MIN_BYTES = 3_000_000
_invalid_calls = ctypes.c_uint64()
_library: Any = None


def streaming_min_bytes() -> int:
    """Of a whole result that is written with streaming stores: more than stays in the caches (docs/decisions/0015)."""
    return max(_STREAMING_MIN_BYTES, cache_bytes(2))


def library_functions() -> Any:
    """The `env` of kernels: sin, cos, atan2, malloc and free of the heap, and what raises MemoryError:
    PyGILState_Ensure, PyErr_NoMemory, PyGILState_Release. Then the address of the count of calls that were
    invalid, the bytes from which on a result is written with streaming stores, and whether a loop found no memory.

    It is never freed: kernels have its address.
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
            addresses = [ctypes.cast(f, ctypes.c_void_p).value for f in functions]
            count = ctypes.addressof(_invalid_calls)
            _library = (ctypes.c_void_p * ENVIRONMENT_WORDS)(*addresses, count, streaming_min_bytes(), 0)
        return _library


def invalid_calls() -> ctypes.c_uint64:
    """How many calls of kernels, of all threads, have met an invalid operation: a lost pivot, or NaN among their inputs.

    As long as its `value` does not change, no sample of any batch has been lost.
    """
    return _invalid_calls
