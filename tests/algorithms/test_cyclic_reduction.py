"""Featherstone & Orin (28) by cyclic reduction: steps that grow with the logarithm, and every chain."""

import math

import numpy as np
import pytest

import qddot
from qddot.algorithms import articulated_body
from qddot.algorithms.papers import augmented, cyclic_reduction, divide_and_conquer
from qddot.algorithms.papers.cyclic_reduction import Tridiagonal
from qddot.compiler.ir import interpreter
from qddot.dynamics import trace
from qddot.errors import FormulationError
from qddot.joints import Free, Revolute
from qddot.robot import Robot
from qddot.robots.generators import random_tree
from qddot.spatial.joint_blocks import as_forces
from tests.support.mechanisms import MOVING, State, built, is_branched
from tests.support.tolerances import solve

# (28) divides by single inertias, whose condition with that of TᵀI⁻¹T comes on top of M's: seen are 1e-11 at most.
ROOM = 100


def random_chain(n, kinds, seed):
    """Any joints in a row, with rotors."""
    rng = np.random.default_rng(seed)
    b, parent = qddot.Builder(f"chain{n}"), "world"
    for k in range(n):
        A = rng.standard_normal((3, 3))
        second = 0.05 * (A @ A.T) + 0.1 * np.eye(3)  # Σ m x xᵀ of a body: any that is positive
        inertia = np.trace(second) * np.eye(3) - second
        b.link(f"l{k}", float(rng.uniform(0.5, 2)), rng.uniform(-0.2, 0.2, 3).tolist(), inertia)
        joint = random_tree(1, rng=int(rng.integers(1 << 30)), kinds=(kinds[k % len(kinds)],)).model().joint[1]
        armature = float(rng.uniform(0.1, 1)) if k % 3 == 1 else 0.0
        at = qddot.pose(rng.uniform(-0.5, 0.5, 3).tolist(), rng.uniform(-1, 1, 3).tolist())
        b.joint(f"j{k}", parent, f"l{k}", joint, at, armature=armature)
        parent = f"l{k}"
    return Robot(b.model(), compiled=False)


def check(robot, seed=0):
    s = State(robot, seed)
    expected = articulated_body.forward_dynamics(s.model, s.q, s.v, s.a, s.f_ext)
    found = cyclic_reduction.forward_dynamics(s.model, s.q, s.v, s.a, s.f_ext)
    tolerance = ROOM * solve(np.linalg.cond(robot.mass_matrix(s.q)))
    assert np.max(np.abs(found - expected)) <= tolerance * max(1.0, np.max(np.abs(expected)))
    return s, found


@pytest.mark.parametrize("n", [*range(1, 10), 15, 16, 17, 31, 33, 64, 100, 200])
def test_chains_of_every_length(n):
    check(Robot(qddot.chain(n, rng=n).model, compiled=False))


@pytest.mark.parametrize("kind", MOVING)
@pytest.mark.parametrize("n", [1, 4, 7])
def test_joints_of_every_kind(kind, n):
    check(random_chain(n, (kind,), n))


@pytest.mark.parametrize("seed", range(4))
def test_mixed_joints_and_floating_bases(seed):
    kinds = np.random.default_rng(seed).permutation(MOVING).tolist()
    check(random_chain(13, kinds, seed))
    check(random_chain(13, ["free", *kinds], seed))  # nothing passes through the first joint
    floating = qddot.Builder("floating").link("base", 3.0, (0.1, 0, 0), np.eye(3)).joint("base", "world", "base", Free())
    for k in range(6):
        floating.link(f"l{k}", 1.0, (0.1, 0.05, 0), 0.1 * np.eye(3))
        parent = f"l{k - 1}" if k else "base"
        floating.joint(f"j{k}", parent, f"l{k}", Revolute(tuple(np.eye(3)[k % 3])), qddot.pose((0.2, 0.1, 0)))
    check(Robot(floating.model(), compiled=False), seed)


def test_several_chains_on_the_world_and_any_numbering():
    """They share no link, so their equations do not meet; one system has them all."""
    b = qddot.Builder("two arms")
    for k in range(5):
        for side in ("left", "right"):
            b.link(f"{side}{k}", 1.0 + k, (0.1, 0.05, 0), (0.1 + k) * np.eye(3))
            parent = f"{side}{k - 1}" if k else "world"
            b.joint(f"{side}_j{k}", parent, f"{side}{k}", Revolute(tuple(np.eye(3)[k % 3])), qddot.pose((0.2, 0.1, 0.3)))
    model = b.model()
    assert any(model.parent[i] not in (0, i - 1) for i, _ in model.outward())
    check(Robot(model, compiled=False))


def test_shared_coordinates():
    found = 0
    for seed in range(40):
        model = random_tree(4, rng=seed, kinds=("revolute", "prismatic"), mimic=True).model()
        if model.is_coupled and not is_branched(model):
            check(Robot(model, compiled=False))
            found += 1
    assert found


# ---- steps


def counted(monkeypatch):
    calls = []
    for name in ("take_out", "put_back"):
        own = getattr(cyclic_reduction, name)
        monkeypatch.setattr(cyclic_reduction, name, lambda *x, own=own, name=name: (calls.append(name), own(*x))[1])
    return calls


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 8, 9, 100, 127, 128, 1000])
def test_steps_grow_with_the_logarithm(monkeypatch, n):
    """⌊log₂N⌋ steps inward and as many outward; velocities take the steps of `parallel`, at most ⌈log₂N⌉ + 1 each way."""
    robot, calls = Robot(qddot.chain(n, rng=0).model, compiled=False), counted(monkeypatch)
    q, v = robot.random_state(0)
    cyclic_reduction.forward_dynamics(robot.model, q, v, v)
    levels = int(math.log2(n))
    assert calls == ["take_out"] * levels + ["put_back"] * levels
    assert len(divide_and_conquer.fixed_of(robot.model, q, v).plan.steps) <= math.ceil(math.log2(n)) + 1


def tridiagonal(n, w, seed):
    """A random one that is positive definite, and the same as one matrix."""
    rng = np.random.default_rng(seed)
    A = np.tril(rng.standard_normal((n * w, n * w)))
    blocks = np.arange(n * w) // w
    A[np.abs(blocks[:, None] - blocks) > 1] = 0.0
    M = A @ A.T + np.eye(n * w)
    parts = M.reshape(n, w, n, w).swapaxes(1, 2)
    D, L = (
        np.array([parts[k, k] for k in range(n)]),
        np.array([parts[k, k - 1] if k else 0 * parts[0, 0] for k in range(n)]),
    )
    return Tridiagonal(D, L, rng.standard_normal((n, w))), M


@pytest.mark.parametrize("n", range(1, 20))
def test_block_tridiagonal_systems(n):
    system, M = tridiagonal(n, 3, n)
    expected = np.linalg.solve(M, system.d.ravel()).reshape(n, 3)
    np.testing.assert_allclose(cyclic_reduction.reduced(system), expected, atol=1e-13 * np.linalg.cond(M))
    if n > 1:  # one step leaves every other unknown, with the equations that elimination gives
        less, kept = cyclic_reduction.take_out(system), (np.arange(3 * n) // 3) % 2 == 1
        schur = M[np.ix_(kept, kept)] - M[np.ix_(kept, ~kept)] @ np.linalg.solve(
            M[np.ix_(~kept, ~kept)], M[np.ix_(~kept, kept)]
        )
        for k in range(n // 2):
            np.testing.assert_allclose(less.D[k], schur[3 * k : 3 * k + 3, 3 * k : 3 * k + 3], atol=1e-12)
            if k:
                np.testing.assert_allclose(less.L[k], schur[3 * k : 3 * k + 3, 3 * k - 3 : 3 * k], atol=1e-12)


def test_the_matrix_is_that_of_constraint_forces():
    """D and L are the blocks of (28) that `augmented` eliminates link by link, rotors among them."""
    robot = random_chain(6, ("revolute", "universal", "prismatic"), 3)
    model = robot.model
    q, v = robot.random_state(0)
    fixed = divide_and_conquer.fixed_of(model, q, v)
    links, _ = divide_and_conquer.prepared(model, fixed, q, v, v, None)
    basis, places = cyclic_reduction.constraints(model, fixed, links, q), cyclic_reduction._places(model)
    inverses = np.concatenate([np.zeros((1, 6, 6)), np.linalg.inv(fixed.inertia[1:])])
    system = cyclic_reduction._meeting(places, links.X, links.c, basis, inverses, np.zeros((7, 6)))
    X, h, _, _ = augmented._right_sides(model, q, v, None)
    dual = [as_forces(x).times(x.T.on(as_forces(x)).inverse()) for x in h]
    T, Y = augmented._yielding_constraints(model, h, dual)
    I_inv = [None, *(augmented._Compliance(I) for I in model.inertia[1:])]
    K, _ = augmented._meeting(model, X, T, Y, I_inv)
    assert any(Y_i and max(Y_i) > 0.0 for Y_i in Y)
    for k in range(1, 7):
        at, before = basis.is_borne[k], basis.is_borne[k - 1]
        np.testing.assert_allclose(system.D[k - 1][np.ix_(at, at)], np.array(K[k, k], dtype=float), atol=1e-11)
        if k > 1:
            np.testing.assert_allclose(system.L[k - 1][np.ix_(at, before)], np.array(K[k, k - 1], dtype=float), atol=1e-11)


# ---- other scalars, and what it is not for


def test_batches_complex_steps_and_traces():
    robot = random_chain(5, ("revolute", "universal", "prismatic"), 1)
    states = [State(robot, k) for k in range(3)]
    q, v, a, f = (np.stack([getattr(s, x) for s in states]) for x in ("q", "v", "a", "f_ext"))
    batch = cyclic_reduction.forward_dynamics(robot.model, q, v, a, f)
    for k in range(3):
        assert np.array_equal(batch[k], cyclic_reduction.forward_dynamics(robot.model, q[k], v[k], a[k], f[k]))
    program = trace.traced(robot.model, "forward_dynamics_with_forces", "cyclic_reduction")
    traced = interpreter.run(program, np.concatenate([q[0], v[0], a[0], f[0].ravel()]))
    np.testing.assert_allclose(traced, batch[0], atol=1e-9 * np.max(np.abs(batch[0])))
    step = cyclic_reduction.forward_dynamics(robot.model, q[0], v[0], a[0] + 1e-20j * v[0]).imag / 1e-20
    np.testing.assert_allclose(step, np.linalg.solve(robot.mass_matrix(q[0]), v[0]), rtol=1e-8, atol=1e-8)


def test_compiled():
    robot = qddot.chain(4, rng=2)
    s = State(robot)
    kernel = built(robot.model, "forward_dynamics", method="cyclic_reduction")
    expected = articulated_body.forward_dynamics(s.model, s.q, s.v, s.a)
    np.testing.assert_allclose(kernel(s.q, s.v, s.a), expected, atol=1e-10 * np.max(np.abs(expected)))
    assert kernel.info.method == "cyclic_reduction"


def test_what_it_is_not_for():
    robot = qddot.load("quadruped")
    q, v = robot.random_state(0)
    with pytest.raises(
        FormulationError, match=r"link 'body' of robot 'quadruped' carries joints 'front_right.* unbranched"
    ):
        cyclic_reduction.forward_dynamics(robot.model, q, v, v)
    with pytest.raises(
        FormulationError, match=r"link .* has no mass .* 'cyclic_reduction' divides by it; take 'augmented'"
    ):
        trace.traced(qddot.load("puma560").model, "forward_dynamics", "cyclic_reduction")


@pytest.mark.slow
def test_digits_of_long_chains():
    """docs/parallel.md: the loss against the articulated-body algorithm up to 200 links, with that of (28) link by link."""
    for n in (10, 50, 100, 200):
        for seed in range(5):
            robot = Robot(qddot.chain(n, rng=seed).model, compiled=False)
            s, found = check(robot, seed)
            expected = articulated_body.forward_dynamics(s.model, s.q, s.v, s.a, s.f_ext)
            other = augmented.forward_dynamics_constraint_forces(s.model, s.q, s.v, s.a, s.f_ext)
            size = np.max(np.abs(expected))
            assert np.max(np.abs(found - expected)) <= 1e-11 * size
            assert np.max(np.abs(other - expected)) <= 1e-11 * size
