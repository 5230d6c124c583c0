"""Joints that share a coordinate, while an algorithm is recorded: what each brings to a result, to be added up.

In a model of one link of each kind every kind has coordinates of its own. For the real links they stand where those of the
joint are that is followed, so reading is as ever; what several joints write to one place has to be added. That is right for
a result, and for sums of such results, and for nothing else: whoever goes on to compute with a part of a sum is stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.errors import NotRollableError
from qddot.mechanism.joint_arrays import JointColumns, JointVector
from qddot.mechanism.link_classes import LinkClass
from qddot.mechanism.model import Model


class Part:
    """What one joint brings to a number that others bring to as well."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __add__(self, other: Any) -> Part:
        return Part(self.value + _part(other))

    def __sub__(self, other: Any) -> Part:
        return Part(self.value - _part(other))

    def __rsub__(self, other: Any) -> Part:
        return Part(_part(other) - self.value)

    def __neg__(self) -> Part:
        return Part(-1.0 * self.value)

    def _refused(self, *_: Any) -> Any:
        raise NotRollableError("joints share coordinates, and it computes with what all of them have to be added up for")

    __radd__ = __add__
    __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __lt__ = __gt__ = __float__ = _refused


def _part(x: Any) -> Any:
    """A part, or nothing."""
    if isinstance(x, Part):
        return x.value
    if isinstance(x, float | int) and x == 0.0:
        return 0.0
    raise NotRollableError("joints share coordinates, and it adds something to what they have to be added up for")


class PartVector(JointVector):
    """A vector over the degrees of freedom."""

    def stack(self) -> NDArray[Any]:
        return parts(super().stack())


class PartColumns(JointColumns):
    """Six rows by the degrees of freedom."""

    def stack(self, rows: Sequence[int] = range(6)) -> NDArray[Any]:
        return parts(super().stack(rows))


def parts(x: NDArray[Any]) -> NDArray[Any]:
    out = np.empty(x.shape, dtype=object)
    out.reshape(-1)[:] = [Part(number) for number in x.reshape(-1)]
    return out


def numbers_of(result: NDArray[Any], has_dof: bool) -> NDArray[Any]:
    """A result's numbers, if they are parts where they have to be added up, and no parts where not."""
    for x in result.reshape(-1):
        if has_dof:
            _part(x)
        elif isinstance(x, Part):
            x._refused()
    return np.array([x.value if isinstance(x, Part) else x for x in result.reshape(-1)], dtype=object).reshape(result.shape)


def factors_and_offsets(model: Model, kinds: Sequence[LinkClass], column: Any) -> list[tuple[Any, Any] | None]:
    """How the joints of each kind follow others: columns over its links; None for those that do not."""
    found: list[tuple[Any, Any] | None] = []
    for kind in kinds:
        mimics = [m for i in kind.links if (m := model.mimic[i]) is not None]
        numbers = np.array([(m.factor, m.offset) for m in mimics]).T
        found.append((column(numbers[0]), column(numbers[1])) if mimics else None)
    return found
