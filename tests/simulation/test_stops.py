"""Limits in simulations: stops, joint forces that saturate, both or neither, and what is said of it."""

import dataclasses
import importlib.util
import math
import warnings

import numpy as np
import pytest

import qddot
from qddot.joints import Planar, Prismatic, Revolute
from qddot.scalars import sin
from qddot.simulation import Rollout, Stops, controls, stiffness
from qddot.simulation.integrators import INTEGRATORS
from qddot.simulation.limits import RATE
from tests.support.tolerances import ROUNDING

needs_scipy = pytest.mark.skipif(not importlib.util.find_spec("scipy"), reason="SciPy is not installed")
BALL = np.diag([0.1, 0.1, 0.1])


def close(x, y, tolerance=ROUNDING):
    assert np.max(np.abs(np.asarray(x) - y)) <= tolerance * max(1.0, np.max(np.abs(y)))


def slider(mass=2.0, **options):
    b = qddot.Builder("slider", gravity=(0.0, 0.0, 0.0)).link("block", mass, inertia=BALL)
    return b.joint("rail", "world", "block", Prismatic((1.0, 0.0, 0.0)), lower=-0.2, upper=0.3, **options).robot()


@pytest.fixture(scope="module")
def arm():
    b = qddot.Builder("arm").link("upper", 3.0, (0.2, 0.0, 0.0), BALL).link("fore", 2.0, (0.2, 0.0, 0.0), BALL)
    b.joint("shoulder", "world", "upper", Revolute((0.0, 1.0, 0.0)), lower=-0.5, upper=0.6, effort_limit=20.0, damping=0.1)
    b.joint("elbow", "upper", "fore", Revolute((0.0, 1.0, 0.0)), qddot.pose((0.4, 0.0, 0.0)), upper=0.8, effort_limit=5.0)
    b.link("wheel", 1.0, (0.01, 0.0, 0.0), BALL).joint("spin", "fore", "wheel", Revolute())
    return b.robot()


# ---- stops


def test_a_block_hits_a_stop():
    """Against the solution on paper: m x'' = -k x - c x' from the stop on, until the force would pull."""
    k, c, m, v = 3000.0, 40.0, 2.0, 1.5
    run = slider().simulate([0.3], [v], dt=1e-5, steps=9000, record=60, limits=Stops(k, c))
    a, w = c / (2 * m), math.sqrt(k / m - (c / (2 * m)) ** 2)
    leaves = (math.pi - math.atan2(2 * a * w, w * w - a * a)) / w  # k x + c x' = 0
    t = run.t[run.t < leaves]
    x = 0.3 + v / w * np.exp(-a * t) * np.sin(w * t)
    close(run.q[: len(t), 0], x, 2e-5)  # one step straddles the moment of touching, with a force that jumps
    out = v * math.exp(-a * leaves) * (math.cos(w * leaves) - a / w * math.sin(w * leaves))
    assert run.v[-1, 0] == pytest.approx(out, rel=1e-3)
    assert np.all(run.tau == 0.0)  # what drives give; a stop is none
    assert run.info["limits"] == "stops"
    assert (run.info["stop_stiffness"], run.info["stop_damping"]) == ([k], [c])


def test_defaults_are_scaled_to_the_robot():
    """k = m ω², c = 2 m ω of a block: it comes to rest softly, 14 % of its speed back, whatever its mass."""
    for mass in (0.002, 2.0, 2000.0):
        run = slider(mass).simulate([0.25], [1.0], dt=1e-4, steps=1000, limits="stops")
        assert run.info["stop_stiffness"] == [pytest.approx(mass * RATE**2, rel=5e-3)]
        assert run.info["stop_damping"] == [pytest.approx(2 * mass * RATE, rel=5e-3)]
        assert 0.3 < np.max(run.q) < 0.3 + 1.0 / (math.e * RATE) * 1.05
        assert run.v[-1, 0] == pytest.approx(-math.exp(-2.0), rel=0.02)
    twice = slider().simulate([0.25], [1.0], dt=1e-4, steps=10, limits=Stops(stiffness=2 * 2.0 * RATE**2))
    assert twice.info["stop_damping"] == [pytest.approx(2 * math.sqrt(2.0) * 2.0 * RATE, rel=5e-3)]  # critical again


def test_an_arm_rests_on_its_stops(arm):
    """It falls onto them and lies there: the stops carry its weight, a little beyond the limits."""
    run = arm.simulate([0.0, 0.0, 0.0], np.zeros(3), dt=1e-3, steps=3000, record=100, limits="stops")
    free = arm.simulate([0.0, 0.0, 0.0], np.zeros(3), dt=1e-3, steps=3000, record=100, limits="ignore")
    assert np.max(free.q[:, 0]) > 1.0
    beyond = run.q[-1, :2] - arm.upper[:2]
    assert np.all(beyond > 0.0)
    k = np.array(run.info["stop_stiffness"])[:2]
    close(k * beyond, -arm.gravity_force(run.q[-1])[:2], 1e-3)
    assert np.max(run.q[:, :2] - arm.upper[:2]) < 0.05
    assert np.all(np.abs(run.v[-1, :2]) < 1e-3)


def test_a_stop_in_the_plane_pushes_along_its_coordinate():
    """A turned body against x = 0.1: only its velocity along the world's x changes, and no energy comes from nowhere."""
    b = qddot.Builder("puck", gravity=(0.0, 0.0, 0.0)).link("puck", 1.0, inertia=BALL)
    puck = b.joint("table", "world", "puck", Planar(), upper=(0.1, math.inf, math.inf)).robot()
    angle, speed = 0.8, np.array([1.0, 0.5])
    back = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    v0 = [*(back @ speed), 0.3]
    run = puck.simulate([0.0, 0.0, angle], v0, dt=1e-4, steps=2500, record=250, limits=Stops(1e5, 0.0))
    turn = run.q[-1, 2]
    out = np.array([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]]) @ run.v[-1, :2]
    close(out, [-1.0, 0.5], 1e-3)
    close(run.kinetic_energy[-1], run.kinetic_energy[0], 1e-3)
    assert np.max(run.q[:, 0]) < 0.11


@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_compiled_is_what_is_read(arm, integrator):
    """In every integrator, beyond the limits at the start, with forces that saturate: one step and some more."""
    law = controls.pd(arm, [3.0, -2.0, 0.1], 30.0, 1.0)
    q, v = np.array([0.62, 0.7, 0.0]), np.array([0.4, -0.3, 0.2])
    given = {
        "dt": 1e-3,
        "steps": 2 if integrator == "variational" else 6,
        "integrator": integrator,
        "limits": ("stops", "saturate"),
    }
    run = arm.simulate(q, v, law, **given)
    eager = qddot.Robot(arm.model, compiled=False).simulate(q, v, law, **given)
    close(run.q, eager.q)
    close(run.v, eager.v, 1e-9)
    close(run.tau, eager.tau, 1e-9)
    assert np.max(np.abs(run.tau[:, 1])) == 5.0
    many = arm.simulate(np.tile(q, (5, 1)), v, law, **given)
    assert np.array_equal(many.q[3], run.q)
    assert not np.allclose(run.q, arm.simulate(q, v, law, **{**given, "limits": "ignore"}).q, rtol=0, atol=1e-5)


@needs_scipy
def test_adaptive(arm):
    q, v, options = [0.5, 0.0, 0.0], np.zeros(3), {"limits": "stops", "steps": 10}
    fine = arm.simulate(q, v, dt=0.01, integrator="Radau", rtol=1e-9, atol=1e-10, **options)
    close(
        fine.q, arm.simulate(q, v, dt=1e-5, record=1000, **{**options, "steps": 10_000}).q, 5e-6
    )  # RK4 steps over the touch
    assert fine.info["limits"] == "stops"


def test_single_precision(arm):
    given = {"dt": 1e-3, "steps": 100, "limits": ("stops", "saturate"), "record": 10}
    law = controls.pd(arm, [3.0, -2.0, 0.1], 30.0, 1.0)
    run, exact = (arm.simulate([0.5, 0.0, 0.0], np.zeros(3), law, dtype=t, **given) for t in ("float32", "float64"))
    assert run.q.dtype == np.float32
    close(run.q, exact.q, 1e-4)


def test_stiff_stops_with_an_implicit_step():
    """Rosenbrock's method knows the slopes of stops: what lies on one settles in steps far too long for RK4."""
    b = qddot.Builder("weight").link("block", 2.0, inertia=BALL)
    weight = b.joint("rail", "world", "block", Prismatic(), lower=0.0).robot()
    run = weight.simulate([-1.9e-6], [0.0], dt=0.01, steps=300, integrator="rosenbrock", limits=Stops(1e7, 1e5))
    assert run.q[-1, 0] == pytest.approx(-2.0 * 9.81 / 1e7, rel=1e-6)


# ---- forces that saturate


def test_saturated_arrays_and_laws(arm):
    rng = np.random.default_rng(0)
    u = 30.0 * rng.standard_normal((4, 50, 3))
    q, v = np.zeros((4, 3)), np.zeros(3)
    run = arm.simulate(q, v, u, dt=1e-3, steps=50, limits="saturate")
    clipped = np.clip(u, -arm.effort_limit, arm.effort_limit)
    by_hand = arm.simulate(q, v, clipped, dt=1e-3, steps=50, limits="ignore")
    assert np.array_equal(run.q, by_hand.q)
    assert np.array_equal(run.tau, by_hand.tau)
    assert np.array_equal(run.tau[:, 0], clipped[:, 0])
    assert run.info["limits"] == "saturate"

    def law(t, q, v):
        return [100.0 * sin(10.0 * t), 1.0, -50.0]

    run = arm.simulate(q[0], v, law, dt=1e-3, steps=300, limits="saturate")
    close(run.tau[:, 0], np.clip(100.0 * np.sin(10.0 * run.t), -20.0, 20.0))
    assert np.all(run.tau[:, 1:] == [1.0, -50.0])  # the wheel has no limit


def test_prescribed_motion_takes_what_it_takes(arm):
    """Its force is no drive's, so it does not saturate; the other joints' do, and stops are not in tau."""
    run = arm.simulate(
        [0.0, 0.9, 0.0],
        [3.0, 0.0, 0.0],
        lambda t, q, v: [0.0, 50.0, 0.0],
        dt=1e-3,
        steps=20,
        prescribed={"shoulder": lambda t: 3.0 * t + 90.0 * t * t},
        limits=("saturate", "stops"),
    )
    assert np.max(np.abs(run.tau[:, 0])) > 20.0
    assert np.all(run.tau[:, 1] == 5.0)


# ---- what is said


def test_limits_that_are_left_are_said_once():
    rail, start = slider(effort_limit=4.0), ([0.0], [1.0])
    with pytest.warns(
        qddot.QddotWarning, match=r"'rail' of robot 'slider' goes beyond its limits by 0\.7 m; limits='stops'"
    ):
        run = rail.simulate(*start, dt=0.01, steps=100)
    assert run.info["limits"] == "ignore"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rail.simulate(*start, dt=0.01, steps=100)  # it was said
        slider().simulate(*start, dt=0.01, steps=100, limits="ignore")
        slider().simulate(*start, dt=0.01, steps=20)  # it stays inside
    with pytest.warns(qddot.QddotWarning, match=r"goes beyond its effort limit by 1 N; limits='saturate'"):
        slider(effort_limit=4.0).simulate([0.0], [0.0], np.full((3, 1), -5.0), dt=1e-3, steps=3)


def test_limits_are_part_of_what_a_run_is():
    given = ("ignore", "stops", "saturate", ("stops", "saturate"), Stops(1.0), Stops(1.0, 2.0))
    runs = [Rollout(slider(effort_limit=1.0), dt=1e-3, limits=x).identity for x in given]
    assert all(a != b for k, a in enumerate(runs) for b in runs[:k])
    assert runs[0] == Rollout(slider(effort_limit=1.0), dt=1e-3).identity


def test_steps_too_long_for_a_stop(arm):
    with pytest.warns(qddot.QddotWarning, match=r"steps of 0\.05 s are too long for 'rk4': the stop of joint '.*' acts at"):
        arm.simulate(np.zeros(3), np.zeros(3), dt=0.05, steps=2, limits="stops")
    rail = slider()
    rollout = Rollout(rail, dt=1e-3, limits=Stops(2.0 * 100.0**2, 0.0))
    assert stiffness.limit(rollout, rollout.start([0.0], [0.0])).step == pytest.approx(math.sqrt(8.0) / 100.0, rel=1e-3)


WRONG = {
    "name": ("stop", "limits='stop' is not known; take 'ignore', 'stops', 'saturate'"),
    "both at once": (("ignore", "stops"), "is not known"),
    "number": (3.0, "limits=3.0 is not known"),
    "negative": (Stops(-1.0), "the stiffness of stops is -1.0; give a number of zero or more"),
    "NaN": (Stops(1.0, math.nan), "the damping of stops is nan"),
    "shape": (Stops([1.0, 2.0]), r"one a degree of freedom: \(3,\)"),
    "text": (Stops("hard"), "the stiffness of stops is 'hard'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_limits(arm, name):
    given, text = WRONG[name]
    with pytest.raises(qddot.InputError, match=text):
        arm.simulate(np.zeros(3), np.zeros(3), dt=1e-3, steps=1, limits=given)


def test_a_robot_without_limits():
    """Nothing to do is no error: the same call runs for every robot."""
    robot = qddot.chain(3)
    q, v = robot.random_state(0)
    given = {"dt": 1e-3, "steps": 5}
    run = robot.simulate(q, v, limits=("stops", "saturate"), **given)
    assert np.array_equal(run.q, robot.simulate(q, v, **given).q)
    assert run.info["limits"] == "stops and saturate"


def test_loops_have_stops():
    """A four-bar's crank against its stop, with the loop closed."""
    bar = qddot.load("fourbar")
    model, i = bar.model, 1
    limits = (*model.limits[:i], model.limits[i]._replace(lower=(-0.1,), upper=(0.1,)), *model.limits[i + 1 :])
    held = qddot.Robot(dataclasses.replace(model, limits=limits))
    q = held.close_loops(np.zeros(held.nv))[0]
    run = held.simulate(q, np.zeros(held.nv), dt=1e-4, steps=6000, record=200, limits="stops")
    k = held.q_index[held.joint_names[0]]
    assert 0.1 < np.max(np.abs(run.q[:, k])) < 0.12
    assert np.max(run.channels["drift"]) < 1e-6
