"""What every joint answers, with the answers of plain coordinates and constant axes as defaults."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from qddot.errors import ModelError, message, shown
from qddot.joints.loop_rows import LoopRows
from qddot.scalars import Scalar, split
from qddot.spatial import Inertia, Motion, Transform, zero_inertia, zero_motion
from qddot.spatial.dual import Dual, slope_of
from qddot.spatial.joint_blocks import Motions, Vector, apply
from qddot.spatial.rotation import (
    EYE,
    IDENTITY,
    ZERO,
    Mat,
    Rotation,
    Vec,
    random_axis,
)

X, Y, Z = EYE
NO_MOMENT: Mat = (ZERO, ZERO, ZERO)


_AXES: dict[str, Vec] = {"x": X, "y": Y, "z": Z, "-x": (-1.0, 0.0, 0.0), "-y": (0.0, -1.0, 0.0), "-z": (0.0, 0.0, -1.0)}


def axis_named(name: str) -> Vec:
    """The axis of a letter: "x", "y" or "z", with a minus in front for the other way."""
    if name not in _AXES:
        problem, fix = f"it is {shown(name)}", "give 'x', 'y', 'z', '-x', '-y', '-z', or three numbers"
        raise ModelError(message("", "axis of a joint", problem, fix))
    return _AXES[name]


def _axis_text(axis: Any) -> str:
    """The letter of a coordinate axis, in quotes, or the three numbers."""
    if all(isinstance(x, float | int) for x in axis):
        for name, numbers in _AXES.items():
            if tuple(axis) == numbers:
                return f'"{name}"'
    return repr(axis)


class Defect(NamedTuple):
    """Why a joint cannot be used, and how to mend it."""

    problem: str
    fix: str
    cause: Exception | None = None


class Joint:
    """A kind of joint. Everything that other rooms need to know of it is answered here or in a subclass."""

    kind: ClassVar[str]
    nq: ClassVar[int]
    nv: ClassVar[int]

    # ---- facts about the kind

    has_unit_quaternion: ClassVar[bool] = False  # its last four coordinates are one, (x, y, z, w)
    is_floating: ClassVar[bool] = False  # six degrees of freedom, velocity a body twist; not actuated unless said so
    is_commutative: ClassVar[bool] = True  # whether `bracket` is zero
    can_turn_frame: ClassVar[bool] = False  # a turn about `axis` and nothing else: its link's frame may be moved along it
    axis_selects_code: ClassVar[bool] = False  # whether joints with different axes need different code
    can_fold: ClassVar[bool] = False  # whether S loses rank at some coordinates
    never_folding: ClassVar[tuple[int, ...]] = ()  # the columns of S that stay independent of the others even then
    folding_advice: ClassVar[str] = ""  # what to do about such configurations
    spring_groups: ClassVar[tuple[tuple[int, ...], ...]] = ()  # directions that turn into each other: one stiffness each
    axis_names: ClassVar[tuple[str, ...]] = ()  # its parameters that are unit vectors
    number_names: ClassVar[tuple[str, ...]] = ()  # its parameters that are numbers
    coordinate_text: ClassVar[str] = ""  # its coordinates in words, where their unit does not say it
    velocity_text: ClassVar[str] = ""
    mujoco_name: ClassVar[str] = ""  # the joint type of MuJoCo with the same coordinates; empty where it has none
    ends_in_angle: ClassVar[bool] = False  # Pinocchio may hold its last coordinate as cosine and sine

    @property
    def is_angle(self) -> tuple[bool, ...]:
        """Which velocity components are in radians a second."""
        return (False,) * self.nv

    @property
    def coordinate_names(self) -> tuple[str, ...]:
        """What its coordinates are called where it has several."""
        return tuple(str(k) for k in range(self.nq))

    @property
    def velocity_names(self) -> tuple[str, ...]:
        """What its degrees of freedom are called where it has several."""
        return tuple(str(k) for k in range(self.nv))

    @property
    def coordinate_units(self) -> tuple[str, ...]:
        """The unit of each coordinate, "" where it has none."""
        return tuple("rad" if angle else "m" for angle in self.is_angle)

    @property
    def screw(self) -> tuple[float, float] | None:
        """Turn about and travel along a fixed `axis` (z where it has no such attribute) a unit of q; None otherwise."""
        return None

    def __post_init__(self) -> None:
        for name in self.axis_names:
            if isinstance(axis := getattr(self, name), str):
                object.__setattr__(self, name, axis_named(axis))

    def __repr__(self) -> str:
        """As it is made in Python: Revolute("z"), Helical("-x", pitch=0.01)."""
        names = [f.name for f in dataclasses.fields(self)]  # type: ignore[arg-type]
        axes = [_axis_text(getattr(self, name)) for name in self.axis_names]
        others = [f"{name}={getattr(self, name)!r}" for name in names if name not in self.axis_names]
        return f"{type(self).__name__}({', '.join([*axes, *others])})"

    # ---- kinematics

    def transform(self, q: Sequence[Scalar]) -> Transform:
        """T(q): child coordinates into parent coordinates."""
        raise NotImplementedError

    def S(self, q: Sequence[Scalar]) -> Motions:
        """The columns T⁻¹ ∂T/∂q^k, in the child's frame. Kim, symbol list of Table 2."""
        raise NotImplementedError

    def bias(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> Motion:
        """Ṡ v, componentwise."""
        return zero_motion()

    def S_dot(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> Motions:
        """The columns of Ṡ when the joint moves with v."""
        return Motions(zero_motion() for _ in range(self.nv))

    def rate(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> Vector:
        """How the coordinates change when the joint moves with v."""
        return Vector(v)

    def S_slope(self, q: Sequence[Scalar], k: int) -> Motions:
        """The columns ∂S/∂q^k."""
        return Motions(zero_motion() for _ in range(self.nv))

    def bias_slope(self, q: Sequence[Scalar], v: Sequence[Scalar], k: int) -> Motion:
        """∂(Ṡ v)/∂q^k."""
        return zero_motion()

    # ---- the space of coordinates

    def integrate(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> Vector:
        """The coordinates after moving with the constant velocity v for a unit of time."""
        return Vector(q) + v

    def along(self, q: Sequence[Scalar], k: int) -> Vector:
        """How the coordinates change along degree of freedom k: the derivative of `integrate(q, v)` with respect to v^k
        at v = 0.
        """
        return Vector(1.0 if j == k else 0.0 for j in range(self.nq))

    def difference(self, q0: Sequence[Scalar], q1: Sequence[Scalar]) -> Vector:
        """The v with integrate(q0, v) = q1. Where that is a rotation it is the shorter way; turns are not counted."""
        return Vector(q1) - q0

    def displacement(self, q0: Sequence[Scalar], q: Sequence[Scalar]) -> Vector:
        """How far a spring at rest at q0 is stretched at q."""
        return self.difference(q0, q)

    def displacement_slope(self, q0: Sequence[Scalar], q: Sequence[Scalar], k: int) -> Vector:
        """How the displacement changes along degree of freedom k."""
        moving = [Dual(x, rate) for x, rate in zip(q, self.along(q, k), strict=True)]
        return Vector(slope_of(tuple(self.displacement(q0, moving))))

    def bracket(self, x: Sequence[Scalar], y: Sequence[Scalar]) -> Sequence[Scalar]:
        """[x, y] = ad_x y of two velocities; zero where velocities are rates."""
        return [0.0] * len(x)

    def dual_bracket(self, x: Sequence[Scalar], p: Sequence[Scalar]) -> Sequence[Scalar]:
        """ad_xᵀ p of a velocity and a momentum."""
        return [0.0] * len(x)

    def neutral(self) -> tuple[float, ...]:
        """The coordinates with T = 1."""
        return (0.0,) * self.nq

    def random(self, rng: np.random.Generator, size: tuple[int, ...] = ()) -> tuple[Scalar, ...]:
        """Random valid coordinates: a number each, or an array of this size each."""
        return tuple(split(rng.uniform(-1.0, 1.0, (*size, self.nq))))

    def normalize(self, q: Sequence[Scalar]) -> Vector:
        """The nearest valid coordinates: unit quaternions, and everything else as it is."""
        return Vector(q)

    # ---- dynamics

    def transferable_inertia(self, G: Inertia) -> Inertia:
        """A part K of the child's inertia that the parent may carry instead: K S = 0, and T(q) does not change it."""
        return zero_inertia()

    def transfer(self) -> Transform:
        """A T(q) by which the parent sees the transferable inertia; which q does not matter."""
        return self.transform(self.neutral())

    def least_inertia(self, G: Inertia, armature: Sequence[float]) -> float:
        """The least inertia that the joint feels of its own link, in any direction and configuration."""
        if self.can_fold:
            return 0.0
        S = self.S(self.neutral())
        A = np.array(S.T.on(apply(G, S)), dtype=float).reshape(len(S), len(S))
        return float(np.linalg.eigvalsh(A + np.diag(armature))[0]) if len(S) else math.inf

    # ---- as the joint that closes a loop

    @property
    def loop_row_count(self) -> int:
        """The number of constraint rows when it closes a loop."""
        return 6 - self.nv

    def loop_rows(self, T: Transform) -> LoopRows:
        """The constraint that it puts on the relative pose T of the frames it connects."""
        raise NotImplementedError(f"a {self.kind} joint cannot close a loop")

    # ---- parameters

    def defect(self) -> Defect | None:
        """What is wrong with its parameters, apart from axes and numbers, which the builder checks."""
        return None

    def canonical(self) -> tuple[Rotation, Joint]:
        """R and the joint with its axis along z that moves the frame turned by R as this joint moves its own."""
        return IDENTITY, self

    def scaled(self, s: float) -> Joint | None:
        """The joint of a robot whose lengths are s times as long; None where that is not known."""
        return self

    def parameters(self) -> dict[str, Any]:
        """The values that tell two joints of this kind apart."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore[arg-type]

    def with_parameters(self, values: Mapping[str, Any]) -> Self:
        """The same kind of joint with these values of `parameters`."""
        return dataclasses.replace(self, **values)  # type: ignore[type-var]

    def describe(self) -> dict[str, Any]:
        """Kind and parameters as plain lists and numbers: what a file holds and what a model's digest is taken of."""
        fields = dataclasses.asdict(self)  # type: ignore[call-overload]
        return {"kind": self.kind, **{k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()}}

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Self:
        """A joint of this kind with random parameters."""
        return cls(*(random_axis(rng) for _ in cls.axis_names))


class VaryingAxes(Joint):
    """A joint of plain coordinates whose S depends on them: Ṡ is S differentiated along q̇ = v, exactly."""

    def S_dot(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> Motions:
        moving = self.S([Dual(x, rate) for x, rate in zip(q, v, strict=True)])
        return Motions(Motion(slope_of(column.w), slope_of(column.v)) for column in moving)

    def bias(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> Motion:
        return self.S_dot(q, v) @ v

    def S_slope(self, q: Sequence[Scalar], k: int) -> Motions:
        return self.S_dot(q, [1.0 if j == k else 0.0 for j in range(self.nv)])

    def bias_slope(self, q: Sequence[Scalar], v: Sequence[Scalar], k: int) -> Motion:
        steady = [Dual(x) for x in v]  # v may be dual by itself: its slope is not to be taken for that along q^k
        moving = self.bias([Dual(x, 1.0 if j == k else 0.0) for j, x in enumerate(q)], steady)
        return Motion(slope_of(moving.w), slope_of(moving.v))
