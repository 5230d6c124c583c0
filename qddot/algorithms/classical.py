"""The same recursions with classical accelerations: no link's linear velocity is ever computed.

Luh, Walker & Paul 1980, [23] in Featherstone & Orin, whose footnote 1 tells spatial from classical accelerations. The
classical acceleration of a frame's origin is v̇ + ω × v in its own axes. With A = (ω̇, v̇ + ω × v) in the place of V̇ the
equations of Kim's Tables 2 and 3 keep their form,

    A_i = Ad_{T⁻¹} A_λ + η_i + S_i q̈_i,      F_i = 𝓘_i A_i + B_i - F_i^ext + Σ Ad* F_k,

and η and B need angular velocities only: with p, u, ω_J the joint's position, linear and angular velocity,

    η = (ω_λ × ω_J, ω_λ × (ω_λ × p) + 2 ω_λ × u + ω_J × u) + Ṡ q̇,      B = (ω × I ω, ω × (ω × h)).

Inverse dynamics needs a fifth fewer operations than with spatial accelerations, forward dynamics up to a tenth fewer
(docs/decisions/0005). Joints that share coordinates take `articulated_coupled`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.algorithms import articulated_coupled
from qddot.algorithms.articulated_body import accelerations
from qddot.algorithms.passive import passive_forces
from qddot.joint_space import PerLink
from qddot.model import Model
from qddot.rotation import ZERO, Mat, Vec, add, cross, mat_vec, scale
from qddot.spatial import Ad_inv_T, Force, Motion, Transform, zero_force


def velocity_terms(model: Model, q: Any, v: Any) -> tuple[list[Transform], list[Any], PerLink, PerLink]:
    """T_{λ(i),i}, S_i, η_i and B_i of every link."""
    T, S, Sdot_v = model.joints_at(q, v)
    v = model.velocities(v)
    w, eta, B = model.per_link("w", "eta", "B")
    w[0], B[0] = ZERO, zero_force()
    for i, p in model.outward():
        w_p, centripetal = _carried(T[i], w[p])
        w_J, u = S[i] @ v[i]
        turning = add(cross(add(w_p, w_p), u), cross(w_J, u))
        w[i] = add(w_p, w_J)
        eta[i] = Motion(cross(w_p, w_J), add(centripetal, turning)) + Sdot_v[i]
        I = model.inertia[i]
        B[i] = Force(cross(w[i], mat_vec(I.I, w[i])), cross(w[i], cross(w[i], I.h)))
    return T, S, eta, B


def _carried(T: Transform, w: Vec) -> tuple[Vec, Vec]:
    """The parent's angular velocity ω in the child's axes, and ω × (ω × p) of the child's origin."""
    centripetal = ZERO
    for P in T.parts:
        if P.p is not ZERO:
            centripetal = add(centripetal, cross(w, cross(w, P.p)))
        Rt = P.R.T
        w, centripetal = Rt @ w, Rt @ centripetal
    return w, centripetal


def inverse_dynamics(model: Model, q: Any, v: Any, a: Any, f_ext: Any = None) -> NDArray[Any]:
    """The joint forces that give the accelerations a: M a + bias - passive - Jᵀf_ext."""
    return rigid_body_forces(model, q, v, a, f_ext) - passive_forces(model, q, v)


def bias_force(model: Model, q: Any, v: Any) -> NDArray[Any]:
    """Coriolis, centrifugal and gravity forces."""
    return rigid_body_forces(model, q, v, np.zeros(model.nv))


def rigid_body_forces(model: Model, q: Any, v: Any, a: Any, f_ext: Any = None) -> NDArray[Any]:
    """M a + bias - Jᵀf_ext.   Luh, Walker & Paul 1980.

    A point r of a link is accelerated by acc + U r with U = [ω̇] + [ω][ω]: one matrix a link serves the child's origin and
    the centre of mass.
    """
    T, S, Sdot_v = model.joints_at(q, v)
    qd, qdd, F_ext = model.velocities(v), model.velocities(a), model.external(f_ext)
    w, wdot, acc, U, F = model.per_link("w", "wdot", "acc", "U", "F")
    tau = model.joint_vector("tau")
    w[0], wdot[0], acc[0] = model.base_acceleration.w, model.base_acceleration.w, model.base_acceleration.v
    U[0], F[0] = _spin(w[0], wdot[0]), zero_force()
    for i, p in model.outward():
        w_p = _turned(T[i], w[p])
        (w_J, u), rate = S[i] @ qd[i], Sdot_v[i] + S[i] @ qdd[i]
        w[i] = add(w_p, w_J)
        wdot[i] = add(add(_turned(T[i], wdot[p]), cross(w_p, w_J)), rate.w)
        origin = _turned(T[i], add(acc[p], mat_vec(U[p], T[i].p)))
        acc[i] = add(add(origin, rate.v), add(cross(add(w_p, w_p), u), cross(w_J, u)))
        U[i], I = _spin(w[i], wdot[i]), model.inertia[i]
        moment = add(add(mat_vec(I.I, wdot[i]), cross(w[i], mat_vec(I.I, w[i]))), cross(I.h, acc[i]))
        F[i] = Force(moment, add(scale(I.m, acc[i]), mat_vec(U[i], I.h))) - F_ext[i]
    for i, p in model.inward():
        tau[i] = S[i].T @ F[i] + model.armature[i].times(qdd[i])
        F[p] = F[p] + Ad_inv_T(T[i], F[i])
    return tau.stack()


def _turned(T: Transform, x: Vec) -> Vec:
    """A vector known in the parent's axes, in the child's."""
    for P in T.parts:
        x = P.R.T @ x
    return x


def _spin(w: Vec, wdot: Vec) -> Mat:
    """[ω̇] + [ω][ω]."""
    xx, yy, zz = w[0] * w[0], w[1] * w[1], w[2] * w[2]
    xy, xz, yz = w[0] * w[1], w[0] * w[2], w[1] * w[2]
    return (
        (-(yy + zz), xy - wdot[2], xz + wdot[1]),
        (xy + wdot[2], -(xx + zz), yz - wdot[0]),
        (xz - wdot[1], yz + wdot[0], -(xx + yy)),
    )


def forward_dynamics(model: Model, q: Any, v: Any, tau: Any, f_ext: Any = None) -> NDArray[Any]:
    """Accelerations under joint forces tau: Kim's Table 3 with classical accelerations."""
    tau = tau + passive_forces(model, q, v)
    if model.is_coupled:
        return articulated_coupled.forward_dynamics(model, q, v, tau, f_ext)
    T, S, eta, B = velocity_terms(model, q, v)
    for i, F in enumerate(model.external(f_ext)):
        B[i] = B[i] - F
    return accelerations(model, T, S, eta, B, tau)
