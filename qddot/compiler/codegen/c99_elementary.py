"""exp, log, tanh and arctan as functions of C99: the steps of `ir/elementary.py`, one a statement."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from qddot.compiler.ir import elementary

NAMES = frozenset(elementary.FUNCTIONS)
_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "iadd": "+", "isub": "-", "iand": "&", "ior": "|"}
_SHIFTS = {"shl": "<<", "shr": ">>"}
_OF_BITS = frozenset({"to_bits", "iadd", "isub", "iand", "ior", "shl", "shr"})


def function(prefix: str, name: str) -> str:
    """What a function is called in a file."""
    return f"{prefix}_{name}"


def definitions(prefix: str, names: Collection[str], uncontracted: Sequence[str]) -> list[str]:
    """Lines that define these functions of doubles. `uncontracted` is what keeps a compiler from fusing their products."""
    lines: list[str] = []
    if names:
        lines += _view(f"{prefix}_bits", "uint64_t", "double", "from.number = x", "from.bits")
        lines += _view(f"{prefix}_number", "double", "uint64_t", "from.bits = x", "from.number")
    for name in sorted(names):
        lines += [f"static double {function(prefix, name)}(double x)", "{", *uncontracted, *_body(prefix, name), "}", ""]
    return lines


def _view(name: str, to: str, given: str, put: str, get: str) -> list[str]:
    """A function that gives the bits of a number, or the number of bits."""
    return [
        f"static {to} {name}({given} x)",
        "{",
        "    union { double number; uint64_t bits; } from;",
        f"    {put};",
        f"    return {get};",
        "}",
        "",
    ]


def _number(x: float) -> str:
    if math.isnan(x):
        return "(double)NAN"
    if math.isinf(x):
        return f"{'-' if x < 0 else ''}(double)INFINITY"
    return f"({x!r})" if x < 0.0 else repr(x)


def _body(prefix: str, name: str) -> list[str]:
    lines: list[str] = []
    values: list[str] = []  # the text of each step
    for k, (op, args) in enumerate(elementary.steps(name)):
        values.append(f"s{k}")
        if op == "x":
            values[k] = "x"
        elif op == "number":
            values[k] = _number(args[0])
        elif op == "pattern":
            values[k] = f"0x{args[0]:X}U" if args[0] < 2**15 else f"UINT64_C(0x{args[0]:X})"
        elif op == "note":
            lines.append(f"    /* {args[0]} */")
        elif op == "less":
            values[k] = f"{values[args[0]]} < {values[args[1]]}"
        else:
            T = "uint64_t" if op in _OF_BITS else "double"
            lines.append(f"    const {T} s{k} = {_operation(prefix, op, args, values)};")
    return [*lines, f"    return {values[-1]};"]


def _operation(prefix: str, op: str, args: tuple[int, ...], values: list[str]) -> str:
    if op in _SHIFTS:
        return f"{values[args[0]]} {_SHIFTS[op]} {args[1]}"
    x = [values[k] for k in args]
    if op in _INFIX:
        return f"{x[0]} {_INFIX[op]} {x[1]}"
    if op == "select":
        return f"{x[0]} ? {x[1]} : {x[2]}"
    return f"{prefix}_{'bits' if op == 'to_bits' else 'number'}({x[0]})"
