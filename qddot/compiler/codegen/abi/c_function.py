"""A module for C: `void name(const T *q, const T *v, …, T *result)` around the one-lane core of a program.

The inputs of one state are copied into one array first, so that the result may overwrite any of them. Scratch memory is on
the stack. What kernels find in `%env` is here a constant table of functions of the C library, which the linker fills: sine
and cosine of large angles, and atan2, if the program has them.
"""

from __future__ import annotations

import re
from math import prod
from typing import NamedTuple

from qddot.compiler.codegen.abi.fastcall import copy_input
from qddot.compiler.codegen.abi.operands import Shape
from qddot.compiler.codegen.llvm import loop_program
from qddot.compiler.codegen.llvm.emitter import Emitter, number_bytes
from qddot.compiler.codegen.llvm.module import module
from qddot.compiler.codegen.llvm.straight_line import straight_line_core
from qddot.compiler.ir.loop_program import Rolled
from qddot.compiler.ir.program import Program
from qddot.compiler.targets.target import Target
from qddot.errors import InputError

LIBRARY = {"sin": "sin", "cos": "cos", "arctan2": "atan2"}  # operations, and what the C library calls them, as in `%env`
_ARGUMENTS = {"sin": "double", "cos": "double", "atan2": "double, double"}
_VECTOR_ALIGN = 64  # bytes: no vector crosses a cache line


class CFunction(NamedTuple):
    """The LLVM text of a function, the bytes of its scratch memory, and the functions of the C library that it may call."""

    text: str
    scratch_bytes: int
    library: tuple[str, ...]


def render(
    program: Program | Rolled, name: str, inputs: list[Shape], output: Shape, dtype: str, target: Target
) -> CFunction:
    """A module with the function `name` of contiguous arrays of these shapes."""
    emitter = Emitter(1, dtype, target)
    T, text = emitter.T, list[str]()
    if isinstance(program, Rolled):
        text.append(loop_program.data(program, T))
        core = loop_program.loop_program_core(program, emitter)
    else:
        core = straight_line_core(program, emitter)
    library, sizes = _library(program) if target.has_c_library else (), [prod(s) for s in inputs]
    scratch = {"in": max(sum(sizes), 1), "work": max(core.scratch, 1)}
    align = _VECTOR_ALIGN if target.vector_bits else number_bytes(T)
    lines = [f"  %{x} = alloca [{n} x {T}], align {align}" for x, n in scratch.items()]
    at = 0
    for i, n in enumerate(sizes):
        lines += copy_input(i, n, at, T)
        at += n
    lines.append(f"  call void @core1(ptr %in, ptr %out, ptr %work, ptr {'@library' if library else 'null'})")
    arguments = ", ".join([*(f"ptr %data{i}" for i in range(len(inputs))), "ptr %out"])
    text += [*core.functions, _table(library)]
    text.append(f"define void @{name}({arguments}) {{\n" + "\n".join(lines) + "\n  ret void\n}\n")
    whole = module(text, [core], target)
    if len(re.findall(rf"^(?:define .*|declare .*)?@{name}(?: =|\()", whole, re.MULTILINE)) > 1:
        raise InputError(f"name={name!r} is a name of the code's own; take another one")
    whole = re.sub(r"^(define .*) \{$", r"\1 nounwind {", whole, flags=re.MULTILINE)  # C needs no tables for exceptions
    return CFunction(whole, sum(scratch.values()) * number_bytes(T), library)


def _library(program: Program | Rolled) -> tuple[str, ...]:
    """The functions of the C library that a program may call."""
    parts = [s.program for s, _ in program.executed()] if isinstance(program, Rolled) else [program]
    used = {p.graph.ops[n] for p in parts for n in p.body}
    if used & {"sin", "cos"}:
        used |= {"sin", "cos"}  # are computed together
    return tuple(name for op, name in LIBRARY.items() if op in used)


def _table(library: tuple[str, ...]) -> str:
    """`@library` as `%env`."""
    if not library:
        return ""
    entries = ", ".join(f"ptr @{x}" if x in library else "ptr null" for x in LIBRARY.values())
    declared = "".join(f"declare double @{x}({_ARGUMENTS[x]})\n" for x in library)
    return f"{declared}@library = internal constant [{len(LIBRARY)} x ptr] [{entries}]\n"
