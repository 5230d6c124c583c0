"""Derivatives on JAX arrays beyond single functions of trees: loops, free parameters, whole robots, leaks."""

import gc

import numpy as np
import pytest

import qddot
from tests.support import torch_cases as cases
from tests.support.derivative_cases import MOSTLY_SLOW, dynamics_of
from tests.support.memory import resident
from tests.support.peers import peer
from tests.support.products import at_random
from tests.support.real_robots import load, or_skipped

jax = peer("jax")
jnp = jax.numpy

from tests.jax.test_transformations import check  # noqa: E402  needs JAX

LOOPS = {  # arguments, and the order to which they are checked
    "forward_dynamics": (("q", "v", "tau"), 2),
    "constrained_forward_dynamics": (("q", "v", "tau"), 2),
    "constrained_inverse_dynamics": (("q", "v", "a"), 2),
    "constrained_hybrid_dynamics": (("q", "v", "a", "tau"), 2),
    "constraint_residual": (("q",), 2),
    "constraint_jacobian": (("q",), 2),
    "constraint_bias": (("q", "v"), 2),
    "constraint_jacobian_derivatives": (("q",), 1),
    "forward_dynamics_derivatives": (("q", "v", "tau"), 1),
}


ORDERS = pytest.mark.parametrize("order", [1, pytest.param(2, marks=pytest.mark.slow)])


def closed_state(robot):
    rng = np.random.default_rng(1)
    q, v = cases.states(robot, (), rng)
    tau = rng.standard_normal(robot.nv)
    return {"q": q, "v": v, "tau": tau, "a": robot.forward_dynamics(q, v, tau)}


def check_with_loops(which, name):
    robot = qddot.load(which)
    dynamics, state, (inputs, order) = robot.jax(), closed_state(robot), LOOPS[name]
    others = {"prescribed": robot.joint_names[:1]} if "hybrid" in name else {}
    check(lambda *x: jax.tree.leaves(getattr(dynamics, name)(*x, **others)), *(state[x] for x in inputs), order=order)


QUICK = ("constraint_residual", "constraint_jacobian", "constraint_bias")


@pytest.mark.parametrize("name", [x if x in QUICK else pytest.param(x, marks=pytest.mark.slow) for x in LOOPS])
@pytest.mark.parametrize("which", ["fourbar", pytest.param("fivebar", marks=pytest.mark.slow)])
def test_loops(which, name):
    check_with_loops(which, name)


@ORDERS
def test_loops_with_forces_gains_and_free_parameters(order):
    robot = qddot.load("fourbar")
    dynamics, state = robot.jax(free=("gravity", "damping")), closed_state(robot)
    q, v, tau = (state[x] for x in ("q", "v", "tau"))
    f_ext = np.random.default_rng(2).standard_normal((robot.model.n_links, 6))
    check(lambda q, f: dynamics.forward_dynamics(q, v, tau, f), q, f_ext, order=order)
    check(lambda q, v: dynamics.constrained_forward_dynamics(q, v, tau, gains=(10.0, 3.0))[0], q, v, order=order)
    given = np.array(robot.model.gravity), 0.1 * np.ones(robot.nv)
    check(lambda q, g, d: dynamics.forward_dynamics(q, v, tau, gravity=g, damping=d), q, *given, order=order)


# ---- free parameters


@ORDERS
@pytest.mark.parametrize("free", [("inertia",), ("mass", "damping"), ("gravity",), ("friction", "armature", "last.com")])
def test_free_parameters(free, order):
    """Inertias are small numbers: they are moved in their own measure."""
    robot = cases.hand()
    free = tuple(x.replace("last", robot.link_names[-1]) for x in free)
    dynamics, (q, v) = robot.jax(free=free), robot.random_state(0)
    own = [robot.parameters(x) for x in free]

    def run(q, v, *steps):
        values = {x: p + 0.1 * np.abs(p) * s for x, p, s in zip(free, own, steps, strict=True)}
        q = dynamics.normalize(q)
        return dynamics.forward_dynamics(q, v, v, **values), dynamics.inverse_dynamics(q, v, v, **values)

    check(run, q, v, *(np.zeros_like(p) for p in own), order=order)


@ORDERS
def test_placements(order):
    """Along rigid motions, so that rotations stay some."""
    robot = cases.hand()
    dynamics, (q, v) = robot.jax(free=("placement",)), robot.random_state(0)
    given = robot.parameters("placement")

    def run(xi):
        w, u = xi[:, :3], xi[:, 3:]
        rows = jnp.cross(jnp.eye(3)[None], w[:, None, :])
        motion = jnp.concatenate([jnp.concatenate([rows, u[..., None]], -1), jnp.zeros((len(xi), 1, 4))], -2)
        return dynamics.inverse_dynamics(q, v, v, placement=given @ jax.scipy.linalg.expm(motion))

    check(run, 1e-3 * np.random.default_rng(0).standard_normal((robot.model.n_links, 6)), order=order)


# ---- whole robots


@ORDERS
def test_a_floating_base(order):
    robot = cases.floating()
    dynamics, (q, v) = robot.jax(), robot.random_state(0)

    def run(q, v, tau):
        q = dynamics.normalize(q)
        return dynamics.forward_dynamics(q, v, tau), dynamics.inverse_dynamics(q, v, tau)

    check(run, q, v, np.random.default_rng(0).standard_normal(robot.nv), order=order)


def test_hessians_of_an_arm():
    """In all four orders of forward and reverse mode, of forward dynamics and of energies."""
    robot = qddot.load("puma560")
    dynamics, (q, v) = robot.jax(), robot.random_state(0, 3)
    M = jax.jit(jax.vmap(jax.hessian(lambda v, q: dynamics.kinetic_energy(q, v))))(v, q)
    np.testing.assert_allclose(M, robot.mass_matrix(q), rtol=1e-12, atol=1e-12)
    wanted = robot.inverse_dynamics_second_derivatives(q, v, v).dqq
    for outer in (jax.jacfwd, jax.jacrev):
        for inner in (jax.jacfwd, jax.jacrev):
            found = jax.jit(jax.vmap(outer(inner(dynamics.inverse_dynamics))))(q, v, v)
            np.testing.assert_allclose(found, wanted, rtol=0.0, atol=1e-11 * np.abs(wanted).max())


def test_gradients_have_the_bits_of_numpys_kernel():
    robot = qddot.load("puma560")
    dynamics, rng = robot.jax(), np.random.default_rng(0)
    q, v = robot.random_state(rng, 5)
    tau, weights = rng.standard_normal((2, 5, robot.nv))
    found = jax.jit(jax.vmap(jax.grad(lambda *x: jnp.dot(dynamics.forward_dynamics(*x[:3]), x[3]), (0, 1, 2))))(
        q, v, tau, weights
    )
    kernel = robot.kernel("forward_dynamics", vjp=True, coordinates="ambient", known_result=True)
    row = kernel(q, v, tau, robot.forward_dynamics(q, v, tau), weights)
    np.testing.assert_array_equal(np.concatenate(found, axis=-1), row)


@pytest.mark.parametrize("path", or_skipped(MOSTLY_SLOW))
def test_real_robots(path):
    """Gradients against complex steps of the readable algorithm, along random directions of the tangent space."""
    robot, rng = load(path), np.random.default_rng(0)
    names, dynamics = dynamics_of(robot), robot.jax()
    for name in names:
        point = at_random(robot, name, rng=1)
        tangents = {x: rng.standard_normal(s) for x, s in point.sizes(point.given).items()}
        cotangent, given = rng.standard_normal(robot.nv), list(point.given.values())
        _, back = jax.vjp(getattr(dynamics, name), *given)
        gradients = dict(zip(point.given, back(jnp.asarray(cotangent)), strict=True))
        gradients["q"] = dynamics.tangent_gradient(point.given["q"], gradients["q"])
        found, size = (
            sum(np.sum(f(np.asarray(gradients[x])) * f(d)) for x, d in tangents.items()) for f in (np.asarray, np.abs)
        )
        assert abs(found - cotangent @ point.first(tangents)) <= 1e-8 * size


# ---- training


def grown(count):
    """By how many bytes the process grows in so many steps of training."""
    robot = qddot.load("puma560")
    dynamics, (q, v) = robot.jax(free=("mass",)), robot.random_state(0, 4)

    def loss(mass):
        return jnp.mean(dynamics.inverse_dynamics(q, v, v, mass=mass) ** 2)

    step = jax.jit(lambda mass: mass - 1e-6 * jax.grad(loss)(mass))

    def train(steps):
        mass = jnp.asarray(robot.parameters("mass"))
        for k in range(steps):
            mass = step(mass)
            if k % 10 == 0:  # outside of programs too
                jax.grad(loss)(mass)
        mass.block_until_ready()
        gc.collect()

    train(300)
    before = resident()
    train(count)
    return resident() - before


def test_training_leaks_nothing():
    """A tenth of the long version: less than 2 MB."""
    assert grown(1000) < 2 << 20


@pytest.mark.slow
def test_training_leaks_nothing_in_10_000_steps():
    assert grown(10_000) < 20 << 20
