"""Steps that are too long for friction, dampers, springs or a law are warned of, and the advice given is good."""

import re
import warnings

import numpy as np
import pytest

import qddot
from qddot.simulation import Rollout, controls, forces, stiffness
from qddot.simulation.recorded import record_simulation

STILL = np.zeros(6)


def warned(robot, q, v, *law, **options):
    """The warnings of a simulation of a few steps."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        robot.simulate(q, v, *law, **{"steps": 2, **options})
    return [str(w.message) for w in caught if issubclass(w.category, qddot.QddotWarning)]


def end(robot, dt, **options):
    """Where the arm is after 0.2 s of falling from rest."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return robot.simulate(robot.neutral(), STILL, dt=dt, steps=round(0.2 / dt), record="end", **options).q[-1]


@pytest.fixture(scope="module")
def puma():
    return qddot.load("puma560")


def test_friction_of_the_puma(puma):
    """From rest at 1 ms joints that friction should hold move by many times what they do; with the advice they do not."""
    (text,) = warned(puma, puma.neutral(), STILL, dt=1e-3)
    found = re.search(r"steps of 0.001 s are too long for 'rk4': the friction of joint 'joint\d'.*take dt=(\S+) or", text)
    assert found, text
    assert "integrator='rosenbrock'" in text
    advice = float(found[1])
    assert not warned(puma, puma.neutral(), STILL, dt=advice)
    assert not warned(puma, puma.neutral(), STILL, dt=1e-3, integrator="rosenbrock")
    exact, bad, good = end(puma, 2e-5), end(puma, 1e-3), end(puma, advice)
    factor = np.abs(bad / exact)
    assert np.max(np.maximum(factor, 1.0 / factor)) > 10.0, "the warning is about nothing"
    assert np.max(np.abs(good / exact - 1.0)) < 1e-3  # RK4 at 2.785 · 0.7 or less of its limit: some digits, each joint
    implicit = end(puma, 1e-3, integrator="rosenbrock")
    assert np.max(np.abs(implicit - exact)) < 0.1 * np.max(np.abs(bad - exact))


@pytest.mark.parametrize("integrator", ["semi_implicit_euler", "rk4", "rkmk4", "ab4"])
def test_the_limit_is_that_of_the_integrator(integrator):
    """A wheel with a damper, and one on a spring: what decays below the limit, measured, grows above it."""
    for passive in ({"damping": 5.0}, {"stiffness": 400.0, "damping": 0.2}, {"friction": 0.01}):
        b = qddot.Builder("wheel", gravity=(0.0, 0.0, 0.0)).link("w", 1.0, inertia=(0.1, 0.0, 0.0, 0.1, 0.0, 0.1))
        robot = b.joint("j", "world", "w", qddot.joints.Revolute((0.0, 0.0, 1.0)), **passive).robot()
        rollout = Rollout(robot, dt=1e-3, integrator=integrator)
        limit = stiffness.limit(rollout, rollout.start([0.0], [0.0])).step
        sizes = []
        for dt in (0.95 * limit, 1.05 * limit):
            small = Rollout(robot, dt=dt, integrator=integrator)
            _, _, v = small.run(small.start([0.0], [1e-9]), 300)  # where friction is linear
            sizes.append(np.max(np.abs(v[-20:])) / np.max(np.abs(v[-200:-180])))
        assert sizes[0] < 1.0 < sizes[1], passive


def test_batches_and_parameters(puma):
    """A sample in which a parameter makes friction stiff is enough."""
    q, v = np.zeros((5, 6)), np.zeros((5, 6))
    b = qddot.Builder("wheel").link("w", 1.0, inertia=(0.1, 0.0, 0.0, 0.1, 0.0, 0.1))
    wheel = b.joint("j", "world", "w", qddot.joints.Revolute(), damping=0.1).robot()
    assert not warned(wheel, [0.0], [0.0], dt=1e-3)
    assert not warned(wheel, [0.0], [0.0], dt=1e-3, free={"j.damping": [0.1, 1.0]})
    (text,) = warned(wheel, [0.0], [0.0], dt=1e-3, free={"j.damping": [0.1, 1000.0]})
    assert "the damping of joint 'j'" in text
    assert len(warned(puma, q, v, dt=1e-3)) == 1
    q[0] = np.nan
    assert len(warned(puma, q, v, dt=1e-3)) == 1  # a sample that is not finite says nothing


def test_laws_and_forces():
    arm = qddot.load("puma560", passive_forces=False)
    q = arm.neutral()
    assert not warned(arm, q, STILL, controls.pd(arm, q, 100.0, 10.0), dt=1e-3)
    (text,) = warned(arm, q, STILL, controls.pd(arm, q, 100.0, 3000.0), dt=1e-3)
    assert "a law of control or force at joint" in text
    (text,) = warned(
        arm, q + 0.3, STILL, forces=forces.spring(arm, "world", arm.link_names[-1], 1e9), dt=1e-3, limits="ignore"
    )
    assert "a law of control or force at joint" in text
    assert not warned(arm, q, STILL, lambda t, q, v: 5.0 * v, dt=1e-3), "what grows by itself is not stiff"


def test_loops_prescribed_motion_and_recordings(tmp_path):
    """Only what can move counts, and what cannot be implicit is not advised."""
    robot = qddot.load("fivebar")
    q, _ = robot.close_loops(robot.neutral())
    assert not warned(robot, q, np.zeros(4), dt=1e-3)
    stiff = robot.with_parameters({f"{robot.joint_names[0]}.damping": 1000.0})
    (text,) = warned(stiff, q, np.zeros(4), dt=1e-3)
    assert "'Radau'" in text
    wheels = qddot.Builder("wheels")
    for k, damping in enumerate((0.1, 1000.0)):
        wheels.link(f"w{k}", 1.0, inertia=(0.1, 0.0, 0.0, 0.1, 0.0, 0.1))
        wheels.joint(f"j{k}", "world", f"w{k}", qddot.joints.Revolute(), damping=damping)
    two = wheels.robot()
    assert len(warned(two, [0.0, 0.0], [0.0, 0.0], dt=1e-3)) == 1
    assert not warned(two, [0.0, 0.0], [0.0, 1.0], dt=1e-3, prescribed={"j1": lambda t: 1.0 * t})
    with pytest.warns(qddot.QddotWarning, match="too long for 'rk4'"):
        record_simulation(two, tmp_path / "run", [0.0, 0.0], [0.0, 0.0], dt=1e-3, steps=2)


@pytest.mark.parametrize("name", ["pendulum", "double_pendulum", "planar3", "scara", "stanford", "fourbar", "delta"])
def test_robots_without_friction_are_not_warned_of(name):
    robot = qddot.load(name, passive_forces=False)
    q = robot.neutral()
    if robot.model.is_constrained:
        q, _ = robot.close_loops(q)
    rollout = Rollout(robot, dt=1e-2)
    assert stiffness.limit(rollout, rollout.start(q, np.zeros(robot.nv))) is None
