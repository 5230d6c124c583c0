"""exp, log, tanh and arctan as LLVM text, for a scalar or for lanes: the steps of `ir/elementary.py`, one an instruction.

They are functions of doubles; floats are widened, and the result is rounded.
"""

from __future__ import annotations

from collections.abc import Iterable

from qddot.compiler.codegen.llvm.sincos import number
from qddot.compiler.ir import elementary

NAMES = frozenset(elementary.FUNCTIONS)
_ARITHMETIC = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_ON_BITS = {"iadd": "add", "isub": "sub", "iand": "and", "ior": "or", "shl": "shl", "shr": "lshr"}


def call(result: str, name: str, x: str, lanes: int, T: str) -> list[str]:
    """Lines that compute a function of a value of so many numbers of type T."""
    V, W = _vector(T, lanes), _vector("double", lanes)
    if T == "double":
        return [f"  {result} = call {V} @{_function(name, lanes)}({V} {x})"]
    return [
        f"  {result}.x = fpext {V} {x} to {W}",
        f"  {result}.y = call {W} @{_function(name, lanes)}({W} {result}.x)",
        f"  {result} = fptrunc {W} {result}.y to {V}",
    ]


def definitions(text: str, widths: Iterable[int]) -> list[str]:
    """The functions that a text calls."""
    return [_define(x, n) for n in widths for x in sorted(NAMES) if f"@{_function(x, n)}(" in text]


def _function(name: str, lanes: int) -> str:
    return f"{name}_{lanes}"


def _vector(T: str, lanes: int) -> str:
    return T if lanes == 1 else f"<{lanes} x {T}>"


def _define(name: str, lanes: int) -> str:
    V, I, B = (_vector(x, lanes) for x in ("double", "i64", "i1"))
    lines: list[str] = []
    values: list[str] = []  # the operand of each step

    def everywhere(x: str, T: str) -> str:
        return x if lanes == 1 else f"splat ({T} {x})"

    for k, (op, args) in enumerate(elementary.steps(name)):
        values.append(f"%s{k}")
        if op == "x":
            values[k] = "%x"
        elif op == "number":
            values[k] = everywhere(number(args[0]), "double")
        elif op == "pattern":
            values[k] = everywhere(str(args[0] - (args[0] >> 63 << 64)), "i64")  # as a signed number
        elif op in _ARITHMETIC:
            lines.append(f"  %s{k} = {_ARITHMETIC[op]} {V} {values[args[0]]}, {values[args[1]]}")
        elif op == "less":
            lines.append(f"  %s{k} = fcmp olt {V} {values[args[0]]}, {values[args[1]]}")
        elif op == "select":
            c, x, y = (values[i] for i in args)
            lines.append(f"  %s{k} = select {B} {c}, {V} {x}, {V} {y}")
        elif op in ("to_bits", "from_bits"):
            old, new = (V, I) if op == "to_bits" else (I, V)
            lines.append(f"  %s{k} = bitcast {old} {values[args[0]]} to {new}")
        elif op in _ON_BITS:
            other = everywhere(str(args[1]), "i64") if op in ("shl", "shr") else values[args[1]]
            lines.append(f"  %s{k} = {_ON_BITS[op]} {I} {values[args[0]]}, {other}")
    body = "\n".join(lines)
    return f"define internal {V} @{_function(name, lanes)}({V} %x) noinline {{\n{body}\n  ret {V} {values[-1]}\n}}\n"
