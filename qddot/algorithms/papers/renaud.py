"""The composite body method that sees every point from the joint: Renaud's, and the recursion of Fijany & Bejczy.

Lin 1991, appendix: (A1)-(A9) and Fig. A1 for Renaud's closed form, (A10)-(A15) for the recursive one. Corrections L1 and
L20 to L23 of docs/errata.md. Renaud found that of a composite body much does not change while the mechanism moves: the
link with the masses of all that it carries put at the joints that turn on it, (A5) (A6).

On a tree, "m <= j" is "m carries j", and sums over the next link are sums over the links next to it.

| code        | appendix      | meaning                                                                   |
|-------------|---------------|---------------------------------------------------------------------------|
| u[m, j]     | u_m^<j>       | axis of joint m, in E_j                                                   |
| s[j]        | ^j_{j-1}s^<j-1> | origin of E_j, in the frame before                                      |
| s_hat[m, j] | ^j_mŝ^<j>     | u_m × ^j_ms, velocity of the origin of E_j when joint m turns, (A4)       |
| m_hat       | m̂_j           | mass of composite body j                                                  |
| c_bar, J_bar| c̄_j, J̄_j      | first moment and inertia of the augmented link: they do not change        |
| c_hat, J_hat| ĉ_j, Ĵ_j      | of the composite body about the origin of E_j                             |
| f, t        | f_mj, t_mj    | force and torque through joint m when joint j alone accelerates           |

Cost: O(n · depth).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

from qddot.algorithms.papers.lin_frames import JointFrames, inward, joint_frames, listed_similarity, outward, put
from qddot.joints import Z
from qddot.mechanism.model import Model
from qddot.scalars import Scalar
from qddot.spatial import Transform, steiner
from qddot.spatial.rotation import (
    IDENTITY,
    ZERO,
    Mat,
    Rotation,
    Vec,
    add,
    cross,
    dot,
    mat_add,
    mat_vec,
    scale,
    sub,
    transpose,
)

PerPair = dict[tuple[int, int], Any]


class Augmented(NamedTuple):
    """Links with the masses of what turns on them put at its joints: numbers of the mechanism, not of its state."""

    m_hat: list[Scalar]
    c_bar: list[Vec]
    J_bar: list[Mat]


def augmented_links(model: Model, E: JointFrames, s: list[Vec]) -> Augmented:
    """m̂_j, c̄_j and J̄_j.   (A5) (A6)"""
    m_hat = [I.m for I in E.inertia]
    c_bar, J_bar = [I.h for I in E.inertia], [I.I for I in E.inertia]
    for j, i in model.inward():
        m_hat[i] = m_hat[i] + m_hat[j]
        if E.K[j] == 0.0:  # the joint turns and does not travel, K*_j: the mass behind it stays where the link has it
            at_joint = scale(m_hat[j], s[j])
            c_bar[i] = add(c_bar[i], at_joint)  # (A5)
            J_bar[i] = mat_add(J_bar[i], steiner(s[j], scale(0.5, at_joint)))  # (A6), [s×][s×] by Lin's (21)
    return Augmented(m_hat, c_bar, J_bar)


def composites(model: Model, E: JointFrames, s: list[Vec], u: PerPair) -> tuple[list[Scalar], list[Vec], list[Mat]]:
    """m̂_j, ĉ_j and Ĵ_j.   (A7) (A8)"""
    m_hat, c_bar, J_bar = augmented_links(model, E, s)
    c_hat, J_hat = list(c_bar), list(J_bar)
    for j, i in model.inward():
        if i == 0:
            continue
        turned = inward(E.T[j], c_hat[j])  # ĉ_j^<i>
        moving = 0.0 if E.K[j] == 0.0 else m_hat[j]  # K_j m̂_j
        c_hat[i] = add(c_hat[i], add(turned, scale(moving, s[j])))  # (A7)
        w = add(turned, scale(0.5 * moving, s[j]))
        if any(E.K_star[m] for m in model.ancestors(model.parent[i])):
            J_hat[i] = mat_add(J_hat[i], mat_add(listed_similarity(E.T[j], J_hat[j]), steiner(s[j], w)))  # (A8)
        elif E.K_star[i]:  # of the first joint that turns, N_JR of Fig. A1, only what is about its axis
            about = dot(u[i, j], mat_vec(J_hat[j], u[i, j])) + 2.0 * (s[j][0] * w[0] + s[j][1] * w[1])
            x, y, z = J_hat[i]
            J_hat[i] = (x, y, (z[0], z[1], z[2] + about))
    return m_hat, c_hat, J_hat


def axes_and_arms(model: Model, E: JointFrames, s: list[Vec]) -> tuple[PerPair, PerPair]:
    """u_m^<j>, and the velocity of the origin of E_j when joint m turns.   Lin (24), (A4) (A9), L21"""
    u, s_hat = dict[tuple[int, int], Any](), dict[tuple[int, int], Any]()
    for j, i in model.outward():
        u[j, j], s_hat[j, j] = Z, ZERO
        for m in model.ancestors(i):
            u[m, j] = outward(E.T[j], u[m, i])
            s_hat[m, j] = outward(E.T[j], add(s_hat[m, i], cross(u[m, i], s[j])))
    return u, s_hat


def mass_matrix(model: Model, q: Any) -> NDArray[Any]:
    """H_mj in closed form, following Fig. A1.   (A1), L20"""
    E = joint_frames(model, q)
    s, K, K_star, H = [T.p for T in E.T], E.K, E.K_star, model.joint_matrix("H")
    u, s_hat = axes_and_arms(model, E, s)
    m_hat, c_hat, J_hat = composites(model, E, s, u)
    for j, _ in model.outward():
        a, e = transpose(J_hat[j])[2], cross(Z, c_hat[j])
        for m in model.ancestors(j):
            H_mj = (
                K_star[m] * K_star[j] * (dot(u[m, j], a) + dot(s_hat[m, j], e))
                + K[m] * K_star[j] * dot(u[m, j], e)
                + K_star[m] * K[j] * (m_hat[j] * s_hat[m, j][2] - dot(u[m, j], e))
                + K[m] * K[j] * (m_hat[j] * u[m, j][2])
            )
            put(model, H, m, j, H_mj)
    return H.stack()


def mass_matrix_recursive(model: Model, q: Any) -> NDArray[Any]:
    """H_mj by passing force and torque inward, all in one frame k.   Fijany & Bejczy: (A10)-(A15), L22 L23"""
    E = joint_frames(model, q)
    s, K, K_star, H = [T.p for T in E.T], E.K, E.K_star, model.joint_matrix("H")
    m_hat, c_hat, J_hat = composites(model, E, s, axes_and_arms(model, E, s)[0])
    R_k, s_k, u_1 = in_second_frame(model, E, s)
    for j, i in model.outward():
        u_c = cross(Z, c_hat[j])
        f_E = add(scale(K[j] * m_hat[j], Z), scale(K_star[j], u_c))  # (A10) for q̈_j = 1, its sign changed
        t_E = sub(scale(K_star[j], mat_vec(J_hat[j], Z)), scale(K[j], u_c))  # (A11)
        put(model, H, j, j, K[j] * f_E[2] + K_star[j] * t_E[2])  # (A12)
        f, t, last = R_k[j] @ f_E, R_k[j] @ t_E, j  # (A14)
        for m in model.ancestors(i):
            t, last = add(t, cross(s_k[last], f)), m  # (A15)
            u_m = transpose(R_k[m].rows)[2] if model.parent[m] else u_1[j]
            put(model, H, m, j, K[m] * dot(u_m, f) + K_star[m] * dot(u_m, t))  # (A13)
    return H.stack()


def in_second_frame(model: Model, E: JointFrames, s: list[Vec]) -> tuple[list[Rotation], list[Vec], list[Vec]]:
    """^j_kR, ^j_{j-1}s^<k> and u_1^<k>, with k = 2: the second link on the way from the base to link j.

    There the second axis is z and the first one has few terms, which is why Fijany & Bejczy chose it. Links that meet in H
    have one k, but for the first link, which is seen from each.
    """
    R_k: list[Rotation] = [IDENTITY for _ in E.T]
    s_k, u_1 = [ZERO for _ in E.T], [ZERO for _ in E.T]
    for j, i in model.outward():
        if i and model.parent[i]:
            R_k[j], s_k[j], u_1[j] = (Transform(R_k[i]) @ E.T[j]).R, R_k[i] @ s[j], u_1[i]
        elif i:
            s_k[j], u_1[j] = outward(E.T[j], s[j]), outward(E.T[j], Z)
    return R_k, s_k, u_1
