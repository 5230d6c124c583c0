"""Dynamics by the decoupled natural orthogonal complement: Saha's matrices, entry by entry and in recursions.

Saha 1999, sections 2 and 3; corrections S1 to S13 of docs/errata.md. The matrices themselves, 6n rows high, are in
`denoc_matrices`; here are the entries that they come to, (23b) (24) (28)-(30), the recursive inverse dynamics, and the
forward dynamics by reverse Gaussian elimination, I = U D Uᵀ, which our copy of the paper announces and does not give.

Twists are taken at the centres of mass, in the axes of the world. "i <= j" is "i carries j" on a tree, and sums over the
next body are sums over the bodies next to it. A joint of several DoF has as many columns p_i; a joint whose axes
move by themselves adds their own rate to Ω_i p_i.

| code      | Saha     | meaning                                                                    |
|-----------|----------|----------------------------------------------------------------------------|
| C[i]      | C_i      | centre of mass; where a link has no mass, its origin                       |
| t, t_dot  | t_i, ṫ_i | twist (1) and its rate                                                     |
| B[i]      | B_ij     | carries a twist from the parent's centre of mass to body i, (13)           |
| p[i]      | p_i      | twist of body i for a unit rate of its joint, (13) (15)                    |
| p_dot[i]  | Ω_i p_i  | its rate, (26)                                                             |
| M[i]      | M_i      | mass matrix (2)                                                            |
| M_tilde   | M̃_i      | of the composite body, (23b)                                               |
| M_hat     | M̂_i      | sum of the Ṁ of the composite body, (28); only its first block is not zero |
| BH_tilde  | B_i+1,iᵀ H̃_i+1,i | (28); only its first three columns are not zero                    |
| w         | w_i      | wrench                                                                     |

Cost: O(n) for inverse and forward dynamics, O(n · depth) for the matrices.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qddot.algorithms.kinematics import link_poses
from qddot.algorithms.papers.centres import centre
from qddot.algorithms.passive_forces import passive_forces
from qddot.algorithms.sparse_factors import solve
from qddot.mechanism.joint_arrays import PerLink
from qddot.mechanism.model import Model
from qddot.spatial import (
    ArticulatedInertia,
    Force,
    Inertia,
    Motion,
    Transform,
    articulated,
    transform_articulated,
    transform_inertia,
    zero_articulated,
    zero_force,
    zero_inertia,
    zero_motion,
)
from qddot.spatial.joint_blocks import Forces, Inverse, Matrix, Motions, Vector, apply, eliminate_joint
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
    scale,
    skew,
    sub,
    transpose,
)


class Propagation(NamedTuple):
    """B_ij of (13) by its vector c_ij = C_j - C_i."""

    c: Vec

    def __matmul__(self, t: Motion) -> Motion:
        """B_ij t: the twist of body j, taken at body i."""
        return Motion(t.w, add(t.v, cross(self.c, t.w)))

    def T(self, w: Force) -> Force:
        """B_ijᵀ w: the wrench on body i, taken at body j."""
        return Force(sub(w.m, cross(self.c, w.f)), w.f)

    def after(self, inner: Propagation) -> Propagation:
        """B_ik B_kj = B_ij of this B_kj, the first factor given.   (14)"""
        return Propagation(add(inner.c, self.c))

    @property
    def shift(self) -> Transform:
        """Body i's point seen from body j's: B_ijᵀ M B_ij is `transform_inertia(shift, M)`."""
        return Transform(p=scale(-1.0, self.c))


class Turning(NamedTuple):
    """A 6×6 matrix that sees only how a body turns, [[upper, 0], [lower, 0]]: Ṁ, M̂ and H̃ are such."""

    upper: Mat
    lower: Mat

    def __matmul__(self, t: Motion) -> Force:
        return Force(mat_vec(self.upper, t.w), mat_vec(self.lower, t.w))

    def __add__(self, other: Turning) -> Turning:  # type: ignore[override]
        return Turning(mat_add(self.upper, other.upper), mat_add(self.lower, other.lower))

    def T(self, t: Motion) -> Vec:
        """The transpose on a twist: a moment."""
        return add(mat_vec(transpose(self.upper), t.w), mat_vec(transpose(self.lower), t.v))


_NOTHING = Turning((ZERO, ZERO, ZERO), (ZERO, ZERO, ZERO))


class Bodies(NamedTuple):
    """The mechanism at one configuration, body by body, the world first."""

    T_W: list[Transform]
    C: list[Vec]
    B: list[Propagation]
    p: list[Motions]
    M: list[Inertia]


def bodies(model: Model, q: Any) -> Bodies:
    """C_i, B_ij, p_i and M_i in the axes of the world.   (2) (13) (15)"""
    T_W, S = link_poses(model, q), model.axes(q)
    C, B, p, M = model.per_link("C", "B", "p", "M")
    C[0], B[0], p[0], M[0] = ZERO, Propagation(ZERO), Motions(), zero_inertia()
    for i, j in model.outward():
        c, own = centre(model, i, model.inertia[i])
        C[i] = T_W[i].point(c)
        B[i] = Propagation(sub(C[j], C[i]))  # (13)
        p[i] = _at_centre(T_W[i], c, S[i])  # (13) (15)
        M[i] = Inertia(own.m, own.h, T_W[i].R.similar_symmetric(own.I))
    return Bodies(T_W, C, B, p, M)


def _at_centre(T_W: Transform, c: Vec, S: Motions) -> Motions:
    """Twists known in a link's frame, at its centre of mass and in the axes of the world."""
    return Motions(Motion(T_W.R @ s.w, T_W.R @ add(s.v, cross(s.w, c))) for s in S)


def twists(model: Model, b: Bodies, v: Any) -> list[Motion]:
    """t_i = B_ij t_j + p_i θ̇_i.   (1) (12)"""
    theta_dot, (t,) = model.velocities(v), model.per_link("t")
    t[0] = zero_motion()
    for i, j in model.outward():
        t[i] = b.B[i] @ t[j] + b.p[i] @ theta_dot[i]  # (11a) (11b) (12)
    return t


def rates(model: Model, b: Bodies, q: Any, v: Any, t: list[Motion]) -> list[Motions]:
    """ṗ_i = Ω_i p_i, and what the joint's axes do by themselves.   (26), S7"""
    x, theta_dot, (p_dot,) = model.coordinates(q), model.velocities(v), model.per_link("p_dot")
    p_dot[0] = Motions()
    for i, _ in model.outward():
        own = model.joint[i].S_dot(x[i], theta_dot[i])
        own = _at_centre(b.T_W[i], centre(model, i, model.inertia[i])[0], own)
        turned = (Motion(cross(t[i].w, s.w), cross(t[i].w, s.v)) for s in b.p[i])  # Ω_i p_i
        p_dot[i] = Motions(a + b for a, b in zip(turned, own, strict=True))
    return p_dot


def external_wrenches(model: Model, b: Bodies, f_ext: Any = None) -> list[Force]:
    """w_i^E: weight, and forces on the links, at the centres of mass and in the axes of the world.   (18)"""
    F, (w,) = model.external(f_ext), model.per_link("w_E")
    w[0] = zero_force()
    for i, _ in model.outward():
        moment, push = b.T_W[i].R @ F[i].m, b.T_W[i].R @ F[i].f
        arm = sub(b.T_W[i].p, b.C[i])
        w[i] = Force(add(moment, cross(arm, push)), add(push, scale(b.M[i].m, model.gravity)))
    return w


# ---- I, C and τ of I θ̈ + C θ̇ = τ, (20) ---------------------------------------------------------------------------------


def composite_masses(model: Model, b: Bodies) -> PerLink:
    """M̃_i = M_i + Σ B_kiᵀ M̃_k B_ki over the bodies k next to i.   (23b)"""
    M_tilde, carried = model.per_link("M_tilde", "carried")
    carried[0] = zero_inertia()
    for i, _ in model.outward():
        carried[i] = zero_inertia()
    for i, j in model.inward():
        M_tilde[i] = b.M[i] + carried[i]
        carried[j] = carried[j] + transform_inertia(b.B[i].shift, M_tilde[i])
    return M_tilde


def mass_matrix(model: Model, q: Any) -> NDArray[Any]:
    """The generalized inertia matrix I, entry by entry: i_ij = p_iᵀ M̃_i B_ij p_j.   (24)"""
    b, I = bodies(model, q), model.joint_matrix("I")
    M_tilde = composite_masses(model, b)
    for i, _ in model.outward():
        w = apply(M_tilde[i], b.p[i])
        I[i, i] = b.p[i].T.on(w).add_diagonal(model.armature[i])
        k = i
        while model.parent[k] > 0:
            w, k = Forces(b.B[k].T(x) for x in w), model.parent[k]
            block = b.p[k].T.on(w)
            I[k, i], I[i, k] = block, block.T
    return I.stack()


def convective_inertia_matrix(model: Model, q: Any, v: Any) -> NDArray[Any]:
    """C of (20), entry by entry; İ - 2C is skew.   (29), S12

    C θ̇ is the same for all such matrices, C is not: that of `coriolis` is another one. Each column p of p_i is taken from
    body to body towards the base: `driven` is B_ijᵀ(M̃_i ṗ + (M̂_i + B_i+1,iᵀ H̃_i+1,i) p), `carried` is B_ijᵀ M̃_i p, and
    `turned` is (M̂_i + B_i+1,iᵀ H̃_i+1,i)ᵀ p + Ḃ_ijᵀ M̃_i p, which is a moment.
    """
    b, C = bodies(model, q), model.joint_matrix("C")
    t = twists(model, b, v)
    p_dot, M_tilde = rates(model, b, q, v, t), composite_masses(model, b)
    M_hat, BH_tilde = convective(model, b, t, M_tilde)
    own, fall, driven, carried, turned = model.per_link("own", "fall", "driven", "carried", "turned")
    for i, j in model.outward():
        own[i], fall[i] = BH_tilde[i] + M_hat[i], sub(t[j].v, t[i].v)  # Ḃ_ij has nothing but the matrix of this vector
    for i, p, k in model.columns():
        column, row, s = C.column(i, k), C.row(i, k), b.p[i][k]
        driven[i], carried[i], turned[i] = M_tilde[i] @ p_dot[i][k] + own[i] @ s, M_tilde[i] @ s, own[i].T(s)
        column[i] = b.p[i].T @ driven[i]
        driven[p], carried[p] = b.B[i].T(driven[i]), b.B[i].T(carried[i])
        turned[p] = add(turned[i], cross(carried[i].f, fall[i]))
        for j, p_j in model.path_to_base(p):
            column[j] = b.p[j].T @ driven[j]  # with the letters exchanged, the first line of (29)
            row[j] = p_dot[j].T @ carried[j] + Vector(dot(x.w, turned[j]) for x in b.p[j])  # its second line, (29)
            driven[p_j], carried[p_j] = b.B[j].T(driven[j]), b.B[j].T(carried[j])
            turned[p_j] = add(turned[j], cross(carried[j].f, fall[j]))
    return C.stack()


def convective(model: Model, b: Bodies, t: list[Motion], M_tilde: PerLink) -> tuple[PerLink, PerLink]:
    """M̂_i = Ṁ_i + M̂_i+1, and B_i+1,iᵀ H̃_i+1,i with H̃_ij = M̃_i Ḃ_ij + B_i+1,iᵀ H̃_i+1,i.   (28), S10"""
    M_hat, BH_tilde, M_hats, BH_tildes = model.per_link("M_hat", "BH_tilde", "sum of M_hat", "sum of BH_tilde")
    M_hat[0] = BH_tilde[0] = M_hats[0] = BH_tildes[0] = _NOTHING
    for i, _ in model.outward():
        M_hats[i] = BH_tildes[i] = _NOTHING
    for i, j in model.inward():
        m, h, _ = M_tilde[i]
        fall = sub(t[j].v, t[i].v)  # Ḃ_ij has nothing but the matrix of this vector
        M_hat[i] = Turning(mat_mat(skew(t[i].w), b.M[i].I), _NOTHING.lower) + M_hats[i]  # Ṁ_i of (8)
        BH_tilde[i] = BH_tildes[i]
        H_ij = Turning(mat_mat(skew(h), skew(fall)), skew(scale(m, fall))) + BH_tilde[i]
        M_hats[j] = M_hats[j] + M_hat[i]
        carried = mat_sub(H_ij.upper, mat_mat(skew(b.B[i].c), H_ij.lower))
        BH_tildes[j] = BH_tildes[j] + Turning(carried, H_ij.lower)
    return M_hat, BH_tilde


def generalized_force(model: Model, q: Any, f_ext: Any = None) -> NDArray[Any]:
    """τ of weight and forces on the links: τ_i = p_iᵀ w̃_i^E, w̃_i^E = w_i^E + B_i+1,iᵀ w̃_i+1^E.   (30) (31), S13"""
    b, tau = bodies(model, q), model.joint_vector("tau")
    w = external_wrenches(model, b, f_ext)
    for i, j in model.inward():
        tau[i] = b.p[i].T @ w[i]
        w[j] = w[j] + b.B[i].T(w[i])
    return tau.stack()


# ---- inverse and forward dynamics --------------------------------------------------------------------------------------


def inverse_dynamics(model: Model, q: Any, v: Any, a: Any, f_ext: Any = None) -> NDArray[Any]:
    """The joint forces that give the accelerations a, recursively: (12) and its rate outward, (7), (30) inward."""
    return _rigid_body_forces(model, bodies(model, q), q, v, a, f_ext) - passive_forces(model, q, v)


def bias_force(model: Model, q: Any, v: Any) -> NDArray[Any]:
    """C θ̇ less the generalized force of weight."""
    return _rigid_body_forces(model, bodies(model, q), q, v, np.zeros(model.nv), None)


def _rigid_body_forces(model: Model, b: Bodies, q: Any, v: Any, a: Any, f_ext: Any) -> NDArray[Any]:
    theta_dot, theta_ddot, tau = model.velocities(v), model.velocities(a), model.joint_vector("tau")
    t, w_E = twists(model, b, v), external_wrenches(model, b, f_ext)
    p_dot = rates(model, b, q, v, t)
    t_dot, w = model.per_link("t_dot", "w")
    t_dot[0], w[0] = zero_motion(), zero_force()
    for i, j in model.outward():
        fall = Motion(ZERO, cross(sub(t[j].v, t[i].v), t[j].w))  # Ḃ_ij t_j
        t_dot[i] = b.B[i] @ t_dot[j] + fall + p_dot[i] @ theta_dot[i] + b.p[i] @ theta_ddot[i]
        gyroscopic = Force(cross(t[i].w, mat_vec(b.M[i].I, t[i].w)), ZERO)  # Ṁ_i t_i, (8)
        w[i] = b.M[i] @ t_dot[i] + gyroscopic - w_E[i]  # (7)
    for i, j in model.inward():
        tau[i] = b.p[i].T @ w[i] + model.armature[i].times(theta_ddot[i])
        w[j] = w[j] + b.B[i].T(w[i])
    return tau.stack()


def forward_dynamics(model: Model, q: Any, v: Any, tau: Any, f_ext: Any = None) -> NDArray[Any]:
    """θ̈ from U D Uᵀ θ̈ = φ, without ever forming I: docs/errata.md, section "Clean algorithms".

    Where joints share a coordinate I has entries between branches, and is formed and factored.
    """
    b = bodies(model, q)
    phi = tau + passive_forces(model, q, v) - _rigid_body_forces(model, b, q, v, np.zeros(model.nv), f_ext)
    if model.is_coupled:
        return solve(model, mass_matrix(model, q), phi)
    phi_i, (psi, m_inv), theta_ddot = model.velocities(phi), eliminated(model, b), model.joint_vector("theta_ddot")
    e, phi_hat, mu = model.per_link("e", "phi_hat", "mu")
    e[0], mu[0] = zero_force(), zero_motion()
    for i, _ in model.outward():
        e[i] = zero_force()
    for i, j in model.inward():  # U φ̂ = φ
        phi_hat[i] = phi_i[i] - b.p[i].T @ e[i]
        eta = psi[i] @ (m_inv[i] @ phi_hat[i]) + e[i]
        if model.is_free_without_rotor(i):  # the same, without e[i] that cancels
            eta = psi[i] @ (m_inv[i] @ phi_i[i])
        e[j] = e[j] + b.B[i].T(eta)
    for i, j in model.outward():  # Uᵀ θ̈ = D⁻¹ φ̂
        mu_tilde = b.B[i] @ mu[j]
        qdd = m_inv[i] @ (phi_hat[i] - psi[i].dot(mu_tilde))
        theta_ddot[i] = qdd
        mu[i] = mu_tilde + b.p[i] @ qdd
    return theta_ddot.stack()


def eliminated(model: Model, b: Bodies) -> tuple[list[Forces], list[Inverse]]:
    """ψ_i = M_i^A p_i and 1/m_i, m_i = p_iᵀψ_i: columns of U and pivots D of the elimination from the last joint on."""
    psi, m_inv, carried = model.per_link("psi", "m", "carried")
    carried[0] = zero_articulated()
    for i, _ in model.outward():
        carried[i] = zero_articulated()
    for i, j in model.inward():
        M_A: ArticulatedInertia = articulated(b.M[i]) + carried[i]
        psi[i] = apply(M_A, b.p[i])
        m_inv[i] = b.p[i].T.on(psi[i]).add_diagonal(model.armature[i]).inverse(model.floor(i))
        if not model.is_free_without_rotor(i):
            carried[j] = carried[j] + transform_articulated(b.B[i].shift, eliminate_joint(M_A, psi[i], m_inv[i]))
    return psi, m_inv


def factors(model: Model, q: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """U and D with I = U D Uᵀ, for reading: u_ij = p_iᵀ B_jiᵀ ψ_j / m_j, unit upper triangular; D has the blocks m_j."""
    b = bodies(model, q)
    U, D, (psi, m_inv) = model.joint_matrix("U"), model.joint_matrix("D"), eliminated(model, b)
    for j, _ in model.outward():
        D[j, j] = b.p[j].T.on(psi[j]).add_diagonal(model.armature[j])
        unit = Matrix(Vector(1.0 if r == c else 0.0 for c in range(len(psi[j]))) for r in range(len(psi[j])))
        U[j, j] = unit
        scaled, k = psi[j].times(m_inv[j]), j
        while model.parent[k] > 0:
            scaled, k = Forces(b.B[k].T(x) for x in scaled), model.parent[k]
            U[k, j] = b.p[k].T.on(scaled)
    return U.stack(), D.stack()
