"""Derivatives of dynamics: closed forms, Kim's Tables 5 and 6, complex steps through `integrate`, Pinocchio's."""

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from mechanisms import MOVING, State, trees
from tolerances import COMPLEX_STEP, PER_CONDITION

from qddot.algorithms import articulated_body, newton_euler, table_derivatives
from qddot.parameters import inertia_of
from qddot.robot import Robot
from qddot.robots.generators import random_tree
from qddot.spatial import Motion, exp, motion

SETTINGS = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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
    E, model = np.eye(s.robot.nv), s.model
    by_q = [function(model, s.robot.integrate(s.q, 1j * STEP * e), s.v, third) for e in E]
    by_v = [function(model, s.q, s.v + 1j * STEP * e, third) for e in E]
    by_third = [function(model, s.q, s.v, third + 1j * STEP * e) for e in E]
    return [np.array(x).imag.T / STEP for x in (by_q, by_v, by_third)]


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
        change = table_derivatives.by_inertia(s.model, s.model.n_links, inertia_of(np.eye(10)[k].tolist()))
        expected = table_derivatives.forward_dynamics_derivative(s.model, s.q, s.v, s.a, change)
        close(slopes[:, 10 * (s.model.n_links - 1) + k], expected, through_the_inverse(s))


# ---- any scalar: Tables 5 and 6 -----------------------------------------------------------------------------------------


@SETTINGS
@given(trees())
def test_tables_5_and_6_give_the_same_matrices(robot):
    s = State(robot)
    args = s.model, s.q, s.v, s.a
    by_table = table_derivatives.inverse_dynamics_derivatives(*args)
    for x, y in zip(robot.inverse_dynamics_derivatives(*args[1:]), by_table, strict=True):
        close(x, y)
    by_table = table_derivatives.forward_dynamics_derivatives(*args)
    for x, y in zip(robot.forward_dynamics_derivatives(*args[1:]), by_table, strict=True):
        close(x, y, through_the_inverse(s))


def check_change(s: State, change, changed) -> None:
    """Table 5 and Table 6 against complex steps of a model with p moved by `changed(step)`."""
    model = changed(1j * STEP)
    expected = newton_euler.inverse_dynamics(model, s.q, s.v, s.a).imag / STEP
    close(table_derivatives.inverse_dynamics_derivative(s.model, s.q, s.v, s.a, change), expected)
    expected = articulated_body.forward_dynamics(model, s.q, s.v, s.a).imag / STEP
    found = table_derivatives.forward_dynamics_derivative(s.model, s.q, s.v, s.a, change)
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

            check_change(s, table_derivatives.by_inertia(s.model, i, inertia_of(ten.tolist())), heavier)


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

            check_change(s, table_derivatives.by_placement(s.model, s.q, i, X), moved)


@SETTINGS
@given(trees())
def test_by_gravity(robot):
    s = State(robot)
    for g in np.eye(3).tolist():

        def heavier(step, g=g):
            return dataclasses.replace(
                s.model, gravity=tuple(x + step * y for x, y in zip(s.model.gravity, g, strict=True))
            )

        check_change(s, table_derivatives.by_gravity(s.model, g), heavier)
