"""Joints of plane or spatial motion: translational, planar, free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from qddot.joints import loop_rows as rows_of
from qddot.joints.base import Joint, Z
from qddot.joints.loop_rows import LoopRows
from qddot.joints.rotational import Spherical
from qddot.scalars import Scalar, arctan2, cos, sin, split
from qddot.spatial import Inertia, Motion, Slide, Transform, ad, ad_T, constant_transform, exp, force, log, motion
from qddot.spatial.inertia import moment_across
from qddot.spatial.joint_blocks import Motions, Vector
from qddot.spatial.rotation import (
    EYE,
    ZERO,
    AxisRotation,
    Rotation,
    Vec,
    add,
    as_quaternion,
    as_vec,
    axis_angle,
    dot,
    plane_basis,
    quaternion_rotation,
    quaternion_unit,
    scale,
    sub,
    transpose,
)


@dataclass(frozen=True, repr=False)
class Translational(Joint):
    """Three translations."""

    kind = "translational"
    nq = nv = 3
    coordinate_names = ("x", "y", "z")
    velocity_names = ("vx", "vy", "vz")
    coordinate_text, velocity_text = "x, y, z m", "m/s"
    mujoco_name = "slide"

    def transform(self, q: Sequence[Scalar]) -> Transform:
        return Slide(as_vec(q))

    def S(self, q: Sequence[Scalar]) -> Motions:
        return Motions(Motion(ZERO, e) for e in EYE)

    def transferable_inertia(self, G: Inertia) -> Inertia:
        return Inertia(0.0, ZERO, G.I)

    def loop_rows(self, T: Transform) -> LoopRows:
        return rows_of.constant_rows(rows_of.turn(T.R), EYE, (), self.S(self.neutral()))


@dataclass(frozen=True, repr=False)
class Planar(Joint):
    """Motion in the plane normal to an axis: q = (x, y, angle), v = (v_x, v_y, ω) in the child's axes."""

    axis: Vec = Z
    kind = "planar"
    nq = nv = 3
    is_angle = (False, False, True)
    is_commutative = False
    axis_selects_code = True
    spring_groups = ((0, 1),)
    axis_names = ("axis",)
    coordinate_names = ("x", "y", "angle")
    velocity_names = ("vx", "vy", "w")
    coordinate_text, velocity_text = "x, y m, angle rad", "x, y along the child's axes m/s, rad/s"
    ends_in_angle = True

    if TYPE_CHECKING:

        def __init__(self, axis: Vec | str = Z) -> None: ...

    @property
    def basis(self) -> tuple[Vec, Vec]:
        """The plane's x and y: for the normals x, y and z the coordinate axes that follow in turn."""
        return plane_basis(self.axis)

    def _shift(self, x: Scalar, y: Scalar) -> Vec:
        e, f = self.basis
        return add(scale(x, e), scale(y, f))

    def transform(self, q: Sequence[Scalar]) -> Transform:
        return Transform(axis_angle(self.axis, q[2]), self._shift(q[0], q[1]))

    def S(self, q: Sequence[Scalar]) -> Motions:
        e, f = self.basis
        return Motions((Motion(ZERO, e), Motion(ZERO, f), Motion(self.axis, ZERO)))

    def transferable_inertia(self, G: Inertia) -> Inertia:
        return Inertia(0.0, ZERO, moment_across(self.axis, G.I))

    def rate(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> Vector:
        x, y, _ = AxisRotation(2, cos(q[2]), sin(q[2])) @ (v[0], v[1], 0.0)
        return Vector((x, y, v[2]))

    def integrate(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> Vector:
        step = exp(Motion((0.0, 0.0, v[2]), (v[0], v[1], 0.0)))
        x, y, _ = AxisRotation(2, cos(q[2]), sin(q[2])) @ step.p
        return Vector((q[0] + x, q[1] + y, q[2] + v[2]))

    def along(self, q: Sequence[Scalar], k: int) -> Vector:
        x, y, _ = AxisRotation(2, cos(q[2]), sin(q[2])) @ (EYE[k] if k < 2 else ZERO)
        return Vector((x, y, 0.0 if k < 2 else 1.0))

    def difference(self, q0: Sequence[Scalar], q1: Sequence[Scalar]) -> Vector:
        angle = q1[2] - q0[2]
        turn = AxisRotation(2, cos(angle), sin(angle))
        body = AxisRotation(2, cos(q0[2]), -sin(q0[2])) @ (q1[0] - q0[0], q1[1] - q0[1], 0.0)
        _, (x, y, _) = log(Transform(turn, body))
        return Vector((x, y, arctan2(sin(angle), cos(angle))))

    def displacement(self, q0: Sequence[Scalar], q: Sequence[Scalar]) -> Vector:
        x, y, _ = AxisRotation(2, cos(q[2]), -sin(q[2])) @ (q[0] - q0[0], q[1] - q0[1], 0.0)
        return Vector((x, y, q[2] - q0[2]))

    def bracket(self, x: Sequence[Scalar], y: Sequence[Scalar]) -> Sequence[Scalar]:
        return (x[1] * y[2] - x[2] * y[1], x[2] * y[0] - x[0] * y[2], 0.0)

    def dual_bracket(self, x: Sequence[Scalar], p: Sequence[Scalar]) -> Sequence[Scalar]:
        return (x[2] * p[1], -x[2] * p[0], x[1] * p[0] - x[0] * p[1])

    def canonical(self) -> tuple[Rotation, Joint]:
        return constant_transform(transpose((*self.basis, self.axis))).R, Planar()

    def loop_rows(self, T: Transform) -> LoopRows:
        residual = [*rows_of.tilt(self.axis, T), dot(self.axis, T.p)]
        return rows_of.constant_rows(residual, self.basis, [self.axis], self.S(self.neutral()))


@dataclass(frozen=True, repr=False)
class Free(Joint):
    """Six degrees of freedom: q = (x, y, z, qx, qy, qz, qw); the velocity is the body twist, angular first."""

    kind = "free"
    nq, nv = 7, 6
    is_angle = (True, True, True, False, False, False)
    has_unit_quaternion = is_floating = True
    is_commutative = False
    spring_groups = ((0, 1, 2), (3, 4, 5))
    coordinate_names = ("x", "y", "z", *Spherical.coordinate_names)
    coordinate_units = ("m", "m", "m", *Spherical.coordinate_units)
    velocity_names = ("wx", "wy", "wz", "vx", "vy", "vz")
    coordinate_text = "x, y, z m, unit quaternion x, y, z, w"
    velocity_text = "twist in the child's frame: angular rad/s, linear m/s"
    mujoco_name = "free"

    def transform(self, q: Sequence[Scalar]) -> Transform:
        return Transform(quaternion_rotation(*q[3:7]), as_vec(q[:3]))

    def S(self, q: Sequence[Scalar]) -> Motions:
        return Motions((*(Motion(e, ZERO) for e in EYE), *(Motion(ZERO, e) for e in EYE)))

    def rate(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> Vector:
        return Vector((*(quaternion_rotation(*q[3:7]) @ as_vec(v[3:])), *Spherical().rate(q[3:7], v[:3])))

    def integrate(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> Vector:
        step = exp(Motion(as_vec(v[:3]), as_vec(v[3:])))
        p = add(as_vec(q[:3]), quaternion_rotation(*q[3:7]) @ step.p)
        return Vector((*p, *Spherical().integrate(q[3:7], v[:3])))

    def along(self, q: Sequence[Scalar], k: int) -> Vector:
        if k < 3:
            return Vector((*ZERO, *Spherical().along(q[3:7], k)))
        return Vector((*(quaternion_rotation(*q[3:7]) @ EYE[k - 3]), 0.0, 0.0, 0.0, 0.0))

    def difference(self, q0: Sequence[Scalar], q1: Sequence[Scalar]) -> Vector:
        return Vector(log(self.transform(q0).inverse() @ self.transform(q1)).components)

    def displacement(self, q0: Sequence[Scalar], q: Sequence[Scalar]) -> Vector:
        shift = quaternion_rotation(*q[3:7]).T @ sub(as_vec(q[:3]), as_vec(q0[:3]))
        return Vector((*Spherical().difference(q0[3:7], q[3:7]), *shift))

    def bracket(self, x: Sequence[Scalar], y: Sequence[Scalar]) -> Sequence[Scalar]:
        return ad(motion(x), motion(y)).components

    def dual_bracket(self, x: Sequence[Scalar], p: Sequence[Scalar]) -> Sequence[Scalar]:
        return ad_T(motion(x), force(p)).components

    def neutral(self) -> tuple[float, ...]:
        return (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)

    def random(self, rng: np.random.Generator, size: tuple[int, ...] = ()) -> tuple[Scalar, ...]:
        return (*split(rng.uniform(-1.0, 1.0, (*size, 3))), *Spherical().random(rng, size))

    def normalize(self, q: Sequence[Scalar]) -> Vector:
        return Vector((*q[:3], *quaternion_unit(as_quaternion(q[3:7]))))

    def loop_rows(self, T: Transform) -> LoopRows:
        return rows_of.constant_rows((), (), (), self.S(self.neutral()))
