"""Frames on the joints with z along the axis: what Lin 1991, its appendix (Renaud) and those of its tables are written in.

Lin's "normal driving-axis coordinate system" is the modified Denavit-Hartenberg one. Of it the formulas use only that the
axis of joint j is the z of frame E_j, which stands on joint j and moves with link j. Here E_j has the origin of link j's
own frame, and is turned where the axis of the joint is not its z.

| code      | Lin              | meaning                                                             |
|-----------|------------------|---------------------------------------------------------------------|
| T[j]      | ^j_{j-1}R, ^j_{j-1}s | E_j in the frame of the link before it, in factors              |
| K[j]      | K_j              | travel along the axis: 1 for a sliding joint, 0 for a turning one, the pitch for a screw |
| K_star[j] | K*_j             | turn about it: 0 for a sliding joint, 1 for the others, (7)         |
| inertia[j]|                  | mass, first and second moment of link j in E_j                      |

A screw needs nothing more: every formula is linear in the motion that a joint makes, K*_j turns and K_j travels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from qddot.errors import FormulationError
from qddot.joints import Joint, Z
from qddot.mechanism.joint_arrays import JointMatrix
from qddot.mechanism.model import Model
from qddot.scalars import Scalar
from qddot.spatial import Inertia, Product, Transform, transform_inertia, zero_inertia
from qddot.spatial.joint_blocks import Matrix, Vector
from qddot.spatial.rotation import IDENTITY, Mat, Vec, add, columns_map, transpose, z_to

Similarity = Callable[[Transform, Mat], Mat]


class JointFrames(NamedTuple):
    """E_j of every link, at one configuration."""

    T: list[Transform]
    K: list[float]
    K_star: list[float]
    inertia: list[Inertia]


def joint_frames(model: Model, q: Any) -> JointFrames:
    """The frames E_j; an error names the joint that has no single axis."""
    coordinates = model.coordinates(q)
    frames = JointFrames([Transform()], [0.0], [0.0], [zero_inertia()])
    turn = [IDENTITY]  # of E_j in the link's own frame
    for i, p in model.outward():
        joint, (turning, sliding) = _on_an_axis(model, i)
        axis = getattr(joint, "axis", Z)
        turn.append(IDENTITY if axis == Z else z_to(axis))
        placement = model.placement[i]
        if turn[p] is not IDENTITY or turn[i] is not IDENTITY:
            placement = Transform(turn[p].T) @ placement @ Transform(turn[i])
        motion = joint if axis == Z else replace(joint, axis=Z)  # type: ignore[type-var]
        frames.T.append(Product(placement, motion.transform(coordinates[i])))
        frames.K_star.append(turning)  # (7)
        frames.K.append(sliding)  # (7)
        own = model.inertia[i]
        frames.inertia.append(own if turn[i] is IDENTITY else transform_inertia(Transform(turn[i].T), own))
    return frames


def _on_an_axis(model: Model, i: int) -> tuple[Joint, tuple[float, float]]:
    joint = model.joint[i]
    if joint.screw is None:
        raise FormulationError(
            f"joint {model.joint_names[i]!r} of robot {model.name!r} is {joint.kind}; the formulations of Lin's paper "
            "are for joints of one axis (revolute, prismatic, helical): take another method, or method='auto'"
        )
    return joint, joint.screw


def put(model: Model, H: JointMatrix, m: int, j: int, x: Scalar) -> None:
    """H_mj and H_jm; on the diagonal with the rotor."""
    block = Matrix((Vector((x,)),))
    if m == j:
        H[j, j] = block.add_diagonal(model.armature[j])
    else:
        H[m, j] = H[j, m] = block


# ---- from frame to frame -----------------------------------------------------------------------------------------------


def outward(T: Transform, x: Vec) -> Vec:
    """^{j-1}_jR x: a vector known in the frame before, in E_j."""
    for P in T.parts:
        x = x if P.R is IDENTITY else P.R.T @ x
    return x


def inward(T: Transform, x: Vec) -> Vec:
    """^j_{j-1}R x: a vector known in E_j, in the frame before. Lin (16)."""
    for P in reversed(T.parts):
        x = x if P.R is IDENTITY else P.R @ x
    return x


def shifted(T: Transform, s: Vec) -> Vec:
    """^{j-1}_jR (s + ^j_{j-1}s), factor by factor: where E_j stands, seen from where s begins, in E_j. Lin (25)."""
    for P in T.parts:
        s = add(s, P.p)
        s = s if P.R is IDENTITY else P.R.T @ s
    return s


def planar_similarity(T: Transform, J: Mat) -> Mat:
    """R J Rᵀ of a symmetric J, one factor of R after the other: eight products each."""
    for P in reversed(T.parts):
        J = J if P.R is IDENTITY else P.R.similar_symmetric(J)
    return J


def listed_similarity(T: Transform, J: Mat) -> Mat:
    """R J Rᵀ with R as one matrix, Lin (17) (18): the columns of J turned, then the rows; of the result the upper triangle,
    and the last of its diagonal by the trace, which no rotation changes.
    """
    B = transpose(columns_map(lambda column: inward(T, column), J))
    x, y, trace = inward(T, B[0]), inward(T, B[1]), J[0][0] + J[1][1] + J[2][2]
    return (x, (x[1], y[1], y[2]), (x[2], y[2], trace - x[0] - y[1]))
