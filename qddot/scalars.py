"""The functions of one number that the mathematics is written in.

Every formula in qddot is written on scalars, and a scalar may be a float, a complex number, a NumPy array (one entry a
sample of a batch), a many-digit number, a dual number or a traced expression. Arithmetic needs no help; the functions
below do. A type of its own joins by having methods `sin`, `cos`, `sqrt`, `exp`, `log`, `tanh`, `arctan`, `arctan2`, and a
`where` on the results of `<` and `<=`. Arrays of objects are taken element by element.
"""

from __future__ import annotations

import cmath
import functools
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Scalar = Any

_NAN = float("nan")


class NotKnownYet(TypeError):  # noqa: N818  what a value is, while a function is traced
    """A traced value, which stands for many numbers, was used as one number."""


def _refuse(what: str, instead: str) -> Any:
    def method(self: Unknown, *_: Any) -> Any:
        raise NotKnownYet(f"a traced value cannot {what}, because it stands for every input at once; {instead}")

    return method


class Unknown:
    """What scalars that record operations have in common: their value cannot be looked at."""

    __slots__ = ()

    __bool__ = _refuse(
        "decide an if",
        "use qddot.scalars.where(condition, then, otherwise) or np.where, np.minimum and np.maximum for min and max, and "
        "np.array([…]) where NumPy is given a list",
    )
    __float__ = _refuse(
        "become a float",
        "use the functions of qddot.scalars or NumPy, not the math module, and np.zeros_like for an array of them",
    )
    __int__ = _refuse("become an integer", "keep counts and indices out of what is traced")
    __index__ = _refuse("be an index", "keep counts and indices out of what is traced")
    __iter__ = _refuse("be iterated", "it is one number")
    __eq__ = _refuse("be compared with ==", "use qddot.scalars.less and where")
    __ne__ = _refuse("be compared with !=", "use qddot.scalars.less and where")

    def __abs__(self) -> Any:
        return absolute(self)

    def __pow__(self, n: Any) -> Any:
        return power(self, n)

    def __hash__(self) -> int:
        raise NotImplementedError


def divide(x: Scalar, y: Scalar) -> Scalar:
    """x / y, by zero infinity or NaN, as IEEE has it; Python's own division of floats raises an error there."""
    if not (isinstance(y, float | int) and isinstance(x, float | int)) or y != 0:
        return x / y
    if x == 0.0 or math.isnan(x):
        return _NAN
    return math.copysign(math.inf, x) * math.copysign(1.0, y)


def sin(x: Scalar) -> Scalar:
    """Sine; NaN at infinity, as IEEE has it."""
    if isinstance(x, float | int):
        return math.sin(x) if math.isfinite(x) else _NAN
    if isinstance(x, complex):
        return cmath.sin(x)
    return _of_type("sin", x)


def cos(x: Scalar) -> Scalar:
    """Cosine; NaN at infinity, as IEEE has it."""
    if isinstance(x, float | int):
        return math.cos(x) if math.isfinite(x) else _NAN
    if isinstance(x, complex):
        return cmath.cos(x)
    return _of_type("cos", x)


def sqrt(x: Scalar) -> Scalar:
    """Square root; NaN below zero for real numbers."""
    if isinstance(x, float | int):
        return math.sqrt(x) if x >= 0 else _NAN
    if isinstance(x, complex):
        return cmath.sqrt(x)
    return _of_type("sqrt", x)


def exp(x: Scalar) -> Scalar:
    """e to the power x; infinity where that is too large for a float."""
    if isinstance(x, float | int):
        try:
            return math.exp(x)
        except OverflowError:
            return math.inf
    if isinstance(x, complex):
        return cmath.exp(x)
    return _of_type("exp", x)


def log(x: Scalar) -> Scalar:
    """Natural logarithm; -infinity of zero, NaN below zero for real numbers."""
    if isinstance(x, float | int):
        return math.log(x) if x > 0 else -math.inf if x == 0 else _NAN
    if isinstance(x, complex):
        return cmath.log(x)
    return _of_type("log", x)


def tanh(x: Scalar) -> Scalar:
    """Hyperbolic tangent."""
    if isinstance(x, float | int):
        return math.tanh(x)
    if isinstance(x, complex):
        return cmath.tanh(x)
    return _of_type("tanh", x)


def arctan(x: Scalar) -> Scalar:
    """The angle between -π/2 and π/2 whose tangent is x."""
    if isinstance(x, float | int):
        return math.atan(x)
    if isinstance(x, complex):
        return cmath.atan(x)
    return _of_type("arctan", x)


_IN_CONTEXT = {"arctan": "atan"}  # what mpmath calls otherwise


def _of_type(name: str, x: Scalar) -> Scalar:
    """A function that the scalar's own type brings: NumPy's for arrays, a method, or its context's (mpmath)."""
    if _holds_objects(x):
        return each(globals()[name], x)
    if isinstance(x, np.ndarray | np.generic):
        return getattr(np, name)(x)
    if hasattr(x, "context"):  # whose numbers have an attribute `exp`, the exponent
        return getattr(x.context, _IN_CONTEXT.get(name, name))(x)
    return getattr(x, name)()


def _holds_objects(*values: Scalar) -> bool:
    """Whether some are arrays of objects, on which NumPy's own functions would not do."""
    return any(isinstance(x, np.ndarray) and x.dtype == object for x in values)


def each(function: Callable[..., Scalar], *arrays: Any) -> Any:
    """A function of scalars on arrays of objects, element by element; the result is an array of their kind."""
    out = np.frompyfunc(function, len(arrays), 1)(*(np.asarray(x, dtype=object) for x in arrays))
    kind = next((type(x) for x in arrays if isinstance(x, np.ndarray) and type(x) is not np.ndarray), None)
    return out.view(kind) if kind is not None and isinstance(out, np.ndarray) else out


def arctan2(y: Scalar, x: Scalar) -> Scalar:
    """The angle of the point (x, y). Analytic in both arguments, so that complex steps pass through it."""
    if _holds_objects(y, x):
        return each(arctan2, y, x)
    if isinstance(y, float | int) and isinstance(x, float | int):
        return math.atan2(y, x)
    if np.iscomplexobj(y) or np.iscomplexobj(x):
        # by half the angle: a logarithm would add an imaginary step of 1e-20 to a number near one, and lose it
        r = np.sqrt(x * x + y * y)
        behind = less(x, 0.0)
        angle = 2.0 * np.arctan(np.where(behind, r - x, y) / np.where(behind, np.where(y == 0, 1e-300, y), r + x))
        turns = np.round((np.arctan2(np.real(y), np.real(x)) - angle.real) / (2.0 * np.pi))
        return angle + 2.0 * np.pi * turns
    if isinstance(y, np.ndarray | np.generic | float | int) and isinstance(x, np.ndarray | np.generic | float | int):
        return np.arctan2(y, x)
    owner = y if hasattr(y, "arctan2") or hasattr(y, "context") else x
    return owner.context.atan2(y, x) if hasattr(owner, "context") else type(owner).arctan2(y, x)


def less(x: Scalar, y: Scalar) -> Scalar:
    """x < y, by the real parts where the numbers are complex."""
    return each(less, x, y) if _holds_objects(x, y) else _real(x) < _real(y)


def less_equal(x: Scalar, y: Scalar) -> Scalar:
    """x ≤ y, by the real parts where the numbers are complex."""
    return each(less_equal, x, y) if _holds_objects(x, y) else _real(x) <= _real(y)


def _real(x: Scalar) -> Scalar:
    return x.real if not isinstance(x, Unknown) and np.iscomplexobj(x) else x


def where(condition: Scalar, then: Scalar, otherwise: Scalar) -> Scalar:
    """The choice that survives batches and tracing. Both branches are evaluated: neither may divide by zero."""
    if isinstance(condition, bool | np.bool_):
        return then if condition else otherwise
    if _holds_objects(condition):
        return each(where, condition, then, otherwise)
    for branch in (then, otherwise):
        if hasattr(branch, "where_parts"):
            return branch.where_parts(condition, then, otherwise)
    if isinstance(condition, np.ndarray):
        return np.where(condition, then, otherwise)
    if isinstance(then, np.ndarray | list) or isinstance(otherwise, np.ndarray | list):
        return each(lambda x, y: where(condition, x, y), then, otherwise)
    return condition.where(then, otherwise)


# ---- what follows from comparisons ------------------------------------------------------------------------------------


def absolute(x: Scalar) -> Scalar:
    """|x|; its derivative at zero is 1."""
    return abs(x) if isinstance(x, float | int) else where(less(x, 0.0), -x, x)


def sign(x: Scalar) -> Scalar:
    """-1, 0 or 1; NaN of NaN. Its derivative is zero."""
    return where(less(0.0, x), 1.0, where(less(x, 0.0), -1.0, where(less_equal(x, x), 0.0, _NAN)))


def maximum(x: Scalar, y: Scalar) -> Scalar:
    """The larger of two numbers; NaN if either is, as NumPy has it. Of equal ones, and of their derivatives, the first."""
    if _is_number(y):
        return where(less(x, y), y, x)
    if _is_number(x):
        return where(less_equal(y, x), x, y)
    return where(less_equal(y, x), x, where(less(x, y), y, x + y))


def minimum(x: Scalar, y: Scalar) -> Scalar:
    """The smaller of two numbers; NaN if either is, as NumPy has it. Of equal ones, and of their derivatives, the first."""
    if _is_number(y):
        return where(less(y, x), y, x)
    if _is_number(x):
        return where(less_equal(x, y), x, y)
    return where(less_equal(x, y), x, where(less(y, x), y, x + y))


def _is_number(x: Scalar) -> bool:
    """Whether it is one known number that is not NaN."""
    return isinstance(x, float | int) and x == x


def clip(x: Scalar, low: Scalar | None, high: Scalar | None) -> Scalar:
    """x, or the limit that it is beyond; a limit of None is no limit."""
    raised = x if low is None else maximum(x, low)
    return raised if high is None else minimum(raised, high)


def hypot(x: Scalar, y: Scalar) -> Scalar:
    """√(x² + y²). The squares may overflow from 1e154 on. At the origin its derivative is NaN, as that of √(x²) is."""
    return sqrt(x * x + y * y)


def power(x: Scalar, n: Scalar) -> Scalar:
    """x to the power n: by products and a square root where n is a known multiple of 1/2, by `exp` and `log` elsewhere."""
    if _holds_objects(x, n):
        return each(power, x, n)
    if isinstance(x, _PLAIN) and isinstance(n, _PLAIN):
        with np.errstate(all="ignore"):
            found = np.power(np.asarray(x) * 1.0, n)
        return found if isinstance(x, np.ndarray) or isinstance(n, np.ndarray) else found.item()
    if hasattr(x, "power"):
        return x.power(n)
    if isinstance(n, float | int | np.integer | np.floating):
        halves = 2.0 * float(n)
        if halves % 1.0 == 0.0 and abs(halves) <= _MAX_HALVES:
            return _half_power(x, abs(int(halves)), halves < 0.0)
    return exp(n * log(x))


_PLAIN = (float, int, complex, np.number, np.ndarray)
_MAX_HALVES = 128  # of an exponent, up to which powers are products


def _half_power(x: Scalar, halves: int, inverse: bool) -> Scalar:
    """x to the power of so many halves, or one divided by it."""
    out: Scalar = sqrt(x) if halves % 2 else 1.0
    square, n = x, halves // 2
    while n:
        if n % 2:
            out = out * square
        n //= 2
        square = square * square if n else square
    return divide(1.0, out) if inverse else out


def interp(x: Scalar, at: Sequence[float], values: Sequence[Scalar]) -> Scalar:
    """The straight lines through points, as `np.interp` has them: constant outside. `at` are numbers that increase."""
    places = [float(p) for p in at]
    if len(places) != len(values) or not places or any(b <= a for a, b in pairwise(places)):
        raise TypeError("interp takes as many values as places, and places that increase")
    out = where(less_equal(places[-1], x), values[-1], x)  # x where it is NaN
    for k in reversed(range(len(places) - 1)):
        slope = (values[k + 1] - values[k]) / (places[k + 1] - places[k])
        out = where(less(x, places[k + 1]), slope * (x - places[k]) + values[k], out)
    return where(less(x, places[0]), values[0], out)


# ---- for algorithms ---------------------------------------------------------------------------------------------------


def pivot(x: Scalar, floor: Scalar) -> Scalar:
    """A number to divide by; NaN where it is not above its floor, of which a plain zero says that it always is."""
    return x if isinstance(floor, float) and floor == 0.0 else where(less(floor, x), x, _NAN)


def has_digits(x: Scalar) -> Scalar:
    """Whether 1/x is more than some hundred roundings of one, in the type that is computed with: if a sum with 1/256 is
    not rounded to x again. False of infinity and NaN.
    """
    return less(x, x + 2.0**-8)


def known(x: Scalar) -> float | None:
    """The value of a number that is the same for all states; None of what is traced and not known yet."""
    value = x if isinstance(x, float | int) else getattr(x, "known", None)
    return None if value is None else float(value)


def mark(value: Any, symbol: str, link: int) -> None:
    """Tells a trace that what it has recorded since the last mark computes this symbol of this link."""
    waiting = [value]
    while waiting:
        x = waiting.pop()
        if hasattr(x, "mark"):
            x.mark(symbol, link)
            return
        if isinstance(x, tuple):
            waiting.extend(reversed(x))


def cut(value: Any) -> None:
    """Tells a trace that a long program may be cut here: the rest needs few of the values before, of which this is one."""
    waiting = [value]
    while waiting:
        x = waiting.pop()
        if hasattr(x, "cut"):
            x.cut()
            return
        if isinstance(x, list | tuple):
            waiting.extend(reversed(x))


def total(terms: Iterable[Scalar]) -> Scalar:
    """Their sum, from left to right: Python's own `sum` of floats rounds otherwise from version 3.12 on."""
    found = list(terms)
    return functools.reduce(operator.add, found) if found else 0.0


def split(x: Any) -> list[Scalar]:
    """The components along the last axis: scalars for one state, arrays over the batch for many."""
    x = np.asarray(x)
    return list(x.tolist()) if x.ndim == 1 else [x[..., k] for k in range(x.shape[-1])]


def stack(components: Sequence[Scalar], shape: tuple[int, ...] | None = None) -> NDArray[Any]:
    """The inverse of `split`: an array whose last axes have the given shape, batch axes in front."""
    shape = (len(components),) if shape is None else shape
    batch = np.broadcast_shapes(*(c.shape for c in components if isinstance(c, np.ndarray)))
    plain = all(isinstance(c, float | int | complex | np.number | np.ndarray) for c in components)
    dtype = np.result_type(float, *{np.asarray(c).dtype for c in components}) if plain else np.dtype(object)
    out = np.empty((*batch, len(components)), dtype)
    for k, c in enumerate(components):
        out[..., k] = c
    return out.reshape(*batch, *shape)
