"""Tasks: each an error that vanishes at its target, its slopes with respect to the motion of the joints, and a weight.

A task is a function of one configuration and of its own numbers (target and weight), which differ from sample to sample:
they are inputs of compiled code, and only the kind of a task and its frame are part of the code.

| error           | of a frame at (R, p)                               | slopes                          |
|-----------------|----------------------------------------------------|---------------------------------|
| position        | Rᵀ(p* - p)                                         | linear rows of its Jacobian     |
| rotation        | 2 u, with the quaternion (u, w), w ≥ 0, of RᵀR*    | angular rows                    |
| look-at         | the same of the turn that brings its axis to the line of sight | angular rows and d × v / r |
| centre of mass  | c* - c                                             | its Jacobian                    |
| posture         | q* ⊖ q                                             | the unit matrix                 |
| loop closure    | -φ(q)                                              | A                               |

Slopes Jᵀ times errors are the exact direction of descent of the cost. That is |error|² for lengths; for a turn by θ it is
8 (1 - cos θ/2) = 2 |error|² / (1 + w), which is θ² for small angles. It needs no arctangent and has no other minimum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qddot.algorithms import energy, kinematics, loop_constraints
from qddot.dynamics.input_checks import real_numbers
from qddot.errors import InputError
from qddot.mechanism.configurations import difference
from qddot.mechanism.model import Model
from qddot.scalars import Scalar, less, split, sqrt, stack, total, where
from qddot.spatial import Transform
from qddot.spatial.joint_blocks import Vector
from qddot.spatial.rotation import (
    Rotation,
    Vec,
    as_vec,
    cross,
    dot,
    mat_mat,
    plane_basis,
    rotation_quaternion,
    scale,
    sub,
    unit,
)
from qddot.tasks import target_arrays

Array = NDArray[Any]

_BEHIND = 1e-12  # of (1 + cos θ)/2, below which an axis points away from its target, and no way is the shorter one
_CLOSE = 1e-12  # m²: of the line of sight to a target that is where the frame is
_WEIGHT = (1, "its weight")


class Errors(NamedTuple):
    """Of tasks at one configuration. With all rows weighted, slopes δ = rows is where errors vanish to first order."""

    rows: Vector
    slopes: tuple[Vector, ...]
    cost: Scalar
    length: Scalar = 0.0  # square of what is off in m, without weights
    angle: Scalar = 0.0  # in rad

    def __add__(self, other: Errors) -> Errors:  # type: ignore[override]
        rows, slopes = Vector((*self.rows, *other.rows)), (*self.slopes, *other.slopes)
        return Errors(rows, slopes, self.cost + other.cost, self.length + other.length, self.angle + other.angle)


def no_errors() -> Errors:
    return Errors(Vector(), (), 0.0)


class Task:
    """Something to reach, as well as its weight says. The square of weight times error is what it costs."""

    holds_arrays: ClassVar[bool] = True  # of the packages that users have, in its fields
    is_soft: ClassVar[bool] = False  # whether a solution need not reach it

    def code(self, model: Model) -> tuple[Any, ...]:
        """What compiled code depends on; an error if the robot has no such frame."""
        raise NotImplementedError

    def numbers(self, model: Model) -> Array:
        """Target and weights, (..., k)."""
        raise NotImplementedError

    def layout(self, model: Model) -> list[tuple[int, str]]:
        """How many of the numbers are what, in their order: for people who fill them in."""
        raise NotImplementedError

    def errors(self, model: Model, q: Any, x: Sequence[Scalar]) -> Errors:
        """At a configuration, where x are the task's numbers."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class _OfFrame(Task):
    """A task of one frame of the robot."""

    frame: str
    target: Any

    def code(self, model: Model) -> tuple[Any, ...]:
        return (type(self).__name__, model.frame(self.frame).name)

    def _what(self) -> str:
        return f"the target of {self.frame!r}"

    def _weight(self, x: ArrayLike) -> Array:
        return target_arrays.weights(x, f"the weight of {self.frame!r}")[..., None]

    def _frame(self, model: Model, q: Any) -> tuple[Rotation, Vec, list[Vector]]:
        """R, p and the rows of the Jacobian, angular first."""
        T, J = kinematics.pose_and_jacobian(model, q, model.frame(self.frame))
        return T.R, T.p, rows_of(J)


@dataclass(frozen=True, eq=False)
class Position(_OfFrame):
    """The origin of a frame at a point of the world, (..., 3)."""

    weight: ArrayLike = 1.0

    def numbers(self, model: Model) -> Array:
        return target_arrays.joined(target_arrays.points(self.target, self._what()), self._weight(self.weight))

    def layout(self, model: Model) -> list[tuple[int, str]]:
        return [(3, f"where the origin of {self.frame!r} is to be, m"), _WEIGHT]

    def errors(self, model: Model, q: Any, x: Sequence[Scalar]) -> Errors:
        R, p, J = self._frame(model, q)
        return _of_position(R, p, J[3:], as_vec(x), x[3])


@dataclass(frozen=True, eq=False)
class Orientation(_OfFrame):
    """The axes of a frame: rotation matrices (..., 3, 3) or quaternions (..., 4), scalar last."""

    weight: ArrayLike = 1.0

    def numbers(self, model: Model) -> Array:
        R = target_arrays.rotations(self.target, self._what())
        return target_arrays.joined(R.reshape(*R.shape[:-2], 9), self._weight(self.weight))

    def layout(self, model: Model) -> list[tuple[int, str]]:
        return [_rotation_of(self.frame), _WEIGHT]

    def errors(self, model: Model, q: Any, x: Sequence[Scalar]) -> Errors:
        R, _, J = self._frame(model, q)
        return _of_rotation(R, J[:3], x[:9], x[9])


@dataclass(frozen=True, eq=False)
class Pose(_OfFrame):
    """Position and axes of a frame: 4×4 matrices, (p, R), (p, quaternion) or a `qddot.Transform`.

    `rotation_weight` is that of the rotation where it has another one than the position.
    """

    weight: ArrayLike = 1.0
    rotation_weight: ArrayLike | None = None

    def numbers(self, model: Model) -> Array:
        p, R = target_arrays.poses(self.target, self._what())
        turning = self.weight if self.rotation_weight is None else self.rotation_weight
        parts = (p, self._weight(self.weight), R.reshape(*R.shape[:-2], 9), self._weight(turning))
        return target_arrays.joined(*parts)

    def layout(self, model: Model) -> list[tuple[int, str]]:
        return [(3, f"where the origin of {self.frame!r} is to be, m"), _WEIGHT, _rotation_of(self.frame), _WEIGHT]

    def errors(self, model: Model, q: Any, x: Sequence[Scalar]) -> Errors:
        R, p, J = self._frame(model, q)
        return _of_position(R, p, J[3:], as_vec(x), x[3]) + _of_rotation(R, J[:3], x[4:13], x[13])


@dataclass(frozen=True, eq=False)
class LookAt(_OfFrame):
    """An axis of a frame, such as a camera's, through a point of the world, (..., 3), ahead of it."""

    axis: Sequence[float] = (0.0, 0.0, 1.0)
    weight: ArrayLike = 1.0

    def code(self, model: Model) -> tuple[Any, ...]:
        return (*super().code(model), self._axis())

    def _axis(self) -> Vec:
        axis = target_arrays.points(self.axis, f"the axis of {self.frame!r}")
        if axis.shape != (3,) or not np.isfinite(axis).all() or not np.any(axis):
            raise InputError(f"the axis of {self.frame!r} is {self.axis!r}; give three numbers that are not all zero")
        return unit(as_vec(axis.tolist()))

    def numbers(self, model: Model) -> Array:
        return target_arrays.joined(target_arrays.points(self.target, self._what()), self._weight(self.weight))

    def layout(self, model: Model) -> list[tuple[int, str]]:
        return [(3, f"the point that {self.frame!r} is to look at, m"), _WEIGHT]

    def errors(self, model: Model, q: Any, x: Sequence[Scalar]) -> Errors:
        R, p, J = self._frame(model, q)
        axis, far = self._axis(), R.T @ sub(as_vec(x), p)
        square = dot(far, far)
        reach = 1.0 / sqrt(where(less(square, _CLOSE), _CLOSE, square))
        d = scale(reach, far)
        half = 0.5 + 0.5 * dot(axis, d)  # cos² θ/2
        w = sqrt(where(less(half, _BEHIND), _BEHIND, half))
        turn = scale(1.0 / w, cross(axis, d))
        seen = [J[0] + reach * (d[1] * J[5] - d[2] * J[4])]  # the line of sight turns with d × v / r
        seen += [J[1] + reach * (d[2] * J[3] - d[0] * J[5]), J[2] + reach * (d[0] * J[4] - d[1] * J[3])]
        across = plane_basis(axis)  # about the axis itself the frame may turn
        slopes = tuple(x[3] * (t[0] * seen[0] + t[1] * seen[1] + t[2] * seen[2]) for t in across)
        off = dot(turn, turn)
        return Errors(Vector(x[3] * dot(t, turn) for t in across), slopes, x[3] * x[3] * _turned(off, w), angle=off)


@dataclass(frozen=True, eq=False)
class CenterOfMass(Task):
    """The centre of mass of the moving links at a point of the world, (..., 3).

    `weight` may be three numbers, one an axis of the world; along those of weight zero it is free.
    """

    target: Any
    weight: ArrayLike = 1.0

    def code(self, model: Model) -> tuple[Any, ...]:
        if model.mass == 0.0:
            raise InputError(f"robot {model.name!r} has no mass, so it has no centre of mass")
        return (type(self).__name__,)

    def numbers(self, model: Model) -> Array:
        weight = target_arrays.weights(self.weight, "the weight of the centre of mass")
        each = target_arrays.points(weight, "the weight of the centre of mass") if weight.ndim else weight[None].repeat(3)
        return target_arrays.joined(target_arrays.points(self.target, "the target of the centre of mass"), each)

    def layout(self, model: Model) -> list[tuple[int, str]]:
        return [(3, "where the centre of mass is to be, m"), (3, "weights of its axes")]

    def errors(self, model: Model, q: Any, x: Sequence[Scalar]) -> Errors:
        off, each = sub(as_vec(x), energy.center_of_mass(model, q)), Vector(x[3:6])
        J, rows = rows_of(energy.center_of_mass_jacobian(model, q)), each.times(off)
        counted = total(where(less(0.0, w), e * e, 0.0) for w, e in zip(each, off, strict=True))
        return Errors(rows, tuple(w * row for w, row in zip(each, J, strict=True)), rows.dot(rows), counted)


@dataclass(frozen=True, eq=False)
class Posture(Task):
    """A configuration to stay near, (..., nq), where the other tasks leave a choice. It is soft: it need not be reached.

    `weight` may be one number a degree of freedom, zero for those that it leaves alone.
    """

    q: ArrayLike
    weight: ArrayLike = 1e-3
    is_soft = True

    def code(self, model: Model) -> tuple[Any, ...]:
        return (type(self).__name__,)

    def numbers(self, model: Model) -> Array:
        weight = target_arrays.weights(self.weight, "the weight of a posture")
        each = (
            target_arrays.points(weight, "the weight of a posture", model.nv)
            if weight.ndim
            else weight[None].repeat(model.nv)
        )
        return target_arrays.joined(target_arrays.points(self.q, "the posture", model.nq), each)

    def layout(self, model: Model) -> list[tuple[int, str]]:
        return [(model.nq, "the configuration to stay near, in the order of q"), (model.nv, "weights, in the order of v")]

    def errors(self, model: Model, q: Any, x: Sequence[Scalar]) -> Errors:
        off = Vector(split(difference(model, q, stack(x[: model.nq]))))
        each = Vector(x[model.nq :])
        rows = each.times(off)
        return Errors(rows, tuple(each.only(k) for k in range(model.nv)), rows.dot(rows))


@dataclass(frozen=True, eq=False)
class LoopClosure(Task):
    """Closed loops, and other constraints on positions: in every solution of a robot that has some, unless it is given.

    What they miss by counts as a length, in m or rad.
    """

    weight: ArrayLike = 1.0

    def code(self, model: Model) -> tuple[Any, ...]:
        if not _rows_on_positions(model):
            raise InputError(f"robot {model.name!r} has no loops and no constraints on positions")
        return (type(self).__name__,)

    def numbers(self, model: Model) -> Array:
        return target_arrays.weights(self.weight, "the weight of loop closure")[..., None]

    def layout(self, model: Model) -> list[tuple[int, str]]:
        return [(1, "weight of the closure of loops")]

    def errors(self, model: Model, q: Any, x: Sequence[Scalar]) -> Errors:
        phi, A = split(loop_constraints.residual(model, q)), loop_constraints.jacobian_rows(model, q)
        off = Vector(-1.0 * phi[r] for r in _rows_on_positions(model))
        rows = x[0] * off
        return Errors(rows, tuple(x[0] * Vector(A[r]) for r in _rows_on_positions(model)), rows.dot(rows), off.dot(off))


def has_positions(model: Model) -> bool:
    """Whether there is something to close."""
    return bool(_rows_on_positions(model))


def _rows_on_positions(model: Model) -> list[int]:
    """Without the rows of constraints on velocities alone."""
    on = [True] * sum(loop.joint.loop_row_count for loop in model.loops)
    for own in model.constraints:
        on += [own.position is not None] * own.rows
    return [r for r, is_on in enumerate(on) if is_on]


def rows_of(A: Array) -> list[Vector]:
    """A matrix, or a batch of them, row by row in scalars."""
    m, n = A.shape[-2:]
    entries = split(A.reshape(*A.shape[:-2], m * n))
    return [Vector(entries[r * n : (r + 1) * n]) for r in range(m)]


def _rotation_of(frame: str) -> tuple[int, str]:
    return 9, f"the axes of {frame!r}, a rotation matrix row by row"


def _of_position(R: Rotation, p: Vec, J: list[Vector], target: Vec, weight: Scalar) -> Errors:
    off = R.T @ sub(target, p)
    square = dot(off, off)
    return Errors(weight * Vector(off), tuple(weight * row for row in J), weight * weight * square, square)


def _of_rotation(R: Rotation, J: list[Vector], target: Sequence[Scalar], weight: Scalar) -> Errors:
    a, b, c = (as_vec(target[3 * k : 3 * k + 3]) for k in range(3))
    x, y, z, w = rotation_quaternion(Rotation(mat_mat(R.T.rows, (a, b, c))))
    twice = where(less(w, 0.0), -2.0, 2.0)
    off = Vector((twice * x, twice * y, twice * z))
    square = off.dot(off)
    cost = weight * weight * _turned(square, 0.5 * twice * w)
    return Errors(weight * off, tuple(weight * row for row in J), cost, angle=square)


def _turned(square: Scalar, w: Scalar) -> Scalar:
    """8 (1 - cos θ/2) of |error|² = 4 sin² θ/2 and w = cos θ/2."""
    return 2.0 * square / (1.0 + w)


def as_tasks(targets: Any) -> list[Task]:
    """Tasks from a user's: one, several, or targets by frame, where three numbers are a position, all else a pose."""
    if isinstance(targets, Task):
        return [targets]
    if isinstance(targets, Mapping):
        return [x if isinstance(x, Task) else _of_target(frame, x) for frame, x in targets.items()]
    try:
        found = list(targets)
    except TypeError:
        found = [None]
    if not all(isinstance(x, Task) for x in found):
        raise InputError("targets are neither {frame: target} nor tasks of qddot.tasks")
    return found


def _of_target(frame: str, x: Any) -> Task:
    is_pose = isinstance(x, Transform | tuple) or real_numbers(x, f"the target of {frame!r}").shape[-1:] != (3,)
    if isinstance(x, tuple) and len(x) == 3:  # a point, not (p, R)
        is_pose = False
    return Pose(frame, x) if is_pose else Position(frame, x)
