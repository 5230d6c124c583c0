"""The example of a policy that is trained through the simulation, at a small size, and whole where slow tests run."""

import importlib.util

import numpy as np
import pytest

from tests.support.paths import ROOT


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("swing_up", ROOT / "examples" / "swing_up.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_its_gradient(example):
    """Against differences of fourth order, over a second from one start."""
    robot, rng = example.cart_pole(), np.random.default_rng(0)
    p, direction = example.initial_weights(rng), rng.standard_normal(example.WEIGHTS)
    given = {"dt": example.DT, "steps": 50, "integrator": example.INTEGRATOR, "cost": example.cost, "record": "end"}
    rollout = robot.differentiable_rollout(example.policy, parameters=p, **given)
    q, v = np.array([0.1, 2.0]), np.array([0.0, 1.0])
    found = rollout(q, v).vjp(cost_bar=1.0).parameters
    assert found.shape == (385,)
    h = 1e-4
    a, b, c, d = (rollout(q, v, parameters=p + s * h * direction).cost for s in (1.0, -1.0, 2.0, -2.0))
    wanted = (8.0 * (a - b) - (c - d)) / (12.0 * h)
    assert abs(found @ direction - wanted) <= 1e-8 * np.linalg.norm(found) * np.linalg.norm(direction)


def test_a_short_training_lowers_the_cost(example, capsys):
    """A tenth of the updates, a quarter of the samples; the cost of two seconds from the same starts."""
    robot, before = example.cart_pole(), example.initial_weights(np.random.default_rng(0))
    p, history = example.train(robot, stages=((50, 60), (100, 40)), samples=32)
    assert len(history) == 100
    assert "100 updates" in capsys.readouterr().out
    given = {"dt": example.DT, "steps": 100, "integrator": example.INTEGRATOR, "cost": example.cost, "record": "end"}
    rollout = robot.differentiable_rollout(example.policy, parameters=p, **given)
    start = example.starts(np.random.default_rng(5), 256)
    assert rollout(*start, parameters=p).cost.mean() < 0.85 * rollout(*start, parameters=before).cost.mean()


def test_the_picture(example, tmp_path):
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'qddot[view]'")
    robot, p = example.cart_pole(), np.zeros(example.WEIGHTS)
    run = example.tried(robot, p, count=4, seconds=2.0)
    assert not example.balanced(run)[:2].any()  # without a force it hangs
    example.draw(robot, np.ones(5), run, tmp_path / "picture.svg")
    assert (tmp_path / "picture.svg").stat().st_size > 1000


@pytest.mark.slow
def test_it_swings_up_from_everywhere(example):
    robot = example.cart_pole()
    p, _ = example.train(robot)
    assert example.balanced(example.tried(robot, p)).mean() > 0.9
