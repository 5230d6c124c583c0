"""The operations of the IR, one a row: what it computes, its derivatives, what it costs.

| op                     | meaning                      |
|------------------------|------------------------------|
| add sub mul div neg    | IEEE arithmetic              |
| fma fms fnma fnms      | a·b + c, a·b - c, c - a·b, -(a·b) - c, rounded once |
| sqrt sin cos arctan2   |                              |
| exp log tanh arctan    | as `elementary` defines them, to the last bit |
| less, less_equal       | x < y, x ≤ y                 |
| select                 | c ? x : y                    |
| const, input           | a number; the k-th input     |
| column, cell           | while loops are traced: a number that differs from row to row; a row's memory |

`slopes(x, y, …, r)` gives the derivative with respect to each argument, written with scalars of any kind; r is the result.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from qddot import scalars
from qddot.compiler.ir import elementary

Slopes = Callable[..., tuple[Any, ...]]


class Op(NamedTuple):
    """One operation: number of arguments, value on floats, derivatives, and the column of the count it falls in."""

    arity: int
    value: Callable[..., Any]
    slopes: Slopes | None
    counts: tuple[str, ...]


def fused(a: float, b: float, c: float) -> float:
    """a·b + c rounded once, as the machine's instruction does it."""
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return a * b + c
    (p, r), (s, t), (x, y) = a.as_integer_ratio(), b.as_integer_ratio(), c.as_integer_ratio()
    exact = p * s * y + x * r * t
    if exact == 0:
        return a * b + c  # the sign of zero
    try:
        return exact / (r * t * y)  # division of integers rounds once
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


OPS: dict[str, Op] = {
    "add": Op(2, operator.add, lambda x, y, r: (1.0, 1.0), ("add",)),
    "sub": Op(2, operator.sub, lambda x, y, r: (1.0, -1.0), ("add",)),
    "mul": Op(2, operator.mul, lambda x, y, r: (y, x), ("mul",)),
    "div": Op(2, lambda x, y: scalars.divide(x, y), lambda x, y, r: (1.0 / y, -(r / y)), ("div",)),
    "neg": Op(1, operator.neg, lambda x, r: (-1.0,), ()),
    "fma": Op(3, fused, lambda a, b, c, r: (b, a, 1.0), ("mul", "add")),
    "fms": Op(3, lambda a, b, c: fused(a, b, -c), lambda a, b, c, r: (b, a, -1.0), ("mul", "add")),
    "fnma": Op(3, lambda a, b, c: fused(-a, b, c), lambda a, b, c, r: (-b, -a, 1.0), ("mul", "add")),
    "fnms": Op(3, lambda a, b, c: fused(-a, b, -c), lambda a, b, c, r: (-b, -a, -1.0), ("mul", "add")),
    "sqrt": Op(1, scalars.sqrt, lambda x, r: (0.5 / r,), ("sqrt",)),
    "sin": Op(1, scalars.sin, lambda x, r: (scalars.cos(x),), ("sincos",)),
    "cos": Op(1, scalars.cos, lambda x, r: (-scalars.sin(x),), ("sincos",)),
    "arctan2": Op(2, math.atan2, lambda y, x, r: (x / (x * x + y * y), -(y / (x * x + y * y))), ("arctan2",)),
    "exp": Op(1, partial(elementary.evaluate, "exp"), lambda x, r: (r,), ("exp",)),
    "log": Op(1, partial(elementary.evaluate, "log"), lambda x, r: (1.0 / x,), ("log",)),
    "tanh": Op(1, partial(elementary.evaluate, "tanh"), lambda x, r: (1.0 - r * r,), ("tanh",)),
    "arctan": Op(1, partial(elementary.evaluate, "arctan"), lambda x, r: (1.0 / (1.0 + x * x),), ("arctan",)),
    "less": Op(2, operator.lt, lambda x, y, r: (0.0, 0.0), ("other",)),
    "less_equal": Op(2, operator.le, lambda x, y, r: (0.0, 0.0), ("other",)),
    "select": Op(
        3,
        lambda c, x, y: x if c else y,
        lambda c, x, y, r: (0.0, scalars.where(c, 1.0, 0.0), scalars.where(c, 0.0, 1.0)),
        ("other",),
    ),
    "const": Op(0, float, None, ()),
    "input": Op(0, float, None, ()),
    "column": Op(0, float, None, ()),
    "cell": Op(0, float, None, ()),
}

COMPARISONS = frozenset({"less", "less_equal"})  # whose results are no numbers: they are for selects alone
COMMUTATIVE = frozenset({"add", "mul"})
LEAVES = frozenset({"const", "input", "column", "cell"})
