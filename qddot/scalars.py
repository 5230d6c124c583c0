"""The functions of one number that the mathematics is written in.

Every formula in qddot is written on scalars, and a scalar may be a float, a complex number, a NumPy array (one entry a
sample of a batch), a many-digit number, a dual number or a traced expression. Arithmetic needs no help; the functions
below do. A type of its own joins by having methods `sin`, `cos`, `sqrt`, `arctan2` and a `where` on the result of `<`.
"""

from __future__ import annotations

import cmath
import functools
import math
import operator
from collections.abc import Iterable, Sequence
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

    __bool__ = _refuse("decide an if", "use qddot.scalars.where(condition, then, otherwise)")
    __float__ = _refuse("become a float", "use the functions of qddot.scalars or NumPy, not the math module")
    __int__ = _refuse("become an integer", "keep counts and indices out of what is traced")
    __index__ = _refuse("be an index", "keep counts and indices out of what is traced")
    __iter__ = _refuse("be iterated", "it is one number")
    __eq__ = _refuse("be compared with ==", "use qddot.scalars.less and where")
    __ne__ = _refuse("be compared with !=", "use qddot.scalars.less and where")
    __le__ = _refuse("be compared with <=", "use < and qddot.scalars.where")
    __ge__ = _refuse("be compared with >=", "use > and qddot.scalars.where")
    __abs__ = _refuse("give its absolute value", "use where(less(x, 0.0), -x, x)")

    def __hash__(self) -> int:
        raise NotImplementedError


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


def _of_type(name: str, x: Scalar) -> Scalar:
    """A function that the scalar's own type brings: NumPy's for arrays, a method, or its context's (mpmath)."""
    if isinstance(x, np.ndarray | np.generic):
        return getattr(np, name)(x)
    method = getattr(x, name, None)
    return method() if method is not None else getattr(x.context, name)(x)


def arctan2(y: Scalar, x: Scalar) -> Scalar:
    """The angle of the point (x, y). Analytic in both arguments, so that complex steps pass through it."""
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
    return _real(x) < _real(y)


def _real(x: Scalar) -> Scalar:
    return x.real if np.iscomplexobj(x) else x


def where(condition: Scalar, then: Scalar, otherwise: Scalar) -> Scalar:
    """The choice that survives batches and tracing. Both branches are evaluated: neither may divide by zero."""
    if isinstance(condition, bool | np.bool_):
        return then if condition else otherwise
    for branch in (then, otherwise):
        if hasattr(branch, "where_parts"):
            return branch.where_parts(condition, then, otherwise)
    if isinstance(condition, np.ndarray):
        return np.where(condition, then, otherwise)
    return condition.where(then, otherwise)


def pivot(x: Scalar, floor: Scalar) -> Scalar:
    """A number to divide by; NaN where it is not above its floor, of which a plain zero says that it always is."""
    return x if isinstance(floor, float) and floor == 0.0 else where(less(floor, x), x, _NAN)


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
