"""Joint-space blocks: the d degrees of freedom of one joint, and the 6×d maps between them and spatial vectors.

| code          | paper                                              |
|---------------|----------------------------------------------------|
| `Vector`      | q̇_i, τ_i: d numbers                                |
| `Matrix`      | SᵀÎS, Ψ_i, M_ij: rows of numbers                   |
| `Motions`     | S_i (Kim), h_i (Featherstone & Orin): d columns in se(3) |
| `Forces`      | Î_i S_i: d columns in dse(3)                       |
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import add

from qddot.scalars import Scalar, has_digits, less, pivot, sqrt, total, where
from qddot.spatial import (
    Ad,
    Ad_inv,
    Ad_inv_T,
    ArticulatedInertia,
    Force,
    Inertia,
    Motion,
    Transform,
    ad,
    force,
    zero_force,
    zero_motion,
)
from qddot.spatial.rotation import Mat, mat_sub, outer, symmetric

_POSITIVE = 1e-37  # more than the least number of either type


class Vector(tuple[Scalar, ...]):
    """The components of one joint's velocity, acceleration or force, with arithmetic."""

    __slots__ = ()
    __array_ufunc__ = None

    def __add__(self, other: Sequence[Scalar]) -> Vector:
        return Vector(x + y for x, y in zip(self, other, strict=True))

    def __sub__(self, other: Sequence[Scalar]) -> Vector:
        return Vector(x - y for x, y in zip(self, other, strict=True))

    def __rmul__(self, k: Scalar) -> Vector:
        return Vector(k * x for x in self)

    def times(self, other: Sequence[Scalar]) -> Vector:
        """Component by component: what a diagonal matrix does."""
        return Vector(x * y for x, y in zip(self, other, strict=True))

    def dot(self, other: Sequence[Scalar]) -> Scalar:
        return reduce(add, (x * y for x, y in zip(self, other, strict=True)), 0.0)

    def only(self, k: int) -> Vector:
        """Component k, and zeros: a column of a diagonal matrix."""
        return Vector(x if j == k else 0.0 for j, x in enumerate(self))


class Matrix(tuple[Vector, ...]):
    """A small matrix by rows."""

    __slots__ = ()

    @property
    def T(self) -> Matrix:
        return Matrix(Vector(column) for column in zip(*self, strict=True))

    def __matmul__(self, x: Sequence[Scalar]) -> Vector:
        return Vector(row.dot(x) for row in self)

    def __add__(self, other: Matrix) -> Matrix:  # type: ignore[override]
        return Matrix(a + b for a, b in zip(self, other, strict=True))

    def add_diagonal(self, d: Sequence[Scalar]) -> Matrix:
        return Matrix(Vector(x + d[r] if r == c else x for c, x in enumerate(row)) for r, row in enumerate(self))

    def inverse(self, floor: Sequence[Scalar] = ()) -> Inverse:
        """Of a symmetric positive definite matrix, its pivots above a floor or NaN."""
        return Inverse(self, floor)

    def inverse_or_nan(self) -> Inverse:
        """Of a symmetric positive matrix that may be singular, and is NaN then.

        A_kk (A⁻¹)_kk is 1 where row k is orthogonal to the others, in the metric of A, and infinite where it depends on
        them: whatever the order and the units of the rows, its reciprocal is what elimination leaves of the row.
        """
        found = Inverse(self, [_POSITIVE] * len(self))
        sound = has_digits(total(row[k] * x for k, (row, x) in enumerate(zip(self, found.diagonal(), strict=True))))
        found.reciprocal = [where(sound, x, math.nan) for x in found.reciprocal]
        return found


class Inverse:
    """The inverse of a symmetric positive definite matrix, ready to be applied: A = L D Lᵀ without pivoting, so that
    nothing branches on a value.
    """

    __slots__ = ("lower", "reciprocal")

    def __init__(self, A: Matrix, floor: Sequence[Scalar] = ()) -> None:
        rows, n = [list(row) for row in A], len(A)
        self.lower: list[list[Scalar]] = [[0.0] * n for _ in A]
        self.reciprocal: list[Scalar] = []
        for k in range(n):
            self.reciprocal.append(1.0 / (pivot(rows[k][k], floor[k]) if floor else rows[k][k]))
            for r in range(k + 1, n):
                self.lower[r][k] = rows[r][k] * self.reciprocal[k]
                for c in range(k + 1, r + 1):
                    rows[r][c] = rows[r][c] - self.lower[r][k] * rows[c][k]

    def __matmul__(self, b: Sequence[Scalar]) -> Vector:
        x, n = self._inward(b), len(self.reciprocal)
        for k in reversed(range(n)):
            x[k] = x[k] * self.reciprocal[k]
            for r in range(k + 1, n):
                x[k] = x[k] - self.lower[r][k] * x[r]
        return Vector(x)

    def _inward(self, b: Sequence[Scalar]) -> list[Scalar]:
        """L⁻¹ b."""
        x, n = list(b), len(self.reciprocal)
        for k in range(n):
            for r in range(k + 1, n):
                x[r] = x[r] - self.lower[r][k] * x[k]
        return x

    def diagonal(self) -> Vector:
        """The diagonal entries of A⁻¹."""
        n = len(self.reciprocal)
        columns = [self._inward([float(r == k) for r in range(n)]) for k in range(n)]
        return Vector(
            total(x * x * d for x, d in zip(c[k:], self.reciprocal[k:], strict=True)) for k, c in enumerate(columns)
        )


class Motions(tuple[Motion, ...]):
    """Columns in se(3): a joint's S."""

    __slots__ = ()

    def __matmul__(self, x: Sequence[Scalar]) -> Motion:
        return sum_motions(k * column for k, column in zip(x, self, strict=True))

    @property
    def T(self) -> _Rows:
        return _Rows(self)


class _Rows:
    """Sᵀ: acts on a force, giving a Vector, and on columns of forces, giving a Matrix."""

    __slots__ = ("columns",)

    def __init__(self, columns: Motions) -> None:
        self.columns = columns

    def __matmul__(self, F: Force) -> Vector:
        return Vector(s.dot(F) for s in self.columns)

    def on(self, U: Forces) -> Matrix:
        return Matrix(Vector(s.dot(F) for F in U) for s in self.columns)


class Forces(tuple[Force, ...]):
    """Columns in dse(3)."""

    __slots__ = ()

    def __matmul__(self, x: Sequence[Scalar]) -> Force:
        return sum_forces(k * column for k, column in zip(x, self, strict=True))

    def __add__(self, other: Forces) -> Forces:  # type: ignore[override]
        return Forces(a + b for a, b in zip(self, other, strict=True))

    def __sub__(self, other: Forces) -> Forces:
        return Forces(a - b for a, b in zip(self, other, strict=True))

    def dot(self, V: Motion) -> Vector:
        """Uᵀ V."""
        return Vector(V.dot(F) for F in self)

    def times(self, Psi: Inverse) -> Forces:
        """U Ψ, row by row."""
        rows = zip(*(F.components for F in self), strict=True)
        return Forces(force(column) for column in zip(*(Psi @ row for row in rows), strict=True))


def sum_motions(terms: Iterable[Motion]) -> Motion:
    terms = list(terms)
    return reduce(add, terms) if terms else zero_motion()


def sum_forces(terms: Iterable[Force]) -> Force:
    terms = list(terms)
    return reduce(add, terms) if terms else zero_force()


def apply(G: Inertia | ArticulatedInertia, S: Motions) -> Forces:
    """𝓘 S, column by column."""
    return Forces(G @ s for s in S)


def Ad_columns(T: Transform, S: Motions) -> Motions:
    return Motions(Ad(T, s) for s in S)


def Ad_inv_columns(T: Transform, S: Motions) -> Motions:
    return Motions(Ad_inv(T, s) for s in S)


def Ad_inv_T_columns(T: Transform, U: Forces) -> Forces:
    return Forces(Ad_inv_T(T, F) for F in U)


def ad_columns(V: Motion, S: Motions) -> Motions:
    return Motions(ad(V, s) for s in S)


def eliminate_joint(G: ArticulatedInertia, U: Forces, Psi: Inverse) -> ArticulatedInertia:
    """𝓘̂ - U Ψ Uᵀ: what is left when the joint is free to yield. Kim Table 3, Π_i."""
    I, H, M = G
    for F, W in zip(U, U.times(Psi), strict=True):
        I, H, M = _drop(I, F.m, W.m), _drop(H, F.m, W.f), _drop(M, F.f, W.f)
    return ArticulatedInertia(symmetric(I), H, symmetric(M))


def _drop(A: Mat, a: tuple[Scalar, ...], b: tuple[Scalar, ...]) -> Mat:
    return mat_sub(A, outer(a, b))


def as_forces(S: Motions) -> Forces:
    """The same numbers as columns in dse(3): what pairs with a motion as the Euclidean product of six numbers does."""
    return Forces(Force(s.w, s.v) for s in S)


def as_motions(U: Forces) -> Motions:
    return Motions(Motion(F.m, F.f) for F in U)


def complement(S: Motions) -> Forces:
    """6 - d orthonormal columns with SᵀT = 0: the forces that a joint bears by itself. By Householder's reflections,
    whose signs are chosen without a branch, so that S may be anything.
    """
    columns: list[Sequence[Scalar]] = [s.components for s in S]
    n = 6
    mirrors: list[list[Scalar]] = []
    for k in range(len(columns)):
        x = list(columns[k][k:])
        length = sqrt(reduce(add, (y * y for y in x)))
        x[0] = x[0] + where(less(x[0], 0.0), -1.0, 1.0) * length
        scale = 2.0 / reduce(add, (y * y for y in x))
        mirrors.append([0.0] * k + [sqrt(scale) * y for y in x])
        columns = [_mirrored(mirrors[k], c) for c in columns]
    units: list[Sequence[Scalar]] = [[1.0 if r == c else 0.0 for r in range(n)] for c in range(len(columns), n)]
    return Forces(force(reduce(lambda u, m: _mirrored(m, u), reversed(mirrors), u)) for u in units)


def _mirrored(m: Sequence[Scalar], x: Sequence[Scalar]) -> Sequence[Scalar]:
    along = reduce(add, (a * b for a, b in zip(m, x, strict=True)))
    return [b - along * a for a, b in zip(m, x, strict=True)]
