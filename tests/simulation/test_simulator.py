"""`Robot.simulator`: a step at a time, with the bits of `simulate`, for one sample and many."""

import copy
import pickle
import warnings

import numpy as np
import pytest

import qddot
from qddot.scalars import sin
from qddot.simulation import controls, forces

STEPS = 12
MANY = pytest.param((3, 5), marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def arm():
    return qddot.load("puma560", passive_forces=False)


@pytest.fixture(scope="module")
def dog():
    return qddot.load("quadruped")


def start(robot, batch=(), seed=0):
    rng = np.random.default_rng(seed)
    states = [robot.random_state(rng) for _ in range(int(np.prod(batch)))]
    q, v = (np.stack(x).reshape(*batch, -1) for x in zip(*states, strict=True))
    return q, 0.3 * v, rng.standard_normal((*batch, STEPS, robot.nv))


def stepped(robot, q, v, rows, law=None, **options):
    """The trajectory of steps one by one, and the states that they returned."""
    sim = robot.simulator(law, record=True, **options)
    seen = [sim.reset(q, v)]
    for k in range(STEPS):
        seen.append(sim.step(rows[..., k, :]) if rows is not None else sim.step())
        assert sim.steps == k + 1
    qs, vs = (np.stack(x, axis=-2) for x in zip(*seen, strict=True))
    return sim, qs, vs


def same(x, y):
    assert x.shape == y.shape
    assert x.dtype == y.dtype
    assert x.tobytes() == y.tobytes()


def agree(robot, q, v, rows, law=None, **options):
    """Steps in Python have the bits of the compiled loop, recorded and returned."""
    sim, qs, vs = stepped(robot, q, v, rows, law, **options)
    if law is None:
        run = robot.simulate(q, v, rows, steps=STEPS, **options)
    else:
        options.pop("inputs", None)
        given = {} if rows is None else {"inputs": rows}
        run = robot.simulate(q, v, law, steps=STEPS, **given, **options)
    found = sim.trajectory()
    for x, y in ((found.q, run.q), (found.v, run.v), (found.t, run.t), (found.tau, run.tau), (qs, run.q), (vs, run.v)):
        same(np.ascontiguousarray(x), np.ascontiguousarray(y))
    assert found.info == run.info
    assert found.channels.keys() == run.channels.keys()
    for name, channel in found.channels.items():
        same(channel, run.channels[name])
    same(sim.q, np.ascontiguousarray(run.q[..., -1, :]))
    same(sim.v, np.ascontiguousarray(run.v[..., -1, :]))
    assert sim.t == run.t[-1]
    return sim


@pytest.mark.parametrize("batch", [(), (1,), MANY])
@pytest.mark.parametrize("integrator", ["semi_implicit_euler", "rkmk4", "ab4", "variational", "rosenbrock"])
def test_bits_of_simulate(integrator, batch):
    robot = qddot.load("double_pendulum")
    agree(robot, *start(robot, batch), dt=1e-3, integrator=integrator)


@pytest.mark.parametrize("batch", [(), MANY])
def test_bits_of_arms_legs_and_loops(arm, dog, batch):
    agree(arm, *start(arm, batch), dt=1e-3)
    agree(arm, *start(arm, batch), dt=1e-3, dtype="float32")
    q, v, rows = start(dog, batch)  # more than 6000 operations a step: its derivative is code of its own
    q[..., 2] = 0.3
    feet = [name for name in dog.frame_names if name.endswith("_foot")]
    agree(dog, q, v, rows, dt=1e-5, forces=forces.ground(dog, feet, stiffness=1e3), t0=0.25)
    fivebar = qddot.load("fivebar")
    q, _ = fivebar.close_loops(fivebar.neutral() + 0.05 * np.ones((*batch, 4)))
    for keep in ("projection", "baumgarte"):
        agree(fivebar, q, np.zeros(4), start(fivebar, batch)[2], dt=1e-3, constraints=keep)


def test_bits_with_parameters(arm):
    q, v, rows = start(arm, (3,))
    link = arm.link_names[-1]
    agree(arm, q[0], v[0], rows[0], dt=1e-3, free={f"{link}.mass": np.array([0.1, 0.5, 2.0])})


@pytest.mark.slow
def test_bits_with_laws_and_motion(arm):
    q, v, rows = start(arm, (3,))

    def law(t, q, v, u):
        return u[0] * sin(t) - u[1] * v

    agree(arm, q, v, rows[..., :2], law, inputs=2, dt=1e-3)
    agree(arm, q, v, None, controls.pd(arm, arm.neutral(), 20.0, 2.0), dt=1e-3)
    q[..., 0], v[..., 0] = 0.0, 0.5
    agree(arm, q, v, rows, dt=1e-3, prescribed={arm.joint_names[0]: lambda t: 0.5 * t})


def test_laws_have_inputs():
    robot = qddot.load("double_pendulum")
    q, v, rows = start(robot, (3,))
    agree(robot, q, v, rows[..., :1], lambda t, q, v, u: u[0] * sin(t) - 0.1 * v, inputs=1, dt=1e-3)
    agree(robot, q, v, None, lambda t, q, v: -0.1 * v, dt=1e-3)


def test_the_eager_robot_steps_too():
    robot = qddot.Robot(qddot.load("double_pendulum").model, compiled=False)
    q, v, rows = start(robot, (2,))
    agree(robot, q, v, rows, dt=1e-3)
    agree(robot, q, v, rows, dt=1e-3, integrator="ab4")


def test_many_samples_on_threads(arm):
    q, v, rows = start(arm, (3000,))
    before = qddot.get_num_threads()
    qddot.set_num_threads(3)
    try:
        sim = arm.simulator(dt=1e-3)
        sim.reset(q, v)
        for k in range(3):
            found = sim.step(rows[:, k])
        run = arm.simulate(q, v, rows, dt=1e-3, steps=3, record="end")
    finally:
        qddot.set_num_threads(before)
    same(found[0], np.ascontiguousarray(run.q[:, -1]))


@pytest.mark.parametrize("every", [3, 5])
def test_some_states_are_recorded(arm, every):
    q, v, rows = start(arm)
    sim = arm.simulator(dt=1e-3, record=every)
    sim.reset(q, v)
    for k in range(STEPS):
        sim.step(rows[k])
    run = arm.simulate(q, v, rows, dt=1e-3, steps=STEPS)
    found, times = sim.trajectory(), np.arange(0, STEPS + 1, every)
    same(found.q, np.ascontiguousarray(run.q[times]))
    same(found.tau, np.ascontiguousarray(rows[np.minimum(times, STEPS - 1)]))
    sim.reset(q, v)
    assert len(sim.trajectory()) == 1


def test_records_grow(arm):
    sim = arm.simulator(dt=1e-5, record=True)
    sim.reset(arm.neutral())
    tau = np.zeros(6)
    for _ in range(2500):
        sim.step(tau)
    found = sim.trajectory()
    run = arm.simulate(arm.neutral(), np.zeros(6), dt=1e-5, steps=2500)
    assert len(found) == 2501
    same(found.q, run.q)


def test_what_is_returned_is_the_callers_own(arm):
    q, v, rows = start(arm)
    sim = arm.simulator(dt=1e-3)
    given = q.copy()
    sim.reset(given, v)
    given[:] = 1e9
    first = sim.step(rows[0])
    kept = first[0].copy()
    first[0][:], sim.q[:] = np.nan, np.nan
    second = sim.step(rows[1])
    same(second[0], np.ascontiguousarray(arm.simulate(q, v, rows, dt=1e-3, steps=2).q[-1]))
    assert not np.array_equal(kept, second[0])


def test_copies_go_on_alone(arm):
    """What a controller that looks ahead does: a copy is stepped, and the original is where it was."""
    q, v, rows = start(arm)
    run = arm.simulate(q, v, rows, dt=1e-3, steps=STEPS, integrator="ab4")
    sim = arm.simulator(dt=1e-3, integrator="ab4", record=True)
    fresh = pickle.loads(pickle.dumps(sim))
    fresh.reset(q, v)
    sim.reset(q, v)
    for k in range(5):
        sim.step(rows[k])
    for other in (copy.deepcopy(sim), pickle.loads(pickle.dumps(sim))):
        for k in range(5, STEPS):
            other.step(rows[k])
        same(other.trajectory().q, run.q)
        same(other.trajectory().tau, run.tau)
    assert sim.steps == 5
    same(sim.q, np.ascontiguousarray(run.q[5]))


@pytest.mark.parametrize("rows", ["reversed", "columns", "integers", "lists", "float32", "none"])
def test_joint_forces_of_any_kind(arm, rows):
    q, v, _ = start(arm)
    tau = np.arange(6.0)
    given = {
        "reversed": tau[::-1].copy()[::-1],
        "columns": np.asfortranarray(np.outer(tau, [1.0, 2.0]))[:, 0],
        "integers": np.arange(6),
        "lists": tau.tolist(),
        "float32": tau.astype(np.float32),
        "none": None,
    }[rows]
    sim = arm.simulator(dt=1e-3)
    sim.reset(q, v)
    sim.step(np.ones(6))  # nothing of it stays
    found = sim.step(given)
    held = np.stack([np.ones(6), 0.0 * tau if given is None else tau])
    same(found[0], np.ascontiguousarray(arm.simulate(q, v, held, dt=1e-3, steps=2).q[-1]))


def test_batches_of_nothing_and_of_another_size(arm):
    sim = arm.simulator(dt=1e-3, record=True)
    q, v = sim.reset(np.zeros((0, 6)), np.zeros((0, 6)))
    q, v = sim.step(np.zeros(6))
    assert q.shape == v.shape == (0, 6)
    assert sim.trajectory().q.shape[0] == 0
    sim.reset(np.zeros((4, 2, 6)))
    assert sim.step(np.ones((2, 6)))[0].shape == (4, 2, 6)  # broadcast
    with pytest.raises(qddot.InputError, match=r"batch axes \(3,\), which do not fit the \(4, 2\)"):
        sim.step(np.ones((3, 6)))
    with pytest.raises(qddot.InputError, match="batch axes"):
        sim.step(np.ones((1, 4, 2, 6)))


def test_a_simulator_says_where_it_is(arm):
    sim = arm.simulator(dt=1e-3, integrator="ab4")
    assert repr(sim) == f"<Simulator of {arm.model.name!r}: ab4, dt = 0.001 s, not yet reset>"
    sim.reset(np.zeros((3, 6)))
    sim.step()
    assert repr(sim).endswith("dt = 0.001 s, 3 samples, t = 0.001 s after 1 steps>")


def test_errors(arm):
    sim = arm.simulator(dt=1e-3)
    for use in (sim.step, lambda: sim.q, lambda: sim.v, lambda: sim.t, sim.trajectory):
        with pytest.raises(qddot.InputError, match=r"call reset\(q, v\) first"):
            use()
    sim.reset(arm.neutral())
    for wrong in (1.0, np.ones(1), np.ones(5), np.ones((6, 1)), np.ones(6, complex), "up", [None] * 6, [[1.0], [1.0, 2.0]]):
        with pytest.raises(qddot.InputError, match="tau"):
            sim.step(wrong)
    with pytest.raises(qddot.InputError, match="record=True"):
        sim.trajectory()
    with pytest.raises(qddot.InputError, match=r"'Radau' chooses its own steps.*robot\.simulate"):
        arm.simulator(dt=1e-3, integrator="Radau")
    with pytest.raises(qddot.UnknownNameError, match="did you mean 'rk4'"):
        arm.simulator(dt=1e-3, integrator="rk5")
    with pytest.raises(TypeError, match=r"simulator\(\) got an unexpected keyword argument 'force'; did you mean 'forces'"):
        arm.simulator(dt=1e-3, force=[])
    with pytest.raises(qddot.InputError, match=r"step\(tau\)"):
        arm.simulator(np.zeros((4, 6)), dt=1e-3)
    with pytest.raises(qddot.InputError, match="inputs=n is for a law"):
        arm.simulator(dt=1e-3, inputs=3)
    alone = arm.simulator(controls.gravity_compensation(arm), dt=1e-3)
    alone.reset(arm.neutral())
    with pytest.raises(qddot.InputError, match="takes no inputs"):
        alone.step(np.zeros(6))
    for record in (0, -1, 2.5, "end", None):
        with pytest.raises(qddot.InputError, match="record"):
            arm.simulator(dt=1e-3, record=record)
    fivebar = qddot.load("fivebar").simulator(dt=1e-3)
    with pytest.raises(qddot.InputError, match="are open at the start"):
        fivebar.reset([0.1, 0.2, 0.3, 0.4])


def test_what_is_not_finite_is_said_once(arm):
    sim = arm.simulator(dt=1e-3)
    q = np.zeros((3, 6))
    sim.reset(q)
    tau = np.zeros((3, 6))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sim.step(tau)
    tau[1, 2] = np.nan
    with pytest.warns(qddot.QddotWarning, match="1 of 3 samples are not finite after step 2"):
        sim.step(tau)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = sim.step(np.zeros((3, 6)))[0]
        assert np.isfinite(found[[0, 2]]).all()
        assert np.isnan(found[1]).all()
        sim.reset(q)
        assert np.isfinite(sim.step(np.zeros((3, 6)))[0]).all()


def test_steps_that_are_too_long_are_said_once():
    sim = qddot.load("puma560").simulator(dt=1e-3)
    with pytest.warns(qddot.QddotWarning, match="too long for 'rk4'"):
        sim.reset(np.zeros(6))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sim.reset(np.zeros(6))


@pytest.mark.slow
def test_a_step_of_an_arm_takes_four_microseconds():
    """`python -m benchmarks.stepping` measures; this fails where an array is looked up anew at every step."""
    from benchmarks import stepping

    found = stepping.main(["--rounds", "20", "--robots", "puma560"])
    assert found["puma560"]["step"] < 4e-6
