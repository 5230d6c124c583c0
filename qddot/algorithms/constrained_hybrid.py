"""Hybrid dynamics with constraints by recursions: one call of Table 4 and m + 1 reduced ones.

Kim 2012, section 3.3, (70)-(80), with errata K2 and K10. `constrained.hybrid_accelerations` is the same by dense matrices.

| code           | Kim            | meaning                                                                  |
|----------------|----------------|--------------------------------------------------------------------------|
| u, w           | u, v           | DoF with prescribed acceleration, DoF with given force         |
| A, c           | A, -Ȧq̇         | the rows that are kept as independent, and what A q̈ is to be             |
| qdd_r, tau_r   | q̈_r, τ_ur      | accelerations and forces of the tree without the constraints             |
| qdd_c, tau_c   | q̈_vc, τ_uc     | what the constraint forces alone do to it at rest, with q̈_u = 0          |
| X              | M_vv⁻¹A_vᵀ     | by columns                                                               |
| W              | A_v M_vv⁻¹A_vᵀ |                                                                          |
| lam            | λ              | forces of the kept rows, zero for the others                             |

A reduced call knows neither velocity, gravity nor prescribed motion, and reuses articulated inertias and transforms. λ is
unique where the kept rows of A_v are independent, so that m ≤ n_v; W and its pivots tell how nearly they depend on each
other, as in `constrained`. Cost: O(n m) for the calls, O(m³) for W.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from qddot.algorithms.composite_body import mass_matrix
from qddot.algorithms.constrained_dynamics import all_multipliers, closure, dependence
from qddot.algorithms.hybrid import Chosen, at, columns, hybrid_dynamics, kinds_of_dof, merged, yielding
from qddot.algorithms.sparse_factors import rows_of
from qddot.mechanism.model import Model
from qddot.scalars import split, stack
from qddot.spatial import Ad_inv, Ad_inv_T, articulated, transform_articulated, zero_articulated, zero_force, zero_motion
from qddot.spatial.joint_blocks import Matrix, Vector, apply, eliminate_joint

Reduced = Callable[[Vector], tuple[Vector, Vector]]


def constrained_hybrid_dynamics(
    model: Model, q: Any, v: Any, a: Any, tau: Any, f_ext: Any = None, *, prescribed: Chosen, rows: Sequence[int]
) -> NDArray[Any]:
    """q̈, τ, λ, how nearly rows depend, and the squares of what positions and velocities are off by."""
    return _solved(model, closure(model, q, v, rows, None), (q, v, a, tau, f_ext), prescribed, rows)


def stabilised(model: Model, gains: Any, *state: Any, prescribed: Chosen, rows: Sequence[int]) -> NDArray[Any]:
    """The same for (q, v, a, tau, f_ext), with Baumgarte's terms, A q̈ = -Ȧq̇ - k_d A q̇ - k_p φ."""
    return _solved(model, closure(model, state[0], state[1], rows, gains), state, prescribed, rows)


def _solved(model: Model, closed: Any, state: Sequence[Any], prescribed: Chosen, rows: Sequence[int]) -> NDArray[Any]:
    (A, c, off), (q, v, a, tau, f_ext) = closed, state  # (71)
    qdd_r, tau_r = _tree(model, q, v, a, tau, f_ext, prescribed)  # (77)
    reduced, forces_of = _reduced(model, q, prescribed), set(range(model.nv)) - set(prescribed)
    A_v = [Vector(x if k in forces_of else 0.0 for k, x in enumerate(row)) for row in A]
    X = [reduced(row)[0] for row in A_v]
    W = Matrix(Vector(row.dot(x) for x in X) for row in A_v)  # (73)
    W_inverse = W.inverse()
    lam = W_inverse @ (c - Vector(row.dot(qdd_r) for row in A))  # (74)-(76)
    force = Vector(Vector(column).dot(lam) for column in zip(*A, strict=True)) if A else Vector((0.0,) * model.nv)  # Aᵀλ
    qdd_c, tau_c = reduced(Vector(x if k in forces_of else 0.0 for k, x in enumerate(force)))  # (78)
    tau_u = [r + (s - x) for r, s, x in zip(tau_r, tau_c, force, strict=True)]  # (79)
    found = [tau_r[k] if k in forces_of else x for k, x in enumerate(tau_u)]
    return stack([*(qdd_r + qdd_c), *found, *all_multipliers(model, rows, lam), dependence(W, W_inverse), *off])  # (80)


def _tree(model: Model, q: Any, v: Any, a: Any, tau: Any, f_ext: Any, prescribed: Chosen) -> tuple[Vector, Vector]:
    """(q̈_r, τ_r) of the spanning tree by Table 4."""
    both = hybrid_dynamics(model, q, v, a, tau, f_ext, prescribed=prescribed)
    return Vector(split(both[..., 0, :])), Vector(split(both[..., 1, :]))


def _reduced(model: Model, q: Any, prescribed: Chosen) -> Reduced:
    """The function from τ_v to (q̈_v, τ_u) of a tree at rest, without gravity, with q̈_u = 0: Table 4 less its first loop."""
    if model.is_coupled:
        return _reduced_by_blocks(model, q, prescribed)
    T, S = model.transforms(q), model.axes(q)
    u, w = kinds_of_dof(model, prescribed)
    S_u, S_v = ([columns(s, k) for s, k in zip(S, part, strict=True)] for part in (u, w))
    I_A, U, Psi, Pi = model.per_link("I_A", "U", "Psi", "Pi")
    for i in range(len(Pi)):
        Pi[i] = zero_articulated()
    for i, p in model.inward():  # articulated inertias, once for all calls: (52)
        I_A[i] = articulated(model.inertia[i]) + Pi[i]
        U[i] = apply(I_A[i], S_v[i])
        Psi[i] = S_v[i].T.on(U[i]).add_diagonal(at(model.armature[i], w[i])).inverse()
        if u[i] or not model.is_free_without_rotor(i):
            Pi[p] = Pi[p] + transform_articulated(T[i], eliminate_joint(I_A[i], U[i], Psi[i]) if w[i] else I_A[i])

    def call(tau: Vector) -> tuple[Vector, Vector]:
        own, (B, Vdot) = model.velocities(stack(tau)), model.per_link("B", "Vdot")
        qdd, force = model.joint_vector("a"), model.joint_vector("tau")
        for i in range(len(B)):
            B[i] = zero_force()
        for i, p in model.inward():  # bias forces: (53)
            tau_v, loose = at(own[i], w[i]), not u[i] and model.is_free_without_rotor(i)
            beta = U[i] @ (Psi[i] @ (tau_v if loose else tau_v - S_v[i].T @ B[i]))
            B[p] = B[p] + Ad_inv_T(T[i], beta if loose else B[i] + beta)
        Vdot[0] = zero_motion()
        for i, p in model.outward():  # accelerations, and forces of prescribed degrees of freedom
            carried = Ad_inv(T[i], Vdot[p])
            yielded = Psi[i] @ (at(own[i], w[i]) - U[i].dot(carried) - S_v[i].T @ B[i])
            Vdot[i] = carried + S_v[i] @ yielded
            driven = apply(I_A[i], S_u[i]).dot(Vdot[i]) + S_u[i].T @ B[i]
            qdd[i] = merged(u[i], Vector((0.0,) * len(u[i])), w[i], yielded)
            force[i] = merged(u[i], driven, w[i], at(own[i], w[i]))
        return Vector(split(qdd.stack())), Vector(split(force.stack()))

    return call


def _reduced_by_blocks(model: Model, q: Any, prescribed: Chosen) -> Reduced:
    """The same by blocks of M, (72), for joints that share coordinates: q̈_v = M_vv⁻¹τ_v, τ_u = M_uv q̈_v."""
    M, (free, _) = rows_of(mass_matrix(model, q)), yielding(model, prescribed)
    M_vv = Matrix(Vector(M[r][k] for k in free) for r in free).inverse()

    def call(tau: Vector) -> tuple[Vector, Vector]:
        found = dict(zip(free, M_vv @ at(tau, free), strict=True))
        qdd = Vector(found.get(k, 0.0) for k in range(model.nv))
        return qdd, Vector(tau[k] if k in found else M[k].dot(qdd) for k in range(model.nv))

    return call
