"""Where the links are and how they move: poses, velocities, Jacobians.

| code    | paper                                                                                         |
|---------|-----------------------------------------------------------------------------------------------|
| T[i]    | T_{λ(i),i}, link i in its parent                                                              |
| T_W[i]  | T_i = T_{λ(i)} T_{λ(i),i}, link i in the world: Kim before (35)                               |
| T_f[i]  | the frame in link i                                                                           |
| V[i]    | V_i, in link i's own frame: Kim (37)                                                          |
| J       | V_frame = J v, in the frame's own coordinates                                                 |
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from qddot.mechanism.joint_arrays import JointColumns, PerLink
from qddot.mechanism.model import Frame, Model
from qddot.spatial import Ad_inv, Ad_inv_T, Motion, Transform, ad, force, zero_motion
from qddot.spatial.joint_blocks import Ad_inv_columns, Motions, ad_columns


def link_poses(model: Model, q: Any) -> list[Transform]:
    """T_W[i], the world's included."""
    T, (T_W,) = model.transforms(q), model.per_link("T_W")
    T_W[0] = Transform()
    for i, p in model.outward():
        T_W[i] = T_W[p] @ T[i]
    return T_W


def link_velocities(model: Model, q: Any, v: Any) -> list[Motion]:
    """V[i] in link coordinates. Kim (35)-(37), Featherstone & Orin (1)-(3)."""
    T, S, v = model.transforms(q), model.axes(q), model.velocities(v)
    (V,) = model.per_link("V")
    V[0] = zero_motion()
    for i, p in model.outward():
        V[i] = Ad_inv(T[i], V[p]) + S[i] @ v[i]
    return V


def link_accelerations(model: Model, q: Any, v: Any, a: Any) -> list[Motion]:
    """V̇[i], componentwise, of a base at rest: gravity is not in it. Kim (38)-(41), Featherstone & Orin (4)."""
    T, S, Sdot_v = model.joints_at(q, v)
    V, v, a = link_velocities(model, q, v), model.velocities(v), model.velocities(a)
    (Vdot,) = model.per_link("Vdot")
    Vdot[0] = zero_motion()
    for i, p in model.outward():
        Vdot[i] = Ad_inv(T[i], Vdot[p]) + ad(V[i], S[i] @ v[i]) + Sdot_v[i] + S[i] @ a[i]
    return Vdot


def pose(model: Model, q: Any, frame: Frame) -> Transform:
    """The frame in the world."""
    return link_poses(model, q)[frame.link] @ frame.placement


def velocity(model: Model, q: Any, v: Any, frame: Frame) -> Motion:
    """The twist of a frame, in its own coordinates. Kim (11)."""
    return Ad_inv(frame.placement, link_velocities(model, q, v)[frame.link])


def acceleration(model: Model, q: Any, v: Any, a: Any, frame: Frame) -> Motion:
    """The componentwise derivative of the frame's twist."""
    return Ad_inv(frame.placement, link_accelerations(model, q, v, a)[frame.link])


def jacobian(model: Model, q: Any, frame: Frame) -> NDArray[Any]:
    """J with V = J v: column block j is Ad_{T_jf⁻¹} S_j for the joints that carry the frame. 6×nv, angular first."""
    return _toward_base(model, q, frame)[0].stack()


def pose_and_jacobian(model: Model, q: Any, frame: Frame) -> tuple[Transform, NDArray[Any]]:
    """The frame in the world, and J: the recursion of the Jacobian ends with the pose."""
    J, T_f = _toward_base(model, q, frame)
    return T_f[0], J.stack()


def _toward_base(model: Model, q: Any, frame: Frame) -> tuple[JointColumns, PerLink]:
    """The columns of J, and T_f[j], the frame in the links that carry it and in the world."""
    T, S = model.transforms(q), model.axes(q)
    J, (T_f,) = model.joint_columns("J"), model.per_link("T_f")
    T_f[frame.link] = frame.placement
    for j, p in model.path_to_base(frame.link):
        J[j] = Ad_inv_columns(T_f[j], S[j])
        T_f[p] = T[j] @ T_f[j]
    return J, T_f


def jacobian_derivative(model: Model, q: Any, v: Any, frame: Frame) -> NDArray[Any]:
    """J̇, so that V̇ = J a + J̇ v: with X = Ad_{T_jf⁻¹}, column block j is X (Ṡ_j + ad_{V_j} S_j) - ad_V X S_j."""
    T, S, V = model.transforms(q), model.axes(q), link_velocities(model, q, v)
    V_frame = Ad_inv(frame.placement, V[frame.link])
    J_dot, (T_f,) = model.joint_columns("J_dot"), model.per_link("T_f")
    T_f[frame.link] = frame.placement
    for j, p in model.path_to_base(frame.link):
        moved = Ad_inv_columns(T_f[j], apparent_rate(model, q, v, j, V[j], S[j]))
        carried = ad_columns(V_frame, Ad_inv_columns(T_f[j], S[j]))
        J_dot[j] = Motions(a - b for a, b in zip(moved, carried, strict=True))
        T_f[p] = T[j] @ T_f[j]
    return J_dot.stack()


def joint_forces_of(model: Model, q: Any, f_ext: Any) -> NDArray[Any]:
    """Jᵀ f_ext: the joint forces that do the work of forces on the links, each in its link's frame."""
    T, S, F_ext = model.transforms(q), model.axes(q), model.external(f_ext)
    (F,), tau = model.per_link("F_ext"), model.joint_vector("tau_ext")
    F[0] = F_ext[0]
    for i, _ in model.outward():
        F[i] = F_ext[i]
    for i, p in model.inward():
        tau[i] = S[i].T @ F[i]
        F[p] = F[p] + Ad_inv_T(T[i], F[i])
    return tau.stack()


def external_force_jacobian(model: Model, q: Any) -> NDArray[Any]:
    """Jᵀ with tau = Jᵀf_ext, nv × 6·links: a column is the joint forces of a unit moment or force on one link."""
    T, S = model.transforms(q), model.axes(q)
    J_T, (F,) = model.joint_matrix("J_T", 6), model.per_link("F")
    for i, p, k in model.columns(6):
        column = J_T.column(i, k)
        F[i] = force([float(j == k) for j in range(6)])
        column[i] = S[i].T @ F[i]
        F[p] = Ad_inv_T(T[i], F[i])
        for j, p_j in model.path_to_base(p):
            column[j] = S[j].T @ F[j]
            F[p_j] = Ad_inv_T(T[j], F[j])
    return J_T.stack()


def apparent_rate(model: Model, q: Any, v: Any, j: int, V: Motion, S: Motions) -> Motions:
    """Ṡ_j + ad_{V_j} S_j: how the axes of joint j change in space, seen in link j."""
    S_dot = model.joint[j].S_dot(model.coordinates(q)[j], model.velocities(v)[j])
    return Motions(a + b for a, b in zip(S_dot, ad_columns(V, S), strict=True))
