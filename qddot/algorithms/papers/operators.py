"""Global analysis: the equations of all links stacked, and the mass matrix as a product of operators.

Featherstone & Orin 2000, section 3.5, in absolute coordinates as printed; Rodriguez, Jain & Kreutz-Delgado, [28] [29]
there, for the second factorisation, here in link coordinates.

| code   | Featherstone & Orin | meaning                                                                    |
|--------|---------------------|----------------------------------------------------------------------------|
| I      | I = diag(I_i)       | inertias of the links, 6N × 6N                                             |
| P      | P                   | incidence: 1 on the diagonal, -1 at a link's parent; P⁻¹ is φ* of [29]     |
| H      | H = diag(h_i)       | joint axes, 6N × n                                                         |
| S      | S = P⁻¹H            | accelerations that the joints allow                                        |
| T      | T = Pᵀ diag(T_i)    | constraint forces, joint by joint (F5); T_i spans what h_i does no work on |
| a_0    | a_0                 | P⁻¹(Ḣq̇ + a_base): what is there without joint accelerations (F3)           |
| U, Psi |                     | I_i^A h_i, and D_i⁻¹ with D_i = h_iᵀ I_i^A h_i and the rotor               |
| K      | K                   | I^A h D⁻¹: what a joint's innovation sends to the links that carry it      |

Rotors are no links. They add their inertias R to M; in (27) and (28) a DoF with a rotor is a constraint that yields:
its column h⁺ᵀ joins T, and 1/R its place on the diagonal.

Reading the operators: y = (1 + HΦK)⁻¹ x = (1 - HΨK) x is a loop inward, its transpose a loop outward. M⁻¹ =
(1 - HΨK)ᵀ D⁻¹ (1 - HΨK) is both, which is the articulated-body algorithm. Cost: O(n) a product, O(n · depth) more for M.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.algorithms import mimic_multipliers
from qddot.algorithms.articulated_body import articulated_inertias
from qddot.algorithms.kinematics import link_poses
from qddot.algorithms.newton_euler_classical import rigid_body_forces
from qddot.algorithms.passive_forces import passive_forces
from qddot.errors import InputError
from qddot.mechanism.model import Model
from qddot.spatial import (
    Ad,
    Ad_inv,
    Ad_inv_T,
    Inertia,
    Transform,
    ad,
    ad_T,
    motion,
    transform_inertia,
    zero_force,
    zero_motion,
)
from qddot.spatial.joint_blocks import Ad_columns, Ad_inv_T_columns, Matrix, Motions, Vector, apply, complement

Array = NDArray[Any]


class System:
    """A tree as one linear system: the matrices of section 3.5, dense, on floats, for reading and for small robots."""

    def __init__(self, model: Model, q: Any, v: Any, tau: Any, f_ext: Any = None) -> None:
        if model.is_coupled:
            follows = next(name for name, m in zip(model.joint_names, model.mimic, strict=True) if m is not None)
            raise InputError(f"joint {follows!r} has no coordinate of its own, which operators.System asks of every joint")
        T_W, S = link_poses(model, q), model.axes(q)
        _, _, Sdot_v = model.joints_at(q, v)
        qd, f_x, n = model.velocities(v), model.external(f_ext), model.n_links
        self.model, self.tau = model, np.asarray(tau) + passive_forces(model, q, v)
        self.h = [Ad_columns(T_W[i], S[i]) for i in range(n + 1)]
        self.I, self.H = np.zeros((6 * n, 6 * n)), np.zeros((6 * n, model.nv))
        self.velocity_force, self.outside, self.Hdot_qd = np.zeros((3, 6 * n))
        vel = [zero_motion()] * (n + 1)
        for i, p in model.outward():
            own, I = _rows(i), transform_inertia(T_W[i], model.inertia[i])
            vel[i] = vel[p] + self.h[i] @ qd[i]
            self.I[own, own] = _dense(I)
            self.H[own, model.slots[i].v] = np.array([s.components for s in self.h[i]]).T
            self.velocity_force[own] = (-1.0 * ad_T(vel[i], I @ vel[i])).components  # v × I v
            self.outside[own] = Ad_inv_T(T_W[i], f_x[i]).components
            self.Hdot_qd[own] = (ad(vel[i], self.h[i] @ qd[i]) + Ad(T_W[i], Sdot_v[i])).components

    @cached_property
    def P(self) -> Array:
        """The incidence matrix, after (29)."""
        P = np.eye(len(self.I))
        for i, p in self.model.outward():
            if p:
                P[_rows(i), _rows(p)] = -np.eye(6)
        return P

    @cached_property
    def base(self) -> Array:
        """The base's acceleration in the rows of the links that it carries, which (29) leaves out (F3)."""
        out = np.zeros(len(self.I))
        for i, p in self.model.outward():
            out[_rows(i)] = self.model.base_acceleration.components if p == 0 else 0.0
        return out

    @cached_property
    def S(self) -> Array:
        """P⁻¹H, after (29)."""
        return np.linalg.solve(self.P, self.H)

    @cached_property
    def a_0(self) -> Array:
        """P a = H q̈ + Ḣ q̇, (29), where q̈ = 0."""
        return np.linalg.solve(self.P, self.Hdot_qd + self.base)

    @cached_property
    def rotors(self) -> Array:
        return np.array([x for i, _ in self.model.outward() for x in self.model.armature[i]])

    def net_force(self, a: Array) -> Array:
        """f = I a + v × I v, (23): what a motion of the links takes."""
        return self.I @ a + self.velocity_force

    def accelerations(self, alpha: Array) -> Array:
        """a = a_0 + S α, (24), with α = q̈."""
        return self.a_0 + self.S @ alpha

    def active_force(self) -> Array:
        """f_a of (25): external forces, and joint forces along the dual axes, on a link and back on its parent."""
        return self.outside + self.P.T @ self.dual @ self.tau

    @cached_property
    def dual(self) -> Array:
        """h⁺ᵀ of each joint: hᵀ h⁺ᵀ = 1, so that a joint force does work along its own axis only."""
        return np.linalg.pinv(self.H).T

    def projected(self) -> tuple[Array, Array]:
        """(26): SᵀIS α = Sᵀ(f_a - I a_0 - v × I v), rotors on the diagonal."""
        M = self.S.T @ self.I @ self.S + np.diag(self.rotors)
        return M, self.S.T @ (self.active_force() - self.net_force(self.a_0))

    @cached_property
    def T(self) -> Array:
        """Constraint forces f_c = T β, after (26): TᵀS = 0; the last columns are those of the rotors."""
        blocks = np.zeros((len(self.I), 0))
        for i, _ in self.model.outward():
            columns = np.zeros((len(self.I), 6 - len(self.h[i])))
            columns[_rows(i)] = np.array([F.components for F in complement(self.h[i])]).reshape(-1, 6).T
            blocks = np.hstack([blocks, columns])
        return self.P.T @ np.hstack([blocks, self.dual[:, self.rotors > 0]])

    @cached_property
    def yielding(self) -> Array:
        """1/R at the columns of the rotors."""
        geared = self.rotors > 0
        return np.concatenate([np.zeros(self.T.shape[1] - geared.sum()), 1.0 / self.rotors[geared]])

    def augmented(self) -> tuple[Array, Array]:
        """(27): the matrix and the right side, for the unknowns (a, -β)."""
        matrix = np.block([[self.I, self.T], [self.T.T, -np.diag(self.yielding)]])
        return matrix, np.concatenate([self.active_force() - self.velocity_force, self.T.T @ self.a_0])

    def constraint_forces(self) -> tuple[Array, Array]:
        """(28): the matrix and the right side for β alone."""
        unbound = np.linalg.solve(self.I, self.active_force() - self.velocity_force)
        matrix = self.T.T @ np.linalg.solve(self.I, self.T) + np.diag(self.yielding)
        return matrix, self.T.T @ (self.a_0 - unbound)


def _rows(i: int) -> slice:
    return slice(6 * i - 6, 6 * i)


def _dense(I: Inertia) -> Array:
    """Kim (20), column by column."""
    return np.array([(I @ motion(unit)).components for unit in np.eye(6).tolist()]).T


# ---- the same as operators, link by link --------------------------------------------------------------------------------


def mass_matrix(model: Model, q: Any) -> Array:
    """M = SᵀIS = HᵀP⁻ᵀIP⁻¹H, with a loop for the product: row i of P⁻¹ is 1 at link i and at all that carry it."""
    T_W, S = link_poses(model, q), model.axes(q)
    h, M = [Ad_columns(T_W[i], S[i]) for i in range(len(S))], model.joint_matrix("M")
    for i, _ in model.outward():
        I, carrying = transform_inertia(T_W[i], model.inertia[i]), list(model.ancestors(i))
        for k in carrying:
            I_S = apply(I, h[k])
            for j in carrying:
                M[j, k] = h[j].T.on(I_S)
        M[i, i] = _diagonal(model.armature[i])
    return M.stack()


def mass_matrix_factored(model: Model, q: Any) -> Array:
    """M = (1 + HΦK) D (1 + HΦK)ᵀ: the force that K sends inward passes through every joint down to the base."""
    T, S = model.transforms(q), model.axes(q)
    M, (_, U, Psi) = model.joint_matrix("M"), articulated_inertias(model, T, S)
    for i, _ in model.outward():
        D = S[i].T.on(U[i]).add_diagonal(model.armature[i])
        column, K = {i: _diagonal([1.0] * len(S[i]))}, U[i].times(Psi[i])
        for j in model.ancestors(i):
            if j != i:
                column[j] = S[j].T.on(K)
            K = Ad_inv_T_columns(T[j], K)
        for j, L_j in column.items():
            for k, L_k in column.items():
                M[j, k] = Matrix(Vector(row.dot(D @ other) for other in L_k) for row in L_j)
    return M.stack()


def forward_dynamics(model: Model, q: Any, v: Any, tau: Any, f_ext: Any = None) -> Array:
    """q̈ = (1 - HΨK)ᵀ D⁻¹ (1 - HΨK)(τ - C)."""
    tau = tau + passive_forces(model, q, v)
    if model.is_coupled:
        return mimic_multipliers.forward_dynamics(model, q, v, tau, f_ext, forward_dynamics)
    T, S = model.transforms(q), model.axes(q)
    _, U, Psi = articulated_inertias(model, T, S)
    unmet = tau - rigid_body_forces(model, q, v, np.zeros(model.nv), f_ext)
    return _M_inverse_times(model, T, S, U, Psi, unmet)


def mass_matrix_inverse(model: Model, q: Any) -> Array:
    """M⁻¹ = (1 - HΨK)ᵀ D⁻¹ (1 - HΨK), column by column."""
    if model.is_coupled:
        return mimic_multipliers.mass_matrix_inverse(model, q, forward_dynamics)
    T, S = model.transforms(q), model.axes(q)
    _, U, Psi = articulated_inertias(model, T, S)
    columns = [_M_inverse_times(model, T, S, U, Psi, unit) for unit in np.eye(model.nv)]
    return np.stack(columns, axis=-1) if columns else np.zeros((*np.shape(q)[:-1], 0, 0))


def _M_inverse_times(model: Model, T: list[Transform], S: list[Motions], U: Any, Psi: Any, x: Any) -> Array:
    """Two loops: (1 - HΨK) inward with D⁻¹ at its end, (1 - HΨK)ᵀ outward."""
    x, qdd = model.velocities(x), model.joint_vector("qdd")
    z, nu, acc = model.per_link("z", "nu", "a")
    z[0], acc[0] = zero_force(), zero_motion()
    for i, _ in model.outward():
        z[i] = zero_force()
    for i, p in model.inward():  # inward: innovations, and the force that they leave for the parent
        nu[i] = Psi[i] @ (x[i] - S[i].T @ z[i])
        # all six degrees of freedom: only the joint's own force passes, and z would be added and taken away again
        left = U[i] @ (Psi[i] @ x[i]) if model.is_free_without_rotor(i) else z[i] + U[i] @ nu[i]
        z[p] = z[p] + Ad_inv_T(T[i], left)
    for i, p in model.outward():  # outward: the transpose
        carried = Ad_inv(T[i], acc[p])
        found = nu[i] - Psi[i] @ U[i].dot(carried)
        qdd[i] = found
        acc[i] = carried + S[i] @ found
    return qdd.stack()


def _diagonal(d: Any) -> Matrix:
    return Matrix(Vector((0.0,) * len(d)) for _ in d).add_diagonal(d)
