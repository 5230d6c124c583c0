"""Constraints on a tree: closed loops and a user's own, as φ(q) = 0, A q̇ = 0 and A q̈ + Ȧq̇ = 0.

Featherstone & Orin 2000, (16) (17); Kim 2012, (55) (71). `qddot.joints.loop_rows` has the rows of each kind of joint. The
rows of a loop are in the coordinates of its frame b; the joints that carry both of its frames do not appear in them.

| code  | Featherstone & Orin | Kim | meaning                                                              |
|-------|---------------------|-----|----------------------------------------------------------------------|
| φ     | φ(q)                | f(q)| residual; a constraint on velocities alone has none                  |
| A     | φ'                  | A   | V_ab = V_b - Ad_{T_ab⁻¹} V_a, paired with the rows C                 |
| Ȧq̇    | φ̇' q̇                | Ȧq̇  | C on V̇_ab at q̈ = 0, V̇_b - Ad_{T_ab⁻¹} V̇_a + ad_{V_ab} V_b, and Ċᵀ V_ab |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.algorithms.kinematics import link_accelerations, link_poses, link_velocities
from qddot.joints import LoopRows
from qddot.mechanism.model import Constraint, Loop, Model
from qddot.scalars import Scalar, split, stack
from qddot.spatial import Ad_inv, Motion, Transform, ad
from qddot.spatial.dual import Dual
from qddot.spatial.joint_blocks import Ad_inv_columns, Motions, Vector

Row = list[Scalar]


def count(model: Model) -> int:
    """How many rows the constraints have, dependent ones included."""
    return sum(p.joint.loop_row_count for p in model.loops) + sum(c.rows for c in model.constraints)


def row_names(model: Model) -> list[str]:
    """Whose row each is, such as "loop 'tip' row 2"."""
    owners = [(f"loop {p.name!r}", p.joint.loop_row_count) for p in model.loops]
    owners += [(f"constraint {c.name!r}", c.rows) for c in model.constraints]
    return [f"{owner} row {k}" for owner, n in owners for k in range(n)]


def residual(model: Model, q: Any) -> NDArray[Any]:
    """φ(q).   Featherstone & Orin (16). Rows of constraints on velocities are zero."""
    T_W, out = link_poses(model, q), Row()
    for loop in model.loops:
        T_a, T_b = T_W[loop.link_a] @ loop.placement_a, T_W[loop.link_b] @ loop.placement_b
        out += loop.joint.loop_rows(T_a.inverse() @ T_b).residual  # Featherstone & Orin (16)
    for own in model.constraints:
        out += [0.0] * own.rows if own.position is None else list(own.position(split(q)))
    return stack(out)


def jacobian(model: Model, q: Any) -> NDArray[Any]:
    """A.   Kim (55), Featherstone & Orin (17)."""
    rows = jacobian_rows(model, q)
    return stack([x for row in rows for x in row], (len(rows), model.nv))


def jacobian_rows(model: Model, q: Any) -> list[Row]:
    """A, row by row."""
    T, S = model.transforms(q), model.axes(q)
    out: list[Row] = []
    for loop in model.loops:
        columns, close = relative_columns(model, T, S, loop)
        out += [[x.dot(row) if isinstance(x, Motion) else 0.0 for x in columns] for row in close.rows]
    for own in model.constraints:
        out += _own_rows(model, own, split(q))
    return out


def relative_columns(model: Model, T: Sequence[Transform], S: Sequence[Motions], loop: Loop) -> tuple[list[Any], LoopRows]:
    """V_ab = Σ columns_k v_k in the coordinates of b, and the closing joint where it is."""
    on_a, on_b = list(model.ancestors(loop.link_a)), list(model.ancestors(loop.link_b))
    moved: list[tuple[int, Motions, float]] = []
    T_b, T_a = loop.placement_b, loop.placement_a
    for j in (j for j in on_b if j not in on_a):
        moved.append((j, Ad_inv_columns(T_b, S[j]), 1.0))
        T_b = T[j] @ T_b
    behind: list[tuple[int, Motions]] = []
    for j in (j for j in on_a if j not in on_b):
        behind.append((j, Ad_inv_columns(T_a, S[j])))
        T_a = T[j] @ T_a
    T_ab = T_a.inverse() @ T_b
    moved += [(j, Ad_inv_columns(T_ab, columns), -1.0) for j, columns in behind]
    out: list[Any] = [None] * model.nv
    for j, columns, sign in moved:
        slot = model.slots[j]
        factor = sign if slot.factor is None else sign * slot.factor
        for k, column in enumerate(columns, slot.v.start):
            own = column if factor == 1.0 else factor * column
            out[k] = own if out[k] is None else out[k] + own
    return out, loop.joint.loop_rows(T_ab)


def bias(model: Model, q: Any, v: Any) -> NDArray[Any]:
    """Ȧq̇: what φ̈ is when nothing accelerates.   Featherstone & Orin (17), Kim (71)."""
    T_W, V = link_poses(model, q), link_velocities(model, q, v)
    Vdot, out = link_accelerations(model, q, v, np.zeros(model.nv)), Row()
    for loop in model.loops:
        T_a, T_b = T_W[loop.link_a] @ loop.placement_a, T_W[loop.link_b] @ loop.placement_b
        T_ab = T_a.inverse() @ T_b
        V_b, Vdot_b = Ad_inv(loop.placement_b, V[loop.link_b]), Ad_inv(loop.placement_b, Vdot[loop.link_b])
        V_a, Vdot_a = Ad_inv(loop.placement_a, V[loop.link_a]), Ad_inv(loop.placement_a, Vdot[loop.link_a])
        V_ab = V_b - Ad_inv(T_ab, V_a)  # Featherstone & Orin (17), Kim (71)
        Vdot_ab = Vdot_b - Ad_inv(T_ab, Vdot_a) + ad(V_ab, V_b)  # Featherstone & Orin (17), Kim (71)
        close = loop.joint.loop_rows(T_ab)
        out += close.rows.dot(Vdot_ab) + close.drift(V_ab)
    for own in model.constraints:
        out += _own_bias(model, own, split(q), split(v))
    return stack(out)


def joint_forces(model: Model, q: Any, tau_loops: Any) -> NDArray[Any]:
    """τ_a of Featherstone & Orin (19): what forces in the closing joints, loop after loop, are to the tree's joints."""
    T, S, tau, first = model.transforms(q), model.axes(q), split(tau_loops), 0
    out: Row = [0.0] * model.nv
    for loop in model.loops:
        columns, close = relative_columns(model, T, S, loop)
        F = close.joint_force(Vector(tau[first : first + loop.joint.nv]))
        out = [x if c is None else x + c.dot(F) for x, c in zip(out, columns, strict=True)]
        first += loop.joint.nv
    return stack(out)


# ---- a user's own constraints ------------------------------------------------------------------------------------------


def _rates(model: Model, q: Sequence[Scalar], v: Sequence[Scalar]) -> Row:
    """How the coordinates change when the robot moves with v."""
    own = [i for i, _ in model.outward() if model.mimic[i] is None]
    return [x for i in own for x in model.joint[i].rate(q[model.slots[i].q], v[model.slots[i].v])]


def _moving(model: Model, q: Sequence[Scalar], v: Sequence[Scalar]) -> list[Dual]:
    return [Dual(x, rate) for x, rate in zip(q, _rates(model, q, v), strict=True)]


def _slope(x: Any) -> Scalar:
    return x.slope if isinstance(x, Dual) else 0.0


def _own_rows(model: Model, own: Constraint, q: Row) -> list[Row]:
    columns = []
    for unit in np.eye(model.nv).tolist():
        if own.velocity is not None:
            columns.append(list(own.velocity(q, unit)))
        elif own.position is not None:
            columns.append([_slope(x) for x in own.position(_moving(model, q, unit))])
    return [list(row) for row in zip(*columns, strict=True)]


def _own_bias(model: Model, own: Constraint, q: Row, v: Row) -> Row:
    moving = _moving(model, q, v)
    steady = [Dual(x) for x in v]  # v may be dual by itself: its slope is not to be taken for that along the motion
    if own.velocity is not None:
        return [_slope(x) for x in own.velocity(moving, steady)]
    twice = [Dual(x, rate) for x, rate in zip(moving, _rates(model, moving, steady), strict=True)]
    return [_slope(_slope(x)) for x in own.position(twice)] if own.position is not None else []
