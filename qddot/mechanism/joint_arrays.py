"""Where joint-space quantities are read from and written to, so that algorithms can say `v[i]` and `tau[i] = …`.

A mimic joint has no coordinate of its own: q_m = k q + o. Reading its velocity gives k times the velocity it follows,
and what is written for it is added, k-fold, to the coordinate it follows. That is the exact reduction τ = Gᵀτ_tree,
M = GᵀM_tree G, and no algorithm needs to know of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from qddot.scalars import Scalar, mark, split, stack
from qddot.spatial.joint_blocks import Matrix, Motions, Vector


class Slot(NamedTuple):
    """The coordinates of one joint: where they stand in q and v, and for a mimic joint the factor and the offset."""

    q: slice
    v: slice
    factor: float | None = None
    offset: float = 0.0

    def read_q(self, q: Sequence[Scalar]) -> Vector:
        own = Vector(q[self.q])
        return own if self.factor is None else Vector(self.factor * x + self.offset for x in own)

    def read_v(self, v: Sequence[Scalar]) -> Vector:
        own = Vector(v[self.v])
        return own if self.factor is None else self.factor * own


class Coordinates:
    """q, joint by joint."""

    def __init__(self, slots: Sequence[Slot], q: Any) -> None:
        self.slots, self._q = slots, split(q)

    def __getitem__(self, i: int) -> Vector:
        return self.slots[i].read_q(self._q)


class Velocities:
    """A velocity or acceleration, joint by joint."""

    def __init__(self, slots: Sequence[Slot], v: Any) -> None:
        self.slots, self._v = slots, split(v)

    def __getitem__(self, i: int) -> Vector:
        return self.slots[i].read_v(self._v)


class JointVector:
    """A vector over the degrees of freedom, written joint by joint: what shares a coordinate is added."""

    def __init__(self, slots: Sequence[Slot], nv: int, symbol: str) -> None:
        self.slots, self.symbol = slots, symbol
        self._values: list[Scalar] = [0.0] * nv

    def __setitem__(self, i: int, value: Vector) -> None:
        slot = self.slots[i]
        for k, x in zip(range(slot.v.start, slot.v.stop), value, strict=True):
            self._values[k] = _plus(self._values[k], x if slot.factor is None else slot.factor * x)
        mark(value, self.symbol, i)

    def stack(self) -> NDArray[Any]:
        return stack(self._values)


class JointMatrix:
    """A matrix with a row for each degree of freedom, written block by block (rows of joint i, columns of joint j)
    or by columns.

    A link has as many columns as its joint has degrees of freedom, or `a_link`.
    """

    def __init__(self, slots: Sequence[Slot], nv: int, symbol: str, a_link: int | None = None) -> None:
        self.slots, self.nv, self.symbol, self.columns_per_link = slots, nv, symbol, a_link
        self._values: dict[tuple[int, int], Scalar] = {}

    def __setitem__(self, ij: tuple[int, int], block: Matrix) -> None:
        i, j = ij
        for c in range(len(block[0]) if len(block) else 0):
            self.column(j, c)[i] = Vector(row[c] for row in block)

    def column(self, i: int, k: int) -> JointLine:
        """The k-th column of link i, to be written joint by joint."""
        return JointLine(self, i, k, False)

    def row(self, i: int, k: int) -> JointLine:
        """The row of degree of freedom k of joint i, the same way."""
        return JointLine(self, i, k, True)

    def _add(self, j: int, i: int, k: int, values: Vector, turned: bool) -> None:
        a, b = self.slots[j], self.slots[i]
        c, of_link = (
            (b.v.start + k, b.factor) if self.columns_per_link is None else (self.columns_per_link * (i - 1) + k, None)
        )
        factor = (1.0 if a.factor is None else a.factor) * (1.0 if of_link is None else of_link)
        plain = a.factor is None and of_link is None
        for r, x in enumerate(values, a.v.start):
            place = (c, r) if turned else (r, c)
            self._values[place] = _plus(self._values.get(place, 0.0), x if plain else factor * x)
        mark(values, self.symbol, j)

    def stack(self) -> NDArray[Any]:
        n = self.nv
        columns = n if self.columns_per_link is None else self.columns_per_link * (len(self.slots) - 1)
        return stack([self._values.get((r, c), 0.0) for r in range(n) for c in range(columns)], (n, columns))


class JointLine:
    """A column or a row of a matrix over the degrees of freedom: what shares a coordinate is added."""

    def __init__(self, matrix: JointMatrix, i: int, k: int, turned: bool) -> None:
        self._matrix, self._i, self._k, self._turned = matrix, i, k, turned

    def __setitem__(self, j: int, values: Vector) -> None:
        self._matrix._add(j, self._i, self._k, values, self._turned)


class JointColumns:
    """Six rows by the degrees of freedom: Jacobians and momentum matrices, written joint by joint."""

    def __init__(self, slots: Sequence[Slot], nv: int, symbol: str) -> None:
        self.slots, self.symbol = slots, symbol
        self._columns: list[tuple[Scalar, ...]] = [(0.0,) * 6] * nv

    def __setitem__(self, i: int, columns: Motions | Sequence[Any]) -> None:
        slot = self.slots[i]
        for k, column in enumerate(columns, slot.v.start):
            own = column if slot.factor is None else slot.factor * column
            self._columns[k] = tuple(_plus(x, y) for x, y in zip(self._columns[k], own.components, strict=True))
        mark(tuple(columns), self.symbol, i)

    def stack(self, rows: Sequence[int] = range(6)) -> NDArray[Any]:
        n = len(self._columns)
        return stack([self._columns[c][r] for r in rows for c in range(n)], (len(rows), n))


class PerLink(list[Any]):
    """One quantity of each link, the world's included."""

    def __init__(self, count: int, symbol: str) -> None:
        super().__init__([None] * count)
        self.symbol = symbol

    def __setitem__(self, i: Any, value: Any) -> None:
        super().__setitem__(i, value)
        mark(value, self.symbol, i)


class Total:
    """Sums over all links."""

    def __init__(self, count: int) -> None:
        self._sum: list[Scalar] = [0.0] * count

    def add(self, *numbers: Scalar) -> None:
        self._sum = [x + y for x, y in zip(self._sum, numbers, strict=True)]

    @property
    def sums(self) -> tuple[Scalar, ...]:
        return tuple(self._sum)


def _plus(old: Scalar, new: Scalar) -> Scalar:
    return new if isinstance(old, float) and old == 0.0 else old + new
