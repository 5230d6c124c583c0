"""Rollouts: compiled against read, the same bits everywhere, controls, forces, loops, events, and wrong use."""

import importlib.util
import math

import mpmath
import numpy as np
import pytest

import qddot
from qddot.joints import Free, Prismatic, Revolute
from qddot.robots.generators import random_tree
from qddot.scalars import cos, less, sin, sqrt, where
from qddot.simulation import Event, Rollout, controls, forces, joint_limits
from qddot.simulation.integrators import INTEGRATORS
from tests.support.mechanisms import MOVING
from tests.support.peers import peer
from tests.support.real_robots import URDFS, WHY
from tests.support.tolerances import ROUNDING

needs_scipy = pytest.mark.skipif(
    not importlib.util.find_spec("scipy"), reason="SciPy, of the extra [sim], is not installed"
)


def close(x, y, tolerance=ROUNDING):
    assert np.max(np.abs(np.asarray(x) - y)) <= tolerance * max(1.0, np.max(np.abs(y)))


@pytest.fixture(scope="module")
def arm():
    return qddot.load("puma560", passive_forces=False)


@pytest.fixture(scope="module")
def batch(arm):
    rng = np.random.default_rng(0)
    states = [arm.random_state(rng) for _ in range(21)]
    return np.stack([q for q, _ in states]), np.stack([0.3 * v for _, v in states])


def small_floating():
    b = qddot.Builder("small")
    b.link("base", mass=2.0, com=(0.1, 0.0, 0.0), inertia=(0.1, 0.0, 0.0, 0.2, 0.0, 0.25))
    b.link("arm", mass=1.0, com=(0.0, 0.1, 0.3), inertia=(0.1, 0.0, 0.0, 0.12, 0.0, 0.15))
    b.joint("base", "world", "base", Free())
    b.joint("hinge", "base", "arm", Revolute((0.0, 1.0, 0.0)), qddot.pose((0.3, 0.1, 0.2)), damping=0.1)
    b.frame("foot", "arm", qddot.pose((0.0, 0.0, 0.5)))
    return b.robot()


# ---- compiled against read -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_compiled_is_what_is_read(integrator):
    """The kernel of a step against the same Python run on floats, with every kind of input at once."""
    robot = small_floating()
    read = qddot.Robot(robot.model, compiled=False)
    q, v = robot.random_state(3)

    def law(t, q, v, u):
        return [u[0] * sin(t), 0.0, 0.0, 0.0, 0.0, u[1] - 0.1 * v[5], where(less(v[6], 0.0), -0.2 * v[6], -0.1 * v[6])]

    given = {
        "inputs": np.random.default_rng(1).standard_normal((6, 2)),
        "forces": [
            forces.spring(robot, "world", "foot", 10.0, damping=0.5),
            forces.wind(robot, (1.0, 0.0, 0.0), {"arm": 0.2}),
        ],
        "free": {"arm.mass": 1.3, "hinge.damping": 0.2},
        "t0": 0.5,
    }
    one, other = (r.simulate(q, v, law, dt=0.01, steps=6, integrator=integrator, record=2, **given) for r in (robot, read))
    assert one.q.shape == (4, 8)
    assert one.t.tolist() == pytest.approx([0.5, 0.52, 0.54, 0.56])
    for a, b in ((one.q, other.q), (one.v, other.v), (one.tau, other.tau)):
        close(a, b)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("integrator", ["rk4", "rkmk4"])
def test_trees_of_all_joints(seed, integrator):
    """Joints of every kind, mimic joints, springs and dampers: compiled against read, and near to where v alone leads."""
    model = random_tree(5, rng=seed, kinds=MOVING, mimic=seed % 2 == 1).model()
    q, v = qddot.Robot(model).random_state(seed)
    runs = [qddot.Robot(model, c).simulate(q, 0.1 * v, dt=1e-4, steps=3, integrator=integrator) for c in (True, False)]
    close(runs[0].q, runs[1].q)
    close(runs[0].v, runs[1].v, 1e-9)  # through masses of very different sizes
    moved = qddot.Robot(model, False).integrate(q, 0.1 * v, 3e-4)
    assert np.max(np.abs(qddot.Robot(model).difference(moved, runs[0].q[-1]))) < 1e-3


def test_one_step_is_the_formula(arm, batch):
    """Semi-implicit Euler by hand: the loop over time adds nothing of its own."""
    q, v = batch[0][0], batch[1][0]
    tau = np.arange(6.0)
    run = arm.simulate(q, v, np.tile(tau, (3, 1)), dt=0.01, steps=3, integrator="semi_implicit_euler")
    for k in range(3):
        v = v + 0.01 * arm.forward_dynamics(q, v, tau)
        q = arm.integrate(q, v, 0.01)
        close(run.q[k + 1], q)
        close(run.v[k + 1], v)


# ---- the same bits -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("integrator", ["rk4", "ab4"])
def test_the_same_bits(arm, batch, integrator):
    """Whatever the size of the batch, the place in it, the threads, and the pieces a run is cut into."""
    q, v = batch
    u = np.random.default_rng(2).standard_normal((21, 40, 6))
    given = {"dt": 1e-3, "integrator": integrator}
    whole = arm.simulate(q, v, u, steps=40, record=5, **given)
    alone = arm.simulate(q[7], v[7], u[7], steps=40, record=5, **given)
    some = arm.simulate(q[5:16], v[5:16], u[5:16], steps=40, record=5, **given)
    assert np.array_equal(whole.q[7], alone.q)
    assert np.array_equal(whole.v[5:16], some.v)
    rollout = Rollout(arm, u, **given)
    progress, parts = rollout.start(q, v), []
    for steps in (2, 9, 1, 28):
        progress, part, _ = rollout.run(progress, steps, 5)
        parts.append(part)
    assert np.array_equal(np.concatenate(parts, axis=-2), whole.q[:, 1:])
    assert progress.step == 40


@pytest.mark.parametrize("integrator", ["rk4", "rkmk4", "ab4", "variational", "rosenbrock"])
def test_steps_that_call_functions(integrator, monkeypatch):
    """A step whose derivative is code of its own gives what one long program gives, and the same bits in any batch."""
    from qddot.simulation import rollout

    q, v = (np.stack(x) for x in zip(*(small_floating().random_state(k) for k in range(11)), strict=True))
    u = np.random.default_rng(1).standard_normal((11, 5, 7))
    runs = []
    for large in (0,) if integrator == "variational" else (0, 10**9):  # whose long program takes long to compile
        monkeypatch.setattr(rollout, "MAX_INLINE_OPS", large)
        robot = small_floating()
        made = Rollout(robot, u, dt=0.01, integrator=integrator, free={"arm.mass": 1.0 + 0.1 * np.arange(11)})
        assert bool(made._traced_step(False).calls) == (large == 0 and INTEGRATORS[integrator].evaluations > 1)
        runs.append(made.run(made.start(q, v), 5)[0].state)
        alone = Rollout(robot, u[9], dt=0.01, integrator=integrator, free={"arm.mass": 1.9})
        assert np.array_equal(alone.run(alone.start(q[9], v[9]), 5)[0].state, runs[-1][9])
    close(runs[0], runs[-1])


def test_the_same_bits_on_threads(arm):
    q, v = (np.tile(x, (300, 1)) for x in arm.random_state(1))
    q = q + 0.001 * np.arange(300)[:, None]
    before = qddot.get_num_threads()
    try:
        ends = []
        for threads in (1, 2, 3):
            qddot.set_num_threads(threads)
            ends.append(arm.simulate(q, v, dt=1e-3, steps=30, record="end").q)
    finally:
        qddot.set_num_threads(before)
    assert np.array_equal(ends[0], ends[1])
    assert np.array_equal(ends[0], ends[2])


def test_nan_spoils_its_own_sample(arm, batch):
    q, v = batch[0].copy(), batch[1]
    q[4, 2] = math.nan
    run, clean = (arm.simulate(x, v, dt=1e-3, steps=20, record="end") for x in (q, batch[0]))
    assert np.isnan(run.q[4, -1]).any()
    assert np.array_equal(np.delete(run.q, 4, axis=0), np.delete(clean.q, 4, axis=0))


def test_shapes_broadcast(arm):
    """Batches of states, of controls and of parameters."""
    q, v = arm.random_state(0)
    mass = np.array([[1.0], [2.0], [3.0]])
    link = arm.link_names[3]
    run = arm.simulate(q, v, np.zeros((4, 10, 6)), dt=1e-3, steps=10, free={f"{link}.mass": mass})
    assert run.q.shape == (3, 4, 11, 6)
    assert run.tau.shape == (3, 4, 11, 6)
    heavy = arm.with_parameters({f"{link}.mass": 3.0}).simulate(q, v, dt=1e-3, steps=10)
    close(run.q[2, 1], heavy.q)
    assert arm.simulate(np.zeros((0, 6)), np.zeros((0, 6)), dt=1e-3, steps=10).q.shape == (0, 11, 6)


# ---- controls ------------------------------------------------------------------------------------------------------------


def test_computed_torque_follows(arm):
    """The error dies out as ë + 20 ė + 100 e = 0 says, whatever the arm."""

    def wanted(t):
        return [0.5 * sin(t + k) for k in range(6)]

    q0 = 0.5 * np.sin(np.arange(6)) + 0.1
    law = controls.computed_torque(arm, wanted, 100.0, 20.0)
    run = arm.simulate(q0, 0.5 * np.cos(np.arange(6)), law, dt=1e-3, steps=1000, record=10)
    t = run.t[:, None]
    error = run.q - 0.5 * np.sin(t + np.arange(6))
    close(error, 0.1 * (1.0 + 10.0 * t) * np.exp(-10.0 * t) * np.ones(6), 1e-9)
    e, rate = error, run.v - 0.5 * np.cos(t + np.arange(6))
    a = -0.5 * np.sin(t + np.arange(6)) - 20.0 * rate - 100.0 * e
    close(run.tau, arm.inverse_dynamics(run.q, run.v, a), 1e-9)


def test_pd_with_gravity_compensation(arm):
    hold = controls.gravity_compensation(arm)
    q0 = np.array([0.1, -0.4, 0.3, 0.2, 0.1, 0.0])
    pd = controls.pd(arm, q0, 300.0, 60.0)
    run = arm.simulate(
        q0 + 0.1, np.zeros(6), lambda t, q, v: hold(t, q, v) + pd(t, q, v), dt=1e-3, steps=4000, record="end"
    )
    close(run.q[-1], q0, 1e-3)
    still = arm.simulate(q0, np.zeros(6), hold, dt=1e-3, steps=100, record="end")
    close(still.q[-1], q0, 1e-12)


def test_controls_that_are_arrays_are_held_for_a_step():
    b = qddot.Builder("slide")
    b.link("box", mass=2.0, inertia=(1.0, 0.0, 0.0, 1.0, 0.0, 1.0))
    b.joint("x", "world", "box", Prismatic((1.0, 0.0, 0.0)))
    u = np.array([[2.0], [-4.0], [0.0], [6.0]])
    run = b.robot().simulate([0.0], [0.0], u, dt=0.5, steps=4)
    close(run.v[:, 0], np.cumsum([0.0, 0.5, -1.0, 0.0, 1.5]))
    close(run.tau[:, 0], [2.0, -4.0, 0.0, 6.0, 6.0])


@needs_scipy
def test_prescribed_motion(arm):
    """A joint goes where it is told, and its force is what inverse dynamics says."""
    q0, v0 = np.array([0.0, -0.5, 0.3, 0.2, 0.4, 0.1]), np.array([0.5, 0.0, 0.0, 0.0, 0.0, 0.0])
    motion = {arm.joint_names[0]: lambda t: 0.5 * sin(t)}
    run = arm.simulate(q0, v0, dt=1e-3, steps=400, record=100, prescribed=motion)
    close(run.q[:, 0], 0.5 * np.sin(run.t))
    close(run.v[:, 0], 0.5 * np.cos(run.t))
    assert np.all(run.tau[:, 1:] == 0.0)
    a, tau = arm.hybrid_dynamics(run.q, run.v, -0.5 * np.sin(run.t)[:, None] * np.eye(6)[0], 0.0 * run.v, prescribed=[0])
    close(run.tau, tau)
    close(arm.inverse_dynamics(run.q, run.v, a), run.tau)
    fine = arm.simulate(q0, v0, dt=0.1, steps=4, integrator="DOP853", prescribed=motion, rtol=1e-12, atol=1e-12)
    close(run.q, fine.q, 1e-9)


# ---- forces --------------------------------------------------------------------------------------------------------------


def test_spring_conserves_energy_and_damper_takes_it():
    robot = small_floating()
    robot = qddot.Robot(robot.model.without_passive_forces())
    q, v = robot.random_state(2)
    v[:] *= 0.2
    for length in (0.0, 0.4):
        pull = forces.spring(robot, "world", "foot", 50.0, length=length, position_a=(0.3, 0.2, 1.0))
        run = robot.simulate(q, v, forces=pull, dt=1e-3, steps=1000, record=20)
        foot = robot.pose(run.q, "foot")[..., :3, 3]
        far = np.linalg.norm(foot - [0.3, 0.2, 1.0], axis=-1) - length
        E = robot.kinetic_energy(run.q, run.v) + robot.potential_energy(run.q) + 25.0 * far**2
        close(E, E[0], 1e-8)
    damped = forces.spring(robot, "world", "foot", 50.0, damping=5.0, position_a=(0.3, 0.2, 1.0))
    run = robot.simulate(q, v, forces=damped, dt=1e-3, steps=1000, record=20)
    foot = robot.pose(run.q, "foot")[..., :3, 3]
    E = robot.kinetic_energy(run.q, run.v) + robot.potential_energy(run.q)
    E = E + 25.0 * np.sum((foot - [0.3, 0.2, 1.0]) ** 2, axis=-1)
    assert np.all(np.diff(E) < 1e-9)


def test_forces_see_free_parameters():
    """A spring pulls where the sample's own hinge is; prescribed motion takes the force of the sample's own mass."""
    robot = qddot.Robot(small_floating().model.without_passive_forces())
    q, v = robot.random_state(2)
    v[6], q[7] = 0.5, 0.0
    given = {"dt": 1e-3, "steps": 20, "record": "end", "prescribed": {"hinge": lambda t: 0.5 * sin(t)}}
    free = {"arm.position": [[0.3, 0.1, 0.2], [0.5, -0.1, 0.4]], "arm.mass": [1.0, 2.0]}
    pull = forces.spring(robot, "world", "foot", 50.0)
    runs = [r.simulate(q, v, forces=pull, free=free, **given) for r in (robot, qddot.Robot(robot.model, compiled=False))]
    for k in (0, 1):
        own = robot.with_parameters({name: x[k] for name, x in free.items()})
        alone = own.simulate(q, v, forces=forces.spring(own, "world", "foot", 50.0), **given)
        for run in runs:
            close(run.q[k], alone.q)
            close(run.tau[k], alone.tau)


def box():
    b = qddot.Builder("box")
    b.link("box", mass=2.0, inertia=(0.1, 0.0, 0.0, 0.1, 0.0, 0.1))
    b.joint("free", "world", "box", Free())
    return b.robot()


def test_ground_carries_and_rubs():
    robot, state = box(), np.zeros(6)
    corners = [("box", (x, y, -0.1)) for x in (-0.2, 0.2) for y in (-0.2, 0.2)]
    floor = forces.ground(robot, corners, stiffness=1e4, damping=0.5, friction=0.5, slip=1e-3)
    q = robot.neutral()
    q[2] = 0.12
    rest = robot.simulate(q, state, forces=floor, dt=1e-4, steps=20000, record="end")
    depth = (2.0 * 9.81 / 4.0 / 1e4) ** (2.0 / 3.0)
    close(rest.q[-1, 2], 0.1 - depth, 1e-5)
    v = np.array([0.0, 0.0, 0.0, 2.0, 0.0, 0.0])
    slide = robot.simulate(rest.q[-1], v, forces=floor, dt=1e-4, steps=3000, record="end")
    close(slide.v[-1, 3], 2.0 - 0.5 * 9.81 * 0.3, 1e-2)
    away = forces.ground(robot, corners, height=-5.0)
    fall = robot.simulate(q, state, forces=away, dt=1e-3, steps=100, record="end")
    close(fall.q[-1, 2], 0.12 - 0.5 * 9.81 * 0.1**2)


def test_wind_and_a_force_of_ones_own():
    """Terminal velocity in still air, and a law at a point."""
    robot = box()
    q = robot.neutral()
    run = robot.simulate(q, np.zeros(6), forces=forces.wind(robot, (0.0, 0.0, 0.0), {"box": 0.5}), dt=0.01, steps=1000)
    close(run.v[-1, 5], -math.sqrt(2.0 * 9.81 / 0.5), 1e-9)
    push = forces.at_point(robot, "box", lambda t, x, u: (cos(t), 0.0, 2.0 * 9.81), (0.0, 0.0, 0.0))
    run = robot.simulate(q, np.zeros(6), forces=push, dt=0.01, steps=100, record="end")
    close(run.q[-1, 0], (1.0 - math.cos(1.0)) / 2.0, 1e-9)
    close(run.q[-1, 2], 0.0)


# ---- loops ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fivebar():
    robot = qddot.load("fivebar", passive_forces=False)
    q, _ = robot.close_loops(robot.neutral() + 0.1)
    return robot, q, robot.project_velocity(q, [1.0, 0.0, 0.0, 0.0])


@needs_scipy
def test_loops_stay_closed(fivebar):
    """Projection keeps them to rounding, Baumgarte's terms to the error of a step; without either they drift."""
    robot, q, v = fivebar
    fine = robot.simulate(q, v, dt=0.1, steps=10, integrator="DOP853", rtol=1e-11, atol=1e-11)
    drift = {}
    for kind in ("projection", "baumgarte", "none"):
        errors = []
        for dt in (1e-3, 5e-4):
            run = robot.simulate(q, v, dt=dt, steps=round(1 / dt), record=round(0.1 / dt), constraints=kind)
            errors.append(np.max(np.abs(run.q - fine.q)))
        drift[kind] = np.max(run.channels["drift"])
        assert errors[1] < 2e-5
        assert errors[0] > 12.0 * errors[1]  # order 4
    assert drift["projection"] < 1e-13
    assert drift["projection"] < drift["baumgarte"] < drift["none"]
    assert np.max(fine.channels["drift"]) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fourbar", "delta", "stewart"])
def test_mechanisms_stay_closed(name):
    robot = qddot.load(name, passive_forces=False)
    q, _ = robot.close_loops(robot.neutral())
    v = robot.project_velocity(q, 0.3 * np.random.default_rng(0).standard_normal(robot.nv))
    run = robot.simulate(q, v, dt=5e-4, steps=1000, record=100)
    assert np.max(run.channels["drift"]) < 1e-13
    assert np.max(run.channels["drift_rate"]) < 1e-12
    E = robot.kinetic_energy(run.q, run.v) + robot.potential_energy(run.q)
    close(E, E[0], 1e-6)


def test_energy_of_a_closed_loop(fivebar):
    robot, q, v = fivebar
    run = robot.simulate(q, v, dt=5e-4, steps=2000, record=100)
    E = robot.kinetic_energy(run.q, run.v) + robot.potential_energy(run.q)
    close(E, E[0], 1e-8)
    assert np.max(run.channels["drift_rate"]) < 1e-12


def test_closed_loops_in_a_batch_with_forces(fivebar):
    robot, q, v = fivebar
    read = qddot.Robot(robot.model, compiled=False)
    hold = controls.pd(robot, q, [5.0, 0.0, 0.0, 5.0], 0.1)
    pull = forces.spring(robot, "world", robot.link_names[1], 2.0)
    one, other = (
        r.simulate(np.stack([q] * 3), v, hold, forces=pull, dt=1e-3, steps=4, constraints="baumgarte")
        for r in (robot, read)
    )
    close(one.q, other.q)
    close(one.v, other.v)


@pytest.mark.parametrize("names", [("com",), ("mass", "com"), ("inertia",)], ids="+".join)
def test_parameters_that_samples_share(names):
    """A batch with one value for all is what each sample gives alone, and what copies of the value give."""
    robot, rng = qddot.chain(3, rng=0), np.random.default_rng(0)
    q, v = rng.standard_normal((2, 19, 3))
    own = {f"link3.{name}": 1.1 * robot.parameters(f"link3.{name}") + 0.01 for name in names}
    run = robot.simulate(q, v, dt=1e-3, steps=10, free=own)
    copies = {name: np.tile(x, (19, *(1,) * np.ndim(x))) for name, x in own.items()}
    assert np.array_equal(run.q, robot.simulate(q, v, dt=1e-3, steps=10, free=copies).q)
    assert np.array_equal(run.q[7], robot.simulate(q[7], v[7], dt=1e-3, steps=10, free=own).q)


# ---- adaptive, events ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["DOP853", "Radau", "LSODA"])
@needs_scipy
def test_pendulum_by_scipy(method):
    """Against Jacobi's functions, and the time of the crossing against the complete elliptic integral."""
    robot, amplitude = qddot.load("pendulum"), 1.2
    m, w = math.sin(0.5 * amplitude) ** 2, math.sqrt(9.81)
    event = Event("down", lambda t, q, v: q[0])
    run = robot.simulate([amplitude], [0.0], dt=0.1, steps=20, integrator=method, rtol=1e-11, atol=1e-12, events=[event])
    quarter = float(mpmath.ellipk(m)) / w
    exact = [2.0 * math.asin(math.sqrt(m) * float(mpmath.ellipfun("sn", (quarter - t) * w, m=m))) for t in run.t]
    close(run.q[:, 0], exact, 1e-8)
    assert [e["t"] for e in run.info["events"]["down"]] == pytest.approx([quarter, 3 * quarter], abs=1e-8)
    assert run.info["evaluations"] > 0


@needs_scipy
def test_joint_limits_stop(arm):
    robot = arm
    run = robot.simulate(np.zeros(6), np.zeros(6), dt=0.01, steps=300, integrator="DOP853", events=joint_limits(robot))
    ((name, found),) = [(n, e) for n, e in run.info["events"].items() if e]
    joint, end = name.split()
    i, k = robot.model.joint_index(joint), robot.q_index[joint]
    close(found[0]["q"][k], getattr(robot.model.limits[i], end)[0], 1e-9)
    assert run.t[-1] <= found[0]["t"] < run.t[-1] + 0.01
    assert len(run.q) == len(run.t) == len(run.tau)
    many = robot.simulate(
        np.zeros((2, 6)), np.zeros(6), dt=0.01, steps=300, integrator="DOP853", events=joint_limits(robot)
    )
    assert many.q.shape == (2, 301, 6)
    assert np.array_equal(many.q[1, : len(run.q)], run.q)
    assert np.isnan(many.q[:, -1]).all()


@needs_scipy
def test_a_sample_that_gets_stuck():
    """x' = x² is infinite after a second: alone that is an error, in a batch the other samples come through."""
    b = qddot.Builder("slide")
    b.link("box", mass=1.0, inertia=(1.0, 0.0, 0.0, 1.0, 0.0, 1.0))
    b.joint("x", "world", "box", Prismatic((1.0, 0.0, 0.0)))
    robot = b.robot()
    given = {"dt": 0.4, "steps": 5, "integrator": "DOP853"}

    def law(t, q, v):
        return v * v * where(less(0.0, v[0]), 1.0, 0.0)

    with pytest.raises(qddot.InputError, match=r"stopped after t = 0\.8"):
        robot.simulate([0.0], [1.0], law, **given)
    with pytest.warns(qddot.QddotWarning, match=r"sample \(0,\)"):
        run = robot.simulate([[0.0], [0.0], [math.nan]], [[1.0], [-1.0], [0.0]], law, **given)
    close(run.v[1, :, 0], -1.0)
    assert np.isnan(run.v[0, -1]).all()
    assert np.isnan(run.v[2, -1]).all()


def test_the_jacobian_is_exact():
    """∂ẏ/∂y of the compiled kernel against central differences, quaternions included."""
    from qddot.simulation import adaptive

    robot = small_floating()
    rollout = Rollout(robot, lambda t, q, v: [*(-0.1 * v[:6]), sin(t) * q[7]], dt=0.1)
    flow, slopes = adaptive._kernels(rollout, "Radau")
    q, v = robot.random_state(0)
    y, t, h = np.concatenate([q, v]), np.array([0.3]), 1e-6
    J = np.stack([(flow(y + h * e, t) - flow(y - h * e, t)) / (2.0 * h) for e in np.eye(len(y))], axis=-1)
    close(slopes(y, t), J, 1e-8)


@needs_scipy
def test_adaptive_floating_base_and_free_parameters():
    robot = small_floating()
    q, v = robot.random_state(1)
    free = {"arm.mass": [1.0, 2.0]}
    fine = robot.simulate(q, v, dt=0.1, steps=5, integrator="DOP853", rtol=1e-12, atol=1e-12, free=free)
    fixed = robot.simulate(q, v, dt=5e-4, steps=1000, record=200, free=free)
    assert fine.q.shape == (2, 6, 8)
    close(robot.difference(fine.q, fixed.q), 0.0 * v, 1e-9)


# ---- against MuJoCo ------------------------------------------------------------------------------------------------------

BALLS = """<mujoco><worldbody>
<body name="a" pos="0 0 1"><joint name="ja" type="ball"/>
 <inertial pos="0.05 0 -0.2" mass="1.2" fullinertia="0.02 0.025 0.01 0 0.001 0"/>
 <body name="b" pos="0 0 -0.4"><joint name="jb" type="ball"/>
  <inertial pos="0 0.03 -0.15" mass="0.8" fullinertia="0.01 0.012 0.005 0 0 0.0005"/>
  <body name="c" pos="0 0 -0.3"><joint name="jc" type="ball"/>
   <inertial pos="0.02 0 -0.1" mass="0.5" fullinertia="0.004 0.005 0.002 0 0.0002 0"/></body></body></body>
</worldbody></mujoco>"""


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore::qddot.QddotWarning")
@pytest.mark.parametrize(("name", "dt"), [("panda7", 1e-3), ("solo12-floating", 1e-3), ("balls", 2.5e-4)])
def test_mujoco_goes_the_same_way(name, dt, tmp_path):
    """Its RK4 at the same step, 2 s, no contact: 1e-6. Three balls in a row are chaotic: both need shorter steps there."""
    mujoco = peer("mujoco")
    from benchmarks import cases, mujoco_peer
    from qddot import conventions

    if name == "balls":
        (tmp_path / "balls.xml").write_text(BALLS)
        robot, theirs = qddot.load(tmp_path / "balls.xml"), mujoco.MjModel.from_xml_string(BALLS)
    elif not URDFS:
        pytest.skip(WHY)
    else:
        robot = cases.case(name, 1).robot
        theirs = mujoco_peer.to_mujoco(robot.model)
    theirs.opt.integrator, theirs.opt.timestep = mujoco.mjtIntegrator.mjINT_RK4, dt
    theirs.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT
    q, v = robot.random_state(3)
    data, steps = mujoco.MjData(theirs), round(2.0 / dt)
    data.qpos, data.qvel = conventions.to_mujoco_q(robot.model, q), conventions.to_mujoco_v(robot.model, q, v)
    path = [data.qpos.copy()]
    for k in range(1, steps + 1):
        mujoco.mj_step(theirs, data)
        if k % 100 == 0:
            path.append(data.qpos.copy())
    for integrator in ("rk4", "rkmk4"):
        run = robot.simulate(q, v, dt=dt, steps=steps, record=100, integrator=integrator)
        away = robot.difference(conventions.from_mujoco_q(robot.model, np.array(path)), run.q)
        assert np.max(np.abs(away)) < 1e-6


# ---- wrong use -----------------------------------------------------------------------------------------------------------


def branches(t, q, v):
    return -v if q[0] > 0.0 else v


WRONG = {
    "negative dt": ({"dt": -0.1}, "dt is -0.1"),
    "dt not a number": ({"dt": "fast"}, "dt is 'fast'"),
    "no steps": ({"steps": 0}, "steps is 0"),
    "half a step": ({"steps": 2.5}, "steps is 2.5"),
    "record does not divide": ({"record": 3}, "record=3 does not divide the 10 steps"),
    "record negative": ({"record": -1}, "record is -1"),
    "unknown integrator": ({"integrator": "rk5"}, "did you mean 'rk4'"),
    "width of controls": ({"controls": np.zeros((10, 3))}, "controls has shape (10, 3); it must be (..., steps, 6)"),
    "controls too short": ({"controls": np.zeros((4, 6))}, "controls are given for 4 steps; 10 are needed"),
    "controls of letters": ({"controls": "up"}, "controls must be None, an array"),
    "a law that branches": ({"controls": branches}, "qddot.scalars.where"),
    "a law by math": ({"controls": lambda t, q, v: [math.sin(t)] * 6}, "not those of math"),
    "a law of the wrong length": ({"controls": lambda t, q, v: [0.0, 1.0]}, "shape (2,); it must be (6,)"),
    "inputs without a law": ({"inputs": np.zeros((10, 2))}, "there is none"),
    "forces of the wrong shape": ({"forces": lambda t, q, v: np.zeros(6)}, "shape (6,); it must be (6, 6)"),
    "forces that are numbers": ({"forces": [1.0]}, "1.0 is no function"),
    "prescribed and no such joint": ({"prescribed": {"elbow": lambda t: t}}, "has no joint 'elbow'"),
    "prescribed elsewhere": ({"prescribed": {"joint1": lambda t: 1.0 + t}}, "begins at q = 1.0, v = 1.0"),
    "prescribed to implicit": ({"prescribed": {"joint1": lambda t: 0.0 * t}, "integrator": "rosenbrock"}, "take 'rk4'"),
    "free by name only": ({"free": ("inertia",)}, "free= takes names and values"),
    "free of the wrong shape": ({"free": {"inertia": np.zeros(10)}}, "its last axes must be (6, 10)"),
    "constraints": ({"constraints": "glue"}, "take 'projection', 'baumgarte', 'none'"),
    "gains without loops": ({"gains": (1.0, 1.0)}, "has none"),
    "tolerances of a fixed step": ({"rtol": 1e-6}, "rtol= is for the integrators DOP853"),
    "arrays to an adaptive one": ({"controls": np.zeros((10, 6)), "integrator": "DOP853"}, "as a function of (t, q, v)"),
    "events that are none": ({"events": [3], "integrator": "LSODA"}, "3 is no qddot.simulation.Event"),
    "state": ({"q0": np.zeros(5)}, "q has shape (5,)"),
    "complex state": ({"q0": np.zeros(6) + 1j}, "real numbers"),
    "batches": ({"q0": np.zeros((2, 6)), "v0": np.zeros((3, 6))}, "do not fit together"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_use(arm, what):
    given, message = WRONG[what]
    names = dict(zip(("joint1",), arm.joint_names, strict=False))
    given = {k: {names.get(n, n): f for n, f in v.items()} if k == "prescribed" else v for k, v in given.items()}
    call = {"q0": np.zeros(6), "v0": np.zeros(6), "dt": 0.01, "steps": 10} | given
    with pytest.raises(qddot.QddotError) as error:
        arm.simulate(**call)
    assert message in str(error.value)


def test_an_unknown_option_is_named_with_the_one_that_may_be_meant(arm):
    for given, meant in (("control", "controls"), ("force", "forces"), ("limit", "limits")):
        text = rf"simulate\(\) got an unexpected keyword argument '{given}'; did you mean '{meant}'"
        with pytest.raises(TypeError, match=text):
            arm.simulate(np.zeros(6), np.zeros(6), dt=0.01, steps=10, **{given: None})


def test_wrong_robots(fivebar):
    robot, q, v = fivebar
    with pytest.raises(qddot.InputError, match=r"are open at the start.*robot.close_loops"):
        robot.simulate(q + 0.1, v, dt=1e-3, steps=10)
    with pytest.raises(qddot.InputError, match="take constraints='baumgarte'"):
        robot.simulate(q, v, dt=1e-3, steps=10, integrator="DOP853", constraints="projection")
    with pytest.raises(qddot.InputError, match="does not do loops"):
        robot.simulate(q, v, dt=1e-3, steps=10, integrator="variational")
    floating = small_floating()
    with pytest.raises(qddot.InputError, match=r"not of unit length.*normalize"):
        floating.simulate(np.zeros(8), np.zeros(7), dt=1e-3, steps=10)
    with pytest.raises(qddot.InputError, match="not the math module"):
        floating.simulate(floating.neutral(), np.zeros(7), dt=1e-3, steps=10, prescribed={"hinge": lambda t: math.exp(t)})


def test_wrong_forces(arm):
    for make, message in (
        (lambda: forces.ground(arm, []), "no points are named"),
        (lambda: forces.ground(arm, ["nowhere"]), "nowhere"),
        (lambda: forces.ground(arm, [arm.link_names[5]], exponent=3.0), "take 1, 1.5 or 2"),
        (lambda: forces.spring(arm, "world", arm.link_names[2], -1.0), "stiffness is -1.0"),
        (lambda: forces.wind(arm, (1.0, 0.0, 0.0), {"world": 1.0}), "does not move"),
        (lambda: controls.pd(arm, np.zeros(5), 1.0, 1.0), "q_ref has shape"),
        (lambda: controls.pd(arm, np.zeros(6), [1.0, 2.0], 1.0), "kp has shape"),
    ):
        with pytest.raises(qddot.QddotError, match=message):
            make()


def test_what_a_law_refers_to_is_read_each_time(arm):
    """A law may depend on things outside of it: nothing old is used when they change."""
    gain = {"k": 1.0}

    def law(t, q, v):
        return -gain["k"] * v

    first = arm.simulate(np.zeros(6), np.ones(6), law, dt=1e-3, steps=10, record="end")
    gain["k"] = 50.0
    second = arm.simulate(np.zeros(6), np.ones(6), law, dt=1e-3, steps=10, record="end")
    close(first.tau[0], -np.ones(6))
    close(second.tau[0], -50.0 * np.ones(6))
    assert np.max(np.abs(first.q[-1] - second.q[-1])) > 1e-4


def test_memory_does_not_fill_with_laws(monkeypatch):
    from qddot.dynamics import pipeline

    monkeypatch.setattr(pipeline, "MAX_KEPT", 3)
    robot = qddot.load("pendulum")
    for k in range(5):
        run = robot.simulate([0.0], [0.0], lambda t, q, v, k=k: [1.0 * k], dt=0.1, steps=1)
        close(run.tau, k)
    assert len(pipeline._loops) <= 3
    assert len(pipeline._kernels) <= 3


def test_scipy_is_an_extra(arm, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "scipy.integrate", None)
    with pytest.raises(qddot.InputError, match=r"qddot\[sim\]"):
        arm.simulate(np.zeros(6), np.zeros(6), dt=0.1, steps=1, integrator="LSODA")


def test_too_large_is_said(monkeypatch):
    from qddot.dynamics import pipeline

    monkeypatch.setattr(pipeline, "MOST_INSTRUCTIONS", 100)
    robot = qddot.load("planar3")
    with pytest.raises(qddot.QddotError, match="compiled=False"):
        robot.simulate(np.zeros(3), np.zeros(3), dt=0.1, steps=1)


def test_joints_without_mass_are_named():
    b = qddot.Builder("light")
    b.link("a", mass=1.0, inertia=(1.0, 0.0, 0.0, 1.0, 0.0, 1.0))
    b.link("b", mass=0.0)
    b.joint("one", "world", "a", Revolute((0.0, 1.0, 0.0)))
    b.joint("two", "a", "b", Revolute((0.0, 1.0, 0.0)))
    with pytest.raises(qddot.SingularMassMatrixError, match="'two'"):
        qddot.Robot(b.model()).simulate([0.0, 0.0], [0.0, 0.0], dt=0.1, steps=1)


def test_sqrt_in_a_law_is_compiled():
    robot = qddot.load("pendulum")
    run = robot.simulate([0.3], [0.2], lambda t, q, v: [sqrt(1.0 + q[0] * q[0]) * cos(t)], dt=0.01, steps=1)
    close(run.tau[0, 0], math.sqrt(1.09))
