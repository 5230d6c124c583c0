"""Rollouts and steps on JAX arrays: NumPy's bits, gradients in reverse, jit and vmap, what is refused."""

import gc
import itertools
import tracemalloc

import numpy as np
import pytest

import qddot
from qddot.errors import InputError
from tests.support.peers import peer

jax = peer("jax")
jnp = jax.numpy


@pytest.fixture(scope="module")
def robot():
    return qddot.load("double_pendulum", passive_forces=False)


@pytest.fixture
def state():
    rng = np.random.default_rng(0)
    return tuple(jnp.asarray(rng.standard_normal(shape)) for shape in ((3, 2), (3, 2), (5, 2)))


def check_reverse(function, args):
    from jax.test_util import check_grads

    check_grads(function, args, 1, modes=["rev"])


@pytest.mark.parametrize("integrator", ["rk4", "semi_implicit_euler"])
@pytest.mark.parametrize("record", [1, "end"])
def test_held_controls(robot, state, integrator, record):
    dyn, options = robot.jax(), {"dt": 5e-3, "integrator": integrator, "record": record}
    check_reverse(lambda q, v, u: dyn.rollout(q, v, u, **options), state)
    q, v = jax.jit(lambda q, v, u: dyn.rollout(q, v, u, **options))(*state)
    run = robot.simulate(*map(np.asarray, state), steps=5, **options)
    assert np.array_equal(q, run.q)
    assert np.array_equal(v, run.v)


def test_a_law_its_parameters_and_cost(robot, state):
    dyn, p = robot.jax(), jnp.array([1.0, 0.2])

    def run(q, v, p):
        def law(t, q, v, p):
            return -p[0] * q - p[1] * v

        def cost(t, q, v, tau):
            return q @ q + 0.1 * tau @ tau

        return dyn.rollout(q, v, law, parameters=p, dt=5e-3, steps=6, cost=cost, record="end")

    check_reverse(run, (*state[:2], p))
    assert run(*state[:2], p)[2].shape == (3,)


def test_free_parameters_and_a_step(robot, state):
    dyn, g = qddot.jax.Dynamics(robot, free=("gravity",)), jnp.array([0.0, 0.0, -9.8])
    check_reverse(lambda q, v, g: dyn.rollout(q, v, dt=5e-3, steps=4, gravity=g), (*state[:2], g))
    q, v, u = state
    check_reverse(lambda q, v, u: dyn.step(q, v, u, dt=5e-3), (q, v, u[0]))
    assert np.array_equal(dyn.step(q, v, u[0], dt=5e-3)[0], dyn.rollout(q, v, u, dt=5e-3)[0][:, 1])


def test_quaternions():
    robot = qddot.load("quadruped", passive_forces=False)
    q, v = map(jnp.asarray, robot.random_state(np.random.default_rng(0), 2))
    g = jax.grad(lambda q: robot.jax().rollout(q, v, dt=1e-3, steps=3)[0].sum())(q)
    assert g.shape == q.shape
    assert np.all(np.abs(np.sum(g[:, 3:7] * q[:, 3:7], axis=-1)) <= 1e-14 * np.max(np.abs(g)))


def test_transformations(robot, state):
    rollout = robot.jax().differentiable_rollout(state[2], dt=5e-3)

    def loss(q, v, u):
        a, b = rollout(q, v, controls=u)
        return (a * a).sum() + b[..., -1, :].sum()

    gradient = jax.grad(loss, (0, 1, 2))
    wanted = gradient(*state)
    for a, b in zip(jax.jit(gradient)(*state), wanted, strict=True):
        assert np.array_equal(a, b)
    each = jax.jit(jax.vmap(gradient, (0, 0, None)))(*state)
    assert np.array_equal(each[0], wanted[0])
    assert np.allclose(each[2].sum(0), wanted[2], rtol=1e-13, atol=1e-15)  # sums in another order
    q, v, _ = state
    twice = jax.vmap(jax.vmap(lambda q, v: rollout(q, v)[0]), (None, 0))(q, jnp.stack([v, 2.0 * v]))
    assert np.array_equal(twice[1], rollout(q, 2.0 * v)[0])
    assert jax.jacrev(lambda q: rollout(q, v)[0][:, -1].sum(0))(q).shape == (2, 3, 2)
    nothing = rollout(q[:0], v[:0])
    assert nothing[0].shape == (0, 6, 2)


def test_single_precision(robot, state):
    single = [x.astype("float32") for x in state]
    q, _ = robot.jax().rollout(*single, dt=5e-3)
    assert q.dtype == np.float32
    assert jax.grad(lambda u: robot.jax().rollout(*single[:2], u, dt=5e-3)[0].sum())(single[2]).dtype == np.float32


def test_memory_grows_as_the_square_root_of_the_steps(robot):
    dyn, p = robot.jax(), jnp.array([1.0, 0.2])
    q, peaks = jnp.full((64, 2), 0.1), []

    def law(t, q, v, p):
        return -p[0] * q - p[1] * v

    for steps in (400, 1600, 6400):
        run = dyn.differentiable_rollout(law, parameters=p, dt=1e-4, steps=steps, record="end")
        slope = jax.jit(jax.grad(lambda p, run=run: run(q, q, parameters=p)[0].sum()))
        slope(p).block_until_ready()  # compiles
        gc.collect()
        tracemalloc.start()
        slope(p).block_until_ready()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert all(y <= 2.1 * x for x, y in itertools.pairwise(peaks)), peaks  # four times the steps, twice the memory


def test_many_calls_keep_nothing(robot, state):
    dyn, (_, _, u) = robot.jax(), state
    q, v = jnp.zeros((64, 2)), jnp.ones((64, 2))
    slope = jax.jit(jax.grad(lambda u: dyn.rollout(q, v, u, dt=5e-3)[0].sum()))
    for _ in range(20):
        slope(u).block_until_ready()
    gc.collect()
    tracemalloc.start()
    for _ in range(300):
        slope(u).block_until_ready()
    gc.collect()
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept < 500_000  # bytes; the states of 300 runs are 3,700,000


def test_errors(robot, state):
    dyn, (q, v, u) = robot.jax(), state
    with pytest.raises(InputError, match="give steps="):
        dyn.rollout(q, v, dt=5e-3)
    with pytest.raises(InputError, match=r"q0 has shape \(3, 3\)"):
        dyn.rollout(jnp.zeros((3, 3)), v, u, dt=5e-3)
    with pytest.raises(InputError, match="computes in float64"):
        dyn.differentiable_rollout(u, dt=5e-3)(*(x.astype("float32") for x in (q, v)), controls=u.astype("float32"))
    with pytest.raises(InputError, match="none of them"):
        dyn.differentiable_rollout(u, dt=5e-3)(q, v, parameters=u)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jacfwd(lambda q: dyn.rollout(q, v, u, dt=5e-3)[0].sum())(q)
    with pytest.raises((InputError, TypeError), match=r"second|forward-mode"):
        jax.hessian(lambda q: dyn.rollout(q, v, u, dt=5e-3)[0].sum())(q)
    with pytest.raises(InputError, match="second"):
        jax.grad(lambda q: jax.grad(lambda q: (dyn.rollout(q, v, u, dt=5e-3)[0] ** 2).sum())(q).sum())(q)
