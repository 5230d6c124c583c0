"""A scalar of `qddot.scalars` that holds a JAX array: formulas of joints run on it as they are."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from qddot.scalars import Unknown


class Number(Unknown):
    """One number of each sample of a batch."""

    __slots__ = ("value",)
    __array_ufunc__ = None  # NumPy leaves arithmetic with it to it

    def __init__(self, value: Any) -> None:
        self.value = value

    def __add__(self, other: Any) -> Number:
        return Number(self.value + value_of(other))

    def __sub__(self, other: Any) -> Number:
        return Number(self.value - value_of(other))

    def __rsub__(self, other: Any) -> Number:
        return Number(value_of(other) - self.value)

    def __mul__(self, other: Any) -> Number:
        return Number(self.value * value_of(other))

    def __truediv__(self, other: Any) -> Number:
        return Number(self.value / value_of(other))

    def __rtruediv__(self, other: Any) -> Number:
        return Number(value_of(other) / self.value)

    def __neg__(self) -> Number:
        return Number(-self.value)

    __radd__, __rmul__ = __add__, __mul__

    def __lt__(self, other: Any) -> Number:
        return Number(self.value < value_of(other))

    def __le__(self, other: Any) -> Number:
        return Number(self.value <= value_of(other))

    def __gt__(self, other: Any) -> Number:
        return Number(self.value > value_of(other))

    def __ge__(self, other: Any) -> Number:
        return Number(self.value >= value_of(other))

    def where(self, then: Any, otherwise: Any) -> Number:
        """`then` where this is true."""
        return Number(jnp.where(self.value, value_of(then), value_of(otherwise)))

    def sin(self) -> Number:
        """Sine."""
        return Number(jnp.sin(self.value))

    def cos(self) -> Number:
        """Cosine."""
        return Number(jnp.cos(self.value))

    def sqrt(self) -> Number:
        """Square root. Its slope at zero is taken as zero: formulas choose another branch there, which must not be lost."""
        inside = self.value > 0
        return Number(jnp.where(inside, jnp.sqrt(jnp.where(inside, self.value, 1.0)), self.value * 0.0))

    def exp(self) -> Number:
        """e to this power."""
        return Number(jnp.exp(self.value))

    def log(self) -> Number:
        """Natural logarithm."""
        return Number(jnp.log(self.value))

    def tanh(self) -> Number:
        """Hyperbolic tangent."""
        return Number(jnp.tanh(self.value))

    def arctan(self) -> Number:
        """Inverse tangent."""
        return Number(jnp.arctan(self.value))

    def arctan2(self, x: Any) -> Number:
        """The angle of the point (x, this)."""
        return Number(jnp.arctan2(self.value, value_of(x)))


def value_of(x: Any) -> Any:
    """The array in a number, or what is no such number."""
    return x.value if isinstance(x, Number) else x
