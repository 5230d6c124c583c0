"""Dynamics must obey its own laws: identities on random trees over all joint kinds, no other engine involved."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given

import qddot
from qddot.algorithms import (
    articulated_body,
    composite_body,
    kinematics,
    newton_euler,
    newton_euler_classical,
    sparse_factors,
)
from qddot.algorithms.passive_forces import passive_forces
from qddot.joints import Free, Revolute
from qddot.robot import Robot
from qddot.robot.identities import brute_force_mass_matrix, identities
from qddot.robots.generators import random_tree
from qddot.spatial import Ad_inv_T, force
from qddot.spatial.joint_blocks import Matrix, Vector
from tests.support.mechanisms import AXIAL, MOVING, State, reframed, renumbered, trees
from tests.support.profiles import examples
from tests.support.tolerances import COMPLEX_STEP, ROUNDING, solve

SETTINGS = examples(40)


def close(x, y, tolerance=ROUNDING):
    scale = max(1.0, np.max(np.abs(y), initial=0.0))
    assert np.max(np.abs(np.asarray(x) - y), initial=0.0) <= tolerance * scale


@SETTINGS
@given(trees())
def test_rnea_then_aba(robot):
    s = State(robot)
    tau = robot.inverse_dynamics(s.q, s.v, s.a, s.f_ext)
    tolerance = solve(np.linalg.cond(robot.mass_matrix(s.q)))
    close(robot.forward_dynamics(s.q, s.v, tau, s.f_ext), s.a, tolerance)
    assert np.max(np.abs(tau), initial=0.0) > 0.0


@SETTINGS
@given(trees())
def test_mass_matrix_four_ways(robot):
    s = State(robot)
    M = brute_force_mass_matrix(robot, s.q)
    close(composite_body.mass_matrix(s.model, s.q), M)
    close(composite_body.mass_matrix_absolute(s.model, s.q), M)
    close(composite_body.mass_matrix_by_columns(s.model, s.q), M)
    assert np.min(np.linalg.eigvalsh(M)) > 0.0
    close(robot.kinetic_energy(s.q, s.v), 0.5 * s.v @ M @ s.v)


@SETTINGS
@given(trees())
def test_equation_of_motion(robot):
    """tau = M a + bias - passive - Jᵀf_ext, each term by a function of its own."""
    s = State(robot)
    J = [robot.jacobian(s.q, name) for name in robot.link_names]
    from_outside = sum(J_i.T @ f for J_i, f in zip(J, s.f_ext, strict=True))
    terms = robot.mass_matrix(s.q) @ s.a + robot.bias_force(s.q, s.v) - robot.passive_force(s.q, s.v) - from_outside
    close(robot.inverse_dynamics(s.q, s.v, s.a, s.f_ext), terms)


@SETTINGS
@given(trees())
def test_link_and_absolute_coordinates_agree(robot):
    s = State(robot)
    tau = newton_euler.inverse_dynamics(s.model, s.q, s.v, s.a, s.f_ext)
    close(newton_euler.inverse_dynamics_absolute(s.model, s.q, s.v, s.a, s.f_ext), tau)
    tolerance = solve(np.linalg.cond(robot.mass_matrix(s.q)))
    close(articulated_body.forward_dynamics_absolute(s.model, s.q, s.v, tau, s.f_ext), s.a, tolerance)


@SETTINGS
@given(trees())
def test_formulations_agree(robot):
    """Classical accelerations and the factored mass matrix give what the papers' tables give."""
    s = State(robot)
    tau = newton_euler.inverse_dynamics(s.model, s.q, s.v, s.a, s.f_ext)
    close(newton_euler_classical.inverse_dynamics(s.model, s.q, s.v, s.a, s.f_ext), tau)
    close(newton_euler_classical.bias_force(s.model, s.q, s.v), newton_euler.bias_force(s.model, s.q, s.v))
    M = robot.mass_matrix(s.q)
    tolerance = solve(np.linalg.cond(M))
    close(newton_euler_classical.forward_dynamics(s.model, s.q, s.v, tau, s.f_ext), s.a, tolerance)
    close(sparse_factors.forward_dynamics(s.model, s.q, s.v, tau, s.f_ext), s.a, tolerance)
    close(sparse_factors.mass_matrix_inverse(s.model, s.q) @ M, np.eye(robot.nv), tolerance)


def test_the_factors_have_the_zeros_of_the_tree():
    model = qddot.load("quadruped").model
    above = sparse_factors.dof_above(model)
    M = qddot.Robot(model, compiled=False).mass_matrix(qddot.load("quadruped").random_state(0)[0])
    L, reciprocal = sparse_factors.factors(Matrix(Vector(row) for row in M.tolist()), above)
    dense = np.eye(18)
    for k, row in enumerate(L):
        dense[k, list(row)] = list(row.values())
    close(dense.T @ np.diag(1.0 / np.array(reciprocal)) @ dense, M)
    assert sum(map(len, L)) < 18 * 17 / 2  # a leg does not touch the others


@SETTINGS
@given(trees())
def test_mass_matrix_inverse(robot):
    s = State(robot)
    M = robot.mass_matrix(s.q)
    close(robot.mass_matrix_inverse(s.q) @ M, np.eye(robot.nv), solve(np.linalg.cond(M)))


@SETTINGS
@given(trees())
def test_coriolis_matrix(robot):
    s = State(robot)
    C = robot.coriolis_matrix(s.q, s.v)
    close(C + C.T, s.slope(s.v, robot.mass_matrix), COMPLEX_STEP)
    close(C @ s.v + robot.gravity_force(s.q), robot.bias_force(s.q, s.v))


@SETTINGS
@given(trees())
def test_gravity_is_the_slope_of_potential_energy(robot):
    s = State(robot)
    springs = passive_forces(s.model, s.q, np.zeros(robot.nv))
    close(robot.gravity_force(s.q) - springs, s.gradient(robot.potential_energy), COMPLEX_STEP)


@SETTINGS
@given(trees())
def test_power_balance(robot):
    """Energy changes by the power of joint and external forces and of what dampers and friction take."""
    s = State(robot)
    tau = robot.inverse_dynamics(s.q, s.v, s.a, s.f_ext)
    kinetic = s.slope(s.v, lambda q: robot.kinetic_energy(q, s.v)) + s.v @ robot.mass_matrix(s.q) @ s.a
    change = kinetic + s.slope(s.v, robot.potential_energy)
    from_outside = sum(robot.velocity(s.q, s.v, n) @ f for n, f in zip(robot.link_names, s.f_ext, strict=True))
    lost = robot.passive_force(s.q, s.v) - robot.passive_force(s.q, np.zeros(robot.nv))
    assert lost @ s.v <= 0.0
    close(change, tau @ s.v + from_outside + lost @ s.v)


@SETTINGS
@given(trees())
def test_external_forces(robot):
    """A force on one link is the same as its moment and force carried to the world's origin on any pose."""
    s = State(robot)
    at_rest = robot.inverse_dynamics(s.q, s.v, s.a)
    T_W = kinematics.link_poses(s.model, s.q)
    i = robot.model.n_links
    f = np.zeros_like(s.f_ext)
    f[i - 1] = s.f_ext[i - 1]
    J_world = robot.jacobian(s.q, robot.link_names[i - 1], "world")
    F_world = np.array(Ad_inv_T(T_W[i], force(f[i - 1].tolist())).components)
    close(at_rest - robot.inverse_dynamics(s.q, s.v, s.a, f), J_world.T @ F_world)


@SETTINGS
@given(trees())
def test_frame_kinematics(robot):
    """Poses, velocities, Jacobians and accelerations of links and frames are derivatives of each other."""
    s = State(robot)
    for name in robot.frame_names[-3:]:
        T, T_dot = robot.pose(s.q, name), s.slope(s.v, lambda q, n=name: robot.pose(q, n))
        twist = np.linalg.solve(T, T_dot)
        V = np.array([twist[2, 1], twist[0, 2], twist[1, 0], *twist[:3, 3]])
        close(robot.velocity(s.q, s.v, name), V, COMPLEX_STEP)
        J = robot.jacobian(s.q, name)
        close(J @ s.v, V, COMPLEX_STEP)
        J_dot = s.slope(s.v, lambda q, n=name: robot.jacobian(q, n))
        close(robot.jacobian_derivative(s.q, s.v, name), J_dot, COMPLEX_STEP)
        close(robot.acceleration(s.q, s.v, s.a, name), J @ s.a + J_dot @ s.v, COMPLEX_STEP)
        aligned, world = robot.jacobian(s.q, name, "aligned"), robot.jacobian(s.q, name, "world")
        close(aligned[3:] @ s.v, T_dot[:3, 3], COMPLEX_STEP)
        close(world[3:] @ s.v, T_dot[:3, 3] - np.cross(world[:3] @ s.v, T[:3, 3]), COMPLEX_STEP)
    links = robot.forward_kinematics(s.q)
    close(links[-1], robot.pose(s.q, robot.link_names[-1]))


@SETTINGS
@given(trees())
def test_momentum(robot):
    s = State(robot)
    h = robot.momentum(s.q, s.v)
    close(robot.centroidal_momentum_matrix(s.q) @ s.v, h)
    close(h[3:], robot.mass * s.slope(s.v, robot.center_of_mass), COMPLEX_STEP)


@SETTINGS
@given(trees(kinds=("free", "spherical", "translational", "revolute"), max_links=5))
def test_free_flight_conserves_momentum(robot):
    """Of a tree on one free root without joint forces, gravity moves the centre of mass and nothing else."""
    model = robot.model
    roots = [i for i, p in model.outward() if p == 0]
    if [model.joint[i].kind for i in roots] != ["free"]:
        return
    quiet = dataclasses.replace(
        model.without_passive_forces(), armature=tuple(Vector((0.0,) * len(a)) for a in model.armature)
    )
    robot = Robot(quiet, compiled=False)
    s = State(robot)
    a = robot.forward_dynamics(s.q, s.v, np.zeros(robot.nv))
    A = robot.centroidal_momentum_matrix(s.q)
    h_dot = A @ a + s.slope(s.v, robot.centroidal_momentum_matrix) @ s.v
    expected = np.concatenate([np.zeros(3), robot.mass * np.array(model.gravity)])
    close(h_dot, expected, solve(np.linalg.cond(robot.mass_matrix(s.q))))


@SETTINGS
@given(trees())
def test_operational_space(robot):
    """Λ V̇ + μ = F: a force at the frame that joint forces Jᵀ(Λ V̇ + μ) replace gives the acceleration V̇."""
    s = State(Robot(robot.model.without_passive_forces(), compiled=False))
    robot, name = s.robot, s.robot.link_names[-1]
    J = robot.jacobian(s.q, name)
    rows = _independent_rows(J)
    if not rows or np.linalg.cond(J[rows]) > 1e3:
        return
    Lambda, mu = robot.operational_space(s.q, s.v, name, rows)
    wanted = np.arange(1.0, len(rows) + 1)
    a = robot.forward_dynamics(s.q, s.v, J[rows].T @ (Lambda @ wanted + mu))
    condition = np.linalg.cond(robot.mass_matrix(s.q)) * np.linalg.cond(J[rows]) ** 2
    close(robot.acceleration(s.q, s.v, a, name)[rows], wanted, solve(condition))


@SETTINGS
@given(trees())
def test_operational_space_inertia(robot):
    """Λ⁻¹ by force propagation is J M⁻¹ Jᵀ, of every frame; its inverse is that of `operational_space`."""
    s = State(robot)
    for name in robot.frame_names:
        J, M = robot.jacobian(s.q, name), robot.mass_matrix(s.q)
        expected = J @ np.linalg.solve(M, J.T)
        close(robot.operational_space_inverse_inertia(s.q, name), expected, solve(np.linalg.cond(M)))
    rows = _independent_rows(J)
    condition = np.linalg.cond(M) * np.linalg.cond(J[rows]) ** 2 if rows else 1.0
    if rows and condition < 1e8:
        Lambda = robot.operational_space_inertia(s.q, name, rows)
        close(Lambda, robot.operational_space(s.q, s.v, name, rows)[0], solve(condition))


def test_operational_space_inertia_of_a_real_arm():
    """Six DoF and more: all rows. A force on the tool accelerates it by Λ⁻¹ F, by forward dynamics from rest."""
    robot = qddot.load("puma560")
    q, _ = robot.random_state(3)
    rest, frame, F = np.zeros(6), robot.link_names[-1], np.arange(1.0, 7.0)
    f_ext = np.zeros((6, 6))
    f_ext[-1] = F
    a = robot.forward_dynamics(q, rest, rest, f_ext) - robot.forward_dynamics(q, rest, rest)
    close(robot.operational_space_inertia(q, frame) @ robot.acceleration(q, rest, a, frame), F, 1e-9)  # cond(Λ) below 1e5
    with pytest.raises(qddot.InputError, match="independent rows"):
        robot.operational_space_inertia(robot.neutral(), frame)


def _independent_rows(J):
    rows: list[int] = []
    for r in range(6):
        if np.linalg.matrix_rank(J[[*rows, r]], tol=1e-6) == len(rows) + 1:
            rows.append(r)
    return rows


@SETTINGS
@given(trees())
def test_numbering_does_not_matter(robot):
    s = State(robot)
    other = Robot(renumbered(s.model, np.random.default_rng(1)), compiled=False)
    q, v, a = (_by_name(robot, other, x, i) for x, i in ((s.q, "q_index"), (s.v, "v_index"), (s.a, "v_index")))
    f = s.f_ext[[robot.link_names.index(n) for n in other.link_names]]
    tau = robot.inverse_dynamics(s.q, s.v, s.a, s.f_ext)
    close(other.inverse_dynamics(q, v, a, f), _by_name(robot, other, tau, "v_index"))
    tolerance = solve(np.linalg.cond(robot.mass_matrix(s.q)))
    forward = robot.forward_dynamics(s.q, s.v, s.a, s.f_ext)
    close(other.forward_dynamics(q, v, a, f), _by_name(robot, other, forward, "v_index"), tolerance)
    M = _by_name(robot, other, _by_name(robot, other, robot.mass_matrix(s.q), "v_index").T, "v_index")
    close(other.mass_matrix(q), M)


def _by_name(robot, other, x, index):
    """x, ordered by robot's joints along its first axis, in the order of the other's joints."""
    out = np.empty_like(x)
    for name in getattr(robot, index):
        out[getattr(other, index)[name]] = x[getattr(robot, index)[name]]
    return out


@SETTINGS
@given(trees(kinds=AXIAL))
def test_body_frames_do_not_matter(robot):
    s = State(robot)
    model, turns = reframed(s.model, np.random.default_rng(1))
    other = Robot(model, compiled=False)
    f = np.array([_seen_from(turns[i], s.f_ext[i - 1]) for i, _ in model.outward()])
    tau = robot.inverse_dynamics(s.q, s.v, s.a, s.f_ext)
    close(other.inverse_dynamics(s.q, s.v, s.a, f), tau)
    tolerance = solve(np.linalg.cond(robot.mass_matrix(s.q)))
    close(other.forward_dynamics(s.q, s.v, tau, f), s.a, tolerance)
    close(other.mass_matrix(s.q), robot.mass_matrix(s.q))
    close(other.potential_energy(s.q), robot.potential_energy(s.q))


def _seen_from(T, f):
    return np.array(Ad_inv_T(T.inverse(), force(f.tolist())).components)


@pytest.mark.parametrize("kind", MOVING)
@pytest.mark.parametrize("mimic", [False, True], ids=["plain", "mimic"])
def test_every_identity_on_every_kind(kind, mimic):
    """The suite of `qddot check`, with each kind of joint beside revolute ones."""
    robot = Robot(random_tree(5, rng=3, kinds=(kind, "revolute"), mimic=mimic).model(), compiled=False)
    assert kind in {j.kind for j in robot.model.joint}
    failed = [i for i in identities(robot) if not i.holds]
    assert not failed


@SETTINGS
@given(trees())
def test_batches_are_loops(robot):
    """A batch gives what its states give one by one, and inputs broadcast."""
    states = [State(robot, seed) for seed in range(3)]
    q, v, a, f = (np.stack([getattr(s, x) for s in states]) for x in ("q", "v", "a", "f_ext"))
    tau = robot.inverse_dynamics(q, v, a, f)
    for k, s in enumerate(states):
        close(tau[k], robot.inverse_dynamics(s.q, s.v, s.a, s.f_ext))
    close(robot.forward_dynamics(q[:, None], v, tau)[1, 1], robot.forward_dynamics(q[1], v[1], tau[1]), 1e-8)
    assert robot.mass_matrix(q[None]).shape == (1, 3, robot.nv, robot.nv)
    assert robot.inverse_dynamics(q[:0], v[:0], a[:0]).shape == (0, robot.nv)


def test_nothing_passes_through_six_degrees_of_freedom_but_their_force():
    """A light link that carries a heavy one on a free joint moves as if it were alone, to the last digits."""
    light = qddot.Builder("light").link("small", 1e-3, (0.1, 0.2, 0.3), np.eye(3) * 1e-4)
    light.joint("hinge", "world", "small", Revolute((0.6, 0.0, 0.8)))
    alone = light.robot()
    light.link("big", 1e3, (0.3, 0.1, 0.2), np.eye(3) * 1e3).joint("loose", "small", "big", Free(), qddot.pose((1, 2, 3)))
    both = light.robot()
    (q, v), tau = both.random_state(0), np.array([0.5, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    # what the joint exerts on the big link it takes from the small one
    T = qddot.pose((1, 2, 3)) @ Free().transform(q[1:].tolist())
    back = -np.array(Ad_inv_T(T, force(tau[1:].tolist())).components)
    expected = alone.forward_dynamics(q[:1], v[:1], tau[:1], back[None])
    for forward in (articulated_body.forward_dynamics, articulated_body.forward_dynamics_absolute):
        close(forward(both.model, q, v, tau)[:1], expected, 1e-13)  # a few roundings; the general formula gives 1e-9


def test_the_law_of_passive_forces():
    """Damping d v, friction f v/√(v² + ε²), spring k (q - q0), against the motion."""
    b = qddot.Builder("x", friction_velocity=0.01).link("a", 1.0)
    b.joint("j", "world", "a", Revolute(), damping=2.0, friction=3.0, stiffness=5.0, spring_reference=[0.5])
    robot = b.robot()
    assert robot.passive_force([0.5], [0.0])[0] == 0.0
    close(robot.passive_force([0.5], [0.01]), [-2.0 * 0.01 - 3.0 * math.sqrt(0.5)])
    close(robot.passive_force([0.7], [-1.0]), [2.0 + 3.0 / math.sqrt(1.0 + 1e-4) - 5.0 * 0.2])
    quiet = Robot(robot.model.without_passive_forces(), compiled=False)
    assert quiet.passive_force([0.7], [-1.0])[0] == 0.0
