"""The same recursions with classical accelerations: no link's linear velocity is ever computed.

Luh, Walker & Paul 1980, [23] in Featherstone & Orin, whose footnote 1 tells spatial from classical accelerations. The
classical acceleration of a frame's origin is acc = v̇ + ω × v in its own axes. A point r of the link is accelerated by
acc + U r with U = [ω̇] + [ω][ω]: one matrix serves the child's origin, the centre of mass, and the moment of the whole
link, which is the skew part of U P with P = ∫ r rᵀ dm, the second moments themselves (I = tr P 1 - P).

| code    | meaning                                                            |
|---------|--------------------------------------------------------------------|
| w, wdot | ω, ω̇ of link i in its own axes                                     |
| acc     | acceleration of its origin, -g of the base in it                   |
| U       | [ω̇] + [ω][ω]                                                       |
| F       | force that the link's own motion takes, then what passes through its joint |

Forward dynamics splits the acceleration in two, A = A⁰ + δ. A⁰ is what the links have when no joint accelerates; the
forces that it takes are those of inverse dynamics. δ begins with a base at rest and obeys Kim's Table 3 with neither
velocity nor gravity in it. Joints that share coordinates take `articulated_coupled`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.algorithms import articulated_body_mimic
from qddot.algorithms.articulated_body import accelerations
from qddot.algorithms.passive_forces import passive_forces
from qddot.mechanism.model import Model
from qddot.spatial import Ad_inv_T, Force, Product, Slide, Transform, second_moments, zero_force, zero_motion
from qddot.spatial.joint_blocks import Motions
from qddot.spatial.rotation import ZERO, Mat, Vec, add, cross, mat_vec, scale


def inverse_dynamics(model: Model, q: Any, v: Any, a: Any, f_ext: Any = None) -> NDArray[Any]:
    """The joint forces that give the accelerations a: M a + bias - passive - Jᵀf_ext."""
    return rigid_body_forces(model, q, v, a, f_ext) - passive_forces(model, q, v)


def bias_force(model: Model, q: Any, v: Any) -> NDArray[Any]:
    """Coriolis, centrifugal and gravity forces."""
    return rigid_body_forces(model, q, v, np.zeros(model.nv))


def rigid_body_forces(model: Model, q: Any, v: Any, a: Any, f_ext: Any = None) -> NDArray[Any]:
    """M a + bias - Jᵀf_ext.   Luh, Walker & Paul 1980."""
    T, S, F = link_forces(model, q, v, a, f_ext)
    qdd, tau = model.velocities(a), model.joint_vector("tau")
    for i, p in model.inward():
        tau[i] = S[i].T @ F[i] + model.armature[i].times(qdd[i])
        F[p] = F[p] + Ad_inv_T(T[i], F[i])
    return tau.stack()


def link_forces(model: Model, q: Any, v: Any, a: Any, f_ext: Any) -> tuple[list[Transform], list[Motions], list[Force]]:
    """T_{λ(i),i}, S_i, and the force that each link's own motion takes."""
    T, S, Sdot_v = model.joints_at(q, v)
    qd, qdd, F_ext = model.velocities(v), model.velocities(a), model.external(f_ext)
    w, wdot, acc, U, F = model.per_link("w", "wdot", "acc", "U", "F")
    w[0], wdot[0], acc[0] = model.base_acceleration.w, model.base_acceleration.w, model.base_acceleration.v
    U[0], F[0] = spin(w[0], wdot[0]), zero_force()
    for i, p in model.outward():
        outer, inner = _positions(T[i])
        w_p = _turned(T[i], w[p])
        (w_J, u), rate = S[i] @ qd[i], Sdot_v[i] + S[i] @ qdd[i]
        w[i] = add(w_p, w_J)
        wdot[i] = add(add(_turned(T[i], wdot[p]), cross(w_p, w_J)), rate.w)
        U[i], I = spin(w[i], wdot[i]), model.inertia[i]
        origin = add(_turned(T[i], add(acc[p], mat_vec(U[p], outer))), mat_vec(U[i], inner))
        acc[i] = add(add(origin, rate.v), add(cross(add(w_p, w_p), u), cross(w_J, u)))
        moment = add(twice_skew_part(U[i], second_moments(I)), cross(I.h, acc[i]))
        F[i] = Force(moment, add(scale(I.m, acc[i]), mat_vec(U[i], I.h))) - F_ext[i]
    return T, S, F


def _positions(T: Transform) -> tuple[Vec, Vec]:
    """The child's origin in two steps: in the parent's axes, then in the child's, which cost less where it can be."""
    *first, last = T.parts or (T,)
    return (Product(*first).p, last.p) if isinstance(last, Slide) else (T.p, ZERO)


def _turned(T: Transform, x: Vec) -> Vec:
    """A vector known in the parent's axes, in the child's."""
    for P in T.parts:
        x = P.R.T @ x
    return x


def spin(w: Vec, wdot: Vec) -> Mat:
    """[ω̇] + [ω][ω]."""
    xx, yy, zz = w[0] * w[0], w[1] * w[1], w[2] * w[2]
    xy, xz, yz = w[0] * w[1], w[0] * w[2], w[1] * w[2]
    return (
        (-(yy + zz), xy - wdot[2], xz + wdot[1]),
        (xy + wdot[2], -(xx + zz), yz - wdot[0]),
        (xz - wdot[1], yz + wdot[0], -(xx + yy)),
    )


def twice_skew_part(U: Mat, P: Mat) -> Vec:
    """∫ r × U r dm, of which the skew part of U P is half."""
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = U
    return (
        (zx * P[0][1] - yx * P[0][2]) + (zz - yy) * P[1][2] + (zy * P[1][1] - yz * P[2][2]),
        (xy * P[1][2] - zy * P[0][1]) + (xx - zz) * P[0][2] + (xz * P[2][2] - zx * P[0][0]),
        (yz * P[0][2] - xz * P[1][2]) + (yy - xx) * P[0][1] + (yx * P[0][0] - xy * P[1][1]),
    )


def forward_dynamics(model: Model, q: Any, v: Any, tau: Any, f_ext: Any = None) -> NDArray[Any]:
    """Accelerations under joint forces tau: Kim's Table 3 on what is left of them by A = A⁰ + δ."""
    tau = tau + passive_forces(model, q, v)
    if model.is_coupled:
        return articulated_body_mimic.forward_dynamics(model, q, v, tau, f_ext)
    T, S, F = link_forces(model, q, v, np.zeros(model.nv), f_ext)
    return accelerations(model, T, S, [zero_motion() for _ in T], F, tau, zero_motion())
