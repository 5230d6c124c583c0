"""Laws, forces and motions are recorded once: what is reported was simulated, and what is no function is refused."""

import itertools
import random
import time

import numpy as np
import pytest

import qddot
from qddot import joints
from qddot.scalars import less, sin, where
from qddot.simulation import Rollout, controls, forces
from tests.support.golden_bits import law_of_everything

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


@pytest.mark.parametrize("integrator", ["rk4", "rosenbrock", "semi_implicit_euler"])
def test_laws_by_numpys_functions(robot, integrator):
    """Compiled, in lanes and alone, against the plain run; `rosenbrock` takes the law's slopes."""
    q, v = np.random.default_rng(0).standard_normal((2, 11, 2))
    options = {"dt": 1e-3, "steps": 20, "integrator": integrator}
    run = robot.simulate(q, v, law_of_everything, **options)
    alone = robot.simulate(q[3], v[3], law_of_everything, **options)
    np.testing.assert_array_equal(alone.q, run.q[3])
    plain = qddot.Robot(robot.model, compiled=False).simulate(q[3], v[3], law_of_everything, **options)
    np.testing.assert_allclose(alone.q, plain.q, rtol=1e-12, atol=1e-13)
    expected = [
        [law_of_everything(t, *state) for t, *state in zip(run.t, run.q[k], run.v[k], strict=True)] for k in range(11)
    ]
    np.testing.assert_allclose(run.tau, np.array(expected, dtype=float), rtol=1e-12, atol=1e-13)


def test_laws_in_single_precision(robot):
    q, v = np.random.default_rng(0).standard_normal((2, 21, 2))
    single, double = (robot.simulate(q, v, law_of_everything, dt=1e-3, steps=20, dtype=t) for t in ("float32", "float64"))
    np.testing.assert_allclose(single.q, double.q, atol=2e-5)


def test_adaptive_steps_take_the_slopes_of_laws(robot):
    pytest.importorskip("scipy")
    runs = [
        robot.simulate([0.1, 0.2], [0.3, 0.4], law_of_everything, dt=0.01, steps=10, integrator=name, rtol=1e-9, atol=1e-11)
        for name in ("DOP853", "Radau")
    ]
    np.testing.assert_allclose(runs[0].q, runs[1].q, atol=1e-7)


def test_references_motions_and_forces_by_numpys_functions(robot):
    """q_ref(t) and q(t) are differentiated twice; a force may use arrays of its own."""

    def wanted(t):
        out = np.zeros(2)
        out[0], out[1] = np.tanh(t), np.interp(t, [0.0, 1.0], [0.0, 0.5])
        return out

    follow = controls.computed_torque(robot, wanted, 100.0, 20.0)
    run = robot.simulate([0.0, 0.0], [1.0, 0.5], follow, dt=1e-3, steps=100)
    np.testing.assert_allclose(run.q[:, 0], np.tanh(run.t), atol=1e-8)
    np.testing.assert_allclose(run.q[:, 1], 0.5 * run.t, atol=1e-8)
    moved = robot.simulate([0.0, 0.2], [1.0, 0.0], dt=1e-3, steps=50, prescribed={"hinge1": lambda t: np.tanh(t)})
    np.testing.assert_allclose(moved.v[:, 0], 1.0 - np.tanh(moved.t) ** 2, atol=1e-12)

    def drag(t, q, v):
        out = np.zeros((2, 6))
        out[:, 4] = -0.1 * np.clip(v, -1.0, 1.0) * np.abs(v) ** 1.5
        return out

    assert np.isfinite(robot.simulate([0.1, 0.2], [2.0, 0.0], forces=drag, dt=1e-3, steps=20).q).all()


def test_conditions_on_arrays(robot):
    """What issue 18 found: `where(less(v, 0.0), …)` on arrays was refused with the advice to use `where`."""
    run = robot.simulate([0.1, 0.2], [0.5, -0.5], lambda t, q, v: where(less(v, 0.0), -0.2 * v, -0.1 * v), dt=1e-3, steps=5)
    np.testing.assert_allclose(run.tau, np.where(run.v < 0.0, -0.2 * run.v, -0.1 * run.v), rtol=1e-15)


MORE = {
    "sinh": np.sinh,
    "cosh": np.cosh,
    "expm1": np.expm1,
    "exp2": np.exp2,
    "log2": lambda x: np.log2(x * x + 0.1),
    "log10": lambda x: np.log10(x * x + 0.1),
    "copysign": lambda x: np.copysign(0.3 * x, x + 0.2),
    "heaviside": lambda x: np.heaviside(x, 0.5) * x,
    "fmax": lambda x: np.fmax(np.where(x < 0.3, x, np.nan), np.fmin(x, 0.4)),
    "fmin": lambda x: np.fmin(np.where(x < 0.3, x, np.nan), 0.1),
    "select": lambda x: np.select([x < 0.0, x < 0.4], [x, 2.0 * x], 0.8),
    "isfinite": lambda x: np.where(np.isfinite(1.0 / (x - x)), 7.0, x) + np.where(np.isinf(x) | np.isnan(x), 7.0, 0.0),
    "largest number": lambda x: np.clip(x, -np.finfo(float).max, np.finfo(float).max),
    "nan_to_num": lambda x: np.nan_to_num(np.where(x < 0.3, np.nan, x), nan=0.2),
}


@pytest.mark.parametrize("name", MORE)
def test_more_of_numpys_functions(robot, name):
    """Values in both ways to run, on arrays and scalars; slopes, of a constraint, against differences."""
    f, start = MORE[name], ([0.1, 0.2], [0.35, -0.5])
    for law in (lambda t, q, v: f(v), lambda t, q, v: [f(v[0]), f(v[1])]):
        for compiled in (True, False):
            run = qddot.Robot(robot.model, compiled).simulate(*start, law, dt=1e-3, steps=5)
            with np.errstate(all="ignore"):
                np.testing.assert_allclose(run.tau, f(run.v), rtol=1e-13, atol=1e-15)
    slope = qddot.Robot(robot.model).with_constraint("f", position=lambda q: [f(q[0])])
    h = np.array([1e-6, 0.0])
    for q in ([0.35, 0.0], [-0.5, 0.0], [0.25, 0.0]):
        ends = slope.constraint_residual(q + h) - slope.constraint_residual(q - h)
        np.testing.assert_allclose(slope.constraint_jacobian(q)[0, 0], ends[0] / 2e-6, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("name", ["sqrt", "hypot", "power", "divide"])
def test_laws_whose_slope_is_infinite_at_rest(robot, name, compiled):
    """The estimate of the longest step divided by zero there, in Python."""
    laws = {
        "sqrt": lambda t, q, v: -np.sqrt(np.abs(v)) * np.sign(v),
        "hypot": lambda t, q, v: -np.hypot(v, q),
        "power": lambda t, q, v: np.abs(v) ** 0.3,
        "divide": lambda t, q, v: np.where(v == 0.0, 0.0, 0.1 / v),
    }
    arm = qddot.Robot(robot.model, compiled)
    assert arm.simulate([0.0, 0.0], [0.0, 0.0], laws[name], dt=1e-3, steps=3).q.tolist() == [[0.0, 0.0]] * 4


def test_constraints_and_joints_of_ones_own():
    """A user's constraint and joint are differentiated twice: against differences."""
    tree = qddot.load("scara")
    robot = tree.with_constraint(
        "on a curve", position=lambda q: [q[0] - np.tanh(q[1]) * np.exp(0.1 * q[1]) - np.hypot(q[2], 1.0)]
    )
    q, v, h = np.array([0.3, 0.7, 0.1, 0.2]), np.array([0.4, -0.3, 0.2, 0.1]), 1e-6
    A = robot.constraint_jacobian(q)
    steps = [(robot.constraint_residual(q + h * e) - robot.constraint_residual(q - h * e)) / (2 * h) for e in np.eye(4)]
    np.testing.assert_allclose(A, np.array(steps).T, atol=1e-8)
    rate = (robot.constraint_jacobian(q + h * v) - robot.constraint_jacobian(q - h * v)) / (2 * h)
    np.testing.assert_allclose(robot.constraint_bias(q, v), rate @ v, atol=1e-8)

    def cam(q):
        p = np.zeros(3)
        p[0], p[2] = np.arctan(q[0]), np.maximum(q[0], 0.0) ** 2
        return np.eye(3), p

    builder = qddot.Builder("cam").link("body", 1.0, inertia=(0.1, 0.0, 0.0, 0.1, 0.0, 0.1))
    builder.joint("cam", "world", "body", joints.Own(cam, 1))
    robot = builder.robot()
    for x in (0.4, -0.4):
        slope = np.array([1.0 / (1.0 + x * x), 0.0, 2.0 * max(x, 0.0)])
        np.testing.assert_allclose(robot.mass_matrix([x])[0, 0], slope @ slope, rtol=1e-14)
