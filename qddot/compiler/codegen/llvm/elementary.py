"""exp, log, tanh and arctan as LLVM text, for a scalar or for lanes: the steps of `ir/elementary.py`, one an instruction.

They are functions of doubles; floats are widened, and the result is rounded. So is arctan2 on targets without a C library.
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


def arctan2(lanes: int, T: str) -> str:
    """`@arctan2(y, x, env)` as C has it, on so many numbers of type T. It reads nothing in `%env`."""
    V, W = _vector(T, lanes), _vector("double", lanes)
    if T == "double":
        lines, result = _steps("arctan2", lanes, {"y": "%y", "x": "%x"})
    else:
        lines, wide = _steps("arctan2", lanes, {"y": "%y.d", "x": "%x.d"})
        result = "%narrow"
        lines = [*(f"  %{v}.d = fpext {V} %{v} to {W}" for v in "yx"), *lines, f"  %narrow = fptrunc {W} {wide} to {V}"]
    body = "\n".join(lines)
    return f"define internal {V} @arctan2_{lanes}({V} %y, {V} %x, ptr %env) noinline {{\n{body}\n  ret {V} {result}\n}}\n"


def _function(name: str, lanes: int) -> str:
    return f"{name}_{lanes}"


def _vector(T: str, lanes: int) -> str:
    return T if lanes == 1 else f"<{lanes} x {T}>"


def _define(name: str, lanes: int) -> str:
    V = _vector("double", lanes)
    lines, result = _steps(name, lanes, {"x": "%x"})
    body = "\n".join(lines)
    return f"define internal {V} @{_function(name, lanes)}({V} %x) noinline {{\n{body}\n  ret {V} {result}\n}}\n"


def _steps(name: str, lanes: int, arguments: dict[str, str]) -> tuple[list[str], str]:
    """The steps of a function as lines, and its result."""
    V, I, B = (_vector(x, lanes) for x in ("double", "i64", "i1"))
    lines: list[str] = []
    values: list[str] = []  # the operand of each step

    def everywhere(x: str, T: str) -> str:
        return x if lanes == 1 else f"splat ({T} {x})"

    for k, (op, args) in enumerate(elementary.steps(name)):
        values.append(f"%s{k}")
        if op in arguments:
            values[k] = arguments[op]
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
    return lines, values[-1]
