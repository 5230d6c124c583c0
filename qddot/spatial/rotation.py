"""Three-vectors, 3×3 blocks and rotations: what `spatial` is built from.

Vectors are tuples of scalars and matrices tuples of rows, so that any kind of scalar can stand in them. A rotation
about a coordinate axis is a type of its own that knows its zeros. Kim 2012, section 1.1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.scalars import Scalar, arctan2, cos, less, sin, sqrt, where

Vec = tuple[Scalar, Scalar, Scalar]
Mat = tuple[Vec, Vec, Vec]

ZERO: Vec = (0.0, 0.0, 0.0)
EYE: Mat = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


def add(a: Vec, b: Vec) -> Vec:
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2])


def sub(a: Vec, b: Vec) -> Vec:
    return (a[0] - b[0], a[1] - b[1], a[2] - b[2])


def scale(k: Scalar, a: Vec) -> Vec:
    return (k * a[0], k * a[1], k * a[2])


def dot(a: Vec, b: Vec) -> Scalar:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def unit(a: Vec) -> Vec:
    """Of length one. Plain sums: the library behind `np.linalg.norm` rounds differently from machine to machine."""
    n = sqrt(dot(a, a))
    return (a[0] / n, a[1] / n, a[2] / n)


def cross(a: Vec, b: Vec) -> Vec:
    return (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])


def mat_vec(A: Mat, x: Vec) -> Vec:
    return (dot(A[0], x), dot(A[1], x), dot(A[2], x))


def transpose(A: Mat) -> Mat:
    return ((A[0][0], A[1][0], A[2][0]), (A[0][1], A[1][1], A[2][1]), (A[0][2], A[1][2], A[2][2]))


def mat_mat(A: Mat, B: Mat) -> Mat:
    return transpose(columns_map(lambda x: mat_vec(A, x), B))


def columns_map(function: Callable[[Vec], Vec], B: Mat) -> Mat:
    """The images of B's columns, as rows."""
    x, y, z = transpose(B)
    return (function(x), function(y), function(z))


def mat_add(A: Mat, B: Mat) -> Mat:
    return (add(A[0], B[0]), add(A[1], B[1]), add(A[2], B[2]))


def mat_sub(A: Mat, B: Mat) -> Mat:
    return (sub(A[0], B[0]), sub(A[1], B[1]), sub(A[2], B[2]))


def outer(a: Vec, b: Vec) -> Mat:
    return (scale(a[0], b), scale(a[1], b), scale(a[2], b))


def skew(a: Vec) -> Mat:
    """[a], with [a] b = a × b: Kim (5)."""
    return ((0.0, -a[2], a[1]), (a[2], 0.0, -a[0]), (-a[1], a[0], 0.0))


def symmetric(A: Mat) -> Mat:
    """A with its lower triangle read off its upper one, so that a trace does not compute both."""
    return (A[0], (A[0][1], A[1][1], A[1][2]), (A[0][2], A[1][2], A[2][2]))


# ---- rotations -----------------------------------------------------------------------------------------------------


class Rotation:
    """A dense rotation matrix, Kim (1) (2)."""

    __slots__ = ("rows",)

    def __init__(self, rows: Mat) -> None:
        self.rows = rows

    def __matmul__(self, x: Vec) -> Vec:
        return mat_vec(self.rows, x)

    @property
    def T(self) -> Rotation:
        return Rotation(transpose(self.rows))

    def similar(self, A: Mat) -> Mat:
        """R A Rᵀ: the columns turned, then the rows."""
        return columns_map(self.__matmul__, columns_map(self.__matmul__, A))

    def similar_symmetric(self, A: Mat) -> Mat:
        """R A Rᵀ of a symmetric A."""
        return symmetric(self.similar(A))


class AxisRotation(Rotation):
    """A rotation about one coordinate axis, by its cosine and sine: four products a vector instead of nine."""

    __slots__ = ("axis", "c", "s")

    def __init__(self, axis: int, c: Scalar, s: Scalar) -> None:
        self.axis, self.c, self.s = axis, c, s

    @property
    def rows(self) -> Mat:  # type: ignore[override]
        return transpose((self @ EYE[0], self @ EYE[1], self @ EYE[2]))

    def __matmul__(self, x: Vec) -> Vec:
        k, a, b = self.axis, (self.axis + 1) % 3, (self.axis + 2) % 3
        out = [x[k], x[k], x[k]]
        out[a] = self.c * x[a] - self.s * x[b]
        out[b] = self.s * x[a] + self.c * x[b]
        return (out[0], out[1], out[2])

    @property
    def T(self) -> AxisRotation:
        return AxisRotation(self.axis, self.c, -self.s)

    def similar(self, A: Mat) -> Mat:
        """R A Rᵀ: in the plane of rotation by the angle's sum rules, 12 products instead of 24."""
        k, a, b = self.axis, (self.axis + 1) % 3, (self.axis + 2) % 3
        turned = self.s * (A[a][a] - A[b][b]) + self.c * (A[a][b] + A[b][a])
        part, mixed = self.s * turned, self.c * turned
        rows = [[A[k][k]] * 3 for _ in range(3)]
        rows[a][a], rows[b][b] = A[a][a] - part, A[b][b] + part
        rows[a][b], rows[b][a] = mixed - A[b][a], mixed - A[a][b]
        rows[k][a], rows[k][b] = self.c * A[k][a] - self.s * A[k][b], self.s * A[k][a] + self.c * A[k][b]
        rows[a][k], rows[b][k] = self.c * A[a][k] - self.s * A[b][k], self.s * A[a][k] + self.c * A[b][k]
        x, y, z = (tuple(row) for row in rows)
        return (x, y, z)


IDENTITY = Rotation(EYE)


def constant_rotation(rows: Mat) -> Rotation:
    """A rotation of plain numbers that knows its zeros."""
    if rows == EYE:
        return IDENTITY
    for k, unit in enumerate(EYE):
        a, b = (k + 1) % 3, (k + 2) % 3
        if rows[k] == unit and rows[a][k] == 0.0 and rows[b][k] == 0.0:
            return AxisRotation(k, rows[a][a], rows[b][a])
    return Rotation(rows)


def z_to(axis: Vec) -> Rotation:
    """A rotation that takes z to a constant unit axis: for ±x, ±y, ±z one of quarter turns."""
    k = max(range(3), key=lambda j: abs(axis[j]))
    other = EYE[2] if k == 1 else EYE[1] if k == 0 else EYE[0]
    x = sub(other, scale(dot(other, axis), axis))
    x = scale(1.0 / sqrt(dot(x, x)), x)
    return constant_rotation(transpose((x, cross(axis, x), axis)))


def plane_basis(normal: Vec) -> tuple[Vec, Vec]:
    """Unit vectors x and y of the plane: for the normals x, y and z the coordinate axes that follow in turn."""
    k = max(range(3), key=lambda j: abs(normal[j]))
    other = EYE[(k + 1) % 3]
    x = sub(other, scale(dot(other, normal), normal))
    x = scale(1.0 / sqrt(dot(x, x)), x)
    return x, cross(normal, x)


def axis_angle(axis: Vec, angle: Scalar) -> Rotation:
    """The rotation about a constant unit axis; about ±x, ±y, ±z one that knows its zeros."""
    c, s = cos(angle), sin(angle)
    for k, unit in enumerate(EYE if all(isinstance(x, float) for x in axis) else ()):
        if axis == unit:
            return AxisRotation(k, c, s)
        if axis == tuple(-u for u in unit):
            return AxisRotation(k, c, -s)
    return Rotation(mat_add(mat_add(outer(scale(1.0 - c, axis), axis), skew(scale(s, axis))), scaled_eye(c)))


def scaled_eye(k: Scalar) -> Mat:
    return ((k, 0.0, 0.0), (0.0, k, 0.0), (0.0, 0.0, k))


def quaternion_rotation(x: Scalar, y: Scalar, z: Scalar, w: Scalar) -> Rotation:
    """The rotation of a unit quaternion, scalar last."""
    x2, y2, z2 = 2.0 * x, 2.0 * y, 2.0 * z
    xx, yy, zz, xy, xz, yz = x * x2, y * y2, z * z2, x * y2, x * z2, y * z2
    wx, wy, wz = w * x2, w * y2, w * z2
    return Rotation(
        ((1.0 - (yy + zz), xy - wz, xz + wy), (xy + wz, 1.0 - (xx + zz), yz - wx), (xz - wy, yz + wx, 1.0 - (xx + yy)))
    )


def rotation_quaternion(R: Rotation) -> tuple[Scalar, Scalar, Scalar, Scalar]:
    """The unit quaternion (x, y, z, w) of a rotation, by the largest of its four squares so that nothing cancels."""
    (a, b, c), (d, e, f), (g, h, i) = R.rows
    squares = (1.0 + a - e - i, 1.0 - a + e - i, 1.0 - a - e + i, 1.0 + a + e + i)
    rows = (
        (squares[0], b + d, c + g, h - f),
        (b + d, squares[1], f + h, c - g),
        (c + g, f + h, squares[2], d - b),
        (h - f, c - g, d - b, squares[3]),
    )
    best, largest = rows[0], squares[0]
    for square, row in zip(squares[1:], rows[1:], strict=True):
        smaller = less(largest, square)
        best = tuple(where(smaller, new, old) for new, old in zip(row, best, strict=True))
        largest = where(smaller, square, largest)
    norm = sqrt(best[0] * best[0] + best[1] * best[1] + best[2] * best[2] + best[3] * best[3])
    return (best[0] / norm, best[1] / norm, best[2] / norm, best[3] / norm)


# ---- exponential and logarithm -------------------------------------------------------------------------------------

_SERIES_BELOW = 1.0  # in the square of the angle; above it the closed forms lose at most five bits


def exp_coefficients(x: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """(sin θ/θ, (1 - cos θ)/θ², (θ - sin θ)/θ³) of x = θ², smooth through zero."""
    small = less(x, _SERIES_BELOW)
    y = where(small, 1.0, x)
    t = sqrt(y)
    s, c = sin(t), cos(t)
    series = (1.0, 0.5, 1.0 / 6.0)
    out = []
    for k, closed in enumerate((s / t, (1.0 - c) / y, (t - s) / (t * y))):
        total, term = series[k], series[k]
        for n in range(1, 11):
            term = term * x * (-1.0 / ((2 * n + k) * (2 * n + k + 1)))
            total = total + term
        out.append(where(small, total, closed))
    return out[0], out[1], out[2]


def exp_derivatives(x: Scalar) -> tuple[Scalar, Scalar]:
    """The derivatives of the last two `exp_coefficients` by x = θ²."""
    small = less(x, _SERIES_BELOW)
    y = where(small, 1.0, x)
    a, b, c = exp_coefficients(y)
    out = []
    for k, closed in ((1, (a - 2.0 * b) / (2.0 * y)), (2, (b - 3.0 * c) / (2.0 * y))):
        total, term = 0.0, 1.0 / (1.0, 2.0, 6.0)[k]
        for n in range(1, 12):
            term = term * (-1.0 / ((2 * n + k) * (2 * n + k + 1))) * (x if n > 1 else 1.0)
            total = total + n * term
        out.append(where(small, total, closed))
    return out[0], out[1]


def exp_rotation(r: Vec) -> Rotation:
    """exp([r]) ∈ SO(3): the rotation about r by its length."""
    a, b, _ = exp_coefficients(dot(r, r))
    return Rotation(mat_add(scaled_eye(1.0 - b * dot(r, r)), mat_add(skew(scale(a, r)), outer(scale(b, r), r))))


def log_quaternion(x: Scalar, y: Scalar, z: Scalar, w: Scalar) -> Vec:
    """The rotation vector of a unit quaternion, the shorter way round."""
    sign = where(less(w, 0.0), -1.0, 1.0)
    u = (sign * x, sign * y, sign * z)
    square, w = dot(u, u), sign * w
    small = less(square, 1e-8)
    n = sqrt(where(small, 1.0, square))
    # for small angles 2 asin(n)/n = 2 + n²/3 + 3n⁴/20 + ...
    return scale(where(small, 2.0 + square * (1.0 / 3.0 + 0.15 * square), 2.0 * arctan2(n, w) / n), u)


def log_rotation(R: Rotation) -> Vec:
    """The inverse of `exp_rotation`, of length at most π."""
    return log_quaternion(*rotation_quaternion(R))


# ---- quaternions, scalar last --------------------------------------------------------------------------------------

Quaternion = tuple[Scalar, Scalar, Scalar, Scalar]


def quaternion_product(a: Quaternion, b: Quaternion) -> Quaternion:
    """The quaternion of R_a R_b."""
    u, v = (a[0], a[1], a[2]), (b[0], b[1], b[2])
    x, y, z = add(cross(u, v), add(scale(a[3], v), scale(b[3], u)))
    return (x, y, z, a[3] * b[3] - dot(u, v))


def quaternion_conjugate(a: Quaternion) -> Quaternion:
    return (-a[0], -a[1], -a[2], a[3])


def quaternion_unit(a: Quaternion) -> Quaternion:
    n = 1.0 / sqrt(a[0] * a[0] + a[1] * a[1] + a[2] * a[2] + a[3] * a[3])
    return (n * a[0], n * a[1], n * a[2], n * a[3])


def quaternion_exp(r: Vec) -> Quaternion:
    """The quaternion of `exp_rotation(r)`."""
    x = 0.25 * dot(r, r)
    a, b, _ = exp_coefficients(x)
    u = scale(0.5 * a, r)
    return (u[0], u[1], u[2], 1.0 - b * x)


def quaternions_of(R: NDArray[Any]) -> NDArray[Any]:
    """(w, x, y, z) of rotation matrices, (..., 3, 3) -> (..., 4): the largest of the four is divided by."""
    m = R.reshape(-1, 3, 3)
    xx, yy, zz = m[:, 0, 0], m[:, 1, 1], m[:, 2, 2]
    squares = np.stack([1 + xx + yy + zz, 1 + xx - yy - zz, 1 - xx + yy - zz, 1 - xx - yy + zz], -1)
    wx, wy, wz = m[:, 2, 1] - m[:, 1, 2], m[:, 0, 2] - m[:, 2, 0], m[:, 1, 0] - m[:, 0, 1]
    xy, xz, yz = m[:, 0, 1] + m[:, 1, 0], m[:, 0, 2] + m[:, 2, 0], m[:, 1, 2] + m[:, 2, 1]
    products = np.stack(  # 4 q qᵀ
        [
            np.stack([squares[:, 0], wx, wy, wz], -1),
            np.stack([wx, squares[:, 1], xy, xz], -1),
            np.stack([wy, xy, squares[:, 2], yz], -1),
            np.stack([wz, xz, yz, squares[:, 3]], -1),
        ],
        -2,
    )
    row = products[np.arange(len(m)), np.argmax(squares, -1)]
    row = row / np.linalg.norm(row, axis=-1, keepdims=True)
    return np.asarray(np.where(row[:, :1] < 0.0, -row, row).reshape(*R.shape[:-2], 4))


def as_vec(x: Sequence[Scalar]) -> Vec:
    return (x[0], x[1], x[2])


def as_quaternion(x: Sequence[Scalar]) -> Quaternion:
    return (x[0], x[1], x[2], x[3])


def random_axis(rng: np.random.Generator) -> Vec:
    """Any direction; a third of the time a coordinate axis, which has code of its own."""
    along = rng.random() < 1 / 3
    axis = np.eye(3)[rng.integers(3)] * rng.choice((-1.0, 1.0)) if along else rng.standard_normal(3)
    return unit(as_vec(axis.tolist()))
