"""Inverse, forward and hybrid dynamics differentiated by any one scalar p, as recursions.

Kim 2012, section 4, Tables 5, 6 and 7, with K12-K19 of the errata put right. What p is, is told by a `Change` (see
`changes`): the quantities (92), zero where p does not enter. Zeros that are plain numbers vanish when the code is traced,
so a kernel for one p holds only what depends on it.

| code        | Kim                          | meaning                                                       |
|-------------|------------------------------|---------------------------------------------------------------|
| h[i]        | ∂h_i/∂p                      | how T_{λ(i),i} moves, in link i: T⁻¹ ∂T/∂p, (89)              |
| dS, dSdot_v | ∂S_i/∂p, ∂(Ṡ_i q̇_i)/∂p       | how the axes change                                           |
| change.F_ext | ∂F_i^ext/∂p                 | how the external force on link i changes, in its own frame    |
| dV, dVdot   | ∂V_i/∂p, ∂V̇_i/∂p             |                                                               |
| dI_A, dB    | ∂Î_i/∂p, ∂B̂_i/∂p             | of articulated inertia and bias force                         |
| dPsi        | ∂Ψ_i/∂p = -Ψ N Ψ             | N the change of SᵀÎS                                          |

Cost: O(n) for each p. For all p = q, v, a at once `derivatives` counts less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qddot.algorithms.composite_body import mass_matrix
from qddot.algorithms.hybrid import (
    Chosen,
    at,
    columns,
    hybrid_dynamics,
    kinds_of_dof,
    merged,
    only,
    two_rows,
    yielding,
)
from qddot.algorithms.passive_forces import passive_forces
from qddot.algorithms.perturbation import Change, along_accelerations, along_coordinates, along_forces, along_velocities
from qddot.algorithms.sparse_factors import inverse_factors, inverse_times, rows_of
from qddot.mechanism.joint_arrays import PerLink
from qddot.mechanism.model import Model
from qddot.scalars import split, stack
from qddot.spatial import (
    Ad_inv,
    Ad_inv_T,
    ArticulatedInertia,
    Motion,
    Transform,
    ad,
    ad_T,
    articulated,
    transform_articulated,
    zero_force,
    zero_motion,
)
from qddot.spatial.joint_blocks import Forces, Matrix, Motions, Vector, apply
from qddot.spatial.rotation import mat_add, mat_mat, mat_sub, outer, skew, symmetric, transpose

# ---- Table 5 -------------------------------------------------------------------------------------------------------------


def inverse_dynamics_derivative(model: Model, q: Any, v: Any, a: Any, change: Change, f_ext: Any = None) -> NDArray[Any]:
    """∂τ/∂p.   Kim Table 5, and what passive joint forces do."""
    T, S, Sdot_v = model.joints_at(q, v)
    qd, qdd, F_ext = model.velocities(v), model.velocities(a), model.external(f_ext)
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
        F[i] = I @ Vdot[i] - ad_T(V[i], I @ V[i]) - F_ext[i]
        dF[i] = dI @ Vdot[i] + I @ dVdot[i] - ad_T(dV[i], I @ V[i]) - ad_T(V[i], dI @ V[i] + I @ dV[i])
        dF[i] = dF[i] - change.F_ext[i]
    for i, p in model.inward():
        tau[i] = change.S[i].T @ F[i] + S[i].T @ dF[i] + model.armature[i].times(change.a[i]) - change.passive[i]
        F[p] = F[p] + Ad_inv_T(T[i], F[i])
        dF[p] = dF[p] + Ad_inv_T(T[i], dF[i] - ad_T(change.h[i], F[i]))
    return tau.stack()


def inverse_dynamics_derivatives(model: Model, q: Any, v: Any, a: Any, f_ext: Any = None) -> NDArray[Any]:
    """∂τ/∂q, ∂τ/∂v and ∂τ/∂a by Table 5, a column after the other: (3, nv, nv)."""
    kinds = (
        lambda e: along_coordinates(model, q, v, e),
        lambda e: along_velocities(model, q, v, e),
        lambda e: along_accelerations(model, e),
    )
    return _all_columns(model, kinds, lambda change: inverse_dynamics_derivative(model, q, v, a, change, f_ext))


# ---- Tables 6 and 7 ------------------------------------------------------------------------------------------------------


def forward_dynamics_derivative(model: Model, q: Any, v: Any, tau: Any, change: Change, f_ext: Any = None) -> NDArray[Any]:
    """∂q̈/∂p.   Kim Table 6 (K13-K15): Table 7 with no degree of freedom prescribed, as Table 3 is Table 4."""
    return hybrid_dynamics_derivative(model, q, v, np.zeros(model.nv), tau, change, f_ext, prescribed=())[..., 0, :]


def hybrid_dynamics_derivative(
    model: Model, q: Any, v: Any, a: Any, tau: Any, change: Change, f_ext: Any = None, *, prescribed: Chosen
) -> NDArray[Any]:
    """∂q̈/∂p and ∂τ/∂p, complete: two rows.   Kim Table 7 (K13-K18), the backward loop in `_inward`.

    Single degrees of freedom of a joint are prescribed as in `hybrid`: S_u joins η, S_v yields.
    """
    u, w = kinds_of_dof(model, prescribed)
    change = _of_what_is_given(change, u, w)
    if model.is_coupled:
        return _through_the_blocks(model, q, v, a, tau, change, f_ext, prescribed)
    T, S, Sdot_v = model.joints_at(q, v)
    qd, qdd, force = model.velocities(v), model.velocities(only(a, prescribed)), tau + passive_forces(model, q, v)
    F_ext = model.external(f_ext)
    V, eta, B, dV, deta, dB = model.per_link("V", "eta", "B", "dV", "deta", "dB")
    V[0], B[0], dV[0], dB[0] = zero_motion(), zero_force(), zero_motion(), zero_force()
    for i, p in model.outward():
        h, I, dI, V_p, J_v = change.h[i], model.inertia[i], change.inertia[i], Ad_inv(T[i], V[p]), S[i] @ qd[i]
        dJ_v, dJ_a = change.S[i] @ qd[i] + S[i] @ change.v[i], change.S[i] @ qdd[i] + S[i] @ change.a[i]  # K16
        V[i] = V_p + J_v
        eta[i] = ad(V[i], J_v) + Sdot_v[i] + S[i] @ qdd[i]
        dV[i] = Ad_inv(T[i], dV[p]) - ad(h, V_p) + dJ_v
        deta[i] = ad(dV[i], J_v) + ad(V[i], dJ_v) + change.Sdot_v[i] + dJ_a
        B[i] = -1.0 * ad_T(V[i], I @ V[i]) - F_ext[i]
        dB[i] = -1.0 * (ad_T(dV[i], I @ V[i]) + ad_T(V[i], dI @ V[i] + I @ dV[i])) - change.F_ext[i]
    found = _inward(model, T, S, (eta, deta), (B, dB), model.velocities(force), change, w)
    return _outward(model, (T, S), (eta, deta), (B, dB), found, model.velocities(force), change, (u, w))


class _Articulated(NamedTuple):
    """What the backward loop leaves: Î, ÎS_v, Ψ, ∂Î/∂p, ∂(ÎS_v)/∂p, and N = ∂(S_vᵀÎS_v)/∂p."""

    I_A: PerLink
    U: PerLink
    Psi: PerLink
    dI_A: PerLink
    dU: PerLink
    N: PerLink


def _inward(
    model: Model,
    T: list[Transform],
    S: list[Motions],
    etas: tuple[PerLink, PerLink],
    biases: tuple[PerLink, PerLink],
    tau: Any,
    change: Change,
    w: list[list[int]],
) -> _Articulated:
    """The backward loop of Table 7. Leaves B̂ and ∂B̂/∂p in `biases`."""
    (eta, deta), (B, dB) = etas, biases
    out = _Articulated(*model.per_link("I_A", "U", "Psi", "dI_A", "dU", "N"))
    I_A, U, Psi, dI_A, dU, N = out
    I_A[0], dI_A[0] = articulated(model.inertia[0]), articulated(change.inertia[0])
    for i, _ in model.outward():
        I_A[i], dI_A[i] = articulated(model.inertia[i]), articulated(change.inertia[i])
    for i, p in model.inward():
        S_v, dS, h = columns(S[i], w[i]), columns(change.S[i], w[i]), change.h[i]
        tau_v, dtau = at(tau[i], w[i]), at(change.tau[i] + change.passive[i], w[i])
        U[i] = apply(I_A[i], S_v)
        Psi[i] = S_v.T.on(U[i]).add_diagonal(at(model.armature[i], w[i])).inverse(at(model.floor(i), w[i]))
        dU[i] = apply(dI_A[i], S_v) + apply(I_A[i], dS)
        N[i] = S_v.T.on(apply(dI_A[i], S_v)) + dS.T.on(U[i]) + dS.T.on(U[i]).T
        K = U[i].times(Psi[i])
        if model.is_free_without_rotor(i) and len(S_v) == 6:
            # nothing but the joint's own force passes: Π = 0, and β = UΨτ solves Sᵀβ = τ
            beta = K @ tau_v
            dbeta = K @ (dtau - dS.T @ beta)
        else:
            bias, dbias = I_A[i] @ eta[i] + B[i], dI_A[i] @ eta[i] + I_A[i] @ deta[i] + dB[i]  # K18
            left = tau_v - S_v.T @ bias
            dleft = dtau - dS.T @ bias - S_v.T @ dbias  # K15: transposed
            beta = bias + K @ left
            dbeta = dbias + (dU[i] - _times(K, N[i])) @ (Psi[i] @ left) + K @ dleft
            Pi, dPi = _less(I_A[i], K, U[i], None), _less(dI_A[i], K, dU[i], N[i])
            I_A[p] = I_A[p] + transform_articulated(T[i], Pi)
            dI_A[p] = dI_A[p] + transform_articulated(T[i], _less_turned(dPi, Pi, h))  # K17
        B[p] = B[p] + Ad_inv_T(T[i], beta)
        dB[p] = dB[p] + Ad_inv_T(T[i], dbeta - ad_T(h, beta))
    return out


def _outward(
    model: Model,
    joints: tuple[list[Transform], list[Motions]],
    etas: tuple[PerLink, PerLink],
    biases: tuple[PerLink, PerLink],
    found: _Articulated,
    force: Any,
    change: Change,
    kinds: tuple[list[list[int]], list[list[int]]],
) -> NDArray[Any]:
    """The second forward loop of Table 7: accelerations that are sought, and forces of prescribed degrees of freedom."""
    (T, S), (eta, deta), (B, dB), (u, w) = joints, etas, biases, kinds
    I_A, U, Psi, dI_A, dU, N = found
    da, dtau, (Vdot, dVdot) = model.joint_vector("dqdd"), model.joint_vector("dtau"), model.per_link("Vdot", "dVdot")
    Vdot[0], dVdot[0] = model.base_acceleration, change.base
    for i, p in model.outward():
        S_v, dS_v, S_u, dS_u = (columns(x, k) for k in (w[i], u[i]) for x in (S[i], change.S[i]))
        Vdot_p = Ad_inv(T[i], Vdot[p])
        carried = Vdot_p + eta[i]
        dcarried = Ad_inv(T[i], dVdot[p]) - ad(change.h[i], Vdot_p) + deta[i]  # K13: h_i, not h_λ(i)
        yielded = Psi[i] @ (at(force[i], w[i]) - U[i].dot(carried) - S_v.T @ B[i])
        dforce = at(change.tau[i] + change.passive[i], w[i])
        left = dforce - dU[i].dot(carried) - U[i].dot(dcarried) - dS_v.T @ B[i] - S_v.T @ dB[i]
        dyielded = Psi[i] @ (left - N[i] @ yielded)  # ∂Ψ/∂p {…} = -Ψ N q̈
        Vdot[i] = carried + S_v @ yielded
        dVdot[i] = dcarried + dS_v @ yielded + S_v @ dyielded
        F, dF = I_A[i] @ Vdot[i] + B[i], dI_A[i] @ Vdot[i] + I_A[i] @ dVdot[i] + dB[i]
        rotor = at(model.armature[i], u[i]).times(at(change.a[i], u[i]))
        driven = dS_u.T @ F + S_u.T @ dF + rotor - at(change.passive[i], u[i])
        da[i] = merged(u[i], at(change.a[i], u[i]), w[i], dyielded)
        dtau[i] = merged(u[i], driven, w[i], at(change.tau[i], w[i]))
    return two_rows(da.stack(), dtau.stack(), model.nv)


def _of_what_is_given(change: Change, u: list[list[int]], w: list[list[int]]) -> Change:
    """Accelerations are given where they are prescribed, forces where not; what is not given is not read."""

    def kept(x: list[Vector], kinds: list[list[int]]) -> list[Vector]:
        return [Vector(y if k in ks else 0.0 for k, y in enumerate(own)) for own, ks in zip(x, kinds, strict=True)]

    return replace(change, a=kept(change.a, u), tau=kept(change.tau, w))


def _through_the_blocks(
    model: Model, q: Any, v: Any, a: Any, tau: Any, change: Change, f_ext: Any, prescribed: Chosen
) -> NDArray[Any]:
    """The same by Table 5 and the blocks of M: for joints that share a coordinate, which articulated bodies do not take."""
    solved = hybrid_dynamics(model, q, v, a, tau, f_ext, prescribed=prescribed)[..., 0, :]
    slope = split(inverse_dynamics_derivative(model, q, v, solved, change, f_ext))
    da, dtau = model.joint_vector("dqdd"), model.joint_vector("dtau")
    for i, _ in model.outward():
        if model.mimic[i] is None:
            da[i], dtau[i] = change.a[i], change.tau[i]
    by_a, by_tau = split(da.stack()), split(dtau.stack())
    M, (free, inside) = rows_of(mass_matrix(model, q)), yielding(model, prescribed)
    factors = inverse_factors([[M[r][c] for c in free] for r in free], inside, [model.floors[k] for k in free])
    x = inverse_times(*factors, [by_tau[k] - slope[k] for k in free])
    for k, y in zip(free, x, strict=True):
        by_a[k] = y
    for k in prescribed:
        by_tau[k] = slope[k] + Vector(M[k][c] for c in free).dot(x)
    return two_rows(stack(by_a), stack(by_tau), model.nv)


def forward_dynamics_derivatives(model: Model, q: Any, v: Any, tau: Any, f_ext: Any = None) -> NDArray[Any]:
    """∂q̈/∂q, ∂q̈/∂v and ∂q̈/∂τ by Table 6, a column after the other: (3, nv, nv)."""
    kinds = (
        lambda e: along_coordinates(model, q, v, e),
        lambda e: along_velocities(model, q, v, e),
        lambda e: along_forces(model, e),
    )
    return _all_columns(model, kinds, lambda change: forward_dynamics_derivative(model, q, v, tau, change, f_ext))


def hybrid_dynamics_derivatives(
    model: Model, q: Any, v: Any, a: Any, tau: Any, f_ext: Any = None, *, prescribed: Chosen
) -> NDArray[Any]:
    """q̈ and τ, complete, by q, v, a and τ, by Table 7, a column after the other: (2, 4, nv, nv)."""
    kinds = (
        lambda e: along_coordinates(model, q, v, e),
        lambda e: along_velocities(model, q, v, e),
        lambda e: along_accelerations(model, e),
        lambda e: along_forces(model, e),
    )

    def slope(change: Change) -> NDArray[Any]:
        return hybrid_dynamics_derivative(model, q, v, a, tau, change, f_ext, prescribed=prescribed)

    return _all_columns(model, kinds, slope)


def _all_columns(model: Model, kinds: Sequence[Any], slope: Any) -> NDArray[Any]:
    """A matrix for each kind of p, a column for each degree of freedom."""
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
