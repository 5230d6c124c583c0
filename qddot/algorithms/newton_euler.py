"""Inverse dynamics by the recursive Newton-Euler algorithm.

Kim 2012, section 2.1, Table 2; Featherstone & Orin 2000, section 3.1.

| code        | Kim            | Featherstone & Orin | meaning                                        |
|-------------|----------------|---------------------|------------------------------------------------|
| T[i]        | T_{λ(i),i}     | X                   | link i in its parent                           |
| S[i]        | S_i            | h_i                 | joint axes in link i                           |
| Sdot_v[i]   | Ṡ_i q̇_i        |                     | their own change times the joint velocity      |
| V[i]        | V_i            | v_i                 | link velocity                                  |
| Vdot[i]     | V̇_i            | a_i                 | link acceleration, componentwise               |
| F[i]        | F_i            | f_i^J               | force through joint i                          |
| tau[i]      | τ_i            | τ_i                 | joint force                                    |

Cost: O(n).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.algorithms.kinematics import link_poses
from qddot.algorithms.passive_forces import passive_forces
from qddot.mechanism.model import Model
from qddot.spatial import Ad, Ad_inv, Ad_inv_T, ad, ad_T, transform_inertia, zero_force, zero_motion
from qddot.spatial.joint_blocks import Ad_columns


def inverse_dynamics(model: Model, q: Any, v: Any, a: Any, f_ext: Any = None) -> NDArray[Any]:
    """The joint forces that give the accelerations a: M a + bias - passive - Jᵀf_ext."""
    return rigid_body_forces(model, q, v, a, f_ext) - passive_forces(model, q, v)


def rigid_body_forces(model: Model, q: Any, v: Any, a: Any, f_ext: Any = None) -> NDArray[Any]:
    """M a + bias - Jᵀf_ext, in link coordinates.   Kim Table 2; Featherstone & Orin (3) (4) (7) (8)."""
    T, S, Sdot_v = model.joints_at(q, v)
    v, a, F_ext = model.velocities(v), model.velocities(a), model.external(f_ext)
    V, Vdot, F = model.per_link("V", "Vdot", "F")
    tau = model.joint_vector("tau")
    V[0], Vdot[0], F[0] = zero_motion(), model.base_acceleration, zero_force()
    for i, p in model.outward():  # outward: velocities, accelerations, net forces
        J_v = S[i] @ v[i]
        V[i] = Ad_inv(T[i], V[p]) + J_v  # Kim (37)
        Vdot[i] = Ad_inv(T[i], Vdot[p]) + ad(V[i], J_v) + Sdot_v[i] + S[i] @ a[i]  # (41)
        I = model.inertia[i]
        F[i] = I @ Vdot[i] - ad_T(V[i], I @ V[i]) - F_ext[i]  # (42)
    for i, p in model.inward():  # inward: what passes through each joint
        tau[i] = S[i].T @ F[i] + model.armature[i].times(a[i])
        F[p] = F[p] + Ad_inv_T(T[i], F[i])
    return tau.stack()


def inverse_dynamics_absolute(model: Model, q: Any, v: Any, a: Any, f_ext: Any = None) -> NDArray[Any]:
    """The same in absolute coordinates: every vector in the world's frame, no transforms in the recursion.

    Featherstone & Orin (1)-(8) as printed; ḣ_i has a term of its own for joints with Ṡ ≠ 0 (errata F4).
    """
    T_W, S = link_poses(model, q), model.axes(q)
    _, _, Sdot_v = model.joints_at(q, v)
    qd, qdd, f_x = model.velocities(v), model.velocities(a), model.external(f_ext)
    vel, acc, f_J = model.per_link("v", "a", "f_J")
    tau = model.joint_vector("tau")
    h = [Ad_columns(T_W[i], S[i]) for i in range(len(S))]
    vel[0], acc[0], f_J[0] = zero_motion(), model.base_acceleration, zero_force()
    for i, p in model.outward():
        vel[i] = vel[p] + h[i] @ qd[i]  # (1) (3)
        hdot_qd = ad(vel[i], h[i] @ qd[i]) + Ad(T_W[i], Sdot_v[i])
        acc[i] = acc[p] + hdot_qd + h[i] @ qdd[i]  # (4)
        I = transform_inertia(T_W[i], model.inertia[i])
        f_J[i] = I @ acc[i] - ad_T(vel[i], I @ vel[i]) - Ad_inv_T(T_W[i], f_x[i])  # (5)
    for i, p in model.inward():
        tau[i] = h[i].T @ f_J[i] + model.armature[i].times(qdd[i])  # (8)
        f_J[p] = f_J[p] + f_J[i]  # (6) (7)
    return tau.stack() - passive_forces(model, q, v)


def bias_force(model: Model, q: Any, v: Any) -> NDArray[Any]:
    """Coriolis, centrifugal and gravity forces: the b of Kim (32), the C of Featherstone & Orin 3.2."""
    return rigid_body_forces(model, q, v, np.zeros(model.nv))


def gravity_force(model: Model, q: Any) -> NDArray[Any]:
    """The forces that hold the mechanism still: the gradient of the potential energy of gravity."""
    rest = np.zeros(model.nv)
    return rigid_body_forces(model, q, rest, rest)
