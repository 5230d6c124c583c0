"""What a joint forbids when it closes a loop: its constraint rows, in the coordinates of the frame that it carries.

T is the pose of the loop's frame b in its frame a, V = T⁻¹Ṫ their relative twist in b. A joint with axes S lets V = S q̇;
its rows are the columns of C with CᵀS = 0, one for each degree of freedom that it takes. The residual φ(T) vanishes
exactly where the joint can be, and on closed loops its rate is CᵀV. Off them the two differ in proportion to the residual.

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
| own                           | six, of which as many are independent as the joint takes away         |

Turns and tilts are measured as 2 tan(half the angle): that is the angle where it is small, and no half turn looks closed.
`Joint.loop_rows` of each kind puts them together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from qddot.scalars import Scalar
from qddot.spatial import Force, Motion, Transform
from qddot.spatial.joint_blocks import Forces, Motions, Vector
from qddot.spatial.rotation import ZERO, Rotation, Vec, cross, dot, plane_basis, scale, sub


class LoopRows(NamedTuple):
    """A loop joint at a relative pose: residual φ, rows C, axes S, and the part Ċᵀ V of the rows' rate."""

    residual: Vector
    rows: Forces
    axes: Motions
    drift: Callable[[Motion], Vector]

    def joint_force(self, tau: Vector) -> Force:
        """The force on frame b that forces tau in the loop joint make: S (SᵀS)⁻¹ τ, whose power is τᵀq̇."""
        duals = Forces(Force(s.w, s.v) for s in self.axes)
        return duals @ (self.axes.T.on(duals).inverse() @ tau)


def constant_rows(residual: Sequence[Scalar], turns: Sequence[Vec], shifts: Sequence[Vec], axes: Motions) -> LoopRows:
    """Rows that stand still in frame b."""
    rows = [*(Force(n, ZERO) for n in turns), *(Force(ZERO, n) for n in shifts)]
    return LoopRows(Vector(residual), Forces(rows), axes, lambda V: Vector(0.0 for _ in rows))


def shift(T: Transform, allowed: Vec = ZERO) -> Vec:
    """How far b's origin is from where the joint lets it be, in b's axes."""
    return T.R.T @ (T.p if allowed is ZERO else sub(T.p, allowed))


def shift_across(axis: Vec, T: Transform) -> list[Scalar]:
    """The two components of b's shift normal to an axis."""
    off = shift(T, scale(dot(axis, T.p), axis))
    return [dot(e, off) for e in plane_basis(axis)]


def turn(R: Rotation) -> Vec:
    """2 tan(half the angle) along the axis of a rotation."""
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = R.rows
    return scale(2.0 / (1.0 + xx + yy + zz), (zy - yz, xz - zx, yx - xy))


def tilt(axis: Vec, T: Transform) -> list[Scalar]:
    """How an axis is tilted, by components in the plane normal to it."""
    n = T.R.T @ axis
    off = scale(2.0 / (1.0 + dot(n, axis)), cross(n, axis))
    return [dot(e, off) for e in plane_basis(axis)]
