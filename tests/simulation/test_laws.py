"""Laws, forces and motions are recorded once: what is reported was simulated, and what is no function is refused."""

import itertools
import random
import time

import numpy as np
import pytest

import qddot
from qddot.scalars import sin
from qddot.simulation import Rollout, controls, forces

counter = itertools.count(1)
changing = {"gain": 1.0}


def drifting():
    """Something else every time: as a counter, a random number, the time of day or a list that grows are."""
    return float(next(counter))


NOT_FUNCTIONS = {
    "a counter": drifting,
    "random": random.random,
    "NumPy's generator": np.random.default_rng(0).standard_normal,
    "NumPy's global numbers": lambda: np.random.standard_normal(),
    "the time": time.perf_counter,
    "a list that grows": lambda seen=[]: seen.append(1) or len(seen),
}
ROLES = {
    "controls": lambda f: {"controls": lambda t, q, v: [f(), 0.0]},
    "controls with inputs": lambda f: {"controls": lambda t, q, v, u: u * f(), "inputs": np.ones((5, 2))},
    "forces": lambda f: {"forces": lambda t, q, v: np.full((2, 6), f())},
    "forces of ours": lambda f: {"forces": "at_point", "law": lambda t, x, u: (f(), 0.0, 0.0)},
    "prescribed": lambda f: {"prescribed": {"hinge1": lambda t: f() * t}},
}


@pytest.fixture(scope="module")
def robot():
    return qddot.load("double_pendulum")


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("role", ROLES)
def test_what_is_no_function_is_refused(robot, role, compiled):
    arm = qddot.Robot(robot.model, compiled)
    for drawn in NOT_FUNCTIONS.values():
        given = ROLES[role](drawn)
        if "law" in given:
            given = {"forces": [forces.at_point(arm, arm.link_names[1], given["law"])]}
        with pytest.raises(qddot.InputError, match=rf"{role.split()[0]}.*does not do the same when it is run again"):
            arm.simulate([0.1, 0.2], [0.0, 0.0], given.pop("controls", None), dt=1e-3, steps=5, **given)


@pytest.mark.parametrize("compiled", [True, False])
def test_what_is_reported_was_simulated(robot, compiled):
    """A dictionary that changes while a rollout runs, and a law that would give something else each time it is asked."""
    changing["gain"] = 1.0
    arm = qddot.Robot(robot.model, compiled)
    rollout = Rollout(arm, lambda t, q, v: [changing["gain"] * sin(t), -changing["gain"] * v[1]], dt=1e-3)
    begin = rollout.start([0.1, 0.2], [0.3, 0.4])
    changing["gain"] = 5.0
    _, q, v = rollout.run(begin, 10)
    changing["gain"] = 50.0
    steps = np.arange(1, 11)
    tau = rollout.forces_at(steps, q, v)
    np.testing.assert_array_equal(tau[:, 1], -v[:, 1])
    np.testing.assert_allclose(tau[:, 0], np.sin(1e-3 * steps), rtol=1e-15)  # one rounding of a sine
    changing["gain"] = 1.0
    fixed = arm.simulate([0.1, 0.2], [0.3, 0.4], lambda t, q, v: [sin(t), -v[1]], dt=1e-3, steps=10)
    np.testing.assert_array_equal(fixed.q[1:], q)
    np.testing.assert_array_equal(fixed.tau[1:], tau)


def test_laws_are_run_twice_and_no_more(robot):
    """Not once for every stage of a step and once more for the forces, as long as it is one simulation."""
    calls = []

    def law(t, q, v):
        calls.append(1)
        return -0.1 * v

    run = robot.simulate([0.1, 0.2], [0.3, 0.4], law, dt=1e-3, steps=4)
    np.testing.assert_allclose(run.tau, -0.1 * run.v, rtol=1e-15)  # one product
    assert len(calls) == 2


def test_laws_of_ours_are_functions(robot):
    """Recorded twice, each gives the same tape: controllers and forces of every kind."""
    tip = robot.link_names[-1]
    laws = [
        controls.pd(robot, [0.1, 0.2], 5.0, 1.0),
        controls.computed_torque(robot, lambda t: [sin(t), 0.5 * t], 5.0, 1.0),
        controls.gravity_compensation(robot),
    ]
    every = [
        forces.spring(robot, "world", tip, 5.0, damping=0.1),
        forces.wind(robot, lambda t: (sin(t), 0.0, 0.0), {tip: 0.1}),
        forces.ground(robot, [tip], height=-5.0),
    ]
    for law in laws:
        run = robot.simulate([0.1, 0.2], [0.0, 0.0], law, forces=every, free={f"{tip}.mass": [1.0, 2.0]}, dt=1e-3, steps=3)
        assert run.q.shape == (2, 4, 2)
        assert np.isfinite(run.q).all()
