"""Rollouts in float32: near those of float64, the same bits in any batch, time that does not drift, recordings."""

import numpy as np
import pytest

import qddot
from qddot.joints import Prismatic
from qddot.robots.generators import random_tree
from qddot.scalars import less, sin, where
from qddot.simulation import Rollout, forces
from qddot.simulation.integrators import INTEGRATORS
from qddot.simulation.recorded import record_simulation
from tests.support.mechanisms import MOVING
from tests.support.targets import restricted

EXPLICIT = [name for name, x in INTEGRATORS.items() if not x.implicit]


def states(robot, count=37):
    rng = np.random.default_rng(0)
    pairs = [robot.random_state(rng) for _ in range(count)]
    return np.stack([q for q, _ in pairs]), np.stack([0.3 * v for _, v in pairs])


def near(single, double, tolerance):
    assert single.dtype == np.float32
    assert np.max(np.abs(single - double)) <= tolerance * max(1.0, np.max(np.abs(double)))


@pytest.mark.parametrize("integrator", EXPLICIT)
@pytest.mark.parametrize("name", ["scara", "quadruped"])
def test_near_to_float64(name, integrator):
    """Fifty steps, each of which rounds the state to 6e-8."""
    robot = qddot.load(name, passive_forces=False)
    q, v = states(robot)
    u = np.random.default_rng(1).standard_normal((50, robot.nv))
    given = {"dt": 1e-3, "steps": 50, "record": 10, "integrator": integrator}
    single, double = (robot.simulate(q, v, u, dtype=t, **given) for t in (np.float32, "float64"))
    assert single.t.dtype == np.float64
    assert np.array_equal(single.t, double.t)
    near(single.q, double.q, 1e-5)
    near(single.v, double.v, 1e-3)  # times the condition of M, some thousand
    assert np.array_equal(single.tau, double.tau.astype(np.float32))


@pytest.mark.parametrize("integrator", EXPLICIT)
def test_every_kind_of_input(integrator):
    """Laws, inputs, forces and free parameters, on joints of every kind."""
    robot = qddot.Robot(random_tree(5, rng=1, kinds=MOVING, mimic=True).model())
    q, v = states(robot, 3)
    u = np.random.default_rng(1).standard_normal((3, 20, 2))

    def law(t, q, v, u):
        return [u[0] * sin(t), where(less(v[1], 0.0), u[1], 0.1), *[0.0] * (robot.nv - 2)]

    last = robot.link_names[-1]
    given = {
        "inputs": u,
        "forces": [forces.spring(robot, "world", last, 10.0, damping=0.5)],
        "free": {f"{last}.mass": [1.0, 1.1, 1.2]},
        "t0": 0.5,
        "dt": 1e-4,
        "steps": 20,
        "integrator": integrator,
    }
    single, double = (robot.simulate(q, v, law, dtype=t, **given) for t in ("float32", "float64"))
    near(single.q, double.q, 1e-4)
    near(single.v, double.v, 1e-3)
    near(single.tau, double.tau, 1e-6)


@pytest.mark.parametrize("integrator", ["rk4", "ab4"])
def test_the_same_bits(integrator):
    """Whatever the size of the batch, the place in it, the lanes, and the pieces a run is cut into."""
    robot = qddot.load("puma560", passive_forces=False)
    q, v = states(robot)
    u = np.random.default_rng(2).standard_normal((len(q), 40, 6))
    given = {"dt": 1e-3, "integrator": integrator, "dtype": "float32"}
    whole = robot.simulate(q, v, u, steps=40, record=5, **given)
    for some in (slice(7, 8), slice(5, 16), slice(0, 33)):
        assert np.array_equal(robot.simulate(q[some], v[some], u[some], steps=40, record=5, **given).q, whole.q[some])
    assert np.array_equal(robot.simulate(q[7], v[7], u[7], steps=40, record=5, **given).v, whole.v[7])
    rollout = Rollout(robot, u, **given)
    progress, parts = rollout.start(q, v), []
    for steps in (2, 9, 1, 28):
        progress, part, _ = rollout.run(progress, steps, 5)
        parts.append(part)
    assert progress.state.dtype == np.float32
    assert np.array_equal(np.concatenate(parts, axis=-2), whole.q[:, 1:])
    for lanes in (1, 2, 4):  # of doubles
        with restricted(lanes):
            fresh = qddot.load("puma560", passive_forces=False)
            assert np.array_equal(fresh.simulate(q, v, u, steps=40, record=5, **given).q, whole.q)


def test_progress_of_another_precision_is_rounded():
    robot = qddot.load("scara")
    q, v = robot.random_state(0)
    wide, narrow = (Rollout(robot, dt=1e-4, dtype=t) for t in ("float64", "float32"))
    progress, _, _ = narrow.run(wide.start(q, v), 3)
    assert np.array_equal(progress.state, narrow.run(narrow.start(q, v), 3)[0].state)


def slider():
    b = qddot.Builder("slider")
    b.link("mass", mass=1.0)
    b.joint("slide", "world", "mass", Prismatic((1.0, 0.0, 0.0)))
    return b.robot()


def test_time_does_not_drift():
    """A joint that goes where the clock is, for a million steps: sums of float32 would be off by seconds."""
    run = slider().simulate(
        [0.0], [1.0], dt=1e-3, steps=1_000_000, record=1000, prescribed={"slide": lambda t: t}, dtype="float32"
    )
    assert np.max(np.abs(run.q[:, 0] - run.t)) <= 2 * np.spacing(np.float32(1000.0))


def test_loops_stay_closed():
    robot = qddot.load("fivebar")
    q = robot.close_loops(robot.neutral())[0]
    v = robot.project_velocity(q, np.ones(robot.nv))
    single, double = (robot.simulate(q, v, dt=1e-3, steps=200, dtype=t) for t in ("float32", "float64"))
    near(single.q, double.q, 1e-4)
    assert np.max(single.channels["drift"]) < 1e-6
    assert np.max(single.channels["drift_rate"]) < 1e-4


def test_recorded_and_gone_on_with(tmp_path):
    robot = qddot.load("scara")
    q, v = states(robot, 3)
    given = {"dt": 1e-4, "steps": 30, "dtype": np.float32, "progress": False}
    run = record_simulation(robot, tmp_path / "run", q, v, chunk=7, **given)
    whole = robot.simulate(q, v, dt=1e-4, steps=30, dtype="float32")
    assert run.q.dtype == run.v.dtype == run.tau.dtype == np.float32
    assert np.array_equal(run.q, whole.q)
    (tmp_path / "run" / "chunk-000004.npz").write_bytes(b"damaged")
    with pytest.warns(qddot.QddotWarning, match="computed again"):
        assert np.array_equal(record_simulation(robot, tmp_path / "run", q, v, chunk=7, **given).v, whole.v)
    with pytest.raises(qddot.InputError, match='dtype was "float32" and is "float64"'):
        record_simulation(robot, tmp_path / "run", q, v, chunk=7, **{**given, "dtype": "float64"})


def test_trajectories_keep_their_precision(tmp_path):
    robot = qddot.load("scara")
    run = robot.simulate(*robot.random_state(0), dt=1e-4, steps=30, dtype="float32")
    run.save(tmp_path / "folder")
    found = qddot.load_trajectory(tmp_path / "folder", robot)
    assert found.q.dtype == np.float32
    assert np.array_equal(found.q, run.q)
    run.save(tmp_path / "table.csv", "q")
    rows = np.loadtxt(tmp_path / "table.csv", delimiter=",", skiprows=1)
    assert np.array_equal(rows[:, 1:].astype(np.float32), run.q)
    assert run.resampled([5e-5]).q.dtype == np.float64
    assert run.energy.dtype == np.float64


WRONG = {
    "implicit": ({"integrator": "rosenbrock"}, "integrator 'rosenbrock' solves equations in float64 only"),
    "variational": ({"integrator": "variational"}, "float64 only; take dtype='float64', or rk4"),
    "adaptive": ({"integrator": "DOP853"}, "'DOP853' is SciPy's, in float64 only"),
    "half": ({"dtype": "float16"}, "dtype='float16' is not known"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_refused(what):
    given, message = WRONG[what]
    with pytest.raises(qddot.InputError) as error:
        slider().simulate([0.0], [0.0], **{"dt": 0.01, "steps": 10, "dtype": "float32", **given})
    assert message in str(error.value)


def test_python_steps_in_float64():
    eager = qddot.Robot(slider().model, compiled=False)
    with pytest.raises(qddot.InputError, match="not compiled steps in float64 only; take dtype='float64'"):
        eager.simulate([0.0], [0.0], dt=0.01, steps=10, dtype="float32")
