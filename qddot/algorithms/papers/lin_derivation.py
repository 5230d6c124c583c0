"""How Lin comes to his formulas: composite bodies that one joint accelerates, or two joints move.

Lin 1991, (2)-(23) for the inertia matrix and (31)-(53) with (58) for the bias vector, all in the axes of the base and seen
from its origin; corrections L1, L5 to L11 of docs/errata.md. For reading: `lin` has the algorithm. One state at a time.

| code         | Lin             | meaning                                                                |
|--------------|-----------------|------------------------------------------------------------------------|
| u, s         | u_j, ^j_0s      | axis of joint j, origin of E_j                                         |
| p, m, I      | ^i_0p, m_i, I_i | centre of mass, mass, inertia about it                                 |
| m_hat, r, J  | m̂_j, r_j, J_j   | mass, centre of mass of composite body j, inertia about it             |
| r_ddot, alpha| r̈_j, α_j        | accelerations of composite body j                                      |
| f_E, t_E     | f_Ej, t_Ej      | inertia force and torque at the base's origin                          |
| D            | D_mkj           | b_m = Σ D_mkj q̇_k q̇_j + η_m                                            |
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qddot.algorithms.papers.centres import centre
from qddot.algorithms.papers.lin import less_half_trace
from qddot.algorithms.papers.lin_frames import joint_frames, put
from qddot.joints import Z
from qddot.mechanism.model import Model
from qddot.scalars import Scalar, less, where
from qddot.spatial import Transform
from qddot.spatial.joint_blocks import Vector
from qddot.spatial.rotation import (
    ZERO,
    Mat,
    Vec,
    add,
    cross,
    dot,
    mat_add,
    mat_mat,
    mat_sub,
    mat_vec,
    outer,
    scale,
    skew,
    sub,
)


class Arm(NamedTuple):
    """Every link and joint in the axes of the base, the world first."""

    model: Model
    u: list[Vec]
    s: list[Vec]
    p: list[Vec]
    m: list[Scalar]
    I: list[Mat]
    K: list[float]
    K_star: list[float]

    def composite(self, j: int) -> list[int]:
        """Link j and all that it carries."""
        return [i for i, _ in self.model.outward() if j in self.model.ancestors(i)]

    def motion(self, j: int, x: Vec) -> Vec:
        """The velocity that joint j gives to the point x: it turns about its axis and travels along it.   (7)"""
        return add(scale(self.K_star[j], cross(self.u[j], sub(x, self.s[j]))), scale(self.K[j], self.u[j]))


def arm(model: Model, q: Any) -> Arm:
    """u_j, ^j_0s, ^j_0p, m_j and I_j at one configuration."""
    E, T_W = joint_frames(model, q), [Transform()]
    out = Arm(model, [ZERO], [ZERO], [ZERO], [0.0], [(ZERO, ZERO, ZERO)], E.K, E.K_star)
    for j, i in model.outward():
        T_W.append(T_W[i] @ E.T[j])
        c, own = centre(model, j, E.inertia[j])
        out.u.append(T_W[j].R @ Z)
        out.s.append(T_W[j].p)
        out.p.append(T_W[j].point(c))
        out.m.append(own.m)
        out.I.append(T_W[j].R.similar_symmetric(own.I))
    return out


# ---- the inertia matrix: one joint accelerates -------------------------------------------------------------------------


class Composite(NamedTuple):
    """Composite body j: its mass, its centre of mass, and the inertia about it."""

    m_hat: Scalar
    r: Vec
    J: Mat


def composite(a: Arm, j: int) -> Composite:
    """m̂_j, r_j and J_j, summed over the links.   (2) (3) (4), L1"""
    links = a.composite(j)
    m_hat = sum(a.m[i] for i in links)  # (2)
    massive = less(0.0, m_hat)
    r = scale(where(massive, 1.0, 0.0) / where(massive, m_hat, 1.0), first_moment(a, j))  # (3)
    J: Mat = (ZERO, ZERO, ZERO)
    for i in links:
        J = mat_add(J, mat_sub(a.I[i], _twice_crossed(a.m[i], sub(a.p[i], r))))  # (4)
    return Composite(m_hat, r, J)


def first_moment(a: Arm, j: int) -> Vec:
    """p̂_j = m̂_j r_j about the base's origin.   (14)"""
    p_hat = ZERO
    for i in a.composite(j):
        p_hat = add(p_hat, scale(a.m[i], a.p[i]))
    return p_hat


def inertia_about_base(a: Arm, j: int) -> Mat:
    """Ĵ_j about the base's origin.   (13)"""
    J: Mat = (ZERO, ZERO, ZERO)
    for i in a.composite(j):
        J = mat_add(J, mat_sub(a.I[i], _twice_crossed(a.m[i], a.p[i])))
    return J


def reduced_inertia(a: Arm, j: int) -> Mat:
    """J̄_j, the same less half its trace, with Ĵ_j = J̄_j - tr(J̄_j) E.   (22) (23), L1"""
    J: Mat = (ZERO, ZERO, ZERO)
    for i in a.composite(j):
        J = mat_add(J, mat_sub(less_half_trace(a.I[i]), outer(scale(a.m[i], a.p[i]), a.p[i])))
    return J


def _twice_crossed(m: Scalar, x: Vec) -> Mat:
    """m [x×][x×]."""
    return mat_mat(skew(scale(m, x)), skew(x))


def one_joint(a: Arm, c: Composite, j: int) -> tuple[Vec, Vec]:
    """r̈_j and α_j when joint j alone accelerates, by one.   (5) (6)"""
    return a.motion(j, c.r), scale(a.K_star[j], a.u[j])


def at_base(c: Composite, r_ddot: Vec, t_T: Vec) -> tuple[Vec, Vec]:
    """f_Ej and t_Ej: inertia force and torque of composite body j, taken at the base's origin.   (8) (9)"""
    f_T = scale(-1.0, scale(c.m_hat, r_ddot))  # (8)
    return f_T, add(t_T, cross(c.r, f_T))  # (9)


def actuator_force(a: Arm, m: int, f_E: Vec, t_E: Vec) -> Scalar:
    """τ_m that resists an inertia force and torque at the base's origin.   (10)"""
    moment = sub(t_E, cross(a.s[m], f_E))
    return -dot(a.u[m], add(scale(a.K_star[m], moment), scale(a.K[m], f_E)))


def mass_matrix(model: Model, q: Any) -> NDArray[Any]:
    """H_mj = τ_m of q̈_j = 1, step by step.   (5)-(11)"""
    a, H = arm(model, q), model.joint_matrix("H")
    for j, _ in model.outward():
        c = composite(a, j)
        r_ddot, alpha = one_joint(a, c, j)
        f_E, t_E = at_base(c, r_ddot, scale(-1.0, mat_vec(c.J, alpha)))
        for m in model.ancestors(j):
            put(model, H, m, j, actuator_force(a, m, f_E, t_E))  # (11)
    return H.stack()


def mass_matrix_closed(model: Model, q: Any) -> NDArray[Any]:
    """H_mj in closed form.   (12)-(15)"""
    a, H = arm(model, q), model.joint_matrix("H")
    K, K_star = a.K, a.K_star
    for j, _ in model.outward():
        J_hat, p_hat, m_hat, u_j = inertia_about_base(a, j), first_moment(a, j), composite(a, j).m_hat, a.u[j]
        s_hat = [cross(u, s) for u, s in zip(a.u, a.s, strict=True)]  # (15)
        e = cross(u_j, sub(p_hat, scale(m_hat, a.s[j])))
        for m in model.ancestors(j):
            u_m = a.u[m]
            turned = dot(u_m, add(mat_vec(J_hat, u_j), cross(s_hat[j], p_hat))) - dot(s_hat[m], e)
            slid = dot(u_j, sub(cross(u_m, p_hat), scale(m_hat, s_hat[m])))
            H_mj = (
                K_star[m] * K_star[j] * turned
                + K[m] * K_star[j] * dot(u_m, e)
                + K_star[m] * K[j] * slid
                + K[m] * K[j] * m_hat * dot(u_m, u_j)
            )
            put(model, H, m, j, H_mj)
    return H.stack()


# ---- the bias vector: two joints move at constant speed ----------------------------------------------------------------


def point_acceleration(a_0: Vec, omega: Vec, alpha: Vec, r: Vec, v_rel: Vec) -> Vec:
    """Of a point at r in a frame that moves, itself moving with v_rel in it.   (38), L5"""
    turning = add(cross(omega, cross(omega, r)), cross(alpha, r))
    return add(a_0, add(turning, scale(2.0, cross(omega, v_rel))))


class TwoJoints(NamedTuple):
    """Composite body j when joints k and j, k below j, move at constant speed."""

    omega: Vec
    alpha: Vec
    s_ddot: Vec
    r_ddot: Vec


def two_joints(a: Arm, c: Composite, k: int, j: int, qd_k: Scalar, qd_j: Scalar) -> TwoJoints:
    """ω_j, α_j, and the accelerations of joint j's origin and of the centre of mass.   (36) (37) (39) (40)"""
    w_k, w_j = scale(a.K_star[k] * qd_k, a.u[k]), scale(a.K_star[j] * qd_j, a.u[j])
    omega, alpha = add(w_k, w_j), cross(w_k, w_j)  # (36) (37)
    slide = scale(a.K[j] * qd_j, a.u[j])
    s_ddot = point_acceleration(ZERO, w_k, ZERO, sub(a.s[j], a.s[k]), slide)  # (39)
    return TwoJoints(omega, alpha, s_ddot, point_acceleration(s_ddot, omega, alpha, sub(c.r, a.s[j]), ZERO))  # (40)


def link_acceleration(a: Arm, i: int, k: int, qd_k: Scalar) -> Vec:
    """Of the centre of mass of a link between joints k and j; it does not turn faster.   (41) (42)"""
    if k not in a.model.ancestors(i):
        return ZERO
    w_k = scale(a.K_star[k] * qd_k, a.u[k])
    return cross(w_k, cross(w_k, sub(a.p[i], a.s[k])))


def bias_of_two_joints(a: Arm, m: int, k: int, j: int, qd_k: Scalar, qd_j: Scalar) -> Scalar:
    """What composite body j makes joint m resist when joints k and j move.   (43) (44), L6 L7

    All terms with q̇_k q̇_j and q̇_j²; of those with q̇_k² the links between k and j have a share that is not in it.
    """
    c = composite(a, j)
    moved = two_joints(a, c, k, j, qd_k, qd_j)
    gyroscopic = add(mat_vec(c.J, moved.alpha), cross(moved.omega, mat_vec(c.J, moved.omega)))
    return actuator_force(a, m, *at_base(c, moved.r_ddot, scale(-1.0, gyroscopic)))


def d(a: Arm, m: int, j: int) -> Vec:
    """d_mj, with D_mkj = K*_k u_k · d_mj.   (46), L8; by way of (48)-(53)"""
    K, K_star, u_m, u_j = a.K, a.K_star, a.u[m], a.u[j]
    p_hat, m_hat = first_moment(a, j), composite(a, j).m_hat
    s_j, s_m = cross(u_j, a.s[j]), cross(u_m, a.s[m])
    e = cross(u_j, sub(p_hat, scale(m_hat, a.s[j])))
    turned = sub(add(cross(s_j, cross(p_hat, u_m)), cross(s_m, e)), mat_vec(reduced_inertia(a, j), cross(u_j, u_m)))
    slid = cross(u_j, sub(cross(u_m, p_hat), scale(m_hat, s_m)))
    out = add(scale(K_star[m] * K_star[j], turned), scale(-K[m] * K_star[j], cross(u_m, e)))
    return add(out, add(scale(K_star[m] * K[j], slid), scale(-K[m] * K[j] * m_hat, cross(u_m, u_j))))


def coefficients(model: Model, q: Any) -> NDArray[Any]:
    """D_mkj of all joints, counted from 0: those of (45) for k <= j and m < j, and what (32)-(34) and (47) make of them."""
    a, n = arm(model, q), model.n_links
    D = np.zeros((n, n, n), dtype=np.result_type(float, *(np.asarray(u).dtype for u in a.u)))
    for j, i in model.outward():
        for m in model.ancestors(i):
            d_mj = d(a, m, j)
            for k in model.ancestors(j):
                D_mkj = a.K_star[k] * dot(a.u[k], d_mj)  # (45)
                D[m - 1, k - 1, j - 1] = D[m - 1, j - 1, k - 1] = D_mkj  # (32)
                if k in model.ancestors(m):
                    D[j - 1, k - 1, m - 1] = D[j - 1, m - 1, k - 1] = -D_mkj  # (34) (47), L9
    return D


def gravity_force(a: Arm, j: int) -> Scalar:
    """η_j: what joint j resists of the weight of composite body j.   (58)"""
    c = composite(a, j)
    weight = scale(c.m_hat, a.model.gravity)
    turning = cross(sub(c.r, a.s[j]), weight)
    return -a.K_star[j] * dot(a.u[j], turning) - a.K[j] * dot(a.u[j], weight)


def bias_force(model: Model, q: Any, v: Any) -> NDArray[Any]:
    """b_m = Σ_j Σ_k<j 2 D_mkj q̇_k q̇_j + Σ_j D_mjj q̇_j² + η_m.   (31) (35)"""
    a, D, qd, b = arm(model, q), coefficients(model, q), model.velocities(v), model.joint_vector("b")
    for m, _ in model.outward():
        total = gravity_force(a, m)
        for j, _ in model.outward():
            total = total + D[m - 1, j - 1, j - 1] * qd[j][0] * qd[j][0]
            for k in range(1, j):
                total = total + 2.0 * D[m - 1, k - 1, j - 1] * qd[k][0] * qd[j][0]
        b[m] = Vector((total,))
    return b.stack()
