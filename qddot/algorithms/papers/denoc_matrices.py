"""Saha's matrices in full: 6n rows, for reading and for teaching; `denoc` has the recursions that they come to.

Saha 1999, (1)-(31), with the corrections S1 to S12 of docs/errata.md. One state at a time. The rows of body i are
6(i-1) to 6i, angular before linear, in the axes of the world and at its centre of mass; the columns of N_d, I and C are
the joint rates (5), θ̇. On a tree B_ij stands in N_l where joint j carries body i, and zero elsewhere.

| code       | Saha            | meaning                                                               |
|------------|-----------------|-----------------------------------------------------------------------|
| t, w       | t, w            | twists and wrenches, stacked, (3)                                     |
| Omega, M   | Ω, M            | angular velocities and mass matrices, block-diagonal, (4)             |
| M_dot      | Ṁ               | diag(ω_i × I_i, 0), (8) (10); not the derivative of M (S4)            |
| N_l, N_d   | N_l, N_d        | N = N_l N_d with t = N θ̇, (16) (17)                                   |
| M_tilde    | M̃               | N_lᵀ M N_l, (21) (22)                                                 |
| M_hat      | M̂               | N_lᵀ Ṁ N_l, (26) (27)                                                 |
| M_prime    | M̃'              | N_lᵀ M Ṅ_l + M̃ Ω + M̂, (25)                                            |
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.algorithms.papers import denoc
from qddot.algorithms.papers.denoc import bodies, rates, twists
from qddot.mechanism.model import Model
from qddot.scalars import stack
from qddot.spatial import Force, Inertia, Motion
from qddot.spatial.rotation import EYE, Mat, Vec, mat_mat, skew, sub

Array = NDArray[Any]

# ---- one body ----------------------------------------------------------------------------------------------------------


def block(rows: Mat) -> Array:
    return stack([x for row in rows for x in row], (3, 3))


def angular_velocity_matrix(omega: Vec) -> Array:
    """Ω_i = diag(ω_i × 1, ω_i × 1).   (2)"""
    return block_diagonal([block(skew(omega)), block(skew(omega))])


def body_mass_matrix(M: Inertia) -> Array:
    """M_i = diag(I_i, m_i 1).   (2)"""
    return block_diagonal([block(M.I), M.m * np.eye(3)])


def body_mass_rate(omega: Vec, M: Inertia) -> Array:
    """Ṁ_i = diag(ω_i × I_i, 0).   (8), S4"""
    return block_diagonal([block(mat_mat(skew(omega), M.I)), np.zeros((3, 3))])


def newton_euler(omega: Vec, M: Inertia, t: Array, t_dot: Array) -> Array:
    """w_i = M_i ṫ_i + Ṁ_i t_i: Euler's equation and Newton's.   (6a) (6b) (7), S3"""
    return body_mass_matrix(M) @ t_dot + body_mass_rate(omega, M) @ t


def propagation_matrix(c: Vec) -> Array:
    """B_ij = [[1, 0], [c_ij × 1, 1]] with c_ij = C_j - C_i.   (11a) (11b) (12) (13)"""
    return _lower(block(EYE), block(skew(c)), block(EYE))


def propagation_rate(v_i: Vec, v_j: Vec) -> Array:
    """Ḃ_ij = [[0, 0], [(v_j - v_i) × 1, 0]].   S10"""
    return _lower(np.zeros((3, 3)), block(skew(sub(v_j, v_i))), np.zeros((3, 3)))


def _lower(A: Array, B: Array, D: Array) -> Array:
    return np.block([[A, np.zeros((3, 3))], [B, D]])


# ---- all bodies --------------------------------------------------------------------------------------------------------


def stacked(columns: list[Motion] | list[Force]) -> Array:
    """t, w, or w̃^E: the vectors of the moving bodies below each other.   (3) (31)"""
    return stack([x for column in columns[1:] for x in column.components])


def block_diagonal(blocks: list[Array]) -> Array:
    """Ω, M and Ṁ from those of the bodies.   (4) (10)"""
    out = np.zeros([sum(b.shape[k] for b in blocks) for k in (0, 1)], dtype=np.result_type(*blocks))
    r = c = 0
    for b in blocks:
        out[r : r + b.shape[0], c : c + b.shape[1]] = b
        r, c = r + b.shape[0], c + b.shape[1]
    return out


def mass_matrices(model: Model, q: Any) -> Array:
    """M.   (4)"""
    return block_diagonal([body_mass_matrix(M) for M in bodies(model, q).M[1:]])


def twist(model: Model, q: Any, v: Any) -> Array:
    """t, body by body.   (1) (3) (12)"""
    return stacked(twists(model, bodies(model, q), v))


def angular_velocities(model: Model, q: Any, v: Any) -> Array:
    """Ω.   (4)"""
    return block_diagonal([angular_velocity_matrix(t.w) for t in twists(model, bodies(model, q), v)[1:]])


def mass_rates(model: Model, q: Any, v: Any) -> Array:
    """Ṁ.   (10)"""
    b = bodies(model, q)
    return block_diagonal([body_mass_rate(t.w, M) for t, M in zip(twists(model, b, v)[1:], b.M[1:], strict=True)])


def wrench(model: Model, q: Any, v: Any, t_dot: Array) -> Array:
    """w = M ṫ + Ṁ t: the bodies as if nothing joined them.   (9)"""
    return mass_matrices(model, q) @ t_dot + mass_rates(model, q, v) @ twist(model, q, v)


def external_wrench(model: Model, q: Any, f_ext: Any = None) -> Array:
    """w^E: weight, and forces on the links.   (18)"""
    return stacked(denoc.external_wrenches(model, bodies(model, q), f_ext))


# ---- the decoupled natural orthogonal complement -----------------------------------------------------------------------


def _by_pairs(model: Model, of_pair: Any) -> Array:
    """A 6n×6n matrix whose block (i, j) is given where joint j carries body i."""
    n = model.n_links
    blocks = [[np.zeros((6, 6)) for _ in range(n)] for _ in range(n)]
    for i, _ in model.outward():
        for j in model.ancestors(i):
            blocks[i - 1][j - 1] = of_pair(i, j)
    return np.block(blocks)


def N_l(model: Model, q: Any) -> Array:
    """The lower block-triangular factor: B_ij.   (17)"""
    C = bodies(model, q).C
    return _by_pairs(model, lambda i, j: propagation_matrix(sub(C[j], C[i])))


def N_l_rate(model: Model, q: Any, v: Any) -> Array:
    """Ṅ_l: Ḃ_ij."""
    t = twists(model, bodies(model, q), v)
    return _by_pairs(model, lambda i, j: propagation_rate(t[i].v, t[j].v))


def _on_joints(model: Model, columns: list[Any]) -> Array:
    blocks = [stack([x for c in p for x in c.components], (len(p), 6)).T for p in columns[1:]]
    out = np.zeros((6 * model.n_links, model.nv), dtype=np.result_type(float, *blocks))
    for (i, _), p in zip(model.outward(), blocks, strict=True):
        slot = model.slots[i]
        out[6 * i - 6 : 6 * i, slot.v] += p if slot.factor is None else slot.factor * p
    return out


def N_d(model: Model, q: Any) -> Array:
    """The block-diagonal factor: p_i.   (13) (15) (17)"""
    return _on_joints(model, bodies(model, q).p)


def N_d_rate(model: Model, q: Any, v: Any) -> Array:
    """Ṅ_d = Ω N_d, and what axes do that move by themselves.   (26), S7"""
    b = bodies(model, q)
    return _on_joints(model, rates(model, b, q, v, twists(model, b, v)))


def N(model: Model, q: Any) -> Array:
    """N = N_l N_d, with t = N θ̇.   (16)"""
    return N_l(model, q) @ N_d(model, q)


def N_rate(model: Model, q: Any, v: Any) -> Array:
    """Ṅ = Ṅ_l N_d + N_l Ṅ_d, with ṫ = N θ̈ + Ṅ θ̇."""
    return N_l_rate(model, q, v) @ N_d(model, q) + N_l(model, q) @ N_d_rate(model, q, v)


# ---- I θ̈ + C θ̇ = τ, (20) -----------------------------------------------------------------------------------------------


def equation_of_motion(model: Model, q: Any, v: Any) -> tuple[Array, Array, Array]:
    """I = NᵀMN, C = Nᵀ(MṄ + ṀN) and τ = Nᵀw^E, whatever the constraint wrenches are.   (18)-(20), S5"""
    n, M = N(model, q), mass_matrices(model, q)
    C = n.T @ (M @ N_rate(model, q, v) + mass_rates(model, q, v) @ n)
    return n.T @ M @ n, C, n.T @ external_wrench(model, q)


def M_tilde(model: Model, q: Any) -> Array:
    """M̃ by its blocks: M̃_i B_ij below the diagonal and its transpose above, M̃_i after (23a).   (22)"""
    b = bodies(model, q)
    sums = [np.zeros((6, 6)) for _ in b.M]
    for k, _ in model.outward():
        for i in model.ancestors(k):
            B = propagation_matrix(sub(b.C[i], b.C[k]))
            sums[i] = sums[i] + B.T @ body_mass_matrix(b.M[k]) @ B  # (23a)
    lower = _by_pairs(model, lambda i, j: sums[i] @ propagation_matrix(sub(b.C[j], b.C[i])))  # (21) (22)
    return lower + (lower - block_diagonal(sums[1:])).T  # (21) (22)


def M_hat(model: Model, q: Any, v: Any) -> Array:
    """M̂ by its blocks: M̂_max(i,j).   (27), S9"""
    b = bodies(model, q)
    sums = _turning_sums(model, denoc.convective(model, b, twists(model, b, v), denoc.composite_masses(model, b))[0])
    lower = _by_pairs(model, lambda i, j: sums[i])
    upper = _by_pairs(model, lambda i, j: sums[i] if i != j else np.zeros((6, 6)))
    return lower + _blockwise_transposed(upper)


def NMN_dot(model: Model, q: Any, v: Any) -> Array:
    """N_lᵀ M Ṅ_l by its blocks: B_j+1,iᵀ H̃_j+1,j on and above the diagonal, H̃_ij below it.   (27), S8"""
    b = bodies(model, q)
    t, masses = twists(model, b, v), denoc.composite_masses(model, b)
    BH = _turning_sums(model, denoc.convective(model, b, t, masses)[1])

    def below(i: int, j: int) -> Array:
        return _full(masses[i]) @ propagation_rate(t[i].v, t[j].v) + BH[i]  # H̃_ij, and on the diagonal what hangs on i

    upper = _by_pairs(
        model,
        lambda j, i: propagation_matrix(sub(b.C[i], b.C[j])).T @ BH[j] if i != j else np.zeros((6, 6)),
    )
    return _by_pairs(model, below) + _blockwise_transposed(upper)


def M_prime(model: Model, q: Any, v: Any) -> Array:
    """M̃' = N_lᵀ M Ṅ_l + M̃ Ω + M̂, with C = N_dᵀ M̃' N_d where no axis moves by itself.   (25), S6"""
    return NMN_dot(model, q, v) + M_tilde(model, q) @ angular_velocities(model, q, v) + M_hat(model, q, v)


def _full(M: Inertia) -> Array:
    """An inertia about any point as a 6×6 matrix."""
    h = block(skew(M.h))
    return np.block([[block(M.I), h], [-h, M.m * np.eye(3)]])


def _turning_sums(model: Model, X: list[denoc.Turning]) -> list[Array]:
    return [np.block([[block(x.upper), np.zeros((3, 3))], [block(x.lower), np.zeros((3, 3))]]) for x in X]


def _blockwise_transposed(A: Array) -> Array:
    """Block (j, i) where block (i, j) was; the blocks as they are."""
    n = len(A) // 6
    return A.reshape(n, 6, n, 6).transpose(2, 1, 0, 3).reshape(6 * n, 6 * n)
