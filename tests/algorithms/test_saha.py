"""Saha 1999, equation by equation: definitions against their meaning, the recursions against the matrices, the examples."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given

from benchmarks import formulations
from qddot.algorithms import composite_body, kinematics, newton_euler
from qddot.algorithms.papers import denoc, lin_derivation
from qddot.algorithms.papers import denoc_matrices as saha
from qddot.errors import FormulationError
from qddot.mechanism.simplify import simplified
from qddot.robot import Robot
from qddot.robots.generators import chain, random_tree
from qddot.robots.planar3 import LENGTHS, MASSES
from qddot.spatial.rotation import sub
from tests.support.mechanisms import State, trees
from tests.support.paths import ROOT
from tests.support.profiles import examples
from tests.support.tolerances import COMPLEX_STEP, ROUNDING, solve

SETTINGS = examples(25)
ONE_AXIS = ("revolute", "prismatic")


def close(x, y, tolerance=ROUNDING):
    y = np.asarray(y)
    scale = max(1.0, np.max(np.abs(y), initial=0.0))
    assert np.max(np.abs(np.asarray(x) - y), initial=0.0) <= tolerance * scale


def state(seed, n=5, kinds=ONE_AXIS):
    return State(Robot(random_tree(n, rng=seed, kinds=kinds).model(), compiled=False), seed)


def rate(s, function):
    """The derivative of a function of q along the state's velocity."""
    return s.slope(s.v, function)


def centres(s, q):
    """Centres of mass of the links in the world, from their poses."""
    poses = s.robot.forward_kinematics(q)
    h = [np.append(np.divide(I.h, I.m), 1.0) for I in s.model.inertia[1:]]
    return np.array([T @ x for T, x in zip(poses, h, strict=True)])[:, :3]


# ---- one body, (1)-(10) ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_twists_are_the_motion_of_the_centres_of_mass(seed):
    """(1) (3) (5): angular velocity, and the derivative of where the centre of mass is."""
    s = state(seed)
    t = saha.twist(s.model, s.q, s.v).reshape(-1, 6)
    close(t[:, 3:], rate(s, lambda q: centres(s, q)), COMPLEX_STEP)
    for row, name in zip(t, s.robot.link_names, strict=True):
        turn, T = rate(s, lambda q, name=name: s.robot.pose(q, name))[:3, :3], s.robot.pose(s.q, name)[:3, :3]
        W = turn @ T.T
        close(row[:3], [W[2, 1], W[0, 2], W[1, 0]], COMPLEX_STEP)


def test_angular_velocity_and_mass_matrices():
    """(2) (4): their blocks, and the kinetic energy that comes of them."""
    s = state(1)
    b, t = denoc.bodies(s.model, s.q), saha.twist(s.model, s.q, s.v)
    omega, x = t[:3], np.array([0.3, -0.2, 0.5])
    W = saha.angular_velocity_matrix(tuple(omega))
    close(W @ np.concatenate([x, 2 * x]), np.concatenate([np.cross(omega, x), 2 * np.cross(omega, x)]))
    M_1 = saha.body_mass_matrix(b.M[1])
    close(M_1[3:, 3:], s.model.inertia[1].m * np.eye(3))
    assert not M_1[:3, 3:].any()
    M, Omega = saha.mass_matrices(s.model, s.q), saha.angular_velocities(s.model, s.q, s.v)
    close(M[:6, :6], M_1)
    close(Omega[:6, :6], W)
    assert not M[:6, 6:].any()
    assert not Omega[6:12, :6].any()
    rotors = sum(armature[0] * v**2 for armature, v in zip(s.model.armature[1:], s.v, strict=True))
    close(0.5 * (t @ M @ t + rotors), s.robot.kinetic_energy(s.q, s.v))


def test_newton_and_euler_of_one_body():
    """(6a) (6b) (7) (8): the rate of momentum, and Ṁ_i, which is not the derivative of M_i (S3, S4)."""
    s = state(2)
    M_i = denoc.bodies(s.model, s.q).M[3]
    t, t_dot = (np.asarray(x)[12:18] for x in (saha.twist(s.model, s.q, s.v), twist_rate(s)))
    w = saha.newton_euler(tuple(t[:3]), M_i, t, t_dot)
    euler = M_i.I @ t_dot[:3] + np.cross(t[:3], M_i.I @ t[:3])
    close(w, np.concatenate([euler, M_i.m * t_dot[3:]]))

    def momentum(q):
        inertia, turning = np.array(denoc.bodies(s.model, q).M[3].I), saha.N(s.model, q) @ s.v
        return np.concatenate([inertia @ turning[12:15], M_i.m * turning[15:18]])

    still = State(s.robot, 2)
    still.a = np.zeros(s.robot.nv)  # momentum as a function of q alone: the joint rates stay
    t_dot = twist_rate(still)[12:18]
    close(saha.newton_euler(tuple(t[:3]), M_i, t, t_dot), rate(s, momentum), COMPLEX_STEP)
    derivative = rate(s, lambda q: saha.body_mass_matrix(denoc.bodies(s.model, q).M[3]))
    own = saha.body_mass_rate(tuple(t[:3]), M_i)
    close(own @ t, derivative @ t, COMPLEX_STEP)
    assert np.max(np.abs(own - derivative)) > 1e-3


def twist_rate(s):
    """ṫ = N θ̈ + Ṅ θ̇."""
    return saha.N(s.model, s.q) @ s.a + saha.N_rate(s.model, s.q, s.v) @ s.v


def test_the_rates_of_twists_are_classical_accelerations():
    """(8): ṫ has the acceleration of the centre of mass, unlike a spatial acceleration."""
    s = state(3)
    t_dot = twist_rate(s).reshape(-1, 6)
    velocity = rate(s, lambda q: saha.N(s.model, q) @ s.v).reshape(-1, 6) + (saha.N(s.model, s.q) @ s.a).reshape(-1, 6)
    close(t_dot, velocity, COMPLEX_STEP)


@pytest.mark.parametrize("seed", range(3))
def test_stacked_rates_of_all_bodies(seed):
    """(10): Ṁ of every body of a chain, ω_i × I_i from its own pose and inertia; Ṁ t is the part of the rate of momentum
    that is not M ṫ, and no body appears in the rows of another."""
    s = State(Robot(chain(5, rng=seed).model(), compiled=False), seed)
    M_dot, t = saha.mass_rates(s.model, s.q, s.v), saha.twist(s.model, s.q, s.v)
    expected = np.zeros((30, 30))
    for i, T in enumerate(s.robot.forward_kinematics(s.q), 1):
        m, h, I = s.model.inertia[i]
        about = np.array(I) - (np.dot(h, h) * np.eye(3) - np.outer(h, h)) / m
        R, turning = T[:3, :3], rate(s, lambda q, i=i: s.robot.forward_kinematics(q)[i - 1])[:3, :3]
        expected[6 * i - 6 : 6 * i - 3, 6 * i - 6 : 6 * i - 3] = (turning @ R.T) @ (R @ about @ R.T)
    close(M_dot, expected, COMPLEX_STEP)
    assert len({tuple(np.round(M_dot[k : k + 3, k : k + 3].ravel(), 9)) for k in range(0, 30, 6)}) == 5
    momentum = rate(s, lambda q: saha.mass_matrices(s.model, q) @ (saha.N(s.model, q) @ s.v))
    close(M_dot @ t, momentum - saha.mass_matrices(s.model, s.q) @ (saha.N_rate(s.model, s.q, s.v) @ s.v), COMPLEX_STEP)


@pytest.mark.parametrize("kind", ONE_AXIS)
def test_unconstrained_equations(kind):
    """(9): body by body, with what (7) gives of each; where bodies turn, Ṁ t is a part of it that can be seen."""
    s = state(4, kinds=(kind,))
    t, t_dot, b = saha.twist(s.model, s.q, s.v), twist_rate(s), denoc.bodies(s.model, s.q)
    w = saha.wrench(s.model, s.q, s.v, t_dot).reshape(-1, 6)
    for i in range(1, s.model.n_links + 1):
        rows = slice(6 * i - 6, 6 * i)
        close(w[i - 1], saha.newton_euler(tuple(t[rows][:3]), b.M[i], t[rows], t_dot[rows]))
    gyroscopic = w - (saha.mass_matrices(s.model, s.q) @ t_dot).reshape(-1, 6)
    assert (np.max(np.abs(gyroscopic[:, :3]), axis=1) > 1e-3).any() == (kind == "revolute")


# ---- joints, (11)-(17) -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ONE_AXIS)
def test_twists_across_a_joint(kind):
    """(11a) (11b) (12) (13) (15): from the axis and the two arms r_j and d_i of Saha's figure 3."""
    s = state(5, kinds=(kind,))
    b = denoc.bodies(s.model, s.q)
    t, poses, C = denoc.twists(s.model, b, s.v), s.robot.forward_kinematics(s.q), centres(s, s.q)
    assert not any(t[0].components)  # the base is at rest
    for i, j in ((i, p) for i, p in s.model.outward() if p):
        e = poses[i - 1][:3, :3] @ s.model.joint[i].axis
        d, r = C[i - 1] - poses[i - 1][:3, 3], poses[i - 1][:3, 3] - C[j - 1]
        turns = kind == "revolute"
        omega = np.add(t[j].w, s.v[i - 1] * e * turns)  # (11a)
        v = t[j].v + np.cross(t[j].w, r) + np.cross(omega, d) + s.v[i - 1] * e * (not turns)  # (11b)
        close([*t[i].w, *t[i].v], [*omega, *v])
        close(b.B[i].c, -d - r)
        (p,) = b.p[i]
        close([*p.w, *p.v], [*e, *np.cross(e, d)] if turns else [0, 0, 0, *e])  # (13), (15)
        B = saha.propagation_matrix(b.B[i].c)
        close([*t[i].w, *t[i].v], B @ [*t[j].w, *t[j].v] + np.array([*p.w, *p.v]) * s.v[i - 1])  # (12)


def test_propagation_matrices_compose():
    """(14), with matrices and without."""
    a, b, c = np.random.default_rng(0).standard_normal((3, 3))
    B_ab, B_bc, B_ac = (saha.propagation_matrix(sub(y, x)) for x, y in ((a, b), (b, c), (a, c)))
    close(B_ab @ B_bc, B_ac)
    close(saha.propagation_matrix((0.0, 0.0, 0.0)), np.eye(6))
    close(np.linalg.inv(B_ab), saha.propagation_matrix(sub(a, b)))
    plain = denoc.Propagation(sub(c, b)).after(denoc.Propagation(sub(b, a)))
    close(plain.c, sub(c, a))


@SETTINGS
@given(trees(max_links=5))
def test_decoupled_natural_orthogonal_complement(robot):
    """(16) (17): t = N θ̇, N = N_l N_d with N_l block-triangular and N_d block-diagonal; on any joints and any tree."""
    s = State(robot)
    N_l, N_d = saha.N_l(s.model, s.q), saha.N_d(s.model, s.q)
    close(N_l @ N_d, saha.N(s.model, s.q))
    close(saha.N(s.model, s.q) @ s.v, saha.twist(s.model, s.q, s.v))
    close(saha.N_rate(s.model, s.q, s.v), rate(s, lambda q: saha.N(s.model, q)), COMPLEX_STEP)
    n = s.model.n_links
    for i in range(n):
        close(N_l[6 * i : 6 * i + 6, 6 * i : 6 * i + 6], np.eye(6))
        assert not N_l[6 * i : 6 * i + 6, 6 * i + 6 :].any()
    for i, _ in s.model.outward():  # the rows of a body have the columns of its own joint
        other = np.ones(robot.nv, dtype=bool)
        other[s.model.slots[i].v] = False
        assert not N_d[6 * i - 6 : 6 * i, other].any()


# ---- the equation of motion, (18)-(24) ---------------------------------------------------------------------------------


@SETTINGS
@given(trees(max_links=5))
def test_the_equation_of_motion_projected(robot):
    """(18) (19) (20): constraint wrenches do no work, and what is left is the equation of motion."""
    s = State(robot)
    I, C, tau_E = saha.equation_of_motion(s.model, s.q, s.v)
    rotors = robot.mass_matrix(s.q) - I
    close(rotors, np.diag(np.diag(rotors)) if not s.model.is_coupled else rotors)
    close(C @ s.v - tau_E, newton_euler.bias_force(s.model, s.q, s.v))
    w = saha.wrench(s.model, s.q, s.v, twist_rate(s))  # w^E + w^I with drives among the constraints
    N = saha.N(s.model, s.q)
    close(N.T @ w, I @ s.a + C @ s.v)  # (18)
    given_by_drives = newton_euler.rigid_body_forces(s.model, s.q, s.v, s.a) - rotors @ s.a
    close(N.T @ (w - saha.external_wrench(s.model, s.q)), given_by_drives)  # (19): constraint wrenches are gone


@SETTINGS
@given(trees(max_links=5))
def test_composite_masses(robot):
    """(21) (22) (23a) (23b): the product, its blocks by sums, and the recursion."""
    s = State(robot)
    N_l, M = saha.N_l(s.model, s.q), saha.mass_matrices(s.model, s.q)
    M_tilde = saha.M_tilde(s.model, s.q)
    close(M_tilde, N_l.T @ M @ N_l)
    b = denoc.bodies(s.model, s.q)
    for i, composite in enumerate(denoc.composite_masses(s.model, b)[1:]):
        close(saha._full(composite), M_tilde[6 * i : 6 * i + 6, 6 * i : 6 * i + 6])
    I = saha.N_d(s.model, s.q).T @ M_tilde @ saha.N_d(s.model, s.q)
    close(I, saha.equation_of_motion(s.model, s.q, s.v)[0])


@SETTINGS
@given(trees())
def test_generalized_inertia_matrix(robot):
    """(24), on every kind of joint."""
    s = State(robot)
    close(denoc.mass_matrix(s.model, s.q), composite_body.mass_matrix(s.model, s.q))


# ---- the convective inertia matrix, (25)-(29) --------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_parts_of_the_convective_matrix(seed):
    """(25) (26) (27) (28): blocks against products, in the corrected form (S6 to S10)."""
    s = state(seed, n=6)
    N_l, N_d, Omega = saha.N_l(s.model, s.q), saha.N_d(s.model, s.q), saha.angular_velocities(s.model, s.q, s.v)
    M, M_dot, N_l_rate = (
        saha.mass_matrices(s.model, s.q),
        saha.mass_rates(s.model, s.q, s.v),
        saha.N_l_rate(s.model, s.q, s.v),
    )
    close(N_l_rate, rate(s, lambda q: saha.N_l(s.model, q)), COMPLEX_STEP)
    close(Omega @ N_d, rate(s, lambda q: saha.N_d(s.model, q)), COMPLEX_STEP)  # (26), S7
    close(saha.N_d_rate(s.model, s.q, s.v), Omega @ N_d)
    close(saha.M_hat(s.model, s.q, s.v), N_l.T @ M_dot @ N_l)  # (26) (27), S9
    close(saha.NMN_dot(s.model, s.q, s.v), N_l.T @ M @ N_l_rate)  # (27), S8
    C = N_d.T @ saha.M_prime(s.model, s.q, s.v) @ N_d  # (25), S6
    close(C, saha.equation_of_motion(s.model, s.q, s.v)[1])
    close(denoc.convective_inertia_matrix(s.model, s.q, s.v), C)


@SETTINGS
@given(trees())
def test_convective_inertia_matrix(robot):
    """(28) (29) on every kind of joint: İ - 2C is skew, and C θ̇ is what velocities cost."""
    s = State(robot)
    C = denoc.convective_inertia_matrix(s.model, s.q, s.v)
    close(C + C.T, rate(s, lambda q: composite_body.mass_matrix(s.model, q)), COMPLEX_STEP)
    close(C @ s.v - denoc.generalized_force(s.model, s.q), newton_euler.bias_force(s.model, s.q, s.v))


# ---- forces, (30) (31), and the recursions -----------------------------------------------------------------------------


@SETTINGS
@given(trees())
def test_generalized_force(robot):
    """(30) (31): weight and forces on the links, by recursion and by N."""
    s = State(robot)
    tau = denoc.generalized_force(s.model, s.q, s.f_ext)
    close(tau, saha.N(s.model, s.q).T @ saha.external_wrench(s.model, s.q, s.f_ext))
    outside = kinematics.joint_forces_of(s.model, s.q, s.f_ext)
    close(tau, outside - newton_euler.gravity_force(s.model, s.q))


@SETTINGS
@given(trees())
def test_inverse_and_forward_dynamics(robot):
    s = State(robot)
    tau = newton_euler.inverse_dynamics(s.model, s.q, s.v, s.a, s.f_ext)
    close(denoc.inverse_dynamics(s.model, s.q, s.v, s.a, s.f_ext), tau)
    close(denoc.bias_force(s.model, s.q, s.v), newton_euler.bias_force(s.model, s.q, s.v))
    tolerance = solve(np.linalg.cond(robot.mass_matrix(s.q)))
    close(denoc.forward_dynamics(s.model, s.q, s.v, tau, s.f_ext), s.a, tolerance)


@SETTINGS
@given(trees())
def test_reverse_gaussian_elimination(robot):
    """I = U D Uᵀ with U unit upper triangular and D of one block a joint."""
    s = State(robot)
    if s.model.is_coupled:
        return
    U, D = denoc.factors(s.model, s.q)
    M = robot.mass_matrix(s.q)
    close(U @ D @ U.T, M, solve(np.linalg.cond(M)))
    close(np.triu(U), U)
    close(np.diag(U), np.ones(robot.nv))
    for i, _ in s.model.outward():
        inside = np.zeros((robot.nv, robot.nv), dtype=bool)
        inside[s.model.slots[i].v, s.model.slots[i].v] = True
        D = np.where(inside, 0.0, D)
    assert not D.any()


def test_links_without_mass():
    """Twists are taken at the origin of a link that has no centre of mass."""
    model = chain(3, rng=0).model()
    empty = model.inertia[2]._replace(m=0.0, h=(0.0, 0.0, 0.0), I=((0.0,) * 3,) * 3)
    model = dataclasses.replace(model, inertia=(*model.inertia[:2], empty, model.inertia[3]))
    s = State(Robot(model, compiled=False))
    close(denoc.mass_matrix(model, s.q), composite_body.mass_matrix(model, s.q))
    close(
        denoc.convective_inertia_matrix(model, s.q, s.v) @ s.v - denoc.generalized_force(model, s.q),
        s.robot.bias_force(s.q, s.v),
    )


def test_regrouped_links_are_refused_by_name():
    s = state(0, kinds=("revolute",))
    light = simplified(s.model)
    for call in (
        lambda: denoc.mass_matrix(light, s.q),
        lambda: saha.mass_matrices(light, s.q),
        lambda: lin_derivation.mass_matrix(light, s.q),
    ):
        with pytest.raises(FormulationError, match=r"link 'link1' of robot .* first moment and no mass"):
            call()


# ---- the examples ------------------------------------------------------------------------------------------------------


def planar_arm(q):
    """M and the potential energy of the three-link arm, from where its bars are: no frame, no recursion."""
    angles = np.cumsum(q)
    J, M, potential = np.zeros((2, 3), dtype=q.dtype), 0.0, 0.0
    joint = np.zeros(2, dtype=q.dtype)
    for k in range(3):
        along = np.array([np.cos(angles[k]), np.sin(angles[k])])
        across = np.array([-np.sin(angles[k]), np.cos(angles[k])])
        turns = np.arange(3) <= k
        at_centre = J + 0.5 * LENGTHS[k] * np.outer(across, turns)
        about = MASSES[k] * LENGTHS[k] ** 2 / 12
        M = M + MASSES[k] * at_centre.T @ at_centre + about * np.outer(turns, turns)
        potential = potential + MASSES[k] * 9.81 * (joint + 0.5 * LENGTHS[k] * along)[1]
        J, joint = J + LENGTHS[k] * np.outer(across, turns), joint + LENGTHS[k] * along
    return M, potential


def test_three_link_arm():
    """Saha's first example, against Lagrange's equations of three bars."""
    robot, _, (q, v, a), tau = formulations.example("planar3", samples=11)
    for k in range(len(q)):
        M, _ = planar_arm(q[k])
        close(denoc.mass_matrix(robot.model, q[k]), M)
        steps = [planar_arm(q[k] + 1e-20j * e) for e in np.eye(3)]
        dM, slope = np.array([m.imag for m, _ in steps]) / 1e-20, np.array([x.imag for _, x in steps]) / 1e-20
        M_dot = np.tensordot(v[k], dM, 1)
        quadratic = np.array([0.5 * v[k] @ dM[i] @ v[k] for i in range(3)])
        close(tau[k], M @ a[k] + M_dot @ v[k] - quadratic + slope)
    close(denoc.forward_dynamics(robot.model, q, v, tau), a, 1e-9)


def test_stanford_arm():
    """Saha's second example: the work of the joint forces is the energy gained, and forward dynamics returns the motion."""
    robot, t, (q, v, a), tau = formulations.example("stanford", samples=401)
    energy = robot.kinetic_energy(q, v) + robot.potential_energy(q)
    power = np.sum(tau * v, axis=1)
    work = np.concatenate([[0.0], np.cumsum(0.5 * (power[1:] + power[:-1]) * np.diff(t))])
    # the trapezoidal rule, over 10 s in steps of 1/40 s: (1/40)²/12 times the slope of the power at the ends and between
    assert np.max(np.abs(work - (energy - energy[0]))) < 1e-3 * np.ptp(energy)
    close(tau, robot.inverse_dynamics(q, v, a))
    condition = np.max(np.linalg.cond(robot.mass_matrix(q)))
    close(denoc.forward_dynamics(robot.model, q, v, tau), a, solve(condition))


def test_the_examples_are_on_the_page(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    page = ROOT / "docs" / "formulations.md"
    for name in formulations.EXAMPLES:
        formulations.plot(name, tmp_path)
        assert (tmp_path / f"saha_{name}.svg").stat().st_size > 1000
        assert f"figures/saha_{name}.svg" in page.read_text()
    assert "gives the accelerations back" in capsys.readouterr().out
