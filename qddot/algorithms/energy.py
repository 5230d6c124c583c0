"""Energy, centre of mass and momentum.

| code | paper        | meaning                                                             |
|------|--------------|---------------------------------------------------------------------|
| V[i] | V_i          | link velocity in its own frame                                      |
| L    | L = 𝓘 V      | momentum, Kim (23), carried to the world by Kim (24)                |
| A_G  |              | momentum about the centre of mass is A_G v                          |
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from qddot.algorithms.composite_body import composite_inertias
from qddot.algorithms.kinematics import link_poses, link_velocities
from qddot.mechanism.model import Model
from qddot.scalars import Scalar
from qddot.spatial import Ad_inv_T, Force, Transform, force
from qddot.spatial.joint_blocks import Forces, apply
from qddot.spatial.rotation import Vec, add, cross, dot, scale, sub


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
    T, S, T_W = model.transforms(q), model.axes(q), link_poses(model, q)
    c, I_C, A_G = _center_of_mass(model, T_W), composite_inertias(model, T), model.joint_columns("A_G")
    for i, _ in model.inward():
        A_G[i] = Forces(_about(c, Ad_inv_T(T_W[i], F)) for F in apply(I_C[i], S[i]))
    return A_G.stack()


def _first_moment(T_W: Any, I: Any) -> Vec:
    """m c of a body, in the world."""
    return add(T_W.R @ I.h, scale(I.m, T_W.p))


def _about(c: Vec, F: Force) -> Force:
    """A momentum or force known about the world's origin, about the point c."""
    return Force(sub(F.m, cross(c, F.f)), F.f)
