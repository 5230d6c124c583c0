"""Forward dynamics by articulated bodies when joints share coordinates (mimic joints). Not in the papers; derived here.

A joint that shares its coordinate g with others cannot be eliminated where it stands: its acceleration k·y_g is known
only when all joints of g have been met. Until then y_g is carried inward as an unknown, beside the articulated inertia:

    F_i = Î_i V̇_i + B̂_i + Σ_g N_g y_g                force through joint i
    τ_g = N_gᵀ V̇_i + Σ_h E_gh y_h + e_g               the equation of coordinate g, collected so far

Crossing a joint substitutes V̇_i = X V̇_p + η + S q̈_i in both. An ordinary joint is eliminated at once, as in Kim's
Table 3; a group is eliminated at the first link that carries all its joints, by the same algebra with N_g in the
place of Î S and E_gg in the place of SᵀÎS. With no shared coordinate this is Table 3. Cost: O(n · open groups).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.mechanism.model import Model
from qddot.scalars import Scalar, pivot, split, stack
from qddot.spatial import (
    Ad_inv,
    Ad_inv_T,
    Force,
    Motion,
    ad,
    ad_T,
    articulated,
    transform_articulated,
    zero_articulated,
    zero_motion,
)
from qddot.spatial.joint_blocks import Forces, Matrix, Vector, apply, eliminate_joint

Known = dict[int, Scalar]
Solve = Callable[[Motion, Known], None]


class _Subtree:
    """What link i's subtree asks of it: Î, B̂, and N_g for the groups still open."""

    def __init__(self, model: Model, i: int, B: Force) -> None:
        self.I, self.B = articulated(model.inertia[i]), B
        self.N: dict[int, Force] = {}


class _Equations:
    """The equations of the open groups: E_gh and τ_g - e_g."""

    def __init__(self, tau: Known) -> None:
        self.rest = dict(tau)
        self.E: dict[tuple[int, int], Scalar] = {}

    def add(self, g: int, h: int, x: Scalar) -> None:
        self.E[g, h] = self.E.get((g, h), 0.0) + x

    def get(self, g: int, h: int) -> Scalar:
        return self.E.get((g, h), 0.0)


def forward_dynamics(model: Model, q: Any, v: Any, tau: Any, f_ext: Any = None) -> NDArray[Any]:
    """Accelerations of the independent coordinates under tau, passive forces already in it."""
    T, S, Sdot_v = model.joints_at(q, v)
    v, F_ext, tau = model.velocities(v), model.external(f_ext), split(tau)
    V, eta, sub, Vdot = model.per_link("V", "eta", "subtree", "Vdot")
    V[0], Vdot[0], sub[0] = zero_motion(), model.base_acceleration, _Subtree(model, 0, F_ext[0])
    for i, p in model.outward():
        V[i] = Ad_inv(T[i], V[p]) + S[i] @ v[i]
        eta[i] = ad(V[i], S[i] @ v[i]) + Sdot_v[i]
        sub[i] = _Subtree(model, i, -1.0 * ad_T(V[i], model.inertia[i] @ V[i]) - F_ext[i])
    groups, closing = _groups(model)
    equations = _Equations({g: tau[g] for g in groups})
    solve_at_link, solve_at_joint = model.per_link("at link", "at joint")
    for i, p in model.inward():
        solve_at_link[i] = [_eliminate(model, sub[i], equations, g) for g in closing[i] if not _shares(model, i, g)]
        _accelerate(sub[i], equations, eta[i])
        if model.slots[i].v.start in groups:
            _defer(model, i, S[i][0], sub[i], equations)
            solve_at_joint[i] = [_eliminate(model, sub[i], equations, g) for g in closing[i] if _shares(model, i, g)]
        else:
            solve_at_joint[i] = [_yield(model, i, S[i], sub[i], equations, Vector(tau[model.slots[i].v]))]
        sub[p].I = sub[p].I + transform_articulated(T[i], sub[i].I)
        sub[p].B = sub[p].B + Ad_inv_T(T[i], sub[i].B)
        for g, N in sub[i].N.items():
            moved = Ad_inv_T(T[i], N)
            sub[p].N[g] = sub[p].N[g] + moved if g in sub[p].N else moved
    solve_at_link[0] = [_eliminate(model, sub[0], equations, g) for g in closing[0]]
    y: Known = {}
    _run(solve_at_link[0], Vdot[0], y)
    for i, p in model.outward():
        carried = Ad_inv(T[i], Vdot[p])
        _run(solve_at_joint[i], carried, y)
        slot = model.slots[i]
        Vdot[i] = carried + eta[i] + S[i] @ slot.read_v([y.get(k, 0.0) for k in range(model.nv)])
        _run(solve_at_link[i], Vdot[i], y)
    return stack([y[k] for k in range(model.nv)])


def mass_matrix_inverse(model: Model, q: Any) -> NDArray[Any]:
    """M⁻¹ of the independent coordinates: accelerations from rest under unit forces, less those of gravity."""
    rest = np.zeros(model.nv)
    falling = forward_dynamics(model, q, rest, rest)
    columns = [forward_dynamics(model, q, rest, unit) - falling for unit in np.eye(model.nv)]
    return np.stack(columns, axis=-1)


def _groups(model: Model) -> tuple[set[int], list[list[int]]]:
    """The shared coordinates, and for each link those whose joints all lie in its subtree and in no child's."""
    members: dict[int, list[int]] = {}
    for i, _ in model.outward():
        if model.joint[i].nv == 1:
            members.setdefault(model.slots[i].v.start, []).append(i)
    groups = {g: links for g, links in members.items() if len(links) > 1}
    closing: list[list[int]] = [[] for _ in model.parent]
    for g, links in groups.items():
        common = set(model.ancestors(links[0])).intersection(*(model.ancestors(i) for i in links[1:]))
        closing[max(common, default=0)].append(g)
    return set(groups), closing


def _shares(model: Model, i: int, g: int) -> bool:
    return model.joint[i].nv == 1 and model.slots[i].v.start == g


def _accelerate(sub: _Subtree, equations: _Equations, eta: Motion) -> None:
    """V̇_i = (V̇_i - η) + η: the known part goes into the constant terms."""
    for g, N in sub.N.items():
        equations.rest[g] = equations.rest[g] - eta.dot(N)
    sub.B = sub.B + sub.I @ eta


def _yield(model: Model, i: int, S: Any, sub: _Subtree, equations: _Equations, tau: Vector) -> Solve:
    """Eliminates an ordinary joint as Table 3 does, also from the open groups. Returns how to find its acceleration."""
    U = apply(sub.I, S)
    Psi = S.T.on(U).add_diagonal(model.armature[i]).inverse(model.floor(i))
    u, c = tau - S.T @ sub.B, {g: S.T @ N for g, N in sub.N.items()}
    for g in c:
        equations.rest[g] = equations.rest[g] - c[g].dot(Psi @ u)
        for h in c:
            equations.add(g, h, -1.0 * c[g].dot(Psi @ c[h]))
    if model.is_free_without_rotor(i):
        sub.I, sub.B, sub.N = zero_articulated(), U @ (Psi @ tau), {}
    else:
        sub.I, sub.B = eliminate_joint(sub.I, U, Psi), sub.B + U @ (Psi @ u)
        sub.N = {g: N - U @ (Psi @ c[g]) for g, N in sub.N.items()}
    start = model.slots[i].v.start

    def solve(carried: Motion, y: Known) -> None:
        pushed = u - U.dot(carried)
        for g in c:
            pushed = pushed - y[g] * c[g]
        y.update(enumerate(Psi @ pushed, start))

    return solve


def _defer(model: Model, i: int, s: Motion, sub: _Subtree, equations: _Equations) -> None:
    """Carries the joint's acceleration k y_g as an unknown instead of eliminating it."""
    slot = model.slots[i]
    g, k = slot.v.start, 1.0 if slot.factor is None else slot.factor
    axis = k * s
    F = sub.I @ axis
    equations.rest[g] = equations.rest[g] - axis.dot(sub.B)
    for h, N in sub.N.items():
        equations.add(g, h, axis.dot(N))
        equations.add(h, g, axis.dot(N))
    equations.add(g, g, axis.dot(F) + k * k * model.armature[i][0])
    sub.N[g] = sub.N[g] + F if g in sub.N else F


def _eliminate(model: Model, sub: _Subtree, equations: _Equations, g: int) -> Solve:
    """Eliminates y_g where all its joints have been met. Returns how to find it when V̇ is known."""
    N, floor = sub.N.pop(g), model.floors[g]
    Psi = 1.0 / pivot(equations.get(g, g), floor)
    rest, couplings = equations.rest[g], {h: equations.get(g, h) for h in sub.N}
    sub.I = eliminate_joint(sub.I, Forces((N,)), Matrix((Vector((equations.get(g, g),)),)).inverse((floor,)))
    sub.B = sub.B + (Psi * rest) * N
    for h, x in couplings.items():
        sub.N[h] = sub.N[h] - (Psi * x) * N
        equations.rest[h] = equations.rest[h] - x * Psi * rest
        for k, z in couplings.items():
            equations.add(h, k, -1.0 * x * Psi * z)

    def solve(Vdot: Motion, y: Known) -> None:
        known = rest - Vdot.dot(N)
        for h, x in couplings.items():
            known = known - x * y[h]
        y[g] = Psi * known

    return solve


def _run(solves: list[Solve], Vdot: Motion, y: Known) -> None:
    """Back substitution: last eliminated, first found."""
    for solve in reversed(solves):
        solve(Vdot, y)
