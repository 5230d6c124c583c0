"""Joints of several rotations: universal, and ball joints in angles, a rotation vector or a quaternion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from qddot.joints import loop_rows as rows_of
from qddot.joints.base import NO_MOMENT, Defect, Joint, VaryingAxes, X, Y
from qddot.joints.loop_rows import LoopRows
from qddot.scalars import Scalar, split
from qddot.spatial import Force, Inertia, Motion, Transform
from qddot.spatial.joint_blocks import Forces, Motions, Vector
from qddot.spatial.rotation import (
    EYE,
    ZERO,
    Vec,
    add,
    as_quaternion,
    as_vec,
    axis_angle,
    cross,
    dot,
    exp_coefficients,
    exp_derivatives,
    exp_rotation,
    log_quaternion,
    quaternion_conjugate,
    quaternion_exp,
    quaternion_product,
    quaternion_rotation,
    quaternion_unit,
    random_axis,
    scale,
    sub,
    unit,
)

_SEQUENCES = ("xyz", "zyx", "zxz", "yzy")  # of random joints
_ADVICE = "a ball joint by three angles or a rotation vector has such configurations, by a quaternion (spherical) none"


class _RotationSequence(VaryingAxes):
    """Rotations about fixed axes, one after the other: R = R(a_1, q_1) R(a_2, q_2) …"""

    @property
    def axes(self) -> tuple[Vec, ...]:
        raise NotImplementedError

    def transform(self, q: Sequence[Scalar]) -> Transform:
        T = Transform()
        for a, angle in zip(self.axes, q, strict=True):
            T = T @ Transform(axis_angle(a, angle))
        return T

    def S(self, q: Sequence[Scalar]) -> Motions:
        columns: list[Vec] = []
        for a, angle in zip(self.axes, q, strict=True):
            back = axis_angle(a, angle).T
            columns = [*(back @ c for c in columns), a]
        return Motions(Motion(c, ZERO) for c in columns)

    def transferable_inertia(self, G: Inertia) -> Inertia:
        return Inertia(G.m, ZERO, NO_MOMENT)

    def bias(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> Motion:
        w, b = ZERO, ZERO
        for a, angle, rate in zip(self.axes, q, v, strict=True):
            back = axis_angle(a, angle).T
            turned, own = back @ w, scale(rate, a)
            b = add(back @ b, cross(turned, own))
            w = add(turned, own)
        return Motion(b, ZERO)


@dataclass(frozen=True, repr=False)
class Universal(_RotationSequence):
    """A Hooke joint: about `first`, fixed in the parent, then about `second`, fixed in the child."""

    first: Vec = X
    second: Vec = Y
    kind = "universal"
    nq = nv = 2
    is_angle = (True, True)
    axis_names = ("first", "second")
    coordinate_text, velocity_text = "two angles, rad", "rates, rad/s"

    if TYPE_CHECKING:

        def __init__(self, first: Vec | str = X, second: Vec | str = Y) -> None: ...

    @property
    def axes(self) -> tuple[Vec, ...]:
        return (self.first, self.second)

    def least_inertia(self, G: Inertia, armature: Sequence[float]) -> float:
        """Its axes turn in the link, and keep their angle."""
        across = 1.0 - abs(dot(self.first, self.second))
        return across * float(np.linalg.eigvalsh(np.array(G.I, dtype=float))[0])

    def loop_rows(self, T: Transform) -> LoopRows:
        first = T.R.T @ self.first  # in the child's frame, where the second axis stands still
        normal = cross(self.second, first)
        residual = [dot(first, self.second) - dot(self.first, self.second), *rows_of.shift(T)]

        def drift(V: Motion) -> Vector:
            return Vector((dot(V.w, cross(self.second, cross(first, V.w))), 0.0, 0.0, 0.0))

        rows = Forces((Force(normal, ZERO), *(Force(ZERO, e) for e in EYE)))
        return LoopRows(Vector(residual), rows, Motions((Motion(first, ZERO), Motion(self.second, ZERO))), drift)

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Universal:
        """With axes that cross at a right angle."""
        first = random_axis(rng)
        second = cross(first, random_axis(rng))
        while dot(second, second) < 0.01:
            second = cross(first, random_axis(rng))
        return Universal(first, unit(second))


@dataclass(frozen=True, repr=False)
class SphericalEuler(_RotationSequence):
    """A ball joint in three angles about moving axes, such as "xyz" or "zyx". Singular where the outer axes align."""

    sequence: str = "xyz"
    kind = "spherical_euler"
    nq = nv = 3
    is_angle = (True, True, True)
    coordinate_text, velocity_text = "three angles, rad", "rates, rad/s"
    can_fold = True
    never_folding = (1,)  # the middle axis is normal to both others
    folding_advice = _ADVICE

    @property
    def axes(self) -> tuple[Vec, ...]:
        return tuple(EYE["xyz".index(letter)] for letter in self.sequence)

    def loop_rows(self, T: Transform) -> LoopRows:
        return Spherical().loop_rows(T)

    def defect(self) -> Defect | None:
        letters = self.sequence
        if len(letters) == 3 and set(letters) <= set("xyz") and letters[0] != letters[1] != letters[2]:
            return None
        return Defect(f"its sequence is {letters!r}", "give three letters, no two equal in a row, such as 'xyz'")

    @classmethod
    def sample(cls, rng: np.random.Generator) -> SphericalEuler:
        return SphericalEuler(_SEQUENCES[int(rng.integers(len(_SEQUENCES)))])


@dataclass(frozen=True, repr=False)
class SphericalExponential(VaryingAxes):
    """A ball joint in the rotation vector r: T = exp([r]). Singular at |r| = 2π."""

    kind = "spherical_exponential"
    nq = nv = 3
    is_angle = (True, True, True)
    coordinate_text, velocity_text = "rotation vector, rad", "rates, rad/s"
    can_fold = True
    folding_advice = _ADVICE

    def transform(self, q: Sequence[Scalar]) -> Transform:
        return Transform(exp_rotation(as_vec(q)))

    def S(self, q: Sequence[Scalar]) -> Motions:
        r = as_vec(q)
        _, b, c = exp_coefficients(dot(r, r))
        columns = []
        for e in EYE:
            turned = cross(r, e)
            columns.append(Motion(add(sub(e, scale(b, turned)), scale(c, cross(r, turned))), ZERO))
        return Motions(columns)

    def transferable_inertia(self, G: Inertia) -> Inertia:
        return Inertia(G.m, ZERO, NO_MOMENT)

    def bias(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> Motion:
        r, u = as_vec(q), as_vec(v)
        _, _, c = exp_coefficients(dot(r, r))
        db, dc = exp_derivatives(dot(r, r))
        rate, turned = 2.0 * dot(r, u), cross(r, u)
        grows = sub(scale(rate * dc, cross(r, turned)), scale(rate * db, turned))
        return Motion(add(grows, scale(c, cross(u, turned))), ZERO)

    def loop_rows(self, T: Transform) -> LoopRows:
        return Spherical().loop_rows(T)


@dataclass(frozen=True, repr=False)
class Spherical(Joint):
    """A ball joint by a unit quaternion (x, y, z, w); its velocity is the angular velocity in the child's frame."""

    kind = "spherical"
    nq, nv = 4, 3
    is_angle = (True, True, True)
    has_unit_quaternion = True
    is_commutative = False
    spring_groups = ((0, 1, 2),)
    coordinate_names = ("qx", "qy", "qz", "qw")
    coordinate_units = ("", "", "", "")
    velocity_names = ("wx", "wy", "wz")
    coordinate_text, velocity_text = "unit quaternion x, y, z, w", "angular velocity in the child's frame, rad/s"
    mujoco_name = "ball"

    def transform(self, q: Sequence[Scalar]) -> Transform:
        return Transform(quaternion_rotation(*q))

    def S(self, q: Sequence[Scalar]) -> Motions:
        return Motions(Motion(e, ZERO) for e in EYE)

    def transferable_inertia(self, G: Inertia) -> Inertia:
        return Inertia(G.m, ZERO, NO_MOMENT)

    def rate(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> Vector:
        return 0.5 * Vector(quaternion_product(as_quaternion(q), (v[0], v[1], v[2], 0.0)))

    def integrate(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> Vector:
        return Vector(quaternion_unit(quaternion_product(as_quaternion(q), quaternion_exp(as_vec(v)))))

    def along(self, q: Sequence[Scalar], k: int) -> Vector:
        x, y, z = EYE[k]
        return Vector(quaternion_product(as_quaternion(q), (0.5 * x, 0.5 * y, 0.5 * z, 0.0)))

    def difference(self, q0: Sequence[Scalar], q1: Sequence[Scalar]) -> Vector:
        return Vector(log_quaternion(*quaternion_product(quaternion_conjugate(as_quaternion(q0)), as_quaternion(q1))))

    def bracket(self, x: Sequence[Scalar], y: Sequence[Scalar]) -> Sequence[Scalar]:
        return cross(as_vec(x), as_vec(y))

    def dual_bracket(self, x: Sequence[Scalar], p: Sequence[Scalar]) -> Sequence[Scalar]:
        return cross(as_vec(p), as_vec(x))

    def neutral(self) -> tuple[float, ...]:
        return (0.0, 0.0, 0.0, 1.0)

    def random(self, rng: np.random.Generator, size: tuple[int, ...] = ()) -> tuple[Scalar, ...]:
        return quaternion_unit(as_quaternion(split(rng.standard_normal((*size, 4)))))

    def normalize(self, q: Sequence[Scalar]) -> Vector:
        return Vector(quaternion_unit(as_quaternion(q)))

    def loop_rows(self, T: Transform) -> LoopRows:
        """However a ball joint's coordinates are chosen, it forbids the same; its axes are those of frame b."""
        return rows_of.constant_rows(rows_of.shift(T), (), EYE, self.S(self.neutral()))
