"""Forward dynamics by articulated bodies.

Kim 2012, section 2.2, Table 3; Featherstone & Orin 2000, section 3.3, with (13) as errata F1 corrects it.

| code    | Kim     | Featherstone & Orin    | meaning                                              |
|---------|---------|------------------------|------------------------------------------------------|
| eta[i]  | η_i     | ḣ_i q̇_i                | acceleration that the joint velocity causes          |
| I_A[i]  | Î_i     | I_i^A                  | articulated inertia                                  |
| B[i]    | B̂_i     | p_i^A                  | its bias force                                       |
| U[i]    | Î_i S_i | I_i^A h_i              | forces for unit accelerations of joint i             |
| Psi[i]  | Ψ_i     | (h_iᵀ I_i^A h_i)⁻¹     | with the rotor inertia on the diagonal               |
| Pi      | Π_i     |                        | articulated inertia that the parent feels            |
| beta    | β_i     |                        | bias force that the parent feels                     |
| carried |         |                        | Σ Ad* Π_k Ad of the links k that link i carries      |

Cost: O(n).
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from qddot.algorithms import articulated_body_mimic
from qddot.algorithms.kinematics import link_poses
from qddot.algorithms.passive_forces import passive_forces
from qddot.mechanism.joint_arrays import PerLink
from qddot.mechanism.model import Model
from qddot.spatial import (
    Ad,
    Ad_inv,
    Ad_inv_T,
    ArticulatedInertia,
    Force,
    Motion,
    Transform,
    ad,
    ad_T,
    articulated,
    transform_articulated,
    transform_inertia,
    zero_articulated,
    zero_force,
    zero_motion,
)
from qddot.spatial.joint_blocks import Ad_columns, Forces, Inverse, Motions, apply, eliminate_joint


def forward_dynamics(model: Model, q: Any, v: Any, tau: Any, f_ext: Any = None) -> NDArray[Any]:
    """The accelerations that joint forces tau give, in link coordinates.   Kim Table 3."""
    tau = tau + passive_forces(model, q, v)
    if model.is_coupled:
        return articulated_body_mimic.forward_dynamics(model, q, v, tau, f_ext)
    T, S, Sdot_v = model.joints_at(q, v)
    v, F_ext = model.velocities(v), model.external(f_ext)
    V, eta, B = model.per_link("V", "eta", "B")
    V[0], B[0] = zero_motion(), -1.0 * F_ext[0]
    for i, p in model.outward():  # outward: velocities and what they cause
        V[i] = Ad_inv(T[i], V[p]) + S[i] @ v[i]
        eta[i] = ad(V[i], S[i] @ v[i]) + Sdot_v[i]
        B[i] = -1.0 * ad_T(V[i], model.inertia[i] @ V[i]) - F_ext[i]
    return accelerations(model, T, S, eta, B, tau, model.base_acceleration)


def accelerations(
    model: Model, T: list[Transform], S: list[Motions], eta: list[Motion], B: list[Force], tau: Any, base: Motion
) -> NDArray[Any]:
    """q̈ from what velocities cause, η_i and B_i, and the base's acceleration: the rest of Kim's Table 3."""
    tau = model.velocities(tau)
    Vdot, I_A, U, Psi = model.per_link("Vdot", "I_A", "U", "Psi")
    carried, a = _nothing_carried(model), model.joint_vector("a")
    for i, p in model.inward():  # inward: articulated inertias and bias forces
        I_A[i], U[i], Psi[i] = _let_go(model, T, S, carried, i, p)
        if model.is_free_without_rotor(i):
            beta = U[i] @ (Psi[i] @ tau[i])
        else:
            beta = B[i] + I_A[i] @ eta[i]  # Kim (44)
            beta = beta + U[i] @ (Psi[i] @ (tau[i] - S[i].T @ beta))  # Kim (46)-(48)
        B[p] = B[p] + Ad_inv_T(T[i], model.named("beta", i, beta))  # Kim (50)
    Vdot[0] = base
    for i, p in model.outward():  # outward: accelerations
        given = Ad_inv(T[i], Vdot[p]) + eta[i]
        qdd = Psi[i] @ (tau[i] - U[i].dot(given) - S[i].T @ B[i])  # Kim (45)
        a[i] = qdd
        Vdot[i] = given + S[i] @ qdd  # (41)
    return a.stack()


def articulated_inertias(model: Model, T: list[Transform], S: list[Motions]) -> tuple[PerLink, PerLink, PerLink]:
    """Î_i, Î_i S_i and Ψ_i.   Kim (49) and the backward loop of Table 3; Featherstone & Orin (12)."""
    carried, (I_A, U, Psi) = _nothing_carried(model), model.per_link("I_A", "U", "Psi")
    for i, p in model.inward():
        I_A[i], U[i], Psi[i] = _let_go(model, T, S, carried, i, p)
    return I_A, U, Psi


def _nothing_carried(model: Model) -> PerLink:
    """Σ Ad* Π_k Ad of the links that a link carries, before any of them has been met."""
    (carried,) = model.per_link("carried")
    carried[0] = zero_articulated()
    for i, _ in model.outward():
        carried[i] = zero_articulated()
    return carried


def _let_go(
    model: Model, T: list[Transform], S: list[Motions], carried: PerLink, i: int, p: int
) -> tuple[ArticulatedInertia, Forces, Inverse]:
    """Î_i, U_i and Ψ_i; the parent carries what is left of Î_i when its joint is free to yield."""
    I_A = articulated(model.inertia[i]) + carried[i]
    U = apply(I_A, S[i])
    Psi = S[i].T.on(U).add_diagonal(model.armature[i]).inverse(model.floor(i))
    if not model.is_free_without_rotor(i):
        carried[p] = carried[p] + transform_articulated(
            T[i], model.named("Pi", i, eliminate_joint(I_A, U, Psi))
        )  # Kim (49)
    return I_A, U, Psi


def forward_dynamics_absolute(model: Model, q: Any, v: Any, tau: Any, f_ext: Any = None) -> NDArray[Any]:
    """The same in absolute coordinates.   Featherstone & Orin (3) (12) (13) (14) (4), (13) after errata F1."""
    tau = tau + passive_forces(model, q, v)
    if model.is_coupled:
        return articulated_body_mimic.forward_dynamics(model, q, v, tau, f_ext)
    T_W, S = link_poses(model, q), model.axes(q)
    _, _, Sdot_v = model.joints_at(q, v)
    qd, tau, f_x = model.velocities(v), model.velocities(tau), model.external(f_ext)
    vel, hdot_qd, acc, p_A, I_A, U, Psi = model.per_link("v", "hdot qd", "a", "p_A", "I_A", "U", "Psi")
    qdd = model.joint_vector("qdd")
    h = [Ad_columns(T_W[i], S[i]) for i in range(len(S))]
    vel[0], acc[0], p_A[0], I_A[0] = zero_motion(), model.base_acceleration, zero_force(), zero_articulated()
    for i, p in model.outward():
        I = transform_inertia(T_W[i], model.inertia[i])
        vel[i] = vel[p] + h[i] @ qd[i]  # (3)
        hdot_qd[i] = ad(vel[i], h[i] @ qd[i]) + Ad(T_W[i], Sdot_v[i])
        p_A[i] = -1.0 * Ad_inv_T(T_W[i], f_x[i]) - ad_T(vel[i], I @ vel[i])
        I_A[i] = articulated(I)
    for i, p in model.inward():
        U[i] = apply(I_A[i], h[i])
        Psi[i] = h[i].T.on(U[i]).add_diagonal(model.armature[i]).inverse(model.floor(i))
        p_alpha = p_A[i] + I_A[i] @ hdot_qd[i]
        if model.is_free_without_rotor(i):
            p_A[p] = p_A[p] + U[i] @ (Psi[i] @ tau[i])
        else:
            I_A[p] = I_A[p] + eliminate_joint(I_A[i], U[i], Psi[i])  # (12)
            p_A[p] = p_A[p] + p_alpha + U[i] @ (Psi[i] @ (tau[i] - h[i].T @ p_alpha))  # (13)
    for i, p in model.outward():
        carried = acc[p] + hdot_qd[i]
        a_i = Psi[i] @ (tau[i] - U[i].dot(carried) - h[i].T @ p_A[i])  # (14)
        qdd[i] = a_i
        acc[i] = carried + h[i] @ a_i  # (4)
    return qdd.stack()


def mass_matrix_inverse(model: Model, q: Any) -> NDArray[Any]:
    """M⁻¹ column by column: the recursion without velocity and gravity, its inertias computed once. Kim 3.2, M⁻¹Aᵢᵀ."""
    if model.is_coupled:
        return articulated_body_mimic.mass_matrix_inverse(model, q)
    T, S = model.transforms(q), model.axes(q)
    inertias = articulated_inertias(model, T, S)
    return model.by_columns(lambda unit: accelerations_from_rest(model, T, S, inertias, unit))


def accelerations_from_rest(
    model: Model, T: list[Transform], S: list[Motions], inertias: Any, tau: Any, F: Any = None
) -> NDArray[Any]:
    """M⁻¹ tau: Kim's reduced forward dynamics, which ignores velocity and gravity; M⁻¹(tau - JᵀF) with forces F."""
    _, U, Psi = inertias
    tau, a = model.velocities(tau), model.joint_vector("a")
    B, Vdot = model.per_link("B", "Vdot")
    B[0], Vdot[0] = zero_force(), zero_motion()
    for i, _ in model.outward():
        B[i] = zero_force() if F is None else F[i]
    for i, p in model.inward():
        through = tau[i] if model.is_free_without_rotor(i) else tau[i] - S[i].T @ B[i]
        beta = U[i] @ (Psi[i] @ through)
        B[p] = B[p] + Ad_inv_T(T[i], beta if model.is_free_without_rotor(i) else B[i] + beta)
    for i, p in model.outward():
        carried = Ad_inv(T[i], Vdot[p])
        qdd = Psi[i] @ (tau[i] - U[i].dot(carried) - S[i].T @ B[i])
        a[i] = qdd
        Vdot[i] = carried + S[i] @ qdd
    return a.stack()
