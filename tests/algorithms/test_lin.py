"""Lin 1991 and its appendix, equation by equation: the derivation, Fig. 3, Renaud, Fijany & Bejczy, and what they cost."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given

import qddot
from benchmarks import formulations
from benchmarks.counts import BOTH, JOINTS, TABLE_I, arm
from qddot.algorithms import composite_body, kinematics, newton_euler
from qddot.algorithms.papers import lin, lin_frames, renaud
from qddot.algorithms.papers import lin_derivation as steps
from qddot.errors import FormulationError
from qddot.joints import KINDS
from qddot.mechanism.simplify import simplified
from qddot.robot import Robot
from qddot.robots.generators import random_tree
from qddot.scalars import stack
from qddot.spatial.rotation import cross, skew
from tests.support.lin_arms import ONE_AXIS, SETTINGS, arms, close, state
from tests.support.mechanisms import State
from tests.support.paths import ROOT
from tests.support.tolerances import COMPLEX_STEP, solve

Z = np.array([0.0, 0.0, 1.0])


def pairs(model):
    """(m, j) with m carrying j."""
    return [(m, j) for j, i in model.outward() for m in model.ancestors(i)]


def world_links(s, q=None):
    """Where the links are: poses, centres of mass, inertias about them, from the robot's own kinematics."""
    poses = s.robot.forward_kinematics(s.q if q is None else q)
    p = [T[:3] @ np.append(np.divide(I.h, I.m), 1.0) for T, I in zip(poses, s.model.inertia[1:], strict=True)]
    inertias = []
    for T, I in zip(poses, s.model.inertia[1:], strict=True):
        c = np.divide(I.h, I.m)
        about = np.array(I.I) - I.m * (c @ c * np.eye(3) - np.outer(c, c))
        inertias.append(T[:3, :3] @ about @ T[:3, :3].T)
    return poses, np.array(p), inertias


# ---- the inertia matrix, (2)-(30) --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_composite_bodies(seed):
    """(2) (3) (4) (13) (14) (19) (20) (22) (23): sums over the links, each against particles' own formulas."""
    s = state(seed)
    a, (_, p, inertias) = steps.arm(s.model, s.q), world_links(s)
    for j, _ in s.model.outward():
        links = [i for i, _ in s.model.outward() if j in s.model.ancestors(i)]
        c, masses = steps.composite(a, j), [s.model.inertia[i].m for i in links]
        r = np.average([p[i - 1] for i in links], axis=0, weights=masses)
        close(c.m_hat, sum(masses))
        close(c.r, r)
        own = sum(inertias[i - 1] for i in links)
        spread = sum(m * np.outer(p[i - 1] - r, p[i - 1] - r) for m, i in zip(masses, links, strict=True))
        close(c.J, own + np.trace(spread) * np.eye(3) - spread)
        close(steps.first_moment(a, j), c.m_hat * np.array(c.r))
        about_base = np.array(c.J) - c.m_hat * np.array(skew(c.r)) @ skew(c.r)
        close(steps.inertia_about_base(a, j), about_base)
        J_bar = np.array(steps.reduced_inertia(a, j))
        close(J_bar, about_base - 0.5 * np.trace(about_base) * np.eye(3))
        close(lin.with_trace(tuple(map(tuple, J_bar))), about_base)  # (20) (23)
        close(np.array(c.J) - 0.5 * np.trace(c.J) * np.eye(3), J_bar + c.m_hat * np.outer(c.r, c.r))  # (51), L10


@pytest.mark.parametrize("seed", range(3))
def test_one_joint_accelerates(seed):
    """(5) (6) (7) (8) (9) (10) (11): accelerations against kinematics, forces against Newton and Euler of each link."""
    s = state(seed)
    a, (_, p, inertias) = steps.arm(s.model, s.q), world_links(s)
    M = composite_body.mass_matrix(s.model, s.q) - np.diag([x[0] for x in s.model.armature[1:]])
    for j, _ in s.model.outward():
        unit = np.eye(s.robot.nv)[j - 1]
        c = steps.composite(a, j)
        r_ddot, alpha = steps.one_joint(a, c, j)
        moved = s.slope(unit, lambda q: world_links(s, q)[1])  # at rest accelerations are velocities of q̇ = e_j
        links = [i for i, _ in s.model.outward() if j in s.model.ancestors(i)]
        masses = [s.model.inertia[i].m for i in links]
        close(r_ddot, np.average([moved[i - 1] for i in links], axis=0, weights=masses), COMPLEX_STEP)
        f = -sum(m * moved[i - 1] for m, i in zip(masses, links, strict=True))
        torques = (
            m * np.cross(p[i - 1], moved[i - 1]) + inertias[i - 1] @ alpha for m, i in zip(masses, links, strict=True)
        )
        f_E, t_E = steps.at_base(c, r_ddot, tuple(-np.array(c.J) @ alpha))
        close(f_E, f, COMPLEX_STEP)
        close(t_E, -sum(torques), COMPLEX_STEP)
        for m in s.model.ancestors(j):
            close(steps.actuator_force(a, m, f_E, t_E), M[m - 1, j - 1])


@SETTINGS
@given(arms())
def test_inertia_matrix(robot):
    """(11), (12), and (65) both ways."""
    s = State(robot)
    M = composite_body.mass_matrix(s.model, s.q)
    for H in (steps.mass_matrix, steps.mass_matrix_closed, lin.mass_matrix, lin.mass_matrix_planar):
        close(H(s.model, s.q), M)


def test_a_vector_and_an_inertia_in_the_next_frame():
    """(16) (17) (18): both similarities are R J Rᵀ with the R that turns vectors."""
    s = state(2)
    J = np.array([[2.0, 0.3, -0.1], [0.3, 1.5, 0.2], [-0.1, 0.2, 1.1]])
    for T in lin_frames.joint_frames(s.model, s.q).T[1:]:
        R = np.array([lin_frames.inward(T, tuple(e)) for e in np.eye(3)]).T
        close(R, T.R.rows)
        close(R @ R.T, np.eye(3))
        close(lin_frames.outward(T, lin_frames.inward(T, (0.1, 0.2, 0.3))), (0.1, 0.2, 0.3))
        for similarity in (lin_frames.listed_similarity, lin_frames.planar_similarity):
            close(similarity(T, tuple(map(tuple, J))), R @ J @ R.T)


def test_products_of_cross_matrices():
    """(21) (48) (49) (50) (52) (53): the identities of the derivation, on random vectors and inertias."""
    rng = np.random.default_rng(0)
    a, b, u_k, u_j, r = rng.standard_normal((5, 3))
    J = (lambda A: A @ A.T)(rng.standard_normal((3, 3)))
    X, Y, E = np.array(skew(a)), np.array(skew(b)), np.eye(3)
    close(X @ Y, np.outer(b, a) - (a @ b) * E)  # (21)
    close(X @ Y - 0.5 * np.trace(X @ Y) * E, np.outer(b, a))  # (53)

    def c(x, y):
        return np.array(cross(tuple(x), tuple(y)))

    close(
        c(u_k, u_j),
        [u_k[1] * u_j[2] - u_k[2] * u_j[1], u_k[2] * u_j[0] - u_k[0] * u_j[2], u_k[0] * u_j[1] - u_k[1] * u_j[0]],
    )
    close(c(u_k, c(u_j, r)) + c(u_j, c(u_k, r)) + c(c(u_k, u_j), r), 2 * c(u_k, c(u_j, r)))  # (48)
    reduced = np.array(lin.less_half_trace(tuple(map(tuple, J))))
    close(J @ c(u_k, u_j) + c(u_k, J @ u_j) + c(u_j, J @ u_k), 2 * c(u_j, reduced @ u_k))  # (49)
    close(c(c(u_k, r), c(u_j, r)), -np.outer(r, r) @ c(u_j, u_k))  # (50)
    close(c(u_j, reduced @ u_j), c(u_j, J @ u_j))  # (52)


@pytest.mark.parametrize("seed", range(4))
def test_recursions(seed):
    """(15) (24)-(30) (59)-(61): what Fig. 3 forms, against the same seen from the base."""
    s = state(seed, kinds=("revolute", "prismatic"))
    a, c = steps.arm(s.model, s.q), lin.composites(s.model, s.q, lin_frames.listed_similarity)
    T_W, (_, p, inertias) = [np.eye(3)], world_links(s)
    for j, i in s.model.outward():
        T_W.append(T_W[i] @ np.array(c.E.T[j].R.rows))
    for j, pose in enumerate(s.robot.forward_kinematics(s.q), 1):  # E_j stands where link j does, its z along the axis
        close(a.s[j], pose[:3, 3])
        close(T_W[j][:, 2], pose[:3, :3] @ s.model.joint[j].axis)
        close([a.m[j], *a.p[j]], [s.model.inertia[j].m, *p[j - 1]])
        close(a.I[j], inertias[j - 1])
    for j, _ in s.model.outward():
        root = list(s.model.ancestors(j))[-1]
        R, origin = T_W[j].T, np.array(a.s[root])  # seen from where the first joint is: (59) (60)
        close(c.m_hat[j], steps.composite(a, j).m_hat)  # (28)
        close(c.p_hat[j], R @ (np.array(steps.first_moment(a, j)) - c.m_hat[j] * origin))  # (26) (29)
        for m in s.model.ancestors(j):
            close(c.u[m, j], R @ a.u[m])  # (24)
            close(c.s_hat[m, j], R @ np.cross(a.u[m], np.subtract(a.s[m], origin)))  # (15) (25) (27) (61)
        if any(c.E.K_star[k] for k in s.model.ancestors(s.model.parent[j])):  # the whole of it, (30)
            shifted = a._replace(p=[tuple(np.subtract(x, origin)) for x in a.p])
            close(c.J_bar[j], R @ np.array(steps.reduced_inertia(shifted, j)) @ R.T)
        if c.E.K_star[j]:
            shifted = a._replace(p=[tuple(np.subtract(x, origin)) for x in a.p])
            close(c.J_33[j], a.u[j] @ np.array(steps.inertia_about_base(shifted, j)) @ a.u[j])
    assert any(s.model.parent[i] for i, _ in s.model.outward())


@pytest.mark.parametrize("seed", range(3))
def test_a_e_and_B(seed):
    """(62) (63) (64): by components and by their definitions."""
    s = state(seed, kinds=("revolute",))
    c = lin.composites(s.model, s.q, lin_frames.planar_similarity)
    for j in (j for j, i in s.model.outward() if i):
        J_hat, p_hat, s_hat = (np.array(x) for x in (lin.with_trace(c.J_bar[j]), c.p_hat[j], c.s_hat[j, j]))
        close(lin.a_of(c, j), J_hat @ Z + np.cross(s_hat, p_hat))
        close(lin.e_of(c, j), np.cross(Z, p_hat) - c.m_hat[j] * s_hat)
        close(lin.B_of(c, j), -np.array(c.J_bar[j]) @ skew(tuple(Z)) + np.array(skew(tuple(s_hat))) @ skew(tuple(p_hat)))


# ---- the bias vector, (31)-(58), (66) (67) -----------------------------------------------------------------------------


def christoffel(s):
    """½ (∂H_mj/∂q_k + ∂H_mk/∂q_j - ∂H_kj/∂q_m) by complex steps."""
    dH = np.array([s.slope(e, lambda q: composite_body.mass_matrix(s.model, q)) for e in np.eye(s.robot.nv)])
    return 0.5 * (np.einsum("kmj->mkj", dH) + np.einsum("jmk->mkj", dH) - dH)


@pytest.mark.parametrize("seed", range(4))
def test_coefficients_of_velocity_products(seed):
    """(31)-(34) (45) (46) (47): D_mkj are Christoffel's symbols, with their symmetries; long enough for every sequence of
    joints that turn and slide."""
    s = state(seed, n=9, kinds=ONE_AXIS if seed % 2 else ("revolute", "prismatic"))
    D, n = steps.coefficients(s.model, s.q), s.model.n_links
    close(D, christoffel(s), COMPLEX_STEP)
    close(D, np.swapaxes(D, 1, 2))  # (32)
    for m, j in [*pairs(s.model), *((j, j) for j in range(1, n + 1))]:
        for k in s.model.ancestors(m):
            close(D[j - 1, k - 1, j - 1], 0.0)  # (33)
            close(D[j - 1, k - 1, m - 1], -D[m - 1, k - 1, j - 1])  # (34)
    assert np.max(np.abs(D)) > 1e-2


@pytest.mark.parametrize("seed", range(3))
def test_two_joints_move(seed):
    """(36)-(44): motion against the robot's kinematics, and the coefficients that the forces have."""
    s = state(seed, n=4)
    a, D = steps.arm(s.model, s.q), steps.coefficients(s.model, s.q)
    for k, j in pairs(s.model):
        v = np.zeros(s.robot.nv)
        v[k - 1], v[j - 1] = 0.7, -1.3
        c = steps.composite(a, j)
        moved = steps.two_joints(a, c, k, j, 0.7, -1.3)
        t_j = acceleration(s, j, v)
        close(moved.omega, t_j[0])  # (36)
        close(moved.alpha, t_j[1])  # (37)
        close(moved.s_ddot, t_j[2])  # (38) (39)
        links = a.composite(j)
        at_centres = [acceleration(s, i, v)[3] for i in links]
        close(moved.r_ddot, np.average(at_centres, axis=0, weights=[a.m[i] for i in links]))  # (40)
        for i in (i for i, _ in s.model.outward() if i not in links):
            if k in s.model.ancestors(i):
                close(acceleration(s, i, v)[1], 0.0)  # (41)
            close(steps.link_acceleration(a, i, k, 0.7), acceleration(s, i, v)[3])  # (42)
        for m in s.model.ancestors(s.model.parent[j]):
            both = steps.bias_of_two_joints(a, m, k, j, 0.7, -1.3)
            alone = steps.bias_of_two_joints(a, m, k, j, 0.7, 0.0), steps.bias_of_two_joints(a, m, k, j, 0.0, -1.3)
            close(both - sum(alone), 2 * D[m - 1, k - 1, j - 1] * 0.7 * -1.3)  # (43) (44)
            close(alone[1], D[m - 1, j - 1, j - 1] * 1.3**2)


def acceleration(s, i, v):
    """ω, α, and the classical accelerations of the origin and of the centre of mass of link i, in the world."""
    name, rest = s.robot.link_names[i - 1], np.zeros(s.robot.nv)
    R = s.robot.pose(s.q, name)[:3, :3]
    V, Vdot = s.robot.velocity(s.q, v, name), s.robot.acceleration(s.q, v, rest, name)
    w, alpha, c = V[:3], Vdot[:3], np.divide(s.model.inertia[i].h, s.model.inertia[i].m)
    origin = Vdot[3:] + np.cross(w, V[3:])
    return R @ w, R @ alpha, R @ origin, R @ (origin + np.cross(alpha, c) + np.cross(w, np.cross(w, c)))


@SETTINGS
@given(arms())
def test_bias_vector(robot):
    """(31) (35) by coefficients, (54) by d and ζ, both ways."""
    s = State(robot)
    b = newton_euler.bias_force(s.model, s.q, s.v)
    for function in (steps.bias_force, lin.bias_force, lin.bias_force_planar):
        close(function(s.model, s.q, s.v), b)


@SETTINGS
@given(arms())
def test_fig_3_forms_both(robot):
    """Fig. 3, the values of both of its results, with either similarity: M q̈ + b is inverse dynamics without rotors."""
    s = State(robot)
    M, b = composite_body.mass_matrix(s.model, s.q), newton_euler.bias_force(s.model, s.q, s.v)
    for similarity in (lin_frames.listed_similarity, lin_frames.planar_similarity):
        H, bias = lin.inertia_and_bias(s.model, s.q, s.v, similarity)
        close(H, M)
        close(bias, b)
        close(H @ s.a + bias, newton_euler.rigid_body_forces(s.model, s.q, s.v, s.a))


@pytest.mark.parametrize("seed", range(3))
def test_d_and_zeta(seed):
    """(55) (56) (57) (66): in the frames of Fig. 3, against the sums in the axes of the base."""
    s = state(seed)
    a, c = steps.arm(s.model, s.q), lin.composites(s.model, s.q, lin_frames.planar_similarity)
    zeta, turns = lin.zetas(s.model, c, s.v), [np.eye(3)]
    for j, i in s.model.outward():
        turns.append(turns[i] @ np.array(c.E.T[j].R.rows))
    for j, i in s.model.outward():
        below = sum((2 * a.K_star[k] * s.v[k - 1] * np.array(a.u[k]) for k in s.model.ancestors(i)), np.zeros(3))
        own = (below + a.K_star[j] * s.v[j - 1] * np.array(a.u[j])) * s.v[j - 1]  # (55)
        close(turns[j] @ zeta[j, j], own)  # (56)
        for m in a.composite(j):
            close(turns[m] @ zeta[j, m], own)  # (57)
        for m in s.model.ancestors(i):
            in_E = lin.d_of(c, m, j, lin.e_of(c, j), lin.B_of(c, j))
            for k in s.model.ancestors(j):  # d enters through the axes of the joints below
                close(a.K_star[k] * np.dot(turns[j].T @ a.u[k], in_E), a.K_star[k] * np.dot(a.u[k], steps.d(a, m, j)))


@pytest.mark.parametrize("seed", range(3))
def test_gravity(seed):
    """(58) (67)"""
    s = state(seed)
    a, rest = steps.arm(s.model, s.q), np.zeros(s.robot.nv)
    expected = newton_euler.gravity_force(s.model, s.q)
    close([steps.gravity_force(a, j) for j, _ in s.model.outward()], expected)
    close(lin.bias_force(s.model, s.q, rest), expected)


@SETTINGS
@given(arms())
def test_forward_dynamics_by_factors(robot):
    s = State(robot)
    tau = newton_euler.inverse_dynamics(s.model, s.q, s.v, s.a, s.f_ext)
    tolerance = solve(np.linalg.cond(robot.mass_matrix(s.q)))
    close(lin.forward_dynamics(s.model, s.q, s.v, tau, s.f_ext), s.a, tolerance)
    close(tau, robot.inverse_dynamics(s.q, s.v, s.a) - kinematics.joint_forces_of(s.model, s.q, s.f_ext))


# ---- Renaud, (A1)-(A9), Fijany & Bejczy, (A10)-(A15) -------------------------------------------------------------------


@SETTINGS
@given(arms())
def test_renaud(robot):
    """(A1), and (A12) (A13)."""
    s = State(robot)
    M = composite_body.mass_matrix(s.model, s.q)
    close(renaud.mass_matrix(s.model, s.q), M)
    close(renaud.mass_matrix_recursive(s.model, s.q), M)


@pytest.mark.parametrize("seed", range(4))
def test_composite_bodies_about_their_joint(seed):
    """(A2) (A3) (A4) (A7) (A8) (A9): the recursions against sums over the links, seen from the base."""
    s = state(seed, n=6)
    E, a = lin_frames.joint_frames(s.model, s.q), steps.arm(s.model, s.q)
    at = [T.p for T in E.T]
    u, s_hat = renaud.axes_and_arms(s.model, E, at)
    m_hat, c_hat, J_hat = renaud.composites(s.model, E, at, u)
    turns = [np.eye(3)]
    for j, i in s.model.outward():
        turns.append(turns[i] @ np.array(E.T[j].R.rows))
    for j, i in s.model.outward():
        R, seen = turns[j].T, a._replace(p=[tuple(np.subtract(x, a.s[j])) for x in a.p])
        close(m_hat[j], steps.composite(a, j).m_hat)
        close(c_hat[j], R @ steps.first_moment(seen, j))  # (A2) (A7)
        inertia = R @ np.array(steps.inertia_about_base(seen, j)) @ R.T  # (A3)
        if any(E.K_star[k] for k in s.model.ancestors(i)):
            close(J_hat[j], inertia)  # (A8)
        elif E.K_star[j]:
            close(J_hat[j][2][2], inertia[2, 2])
        for m in s.model.ancestors(j):
            close(s_hat[m, j], R @ np.cross(a.u[m], np.subtract(a.s[j], a.s[m])))  # (A4) (A9)


def test_augmented_links_do_not_change():
    """(A5) (A6): the same numbers in every configuration, sliding joints among them (Lin's remark on others' mistake)."""
    s = state(3, n=7)
    found = []
    for seed in range(3):
        q, _ = s.robot.random_state(seed)
        E = lin_frames.joint_frames(s.model, q)
        found.append(renaud.augmented_links(s.model, E, [T.p for T in E.T]))
    for other in found[1:]:
        close(stack([x for c in other.c_bar for x in c]), stack([x for c in found[0].c_bar for x in c]))
        close(np.array(other.J_bar), np.array(found[0].J_bar))
    own = np.array([I.h for I in lin_frames.joint_frames(s.model, s.q).inertia])
    assert np.max(np.abs(np.array(found[0].c_bar) - own)) > 1e-2


@pytest.mark.parametrize("seed", range(3))
def test_force_and_torque_passed_inward(seed):
    """(A10) (A11) (A14) (A15): in frame 2 the arms and axes are those of the base, turned."""
    s = state(seed, n=6)
    E, a = lin_frames.joint_frames(s.model, s.q), steps.arm(s.model, s.q)
    R_k, s_k, u_1 = renaud.in_second_frame(s.model, E, [T.p for T in E.T])
    turns = [np.eye(3)]
    for j, i in s.model.outward():
        turns.append(turns[i] @ np.array(E.T[j].R.rows))
    for j, i in ((j, i) for j, i in s.model.outward() if i):
        *_, second, first = s.model.ancestors(j)
        close(np.array(R_k[j].rows), turns[second].T @ turns[j])
        close(s_k[j], turns[second].T @ np.subtract(a.s[j], a.s[i]))
        close(u_1[j], turns[second].T @ a.u[first])


# ---- what they cost: n revolute joints, every constant and parameter arbitrary -----------------------------------------


@pytest.mark.parametrize("n", JOINTS)
def test_fig_3_costs_what_it_says(n):
    """Table I and II: no more than the paper's count, nor than that of docs/errata.md; from n = 3 on, these polynomials."""
    model = arm(n)
    H, both = (
        formulations.count(model, "lin", regroup=False),
        formulations.count_both(model, lin_frames.listed_similarity),
    )
    for ours, paper, errata in (
        (H, TABLE_I["Lin 1991"](n), formulations.ERRATA_H),
        (both, BOTH["Lin 1991"](n), formulations.ERRATA_BOTH),
    ):
        assert ours[0] <= min(paper[0], errata[0](n))
        assert ours[1] <= min(paper[1], errata[1](n))
    if n > 2:
        assert tuple(f(n) for f in formulations.FIGURE_3) == H
        assert both == tuple(f(n) for f in formulations.FIGURE_3_BOTH)


@pytest.mark.parametrize("n", JOINTS)
def test_fig_a1_costs_what_it_says(n):
    model = arm(n)
    H, recursive = (formulations.count(model, m, regroup=False) for m in ("renaud", "fijany_bejczy"))
    assert np.all(np.less_equal(H, TABLE_I["Renaud"](n)))
    assert np.all(np.less_equal(recursive, TABLE_I["Fijany & Bejczy"](n)))
    if n > 2:
        assert tuple(f(n) for f in formulations.FIGURE_A1) == H


def test_planar_similarity_and_regrouping_save():
    """Errata, section 6: 392 + 330 for H and 846 + 646 for both at n = 6."""
    model = arm(6)
    H = formulations.count(model, "lin_planar", regroup=True)
    both = formulations.count_both(simplified(model), lin_frames.planar_similarity)
    assert H[0] <= 392
    assert H[1] <= 330
    assert both[0] <= 846
    assert both[1] <= 646


def test_the_page_has_the_counts_that_are_printed(capsys):
    formulations.main([])
    page = (ROOT / "docs" / "formulations.md").read_text().splitlines()
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(rows) > 30
    assert not [line for line in rows if line not in page]


# ---- what they are not for ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [k for k in KINDS if k not in (*ONE_AXIS, "fixed")])
def test_other_joints_are_refused_by_name(kind):
    robot = Robot(random_tree(2, rng=0, kinds=(kind,)).model(), compiled=False)
    q, v = robot.random_state(0)
    joint = robot.joint_names[0]
    for call in (
        lambda: lin.mass_matrix(robot.model, q),
        lambda: lin.bias_force(robot.model, q, v),
        lambda: renaud.mass_matrix(robot.model, q),
        lambda: renaud.mass_matrix_recursive(robot.model, q),
        lambda: qddot.Robot(robot.model).kernel("forward_dynamics", method="lin"),
    ):
        with pytest.raises(FormulationError, match=rf"joint '{joint}' .* is {kind}; .* take another method"):
            call()


def test_links_without_mass_keep_their_first_moment():
    """Regrouped links have none: Fig. 3 is followed with a first moment in place of a mass and its centre."""
    s = state(5, kinds=("revolute",))
    light = dataclasses.replace(simplified(s.model), name="regrouped")
    assert {I.m for I in light.inertia} == {0.0}
    close(lin.mass_matrix(light, s.q), composite_body.mass_matrix(s.model, s.q))
    close(lin.bias_force_planar(light, s.q, s.v), newton_euler.bias_force(s.model, s.q, s.v))
