"""What a joint forbids when it closes a loop: its constraint rows, in the coordinates of the frame that it carries.

T is the pose of the loop's frame b in its frame a, V = T⁻¹Ṫ their relative twist in b. A joint with axes S lets V = S q̇;
its rows are the columns of C with CᵀS = 0, one for each freedom that it takes. The residual φ(T) vanishes exactly where
the joint can be, and on closed loops its rate is CᵀV. Off them the two differ in proportion to the residual.

| kind                          | rows: rotations, then translations                                    |
|-------------------------------|-----------------------------------------------------------------------|
| fixed                         | three turns, three shifts                                             |
| revolute                      | two tilts of the axis, three shifts                                   |
| prismatic                     | three turns, two shifts across the axis                               |
| helical                       | two tilts, two shifts across the axis, travel less pitch times angle  |
| cylindrical                   | two tilts, two shifts across the axis                                 |
| universal                     | the angle between its two axes, three shifts                          |
| planar                        | two tilts of the normal, the shift along it                           |
| translational                 | three turns                                                           |
| spherical, of all three kinds | three shifts                                                          |
| free                          | none                                                                  |
| own                           | six, of which as many are independent as the joint takes freedoms     |

Turns and tilts are measured as 2 tan(half the angle): that is the angle where it is small, and no half turn looks closed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from typing import NamedTuple

from qddot.joints import (
    Cylindrical,
    Fixed,
    Free,
    Helical,
    Joint,
    Own,
    Planar,
    Prismatic,
    Revolute,
    Spherical,
    SphericalEuler,
    SphericalExponential,
    Translational,
    Universal,
)
from qddot.scalars import Scalar, sqrt
from qddot.spatial import Force, Motion, Transform, log
from qddot.spatial.joint_blocks import Forces, Motions, Vector
from qddot.spatial.rotation import EYE, ZERO, Rotation, Vec, axis_angle, cross, dot, mat_mat, scale, sub

_STEPS = 12  # of Newton's method for the coordinates of a user's own joint: quadratic from anywhere near


class Closing(NamedTuple):
    """A closing joint at a relative pose: residual φ, rows C, axes S, and the part Ċᵀ V of the rows' rate."""

    residual: Vector
    rows: Forces
    axes: Motions
    drift: Callable[[Motion], Vector]


@singledispatch
def closing(joint: Joint, T: Transform) -> Closing:
    """The constraint that a joint puts on the relative pose T of the frames it connects."""
    raise NotImplementedError(f"a {joint.kind} joint cannot close a loop")


def row_count(joint: Joint) -> int:
    """How many rows a closing joint has."""
    return 6 if isinstance(joint, Own) else 6 - joint.nv


def _constant(residual: list[Scalar], turns: list[Vec], shifts: list[Vec], joint: Joint) -> Closing:
    rows = [*(Force(n, ZERO) for n in turns), *(Force(ZERO, n) for n in shifts)]
    return Closing(Vector(residual), Forces(rows), joint.S(joint.neutral()), lambda V: Vector(0.0 for _ in rows))


def _shift(T: Transform, allowed: Vec = ZERO) -> Vec:
    """How far b's origin is from where the joint lets it be, in b's axes."""
    return T.R.T @ (T.p if allowed is ZERO else sub(T.p, allowed))


def _turn(R: Rotation) -> Vec:
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = R.rows
    return scale(2.0 / (1.0 + xx + yy + zz), (zy - yz, xz - zx, yx - xy))


def _tilt(axis: Vec, T: Transform) -> list[Scalar]:
    n = T.R.T @ axis
    off = scale(2.0 / (1.0 + dot(n, axis)), cross(n, axis))
    return [dot(e, off) for e in Planar(axis).basis]


@closing.register
def _fixed(joint: Fixed, T: Transform) -> Closing:
    return _constant([*_turn(T.R), *_shift(T)], list(EYE), list(EYE), joint)


@closing.register
def _revolute(joint: Revolute, T: Transform) -> Closing:
    across = list(Planar(joint.axis).basis)
    return _constant([*_tilt(joint.axis, T), *_shift(T)], across, list(EYE), joint)


@closing.register
def _prismatic(joint: Prismatic, T: Transform) -> Closing:
    across = list(Planar(joint.axis).basis)
    off = _shift(T, scale(dot(joint.axis, T.p), joint.axis))
    return _constant([*_turn(T.R), *(dot(e, off) for e in across)], list(EYE), across, joint)


@closing.register
def _cylindrical(joint: Cylindrical, T: Transform) -> Closing:
    across = list(Planar(joint.axis).basis)
    off = _shift(T, scale(dot(joint.axis, T.p), joint.axis))
    return _constant([*_tilt(joint.axis, T), *(dot(e, off) for e in across)], across, across, joint)


@closing.register
def _helical(joint: Helical, T: Transform) -> Closing:
    if joint.pitch == 0.0:
        return _revolute(Revolute(joint.axis), T)
    travelled = dot(joint.axis, T.p)
    unscrewed = axis_angle(joint.axis, travelled / joint.pitch).T
    left = Rotation(mat_mat(unscrewed.rows, T.R.rows))
    size = 1.0 / float(sqrt(1.0 + joint.pitch**2))
    residual, rows, _, drift = _cylindrical(Cylindrical(joint.axis), T)
    screw = -size * joint.pitch * dot(joint.axis, _turn(left))
    row = Force(scale(-size * joint.pitch, joint.axis), scale(size, joint.axis))
    return Closing(Vector((*residual, screw)), Forces((*rows, row)), joint.S((0.0,)), lambda V: Vector((*drift(V), 0.0)))


@closing.register
def _planar(joint: Planar, T: Transform) -> Closing:
    residual = [*_tilt(joint.axis, T), dot(joint.axis, T.p)]
    return _constant(residual, list(joint.basis), [joint.axis], joint)


@closing.register
def _translational(joint: Translational, T: Transform) -> Closing:
    return _constant(list(_turn(T.R)), list(EYE), [], joint)


@closing.register(Spherical)
@closing.register(SphericalEuler)
@closing.register(SphericalExponential)
def _spherical(joint: Joint, T: Transform) -> Closing:
    """However a ball joint's coordinates are chosen, it forbids the same; its axes are those of frame b."""
    return _constant(list(_shift(T)), [], list(EYE), Spherical())


@closing.register
def _free(joint: Free, T: Transform) -> Closing:
    return _constant([], [], [], joint)


@closing.register
def _universal(joint: Universal, T: Transform) -> Closing:
    first = T.R.T @ joint.first  # in the child's frame, where the second axis stands still
    normal = cross(joint.second, first)
    residual = [dot(first, joint.second) - dot(joint.first, joint.second), *_shift(T)]

    def drift(V: Motion) -> Vector:
        return Vector((dot(V.w, cross(joint.second, cross(first, V.w))), 0.0, 0.0, 0.0))

    rows = Forces((Force(normal, ZERO), *(Force(ZERO, e) for e in EYE)))
    return Closing(Vector(residual), rows, Motions((Motion(first, ZERO), Motion(joint.second, ZERO))), drift)


@closing.register
def _own(joint: Own, T: Transform) -> Closing:
    """The joint's coordinates are found by Newton's method; the rows are the projector 1 - S S⁺, so six of them."""
    q = Vector(joint.neutral())
    for _ in range(_STEPS):
        q = q + _along(joint.S(q), log(joint.transform(q).inverse() @ T))
    S = joint.S(q)
    left = log(joint.transform(q).inverse() @ T)
    off = left - S @ _along(S, left)
    units = [Motion(e, ZERO) for e in EYE] + [Motion(ZERO, e) for e in EYE]
    columns = [x - S @ _along(S, x) for x in units]  # symmetric: its columns are its rows

    def drift(V: Motion) -> Vector:
        bias = joint.bias(q, _along(S, V))
        return -1.0 * Vector((bias - S @ _along(S, bias)).components)

    return Closing(Vector(off.components), Forces(Force(c.w, c.v) for c in columns), S, drift)


def _along(S: Motions, V: Motion) -> Vector:
    """S⁺ V: the joint velocity whose twist comes nearest."""
    duals = Forces(Force(s.w, s.v) for s in S)
    return S.T.on(duals).inverse() @ (S.T @ Force(V.w, V.v))


def joint_force(axes: Motions, tau: Vector) -> Force:
    """The force on frame b that closing joint forces tau make: S (SᵀS)⁻¹ τ, whose power is τᵀq̇."""
    duals = Forces(Force(s.w, s.v) for s in axes)
    return duals @ (axes.T.on(duals).inverse() @ tau)
