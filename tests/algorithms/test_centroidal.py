"""Centre of mass, centroidal momentum and operational space: their derivatives and inverses obey their definitions."""

import numpy as np
import pytest
from hypothesis import given

import qddot
from tests.support.mechanisms import State, trees
from tests.support.profiles import examples
from tests.support.tolerances import COMPLEX_STEP, ROUNDING, solve

SETTINGS = examples(30)


def close(x, y, tolerance=ROUNDING):
    scale = max(1.0, np.max(np.abs(y), initial=0.0))
    assert np.max(np.abs(np.asarray(x) - y), initial=0.0) <= tolerance * scale


@SETTINGS
@given(trees())
def test_jacobian_of_the_centre_of_mass_is_its_slope(robot):
    s = State(robot)
    close(robot.center_of_mass_jacobian(s.q), s.gradient(robot.center_of_mass).T, COMPLEX_STEP)


@SETTINGS
@given(trees())
def test_rates_are_slopes_along_the_motion(robot):
    s = State(robot)
    close(
        robot.centroidal_momentum_matrix_derivative(s.q, s.v), s.slope(s.v, robot.centroidal_momentum_matrix), COMPLEX_STEP
    )
    close(robot.center_of_mass_jacobian_derivative(s.q, s.v), s.slope(s.v, robot.center_of_mass_jacobian), COMPLEX_STEP)


@SETTINGS
@given(trees())
def test_momentum_changes_by_outer_forces_alone(robot):
    """Newton and Euler for the whole robot: weight, and the wrench that the joints at the base exert."""
    s = State(robot)
    rate = robot.centroidal_momentum_matrix(s.q) @ s.a + robot.centroidal_momentum_matrix_derivative(s.q, s.v) @ s.v
    moved = s.slope(s.v, lambda q: robot.momentum(q, s.v)) + robot.momentum(s.q, s.a)
    close(rate, moved, COMPLEX_STEP)


@pytest.fixture(scope="module")
def arm():
    return qddot.load("puma560")


Q, V = np.array([0.3, -0.4, 0.2, 0.5, 0.7, -0.2]), np.array([0.1, 0.2, -0.3, 0.4, 0.5, 0.6])


@pytest.mark.parametrize("rows", [range(6), (3, 4, 5), (0, 5)])
def test_dynamically_consistent_inverse(arm, rows):
    """A right inverse of J under which forces of the null space do not accelerate the frame, and the only one."""
    rows = list(rows)
    J, M = arm.jacobian(Q, "link6")[rows], arm.mass_matrix(Q)
    inverse, N = (f(Q, "link6", rows) for f in (arm.dynamically_consistent_inverse, arm.null_space_projector))
    tolerance = solve(np.linalg.cond(M) * np.linalg.cond(J @ np.linalg.solve(M, J.T)))
    close(J @ inverse, np.eye(len(rows)), tolerance)
    close(J @ np.linalg.solve(M, N.T), np.zeros((len(rows), 6)), tolerance)
    close(N @ N, N, tolerance)
    close(J @ N, np.zeros((len(rows), 6)), tolerance)
    close(arm.acceleration_by_force(Q, "link6"), np.linalg.solve(M, arm.jacobian(Q, "link6").T), tolerance)
    batch = arm.null_space_projector(np.stack([Q, Q + 0.1]), "link6", rows)
    close(batch[0], N, tolerance)
    assert batch.shape == (2, 6, 6)


@pytest.mark.parametrize("rows", [range(6), (3, 4, 5)])
def test_operational_space_is_compiled(arm, rows, monkeypatch):
    """One state and batches, of q and of v, against the readable algorithm, which compiled robots do not run."""
    q, v = np.stack([Q, Q + 0.1, Q - 0.2])[:, None], np.stack([V, -V])
    plain = qddot.Robot(arm.model, compiled=False)
    expected = plain.operational_space(q, v, "link6", rows)
    single = plain.operational_space(Q, V, "link6", rows)
    monkeypatch.setattr("qddot.dynamics.engine.Engine._eager", None)
    for ours, theirs in zip(arm.operational_space(q, v, "link6", rows), expected, strict=True):
        assert ours.shape == theirs.shape
        close(ours, theirs, 1e-9)  # cond(M) cond(Λ) is below 1e6
    for ours, theirs in zip(arm.operational_space(Q, V, "link6", rows), single, strict=True):
        close(ours, theirs, 1e-9)


def test_rows_that_depend_on_each_other_are_refused(arm):
    with pytest.raises(qddot.InputError, match=r"has only \d independent rows"):
        qddot.load("scara").dynamically_consistent_inverse(np.full(4, 0.1), "quill")


def test_kernels_of_the_new_functions(arm):
    for name in ("center_of_mass_jacobian", "acceleration_by_force"):
        needs = {"frame": "link6"} if name == "acceleration_by_force" else {}
        found = arm.kernel(name, **needs)(Q)
        eager = getattr(qddot.Robot(arm.model, compiled=False), name)(Q, *needs.values())
        close(found, eager)
    for name in ("center_of_mass_jacobian_derivative", "centroidal_momentum_matrix_derivative"):
        close(arm.kernel(name)(Q, V), getattr(qddot.Robot(arm.model, compiled=False), name)(Q, V))


def test_a_robot_without_mass_has_no_centre():
    b = qddot.Builder("ghost").link("body", 0.0)
    robot = b.joint("turn", "world", "body", qddot.joints.Revolute()).robot()
    with pytest.raises(qddot.InputError, match="no centre of mass"):
        robot.center_of_mass_jacobian([0.0])
