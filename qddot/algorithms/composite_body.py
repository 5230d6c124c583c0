"""The mass matrix by composite rigid bodies.

Featherstone & Orin 2000, section 3.2 (Walker & Orin's method 3, and method 1 as the definition); their method 2 beside it.

| code    | paper    | meaning                                                   |
|---------|----------|-----------------------------------------------------------|
| I_C[i]  | I_i^C    | inertia of the subtree that link i carries, as one body   |
| carried |          | Σ I_k^C of the links k that link i carries, in link i     |
| f_C     | f_i^C(j) | force that accelerates it along joint i, seen in link j   |
| M[j,i]  | M_ji     | block of the mass matrix                                  |

Cost: O(n · depth).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.algorithms.kinematics import link_poses
from qddot.algorithms.newton_euler import rigid_body_forces
from qddot.mechanism.joint_arrays import PerLink
from qddot.mechanism.model import Model
from qddot.spatial import Ad_inv_T, Transform, transform_inertia, zero_inertia
from qddot.spatial.joint_blocks import Ad_columns, Ad_inv_columns, Ad_inv_T_columns, apply


def composite_inertias(model: Model, T: list[Transform]) -> PerLink:
    """I_i^C, each link with all that it carries.   Featherstone & Orin (9)."""
    I_C, carried = model.per_link("I_C", "carried")
    carried[0] = zero_inertia()
    for i, _ in model.outward():
        carried[i] = zero_inertia()
    for i, p in model.inward():
        I_C[i] = model.inertia[i] + carried[i]
        carried[p] = carried[p] + transform_inertia(T[i], I_C[i])
    return I_C


def mass_matrix(model: Model, q: Any) -> NDArray[Any]:
    """M in link coordinates.   Featherstone & Orin, the listing after (10)."""
    T, S = model.transforms(q), model.axes(q)
    I_C, M, (f_C,) = composite_inertias(model, T), model.joint_matrix("M"), model.per_link("f_C")
    for i, p, k in model.columns():
        column, row = M.column(i, k), M.row(i, k)
        f_C[i] = I_C[i] @ S[i][k]
        column[i] = S[i].T @ f_C[i] + model.armature[i].only(k)
        f_C[p] = Ad_inv_T(T[i], f_C[i])
        for j, p_j in model.path_to_base(p):  # the same force passes through every joint down to the base
            column[j] = row[j] = S[j].T @ f_C[j]
            f_C[p_j] = Ad_inv_T(T[j], f_C[j])
    return M.stack()


def mass_matrix_absolute(model: Model, q: Any) -> NDArray[Any]:
    """M in absolute coordinates.   Featherstone & Orin (9) (10)."""
    T_W, S = link_poses(model, q), model.axes(q)
    h = [Ad_columns(T_W[i], S[i]) for i in range(len(S))]
    I_C = [transform_inertia(T_W[i], model.inertia[i]) for i in range(len(S))]
    M = model.joint_matrix("M")
    for i, p in model.inward():
        f_C = apply(I_C[i], h[i])
        M[i, i] = h[i].T.on(f_C).add_diagonal(model.armature[i])  # (10)
        for j in model.ancestors(p):
            block = h[j].T.on(f_C)  # (10)
            M[j, i], M[i, j] = block, block.T
        I_C[p] = I_C[p] + I_C[i]  # (9)
    return M.stack()


def mass_matrix_by_columns(model: Model, q: Any) -> NDArray[Any]:
    """M δ_i = D(q, 0, δ_i) - D(q, 0, 0), a column each.   Featherstone & Orin 3.2; Walker & Orin, method 1."""
    rest = np.zeros(model.nv)
    still = rigid_body_forces(model, q, rest, rest)
    return model.by_columns(lambda delta: rigid_body_forces(model, q, rest, delta) - still)


def mass_matrix_by_half_columns(model: Model, q: Any) -> NDArray[Any]:
    """Of each column of M what lies outward of its joint; the rest is symmetric.   Walker & Orin, method 2.

    When joint j alone accelerates, from rest and without gravity, only the links that it carries move.
    """
    T, S, M = model.transforms(q), model.axes(q), model.joint_matrix("M")
    for j, _ in model.outward():
        carried = [i for i, _ in model.outward() if j in model.ancestors(i)]
        A, F = {j: S[j]}, {j: apply(model.inertia[j], S[j])}
        for i in carried[1:]:
            A[i] = Ad_inv_columns(T[i], A[model.parent[i]])
            F[i] = apply(model.inertia[i], A[i])
        for i in reversed(carried[1:]):
            block, p = S[i].T.on(F[i]), model.parent[i]
            M[i, j], M[j, i] = block, block.T
            F[p] = F[p] + Ad_inv_T_columns(T[i], F[i])
        M[j, j] = S[j].T.on(F[j]).add_diagonal(model.armature[j])
    return M.stack()
