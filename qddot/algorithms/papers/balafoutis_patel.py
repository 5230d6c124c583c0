"""Inverse dynamics after Balafoutis, Patel & Misra: Cartesian tensors and augmented links.

Cited in Lin 1991, Table II: C. A. Balafoutis, R. V. Patel, P. Misra, *Efficient modeling and computation of manipulator
dynamics using orthogonal Cartesian tensors*, IEEE J. Robotics and Automation RA-4, 665-676 (1988), which is not among our
papers. Lin says of it that it is the recursive Newton-Euler formulation in terms of the invariant first moment and inertia
tensor of augmented links, (A5) (A6). Tensors take the place of vectors: with the angular acceleration tensor
Ω_j = [ω̇×] + [ω×][ω×] a point r of link j is accelerated by V̇_j + Ω_j r, and the moment of its inertia forces is dual to
Ω K - (Ω K)ᵀ with the pseudo-inertia K = ∫ r rᵀ dm.

The force through joint j is m̂_j V̇_j + φ_j. What turns on link j and does not travel has its mass m̂_k put at its joint,
for good: then φ passes inward without V̇, φ_j = Ω_j ū_j + Σ φ_k.

| code         | Lin 1991 | meaning                                                                              |
|--------------|----------|--------------------------------------------------------------------------------------|
| Omega        |          | angular acceleration tensor of link j, in E_j                                        |
| acc          |          | acceleration of the origin of E_j, -g of the base in it                              |
| m_hat        | m̂_j      | mass of composite body j                                                             |
| u_bar, K_bar | c̄_j, J̄_j | first moment and pseudo-inertia of the augmented link, (A5) (A6), J̄ = tr(K̄) 1 - K̄   |
| phi          |          | force through joint j less m̂_j V̇_j                                                  |
| mu           |          | moment through joint j, about the origin of E_j                                      |

Lin's remark on this work is heeded: masses behind a joint that travels are no part of the augmented link. Cost: O(n).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qddot.algorithms.kinematics import joint_forces_of
from qddot.algorithms.newton_euler_classical import twice_skew_part
from qddot.algorithms.papers.khalil_kleinfinger import motions
from qddot.algorithms.papers.lin_frames import JointFrames, inward, joint_frames
from qddot.algorithms.passive_forces import passive_forces
from qddot.mechanism.model import Model
from qddot.scalars import Scalar
from qddot.spatial import second_moments
from qddot.spatial.joint_blocks import Vector
from qddot.spatial.rotation import Mat, Vec, add, cross, mat_add, mat_vec, outer, scale, sub


class AugmentedLinks(NamedTuple):
    """Numbers of the mechanism, not of its state."""

    m_hat: list[Scalar]
    u_bar: list[Vec]
    K_bar: list[Mat]


def inverse_dynamics(model: Model, q: Any, v: Any, a: Any, f_ext: Any = None) -> NDArray[Any]:
    """The joint forces that give the accelerations a."""
    tau = rigid_body_forces(model, q, v, a) - passive_forces(model, q, v)
    return tau if f_ext is None else tau - joint_forces_of(model, q, f_ext)


def bias_force(model: Model, q: Any, v: Any) -> NDArray[Any]:
    """Coriolis, centrifugal and gravity forces: q̈ = 0, as in Lin's Table II."""
    return rigid_body_forces(model, q, v, np.zeros(model.nv))


def augmented_links(model: Model, E: JointFrames) -> AugmentedLinks:
    """m̂_j, ū_j and K̄_j.   Lin (A5) (A6)"""
    m_hat, u_bar, K_bar = [I.m for I in E.inertia], [I.h for I in E.inertia], [second_moments(I) for I in E.inertia]
    for j, i in model.inward():
        m_hat[i] = m_hat[i] + m_hat[j]
        if E.K[j] == 0.0:
            at_joint = scale(m_hat[j], E.T[j].p)
            u_bar[i] = add(u_bar[i], at_joint)
            K_bar[i] = mat_add(K_bar[i], outer(at_joint, E.T[j].p))
    return AugmentedLinks(m_hat, u_bar, K_bar)


def rigid_body_forces(model: Model, q: Any, v: Any, a: Any) -> NDArray[Any]:
    """M a + bias."""
    E, qdd, tau = joint_frames(model, q), model.velocities(a), model.joint_vector("tau")
    _, _, acc, Omega = motions(model, E, v, a)
    m_hat, u_bar, K_bar = augmented_links(model, E)
    phi, mu = list(acc), list(acc)
    for j, _ in model.outward():
        phi[j] = mat_vec(Omega[j], u_bar[j])
        mu[j] = add(twice_skew_part(Omega[j], K_bar[j]), cross(u_bar[j], acc[j]))
    for j, i in model.inward():
        along = E.K[j] * (m_hat[j] * acc[j][2] + phi[j][2])
        tau[j] = Vector((E.K_star[j] * mu[j][2] + along,)) + model.armature[j].times(qdd[j])
        if i == 0:
            continue
        travels = E.K[j] != 0.0
        through = inward(E.T[j], add(phi[j], scale(m_hat[j], acc[j])) if travels else phi[j])
        mu[i] = add(mu[i], add(inward(E.T[j], mu[j]), cross(E.T[j].p, through)))
        phi[i] = add(phi[i], sub(through, scale(m_hat[j], acc[i])) if travels else through)
    return tau.stack()
