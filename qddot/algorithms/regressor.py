"""Inverse dynamics as a matrix: without rotors and passive forces, tau = Y(q, v, a) π for the links' inertias π.

Kim 2012, Table 2, with unit inertias: (42) is linear in the inertia, and so is all that follows. Atkeson, An &
Hollerbach 1986 identify loads and links by it.

| code     | meaning                                                              |
|----------|----------------------------------------------------------------------|
| T, S, V  | as in `newton_euler`                                                 |
| Vdot[i]  | V̇_i with gravity as an acceleration of the base                      |
| F[i]     | force that a unit inertia of link i takes, on its way to the base    |

Cost: O(n · depth).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.algorithms.articulated_body import accelerations_from_rest, articulated_inertias
from qddot.algorithms.composite_body import mass_matrix
from qddot.algorithms.kinematics import link_velocities
from qddot.algorithms.newton_euler_classical import rigid_body_forces
from qddot.algorithms.passive_forces import passive_forces
from qddot.algorithms.sparse_factors import dof_above, inverse_factors, inverse_times, rows_of
from qddot.mechanism.joint_arrays import PerLink
from qddot.mechanism.model import Model
from qddot.scalars import split, stack
from qddot.spatial import Ad_inv, Ad_inv_T, Inertia, ad, ad_T
from qddot.spatial.rotation import Mat, scale


def torque_regressor(model: Model, q: Any, v: Any, a: Any, units: Sequence[Inertia]) -> NDArray[Any]:
    """Y, nv × (links · units): a column is the joint forces when one link has one of the units and the rest nothing."""
    T, S, V = model.transforms(q), model.axes(q), link_velocities(model, q, v)
    Vdot, Y, (F,) = _accelerations(model, q, v, a), model.joint_matrix("Y", len(units)), model.per_link("F")
    for i, p, k in model.columns(len(units)):
        I, column = units[k], Y.column(i, k)
        F[i] = I @ Vdot[i] - ad_T(V[i], I @ V[i])  # (42)
        column[i] = S[i].T @ F[i]
        F[p] = Ad_inv_T(T[i], F[i])
        for j, p_j in model.path_to_base(p):
            column[j] = S[j].T @ F[j]
            F[p_j] = Ad_inv_T(T[j], F[j])
    return Y.stack()


def _accelerations(model: Model, q: Any, v: Any, a: Any) -> PerLink:
    """V̇ with gravity as an acceleration of the base."""
    T, S, Sdot_v = model.joints_at(q, v)
    V, v, a, (Vdot,) = link_velocities(model, q, v), model.velocities(v), model.velocities(a), model.per_link("Vdot")
    Vdot[0] = model.base_acceleration
    for i, p in model.outward():
        Vdot[i] = Ad_inv(T[i], Vdot[p]) + ad(V[i], S[i] @ v[i]) + Sdot_v[i] + S[i] @ a[i]  # (41)
    return Vdot


def forward_dynamics_inertia_derivatives(
    model: Model, q: Any, v: Any, tau: Any, units: Sequence[Inertia], f_ext: Any = None
) -> NDArray[Any]:
    """∂a/∂π = -M⁻¹ Y(q, v, a) at the accelerations that tau gives: inverse dynamics is linear in π, and M a = tau - …"""
    factors = inverse_factors(rows_of(mass_matrix(model, q)), dof_above(model), model.floors)
    a = stack(inverse_times(*factors, split(_left_for_accelerations(model, q, v, tau, f_ext))))
    Y = torque_regressor(model, q, v, a, units)
    columns = [stack(inverse_times(*factors, split(Y[..., :, c]))) for c in range(Y.shape[-1])]
    return -np.stack(np.broadcast_arrays(*columns), axis=-1)


def forward_dynamics_inertia_derivatives_by_columns(
    model: Model, q: Any, v: Any, tau: Any, units: Sequence[Inertia], f_ext: Any = None
) -> NDArray[Any]:
    """The same, M⁻¹ by articulated bodies: each link takes the force of the unit inertias π that it has.   Kim (42), 3.2"""
    if model.is_coupled:
        return forward_dynamics_inertia_derivatives(model, q, v, tau, units, f_ext)
    T, S, V = model.transforms(q), model.axes(q), link_velocities(model, q, v)
    inertias = articulated_inertias(model, T, S)
    left = _left_for_accelerations(model, q, v, tau, f_ext)
    Vdot = _accelerations(model, q, v, accelerations_from_rest(model, T, S, inertias, left))
    rest, n = np.zeros(model.nv), len(units)

    def column(pi: Any) -> NDArray[Any]:
        F = model.per_link("F")[0]
        for i, _ in model.outward():
            I = _combined(pi[n * (i - 1) : n * i], units)
            F[i] = I @ Vdot[i] - ad_T(V[i], I @ V[i])
        return accelerations_from_rest(model, T, S, inertias, rest, F)

    return model.by_columns(column, n)


def _left_for_accelerations(model: Model, q: Any, v: Any, tau: Any, f_ext: Any) -> NDArray[Any]:
    """tau + passive - bias + Jᵀf_ext."""
    return tau + passive_forces(model, q, v) - rigid_body_forces(model, q, v, np.zeros(model.nv), f_ext)


def _combined(pi: Sequence[Any], units: Sequence[Inertia]) -> Inertia:
    """So much of each of the units."""
    each = (Inertia(x * m, scale(x, h), _scaled(x, I)) for x, (m, h, I) in zip(pi, units, strict=True))
    return reduce(Inertia.__add__, each)


def _scaled(x: Any, I: Mat) -> Mat:
    a, b, c = (scale(x, row) for row in I)
    return a, b, c
