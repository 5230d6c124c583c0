"""Numbers of 120 digits that know how well their data are known.

Rewriting a model adds an inertia of 1e16 kg m² to one of 0.1 and subtracts it again, so it is done with 120 digits and
rounded once, at the end. Whether a number is zero up to the rounding of the data is a different question, and `bound`
answers it: every operation adds up what its operands leave uncertain, to first order.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal
from typing import Any

_EXACT = Context(prec=120, Emin=-99_999, Emax=99_999, traps=[])


class Precise:
    """A scalar of 120 digits, with a bound on what the rounding of the data can have done to it.

    `near` is the same number as a float, for bounds: a Decimal takes long to become one.
    """

    __slots__ = ("bound", "near", "value")
    __array_ufunc__ = None

    def __init__(self, value: Decimal, bound: float = 0.0, near: float | None = None) -> None:
        self.value, self.bound = value, bound
        self.near = float(value) if near is None else near

    @property
    def is_rounding(self) -> bool:
        """Whether it may be zero, for all that is known of the data."""
        return abs(self.near) <= self.bound

    @property
    def is_nothing(self) -> bool:
        """Whether it is zero and known to be: nine in ten operations on a model have such an operand."""
        return not (self.near or self.bound or self.value)

    def __add__(self, x: Any) -> Any:
        y = precise(x)
        if y.is_nothing:
            return self
        if self.is_nothing:
            return y
        near = self.near + y.near
        cancels = not abs(near) > 0.01 * abs(y.near)
        return Precise(_EXACT.add(self.value, y.value), self.bound + y.bound, None if cancels else near)

    __radd__ = __add__

    def __sub__(self, x: Any) -> Any:
        return self + -precise(x)

    def __rsub__(self, x: Any) -> Any:
        return precise(x) + -self

    def __mul__(self, x: Any) -> Any:
        y = precise(x)
        if y.is_nothing or self.is_nothing:
            return NOTHING
        bound = abs(self.near) * y.bound + abs(y.near) * self.bound
        return Precise(_EXACT.multiply(self.value, y.value), bound, self.near * y.near)

    __rmul__ = __mul__

    def __truediv__(self, x: Any) -> Any:
        y = precise(x)
        ratio = _EXACT.divide(self.value, y.value)
        size = abs(y.near) or math.ulp(0.0)
        return Precise(ratio, (self.bound + abs(self.near / size) * y.bound) / size, self.near / y.near if y.near else None)

    def __rtruediv__(self, x: Any) -> Any:
        return precise(x) / self

    def __neg__(self) -> Any:
        return Precise(_EXACT.minus(self.value), self.bound, -self.near)

    def __abs__(self) -> Any:
        return -self if self.near < 0.0 else self

    def sqrt(self) -> Any:
        root = _EXACT.sqrt(self.value)
        near = float(root)
        return Precise(root, 0.5 * self.bound / near if near else math.sqrt(self.bound), near)

    def __float__(self) -> float:
        return float(self.value)

    def __eq__(self, x: object) -> bool:
        return isinstance(x, Precise | float | int) and self.value == precise(x).value

    def __lt__(self, x: Any) -> bool:
        return self.value < precise(x).value

    def __gt__(self, x: Any) -> bool:
        return self.value > precise(x).value

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{float(self)!r} ± {self.bound:.1g}>"


NOTHING = Precise(Decimal(0), 0.0, 0.0)


def precise(x: Any) -> Precise:
    """Numbers of formulas, such as 0.5, are exact."""
    if isinstance(x, float) and x == 0.0:
        return NOTHING
    return x if isinstance(x, Precise) else Precise(Decimal(float(x)), 0.0, float(x))
