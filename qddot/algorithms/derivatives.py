"""Inverse, forward and hybrid dynamics differentiated by q, v, a and tau, all columns at once.

Kim 2012, section 4, gives the derivative by one scalar; Carpentier & Mansard 2018 and Singh, Russell & Wensing 2022 share
the work between columns. Here it is in link coordinates, for joints of several degrees of freedom and with S(q) of its own.

Moving joint j by its column S (in the tangent space: δq enters through `integrate`) turns the links that it carries as one
body by S, and changes their velocities. Seen from the links, with V_λ for Ad_{T⁻¹} V_{λ(j)}, in the frame of link j

    D = ∂V_j/∂q = ad_{V_λ} S + ∂S/∂q v,                A = ∂V̇_j/∂q + ad_{V_j} D.

Every link i that j carries has the same D and A in its own coordinates, and its force F = 𝓘V̇ - ad*_V 𝓘V changes by

    ∂F/∂q = 𝓘 A + 𝓑 D,      𝓑 D = -𝓘 ad_V D - ad*_V 𝓘 D - ad*_D 𝓘 V.

𝓑 adds up over bodies as 𝓘 does. It is the rate of the inertia, whose first moment changes with the linear momentum k, less
what turns the momentum (l, k): nothing is left of it but a symmetric 3×3 block İ and the momentum,

    𝓑 (w, v) = (İ w - l × w, -2 k × w).

| code      | meaning                                                                        |
|-----------|--------------------------------------------------------------------------------|
| D[i], A[i] | by q: columns as above                                                        |
| A_v[i]    | by v: the A of D = S                                                           |
| I_C, B_C, F_C | inertia, 𝓑 and force of all that link i carries                             |
| P, R, U   | columns of ∂F/∂q, ∂F/∂v, ∂F/∂a, on their way to the base                       |
| G         | 𝓑ᵀ S, a moment                                                                  |

External forces keep their components in the frames of their links while q changes. They are part of F, and only the turning
of F on its way to the base sees them; what forces do that depend on q and v is added by the chain rule (`Robot`).

Cost: O(n · depth).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qddot.algorithms.composite_body import composite_inertias, mass_matrix
from qddot.algorithms.hybrid import Chosen, only, yielding
from qddot.algorithms.newton_euler_classical import rigid_body_forces
from qddot.algorithms.passive_forces import joint_derivatives, passive_forces
from qddot.algorithms.sparse_factors import dof_above, inverse_factors, inverse_of, inverse_times, rows_of
from qddot.mechanism.joint_arrays import PerLink
from qddot.mechanism.model import Model
from qddot.scalars import Scalar, cut, mark, split, stack
from qddot.spatial import (
    Ad_inv,
    Ad_inv_T,
    Force,
    Inertia,
    Motion,
    Transform,
    ad,
    ad_T,
    steiner,
    zero_force,
    zero_inertia,
    zero_motion,
)
from qddot.spatial.joint_blocks import Matrix, Motions, Vector
from qddot.spatial.rotation import ZERO, Mat, Vec, add, cross, dot, mat_add, mat_mat, mat_vec, skew, sub, transpose

Entries = dict[tuple[int, int], Scalar]


class VelocityForce(NamedTuple):
    """𝓑: how the force on bodies depends on a change of their velocity; the rate of the second moment, and momentum."""

    rate: Mat
    L: Force

    def __matmul__(self, D: Motion) -> Force:
        (l, k), w = self.L, D.w
        return Force(sub(mat_vec(self.rate, w), cross(l, w)), cross(w, add(k, k)))

    def moment(self, S: Motion) -> Vec:
        """𝓑ᵀ S, which has no force in it."""
        l, k = self.L
        return add(add(mat_vec(self.rate, S.w), cross(l, S.w)), cross(add(k, k), S.v))

    def __add__(self, other: VelocityForce) -> VelocityForce:  # type: ignore[override]
        return VelocityForce(mat_add(self.rate, other.rate), self.L + other.L)


def velocity_force(G: Inertia, V: Motion) -> VelocityForce:
    """𝓑 of one body: İ = [w]I - I[w] + what the velocity of its origin adds."""
    turned = mat_mat(skew(V.w), G.I)
    return VelocityForce(mat_add(mat_add(turned, transpose(turned)), steiner(G.h, V.v)), G @ V)


def velocity_force_seen(T: Transform, B: VelocityForce) -> VelocityForce:
    """Ad*_{T⁻¹} 𝓑 Ad_{T⁻¹}: known in B, in A's frame, for T_AB."""
    rate, L = B
    for part in reversed(T.parts):
        rate, L = part.R.similar_symmetric(rate), Ad_inv_T(part, L)
        if part.p is not ZERO:
            rate = mat_add(rate, steiner(part.p, L.f))
    return VelocityForce(rate, L)


class Slopes(NamedTuple):
    """What joint coordinates do to the motion of the links behind them: columns of each joint."""

    D: list[Motions]
    A: list[Motions]
    A_v: list[Motions]


class Outward(NamedTuple):
    """What the first pass leaves: joints, slopes of every joint, and 𝓘, 𝓑 and F of every link by itself."""

    T: list[Transform]
    S: list[Motions]
    slopes: Slopes
    B: list[VelocityForce]
    F: list[Force]


def inverse_dynamics_derivatives(model: Model, q: Any, v: Any, a: Any, f_ext: Any = None) -> NDArray[Any]:
    """∂tau/∂q, ∂tau/∂v and ∂tau/∂a = M of inverse dynamics, stacked: (3, nv, nv)."""
    return _stacked(*_inward(model, q, v, _outward(model, q, v, a, f_ext)))


def _inward(model: Model, q: Any, v: Any, outward: Outward) -> tuple[NDArray[Any], ...]:
    """∂tau/∂q, ∂tau/∂v and M."""
    T, S, slopes, _, _ = outward
    I_C, (B_C, F_C), x, u = (
        composite_inertias(model, T),
        _composites(model, outward),
        model.coordinates(q),
        model.velocities(v),
    )
    dq, dv, M = model.joint_matrix("dq"), model.joint_matrix("dv"), model.joint_matrix("M")
    P, R, U, G = model.per_link("P", "R", "U", "G")
    for i, p, k in model.columns():
        s, S_k = S[i][k], model.joint[i].S_slope(x[i], k)
        passive_q, passive_v = joint_derivatives(model, i, x[i], u[i], k)
        P[i] = I_C[i] @ slopes.A[i][k] + B_C[i] @ slopes.D[i][k]
        R[i] = I_C[i] @ slopes.A_v[i][k] + B_C[i] @ s
        U[i], G[i] = I_C[i] @ s, B_C[i].moment(s)
        by_q, by_v, by_a = dq.column(i, k), dv.column(i, k), M.column(i, k)
        of_q, of_v, of_a = dq.row(i, k), dv.row(i, k), M.row(i, k)
        by_q[i] = S[i].T @ P[i] + S_k.T @ F_C[i] - passive_q
        by_v[i], by_a[i] = S[i].T @ R[i] - passive_v, S[i].T @ U[i] + model.armature[i].only(k)
        P[i] = P[i] - ad_T(s, F_C[i])  # the joints inward of i see the force turned: Kim (88)
        for X in (P, R, U):
            X[p] = Ad_inv_T(T[i], X[i])
        G[p] = _turned_back(T[i], G[i])
        for j, p_j in model.path_to_base(p):
            by_q[j], by_v[j] = S[j].T @ P[j], S[j].T @ R[j]
            by_a[j] = of_a[j] = S[j].T @ U[j]
            of_q[j], of_v[j] = _row(U[j], G[j], slopes.A[j], slopes.D[j]), _row(U[j], G[j], slopes.A_v[j], S[j])
            for X in (P, R, U):
                X[p_j] = Ad_inv_T(T[j], X[j])
            G[p_j] = _turned_back(T[j], G[j])
    return dq.stack(), dv.stack(), M.stack()


def _composites(model: Model, outward: Outward) -> tuple[PerLink, PerLink]:
    """𝓑 and F of each link with all that it carries."""
    B_C, F_C, B_below, F_below = model.per_link("B_C", "F_C", "B below", "F below")
    B_below[0], F_below[0] = velocity_force(zero_inertia(), zero_motion()), zero_force()
    for i, _ in model.outward():
        B_below[i], F_below[i] = velocity_force(zero_inertia(), zero_motion()), zero_force()
    for i, p in model.inward():
        B_C[i], F_C[i] = outward.B[i] + B_below[i], outward.F[i] + F_below[i]
        B_below[p] = B_below[p] + velocity_force_seen(outward.T[i], B_C[i])
        F_below[p] = F_below[p] + Ad_inv_T(outward.T[i], F_C[i])
    return B_C, F_C


def _outward(model: Model, q: Any, v: Any, a: Any, f_ext: Any) -> Outward:
    """T, S, the slopes of every joint, and 𝓘, 𝓑 and F of every link by itself."""
    T, S, Sdot_v = model.joints_at(q, v)
    x, qd, qdd, F_ext = model.coordinates(q), model.velocities(v), model.velocities(a), model.external(f_ext)
    V, Vdot, F, B, D, A, A_v = model.per_link("V", "Vdot", "F", "B", "D", "A", "A_v")
    V[0], Vdot[0], F[0], B[0] = (
        zero_motion(),
        model.base_acceleration,
        zero_force(),
        velocity_force(model.inertia[0], zero_motion()),
    )
    for i, p in model.outward():
        J_v, V_p, Vdot_p, joint, I = (
            S[i] @ qd[i],
            Ad_inv(T[i], V[p]),
            Ad_inv(T[i], Vdot[p]),
            model.joint[i],
            model.inertia[i],
        )
        V[i] = V_p + J_v
        Vdot[i] = Vdot_p + ad(V_p, J_v) + Sdot_v[i] + S[i] @ qdd[i]
        F[i] = I @ Vdot[i] - ad_T(V[i], I @ V[i]) - F_ext[i]
        B[i] = velocity_force(I, V[i])
        by_q, by_v = [], []
        for k, s in enumerate(S[i]):
            S_k = joint.S_slope(x[i], k)
            own = S_k @ qd[i]
            d = ad(V_p, s) + own
            grown = ad(V[i], own) + joint.bias_slope(x[i], qd[i], k) + S_k @ qdd[i]
            by_q.append((d, ad(Vdot_p, s) + ad(V_p, d) + grown))
            by_v.append(ad(V[i] + V_p, s) + own)
        D[i], A[i] = (Motions(c) for c in zip(*by_q, strict=True)) if by_q else (Motions(), Motions())
        A_v[i] = Motions(c + s_dot for c, s_dot in zip(by_v, joint.S_dot(x[i], qd[i]), strict=True))
    return Outward(T, S, Slopes(D, A, A_v), B, F)


def _turned_back(T: Transform, m: Vec) -> Vec:
    """A moment known in the child's axes, in the parent's."""
    for part in reversed(T.parts):
        m = part.R @ m
    return m


def _row(U: Force, G: Vec, A: Motions, D: Motions) -> Vector:
    """sᵀ(𝓘A + 𝓑D) of columns A and D that stand further in than s."""
    return Vector(a.dot(U) + dot(d.w, G) for a, d in zip(A, D, strict=True))


def forward_dynamics_derivatives(model: Model, q: Any, v: Any, tau: Any, f_ext: Any = None) -> NDArray[Any]:
    """∂a/∂q = -M⁻¹ ∂ID/∂q, ∂a/∂v = -M⁻¹ ∂ID/∂v and ∂a/∂tau = M⁻¹, stacked: (3, nv, nv).

    ID is taken at the accelerations that tau gives.
    """
    n, at_rest = model.nv, np.zeros(model.nv)
    force = split(tau + passive_forces(model, q, v) - rigid_body_forces(model, q, v, at_rest, f_ext))
    cut(force)
    M = rows_of(mass_matrix(model, q))
    cut(M)
    factors = inverse_factors(M, dof_above(model), model.floors)
    a = inverse_times(*factors, force)
    cut(a)
    outward = _outward(model, q, v, stack(a), f_ext)
    own_q, own_v = _taken_up(model, outward.slopes, range(n))
    by_q, by_v, _ = _inward(model, q, v, outward)
    cut(a)
    minus = factors[0], [-x for x in factors[1]]
    moving = [i for i, _ in model.outward() if model.slots[i].factor is None for _ in range(model.joint[i].nv)]
    columns: tuple[list[Any], list[Any]] = [], []
    for i, *both in zip(moving, zip(*rows_of(by_q), strict=True), zip(*rows_of(by_v), strict=True), strict=True):
        for symbol, column, solved in zip(("a by q", "a by v"), both, columns, strict=True):
            solved.append(tuple(inverse_times(*minus, column)))
            mark(solved[-1], symbol, i)
    da_dq, da_dv = (stack([x[c][r] for r in range(n) for c in range(n)], (n, n)) for x in columns)
    return _stacked(da_dq - own_q, da_dv - own_v, inverse_of(*factors))


def hybrid_dynamics_derivatives(
    model: Model, q: Any, v: Any, a: Any, tau: Any, f_ext: Any = None, *, prescribed: Chosen
) -> NDArray[Any]:
    """q̈ and τ of hybrid dynamics, complete, by q, v, a and τ: (2, 4, nv, nv). What is not given has columns of zeros.

    With u prescribed and w not: ∂q̈_w = -M_ww⁻¹ ∂ID_w and ∂τ_u = ∂ID_u + M_uw ∂q̈_w, where ID is taken at the solution and
    differentiated by q, v and q̈_u. By τ_w they are M_ww⁻¹ and M_uw M_ww⁻¹.   Kim (33) (34), differentiated.
    """
    n, u, (w, inside) = model.nv, list(prescribed), yielding(model, prescribed)
    M, qdd = rows_of(mass_matrix(model, q)), split(a)
    factors = inverse_factors([[M[r][c] for c in w] for r in w], inside, [model.floors[k] for k in w])
    lacking = split(tau + passive_forces(model, q, v) - rigid_body_forces(model, q, v, only(a, u), f_ext))
    for k, x in zip(w, inverse_times(*factors, [lacking[k] for k in w]), strict=True):
        qdd[k] = x
    outward = _outward(model, q, v, stack(qdd), f_ext)
    own_q, own_v = _taken_up(model, outward.slopes, w)
    by_q, by_v, _ = _inward(model, q, v, outward)
    da: list[Entries] = [{}, {}, {(k, k): 1.0 for k in u}, {}]
    dtau: list[Entries] = [{}, {}, {}, {(k, k): 1.0 for k in w}]
    for which, slopes in enumerate((rows_of(by_q), rows_of(by_v), M)):
        for c in u if which == 2 else range(n):
            x = inverse_times(*factors, [slopes[r][c] for r in w])
            da[which].update({(k, c): -y for k, y in zip(w, x, strict=True)})
            dtau[which].update({(r, c): slopes[r][c] - Vector(M[r][k] for k in w).dot(x) for r in u})
    W = inverse_of(*factors)
    da[3] = {(r, c): W[..., i, j] for i, r in enumerate(w) for j, c in enumerate(w)}
    dtau[3].update({(r, c): -da[2][c, r] for r in u for c in w})
    by_a = [_matrix(x, n) for x in da]
    return np.stack([_stacked(by_a[0] - own_q, by_a[1] - own_v, *by_a[2:]), _stacked(*(_matrix(x, n) for x in dtau))], -4)


def _matrix(entries: Entries, n: int) -> NDArray[Any]:
    return stack([entries.get((r, c), 0.0) for r in range(n) for c in range(n)], (n, n))


def _taken_up(model: Model, slopes: Slopes, yielding: Sequence[int]) -> tuple[NDArray[Any], NDArray[Any]]:
    """What free joints that yield do about A and A_v by themselves, which is then gone from the slopes.

    M times the accelerations A of a joint with all six DoF is what A takes. So a floating base answers its own
    rotation against gravity and its own linear velocity alone, and all other accelerations stay exactly as they are.
    """
    by_q, by_v = model.joint_matrix("own by q"), model.joint_matrix("own by v")
    for i, _ in model.outward():
        if model.joint[i].is_floating and model.is_free_without_rotor(i) and _within(model, i, yielding):
            for block, columns in ((by_q, slopes.A), (by_v, slopes.A_v)):
                block[i, i] = Matrix(Vector(c.components) for c in columns[i]).T
                columns[i] = Motions(zero_motion() for _ in columns[i])
    return by_q.stack(), by_v.stack()


def _within(model: Model, i: int, chosen: Sequence[int]) -> bool:
    return set(range(model.slots[i].v.start, model.slots[i].v.stop)) <= set(chosen)


def _stacked(*matrices: Any) -> NDArray[Any]:
    return np.stack(np.broadcast_arrays(*matrices), axis=-3)
