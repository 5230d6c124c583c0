"""Inverse and forward dynamics differentiated by any one scalar p, as recursions.

Kim 2012, section 4, Tables 5 and 6, with K12-K15 and K19 of the errata put right. What p is, is told by a `Change`: the
quantities (92), zero where p does not enter. Zeros that are plain numbers vanish when the code is traced, so a kernel for
one p holds only what depends on it.

| code        | Kim                          | meaning                                                       |
|-------------|------------------------------|---------------------------------------------------------------|
| h[i]        | ∂h_i/∂p                      | how T_{λ(i),i} moves, in link i: T⁻¹ ∂T/∂p, (89)              |
| dS, dSdot_v | ∂S_i/∂p, ∂(Ṡ_i q̇_i)/∂p       | how the axes change                                           |
| dV, dVdot   | ∂V_i/∂p, ∂V̇_i/∂p             |                                                               |
| dI_A, dB    | ∂Î_i/∂p, ∂B̂_i/∂p             | of articulated inertia and bias force                         |
| dPsi        | ∂Ψ_i/∂p = -Ψ N Ψ             | N the change of SᵀÎS                                          |

Cost: O(n) for each p. For all p = q, v, a at once `derivatives` counts less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.algorithms import articulated_body
from qddot.algorithms.articulated_body import articulated_inertias
from qddot.algorithms.factorization import mass_matrix_inverse, rows_of
from qddot.algorithms.passive import joint_derivatives, passive_forces
from qddot.blocks import Forces, Matrix, Motions, Vector, apply, sum_motions
from qddot.joint_space import PerLink
from qddot.model import Model
from qddot.rotation import mat_add, mat_mat, mat_sub, outer, skew, symmetric, transpose
from qddot.scalars import Scalar, split, stack
from qddot.spatial import (
    Ad_inv,
    Ad_inv_T,
    ArticulatedInertia,
    Inertia,
    Motion,
    Transform,
    ad,
    ad_T,
    articulated,
    articulated_seen,
    zero_force,
    zero_inertia,
    zero_motion,
)

# ---- what p is -----------------------------------------------------------------------------------------------------------


@dataclass
class Change:
    """Kim (92): how everything that the recursions start from changes with p. Lists run over the links, the world first."""

    h: list[Motion]
    S: list[Motions]
    Sdot_v: list[Motion]
    inertia: list[Inertia]
    v: list[Vector]
    a: list[Vector]
    tau: list[Vector]
    passive: list[Vector]
    base: Motion


def _nothing(model: Model) -> Change:
    """p that enters nowhere."""
    links = range(len(model.parent))
    none = [Vector((0.0,) * model.joint[i].nv) for i in links]
    return Change(
        h=[zero_motion() for _ in links],
        S=[Motions(zero_motion() for _ in none[i]) for i in links],
        Sdot_v=[zero_motion() for _ in links],
        inertia=[zero_inertia() for _ in links],
        v=list(none),
        a=list(none),
        tau=list(none),
        passive=list(none),
        base=zero_motion(),
    )


def along_coordinates(model: Model, q: Any, v: Any, e: Any) -> Change:
    """p moves q along e, in the tangent space: ∂h_i/∂p is S_i e_i, Kim (90), and zero where e has no part, (91)."""
    change, x, u = _nothing(model), model.coordinates(q), model.velocities(v)
    for i, d in _parts(model, e):
        joint, n = model.joint[i], range(model.joint[i].nv)
        change.h[i] = joint.S(x[i]) @ d
        slopes = [joint.S_slope(x[i], j) for j in n]
        change.S[i] = Motions(sum_motions(d[j] * slopes[j][k] for j in n) for k in n)
        change.Sdot_v[i] = sum_motions(d[j] * joint.bias_slope(x[i], u[i], j) for j in n)
    change.passive = _passive(model, x, u, e, 0)
    return change


def along_velocities(model: Model, q: Any, v: Any, e: Any) -> Change:
    """p changes q̇ along e."""
    change, x, u = _nothing(model), model.coordinates(q), model.velocities(v)
    for i, d in _parts(model, e):
        joint, n = model.joint[i], range(model.joint[i].nv)
        change.v[i] = d
        rates = joint.S_dot(x[i], u[i])
        change.Sdot_v[i] = sum_motions(d[j] * (joint.S_slope(x[i], j) @ u[i] + rates[j]) for j in n)
    change.passive = _passive(model, x, u, e, 1)
    return change


def along_accelerations(model: Model, e: Any) -> Change:
    """p changes q̈ along e."""
    change = _nothing(model)
    for i, d in _parts(model, e):
        change.a[i] = d
    return change


def along_forces(model: Model, e: Any) -> Change:
    """p changes τ along e."""
    change = _nothing(model)
    for i, d in _parts(model, e):
        change.tau[i] = d if model.mimic[i] is None else change.tau[i]
    return change


def by_coordinate(model: Model, q: Any, v: Any, k: int) -> Change:
    """p = q^k in the tangent space."""
    return along_coordinates(model, q, v, np.eye(model.nv)[k])


def by_velocity(model: Model, q: Any, v: Any, k: int) -> Change:
    """p = q̇^k."""
    return along_velocities(model, q, v, np.eye(model.nv)[k])


def by_acceleration(model: Model, k: int) -> Change:
    """p = q̈^k."""
    return along_accelerations(model, np.eye(model.nv)[k])


def by_force(model: Model, k: int) -> Change:
    """p = τ^k."""
    return along_forces(model, np.eye(model.nv)[k])


def by_inertia(model: Model, i: int, unit: Inertia) -> Change:
    """p is the amount of a unit inertia that link i has."""
    change = _nothing(model)
    change.inertia[i] = unit
    return change


def by_placement(model: Model, q: Any, i: int, X: Motion) -> Change:
    """p moves the placement P of joint i as P exp(p X); all behind goes with it. Kim (89); (91) does not hold (K12)."""
    change = _nothing(model)
    change.h[i] = Ad_inv(model.joint[i].transform(model.coordinates(q)[i]), X)
    return change


def by_gravity(model: Model, g: Sequence[Scalar]) -> Change:
    """p is the amount of an acceleration g of gravity."""
    change = _nothing(model)
    change.base = Motion((0.0, 0.0, 0.0), (-g[0], -g[1], -g[2]))
    return change


def _parts(model: Model, e: Any) -> Iterator[tuple[int, Vector]]:
    """(link, e_i) of the joints that a direction over the freedoms has to do with."""
    parts = model.velocities(e)
    return ((i, parts[i]) for i, _ in model.outward() if not all(isinstance(x, float) and x == 0.0 for x in parts[i]))


def _passive(model: Model, x: Any, u: Any, e: Any, which: int) -> list[Vector]:
    """What passive forces change by, joint by joint; none for those that follow another."""
    total = model.joint_vector("passive")
    for i, d in _parts(model, e):
        columns = [joint_derivatives(model, i, x[i], u[i], k)[which] for k in range(len(d))]
        total[i] = reduce(Vector.__add__, (d[k] * column for k, column in enumerate(columns)))
    found = split(total.stack())
    own = [i > 0 and model.mimic[i] is None for i in range(len(model.mimic))]
    return [Vector(found[s.v]) if own[i] else Vector((0.0,) * model.joint[i].nv) for i, s in enumerate(model.slots)]


# ---- Table 5 -------------------------------------------------------------------------------------------------------------


def inverse_dynamics_derivative(model: Model, q: Any, v: Any, a: Any, change: Change) -> NDArray[Any]:
    """∂τ/∂p.   Kim Table 5, and what passive joint forces do."""
    T, S, Sdot_v = model.joints_at(q, v)
    qd, qdd = model.velocities(v), model.velocities(a)
    V, Vdot, F, dV, dVdot, dF = model.per_link("V", "Vdot", "F", "dV", "dVdot", "dF")
    tau = model.joint_vector("dtau")
    V[0], Vdot[0], F[0] = zero_motion(), model.base_acceleration, zero_force()
    dV[0], dVdot[0], dF[0] = zero_motion(), change.base, zero_force()
    for i, p in model.outward():
        h, I, dI = change.h[i], model.inertia[i], change.inertia[i]
        V_p, Vdot_p, J_v = Ad_inv(T[i], V[p]), Ad_inv(T[i], Vdot[p]), S[i] @ qd[i]
        dJ_v, dJ_a = change.S[i] @ qd[i] + S[i] @ change.v[i], change.S[i] @ qdd[i] + S[i] @ change.a[i]
        V[i] = V_p + J_v
        Vdot[i] = Vdot_p + ad(V[i], J_v) + Sdot_v[i] + S[i] @ qdd[i]
        dV[i] = Ad_inv(T[i], dV[p]) - ad(h, V_p) + dJ_v
        moved = Ad_inv(T[i], dVdot[p]) - ad(h, Vdot_p) + dJ_a
        dVdot[i] = moved + ad(dV[i], J_v) + ad(V[i], dJ_v) + change.Sdot_v[i]
        F[i] = I @ Vdot[i] - ad_T(V[i], I @ V[i])
        dF[i] = dI @ Vdot[i] + I @ dVdot[i] - ad_T(dV[i], I @ V[i]) - ad_T(V[i], dI @ V[i] + I @ dV[i])
    for i, p in model.inward():
        tau[i] = change.S[i].T @ F[i] + S[i].T @ dF[i] + model.armature[i].times(change.a[i]) - change.passive[i]
        F[p] = F[p] + Ad_inv_T(T[i], F[i])
        dF[p] = dF[p] + Ad_inv_T(T[i], dF[i] - ad_T(change.h[i], F[i]))
    return tau.stack()


def inverse_dynamics_derivatives(model: Model, q: Any, v: Any, a: Any) -> NDArray[Any]:
    """∂τ/∂q, ∂τ/∂v and ∂τ/∂a by Table 5, a column after the other: (3, nv, nv)."""
    kinds = (
        lambda e: along_coordinates(model, q, v, e),
        lambda e: along_velocities(model, q, v, e),
        lambda e: along_accelerations(model, e),
    )
    return _all_columns(model, kinds, lambda change: inverse_dynamics_derivative(model, q, v, a, change))


# ---- Table 6 -------------------------------------------------------------------------------------------------------------


def forward_dynamics_derivative(model: Model, q: Any, v: Any, tau: Any, change: Change) -> NDArray[Any]:
    """∂q̈/∂p.   Kim Table 6 (K13-K15), the backward loop in `_inward`, and what passive joint forces do."""
    if model.is_coupled:
        return _through_the_inverse(model, q, v, tau, change)
    tau = tau + passive_forces(model, q, v)
    T, S, Sdot_v = model.joints_at(q, v)
    qd = model.velocities(v)
    V, eta, B, dV, deta, dB = model.per_link("V", "eta", "B", "dV", "deta", "dB")
    V[0], B[0], dV[0], dB[0] = zero_motion(), zero_force(), zero_motion(), zero_force()
    for i, p in model.outward():
        h, I, dI, V_p, J_v = change.h[i], model.inertia[i], change.inertia[i], Ad_inv(T[i], V[p]), S[i] @ qd[i]
        dJ_v = change.S[i] @ qd[i] + S[i] @ change.v[i]
        V[i] = V_p + J_v
        eta[i] = ad(V[i], J_v) + Sdot_v[i]
        dV[i] = Ad_inv(T[i], dV[p]) - ad(h, V_p) + dJ_v
        deta[i] = ad(dV[i], J_v) + ad(V[i], dJ_v) + change.Sdot_v[i]
        B[i] = -1.0 * ad_T(V[i], I @ V[i])
        dB[i] = -1.0 * (ad_T(dV[i], I @ V[i]) + ad_T(V[i], dI @ V[i] + I @ dV[i]))
    I_A, U, Psi = articulated_inertias(model, T, S)
    dU, N = _inward(model, T, S, (I_A, U, Psi), (eta, deta), (B, dB), model.velocities(tau), change)
    force, a = model.velocities(tau), model.joint_vector("dqdd")
    Vdot, dVdot = model.per_link("Vdot", "dVdot")
    Vdot[0], dVdot[0] = model.base_acceleration, change.base
    for i, p in model.outward():
        Vdot_p, dforce = Ad_inv(T[i], Vdot[p]), change.tau[i] + change.passive[i]
        carried = Vdot_p + eta[i]
        dcarried = Ad_inv(T[i], dVdot[p]) - ad(change.h[i], Vdot_p) + deta[i]  # K13: h_i, not h_λ(i)
        qdd = Psi[i] @ (force[i] - U[i].dot(carried) - S[i].T @ B[i])
        left = dforce - dU[i].dot(carried) - U[i].dot(dcarried) - change.S[i].T @ B[i] - S[i].T @ dB[i]
        dqdd = Psi[i] @ (left - N[i] @ qdd)  # ∂Ψ/∂p {…} = -Ψ N q̈
        a[i] = dqdd
        Vdot[i] = carried + S[i] @ qdd
        dVdot[i] = dcarried + change.S[i] @ qdd + S[i] @ dqdd
    return a.stack()


def _inward(
    model: Model,
    T: list[Transform],
    S: list[Motions],
    inertias: tuple[PerLink, PerLink, PerLink],
    etas: tuple[PerLink, PerLink],
    biases: tuple[PerLink, PerLink],
    tau: Any,
    change: Change,
) -> tuple[PerLink, PerLink]:
    """The backward loop of Table 6. Leaves B̂ and ∂B̂/∂p in `biases`; gives ∂(ÎS)/∂p and N = ∂(SᵀÎS)/∂p."""
    (I_A, U, Psi), (eta, deta), (B, dB) = inertias, etas, biases
    dI_A, dU, N = model.per_link("dI_A", "dU", "N")
    for i in range(len(model.parent)):
        dI_A[i] = articulated(change.inertia[i])
    for i, p in model.inward():
        dS, h, dtau = change.S[i], change.h[i], change.tau[i] + change.passive[i]
        dU[i] = apply(dI_A[i], S[i]) + apply(I_A[i], dS)
        N[i] = S[i].T.on(apply(dI_A[i], S[i])) + dS.T.on(U[i]) + dS.T.on(U[i]).T
        K = U[i].times(Psi[i])
        if model.is_loose(i):
            # nothing but the joint's own force passes: Π = 0, and β = UΨτ solves Sᵀβ = τ
            beta = K @ tau[i]
            dbeta = K @ (dtau - dS.T @ beta)
        else:
            bias, dbias = I_A[i] @ eta[i] + B[i], dI_A[i] @ eta[i] + I_A[i] @ deta[i] + dB[i]
            left = tau[i] - S[i].T @ bias
            dleft = dtau - dS.T @ bias - S[i].T @ dbias  # K15: transposed
            beta = bias + K @ left
            dbeta = dbias + (dU[i] - _times(K, N[i])) @ (Psi[i] @ left) + K @ dleft
            dPi = _less(dI_A[i], K, dU[i], N[i])
            Pi = _less(I_A[i], K, U[i], None)
            dI_A[p] = dI_A[p] + articulated_seen(T[i], _less_turned(dPi, Pi, h))
        B[p] = B[p] + Ad_inv_T(T[i], beta)
        dB[p] = dB[p] + Ad_inv_T(T[i], dbeta - ad_T(h, beta))
    return dU, N


def _through_the_inverse(model: Model, q: Any, v: Any, tau: Any, change: Change) -> NDArray[Any]:
    """M⁻¹(∂τ/∂p - ∂ID/∂p): for joints that share a coordinate, to which articulated bodies come by another way."""
    a = articulated_body.forward_dynamics(model, q, v, tau)
    given = model.joint_vector("dtau")
    for i, _ in model.outward():
        given[i] = change.tau[i]
    slope = given.stack() - inverse_dynamics_derivative(model, q, v, a, change)
    return stack(rows_of(mass_matrix_inverse(model, q)) @ split(slope))


def forward_dynamics_derivatives(model: Model, q: Any, v: Any, tau: Any) -> NDArray[Any]:
    """∂q̈/∂q, ∂q̈/∂v and ∂q̈/∂τ by Table 6, a column after the other: (3, nv, nv)."""
    kinds = (
        lambda e: along_coordinates(model, q, v, e),
        lambda e: along_velocities(model, q, v, e),
        lambda e: along_forces(model, e),
    )
    return _all_columns(model, kinds, lambda change: forward_dynamics_derivative(model, q, v, tau, change))


def _all_columns(model: Model, kinds: Sequence[Any], slope: Any) -> NDArray[Any]:
    """A matrix for each kind of p, a column for each freedom."""
    matrices = [model.by_columns(lambda e, kind=kind: slope(kind(e))) for kind in kinds]  # type: ignore[misc]
    return np.stack(np.broadcast_arrays(*matrices), axis=-3)


def _times(K: Forces, N: Matrix) -> Forces:
    """K N, column by column."""
    return Forces(K @ column for column in N.T)


def _less(A: ArticulatedInertia, K: Forces, dU: Forces, N: Matrix | None) -> ArticulatedInertia:
    """∂Π/∂p = ∂Î/∂p - ∂U Kᵀ - K ∂Uᵀ + K N Kᵀ with K = UΨ; without N, Π = Î - U Kᵀ itself."""
    Y = dU if N is None else Forces(u - 0.5 * k for u, k in zip(dU, _times(K, N), strict=True))
    I, H, M = A
    for y, k in zip(Y, K, strict=True):
        I, H, M = mat_sub(I, outer(y.m, k.m)), mat_sub(H, outer(y.m, k.f)), mat_sub(M, outer(y.f, k.f))
        if N is not None:
            I, H, M = mat_sub(I, outer(k.m, y.m)), mat_sub(H, outer(k.m, y.f)), mat_sub(M, outer(k.f, y.f))
    return ArticulatedInertia(symmetric(I), H, symmetric(M))


def _less_turned(dPi: ArticulatedInertia, Pi: ArticulatedInertia, h: Motion) -> ArticulatedInertia:
    """∂Π/∂p - Π ad_h - (Π ad_h)ᵀ."""
    w, v = skew(h.w), skew(h.v)
    I = mat_add(mat_mat(Pi.I, w), mat_mat(Pi.H, v))
    H = mat_sub(mat_mat(Pi.H, w), mat_add(mat_mat(w, Pi.H), mat_mat(v, Pi.M)))
    M = mat_mat(Pi.M, w)
    return ArticulatedInertia(
        symmetric(mat_sub(dPi.I, mat_add(I, transpose(I)))),
        mat_sub(dPi.H, H),
        symmetric(mat_sub(dPi.M, mat_add(M, transpose(M)))),
    )
