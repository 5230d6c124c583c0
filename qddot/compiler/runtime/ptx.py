"""LLVM text into PTX, the assembly of NVIDIA's GPUs, which their driver compiles for its card."""

from __future__ import annotations

import time
from collections.abc import Sequence

from qddot.compiler.runtime import debug
from qddot.compiler.runtime.llvm_compile import llvm_lock, load_llvm, machine_for, parsed
from qddot.compiler.targets.target import Target
from qddot.errors import ObjectError

_NEXT_MODULE = "\n{} ---- the next module ----\n"
_LLVM_BREAK, _PTX_BREAK = _NEXT_MODULE.format(";"), _NEXT_MODULE.format("//")


def joined(texts: Sequence[str]) -> str:
    """LLVM modules as one text for `compile_ptx`."""
    return _LLVM_BREAK.join(texts)


def modules(code: str) -> list[str]:
    """The modules of PTX that were compiled together."""
    return code.split(_PTX_BREAK)


def compile_ptx(text: str, target: Target, name: str = "") -> bytes:
    """PTX of an LLVM module, or of several. They are verified first: an invalid one would end the process."""
    begin = time.perf_counter()
    with llvm_lock:
        data = _emitted(text, target).encode()
    if debug.wanted():
        debug.report(name, text, data.decode, time.perf_counter() - begin, len(data))
    return data


def assembly(text: str, target: Target) -> str:
    """The PTX of an LLVM module, to be read."""
    with llvm_lock:
        return _emitted(text, target)


def _emitted(text: str, target: Target) -> str:
    return _PTX_BREAK.join(_module(part, target) for part in text.split(_LLVM_BREAK))


def _module(text: str, target: Target) -> str:
    """No passes but those that bring functions and memory together: the driver optimises."""
    llvm = load_llvm()
    machine = machine_for(target, target.architecture.triple)
    module = parsed(text, machine)
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=0)))
    return str(machine.emit_assembly(module))


def load(data: bytes, _: Target | None) -> str:
    """The text; the driver assembles it for its card when it is first called."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ObjectError("it is no text") from None
