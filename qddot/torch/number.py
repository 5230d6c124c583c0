"""A scalar of `qddot.scalars` that holds a tensor: formulas of joints run on it as they are."""

from __future__ import annotations

from typing import Any

import torch

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
        then, otherwise = value_of(then), value_of(otherwise)
        like = next((x for x in (then, otherwise) if isinstance(x, torch.Tensor)), None)
        if like is not None:  # a plain number would be of PyTorch's default type
            then, otherwise = (torch.as_tensor(x, dtype=like.dtype, device=like.device) for x in (then, otherwise))
        return Number(torch.where(self.value, then, otherwise))

    def sin(self) -> Number:
        """Sine."""
        return Number(torch.sin(self.value))

    def cos(self) -> Number:
        """Cosine."""
        return Number(torch.cos(self.value))

    def sqrt(self) -> Number:
        """Square root. Its slope at zero is taken as zero: formulas choose another branch there, which must not be lost."""
        inside = self.value > 0
        return Number(torch.where(inside, torch.where(inside, self.value, 1.0).sqrt(), self.value * 0.0))

    def exp(self) -> Number:
        """e to the power of it."""
        return Number(torch.exp(self.value))

    def log(self) -> Number:
        """Natural logarithm."""
        return Number(torch.log(self.value))

    def tanh(self) -> Number:
        """Hyperbolic tangent."""
        return Number(torch.tanh(self.value))

    def arctan(self) -> Number:
        """Arc tangent."""
        return Number(torch.arctan(self.value))

    def arctan2(self, x: Any) -> Number:
        """The angle of the point (x, this)."""
        return Number(torch.arctan2(self.value, torch.as_tensor(value_of(x)).to(self.value)))


def value_of(x: Any) -> Any:
    """A number's tensor; a plain number as it is."""
    return x.value if isinstance(x, Number) else x
