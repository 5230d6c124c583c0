"""Hybrid dynamics: some degrees of freedom have their acceleration prescribed, the others their force given.

Kim 2012, section 2.3, Table 4, with (34) after errata K2. A joint may be prescribed in part: its axes split into
S_u, whose accelerations are known and join η, and S_v, which yield as in Table 3. Where all of a joint is prescribed
S_v has no columns, and what is left of its lines is the table's `i ∈ u`: Π = Î, β = B̂ + Î(η + S q̈).

| code       | Kim        | meaning                                                    |
|------------|------------|------------------------------------------------------------|
| u[i], w[i] | u, v       | which of joint i's degrees of freedom have a given acceleration, force |
| eta[i]     | η_i + S q̈_u | acceleration that velocity and prescribed motion cause     |
| I_A, B     | Î_i, B̂_i   | articulated inertia and bias force, (52) (53)              |
| U, Psi     | Î S_v, Ψ_i | of the degrees of freedom that yield                                 |

The result has two rows: all accelerations, all forces. With nothing prescribed it is forward dynamics, with everything
inverse dynamics. Cost: O(n).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.algorithms import newton_euler_classical
from qddot.algorithms.composite_body import mass_matrix
from qddot.algorithms.passive_forces import passive_forces
from qddot.algorithms.sparse_factors import dof_above, factors, rows_of
from qddot.mechanism.model import Model
from qddot.scalars import Scalar, split, stack
from qddot.spatial import (
    Ad_inv,
    Ad_inv_T,
    Force,
    Motion,
    Transform,
    ad,
    ad_T,
    articulated,
    transform_articulated,
    zero_articulated,
    zero_motion,
)
from qddot.spatial.joint_blocks import Motions, Vector, apply, eliminate_joint

Chosen = Sequence[int]


def hybrid_dynamics(
    model: Model, q: Any, v: Any, a: Any, tau: Any, f_ext: Any = None, *, prescribed: Chosen
) -> NDArray[Any]:
    """(q̈, τ), complete, in link coordinates.   Kim Table 4. Of a and tau only what is given is read."""
    passive = passive_forces(model, q, v)
    tau = tau + passive
    if model.is_coupled:
        return _partitioned(model, q, v, a, tau, passive, prescribed, f_ext)
    T, S, Sdot_v = model.joints_at(q, v)
    qd, qdd, F_ext = model.velocities(v), model.velocities(only(a, prescribed)), model.external(f_ext)
    V, eta, B = model.per_link("V", "eta", "B")
    V[0], B[0] = zero_motion(), -1.0 * F_ext[0]
    for i, p in model.outward():  # outward: velocities and what they and the prescribed accelerations cause
        V[i] = Ad_inv(T[i], V[p]) + S[i] @ qd[i]
        eta[i] = ad(V[i], S[i] @ qd[i]) + Sdot_v[i] + S[i] @ qdd[i]
        B[i] = -1.0 * ad_T(V[i], model.inertia[i] @ V[i]) - F_ext[i]
    return _recursion(model, (T, S), eta, B, (a, tau, passive), prescribed, model.base_acceleration)


def hybrid_dynamics_classical(
    model: Model, q: Any, v: Any, a: Any, tau: Any, f_ext: Any = None, *, prescribed: Chosen
) -> NDArray[Any]:
    """The same by A = A⁰ + δ (see `classical`): the prescribed accelerations are in A⁰, and δ has neither velocity, gravity
    nor prescribed motion in it, so that it vanishes inward of all degrees of freedom that yield.
    """
    passive = passive_forces(model, q, v)
    tau = tau + passive
    if model.is_coupled:
        return _partitioned(model, q, v, a, tau, passive, prescribed, f_ext)
    T, S, F = newton_euler_classical.link_forces(model, q, v, only(a, prescribed), f_ext)
    still = [zero_motion() for _ in T]
    return _recursion(model, (T, S), still, F, (a, tau, passive), prescribed, zero_motion())


def _recursion(
    model: Model,
    joints: tuple[list[Transform], list[Motions]],
    eta: list[Motion],
    B: list[Force],
    known: tuple[Any, Any, Any],
    prescribed: Chosen,
    base: Motion,
) -> NDArray[Any]:
    """The backward and the second forward loop of Table 4. `known` are a, tau and the passive forces."""
    (T, S), (u, w) = joints, kinds_of_dof(model, prescribed)
    given, tau, left = (model.velocities(x) for x in known)
    Vdot, I_A, U, Psi, Pi = model.per_link("Vdot", "I_A", "U", "Psi", "Pi")
    qdd, force = model.joint_vector("a"), model.joint_vector("tau")
    for i in range(len(Pi)):
        Pi[i] = zero_articulated()
    for i, p in model.inward():  # inward: articulated inertias and bias forces
        S_v, tau_v = columns(S[i], w[i]), at(tau[i], w[i])
        I_A[i] = articulated(model.inertia[i]) + Pi[i]
        U[i] = apply(I_A[i], S_v)
        Psi[i] = S_v.T.on(U[i]).add_diagonal(at(model.armature[i], w[i])).inverse(at(model.floor(i), w[i]))
        if not u[i] and model.is_free_without_rotor(i):
            beta = U[i] @ (Psi[i] @ tau_v)
        else:
            left_over = eliminate_joint(I_A[i], U[i], Psi[i]) if w[i] else I_A[i]
            Pi[p] = Pi[p] + transform_articulated(T[i], left_over)  # (52)
            beta = B[i] + I_A[i] @ eta[i]  # (51)
            beta = beta + U[i] @ (Psi[i] @ (tau_v - S_v.T @ beta))  # (51) (53)
        B[p] = B[p] + Ad_inv_T(T[i], beta)  # (53)
    Vdot[0] = base
    for i, p in model.outward():  # outward: accelerations, and forces of prescribed degrees of freedom
        S_v, S_u = columns(S[i], w[i]), columns(S[i], u[i])
        carried = Ad_inv(T[i], Vdot[p]) + eta[i]
        yielded = Psi[i] @ (at(tau[i], w[i]) - U[i].dot(carried) - S_v.T @ B[i])  # Kim (45)
        Vdot[i] = carried + S_v @ yielded
        rotor = at(model.armature[i], u[i]).times(at(given[i], u[i]))
        driven = apply(I_A[i], S_u).dot(Vdot[i]) + S_u.T @ B[i] + rotor
        qdd[i] = merged(u[i], at(given[i], u[i]), w[i], yielded)
        force[i] = merged(u[i], driven, w[i], at(tau[i], w[i])) - left[i]
    return two_rows(qdd.stack(), force.stack(), model.nv)


def hybrid_dynamics_partitioned(
    model: Model, q: Any, v: Any, a: Any, tau: Any, f_ext: Any = None, *, prescribed: Chosen
) -> NDArray[Any]:
    """The same by the blocks of M, factored as the tree allows.   Kim (33) (34): q̈_v = M_vv⁻¹(τ_v - b_v - M_vu q̈_u)."""
    passive = passive_forces(model, q, v)
    return _partitioned(model, q, v, a, tau + passive, passive, prescribed, f_ext)


def _partitioned(
    model: Model, q: Any, v: Any, a: Any, tau: Any, passive: Any, prescribed: Chosen, f_ext: Any
) -> NDArray[Any]:
    """Joints that share coordinates come reduced in M and b, so it serves mimic joints as it is."""
    M, (free, inside) = rows_of(mass_matrix(model, q)), yielding(model, prescribed)
    place = {k: r for r, k in enumerate(free)}
    known = split(newton_euler_classical.rigid_body_forces(model, q, v, only(a, prescribed), f_ext))  # b + M_·u q̈_u
    L, reciprocal = factors([[M[r][c] for c in free] for r in free], inside, [model.floors[k] for k in free])
    forces, left = split(tau), split(passive)
    x: list[Scalar] = [forces[k] - known[k] for k in free]
    for k in reversed(range(len(free))):
        for i in inside[k]:
            x[i] = x[i] - L[k][i] * x[k]
    for k in range(len(free)):
        x[k] = x[k] * reciprocal[k]
        for i in inside[k]:
            x[k] = x[k] - L[k][i] * x[i]
    qdd = list(split(a))
    for k, r in place.items():
        qdd[k] = x[r]
    for k in prescribed:
        forces[k] = known[k] + Vector(M[k][c] for c in free).dot(x)
    return two_rows(stack(qdd), stack([f - g for f, g in zip(forces, left, strict=True)]), model.nv)


def yielding(model: Model, prescribed: Chosen) -> tuple[list[int], list[list[int]]]:
    """The degrees of freedom with given force, and for each the others of them that carry it, counted among themselves."""
    free = [k for k in range(model.nv) if k not in set(prescribed)]
    place, above = {k: r for r, k in enumerate(free)}, dof_above(model)
    return free, [[place[i] for i in above[k] if i in place] for k in free]


def only(a: Any, prescribed: Chosen) -> NDArray[Any]:
    """The accelerations that are given; the others nothing."""
    return stack([x if k in set(prescribed) else 0.0 for k, x in enumerate(split(a))])


def kinds_of_dof(model: Model, prescribed: Chosen) -> tuple[list[list[int]], list[list[int]]]:
    """Of each joint, the degrees of freedom with given acceleration and those with given force."""
    chosen = set(prescribed)
    own = [range(slot.v.start, slot.v.stop) for slot in model.slots]
    u = [[k - ks.start for k in ks if k in chosen] for ks in own]
    return u, [[k - ks.start for k in ks if k not in chosen] for ks in own]


def at(x: Sequence[Scalar], ks: Chosen) -> Vector:
    """Of one joint's numbers, those of these degrees of freedom."""
    return Vector(x[k] for k in ks)


def columns(S: Motions, ks: Chosen) -> Motions:
    """Of one joint's axes, those of these degrees of freedom."""
    return Motions(S[k] for k in ks)


def merged(u: Chosen, x: Vector, w: Chosen, y: Vector) -> Vector:
    """One joint's numbers from those of its two kinds of degrees of freedom."""
    found = {**dict(zip(u, x, strict=True)), **dict(zip(w, y, strict=True))}
    return Vector(found[k] for k in range(len(found)))


def two_rows(a: NDArray[Any], tau: NDArray[Any], nv: int) -> NDArray[Any]:
    """Accelerations above forces."""
    return stack([*split(a), *split(tau)], (2, nv)) if nv else np.zeros((2, 0))
