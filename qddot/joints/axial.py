"""Joints of one axis, or of none: fixed, revolute, prismatic, helical, cylindrical."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from qddot.joints import loop_rows as rows_of
from qddot.joints.base import Joint, Z
from qddot.joints.loop_rows import LoopRows
from qddot.scalars import Scalar, cos, sin, split, sqrt
from qddot.spatial import Force, Inertia, Motion, Product, Slide, Transform
from qddot.spatial.inertia import moment_across
from qddot.spatial.joint_blocks import Forces, Motions, Vector
from qddot.spatial.rotation import (
    EYE,
    ZERO,
    AxisRotation,
    Rotation,
    Vec,
    axis_angle,
    dot,
    mat_mat,
    plane_basis,
    random_axis,
    scale,
    z_to,
)


@dataclass(frozen=True, repr=False)
class Fixed(Joint):
    """No degree of freedom: a weld."""

    kind = "fixed"
    nq = nv = 0

    def transform(self, q: Sequence[Scalar]) -> Transform:
        return Transform()

    def S(self, q: Sequence[Scalar]) -> Motions:
        return Motions()

    def transferable_inertia(self, G: Inertia) -> Inertia:
        return G

    def loop_rows(self, T: Transform) -> LoopRows:
        return rows_of.constant_rows([*rows_of.turn(T.R), *rows_of.shift(T)], EYE, EYE, Motions())


@dataclass(frozen=True, repr=False)
class Revolute(Joint):
    """Rotation about a unit axis: three numbers, or "x", "y", "z", "-x", "-y", "-z"."""

    axis: Vec = Z
    kind = "revolute"
    nq = nv = 1
    is_angle = (True,)
    axis_names = ("axis",)
    screw = (1.0, 0.0)
    can_turn_frame = ends_in_angle = True
    mujoco_name = "hinge"

    if TYPE_CHECKING:

        def __init__(self, axis: Vec | str = Z) -> None: ...

    def transform(self, q: Sequence[Scalar]) -> Transform:
        return Transform(axis_angle(self.axis, q[0]))

    def S(self, q: Sequence[Scalar]) -> Motions:
        return Motions((Motion(self.axis, ZERO),))

    def transferable_inertia(self, G: Inertia) -> Inertia:
        return Inertia(G.m, scale(dot(self.axis, G.h), self.axis), moment_across(self.axis, G.I))

    def random(self, rng: np.random.Generator, size: tuple[int, ...] = ()) -> tuple[Scalar, ...]:
        return tuple(split(rng.uniform(-math.pi, math.pi, (*size, 1))))

    def canonical(self) -> tuple[Rotation, Joint]:
        return z_to(self.axis), _ABOUT_Z

    def loop_rows(self, T: Transform) -> LoopRows:
        residual = [*rows_of.tilt(self.axis, T), *rows_of.shift(T)]
        return rows_of.constant_rows(residual, plane_basis(self.axis), EYE, self.S(self.neutral()))


@dataclass(frozen=True, repr=False)
class Prismatic(Joint):
    """Translation along a unit axis: three numbers, or a letter as for `Revolute`."""

    axis: Vec = Z
    kind = "prismatic"
    nq = nv = 1
    axis_names = ("axis",)
    screw = (0.0, 1.0)
    mujoco_name = "slide"

    if TYPE_CHECKING:

        def __init__(self, axis: Vec | str = Z) -> None: ...

    def transform(self, q: Sequence[Scalar]) -> Transform:
        return Slide(scale(q[0], self.axis))

    def S(self, q: Sequence[Scalar]) -> Motions:
        return Motions((Motion(ZERO, self.axis),))

    def transferable_inertia(self, G: Inertia) -> Inertia:
        return Inertia(0.0, ZERO, G.I)

    def canonical(self) -> tuple[Rotation, Joint]:
        return z_to(self.axis), _ALONG_Z

    def loop_rows(self, T: Transform) -> LoopRows:
        residual = [*rows_of.turn(T.R), *rows_of.shift_across(self.axis, T)]
        return rows_of.constant_rows(residual, EYE, plane_basis(self.axis), self.S(self.neutral()))


@dataclass(frozen=True, repr=False)
class Helical(Joint):
    """A screw: rotation about a unit axis with `pitch` metres of travel a radian."""

    axis: Vec = Z
    pitch: float = 0.0
    kind = "helical"
    nq = nv = 1
    is_angle = (True,)
    axis_names = ("axis",)
    number_names = ("pitch",)

    if TYPE_CHECKING:

        def __init__(self, axis: Vec | str = Z, pitch: float = 0.0) -> None: ...

    @property
    def screw(self) -> tuple[float, float]:
        return (1.0, self.pitch)

    def transform(self, q: Sequence[Scalar]) -> Transform:
        return Transform(axis_angle(self.axis, q[0]), scale(self.pitch * q[0], self.axis))

    def S(self, q: Sequence[Scalar]) -> Motions:
        return Motions((Motion(self.axis, scale(self.pitch, self.axis)),))

    def transferable_inertia(self, G: Inertia) -> Inertia:
        if self.pitch == 0.0:
            return Revolute(self.axis).transferable_inertia(G)
        return Inertia(0.0, ZERO, moment_across(self.axis, G.I))

    def canonical(self) -> tuple[Rotation, Joint]:
        return z_to(self.axis), replace(self, axis=Z)

    def scaled(self, s: float) -> Joint:
        return replace(self, pitch=s * self.pitch)

    def loop_rows(self, T: Transform) -> LoopRows:
        if self.pitch == 0.0:
            return Revolute(self.axis).loop_rows(T)
        travelled = dot(self.axis, T.p)
        unscrewed = axis_angle(self.axis, travelled / self.pitch).T
        left = Rotation(mat_mat(unscrewed.rows, T.R.rows))
        size = 1.0 / float(sqrt(1.0 + self.pitch**2))
        residual, rows, _, drift = Cylindrical(self.axis).loop_rows(T)
        screw = -size * self.pitch * dot(self.axis, rows_of.turn(left))
        row = Force(scale(-size * self.pitch, self.axis), scale(size, self.axis))
        axes = self.S(self.neutral())
        return LoopRows(Vector((*residual, screw)), Forces((*rows, row)), axes, lambda V: Vector((*drift(V), 0.0)))

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Helical:
        return Helical(random_axis(rng), float(rng.uniform(-0.2, 0.2)))


@dataclass(frozen=True, repr=False)
class Cylindrical(Joint):
    """Rotation about and translation along one unit axis: q = (angle, travel)."""

    axis: Vec = Z
    kind = "cylindrical"
    nq = nv = 2
    is_angle = (True, False)
    axis_names = ("axis",)
    coordinate_names = velocity_names = ("angle", "shift")
    coordinate_text, velocity_text = "angle rad, travel m", "rad/s, m/s"

    if TYPE_CHECKING:

        def __init__(self, axis: Vec | str = Z) -> None: ...

    def transform(self, q: Sequence[Scalar]) -> Transform:
        return Transform(axis_angle(self.axis, q[0]), scale(q[1], self.axis))

    def S(self, q: Sequence[Scalar]) -> Motions:
        return Motions((Motion(self.axis, ZERO), Motion(ZERO, self.axis)))

    def transferable_inertia(self, G: Inertia) -> Inertia:
        return Inertia(0.0, ZERO, moment_across(self.axis, G.I))

    def canonical(self) -> tuple[Rotation, Joint]:
        return z_to(self.axis), _BOTH_Z

    def loop_rows(self, T: Transform) -> LoopRows:
        across = plane_basis(self.axis)
        residual = [*rows_of.tilt(self.axis, T), *rows_of.shift_across(self.axis, T)]
        return rows_of.constant_rows(residual, across, across, self.S(self.neutral()))


# ---- what `mechanism.simplify` makes of revolute joints: no file and no user can name them ------------------------------


@dataclass(frozen=True, repr=False)
class OffsetRevolute(Joint):
    """A revolute joint about z whose child frame stands `travel` along the axis, and turned about it: by quarters, of
    which (c, s) are cosine and sine and which cost nothing, and by `offset`.
    """

    c: float = 1.0
    s: float = 0.0
    offset: Scalar = 0.0
    travel: Scalar = 0.0
    kind = "offset_revolute"
    nq = nv = 1
    is_angle = (True,)
    screw = (1.0, 0.0)

    def transform(self, q: Sequence[Scalar]) -> Transform:
        angle = q[0] + self.offset
        c, s = cos(angle), sin(angle)
        turn = AxisRotation(2, self.c * c - self.s * s, self.s * c + self.c * s)
        return Product(Transform(turn), self.transfer())

    def S(self, q: Sequence[Scalar]) -> Motions:
        return Motions((Motion(Z, ZERO),))

    def transferable_inertia(self, G: Inertia) -> Inertia:
        return _ABOUT_Z.transferable_inertia(G)

    def transfer(self) -> Transform:
        """The shift alone: the turn does not change what can be transferred."""
        z = self.travel
        return Transform() if isinstance(z, float) and z == 0.0 else Slide((0.0, 0.0, z))


@dataclass(frozen=True, repr=False)
class UnturnedRevolute(Joint):
    """A revolute joint about z whose child's frame does not turn with it; placements and inertias turn instead."""

    kind = "unturned_revolute"
    nq = nv = 1
    is_angle = (True,)
    screw = (1.0, 0.0)

    def transform(self, q: Sequence[Scalar]) -> Transform:
        return Transform()

    def S(self, q: Sequence[Scalar]) -> Motions:
        return Motions((Motion(Z, ZERO),))


# what joints about and along other axes are turned to
_ABOUT_Z, _ALONG_Z, _BOTH_Z = Revolute(), Prismatic(), Cylindrical()
