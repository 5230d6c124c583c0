"""Energy, centre of mass and momentum.

| code | paper        | meaning                                                             |
|------|--------------|---------------------------------------------------------------------|
| V[i] | V_i          | link velocity in its own frame                                      |
| L    | L = 𝓘 V      | momentum, Kim (23), carried to the world by Kim (24)                |
| A_G  |              | momentum about the centre of mass is A_G v                          |
| J_c  |              | velocity of the centre of mass is J_c v                             |
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from qddot.algorithms.composite_body import composite_inertias
from qddot.algorithms.kinematics import apparent_rate, link_poses, link_velocities
from qddot.mechanism.joint_arrays import JointColumns
from qddot.mechanism.model import Model
from qddot.scalars import Scalar
from qddot.spatial import (
    ZERO,
    Ad,
    Ad_inv_T,
    Force,
    Inertia,
    Motion,
    Transform,
    force,
    steiner,
    transform_inertia,
    zero_inertia,
)
from qddot.spatial.joint_blocks import Ad_columns, Forces, apply
from qddot.spatial.rotation import Vec, add, cross, dot, mat_add, mat_mat, scale, skew, sub, transpose

_LINEAR = range(3, 6)  # rows of a momentum


def kinetic_energy(model: Model, q: Any, v: Any) -> Scalar:
    """½ Σ Vᵀ𝓘V, Kim (14) (15), and ½ of the rotor inertias times the joint velocities squared."""
    V, u = link_velocities(model, q, v), model.velocities(v)
    twice = model.total()
    for i, _ in model.outward():
        twice.add(V[i].dot(model.inertia[i] @ V[i]) + u[i].dot(model.armature[i].times(u[i])))
    return 0.5 * twice.sums[0]


def potential_energy(model: Model, q: Any) -> Scalar:
    """-Σ m g·c of the moving links and ½ k displacement² of the springs: gravity and spring forces are its slope."""
    T_W, x = link_poses(model, q), model.coordinates(q)
    total = model.total()
    for i, _ in model.outward():
        stretch = model.joint[i].displacement(model.spring_reference[i], x[i])
        spring = stretch.dot(model.stiffness[i].times(stretch))
        weight = dot(model.gravity, _first_moment(T_W[i], model.inertia[i]))
        total.add(0.5 * spring - weight)
    return total.sums[0]


def center_of_mass(model: Model, q: Any) -> Vec:
    """The centre of mass of the moving links, in the world."""
    return _center_of_mass(model, link_poses(model, q))


def _center_of_mass(model: Model, T_W: list[Transform]) -> Vec:
    moment = model.total(3)
    for i, _ in model.outward():
        moment.add(*_first_moment(T_W[i], model.inertia[i]))
    x, y, z = moment.sums
    return scale(1.0 / model.mass, (x, y, z))


def momentum(model: Model, q: Any, v: Any) -> Force:
    """Angular momentum about the centre of mass, and linear momentum, in the world's axes."""
    T_W, V, L = link_poses(model, q), link_velocities(model, q, v), model.total(6)
    for i, _ in model.outward():
        L.add(*Ad_inv_T(T_W[i], model.inertia[i] @ V[i]).components)
    return _about(_center_of_mass(model, T_W), force(L.sums))


def centroidal_momentum_matrix(model: Model, q: Any) -> NDArray[Any]:
    """A_G with momentum = A_G v: each joint moves the composite body behind it. 6×nv, angular first."""
    return _momentum_columns(model, q).stack()


def centroidal_momentum_matrix_derivative(model: Model, q: Any, v: Any) -> NDArray[Any]:
    """Ȧ_G, so that the momentum changes by A_G a + Ȧ_G v."""
    return _momentum_rate_columns(model, q, v).stack()


def center_of_mass_jacobian(model: Model, q: Any) -> NDArray[Any]:
    """J_c: the linear rows of A_G over the mass. 3×nv, in the world's axes."""
    return _momentum_columns(model, q, 1.0 / model.mass).stack(_LINEAR)


def center_of_mass_jacobian_derivative(model: Model, q: Any, v: Any) -> NDArray[Any]:
    """J̇_c, so that the centre of mass accelerates by J_c a + J̇_c v."""
    return _momentum_rate_columns(model, q, v, 1.0 / model.mass).stack(_LINEAR)


def _momentum_columns(model: Model, q: Any, unit: Scalar = 1.0) -> JointColumns:
    """A_G times a number."""
    T, S, T_W = model.transforms(q), model.axes(q), link_poses(model, q)
    c, I_C, A_G = _center_of_mass(model, T_W), composite_inertias(model, T), model.joint_columns("A_G")
    for i, _ in model.inward():
        A_G[i] = Forces(unit * _about(c, Ad_inv_T(T_W[i], F)) for F in apply(I_C[i], S[i]))
    return A_G


def _momentum_rate_columns(model: Model, q: Any, v: Any, unit: Scalar = 1.0) -> JointColumns:
    """Ȧ_G times a number. In absolute coordinates each body's inertia changes by `_rate`, and the axes S of a joint by
    Ad_{T_W}(Ṡ + ad_V S).
    """
    T_W, V, S = link_poses(model, q), link_velocities(model, q, v), model.axes(q)
    I_C, I_C_dot, A_G_dot = *model.per_link("I_C", "I_C_dot"), model.joint_columns("A_G_dot")
    c, p_total = _center_of_mass(model, T_W), model.total(3)
    I_C[0] = I_C_dot[0] = zero_inertia()
    for i, _ in model.outward():
        I_C[i] = transform_inertia(T_W[i], model.inertia[i])
        I_C_dot[i] = _rate(I_C[i], Ad(T_W[i], V[i]))
        p_total.add(*I_C_dot[i].h)
    x, y, z = p_total.sums
    c_dot = scale(1.0 / model.mass, (x, y, z))
    for i, p in model.inward():
        I_C[p], I_C_dot[p] = I_C[p] + I_C[i], I_C_dot[p] + I_C_dot[i]
        axes = Ad_columns(T_W[i], S[i])
        changes = Ad_columns(T_W[i], apparent_rate(model, q, v, i, V[i], S[i]))
        A_G_dot[i] = Forces(
            unit * (_about(c, I_C_dot[i] @ s + I_C[i] @ s_dot) - Force(cross(c_dot, (I_C[i] @ s).f), ZERO))
            for s, s_dot in zip(axes, changes, strict=True)
        )
    return A_G_dot


def _rate(G: Inertia, V: Motion) -> Inertia:
    """How an inertia in the world's coordinates changes while its body moves with the twist V, also in these."""
    h_dot = add(cross(V.w, G.h), scale(G.m, V.v))
    W_I = mat_mat(skew(V.w), G.I)
    return Inertia(0.0, h_dot, mat_add(mat_add(W_I, transpose(W_I)), steiner(V.v, G.h)))


def _first_moment(T_W: Any, I: Any) -> Vec:
    """m c of a body, in the world."""
    return add(T_W.R @ I.h, scale(I.m, T_W.p))


def _about(c: Vec, F: Force) -> Force:
    """A momentum or force known about the world's origin, about the point c."""
    return Force(sub(F.m, cross(c, F.f)), F.f)
