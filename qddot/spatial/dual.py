"""Dual numbers x + x' ε with ε² = 0: exact derivatives of anything written on scalars.

Both parts may be any scalar, dual numbers included, so nesting gives second derivatives. Used where a derivative is
wanted of a function somebody else wrote: the transform T(q) of a user's own joint.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from qddot import scalars
from qddot.scalars import Scalar


class Dual:
    """A value and its derivative."""

    __slots__ = ("slope", "value")

    def __init__(self, value: Scalar, slope: Scalar = 0.0) -> None:
        self.value, self.slope = value, slope

    def __add__(self, other: Scalar) -> Dual:
        x = lift(other)
        return Dual(self.value + x.value, self.slope + x.slope)

    def __sub__(self, other: Scalar) -> Dual:
        x = lift(other)
        return Dual(self.value - x.value, self.slope - x.slope)

    def __mul__(self, other: Scalar) -> Dual:
        if isinstance(other, tuple):  # a motion, a force, a vector: they know what to do with a number
            return NotImplemented
        x = lift(other)
        return Dual(self.value * x.value, self.value * x.slope + self.slope * x.value)

    def __truediv__(self, other: Scalar) -> Dual:
        x = lift(other)
        value = scalars.divide(self.value, x.value)
        return Dual(value, scalars.divide(self.slope - value * x.slope, x.value))

    def __pow__(self, n: Scalar) -> Dual:
        return scalars.power(self, n)

    def power(self, n: Scalar) -> Dual:
        """What `scalars.power` calls; n may be a number or another scalar."""
        if not isinstance(n, float | int | np.number):
            return (lift(n) * self.log()).exp()
        if n in (0, 1):  # 0 to the power -1 must not come up on the way to the slope
            return Dual(1.0, 0.0 * self.slope) if n == 0 else self
        return Dual(scalars.power(self.value, n), n * scalars.power(self.value, n - 1) * self.slope)

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: Scalar) -> Dual:
        return lift(other) - self

    def __rtruediv__(self, other: Scalar) -> Dual:
        return lift(other) / self

    def __neg__(self) -> Dual:
        return Dual(-self.value, -self.slope)

    def __lt__(self, other: Scalar) -> Any:
        return scalars.less(self.value, lift(other).value)

    def __gt__(self, other: Scalar) -> Any:
        return scalars.less(lift(other).value, self.value)

    def __le__(self, other: Scalar) -> Any:
        return scalars.less_equal(self.value, lift(other).value)

    def __ge__(self, other: Scalar) -> Any:
        return scalars.less_equal(lift(other).value, self.value)

    def __abs__(self) -> Dual:
        return scalars.absolute(self)

    def exp(self) -> Dual:
        value = scalars.exp(self.value)
        return Dual(value, value * self.slope)

    def log(self) -> Dual:
        return Dual(scalars.log(self.value), scalars.divide(self.slope, self.value))

    def tanh(self) -> Dual:
        value = scalars.tanh(self.value)
        return Dual(value, (1.0 - value * value) * self.slope)

    def arctan(self) -> Dual:
        return Dual(scalars.arctan(self.value), self.slope / (1.0 + self.value * self.value))

    def sin(self) -> Dual:
        return Dual(scalars.sin(self.value), scalars.cos(self.value) * self.slope)

    def cos(self) -> Dual:
        return Dual(scalars.cos(self.value), -(scalars.sin(self.value) * self.slope))

    def sqrt(self) -> Dual:
        root = scalars.sqrt(self.value)
        return Dual(root, scalars.divide(self.slope, 2.0 * root))

    def arctan2(self, other: Scalar) -> Dual:
        y, x = lift(self), lift(other)
        slope = (x.value * y.slope - y.value * x.slope) / (x.value * x.value + y.value * y.value)
        return Dual(scalars.arctan2(y.value, x.value), slope)

    @staticmethod
    def where_parts(condition: Scalar, then: Scalar, otherwise: Scalar) -> Dual:
        a, b = lift(then), lift(otherwise)
        return Dual(scalars.where(condition, a.value, b.value), scalars.where(condition, a.slope, b.slope))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **_: Any) -> Any:
        function = _UFUNCS.get(ufunc)
        if method != "__call__" or function is None:
            return NotImplemented
        return function(*inputs)

    def __float__(self) -> float:
        raise TypeError("a function of a joint's coordinates must use qddot.scalars or NumPy, not the math module")

    def __repr__(self) -> str:
        return f"Dual({self.value!r}, {self.slope!r})"


def lift(x: Scalar) -> Dual:
    """x as a constant, unless it is a dual number already."""
    return x if isinstance(x, Dual) else Dual(x)


_UFUNCS: dict[Any, Callable[..., Any]] = {
    np.add: lambda a, b: lift(a) + b,
    np.subtract: lambda a, b: lift(a) - b,
    np.multiply: lambda a, b: lift(a) * b,
    np.divide: lambda a, b: lift(a) / b,
    np.power: scalars.power,
    np.negative: operator.neg,
    np.absolute: abs,
    np.less: lambda a, b: lift(a) < b,
    np.less_equal: lambda a, b: lift(a) <= b,
    np.greater: lambda a, b: lift(a) > b,
    np.greater_equal: lambda a, b: lift(a) >= b,
    np.sin: Dual.sin,
    np.cos: Dual.cos,
    np.sqrt: Dual.sqrt,
    np.exp: Dual.exp,
    np.log: Dual.log,
    np.tanh: Dual.tanh,
    np.arctan: Dual.arctan,
    np.arctan2: lambda a, b: Dual.arctan2(lift(a), b),
}


def value_of(x: Any) -> Any:
    """The values of dual numbers in nested tuples."""
    return tuple(value_of(y) for y in x) if isinstance(x, tuple) else (x.value if isinstance(x, Dual) else x)


def slope_of(x: Any) -> Any:
    """The slopes of dual numbers in nested tuples."""
    return tuple(slope_of(y) for y in x) if isinstance(x, tuple) else (x.slope if isinstance(x, Dual) else 0.0)
