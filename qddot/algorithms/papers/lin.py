"""The composite body method that sees every point from the base: inertia matrix and bias vector together.

Lin 1991, the algorithm of Fig. 3: (24)-(30) for what composite bodies are, (62)-(65) for H, (66) (67) (54)-(57) for b.
Corrections L2, L4, L10, L12, L13 and L15 to L19 of docs/errata.md; the page of Fig. 3 that is missing from our copy
follows from (55) and (62)-(67). `lin_derivation` has the equations that lead here, (2)-(23) and (31)-(53).

On a tree, "m <= j" is "m carries j". Each root has the origin of its own E_1 as the base's origin, as (59)-(61) have
it: composite bodies on different roots never meet.

| code       | Lin           | meaning                                                                  |
|------------|---------------|--------------------------------------------------------------------------|
| u[m, j]    | u_m^<j>       | axis of joint m, in E_j                                                  |
| s[j]       | ^j_0s^<j>     | origin of E_j                                                            |
| s_hat[m,j] | ŝ_m^<j>       | u_m × ^m_0s                                                              |
| p[j]       | ^j_0p^<j>     | centre of mass of link j                                                 |
| m_hat, p_hat | m̂_j, p̂_j     | mass and first moment of composite body j                                |
| J_bar[j]   | J̄_j           | its inertia less half the trace, so that Ĵ = J̄ - tr(J̄) E                 |
| J_33[j]    | (Ĵ_j)_33      | all that is needed of the first turning joint                            |
| a, e, B    | a_j, e_j, B_j | (62) (63) (64)                                                           |
| zeta[j,m]  | ζ_j^<m> q̇_j   | velocities of the joints below j, (55), times its own                    |

Fig. 3 counts R J Rᵀ as one product, `joint_frames.listed_similarity`; in two planar rotations it costs half of that,
`joint_frames.planar_similarity`. A link without mass of its own, as regrouping makes them, has a first moment instead.

Cost: O(n · depth).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

from qddot.algorithms.kinematics import joint_forces_of
from qddot.algorithms.papers.lin_frames import (
    JointFrames,
    Similarity,
    inward,
    joint_frames,
    listed_similarity,
    outward,
    planar_similarity,
    put,
    shifted,
)
from qddot.algorithms.passive_forces import passive_forces
from qddot.algorithms.sparse_factors import solve
from qddot.joints import Z
from qddot.mechanism.model import Model
from qddot.scalars import Scalar
from qddot.spatial import Inertia, about_centre
from qddot.spatial.joint_blocks import Vector
from qddot.spatial.rotation import (
    ZERO,
    Mat,
    Vec,
    add,
    cross,
    dot,
    mat_add,
    mat_sub,
    mat_vec,
    outer,
    scale,
    scaled_eye,
    sub,
    symmetric,
    transpose,
)

PerPair = dict[tuple[int, int], Any]


def mass_matrix(model: Model, q: Any) -> NDArray[Any]:
    """H, following Fig. 3.   Lin 1991 (65)."""
    return _inertia_matrix(model, composites(model, q, listed_similarity))


def mass_matrix_planar(model: Model, q: Any) -> NDArray[Any]:
    """H with inertias turned about one axis after the other."""
    return _inertia_matrix(model, composites(model, q, planar_similarity))


def bias_force(model: Model, q: Any, v: Any) -> NDArray[Any]:
    """b, following Fig. 3.   Lin 1991 (54)."""
    return _bias(model, composites(model, q, listed_similarity), v)


def bias_force_planar(model: Model, q: Any, v: Any) -> NDArray[Any]:
    """b with inertias turned about one axis after the other."""
    return _bias(model, composites(model, q, planar_similarity), v)


def inertia_and_bias(
    model: Model, q: Any, v: Any, similarity: Similarity = listed_similarity
) -> tuple[NDArray[Any], NDArray[Any]]:
    """H and b of Lin's (1), which share all composite bodies: the whole of Fig. 3."""
    c = composites(model, q, similarity)
    return _inertia_matrix(model, c), _bias(model, c, v)


def forward_dynamics(model: Model, q: Any, v: Any, tau: Any, f_ext: Any = None) -> NDArray[Any]:
    """H q̈ = τ - b by factors of H, as Lin's conclusion recommends, in the order that keeps the zeros of the tree."""
    H, b = inertia_and_bias(model, q, v, planar_similarity)
    tau = tau + passive_forces(model, q, v)
    return solve(model, H, (tau if f_ext is None else tau + joint_forces_of(model, q, f_ext)) - b)


# ---- composite bodies --------------------------------------------------------------------------------------------------


class Composites(NamedTuple):
    """What Fig. 3 forms before H_mj and d_mj."""

    E: JointFrames
    u: PerPair
    s_hat: PerPair
    m_hat: list[Scalar]
    p_hat: list[Vec]
    J_bar: list[Mat]
    J_33: list[Scalar]


def composites(model: Model, q: Any, similarity: Similarity) -> Composites:
    """Axes and arms outward, (24)-(27), then masses, first moments and inertias inward, (28)-(30)."""
    E = joint_frames(model, q)
    (s,) = model.per_link("s")
    s[0] = ZERO
    u, s_hat = dict[tuple[int, int], Any](), dict[tuple[int, int], Any]()
    for j, i in model.outward():
        s[j] = shifted(E.T[j], s[i]) if i else ZERO  # (25) (59) (61)
        u[j, j], s_hat[j, j] = Z, cross(Z, s[j])  # (15)
        for m in model.ancestors(i):
            u[m, j] = outward(E.T[j], u[m, i])  # (24)
            s_hat[m, j] = outward(E.T[j], s_hat[m, i])  # (27)
    links = [_of_link(G, x) for G, x in zip(E.inertia, s, strict=True)]
    m_hat, p_hat, J_bar = (list(x) for x in zip(*links, strict=True))
    J_33: list[Scalar] = [0.0 for _ in s]
    for j, i in model.inward():
        J_33[j] = J_33[j] - J_bar[j][0][0] - J_bar[j][1][1]
        if i == 0:
            continue
        m_hat[i] = m_hat[i] + m_hat[j]  # (28)
        p_hat[i] = add(p_hat[i], inward(E.T[j], p_hat[j]))  # (29)
        if any(E.K_star[m] for m in model.ancestors(model.parent[i])):
            J_bar[i] = mat_add(J_bar[i], similarity(E.T[j], J_bar[j]))  # (30)
        elif E.K_star[i]:  # of the first joint that turns, N_JR of Fig. 3, only what is about its axis
            J_33[i] = J_33[i] + dot(u[i, j], mat_vec(with_trace(J_bar[j]), u[i, j]))
    return Composites(E, u, s_hat, m_hat, p_hat, J_bar, J_33)


def _of_link(G: Inertia, s: Vec) -> tuple[Scalar, Vec, Mat]:
    """m_j, m_j ^j_0p and Ĩ_j - m_j ^j_0p ^j_0pᵀ of one link whose frame stands at s."""
    c, (m, h, I) = about_centre(G)
    p = add(s, c)  # (26) (60)
    mp, arm = scale(m, p), outer(p, h)
    spread = mat_add(outer(mp, p), mat_add(arm, transpose(arm)))
    return m, add(mp, h), symmetric(mat_sub(less_half_trace(I), spread))


def less_half_trace(I: Mat) -> Mat:
    """Ĩ = I - ½ tr(I) E.   (19)"""
    return mat_sub(I, scaled_eye(0.5 * (I[0][0] + I[1][1] + I[2][2])))


def with_trace(J_bar: Mat) -> Mat:
    """Ĵ = J̄ - tr(J̄) E.   (20) (23)"""
    (xx, xy, xz), (_, yy, yz), (_, _, zz) = J_bar
    return ((-(yy + zz), xy, xz), (xy, -(xx + zz), yz), (xz, yz, -(xx + yy)))


# ---- the inertia matrix ------------------------------------------------------------------------------------------------


def _inertia_matrix(model: Model, c: Composites) -> NDArray[Any]:
    """H_mj of every joint j and the joints m that carry it.   (62) (63) (65), L12"""
    K, K_star, H = c.E.K, c.E.K_star, model.joint_matrix("H")
    for j, _ in model.outward():
        m_hat, p_hat = c.m_hat[j], c.p_hat[j]
        a, e = a_of(c, j), e_of(c, j)
        for m in model.ancestors(j):
            u, s_hat = c.u[m, j], c.s_hat[m, j]
            H_mj = (
                K_star[m] * K_star[j] * (dot(a, u) - dot(s_hat, e))
                + K[m] * K_star[j] * dot(e, u)
                + K_star[m] * K[j] * (cross(u, p_hat)[2] - m_hat * s_hat[2])
                + K[m] * K[j] * (m_hat * u[2])
            )
            put(model, H, m, j, H_mj)
    return H.stack()


def a_of(c: Composites, j: int) -> Vec:
    """a_j = Ĵ_j u_j + ŝ_j × p̂_j.   (62)"""
    return add((c.J_bar[j][0][2], c.J_bar[j][1][2], c.J_33[j]), cross(c.s_hat[j, j], c.p_hat[j]))


def e_of(c: Composites, j: int) -> Vec:
    """e_j = u_j × p̂_j - m̂_j ŝ_j.   (63)"""
    return sub(cross(Z, c.p_hat[j]), scale(c.m_hat[j], c.s_hat[j, j]))


# ---- the bias vector ---------------------------------------------------------------------------------------------------


def _bias(model: Model, c: Composites, v: Any) -> NDArray[Any]:
    """b_m = η_m - Σ_{j below m} ζ_j^<m>q̇_j · d_jm + Σ_{j above m} ζ_j^<j>q̇_j · d_mj.   (54)"""
    zeta, g, b = zetas(model, c, v), [model.gravity], model.joint_vector("b")
    sums: list[Scalar] = [0.0 for _ in c.m_hat]
    for j, i in model.outward():
        K, K_star = c.E.K[j], c.E.K_star[j]
        g.append(outward(c.E.T[j], g[i]))
        e, B = e_of(c, j), B_of(c, j)
        sums[j] = sums[j] - K_star * dot(e, g[j]) - K * (c.m_hat[j] * g[j][2])  # (67), L13 L15
        for m in model.ancestors(i):
            d = d_of(c, m, j, e, B)
            sums[j] = sums[j] - dot(zeta[m, j], d)
            sums[m] = sums[m] + dot(zeta[j, j], d)
    for j, _ in model.outward():
        b[j] = Vector((sums[j],))
    return b.stack()


def zetas(model: Model, c: Composites, v: Any) -> PerPair:
    """ζ_j^<m> q̇_j for every joint m that joint j carries.   (55)-(57), L17"""
    qd, (zeta,) = model.velocities(v), model.per_link("zeta")
    out: PerPair = {}
    for j, i in model.outward():
        own = (0.0, 0.0, c.E.K_star[j] * qd[j][0])
        below = add(zeta[i], (0.0, 0.0, c.E.K_star[i] * qd[i][0])) if i else ZERO
        zeta[j] = add(outward(c.E.T[j], below), own)  # (56)
        out[j, j] = scale(qd[j][0], zeta[j])
        for m in model.ancestors(i):
            alone = not any(c.E.K_star[k] for k in model.ancestors(model.parent[m]))  # then ζ_m is along u_m
            out[m, j] = scale(out[m, m][2], c.u[m, j]) if alone else outward(c.E.T[j], out[m, i])  # (57)
    return out


def B_of(c: Composites, j: int) -> Mat:
    """B_j = -J̄_j [u_j ×] + [ŝ_j ×][p̂_j ×], by A = ŝ_j p̂_jᵀ.   (64), L18"""
    J, A = c.J_bar[j], outer(c.s_hat[j, j], c.p_hat[j])
    return (
        (-J[0][1] - A[1][1], J[0][0] + A[1][0], 0.0),
        (A[0][1] - J[1][1], J[1][0] - A[0][0], 0.0),
        (A[0][2] - J[2][1], J[2][0] + A[1][2], -A[1][1] - A[0][0]),
    )


def d_of(c: Composites, m: int, j: int, e: Vec, B: Mat) -> Vec:
    """d_mj: what the velocity of a joint below, along its axis, makes joint m resist when joint j moves.   (66)"""
    K, K_star, u, s_hat = c.E.K, c.E.K_star, c.u[m, j], c.s_hat[m, j]
    x, y, _ = sub(cross(u, c.p_hat[j]), scale(c.m_hat[j], s_hat))
    turning = add(scale(K_star[m] * K_star[j], add(mat_vec(B, u), cross(s_hat, e))), scale(K[m] * K_star[j], cross(e, u)))
    sliding = add(scale(K_star[m] * K[j], (-y, x, 0.0)), scale(K[m] * K[j] * c.m_hat[j], (-u[1], u[0], 0.0)))
    return add(turning, sliding)
