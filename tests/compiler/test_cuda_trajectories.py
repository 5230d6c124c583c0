"""Simulations on a card whose states stay there, with arrays on the device as inputs: on emulated threads."""

import copy
import pickle
import sys
import warnings

import numpy as np
import pytest

import qddot
from qddot.compiler.codegen.abi import grid_steps
from qddot.compiler.runtime.cuda import time_stepping
from qddot.compiler.runtime.cuda.arrays import DeviceArray
from qddot.compiler.targets import nvptx
from qddot.errors import InputError, QddotWarning, UnknownNameError
from qddot.simulation import Rollout, Trajectory
from tests.support import fake_cuda
from tests.support.c_code import needs_compiler
from tests.support.emulated_card import steps_of
from tests.support.fake_cuda import Foreign, on_device
from tests.support.grid_emulation import PRELUDE, Threads

pytestmark = needs_compiler

PLAIN = {"dt": 1e-3, "integrator": "semi_implicit_euler"}


@pytest.fixture
def robot():
    return qddot.load("double_pendulum")


def start(robot, count=5):
    return robot.random_state(np.random.default_rng(0), count)


def copies(fake):
    return [line.split(" stream")[0] for line in fake.log() if line.startswith(("DtoH", "HtoD"))]


def test_states_stay_on_the_card_until_they_are_asked_for(card, fake, robot):
    steps_of(card, robot, **PLAIN)
    q, v = start(robot)
    fake.log()
    run = robot.simulate(q, v, steps=12, record=4, target="cuda", **PLAIN)
    assert isinstance(run, Trajectory)
    assert (run.batch, len(run), run["t"][-1]) == ((5,), 4, 0.012)
    assert "5 of them" in repr(run)
    assert run.names[:4] == ("t", "q", "v", "tau")
    assert [line for line in copies(fake) if line.startswith("DtoH")] == []
    state, dq, dv = (run.device[name] for name in ("state", "q", "v"))
    assert (type(dq), state.shape, dq.shape, dv.shape) == (DeviceArray, (5, 4, 4), (5, 4, 2), (5, 4, 2))
    assert dq.pointer == state.pointer
    here = robot.simulate(q, v, steps=12, record=4, **PLAIN)
    fake.log()
    for name in ("q", "v", "tau", "t", "energy", f"{robot.joint_names[1]}.v"):
        np.testing.assert_array_equal(run[name], here[name], err_msg=name)
    assert copies(fake) == [f"DtoH {5 * 4 * 4 * 8}"]  # once
    np.testing.assert_array_equal(dq.copy_to_host(), here.q)
    np.testing.assert_array_equal(dv.copy_to_host(), here.v)
    np.testing.assert_array_equal(run.sample(3).v, here.sample(3).v)
    assert run.info == here.info
    assert run.channels == {}
    with pytest.raises(AttributeError, match="no attribute 'acceleration'"):
        _ = run.acceleration
    with pytest.raises(TypeError):
        run.device["q"] = dq


def test_copies_are_trajectories_on_the_host(card, robot):
    steps_of(card, robot, **PLAIN)
    run = robot.simulate(*start(robot), steps=4, target="cuda", **PLAIN)
    for other in (pickle.loads(pickle.dumps(run)), copy.copy(run), copy.deepcopy(run)):
        assert type(other) is Trajectory
        np.testing.assert_array_equal(other.q, run.q)
        np.testing.assert_array_equal(other.tau, run.tau)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kind", ["qddot", "torch", "cupy", "foreign"])
def test_starts_on_the_device(card, fake, monkeypatch, robot, kind, dtype):
    make = lambda x: on_device(x, dtype)  # noqa: E731
    if kind in ("torch", "cupy"):
        module = getattr(fake_cuda, kind)(stream=77)
        monkeypatch.setitem(sys.modules, kind, module)
        other = module.Tensor if kind == "torch" else module.ndarray
        make = lambda x: other(on_device(x, dtype))  # noqa: E731
    elif kind == "foreign":
        make = lambda x: Foreign(on_device(x, dtype), stream=33)  # noqa: E731
    options = {**PLAIN, "dtype": dtype}
    steps_of(card, robot, **options)
    q, v = (x.astype(dtype) for x in start(robot))
    given = make(q), make(v)
    fake.log()
    run = robot.simulate(*given, steps=6, record=3, target="cuda", **options)
    log = fake.log()
    assert not [line for line in log if line.startswith(("DtoH", "HtoD")) and not line.startswith("HtoD 0")]
    if kind != "qddot":
        stream = 33 if kind == "foreign" else 77
        own = next(line.split()[-3] for line in log if line.startswith("launch"))
        assert any(line == f"stream {own} waits for {stream}" for line in log)
    here = robot.simulate(q, v, steps=6, record=3, **options)
    np.testing.assert_array_equal(run.q, here.q)
    np.testing.assert_array_equal(run.tau, here.tau)
    for x in given:  # and are as they were
        np.testing.assert_array_equal(getattr(x, "array", x), q if x is given[0] else v)


def test_starts_on_both_sides_and_of_other_batch_axes(card, robot):
    steps_of(card, robot, **PLAIN)
    q, v = start(robot, 6)
    wide = np.zeros((6, 5))
    wide[:, 1:3] = q
    for a, b in (
        (on_device(q), v),
        (q, on_device(v)),
        (on_device(q[0]), on_device(v)),  # one for all
        (on_device(q), v[2]),
        (on_device(q).reshape(2, 3, 2), on_device(v).reshape(2, 3, 2)),
        (on_device(wide)[:, 1:3], on_device(v)),  # rows apart
        (on_device(q)[::2], on_device(v)[::2]),
        (on_device(q[0]), on_device(v[0])),
        (on_device(q[:0]), on_device(v[:0])),
    ):
        run = robot.simulate(a, b, steps=3, target="cuda", **PLAIN)
        here = robot.simulate(np.asarray(a), np.asarray(b), steps=3, **PLAIN)
        assert run.batch == here.batch
        np.testing.assert_array_equal(run.q, here.q)


def test_controls_on_the_device(card, fake, robot):
    rng = np.random.default_rng(2)
    q, v = start(robot)
    for controls in (rng.normal(size=(5, 8, 2)), rng.normal(size=(8, 2))):
        steps_of(card, robot, controls, **PLAIN)
        here = robot.simulate(q, v, controls, steps=8, record=2, **PLAIN)
        own = on_device(controls)
        fake.log()
        run = robot.simulate(on_device(q), on_device(v), own, steps=8, record=2, target="cuda", **PLAIN)
        assert len(copies(fake)) == 2  # those of the start in this test
        np.testing.assert_array_equal(run.q, here.q)
        assert run.tau is None
        assert run["v"].shape == (5, 5, 2)
        assert "tau" not in run.names
        np.testing.assert_array_equal(run.sample(2).q, here.q[2])
    long = np.zeros((5, 20, 2))
    long[:, ::2][:, :8] = rng.normal(size=(5, 8, 2))
    here = robot.simulate(q, v, np.ascontiguousarray(long[:, ::2]), steps=8, **PLAIN)
    run = robot.simulate(q, v, on_device(long)[:, ::2], steps=8, target="cuda", **PLAIN)
    np.testing.assert_array_equal(run.q, here.q)


def test_inputs_of_a_law_and_parameters_on_the_device(card, monkeypatch, robot):
    monkeypatch.setattr(time_stepping, "_MAX_OPS_PER_LAUNCH", 1)  # a step a launch
    rng = np.random.default_rng(3)
    q, v = start(robot)
    u, damping, mass = rng.normal(size=(5, 6, 1)), rng.uniform(0.1, 1.0, 5), rng.uniform(0.5, 2.0, 5)
    first, second = robot.joint_names
    law = lambda t, q, v, u: u[0] - 2.0 * v  # noqa: E731
    for names in ((damping,), (damping, mass), (damping[:1][0], mass)):
        free = dict(zip((f"{first}.damping", f"{second}.damping"), names, strict=False))
        options = {**PLAIN, "steps": 6, "record": 3}
        steps_of(card, robot, law, **PLAIN, inputs=u, free=free)
        here = robot.simulate(q, v, law, inputs=u, free=free, **options)
        away = {name: on_device(x) for name, x in free.items()}
        run = robot.simulate(q, v, law, inputs=on_device(u), free=away, target="cuda", **options)
        np.testing.assert_array_equal(run.q, here.q)
        some = {**away, f"{first}.damping": free[f"{first}.damping"]}
        run = robot.simulate(q, v, law, inputs=u, free=some, target="cuda", **options)
        np.testing.assert_array_equal(run.q, here.q)
        assert (run.tau is None) is (len(names) > 1)


def test_methods_with_other_first_steps(card, monkeypatch, robot):
    options = {"dt": 1e-3, "integrator": "ab4"}
    rollout = Rollout(robot, target="cuda", **options)
    both = []
    for starting in (True, False):
        card.knows(grid_steps.render(*rollout.traced(starting), nvptx.named(""), PRELUDE), 128)
        both.append(card._threads)
    monkeypatch.setattr(card, "_threads", _InTurn(both, rollout))
    monkeypatch.setattr(time_stepping, "_MAX_OPS_PER_LAUNCH", 1)
    q, v = start(robot)
    here = robot.simulate(q, v, steps=10, record=5, **options)
    np.testing.assert_array_equal(robot.simulate(q, v, steps=10, record=5, target="cuda", **options).q, here.q)
    run = robot.simulate(on_device(q), on_device(v), steps=10, record=5, target="cuda", **options)
    np.testing.assert_array_equal(run.q, here.q)


class _InTurn:
    """The module of the first steps for these, the other one after them."""

    def __init__(self, both: list[Threads], rollout):
        from qddot.simulation.integrators import INTEGRATORS

        self.both, self.first = both, INTEGRATORS[rollout.integrator].start_steps

    def run(self, name, given, *rest):
        self.both[given[-2].value >= self.first].run(name, given, *rest)


# ---- errors


def test_what_cannot_be(card, fake, robot):
    steps_of(card, robot, **PLAIN)
    q, v = start(robot)
    dq, dv = on_device(q), on_device(v)

    def refused(text, *given, **options):
        with pytest.raises((InputError, UnknownNameError), match=text):
            robot.simulate(*given, **{**PLAIN, "steps": 4, "target": "cuda", **options})

    refused(
        r"q0 holds float32, and this simulation computes in float64.*give q0\.astype\('float64'\)",
        on_device(q, "float32"),
        dv,
    )
    refused("v0 holds float64, and this simulation computes in float32", on_device(q, "float32"), dv, dtype="float32")
    refused(r"q0 has shape \(5, 3\), but its last axis must have 2 entries", on_device(np.zeros((5, 3))), dv)
    refused("q0: the numbers of a row are not contiguous", on_device(q.T.copy()).T, dv)
    refused(
        r"batch axes of q0, v0, controls, parameters and free do not fit together: \[\(5,\), \(4,\)", dq, on_device(v[:4])
    )
    refused(
        r"q0 has batch axes \(5, 1\) where the samples have \(5, 4\)", dq.reshape(5, 1, 2), on_device(np.zeros((5, 4, 2)))
    )
    refused("controls are given for 3 steps; 4 are needed", dq, dv, on_device(np.zeros((3, 2))))
    refused(r"controls has shape \(3,\)", dq, dv, on_device(np.zeros(3)))
    refused(r"controls has shape \(4, 3\); it must be \(..., steps, 2\)", dq, dv, on_device(np.zeros((4, 3))))
    refused("controls holds float32", dq, dv, on_device(np.zeros((4, 2)), "float32"))
    name = f"{robot.joint_names[0]}.damping"
    refused(f"{name} holds float32", dq, dv, free={name: on_device(np.ones(5), "float32")})
    refused("has no parameter 'nobody.damping'", dq, dv, free={"nobody.damping": on_device(np.ones(5))})
    refused("q0 is not aligned", Foreign(dq, data=(dq.pointer + 4, False), shape=(4, 2)), dv)
    refused("q0 has a mask", Foreign(dq, mask=dq), dv)
    refused(
        r"101 states of 5,000 samples take 0\.0 GB on Fake card 0, and .* keep fewer states \(record=…\)",
        on_device(np.zeros((5000, 2))),
        on_device(np.zeros((5000, 2))),
        steps=100,
    )
    assert card.launched == []
    assert fake.get("depth") == 0


def test_quaternions_on_the_device_are_looked_at(card):
    robot = qddot.load("quadruped")
    q, v = start(robot)
    q[3] *= 1.01
    with pytest.raises(InputError, match=r"the quaternion of joint .* in q0 is not of unit length"):
        robot.simulate(on_device(q), on_device(v), steps=1, target="cuda", **PLAIN)
    assert card.launched == []


def test_loops_start_on_the_host(card, fake):
    robot = qddot.load("fourbar")
    q, v = robot.neutral(), np.zeros(robot.nv)
    options = {"dt": 1e-3, "integrator": "semi_implicit_euler"}
    steps_of(card, robot, **options)
    here = robot.simulate(q, v, steps=3, **options)
    run = robot.simulate(on_device(q), on_device(v), steps=3, target="cuda", **options)
    np.testing.assert_array_equal(run.q, here.q)
    assert sorted(run.channels) == sorted(here.channels) == ["drift", "drift_rate"]
    np.testing.assert_array_equal(run["drift"], here["drift"])
    with pytest.raises(InputError, match="are open at the start"):
        robot.simulate(on_device(q + 0.3), on_device(v), steps=3, target="cuda", **options)


def test_an_interruption_waits_for_the_card(card, fake, monkeypatch, robot):
    steps_of(card, robot, **PLAIN)
    q, v = start(robot)
    robot.simulate(q, v, steps=4, target="cuda", **PLAIN)
    before = fake.get("bytes")
    monkeypatch.setattr(time_stepping, "_MAX_OPS_PER_LAUNCH", 1)
    original, seen = time_stepping.GridTimeLoop._launch, []

    def interrupted(self, *given):
        seen.append(1)
        if len(seen) == 3:
            raise KeyboardInterrupt
        original(self, *given)

    monkeypatch.setattr(time_stepping.GridTimeLoop, "_launch", interrupted)
    fake.log()
    with pytest.raises(KeyboardInterrupt):
        robot.simulate(q, v, steps=4, target="cuda", **PLAIN)
    assert fake.log()[-1].startswith("wait stream")
    assert fake.get("bytes") == before
    assert fake.get("depth") == 0


def test_warnings_come_with_the_states(card, robot):
    steps_of(card, robot, **PLAIN)
    q, v = start(robot)
    v[2] = 1e200
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = robot.simulate(on_device(q), on_device(v), steps=20, target="cuda", **PLAIN)
    with pytest.warns(QddotWarning, match="1 of 5 samples are not finite any more"):
        _ = run.q
    rest = [0, 1, 3, 4]
    np.testing.assert_array_equal(run.q[rest], robot.simulate(q[rest], v[rest], steps=20, **PLAIN).q)


# ---- parameters of a law


def gains(t, q, v, p):
    return -p[0] * q - p[1:] * v


@pytest.mark.parametrize("place", ["host", "device", "one row", "beside free ones", "all on the device"])
def test_parameters_of_a_law(card, robot, place):
    """Each sample has its own; they stand before the robot's free parameters."""
    rng, damping = np.random.default_rng(1), f"{robot.joint_names[0]}.damping"
    p, damper = rng.uniform(1.0, 9.0, (5, 3)), rng.uniform(0.1, 1.0, 5)
    p = p[2] if place == "one row" else p
    options = {**PLAIN, **({"free": {damping: damper}} if place in ("beside free ones", "all on the device") else {})}
    steps_of(card, robot, gains, parameters=p, **options)
    q, v = start(robot)
    here = robot.simulate(q, v, gains, steps=8, record=4, parameters=p, **options)
    if place == "all on the device":
        options["free"] = {damping: on_device(damper)}
    there_p = on_device(p) if place in ("device", "one row", "all on the device") else p
    there = robot.simulate(q, v, gains, steps=8, record=4, parameters=there_p, target="cuda", **options)
    np.testing.assert_array_equal(there.q, here.q)
    np.testing.assert_array_equal(there.v, here.v)
    if there_p is p:
        np.testing.assert_array_equal(there.tau, here.tau)
    else:
        assert there.tau is None


def test_parameters_of_a_law_that_do_not_fit(card, robot):
    q, v = start(robot)
    for p, said in ((np.ones((4, 3)), "do not fit together"), (np.ones((5, 3), np.float32), "parameters holds float32")):
        with pytest.raises(InputError, match=said):
            robot.simulate(q, v, gains, steps=8, parameters=on_device(p, p.dtype), target="cuda", **PLAIN)
