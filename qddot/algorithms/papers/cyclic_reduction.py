"""Forward dynamics of an unbranched chain in O(log N) steps: (28) by cyclic reduction, all joints of a step at once.

Featherstone & Orin 2000, section 3.5: "for the special case of an unbranched chain, the coefficient matrix in Eq. 28 is
block-tridiagonal. This means that it can be solved in O(log(N)) time on a parallel computer with O(N) processors; and this
is the key step in the Constraint-Force Algorithm [14, 13]". Where a link carries two joints, both meet in its row and the
matrix is no longer tridiagonal: `augmented` has (28) for trees, link by link, and `parallel` has trees in O(log N) steps.

| code      | Featherstone & Orin | meaning                                                                        |
|-----------|---------------------|--------------------------------------------------------------------------------|
| X, h, c   | h_i, ḣ_i q̇_i        | ⁱX_λ(i), joint axes, acceleration that the joint velocity causes (`parallel`)   |
| h_plus    | h⁺ = (hᵀh)⁻¹hᵀ      | from relative accelerations to q̈, transposed from τ to forces                  |
| T, Y      | T_i                 | basis of what a joint bears (F5), rotors among it; 0 or 1/R, as in `augmented`  |
| r         | f_a - v × I v       | force on a link but for the constraint forces                                  |
| a_free    | I⁻¹(f_a - v × I v)  | acceleration of a link without constraint forces                               |
| D, L, d   | TᵀI⁻¹T, right side  | diagonal blocks, blocks to the joint before, right sides (`Tridiagonal`)        |
| beta      | β_i                 | constraint force through joint i is T_i β_i                                    |

A step takes every other joint out of the equations of its two neighbours, so that half of them are left: ⌊log₂N⌋ steps
inward, one joint, ⌊log₂N⌋ steps outward. Velocities take O(log N) steps by `parallel.velocities`; the rest is one step.
Schur complements of a positive definite matrix are positive definite, so no pivots are sought; the condition of (28) is
that of TᵀI⁻¹T, which grows with the chain and with the ratio of its inertias. Work is O(N).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qddot.algorithms import mimic_multipliers
from qddot.algorithms.papers import divide_and_conquer
from qddot.algorithms.papers.augmented import require_inertias
from qddot.algorithms.papers.divide_and_conquer import Fixed, times, transposed
from qddot.algorithms.passive_forces import passive_forces
from qddot.algorithms.sparse_factors import where_regular
from qddot.errors import FormulationError
from qddot.mechanism.model import Model
from qddot.spatial.joint_blocks import Matrix, Vector, complement

Array = NDArray[Any]


class Tridiagonal(NamedTuple):
    """L_k β_k-1 + D_k β_k + L_k+1ᵀ β_k+1 = d_k, an array each with its first axis over the joints that are left."""

    D: Array
    L: Array
    d: Array

    def at(self, k: Any) -> Tridiagonal:
        return Tridiagonal(*(x[k] for x in self))


def forward_dynamics(model: Model, q: Any, v: Any, tau: Any, f_ext: Any = None) -> Array:
    """q̈ from (28): the constraint forces by cyclic reduction, then every link by itself. One state; a batch is a loop."""
    require_unbranched(model)
    require_inertias(model, "cyclic_reduction")
    if divide_and_conquer.is_batch(q, v, tau, f_ext):
        return divide_and_conquer.each_state(forward_dynamics, model, q, v, tau, f_ext)
    if model.is_coupled:
        tau = tau + passive_forces(model, q, v)
        return mimic_multipliers.forward_dynamics(model, q, v, tau, f_ext, forward_dynamics)
    fixed = divide_and_conquer.fixed_of(model, q, v, tau)
    tau = tau + passive_forces(model, q, v) if fixed.is_passive else tau
    links, element = divide_and_conquer.prepared(model, fixed, q, v, tau, f_ext)
    base = np.array(model.base_acceleration.components)
    try:
        basis = constraints(model, fixed, links, q)
    except np.linalg.LinAlgError:  # the axes of a joint are dependent to the last bit
        return np.full(model.nv, np.nan)
    a = accelerations(_places(model), fixed.inertia, links, basis, -element.e, base)[fixed.dof]
    return where_regular(model, q, a)


class Basis(NamedTuple):
    """T, Y and h⁺ of all joints, and which of the six columns of T a joint has; the others are zero."""

    T: Array
    Y: Array
    h_plus: Array
    is_borne: Array


class Places(NamedTuple):
    """The links from the base outward, chain after chain, the link before each, and whether that is not the world."""

    own: Array
    before: Array
    inside: Array


def accelerations(
    places: Places, inertia: Array, links: divide_and_conquer.Links, basis: Basis, r: Array, base: Array
) -> Array:
    """q̈ of all joints, the world's place first; r is what there is of f_a - v × I v without joint forces."""
    X, _, c, _, tau = links
    (own, before, _), (T, _, h_plus, _) = places, basis
    I_inv = np.zeros_like(X)
    I_inv[own] = solved(inertia[own].astype(X.dtype), np.zeros_like(X[own]) + np.eye(6))
    push = times(transposed(h_plus), tau)
    a_free = times(I_inv, r + push - _on_the_link_before(X, push, places))
    a_free[0] = base
    beta = np.zeros(T.shape[::2], X.dtype)
    beta[own] = reduced(_meeting(places, X, c, basis, I_inv, a_free))
    f = times(T, beta)
    a = a_free + times(I_inv, f - _on_the_link_before(X, f, places))  # a = I⁻¹(f_a + T β - v × I v)
    qdd = np.zeros_like(tau)
    qdd[own] = times(h_plus[own], a[own] - times(X[own], a[before]) - c[own])
    return qdd


def _on_the_link_before(X: Array, f: Array, places: Places) -> Array:
    """Forces through the joints as the links feel them that carry them."""
    out, (own, before, inside) = np.zeros_like(f), places
    out[before[inside]] = times(transposed(X), f)[own[inside]]
    return out


def _meeting(places: Places, X: Array, c: Array, basis: Basis, I_inv: Array, a_free: Array) -> Tridiagonal:
    """(28): TᵀI⁻¹T by joints, each meeting itself on its two links and the joint before on the link between them."""
    own, before, _ = places
    T, felt = basis.T[own], transposed(X[own]) @ basis.T[own]  # T_i as its own link feels it, and as its parent does
    D = transposed(T) @ I_inv[own] @ T + transposed(felt) @ I_inv[before] @ felt
    D = D + _diagonal(basis.Y[own]) + _diagonal(~basis.is_borne[own])
    L = -transposed(felt) @ I_inv[before] @ basis.T[before]
    d = times(transposed(T), times(X[own], a_free[before]) + c[own] - a_free[own])
    return Tridiagonal(D, L, d)


# ---- cyclic reduction --------------------------------------------------------------------------------------------------


def reduced(system: Tridiagonal) -> Array:
    """β: half of the joints are taken out at a time, and put back."""
    levels = []
    while len(system.d) > 1:
        levels.append(system)
        system = take_out(system)
    beta = times(solved(system.D, np.zeros_like(system.D) + np.eye(system.D.shape[-1])), system.d)
    for level in reversed(levels):
        beta = put_back(level, beta)
    return beta


def take_out(system: Tridiagonal) -> Tridiagonal:
    """The equations of joints 1, 3, 5, … without joints 0, 2, 4, …: one step inward."""
    kept, gone = system.at(slice(1, None, 2)), system.at(slice(0, None, 2))
    m = len(kept.d)
    below, (D_inv_L, D_inv_d) = gone.at(slice(m)), _by_pivots(gone.D, gone.L, gone.d)
    D_inv_K = solved(below.D, transposed(kept.L))  # D_k-1⁻¹ L_kᵀ
    D = kept.D - kept.L @ D_inv_K
    L = -kept.L @ D_inv_L[:m]
    d = kept.d - times(kept.L, D_inv_d[:m])
    above = len(gone.d) - 1  # the last joint that is kept may have none above it
    K = transposed(gone.L[1:])
    D[:above] = D[:above] - K @ D_inv_L[1:]
    d[:above] = d[:above] - times(K, D_inv_d[1:])
    return Tridiagonal(D, L, d)


def put_back(system: Tridiagonal, beta: Array) -> Array:
    """β of joints 0, 2, 4, … from those of their neighbours: one step outward."""
    kept, gone, out = system.at(slice(1, None, 2)), system.at(slice(0, None, 2)), np.zeros_like(system.d)
    d = gone.d.copy()
    d[1:] = d[1:] - times(gone.L[1:], beta[: len(d) - 1])
    d[: len(beta)] = d[: len(beta)] - times(transposed(kept.L), beta)
    out[1::2], out[0::2] = beta, solved(gone.D, d[..., None])[..., 0]
    return out


def _by_pivots(D: Array, L: Array, d: Array) -> tuple[Array, Array]:
    both = solved(D, np.concatenate([L, d[..., None]], axis=-1))
    return both[..., :-1], both[..., -1]


def solved(A: Array, B: Array) -> Array:
    """A⁻¹B of symmetric positive definite matrices."""
    if A.dtype != object:
        return np.linalg.solve(A, B)
    out = np.empty_like(B)
    for m in range(len(A)):
        inverse = Matrix(Vector(row) for row in A[m].tolist()).inverse()
        out[m] = np.array([inverse @ column for column in B[m].T.tolist()], object).reshape(B[m].T.shape).T
    return out


# ---- the chain ---------------------------------------------------------------------------------------------------------


def constraints(model: Model, fixed: Fixed, links: divide_and_conquer.Links, q: Any) -> Basis:
    """T_i with the columns of rotors, h⁺ᵀ, and what stands for each on the diagonal: nothing, or 1/R."""
    q, h = np.asarray(q), links.h
    moves = np.zeros((len(h), h.shape[-1]), bool)
    moves[fixed.dof] = True
    h_plus = solved(transposed(h) @ h + _diagonal(~moves), transposed(h))
    T, Y, is_borne = np.zeros((len(h), 6, 6), h.dtype), np.zeros((len(h), 6), h.dtype), np.zeros((len(h), 6), bool)
    for i, joint, _ in fixed.groups:
        S = joint.S([q[fixed.starts[i] + k] for k in range(joint.nq)])
        for k, F in enumerate(complement(S)):
            divide_and_conquer.fill(T, i, k, F)
        is_borne[i, : 6 - joint.nv] = True
    for i, _ in model.outward():
        for k, R in enumerate(model.armature[i], 6 - model.joint[i].nv):
            if not (isinstance(R, float) and R == 0.0):
                T[i, :, k], Y[i, k], is_borne[i, k] = h_plus[i, k - 6 + model.joint[i].nv], 1.0 / R, True
    return Basis(T, Y, h_plus, is_borne)


def _places(model: Model) -> Places:
    child = {p: i for i, p in model.outward() if p}
    own: list[int] = []
    for root in (i for i, p in model.outward() if p == 0):
        own.append(root)
        while own[-1] in child:
            own.append(child[own[-1]])
    before = np.array([model.parent[i] for i in own], dtype=int)
    return Places(np.array(own, dtype=int), before, before > 0)


def require_unbranched(model: Model) -> None:
    """(28) is block-tridiagonal where no link carries two joints. The world may carry several chains: they do not meet."""
    for k, _ in model.outward():
        carried = [model.joint_names[i] for i, p in model.outward() if p == k]
        if len(carried) > 1:
            raise FormulationError(
                f"link {model.link_names[k]!r} of robot {model.name!r} carries joints {', '.join(map(repr, carried))}, and "
                f"the formulation 'cyclic_reduction' is for unbranched chains; take 'constraint_forces' or, in O(log N) "
                f"steps, 'divide_and_conquer'"
            )


def _diagonal(d: Array) -> Array:
    return d[..., None] * np.eye(d.shape[-1])
