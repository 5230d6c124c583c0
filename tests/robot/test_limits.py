"""Joint limits as arrays, and configurations that keep them."""

import dataclasses
import math

import numpy as np
import pytest

import qddot
from qddot.joints import Free, Planar, Prismatic, Revolute, Spherical
from qddot.robots.generators import random_tree
from tests.support.mechanisms import MOVING

BALL = np.diag([0.1, 0.1, 0.1])


@pytest.fixture(scope="module")
def robot():
    """Limits on both sides, on one, away from zero, on a joint of three coordinates, and where they mean nothing."""
    b = qddot.Builder("limited")
    for name in ("base", "arm", "rod", "wheel", "car", "ball", "finger"):
        b.link(name, 1.0, inertia=BALL)
    b.joint("root", "world", "base", Free(), lower=-9.0, upper=9.0, effort_limit=(1, 2, 3, 4, 5, 6))
    b.joint("hip", "base", "arm", Revolute(), lower=-2.5, upper=-0.5, velocity_limit=1.5, effort_limit=40.0)
    b.joint("slide", "arm", "rod", Prismatic(), lower=2.0)
    b.joint("spin", "rod", "wheel", Revolute())
    b.joint("drive", "rod", "car", Planar(), lower=(0.25, -math.inf, -0.1), upper=(0.75, 0.5, 0.1))
    b.joint("wrist", "arm", "ball", Spherical(), lower=-1.0, upper=1.0, velocity_limit=0.5)
    b.joint("grip", "ball", "finger", Prismatic(), lower=0.0, upper=0.1, effort_limit=7.0, mimic=("slide", 0.1, 0.0))
    return b.robot()


def inside(robot, q, v):
    assert np.all(q >= robot.lower)
    assert np.all(q <= robot.upper)
    assert np.all(np.abs(v) <= robot.velocity_limit)


def test_arrays_in_the_order_of_q_and_v(robot):
    none, q, v = math.inf, robot.q_index, robot.v_index
    assert robot.lower.shape == robot.upper.shape == (robot.nq,)
    assert robot.velocity_limit.shape == robot.effort_limit.shape == (robot.nv,)
    assert np.all(robot.lower[q["root"]] == -none)  # a quaternion has no limits, and what stands beside it neither
    assert np.all(robot.upper[q["wrist"]] == none)
    assert (robot.lower[q["hip"]], robot.upper[q["hip"]]) == (-2.5, -0.5)
    assert (robot.lower[q["slide"]], robot.upper[q["slide"]]) == (2.0, none)
    assert (robot.lower[q["spin"]], robot.upper[q["spin"]]) == (-none, none)
    assert robot.lower[q["drive"]].tolist() == [0.25, -none, -0.1]
    assert robot.upper[q["drive"]].tolist() == [0.75, 0.5, 0.1]
    assert robot.velocity_limit[v["hip"]] == 1.5
    assert robot.velocity_limit[v["wrist"]].tolist() == [0.5] * 3
    assert robot.effort_limit[v["root"]].tolist() == [1, 2, 3, 4, 5, 6]
    assert 7.0 not in robot.effort_limit  # a joint that follows another has no place in v
    robot.lower[:] = 0.0  # an array of the caller's own
    assert robot.lower[q["hip"]] == -2.5


def test_neutral_is_inside(robot):
    q, at = robot.neutral(), robot.q_index
    inside(robot, q, np.zeros(robot.nv))
    assert (q[at["hip"]], q[at["slide"]], q[at["spin"]]) == (-0.5, 2.0, 0.0)
    assert q[at["drive"]].tolist() == [0.25, 0.0, 0.0]
    assert q[at["root"]].tolist() == [0, 0, 0, 0, 0, 0, 1]


def held(name, compiled, **limits):
    """A robot with loops, and limits (lower, upper) of some joints."""
    model = qddot.load(name).model
    own = list(model.limits)
    for joint, (lower, upper) in limits.items():
        own[model.joint_index(joint)] = own[model.joint_index(joint)]._replace(lower=(lower,), upper=(upper,))
    return qddot.Robot(dataclasses.replace(model, limits=tuple(own)), compiled)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(("lower", "upper"), [(0.2, 1.0), (-2.0, -0.3), (0.4, math.inf)])
def test_neutral_of_loops_is_closed_and_inside(lower, upper, compiled):
    joint = qddot.load("fourbar").joint_names[0]
    robot = held("fourbar", compiled, **{joint: (lower, upper)})
    q = robot.neutral()
    inside(robot, q, np.zeros(robot.nv))
    assert np.abs(robot.constraint_residual(q)).max() < 1e-10
    q[:] = 7.0  # an array of the caller's own
    assert np.abs(robot.constraint_residual(robot.neutral())).max() < 1e-10


def test_neutral_of_loops_is_zero_where_it_can_be():
    joint = qddot.load("fourbar").joint_names[0]
    for limits in ((-0.1, 0.1), (0.0, 2.0)):
        assert not held("fourbar", True, **{joint: limits}).neutral().any()
    beyond = held("fourbar", True, **dict.fromkeys(qddot.load("fourbar").joint_names, (3.0, 3.1)))
    assert not beyond.neutral().any()  # no closed configuration has all joints there


@pytest.mark.parametrize("size", [None, 0, 1, 300, (2, 3), (0, 4), ()])
def test_random_states_are_inside(robot, size):
    q, v = robot.random_state(3, size)
    batch = () if size is None else (size,) if isinstance(size, int) else size
    assert (q.shape, v.shape) == ((*batch, robot.nq), (*batch, robot.nv))
    inside(robot, q, v)
    assert np.allclose(q, robot.normalize(q), rtol=0, atol=1e-15)
    if size == 300:
        limited = np.isfinite(robot.lower) & np.isfinite(robot.upper)
        spread = np.ptp(q[:, limited], axis=0) / (robot.upper - robot.lower)[limited]
        assert np.all(spread > 0.9)  # all of the range is drawn from
        assert not np.any((q == robot.lower) | (q == robot.upper))  # and not its ends only
        assert len(np.unique(q[:, robot.q_index["slide"]])) == 300


@pytest.mark.parametrize("kind", MOVING)
def test_one_state_of_many_is_drawn_alike(kind):
    """A batch of one is the same state as no batch, for every kind of joint."""
    robot = qddot.Robot(random_tree(3, rng=2, kinds=(kind,)).model(), compiled=False)
    for alone, first in zip(robot.random_state(5), robot.random_state(5, 1), strict=True):
        assert np.array_equal(alone, first[0])
    q, _ = robot.random_state(5, (4, 2))
    robot.inverse_dynamics(q, np.zeros(robot.nv), np.zeros(robot.nv))  # quaternions are of unit length


def test_limits_that_meet():
    b = qddot.Builder("x").link("a", 1.0, inertia=BALL)
    robot = b.joint("j", "world", "a", Planar(), lower=0.5, upper=0.5).robot()
    assert robot.random_state(0, 3)[0].tolist() == [[0.5] * 3] * 3


def test_no_joints():
    robot = qddot.Builder("x").robot()
    assert robot.lower.shape == robot.effort_limit.shape == robot.neutral().shape == (0,)
    assert [x.shape for x in robot.random_state(0, 5)] == [(5, 0), (5, 0)]


@pytest.mark.parametrize("size", [-1, 2.0, True, "3", (2, -1), (2.5,)])
def test_wrong_sizes(robot, size):
    with pytest.raises(qddot.InputError, match=r"size is .*; give a whole number of zero or more"):
        robot.random_state(0, size)


def test_clipped(robot):
    rng = np.random.default_rng(0)
    q = robot.random_state(rng, (3, 5))[0]
    assert np.array_equal(robot.clip_configuration(q), q)
    far = q + 10.0 * rng.standard_normal(q.shape)
    far = robot.normalize(far)
    near = robot.clip_configuration(far)
    inside(robot, near, np.zeros(robot.nv))
    kept = (far >= robot.lower) & (far <= robot.upper)
    assert np.array_equal(near[kept], far[kept])
    assert not np.shares_memory(near, far)
    k = robot.q_index["hip"]
    far[0, 0, k] = math.nan
    assert math.isnan(robot.clip_configuration(far)[0, 0, k])
    assert robot.clip_configuration(far[::2, ::-1]).shape == (2, 5, robot.nq)
    with pytest.raises(qddot.InputError, match="its last axis must have"):
        robot.clip_configuration(far[..., 1:])
