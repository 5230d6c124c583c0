"""A and B of one step, against differences of the simulator's own steps."""

import numpy as np
import pytest

import qddot
from qddot.errors import InputError
from qddot.robots.generators import random_tree
from qddot.simulation import step_derivatives as module

pytestmark = pytest.mark.filterwarnings("ignore:steps of .* are too long")  # a derivative of a bad step is one as well

DT, H = 0.05, 1e-6
TOLERANCE = 1e-8  # differences of step 1e-6, relative to the largest entry: h² and 1e-16 over h
EXPLICIT = ("semi_implicit_euler", "rk4", "rkmk4")


def differences(robot, q, v, tau, integrator, dt=DT):
    """The same matrices, [A B], by steps of a simulator beside this one."""
    simulator, nv = robot.simulator(dt=dt, integrator=integrator), robot.nv

    def step(q, v, tau):
        simulator.reset(q, v)
        return simulator.step(tau)

    q1, v1 = step(q, v, tau)
    columns = []
    for e in H * np.eye(3 * nv):
        ends = [step(robot.integrate(q, s * e[:nv]), v + s * e[nv : 2 * nv], tau + s * e[2 * nv :]) for s in (1, -1)]
        up, down = (np.concatenate([robot.difference(q1, q2), v2 - v1]) for q2, v2 in ends)
        columns.append((up - down) / (2 * H))
    return np.array(columns).T


def check(robot, q, v, tau, integrator, dt=DT):
    found = robot.step_derivatives(q, v, tau, dt=dt, integrator=integrator)
    expected = differences(robot, q, v, tau, integrator, dt)
    assert np.abs(np.concatenate([found.A, found.B], axis=-1) - expected).max() < TOLERANCE * np.abs(expected).max()


@pytest.mark.parametrize("integrator", EXPLICIT)
@pytest.mark.parametrize("kind", ["revolute", "free", "planar", "spherical", "universal"])
def test_every_integrator_without_a_memory(kind, integrator):
    robot = qddot.Robot(random_tree(2, rng=2, kinds=(kind, "revolute")).model())
    check(robot, *robot.random_state(3), np.ones(robot.nv), integrator)


def test_implicit_steps_and_mimic_joints():
    arm = qddot.load("double_pendulum")
    check(arm, *arm.random_state(3), np.ones(arm.nv), "rosenbrock")
    coupled = qddot.Robot(random_tree(4, rng=3, kinds=("revolute", "prismatic"), mimic=True).model())
    for integrator in EXPLICIT[:2]:
        check(coupled, *coupled.random_state(3), np.ones(coupled.nv), integrator)


@pytest.mark.parametrize("integrator", EXPLICIT[:2])
def test_loops(integrator):
    """The projection after the step is part of it."""
    robot = qddot.load("fourbar")
    q = robot.close_loops(robot.neutral())[0]
    check(robot, q, np.zeros(robot.nv), np.ones(robot.nv), integrator, 0.01)


def test_both_ways_agree_on_semi_implicit_euler(monkeypatch):
    """Products of matrices, and a reverse sweep through the step."""
    robot = qddot.load("quadruped")
    q, v = robot.random_state(0, (2, 3))
    tau = np.random.default_rng(1).standard_normal((3, robot.nv))
    by_matrices = robot.step_derivatives(q, v, tau, dt=DT)
    monkeypatch.setattr(module, "BY_MATRICES", "")
    again = qddot.Robot(robot.model).step_derivatives(q, v, tau, dt=DT, integrator="semi_implicit_euler")
    assert by_matrices.A.shape == (2, 3, 36, 36)
    assert by_matrices.B.shape == (2, 3, 36, 18)
    for x, y in zip(by_matrices, again, strict=True):
        assert np.allclose(x, y, rtol=1e-9, atol=1e-9 * np.abs(x).max())


def test_its_parts_and_its_batches():
    robot = qddot.load("scara")
    q, v = robot.random_state(0, (5,))
    for integrator in EXPLICIT:
        d = robot.step_derivatives(q, v, dt=DT, integrator=integrator)
        assert np.array_equal(np.concatenate([d.dq, d.dv], axis=-1), d.A)
        assert d.dtau is d.B
        assert robot.step_derivatives(q[:0], v[:0], dt=DT, integrator=integrator).A.shape == (0, 2 * robot.nv, 2 * robot.nv)
        spoiled = v.copy()
        spoiled[2, 0] = np.nan
        lost = robot.step_derivatives(q, spoiled, dt=DT, integrator=integrator)
        assert np.isnan(lost.A[2]).any()
        keep = [0, 1, 3, 4]
        assert np.array_equal(lost.A[keep], d.A[keep])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"dt": 0.0}, "dt is 0"),
        ({"dt": 0.1, "integrator": "ab4"}, "remembers more of earlier steps"),
        ({"dt": 0.1, "integrator": "variational"}, "take one of 'semi_implicit_euler', 'rk4', 'rkmk4', 'rosenbrock'"),
        ({"dt": 0.1, "integrator": ["rk4"]}, "integrator"),
    ],
)
def test_what_is_refused(options, says):
    robot = qddot.load("scara")
    q, v = robot.random_state(0)
    with pytest.raises(Exception, match=says):
        robot.step_derivatives(q, v, **options)
    with pytest.raises(InputError, match="v has shape"):
        robot.step_derivatives(q, v[:2], dt=DT)
    with pytest.raises(InputError, match="compiled"):
        qddot.Robot(robot.model, compiled=False).step_derivatives(q, v, dt=DT, integrator="rk4")
