"""Gradients of rollouts: against complex steps through the eager steps, and what has to be the same to the last bit."""

import itertools
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

import qddot
from qddot.compiler.runtime import time_stepping
from qddot.errors import InputError
from qddot.mechanism import parameters
from qddot.robots.generators import random_tree
from qddot.scalars import sin
from qddot.simulation import Rollout, adjoint, forces, rollout
from qddot.simulation.integrators import INTEGRATORS
from tests.support.mechanisms import MOVING

EXPLICIT = [name for name, x in INTEGRATORS.items() if not x.implicit]
TINY = 1e-100  # of a complex step, which loses no digits


def states(robot, count, rng):
    pairs = [robot.random_state(rng) for _ in range(count)]
    return np.stack([q for q, _ in pairs]), np.stack([0.3 * v for _, v in pairs])


class Case:
    """A rollout of a few samples, a loss that sees all recorded states and the cost, and its gradients."""

    def __init__(self, robot, controls=None, *, samples=3, steps=7, seed=0, **options):
        self.rng = np.random.default_rng(seed)
        self.robot, self.n = robot, steps
        self.given = dict(zip(("q0", "v0"), states(robot, samples, self.rng), strict=True))
        for name in ("parameters", "inputs"):
            if name in options:
                self.given[name] = options[name]
        self.law = controls if callable(controls) else None
        if controls is not None and not callable(controls):
            self.given["controls"] = controls
        self.given.update(options.get("free", {}))
        self.rollout = robot.differentiable_rollout(controls, steps=steps, dt=4e-3, **options)
        self.run = self.rollout(self.given["q0"], self.given["v0"])
        self.bars = {"q_bar": self.weights(self.run.q), "v_bar": self.weights(self.run.v)}
        if options.get("cost"):
            self.bars["cost_bar"] = self.weights(self.run.cost)
        self.gradients = self.run.vjp(**self.bars)

    def weights(self, like):
        return self.rng.standard_normal(like.shape)

    def gradient(self, name):
        return self.gradients.free.get(name) if name in self.gradients.free else getattr(self.gradients, name)

    def loss(self, given):
        """By the eager steps, on any scalars."""
        own, every = self.rollout.forward, self.rollout.record
        held = given.get("controls", given.get("inputs", np.empty((1, 0))))
        constants = [given["parameters"]] if "parameters" in given else []
        constants += [given[name] for name in own.free]
        total = 0.0
        for k, (q, v) in enumerate(zip(given["q0"], given["v0"], strict=True)):
            shapes = own.constant_shapes.values()
            mine = [
                np.broadcast_to(x, (len(given["q0"]), *s))[k].reshape(-1) for x, s in zip(constants, shapes, strict=True)
            ]
            u = np.broadcast_to(held, (len(given["q0"]), *held.shape[-2:]))[k]
            weights, values = own._law_and_model(mine)
            model = parameters.substitute(own.model, own._parameters, values)
            system = replace(own._system(()), model=model, dynamics=model, weights=weights, values=values)
            x = np.concatenate([q, v, np.zeros(sum(own._past) + own._n_costs)])
            for j in range(self.n + 1):
                if j % every == 0:
                    total = total + self.bars["q_bar"][k, j // every] @ x[: len(q)]
                    total = total + self.bars["v_bar"][k, j // every] @ x[len(q) : len(q) + len(v)]
                if j < self.n:
                    now = system if not u.shape[-1] else replace(system, held=u[j])
                    x = own._step(j < INTEGRATORS[own.integrator].start_steps, now, x, own.t0 + j * own.dt, own.dt)
            if "cost_bar" in self.bars:
                total = total + self.bars["cost_bar"][k] * x[-1]
        return total

    def check(self, tolerance=1e-9):
        """Along a random direction of each input, a complex step of the eager rollout."""
        for name, x in self.given.items():
            found = self.gradient(name)
            direction = self.rng.standard_normal(found.shape)
            moved = direction
            if name == "q0":
                system = self.rollout.forward._system(())
                moved = np.array([system.rate(q, d) for q, d in zip(x, direction, strict=True)], dtype=float)
            wanted = self.loss({**self.given, name: x + TINY * 1j * moved}).imag / TINY
            scale = max(1.0, abs(wanted), np.linalg.norm(found) * np.linalg.norm(direction) / np.sqrt(direction.size))
            assert abs(np.sum(found * direction) - wanted) <= tolerance * scale, name


# ---- right ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("integrator", INTEGRATORS)
@pytest.mark.parametrize("record", [1, "end"])
def test_held_controls_and_free_masses(integrator, record):
    robot = qddot.load("double_pendulum")
    u = np.random.default_rng(1).standard_normal((3, 7, 2))
    mass = {f"{robot.link_names[-1]}.mass": np.array([1.0, 1.5, 2.0])}
    Case(robot, u, integrator=integrator, record=record, free=mass).check()


@pytest.mark.parametrize("integrator", EXPLICIT)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_kind_of_joint(integrator, seed):
    """Quaternions, angles, helices, mimic joints.

    Between the stages of rk4 quaternions are not of unit length, by (dt ω/2)², and there the compiled step, whose inertias
    are regrouped for unit ones, is another function than the eager one: its gradient is that of the compiled step.
    """
    robot = qddot.Robot(random_tree(4, rng=seed, kinds=MOVING, mimic=seed == 2).model())
    has_quaternions = any(robot.model.joint[i].has_unit_quaternion for i, _ in robot.model.outward())
    along_rates = has_quaternions and integrator in ("rk4", "ab4")
    Case(robot, np.ones((7, robot.nv)), integrator=integrator, seed=seed).check(1e-7 if along_rates else 1e-9)


@pytest.mark.parametrize("integrator", ["rk4", "ab4", "rkmk4"])
@pytest.mark.parametrize("base", [False, True])
def test_a_free_body_between_stages(integrator, base):
    """Against differences of the compiled rollout itself, of fourth order, where nothing is steep."""
    robot = qddot.Robot(random_tree(4, rng=2, kinds=MOVING, mimic=True).model().without_passive_forces())
    robot = qddot.load("quadruped", passive_forces=False) if base else robot
    case = Case(robot, np.ones((7, robot.nv)), integrator=integrator, seed=2)
    direction = case.rng.standard_normal((3, robot.nv))

    def loss(h):
        run = case.rollout(case.given["q0"], case.given["v0"] + h * direction)
        return np.sum(case.bars["q_bar"] * run.q) + np.sum(case.bars["v_bar"] * run.v)

    h = 3e-4
    wanted = (8.0 * (loss(h) - loss(-h)) - (loss(2.0 * h) - loss(-2.0 * h))) / (12.0 * h)
    assert abs(np.sum(case.gradients.v0 * direction) - wanted) <= 1e-11 * np.linalg.norm(case.gradients.v0)


def test_a_floating_base():
    Case(qddot.load("quadruped"), None, samples=1, steps=3, integrator="rk4").check()


def network(t, q, v, u, p):
    W, hidden = p[:12].reshape(3, 4), p[12:].reshape(2, 3)
    return hidden @ np.tanh(W @ np.concatenate([np.sin(q), v])) + u[0] * sin(t)


@pytest.mark.parametrize("integrator", EXPLICIT)
def test_parameters_and_inputs_of_a_law_and_its_cost(integrator):
    robot = qddot.load("double_pendulum")
    rng = np.random.default_rng(3)
    given = {"parameters": rng.standard_normal(18), "inputs": rng.standard_normal((7, 1))}

    def cost(t, q, v, tau):
        return (1.0 + t) * np.sum(q * q) + 0.1 * np.sum(tau * tau)

    Case(robot, network, integrator=integrator, cost=cost, record="end", **given).check()


@pytest.mark.parametrize("constraints", ["projection", "baumgarte"])
def test_loops(constraints):
    robot = qddot.load("fourbar")
    case = Case.__new__(Case)
    q, v = robot.close_loops(robot.neutral())[0], np.zeros(robot.nv)
    closed = robot.differentiable_rollout(np.ones((5, robot.nv)), steps=5, dt=1e-3, constraints=constraints)
    run = closed(q, v)
    case.rng, case.robot, case.n, case.rollout, case.run = np.random.default_rng(0), robot, 5, closed, run
    case.bars = {"q_bar": case.weights(run.q)[None], "v_bar": case.weights(run.v)[None]}
    case.given = {"q0": q[None], "v0": v[None], "controls": np.ones((5, robot.nv))}
    case.gradients = closed(case.given["q0"], case.given["v0"]).vjp(**case.bars)
    case.check()


def test_contact():
    """Against differences: a comparison of complex numbers would be of their real parts."""
    robot = qddot.load("quadruped")
    feet = forces.ground(robot, list(robot.link_names[-1:]), stiffness=1e3, height=0.05)
    rng = np.random.default_rng(0)
    q, v = robot.neutral(), 0.1 * rng.standard_normal(robot.nv)

    def law(t, q, v, p):
        return np.concatenate([np.zeros(6), -p[0] * q[7:] - p[1] * v[6:]])

    given = {"dt": 1e-3, "steps": 20, "integrator": "semi_implicit_euler", "record": "end"}
    rollout = robot.differentiable_rollout(law, parameters=[5.0, 0.5], forces=feet, **given)
    run = rollout(q, v)
    weights = rng.standard_normal(run.q.shape)
    found = run.vjp(weights).parameters
    ends = [rollout(q, v, parameters=np.array([5.0, 0.5 + h])).q for h in (1e-6, -1e-6)]
    assert abs(found[1] - np.sum(weights * (ends[0] - ends[1])) / 2e-6) <= 1e-6 * np.linalg.norm(found)
    assert np.linalg.norm(found) > 0.0


def test_stops_and_prescribed_motion():
    robot = qddot.load("puma560", passive_forces=False)
    given = {"prescribed": {"joint1": lambda t: 0.3 * sin(t)}, "limits": "saturate"}
    q, v = robot.neutral(), np.zeros(6)
    v[0] = 0.3
    rollout = robot.differentiable_rollout(np.ones((10, 6)), dt=1e-3, steps=10, record="end", **given)
    run = rollout(q, v)
    weights = np.random.default_rng(0).standard_normal(run.v.shape)
    found = run.vjp(v_bar=weights)
    ends = []
    for h in (1e-6, -1e-6):
        u = np.ones((10, 6))
        u[4, 2] += h
        ends.append(rollout(q, v, controls=u).v)
    difference = np.sum(weights * (ends[0] - ends[1])) / 2e-6
    assert abs(found.controls[4, 2] - difference) <= 1e-6 * abs(difference)
    assert np.all(found.controls[:, 0] == 0.0)  # its motion is prescribed


@pytest.mark.parametrize("integrator", ["rk4", "semi_implicit_euler", "ab4"])
def test_functions_as_code_of_their_own(integrator, monkeypatch):
    """As for large robots: calls instead of one program."""
    robot = qddot.load("puma560", passive_forces=False)
    u = np.random.default_rng(1).standard_normal((7, 6))
    one = Case(robot, u, integrator=integrator, free={"gravity": np.array([0.0, 0.0, -9.0])})
    monkeypatch.setattr(adjoint, "MAX_INLINE_OPS", 0)
    monkeypatch.setattr(rollout, "MAX_INLINE_OPS", 0)
    other = Case(robot, u, integrator=integrator, free={"gravity": np.array([0.0, 0.0, -9.0])})
    other.check()
    for name in ("q0", "v0", "controls"):
        a, b = getattr(one.gradients, name), getattr(other.gradients, name)
        assert np.allclose(a, b, rtol=0.0, atol=1e-11 * np.max(np.abs(a)))  # products in another order


def test_gradients_of_q_tangent_and_ambient():
    robot = qddot.load("quadruped")
    rng = np.random.default_rng(0)
    q, v = states(robot, 4, rng)
    run = robot.differentiable_rollout(None, dt=1e-3, steps=4, record="end")(q, v)
    bar = rng.standard_normal(run.q.shape)
    tangent, ambient = (run.vjp(bar, coordinates=c).q0 for c in ("tangent", "ambient"))
    assert tangent.shape == (4, robot.nv)
    assert ambient.shape == (4, robot.nq)
    assert np.allclose(np.sum(ambient[:, 3:7] * q[:, 3:7], axis=-1), 0.0, atol=1e-13 * np.max(np.abs(ambient)))
    step = rng.standard_normal((4, robot.nv))
    moved = (robot.integrate(q, 1e-6 * step, 1.0) - robot.integrate(q, -1e-6 * step, 1.0)) / 2e-6
    by_tangent, by_ambient = np.sum(tangent * step, axis=-1), np.sum(ambient * moved, axis=-1)
    assert np.allclose(by_tangent, by_ambient, rtol=0.0, atol=1e-8 * np.max(np.abs(by_tangent)))  # of the difference


def test_float32():
    robot = qddot.load("double_pendulum", passive_forces=False)
    u = np.random.default_rng(1).standard_normal((40, 7, 2))
    single, double = (Case(robot, u, samples=40, dtype=t) for t in ("float32", "float64"))
    for name in ("q0", "v0", "controls"):
        a, b = single.gradient(name), double.gradient(name)
        assert a.dtype == np.float32
        assert np.max(np.abs(a - b)) <= 1e-4 * np.max(np.abs(b))  # seven steps of 6e-8, times the condition of M


# ---- the same bits ----------------------------------------------------------------------------------------------------


def case_of_bits(**options):
    robot = qddot.load("double_pendulum", passive_forces=False)
    rng = np.random.default_rng(0)
    q, v = states(robot, 37, rng)
    u = rng.standard_normal((37, 24, 2))
    rollout = robot.differentiable_rollout(u, dt=2e-3, steps=24, integrator="rk4", **options)
    return rollout, q, v, u, rng.standard_normal((37, 2, 2))


def both(rollout, q, v, ends, **given):
    run = rollout(q, v, **given)
    bar = np.zeros(run.q.shape)
    bar[..., 0, :], bar[..., -1, :] = ends[..., 0, :], ends[..., 1, :]
    found = run.vjp(bar, 2.0 * bar)
    return found.q0, found.v0, found.controls


def test_any_record_gives_the_same_bits():
    wanted = both(*(lambda r, q, v, u, e: (r, q, v, e))(*case_of_bits()))
    for record in (2, 6, 12, "end"):
        rollout, q, v, _, ends = case_of_bits(record=record)
        for a, b in zip(both(rollout, q, v, ends), wanted, strict=True):
            assert np.array_equal(a, b)


def test_a_sample_alone_and_threads(monkeypatch):
    rollout, q, v, u, ends = case_of_bits(record="end")
    wanted = both(rollout, q, v, ends)
    monkeypatch.setattr(time_stepping, "_MIN_OPS_PER_THREAD", 1)
    before = qddot.get_num_threads()
    qddot.set_num_threads(3)
    try:
        for a, b in zip(both(rollout, q, v, ends), wanted, strict=True):
            assert np.array_equal(a, b)
    finally:
        qddot.set_num_threads(before)
    alone = both(rollout, q[5], v[5], ends[5], controls=u[5])
    for a, b in zip(alone, wanted, strict=True):
        assert np.array_equal(a, b[5])


def test_long_runs_in_pieces(monkeypatch):
    """What is handed to one call, so that it can be interrupted."""
    rollout, q, v, _, ends = case_of_bits(record="end")
    wanted = both(rollout, q, v, ends)
    monkeypatch.setattr(time_stepping, "_MAX_OPS_PER_CALL", 1)
    for a, b in zip(both(rollout, q, v, ends), wanted, strict=True):
        assert np.array_equal(a, b)


def test_nan_stays_in_its_sample():
    rollout, q, v, _, ends = case_of_bits(record="end")
    wanted = both(rollout, q, v, ends)
    lost = v.copy()
    lost[11, 0] = np.nan
    for a, b in zip(both(rollout, q, lost, ends), wanted, strict=True):
        others = np.arange(37) != 11
        assert np.array_equal(a[others], b[others])
        assert np.isnan(a[11]).any()


# ---- shapes, memory, errors ------------------------------------------------------------------------------------------


def test_gradients_have_the_shape_of_what_was_given():
    rollout, q, v, u, ends = case_of_bits(record="end")
    each = both(rollout, q, v, ends)
    shared = both(rollout, q, v[:1], ends, controls=u[0])
    assert [x.shape for x in shared] == [(37, 2), (1, 2), (24, 2)]
    again = both(rollout, q, np.broadcast_to(v[:1], v.shape), ends, controls=np.broadcast_to(u[0], u.shape))
    assert np.allclose(shared[1], again[1].sum(axis=0), rtol=1e-13, atol=0.0)
    assert np.allclose(shared[2], again[2].sum(axis=0), rtol=1e-11, atol=1e-13)
    assert each[2].shape == u.shape


def test_batches_of_any_shape_and_none():
    rollout, q, v, u, _ = case_of_bits()
    run = rollout(q[:0], v[:0], controls=u[:0])
    assert run.q.shape == (0, 25, 2)
    found = run.vjp(q_bar=np.zeros((0, 25, 2)))
    assert (found.q0.shape, found.controls.shape) == ((0, 2), (0, 24, 2))
    strided = rollout(q[:36:3].reshape(4, 3, 2), v[:36:3].reshape(4, 3, 2), controls=u[:36:3, ::-1].reshape(4, 3, 24, 2))
    plain = rollout(q[:36:3], v[:36:3], controls=u[:36:3, ::-1])
    bar = np.random.default_rng(0).standard_normal((4, 3, 2, 25)).swapaxes(-1, -2)  # last axis not contiguous
    a, b = strided.vjp(bar), plain.vjp(bar.reshape(12, 25, 2))
    assert np.array_equal(a.controls.reshape(12, 24, 2), b.controls)
    assert np.array_equal(a.q0.reshape(12, 2), b.q0)


def test_memory_grows_as_the_square_root_of_the_steps():
    """The checkpoints, and at its highest all that NumPy takes for the way back."""
    robot = qddot.load("double_pendulum")
    kept, peaks = [], []

    def law(t, q, v, p):
        return -p[0] * q - p[1] * v

    q, v = np.full((64, 2), 0.1), np.zeros((64, 2))
    for steps in (200, 800, 3200, 12800):
        rollout = robot.differentiable_rollout(law, parameters=[5.0, 0.5], dt=1e-4, steps=steps, record="end")
        rollout(q, v).vjp(q_bar=np.ones((64, 2, 2)))  # compiles
        run = rollout(q, v)
        tracemalloc.start()
        run.vjp(q_bar=np.ones((64, 2, 2)))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        kept.append(run.checkpoint_bytes)
    for a in (kept, peaks):
        assert all(y <= 2.1 * x for x, y in itertools.pairwise(a)), a  # four times the steps, twice the memory
    assert kept[-1] <= 64 * 4 * 8 * 115  # 114 segments of 113 steps
    assert kept[0] >= 64 * 4 * 8 * 14


def test_forward_is_that_of_simulate():
    robot = qddot.load("double_pendulum")
    u = np.random.default_rng(0).standard_normal((30, 2))

    def law(t, q, v, u, p):
        return u - p * v

    given = {"inputs": u, "parameters": [0.3, 0.4], "dt": 1e-3, "steps": 30, "record": 10}
    a = robot.simulate([0.1, 0.2], [0.0, 1.0], law, **given)
    b = robot.differentiable_rollout(law, **given)([0.1, 0.2], [0.0, 1.0])
    assert np.array_equal(a.q, b.q)
    assert np.array_equal(a.v, b.v)
    assert np.array_equal(a.t, b.t)
    assert np.allclose(a.tau[0], u[0] - [0.0, 0.4], atol=1e-15)
    with pytest.raises(ValueError, match="read-only"):
        b.q[0] = 0.0


def test_the_cost_is_a_sum_over_steps():
    robot = qddot.load("double_pendulum")

    def law(t, q, v, p):
        return -p * v

    def cost(t, q, v, tau):
        return q @ q + 2.0 * tau @ tau + t

    run = robot.differentiable_rollout(law, parameters=[0.3, 0.4], dt=1e-3, steps=30, cost=cost)([0.1, 0.2], [0.0, 1.0])
    q, tau = run.q[:-1], -np.array([0.3, 0.4]) * run.v[:-1]
    wanted = np.sum(q * q) + 2.0 * np.sum(tau * tau) + np.sum(run.t[:-1])
    assert abs(run.cost - wanted) <= 1e-13 * wanted
    assert run.vjp(cost_bar=1.0).parameters.shape == (2,)


ERRORS = {
    "no law": ({"parameters": [1.0]}, {}, {}, "there is none"),
    "no rows": ({}, {"controls": np.zeros((30, 2))}, {}, "without controls"),
    "no inputs": ({}, {"inputs": np.zeros((30, 2))}, {}, "without inputs"),
    "not free": ({}, {"free": {"link1.mass": 1.0}}, {}, "not free"),
    "too few": ({"controls": np.zeros((9, 2))}, {}, {}, "10 are needed"),
    "shape": ({"controls": np.zeros((10, 2))}, {"controls": np.zeros((10, 3))}, {}, r"\(..., steps, 2\)"),
    "cost": ({"cost": 3.0}, {}, {}, "no function"),
    "cost's shape": ({"cost": lambda t, q, v, tau: q}, {}, {}, r"shape \(2,\)"),
    "card": ({"target": "cuda"}, {}, {}, "on the CPU"),
    "record": ({"record": 3}, {}, {}, "does not divide"),
    "option": ({"recrod": 3}, {}, {}, "recrod"),
    "nothing": ({}, {}, {}, "give the gradient"),
    "q_bar": ({}, {}, {"q_bar": np.zeros((4, 2))}, "must fit q"),
    "complex": ({}, {}, {"q_bar": np.zeros((11, 2), complex)}, "real numbers"),
    "no cost": ({}, {}, {"cost_bar": 1.0}, "no cost"),
    "coordinates": ({}, {}, {"q_bar": np.zeros((11, 2)), "coordinates": "flat"}, "'tangent' or 'ambient'"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    made, called, asked, words = ERRORS[name]
    robot = qddot.load("double_pendulum")
    with pytest.raises((InputError, TypeError), match=words):
        robot.differentiable_rollout(**{"dt": 1e-3, "steps": 10, **made})(np.zeros(2), np.zeros(2), **called).vjp(**asked)


def test_an_eager_robot_is_refused():
    robot = qddot.Robot(qddot.load("double_pendulum").model, compiled=False)
    with pytest.raises(InputError, match="compiled"):
        robot.differentiable_rollout(dt=1e-3, steps=10)


def test_parameters_of_a_law_in_other_simulations(tmp_path):
    """Adaptive integrators, recordings, robots that are not compiled, and a law's own numbers."""
    from qddot.simulation.recorded import record_simulation

    robot, p = qddot.load("double_pendulum"), np.array([[5.0, 0.5], [3.0, 0.2]])

    def law(t, q, v, p):
        return -p[0] * q - p[1] * v

    q, v, given = np.full((2, 2), 0.1), np.zeros((2, 2)), {"dt": 1e-3, "steps": 20}
    run = robot.simulate(q, v, law, parameters=p, **given)
    for k in range(2):
        own = robot.simulate(q[k], v[k], lambda t, q, v, k=k: law(t, q, v, p[k]), **given)
        assert np.allclose(run.q[k], own.q, rtol=0.0, atol=1e-15)
        assert np.allclose(run.tau[k], own.tau, rtol=0.0, atol=1e-14)
    eager = qddot.Robot(robot.model, compiled=False).simulate(q, v, law, parameters=p, **given)
    assert np.allclose(run.q, eager.q, rtol=0.0, atol=1e-13)
    assert np.allclose(run.tau, eager.tau, rtol=0.0, atol=1e-12)
    recorded = record_simulation(robot, tmp_path / "run", q, v, law, parameters=p, **given)
    assert np.array_equal(recorded.q, run.q)
    exact = robot.simulate(q, v, law, parameters=p, integrator="DOP853", **given)
    assert np.allclose(run.q, exact.q, rtol=0.0, atol=1e-8)
    with pytest.raises(InputError, match="do not fit"):
        Rollout(robot, law, dt=1e-3, parameters=np.ones((3, 2))).start(q, v)
    with pytest.raises(InputError, match="at least one number"):
        Rollout(robot, law, dt=1e-3, parameters=np.ones((3, 0)))
