"""SE(3), se(3) and dse(3): rigid motions, velocities, forces and inertias, in block form.

Kim 2012, section 1. Spatial vectors are angular first. `T_AB` maps B coordinates into A. Nothing here is a 6×6 matrix:
a transform is (R, p), an inertia is a mass, a first moment and a symmetric 3×3 block, and the product of a placement
with a joint's motion stays a product. Below it, `rotation` has the three-vectors.

| code          | paper (Kim)            | meaning                                              |
|---------------|------------------------|------------------------------------------------------|
| `Motion(w, v)`  | V = (w, v) ∈ se(3)     | generalized velocity, (9) (10)                       |
| `Force(m, f)`   | F = (m, f) ∈ dse(3)    | generalized force or momentum, (12)                  |
| `Transform`     | T = (R, p) ∈ SE(3)     | (3); `inverse` is (4)                                |
| `Ad`, `Ad_inv`  | Ad_T, Ad_{T⁻¹}         | (6) (7) (11)                                         |
| `Ad_T`, `Ad_inv_T` | Ad*_T, Ad*_{T⁻¹}    | (8) (13) (24)                                        |
| `ad`, `ad_T`    | ad_V, ad*_V            | (27), (29)                                           |
| `Inertia`       | 𝓘                      | (20) (22); `@ V` is the momentum (23)                |
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from qddot.scalars import Scalar, less, where
from qddot.spatial.rotation import (
    EYE,
    IDENTITY,
    ZERO,
    Mat,
    Rotation,
    Vec,
    add,
    columns_map,
    constant_rotation,
    cross,
    dot,
    exp_coefficients,
    exp_rotation,
    log_rotation,
    scale,
    sub,
    transpose,
)

# ---- transforms ----------------------------------------------------------------------------------------------------


class Transform:
    """T = (R, p) ∈ SE(3), Kim (3)."""

    __slots__ = ("R", "p")

    def __init__(self, R: Rotation = IDENTITY, p: Vec = ZERO) -> None:
        self.R, self.p = R, p

    @property
    def parts(self) -> tuple[Transform, ...]:
        return (self,)

    def inverse(self) -> Transform:
        """Kim (4)."""
        Rt = self.R.T
        return Transform(Rt, scale(-1.0, Rt @ self.p))

    def __matmul__(self, other: Transform) -> Transform:
        out = self
        for B in other.parts:
            R = out.R if B.R is IDENTITY else Rotation(transpose(columns_map(out.R.__matmul__, B.R.rows)))
            out = Transform(R, out.p if B.p is ZERO else add(out.p, out.R @ B.p))
        return out

    def point(self, x: Vec) -> Vec:
        """The coordinates in A of a point given in B, for T_AB."""
        for T in reversed(self.parts):
            x = add(T.R @ x, T.p)
        return x

    def __reduce__(self) -> Any:
        return (constant_transform, (self.R.rows, self.p))

    def __repr__(self) -> str:
        """As `qddot.pose` takes it, to six digits: pose(xyz=(0, 0, 0.1), rpy=(0, 0, 1.5708))."""
        R, p = self.R.rows, self.p
        if not all(isinstance(x, float | int) for x in (*R[0], *R[1], *R[2], *p)):
            return f"{type(self).__name__}(R={R!r}, p={p!r})"
        return f"pose(xyz={rounded(p)}, rpy={rounded(roll_pitch_yaw(R))})"


def rounded(numbers: Sequence[float]) -> str:
    """Numbers to six digits, in parentheses."""
    return f"({', '.join(f'{x + 0.0:.6g}' for x in numbers)})"


def roll_pitch_yaw(R: Mat) -> tuple[float, float, float]:
    """The angles about the fixed axes x, y and z, in turn; where they are not unique, the one about x is zero."""
    level = math.hypot(R[0][0], R[1][0])
    if level > 1e-9:
        return math.atan2(R[2][1], R[2][2]), math.atan2(-R[2][0], level), math.atan2(R[1][0], R[0][0])
    return 0.0, math.atan2(-R[2][0], level), math.atan2(-R[0][1], R[1][1])


def constant_transform(rows: Mat = EYE, p: Vec = ZERO) -> Transform:
    """A transform of plain numbers that knows its zeros: identity, rotation about an axis, no shift."""
    return Transform(constant_rotation(rows), ZERO if p == ZERO else p)


class Product(Transform):
    """A placement times a joint's own motion, left apart: applied one after the other, never multiplied out."""

    __slots__ = ("parts",)

    def __init__(self, *factors: Transform) -> None:
        parts = (part for f in factors for part in f.parts)
        self.parts = tuple(f for f in parts if f.R is not IDENTITY or f.p is not ZERO)  # type: ignore[misc]

    @property
    def R(self) -> Rotation:  # type: ignore[override]
        return (Transform() @ self).R

    @property
    def p(self) -> Vec:  # type: ignore[override]
        return (Transform() @ self).p

    def inverse(self) -> Transform:
        return Product(*(f.inverse() for f in reversed(self.parts)))

    def __matmul__(self, other: Transform) -> Transform:
        return Transform() @ self @ other


class Slide(Transform):
    """A shift of a child that turns as its parent does, or along the axis about which it turns: it is fixed in both."""

    __slots__ = ()

    def __init__(self, p: Vec) -> None:
        super().__init__(IDENTITY, p)


# ---- velocities and forces -----------------------------------------------------------------------------------------


class Motion(NamedTuple):
    """An element of se(3), (w, v): velocity, acceleration, joint axis. Kim (5) (10)."""

    w: Vec
    v: Vec

    def __add__(self, other: Motion) -> Motion:  # type: ignore[override]
        return Motion(add(self.w, other.w), add(self.v, other.v))

    def __sub__(self, other: Motion) -> Motion:
        return Motion(sub(self.w, other.w), sub(self.v, other.v))

    def __rmul__(self, k: Scalar) -> Motion:
        return Motion(scale(k, self.w), scale(k, self.v))

    def dot(self, F: Force) -> Scalar:
        """Power: the pairing of se(3) with dse(3)."""
        return dot(self.w, F.m) + dot(self.v, F.f)

    @property
    def components(self) -> tuple[Scalar, ...]:
        return (*self.w, *self.v)


class Force(NamedTuple):
    """An element of dse(3), (m, f): moment and force, or momentum. Kim (12)."""

    m: Vec
    f: Vec

    def __add__(self, other: Force) -> Force:  # type: ignore[override]
        return Force(add(self.m, other.m), add(self.f, other.f))

    def __sub__(self, other: Force) -> Force:
        return Force(sub(self.m, other.m), sub(self.f, other.f))

    def __rmul__(self, k: Scalar) -> Force:
        return Force(scale(k, self.m), scale(k, self.f))

    @property
    def components(self) -> tuple[Scalar, ...]:
        return (*self.m, *self.f)


# so that a batch of numbers times a motion or a force comes to their __rmul__
Motion.__array_ufunc__ = Force.__array_ufunc__ = None  # type: ignore[attr-defined]


def motion(components: Sequence[Scalar]) -> Motion:
    a, b, c, d, e, f = components
    return Motion((a, b, c), (d, e, f))


def force(components: Sequence[Scalar]) -> Force:
    a, b, c, d, e, f = components
    return Force((a, b, c), (d, e, f))


def zero_motion() -> Motion:
    return Motion(ZERO, ZERO)


def zero_force() -> Force:
    return Force(ZERO, ZERO)


def Ad(T: Transform, V: Motion) -> Motion:
    """Ad_T V, Kim (7) (11): a velocity known in B, in A, for T_AB."""
    w, v = V
    for P in reversed(T.parts):
        w = P.R @ w
        v = P.R @ v if P.p is ZERO else add(P.R @ v, cross(P.p, w))
    return Motion(w, v)


def Ad_inv(T: Transform, V: Motion) -> Motion:
    """Ad_{T⁻¹} V: a velocity known in A, in B, for T_AB."""
    w, v = V
    for P in T.parts:
        Rt = P.R.T
        v = v if P.p is ZERO else sub(v, cross(P.p, w))
        w, v = Rt @ w, Rt @ v
    return Motion(w, v)


def Ad_T(T: Transform, F: Force) -> Force:
    """Ad*_T F, Kim (8) (13): a force known in A, in B, for T_AB."""
    m, f = F
    for P in T.parts:
        Rt = P.R.T
        m = m if P.p is ZERO else sub(m, cross(P.p, f))
        m, f = Rt @ m, Rt @ f
    return Force(m, f)


def Ad_inv_T(T: Transform, F: Force) -> Force:
    """Ad*_{T⁻¹} F: a force known in B, in A, for T_AB."""
    m, f = F
    for P in reversed(T.parts):
        m, f = P.R @ m, P.R @ f
        m = m if P.p is ZERO else add(m, cross(P.p, f))
    return Force(m, f)


def ad(V: Motion, X: Motion) -> Motion:
    """ad_V X, Kim (26) (27): the change of X when its frame moves with V."""
    return Motion(cross(V.w, X.w), add(cross(V.v, X.w), cross(V.w, X.v)))


def ad_T(V: Motion, F: Force) -> Force:
    """ad*_V F, Kim (28) (29)."""
    return Force(add(cross(F.m, V.w), cross(F.f, V.v)), cross(F.f, V.w))


# ---- exponential and logarithm -------------------------------------------------------------------------------------


def exp(xi: Motion) -> Transform:
    """exp(ξ) ∈ SE(3): the displacement of a unit of time at velocity ξ."""
    _, b, c = exp_coefficients(dot(xi.w, xi.w))
    turned = cross(xi.w, xi.v)
    return Transform(exp_rotation(xi.w), add(xi.v, add(scale(b, turned), scale(c, cross(xi.w, turned)))))


# (1 - (θ/2) cot(θ/2)) / θ² in powers of θ²: B_2n / (2n)!
_LOG_SERIES = (
    1 / 12,
    1 / 720,
    1 / 30240,
    1 / 1209600,
    1 / 47900160,
    691 / 1307674368000,
    1 / 74724249600,
    3617 / 10670622842880000,
)


def log(T: Transform) -> Motion:
    """The inverse of `exp`: the constant velocity that reaches T in a unit of time."""
    w = log_rotation(T.R)
    x = dot(w, w)
    a, b, _ = exp_coefficients(x)
    small = less(x, 0.25)
    series = 0.0
    for coefficient in reversed(_LOG_SERIES):
        series = series * x + coefficient
    k = where(small, series, (1.0 - a / (2.0 * b)) / where(small, 1.0, x))
    turned = cross(w, T.p)
    return Motion(w, add(sub(T.p, scale(0.5, turned)), scale(k, cross(w, turned))))
