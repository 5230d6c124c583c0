"""Derivatives of dynamics: closed forms, Kim's Tables 5 and 6, complex steps through `integrate`, Pinocchio's."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given

import qddot
from qddot import conventions
from qddot.algorithms import (
    articulated_body,
    derivatives,
    dual_derivatives,
    newton_euler,
    perturbation,
    recursive_derivatives,
)
from qddot.dynamics import catalogue, trace
from qddot.mechanism.parameters import inertia_of
from qddot.robot import Robot
from qddot.robots.generators import random_tree
from qddot.spatial import Motion, exp, motion
from tests.support.derivative_cases import MARKED, TOLERANCE
from tests.support.mechanisms import MOVING, State, trees
from tests.support.peers import peer
from tests.support.pinocchio_case import Case, in_our_order
from tests.support.profiles import examples
from tests.support.real_robots import or_skipped
from tests.support.tolerances import COMPLEX_STEP, PER_CONDITION

SETTINGS = examples(40)
STEP = 1e-20


def close(x, y, tolerance=COMPLEX_STEP):
    scale = max(1.0, np.max(np.abs(y), initial=0.0))
    assert np.max(np.abs(np.asarray(x) - y), initial=0.0) <= tolerance * scale


def through_the_inverse(s: State) -> float:
    """What rounding leaves of derivatives of accelerations: M⁻¹ twice."""
    condition = float(np.linalg.cond(s.robot.mass_matrix(s.q)))
    return COMPLEX_STEP + PER_CONDITION * condition


def complex_steps(s: State, function, third):
    """∂/∂q through `integrate`, ∂/∂v and ∂/∂(third argument) of a function of a state."""
    steps, shape = 1j * STEP * np.eye(s.robot.nv), (s.robot.nv, s.robot.nv)
    by_q = function(s.model, s.robot.integrate(s.q, steps), s.v, third)
    by_v = function(s.model, s.q, s.v + steps, third)
    by_third = function(s.model, s.q, s.v, third + steps)
    return [np.broadcast_to(x, shape).imag.T / STEP for x in (by_q, by_v, by_third)]


def check(robot: Robot, seed: int = 0) -> None:
    s = State(robot, seed)
    expected = complex_steps(s, newton_euler.inverse_dynamics, s.a)
    for x, y in zip(robot.inverse_dynamics_derivatives(s.q, s.v, s.a), expected, strict=True):
        close(x, y)
    expected = complex_steps(s, articulated_body.forward_dynamics, s.a)
    for x, y in zip(robot.forward_dynamics_derivatives(s.q, s.v, s.a), expected, strict=True):
        close(x, y, through_the_inverse(s))


@pytest.mark.parametrize("order", ["depth", "random"])
@pytest.mark.parametrize("kind", MOVING)
def test_every_kind_of_joint(kind, order):
    check(Robot(random_tree(4, rng=1, kinds=(kind,), order=order).model(), compiled=False))
    check(Robot(random_tree(5, rng=2, kinds=(kind, "revolute"), order=order).model(), compiled=False))


@SETTINGS
@given(trees())
def test_any_tree(robot):
    check(robot)


@SETTINGS
@given(trees(max_links=4))
def test_dual_numbers_give_the_same_matrices(robot):
    """The differentiator: the recursions themselves on dual numbers."""
    s = State(robot)
    args = s.model, s.q, s.v, s.a
    expected = dual_derivatives.inverse_dynamics_derivatives(*args)
    for x, y in zip(robot.inverse_dynamics_derivatives(*args[1:]), expected, strict=True):
        close(x, y)
    expected = dual_derivatives.forward_dynamics_derivatives(*args)
    for x, y in zip(robot.forward_dynamics_derivatives(*args[1:]), expected, strict=True):
        close(x, y, through_the_inverse(s))


def test_zeros_vanish():
    """A DoF touches what it carries and what carries it; a floating base answers gravity and its own speed alone."""
    robot = qddot.load("quadruped")
    q, v = robot.random_state(0)
    by_q, by_v, M = robot.inverse_dynamics_derivatives(q, v, v)
    first, other = robot.v_index[robot.joint_names[1]], robot.v_index[robot.joint_names[6]]
    for matrix in (by_q, by_v, M):
        assert matrix[first, other] == 0.0
    d = robot.forward_dynamics_derivatives(q, v, v)
    assert np.all(d.dq[6:, :6] == 0.0)
    assert np.all(d.dq[:, 3:6] == 0.0)
    assert np.all(d.dv[6:, 3:6] == 0.0)
    close(d.dq[3:6, :3], -np.cross(np.linalg.solve(robot.pose(q, robot.link_names[0])[:3, :3], [0, 0, 9.81]), np.eye(3)).T)


def test_kernels_and_batches():
    """Compiled, batched, all formulations: the same matrices."""
    for name in ("puma560", "quadruped"):
        robot = qddot.load(name)
        states = [robot.random_state(k) for k in range(19)]
        q, v = (np.stack(x) for x in zip(*states, strict=True))
        for function, eager in (
            ("inverse_dynamics_derivatives", derivatives.inverse_dynamics_derivatives),
            ("forward_dynamics_derivatives", derivatives.forward_dynamics_derivatives),
        ):
            expected = eager(robot.model, q, v, v[::-1])
            found = getattr(robot, function)(q, v, v[::-1])
            assert found.dq.shape == (19, robot.nv, robot.nv)
            for k, x in enumerate(found):
                close(x, expected[:, k], 1e-9)  # through M⁻¹ of condition 1e4
                alone = getattr(robot, function)(q[7], v[7], v[::-1][7])[k]
                assert np.array_equal(alone, x[7])
        strided = np.empty((19, 3, robot.nv, 2 * robot.nv))[..., ::2]
        kernel = robot.kernel("inverse_dynamics_derivatives")
        kernel(q, v, v, out=strided)
        assert np.array_equal(strided, kernel(q, v, v))


def test_the_closed_form_counts_least():
    """`auto` takes it; Kim's recursion for each column does two to three times as much."""
    model = qddot.load("puma560").model
    for name in ("inverse_dynamics_derivatives", "forward_dynamics_derivatives"):
        closed, *others = (len(trace.traced(model, name, m).body) for m in catalogue.FUNCTIONS[name].methods)
        assert closed < 0.8 * min(others)


# ---- real robots, and Pinocchio -----------------------------------------------------------------------------------------


@pytest.mark.oracle
@pytest.mark.parametrize("floating", [False, True], ids=["fixed", "floating"])
@pytest.mark.parametrize("path", or_skipped(MARKED))
def test_real_robots(path, floating):
    """Closed forms, complex steps and Pinocchio on one state."""
    pin = peer("pinocchio")
    c = Case(path, floating)
    s, robot = State(c.robot), c.robot
    s.q, s.v, s.a = c.q[0], c.v[0], c.a[0]
    if robot.nv == 0:
        return
    ours = robot.inverse_dynamics_derivatives(s.q, s.v, s.a)
    for x, y in zip(ours, complex_steps(s, newton_euler.inverse_dynamics, s.a), strict=True):
        close(x, y, TOLERANCE)
    theirs = pin.computeRNEADerivatives(c.pin, c.data, c.pq[0], c.pv[0], c.pa[0])
    if not robot.model.is_coupled:
        for x, y in zip(ours[:2], theirs[:2], strict=True):
            close(x, in_our_order(c, y), TOLERANCE)
    if robot.massless_joints:
        return
    condition = np.linalg.cond(ours.da)
    tolerance = TOLERANCE + 1e-16 * condition
    ours = robot.forward_dynamics_derivatives(s.q, s.v, s.a)
    for x, y in zip(ours, complex_steps(s, articulated_body.forward_dynamics, s.a), strict=True):
        close(x, y, tolerance)
    if not robot.model.is_coupled:
        p_tau = conventions.to_pinocchio_tau(*c.layout, c.q, c.a)
        theirs = pin.computeABADerivatives(c.pin, c.data, c.pq[0], c.pv[0], p_tau[0])
        for x, y in zip(ours[:2], theirs[:2], strict=True):
            close(x, in_our_order(c, y), tolerance)


# ---- second derivatives -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MOVING)
def test_second_derivatives(kind):
    """Against complex steps of the first."""
    robot = Robot(random_tree(3, rng=24, kinds=(kind, "revolute")).model(), compiled=False)
    s = State(robot)
    tolerance = 10.0 * through_the_inverse(s)
    for name in ("inverse_dynamics", "forward_dynamics"):
        first = getattr(derivatives, f"{name}_derivatives")
        second = getattr(robot, f"{name}_second_derivatives")(s.q, s.v, s.a)
        E = np.eye(robot.nv)
        by_q = np.stack([first(s.model, robot.integrate(s.q, 1j * STEP * e), s.v, s.a).imag / STEP for e in E], axis=-1)
        by_v = np.stack([first(s.model, s.q, s.v + 1j * STEP * e, s.a).imag / STEP for e in E], axis=-1)
        close(second.dqq, by_q[0], tolerance)
        close(second.dqv, by_v[0], tolerance)
        close(second.dvv, by_v[1], tolerance)
        close(second.dM, by_q[2], tolerance)


def test_second_derivatives_are_compiled():
    """With axes that are parallel: frames that do not turn would be wrong ones for what moves q by itself."""
    robot = qddot.load("planar3")
    q, v = robot.random_state(0)
    eager = Robot(robot.model, compiled=False)
    for function in ("inverse_dynamics_second_derivatives", "forward_dynamics_second_derivatives"):
        for x, y in zip(getattr(robot, function)(q, v, v), getattr(eager, function)(q, v, v), strict=True):
            assert x.shape == (robot.nv,) * 3
            close(x, y, TOLERANCE)
    for function in ("inverse_dynamics_derivatives", "forward_dynamics_derivatives"):
        found = robot.kernel(function, method="differentiated")(q, v, v)
        close(found, np.stack(getattr(eager, function)(q, v, v)), TOLERANCE)


# ---- by inertias --------------------------------------------------------------------------------------------------------


@SETTINGS
@given(trees())
def test_the_regressor(robot):
    """tau = Y π and what rotors and passive forces do; ∂a/∂π by Table 6."""
    s = State(robot)
    pi = robot.parameters("inertia").reshape(-1)
    Y = robot.regressor(s.q, s.v, s.a)
    assert Y.shape == (robot.nv, 10 * s.model.n_links)
    bare = dataclasses.replace(s.model, armature=tuple(0.0 * x for x in s.model.armature))
    close(Y @ pi, newton_euler.rigid_body_forces(bare, s.q, s.v, s.a))
    slopes = robot.forward_dynamics_inertia_derivatives(s.q, s.v, s.a)
    for k in (0, 3, 9):
        change = perturbation.by_inertia(s.model, s.model.n_links, inertia_of(np.eye(10)[k].tolist()))
        expected = recursive_derivatives.forward_dynamics_derivative(s.model, s.q, s.v, s.a, change)
        close(slopes[:, 10 * (s.model.n_links - 1) + k], expected, through_the_inverse(s))


# ---- any scalar: Tables 5 and 6 -----------------------------------------------------------------------------------------


@SETTINGS
@given(trees())
def test_tables_5_and_6_give_the_same_matrices(robot):
    s = State(robot)
    args = s.model, s.q, s.v, s.a
    by_table = recursive_derivatives.inverse_dynamics_derivatives(*args)
    for x, y in zip(robot.inverse_dynamics_derivatives(*args[1:]), by_table, strict=True):
        close(x, y)
    by_table = recursive_derivatives.forward_dynamics_derivatives(*args)
    for x, y in zip(robot.forward_dynamics_derivatives(*args[1:]), by_table, strict=True):
        close(x, y, through_the_inverse(s))


def check_change(s: State, change, changed) -> None:
    """Table 5 and Table 6 against complex steps of a model with p moved by `changed(step)`."""
    model = changed(1j * STEP)
    expected = newton_euler.inverse_dynamics(model, s.q, s.v, s.a).imag / STEP
    close(recursive_derivatives.inverse_dynamics_derivative(s.model, s.q, s.v, s.a, change), expected)
    expected = articulated_body.forward_dynamics(model, s.q, s.v, s.a).imag / STEP
    found = recursive_derivatives.forward_dynamics_derivative(s.model, s.q, s.v, s.a, change)
    close(found, expected, through_the_inverse(s))


@SETTINGS
@given(trees())
def test_by_an_inertial_parameter(robot):
    s = State(robot)
    for i in {1, s.model.n_links}:
        for k in range(10):
            ten = np.eye(10)[k]

            def heavier(step, i=i, ten=ten):
                inertia = list(s.model.inertia)
                inertia[i] = inertia[i] + inertia_of((step * ten).tolist())
                return dataclasses.replace(s.model, inertia=tuple(inertia))

            check_change(s, perturbation.by_inertia(s.model, i, inertia_of(ten.tolist())), heavier)


@SETTINGS
@given(trees())
def test_by_a_placement(robot):
    """Geometric parameters: the joint's frame moved along any twist in its parent (K12)."""
    s = State(robot)
    for i in {1, s.model.n_links}:
        for k in range(6):
            X = motion(np.eye(6)[k].tolist())

            def moved(step, i=i, X=X):
                placement = list(s.model.placement)
                placement[i] = placement[i] @ exp(Motion(*(tuple(step * x for x in part) for part in X)))
                return dataclasses.replace(s.model, placement=tuple(placement))

            check_change(s, perturbation.by_placement(s.model, s.q, i, X), moved)


@SETTINGS
@given(trees())
def test_by_gravity(robot):
    s = State(robot)
    for g in np.eye(3).tolist():

        def heavier(step, g=g):
            return dataclasses.replace(
                s.model, gravity=tuple(x + step * y for x, y in zip(s.model.gravity, g, strict=True))
            )

        check_change(s, perturbation.by_gravity(s.model, g), heavier)
