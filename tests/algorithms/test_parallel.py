"""Divide and conquer: long chains, every shape of tree, steps that grow with the logarithm."""

import math

import numpy as np
import pytest

import qddot
from benchmarks import parallel as benchmark
from qddot.algorithms import articulated_body, newton_euler
from qddot.algorithms.papers import divide_and_conquer
from qddot.algorithms.papers.tree_contraction import schedule
from qddot.compiler.ir import interpreter
from qddot.dynamics import trace
from qddot.robot import Robot
from qddot.robots.generators import random_tree
from tests.support.mechanisms import State
from tests.support.tolerances import solve


def chain(n):
    return [-1, *range(n)]


def star(n):
    return [-1, 0, *([1] * (n - 1))]


def caterpillar(n):
    """A spine, and a leg on each of its links."""
    parent = [-1]
    for k in range(n // 2):
        parent += [2 * k - 1 if k else 0, 2 * k + 1]
    return parent


def binary(n):
    return [-1, 0, *((k // 2) for k in range(2, n + 1))]


def some_tree(n):
    rng = np.random.default_rng(n)
    return [-1, *(int(rng.integers(max(0, k - 5), k)) for k in range(1, n + 1))]


SHAPES = (chain, star, caterpillar, binary, some_tree)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n", [1, 2, 7, 64, 1000, 8000])
def test_steps_grow_with_the_logarithm(shape, n):
    parent = tuple(shape(n))
    plan = schedule(parent, (True,) * len(parent))
    assert len(plan.steps) <= 2 * math.log2(len(parent)) + 2  # a rake and a halving a round
    assert plan.depth == 4 * len(plan.steps) + 2
    gone = [int(k) for step in plan.steps for k in step.outer]
    assert sorted([*gone, *plan.roots.tolist()]) == list(range(1, len(parent)))  # every link is joined once, or a root
    assert plan.joins <= len(parent)


@pytest.mark.parametrize("shape", SHAPES)
def test_who_is_joined_touches(shape):
    """An assembly is joined to one that hangs on its last link, and by a rake to nothing that carries something."""
    parent = shape(60)
    plan = schedule(tuple(parent), (True,) * len(parent))
    last, open_ends = list(range(len(parent))), [parent.count(i) for i in range(len(parent))]
    for step in plan.steps:
        for k, owner in zip(step.outer, step.owner, strict=True):
            i = step.inner[owner]
            assert parent[k] == last[i]
            open_ends[i] -= 1
            if step.is_rake:
                assert open_ends[k] == 0
            else:
                assert open_ends[i] == 0
                last[i], open_ends[i] = last[k], open_ends[k]


@pytest.mark.parametrize("n", [5, 9, 17, 40])
@pytest.mark.parametrize("kind", ["revolute", "prismatic", "spherical", "universal", "free"])
def test_long_chains(n, kind):
    robot = Robot(qddot.chain(n, joint=kind).model.without_passive_forces(), compiled=False)
    s = State(robot)
    tau = newton_euler.inverse_dynamics(s.model, s.q, s.v, s.a, s.f_ext)
    found = divide_and_conquer.forward_dynamics(s.model, s.q, s.v, tau, s.f_ext)
    tolerance = 10 * solve(np.linalg.cond(robot.mass_matrix(s.q)))
    assert np.max(np.abs(found - s.a)) <= tolerance * np.max(np.abs(s.a))


@pytest.mark.parametrize("seed", range(6))
def test_long_trees(seed):
    robot = Robot(random_tree(60, rng=seed, order=("depth", "breadth", "random")[seed % 3]).model(), compiled=False)
    s = State(robot)
    expected = articulated_body.forward_dynamics(s.model, s.q, s.v, s.a, s.f_ext)
    found = divide_and_conquer.forward_dynamics(s.model, s.q, s.v, s.a, s.f_ext)
    assert np.max(np.abs(found - expected)) <= 10 * solve(np.linalg.cond(robot.mass_matrix(s.q))) * np.max(np.abs(expected))


def test_batches_complex_steps_and_other_scalars():
    robot = Robot(random_tree(6, rng=3).model(), compiled=False)
    states = [State(robot, k) for k in range(4)]
    q, v, a, f = (np.stack([getattr(s, x) for s in states]) for x in ("q", "v", "a", "f_ext"))
    batch = divide_and_conquer.forward_dynamics(robot.model, q, v, a, f)
    for k in range(4):
        one = divide_and_conquer.forward_dynamics(robot.model, q[k], v[k], a[k], f[k])
        assert np.array_equal(batch[k], one)
        objects = divide_and_conquer.forward_dynamics(robot.model, *(x[k].astype(object) for x in (q, v, a)), f[k])
        assert np.max(np.abs(objects.astype(float) - one)) <= 1e-9 * np.max(np.abs(one))
    pushed = divide_and_conquer.forward_dynamics(robot.model, q[0], v[0], a[0], f)  # forces alone may have batch axes
    assert np.array_equal(pushed[2], divide_and_conquer.forward_dynamics(robot.model, q[0], v[0], a[0], f[2]))
    step = divide_and_conquer.forward_dynamics(robot.model, q[0], v[0], a[0] + 1e-20j * v[0]).imag / 1e-20
    expected = np.linalg.solve(robot.mass_matrix(q[0]), v[0])
    assert np.max(np.abs(step - expected)) <= 1e-9 * np.max(np.abs(expected))


@pytest.mark.parametrize("where", [1, 4, 5, 6, 11])
def test_links_without_mass_wait_for_what_they_carry(where):
    """A chain with two massless links in a row, anywhere but at its end."""
    b, rng = qddot.Builder("rope"), np.random.default_rng(0)
    axes = np.eye(3)[[0, 1, 2] * 5]
    for k in range(1, 14):
        light = k in (where, where + 1)
        b.link(f"l{k}", 0.0 if light else 1.0, (0, 0, 0) if light else (0.1, 0.2, 0.3), None if light else np.eye(3))
        at = qddot.pose(rng.uniform(-1, 1, 3).tolist())
        b.joint(f"j{k}", f"l{k - 1}" if k > 1 else "world", f"l{k}", qddot.joints.Revolute(tuple(axes[k].tolist())), at)
    s = State(b.robot())
    expected = articulated_body.forward_dynamics(s.model, s.q, s.v, s.a)
    found = divide_and_conquer.forward_dynamics(s.model, s.q, s.v, s.a)
    assert np.max(np.abs(found - expected)) <= 1e-9 * np.max(np.abs(expected))
    traced = interpreter.run(trace.traced(s.model, "forward_dynamics", "divide_and_conquer"), np.array([*s.q, *s.v, *s.a]))
    assert np.max(np.abs(traced - expected)) <= 1e-9 * np.max(np.abs(expected))


def test_real_robots_agree():
    for name in ("puma560", "quadruped", "stanford", "scara"):
        s = State(qddot.load(name))
        expected = articulated_body.forward_dynamics(s.model, s.q, s.v, s.a, s.f_ext)
        found = divide_and_conquer.forward_dynamics(s.model, s.q, s.v, s.a, s.f_ext)
        assert np.max(np.abs(found - expected)) <= 1e-10 * np.max(np.abs(expected)), name


@pytest.mark.slow
def test_the_benchmark_runs(capsys, monkeypatch):
    monkeypatch.setattr(benchmark, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(benchmark, "LEAST_ROUNDS", 1)
    benchmark.main(["--lengths", "3,6"])
    printed = capsys.readouterr().out
    assert "divide and conquer against articulated_body, eager:" in printed
    assert "instructions | ns a join" in printed
