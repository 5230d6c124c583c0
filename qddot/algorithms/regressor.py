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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.algorithms.classical import bias_force
from qddot.algorithms.composite_body import mass_matrix
from qddot.algorithms.factorization import freedoms_above, inverse_factors, inverse_times, rows_of
from qddot.algorithms.kinematics import link_velocities
from qddot.algorithms.passive import passive_forces
from qddot.model import Model
from qddot.scalars import split, stack
from qddot.spatial import Ad_inv, Ad_inv_T, Inertia, ad, ad_T


def torque_regressor(model: Model, q: Any, v: Any, a: Any, units: Sequence[Inertia]) -> NDArray[Any]:
    """Y, nv × (links · units): a column is the joint forces when one link has one of the units and the rest nothing."""
    T, S, Sdot_v = model.joints_at(q, v)
    V, v, a = link_velocities(model, q, v), model.velocities(v), model.velocities(a)
    Vdot, F = model.per_link("Vdot", "F")
    Vdot[0], Y = model.base_acceleration, model.joint_matrix("Y", len(units))
    for i, p in model.outward():
        Vdot[i] = Ad_inv(T[i], Vdot[p]) + ad(V[i], S[i] @ v[i]) + Sdot_v[i] + S[i] @ a[i]  # (41)
    for i, p, k in model.columns(len(units)):
        I, column = units[k], Y.column(i, k)
        F[i] = I @ Vdot[i] - ad_T(V[i], I @ V[i])  # (42)
        column[i] = S[i].T @ F[i]
        F[p] = Ad_inv_T(T[i], F[i])
        for j, p_j in model.carriers(p):
            column[j] = S[j].T @ F[j]
            F[p_j] = Ad_inv_T(T[j], F[j])
    return Y.stack()


def forward_dynamics_inertia_derivatives(model: Model, q: Any, v: Any, tau: Any, units: Sequence[Inertia]) -> NDArray[Any]:
    """∂a/∂π = -M⁻¹ Y(q, v, a) at the accelerations that tau gives: inverse dynamics is linear in π, and M a = tau - …"""
    factors = inverse_factors(rows_of(mass_matrix(model, q)), freedoms_above(model))
    a = stack(inverse_times(*factors, split(tau + passive_forces(model, q, v) - bias_force(model, q, v))))
    Y = torque_regressor(model, q, v, a, units)
    columns = [stack(inverse_times(*factors, split(Y[..., :, c]))) for c in range(Y.shape[-1])]
    return -np.stack(np.broadcast_arrays(*columns), axis=-1)
