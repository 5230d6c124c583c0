"""Inverse dynamics after Khalil & Kleinfinger: Newton and Euler about the joints, in parameters that dynamics is linear in.

Cited in Lin 1991, Table II: W. Khalil, J. F. Kleinfinger, *Minimum operations and minimum parameters of the dynamic models
of tree structure robots*, IEEE J. Robotics and Automation RA-3, 517-526 (1987), which is not among our papers. Frames are
the modified Denavit-Hartenberg ones (`joint_frames`). Mass M_j, first moment MS_j and inertia J_j of link j are taken about
the origin of its frame: no centre of mass is needed, so base parameters, in which links have no mass, serve as well
(`mechanism.simplify` finds them). The matrix U_j = [ω̇×] + [ω×][ω×] serves the next origin, the first moment, and the moment
J_j ω̇_j + ω_j × J_j ω_j, which is linear in the six numbers of J_j with five terms a row.

| code    | Khalil & Kleinfinger | meaning                                                      |
|---------|----------------------|--------------------------------------------------------------|
| w, wdot | ω_j, ω̇_j             | of link j, in E_j                                            |
| acc     | V̇_j                  | acceleration of the origin of E_j, -g of the base in it      |
| U       | U_j                  | [ω̇×] + [ω×][ω×]                                              |
| s       | P_j                  | origin of E_j, in the frame before                           |
| K, K*   | σ_j, 1 - σ_j         | travel along the axis, turn about it (`joint_frames`)        |
| F, N    | F_j, M_j             | force and moment that a link's own motion takes              |
| f, n    | f_j, m_j             | force and moment through joint j                             |

Cost: O(n). On a tree the sums are over the links that hang on a link.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qddot.algorithms.kinematics import joint_forces_of
from qddot.algorithms.newton_euler_classical import spin
from qddot.algorithms.papers.lin_frames import JointFrames, inward, joint_frames, outward
from qddot.algorithms.passive_forces import passive_forces
from qddot.mechanism.model import Model
from qddot.spatial.joint_blocks import Vector
from qddot.spatial.rotation import Mat, Vec, add, cross, mat_vec, scale


class Motions(NamedTuple):
    """ω, ω̇, V̇ and U of every link in its frame E_j."""

    w: list[Vec]
    wdot: list[Vec]
    acc: list[Vec]
    U: list[Mat]


def inverse_dynamics(model: Model, q: Any, v: Any, a: Any, f_ext: Any = None) -> NDArray[Any]:
    """The joint forces that give the accelerations a."""
    tau = rigid_body_forces(model, q, v, a) - passive_forces(model, q, v)
    return tau if f_ext is None else tau - joint_forces_of(model, q, f_ext)


def bias_force(model: Model, q: Any, v: Any) -> NDArray[Any]:
    """Coriolis, centrifugal and gravity forces: q̈ = 0, as in Lin's Table II."""
    return rigid_body_forces(model, q, v, np.zeros(model.nv))


def rigid_body_forces(model: Model, q: Any, v: Any, a: Any) -> NDArray[Any]:
    """M a + bias."""
    E, qdd, tau = joint_frames(model, q), model.velocities(a), model.joint_vector("tau")
    w, wdot, acc, U = motions(model, E, v, a)
    f, n = list(acc), list(acc)
    for j, _ in model.outward():
        M, MS, J = E.inertia[j]
        f[j] = add(scale(M, acc[j]), mat_vec(U[j], MS))  # F_j
        n[j] = add(turning_moment(J, w[j], wdot[j], U[j]), cross(MS, acc[j]))  # M_j
    for j, i in model.inward():
        own = E.K_star[j] * n[j][2] + E.K[j] * f[j][2]
        tau[j] = Vector((own,)) + model.armature[j].times(qdd[j])
        if i:
            through = inward(E.T[j], f[j])
            f[i] = add(f[i], through)
            n[i] = add(n[i], add(inward(E.T[j], n[j]), cross(E.T[j].p, through)))
    return tau.stack()


def turning_moment(J: Mat, w: Vec, wdot: Vec, U: Mat) -> Vec:
    """J ω̇ + ω × J ω, by U and the products of ω that are in it."""
    (XX, XY, XZ), (_, YY, YZ), (_, _, ZZ) = J
    (x, y, z), (_, (u21, _, u23), (u31, u32, _)), (u12, u13) = w, U, U[0][1:]
    return (
        XX * wdot[0] - XY * u31 + XZ * u21 + YZ * (y * y - z * z) + (ZZ - YY) * (y * z),
        YY * wdot[1] - YZ * u12 + XY * u32 + XZ * (z * z - x * x) + (XX - ZZ) * (x * z),
        ZZ * wdot[2] - XZ * u23 + YZ * u13 + XY * (x * x - y * y) + (YY - XX) * (x * y),
    )


def motions(model: Model, E: JointFrames, v: Any, a: Any) -> Motions:
    """Outward: angular velocities and accelerations, and those of the origins."""
    qd, qdd, (_, base) = model.velocities(v), model.velocities(a), model.base_acceleration
    still = model.base_acceleration.w
    w, wdot, acc, U = [still], [still], [base], [spin(still, still)]
    for j, i in model.outward():
        K, K_star, (rate,), (change,) = E.K[j], E.K_star[j], qd[j], qdd[j]
        w_i = outward(E.T[j], w[i])
        turn, travel = (0.0, 0.0, K_star * rate), (0.0, 0.0, K * rate)
        w.append(add(w_i, turn))
        wdot.append(add(add(outward(E.T[j], wdot[i]), cross(w_i, turn)), (0.0, 0.0, K_star * change)))
        U.append(spin(w[j], wdot[j]))
        carried = outward(E.T[j], add(acc[i], mat_vec(U[i], E.T[j].p)))
        acc.append(add(add(carried, cross(add(w_i, w_i), travel)), (0.0, 0.0, K * change)))
    return Motions(w, wdot, acc, U)
