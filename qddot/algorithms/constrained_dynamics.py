"""Dynamics with constraints: forward by three methods, inverse, hybrid.

Featherstone & Orin 2000, section 3.4, (15)-(22); Kim 2012, section 3, (54)-(80), with errata K2, K8, K9, K10.

| code      | Featherstone & Orin | Kim      | meaning                                                            |
|-----------|---------------------|----------|--------------------------------------------------------------------|
| A, rows   | L                   | A        | the rows of the constraints that are kept as independent           |
| c         | c                   | -Ȧq̇      | what A q̈ is to be, with Baumgarte's terms where gains are given     |
| lam       | λ                   | λ        | forces of the kept rows, zero for the others                       |
| W         | L M⁻¹ Lᵀ            | A M⁻¹ Aᵀ |                                                                    |
| K         | K                   |          | accelerations that no row notices, A K = 0                         |

Methods 1 and 2 branch on nothing, so that they can be compiled: which rows are independent is decided before, once a
robot, and given as `rows`. They also return how nearly dependent the kept rows have become here, the trace of W times the
sum of its reciprocal pivots in W = L D Lᵀ, and the sums of squares of φ and of A q̇ over them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.algorithms import articulated_body, loop_constraints, newton_euler_classical, sparse_factors
from qddot.algorithms.composite_body import mass_matrix
from qddot.algorithms.passive_forces import passive_forces
from qddot.mechanism.model import Model
from qddot.scalars import Scalar, split, stack
from qddot.spatial.joint_blocks import Inverse, Matrix, Vector

Array = NDArray[Any]
RANK = 1e-9  # of the largest singular value: below it rows count as dependent
RANK_SQUARED = 1e-13  # the same for A M⁻¹ Aᵀ, where singular values are squared, as far as rounding allows


def direct(model: Model, q: Any, v: Any, tau: Any, f_ext: Any = None, gains: Any = None, *, rows: Sequence[int]) -> Array:
    """Method 1, all of (20) at once: its matrix factored as L D Lᵀ, first M from the leaves inward, then the multipliers.

    The pivots of M are positive, those of the multipliers the negative ones of W, so no pivoting is needed.
    """
    above = sparse_factors.dof_above(model)
    L, reciprocal = sparse_factors.factors(sparse_factors.rows_of(mass_matrix(model, q)), above, model.floors)
    at_rest = np.zeros(model.nv)
    force = tau + passive_forces(model, q, v) - newton_euler_classical.rigid_body_forces(model, q, v, at_rest, f_ext)

    def inward(x: list[Scalar]) -> Vector:
        for k in reversed(range(model.nv)):
            for i in above[k]:
                x[i] = x[i] - L[k][i] * x[k]
        return Vector(x)

    A, c, worst = closure(model, q, v, rows, gains)
    Y, z = [inward(list(row)) for row in A], inward(split(force))
    scaled = [y.times(reciprocal) for y in Y]
    W = Matrix(Vector(y.dot(s) for s in scaled) for y in Y)
    W_inverse = W.inverse()
    lam = W_inverse @ (c - Vector(s.dot(z) for s in scaled))
    x = list(z)
    for y, f in zip(Y, lam, strict=True):
        x = [a + f * b for a, b in zip(x, y, strict=True)]
    for k in range(model.nv):
        x[k] = x[k] * reciprocal[k]
        for i in above[k]:
            x[k] = x[k] - L[k][i] * x[i]
    return _result(model, rows, x, lam, dependence(W, W_inverse), worst)


def multipliers_first(
    model: Model, q: Any, v: Any, tau: Any, f_ext: Any = None, gains: Any = None, *, rows: Sequence[int]
) -> Array:
    """Method 2, Kim (67)-(69), FO (21): one full sweep of the O(n) recursion, and one reduced sweep a row and one for λ.

    The reduced ones reuse articulated inertias and transforms, and know neither velocity nor gravity.
    """
    A, c, worst = closure(model, q, v, rows, gains)
    free = split(articulated_body.forward_dynamics(model, q, v, tau, f_ext))
    push = _reduced(model, q)
    columns = [Vector(split(push(stack(row)))) for row in A]
    W = Matrix(Vector(a.dot(column) for column in columns) for a in A)
    W_inverse = W.inverse()
    lam = W_inverse @ (c - Vector(a.dot(free) for a in A))  # (67), (21)
    together = [Vector(column).dot(lam) for column in zip(*A, strict=True)] if A else [0.0] * model.nv
    x = [r + s for r, s in zip(free, split(push(stack(together))), strict=True)]  # (68) (69)
    return _result(model, rows, x, lam, dependence(W, W_inverse), worst)


def _reduced(model: Model, q: Any) -> Any:
    """M⁻¹ times a vector by the recursion without velocity and gravity."""
    if model.is_coupled:
        M_inverse = sparse_factors.mass_matrix_inverse(model, q)
        return lambda tau: (M_inverse @ tau[..., None])[..., 0]
    T, S = model.transforms(q), model.axes(q)
    inertias = articulated_body.articulated_inertias(model, T, S)
    return lambda tau: articulated_body.accelerations_from_rest(model, T, S, inertias, tau)


def closure(
    model: Model, q: Any, v: Any, rows: Sequence[int], gains: Any
) -> tuple[list[Vector], Vector, tuple[Scalar, Scalar]]:
    """The kept rows of A, the c that A q̈ is to be, and the squares of what positions and velocities are off by."""
    all_A, drift, phi = (
        loop_constraints.jacobian_rows(model, q),
        split(loop_constraints.bias(model, q, v)),
        split(loop_constraints.residual(model, q)),
    )
    A, off, u = [Vector(all_A[r]) for r in rows], Vector(phi[r] for r in rows), split(v)
    rate = Vector(a.dot(u) for a in A)
    c = Vector(-1.0 * drift[r] for r in rows)
    if gains is not None:
        k_p, k_d = split(gains)
        c = c - k_p * off - k_d * rate
    return A, c, (off.dot(off), rate.dot(rate))


def dependence(W: Matrix, inverse: Inverse) -> Scalar:
    """How nearly the kept rows depend on each other: the trace of W times the sum of its reciprocal pivots."""
    trace = Vector(row[k] for k, row in enumerate(W))
    ones = [1.0] * len(trace)
    return trace.dot(ones) * Vector(inverse.reciprocal).dot(ones)


def _result(
    model: Model, rows: Sequence[int], a: Sequence[Scalar], lam: Vector, near: Scalar, worst: tuple[Scalar, Scalar]
) -> Array:
    return stack([*a, *all_multipliers(model, rows, lam), near, *worst])


def all_multipliers(model: Model, rows: Sequence[int], lam: Vector) -> list[Scalar]:
    """λ of every row, zero for those that are not kept."""
    out: list[Scalar] = [0.0] * loop_constraints.count(model)
    for r, f in zip(rows, lam, strict=True):
        out[r] = f
    return out


# ---- with a numerical rank test, on matrices of numbers ------------------------------------------------------------------


def null_space(M: Array, force: Array, A: Array, c: Array, rank: int) -> tuple[Array, Array]:
    """Method 3, FO (22): q̈ = K y + q̈₀, then Kᵀ M K y = Kᵀ(τ - C - M q̈₀); λ is the least that fits.

    The rank is found from singular values, per sample; `rank` is the most it can be on closed loops. M may be singular
    as long as the motions that the constraints leave have mass.
    """
    U, s, Vt = np.linalg.svd(A, full_matrices=True)
    n, some = A.shape[-1], min(A.shape[-2:])
    kept = (s > RANK * s[..., :1]) & (np.arange(some) < rank)
    reciprocal = np.where(kept, 1.0 / np.where(kept, s, 1.0), 0.0)
    V1, U1 = np.swapaxes(Vt[..., :some, :], -1, -2), U[..., :, :some]
    start = _on(V1 * reciprocal[..., None, :], _on(np.swapaxes(U1, -1, -2), c))
    left = np.concatenate([~kept, np.ones((*kept.shape[:-1], n - some), bool)], axis=-1)
    K = np.swapaxes(Vt, -1, -2) * left[..., None, :]
    K_T = np.swapaxes(K, -1, -2)
    moved = K_T @ M @ K
    trace = np.trace(moved, axis1=-2, axis2=-1)[..., None, None]
    usual = np.where(trace > 0.0, trace, 1.0)  # in the place of what the constraints take
    reduced = moved + usual * (np.eye(n) * ~left[..., None, :])
    least, *_, most = np.moveaxis(np.linalg.eigvalsh(reduced), -1, 0)[[0, -1]]
    if not np.all(least > n * np.finfo(float).eps * most):
        raise np.linalg.LinAlgError("a motion that the constraints leave moves no mass")
    y = np.linalg.solve(reduced, _on(K_T, force - _on(M, start))[..., None])[..., 0]
    a = start + _on(K, y)
    needed = _on(M, a) - force  # = Aᵀ λ
    return a, _on(U1 * reciprocal[..., None, :], _on(np.swapaxes(V1, -1, -2), needed))


def _on(A: Array, x: Array) -> Array:
    return np.asarray((A @ x[..., None])[..., 0])


def multipliers_of_inverse(
    tau_r: Array, A: Array, active: Array, tau_p: Array, choice: str, weights: Array
) -> tuple[Array, Array, Array]:
    """τ, λ and what is left unbalanced, from the forces τ_r = M q̈ + b of the tree.   Kim (56)-(66).

    `active` marks the degrees of freedom whose force is sought; the others have `tau_p`. Where λ is not unique, `choice`
    "constraint_force" takes the least, (59) with s = 0, and "torque" that of the least Σ w τ_a², (62)-(64); with all
    DoF active that is (65) (66). N is the projector on the null space of A_pᵀ, which is a basis of it with too many
    columns.
    """
    A_pT, A_aT = np.swapaxes(A[..., ~active], -1, -2), np.swapaxes(A[..., active], -1, -2)
    lacking = (tau_r - tau_p)[..., ~active]  # (56)
    size = np.linalg.norm(A, axis=(-2, -1))
    inverse, N = _pseudoinverse(A_pT, size)
    lam = _on(inverse, lacking)  # (57) (59)
    if choice == "torque":
        root = np.sqrt(weights[..., active])
        across = root[..., :, None] * (A_aT @ N)
        s = _on(_pseudoinverse(across, size * np.max(root, initial=0.0))[0], root * (tau_r[..., active] - _on(A_aT, lam)))
        lam = lam + _on(N, s)  # (63) (64) (66), after (66): immovable structures
    unbalanced = lacking - _on(A_pT, lam)
    tau = np.where(active, tau_r - _on(np.swapaxes(A, -1, -2), lam), tau_p)  # (58) (60) (61) (62) (65)
    return tau, lam, unbalanced


def _pseudoinverse(X: Array, size: Array) -> tuple[Array, Array]:
    """X⁺ and the projector on the null space of X; what is below RANK of `size` is nothing: X may be rounding alone."""
    U, s, Vt = np.linalg.svd(X, full_matrices=True)
    some = min(X.shape[-2:])
    kept = s > RANK * size[..., None]
    reciprocal = np.where(kept, 1.0 / np.where(kept, s, 1.0), 0.0)
    V = np.swapaxes(Vt, -1, -2)
    inverse = (V[..., :some] * reciprocal[..., None, :]) @ np.swapaxes(U[..., :some], -1, -2)
    left = np.concatenate([~kept, np.ones((*kept.shape[:-1], X.shape[-1] - some), bool)], axis=-1)
    return inverse, (V * left[..., None, :]) @ Vt


def hybrid_accelerations(M: Array, free: Array, A: Array, Adot_v: Array, chosen: Array) -> Array:
    """q̈ with q̈_u prescribed, from the accelerations `free` that the tree has without the constraints.   Kim (70)-(80).

    `chosen` marks u. λ solves (76); where m > n_v it is not unique, but q̈ is, if there is one.
    """
    v = ~chosen
    A_v, M_vv = A[..., v], M[..., v, :][..., :, v]
    pushed = np.linalg.solve(M_vv, np.swapaxes(A_v, -1, -2))  # M_vv⁻¹ A_vᵀ of (72)
    lam = -_on(np.linalg.pinv(A_v @ pushed, rcond=RANK_SQUARED, hermitian=True), _on(A, free) + Adot_v)  # (73)-(76)
    out = free.copy()
    out[..., v] += _on(pushed, lam)  # (80)
    return out
