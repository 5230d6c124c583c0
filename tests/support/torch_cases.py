"""Robots, states and arguments for the tests of `qddot.torch`."""

import functools

import numpy as np

import qddot
from qddot.joints import KINDS
from qddot.robot import Robot
from qddot.robots.generators import random_tree

JOINTS = tuple(kind for kind in KINDS if kind != "fixed")
SKIPPED = ("inverse_dynamics_second_derivatives", "forward_dynamics_second_derivatives")  # of arms, in a test of their own
LOOPS_ONLY = ("constraint_residual", "constraint_jacobian", "constraint_jacobian_derivatives", "constraint_bias")


@functools.cache
def arm() -> Robot:
    return qddot.load("puma560")


@functools.cache
def tree(n=4, seed=3, kinds=JOINTS, mimic=False) -> Robot:
    return Robot(random_tree(n, rng=seed, kinds=kinds, mimic=mimic).model())


@functools.cache
def pair(kind: str) -> Robot:
    """A hinge and a joint of this kind, in any order."""
    made = (tree(2, seed, ("revolute", kind)) for seed in range(100))
    return next(x for x in made if {joint.kind for joint in x.model.joint[1:]} == {"revolute", kind})


@functools.cache
def floating() -> Robot:
    """A free body with a ball joint and a hinge."""
    b = qddot.Builder("floating")
    b.link("base", 3.0, (0.02, -0.03, 0.05), np.diag([0.05, 0.06, 0.07]))
    b.link("ball", 1.0, (0.1, 0.02, 0.0), np.diag([0.01, 0.02, 0.015]))
    b.link("tip", 0.5, (0.0, 0.0, 0.2), np.diag([0.01, 0.01, 0.002]))
    b.joint("free", "world", "base", qddot.joints.Free())
    b.joint("socket", "base", "ball", qddot.joints.Spherical(), qddot.pose((0.3, 0.0, 0.1)))
    b.joint("hinge", "ball", "tip", qddot.joints.Revolute("y"), qddot.pose((0.2, 0.1, 0.0), (0.3, 0.0, 0.0)))
    return b.robot()


@functools.cache
def hand() -> Robot:
    """A ball joint with a hinge, damped and with friction."""
    b = qddot.Builder("hand")
    b.link("palm", 1.0, (0.1, 0.02, 0.0), np.diag([0.01, 0.02, 0.015]))
    b.link("finger", 0.5, (0.0, 0.05, 0.2), np.diag([0.01, 0.01, 0.002]))
    b.joint("wrist", "world", "palm", qddot.joints.Spherical())
    b.joint("knuckle", "palm", "finger", qddot.joints.Revolute("y"), qddot.pose((0.2, 0.1, 0.0)), damping=0.3, friction=0.1)
    return b.robot()


@functools.cache
def fourbar() -> Robot:
    return qddot.load("fourbar")


def arguments(robot: Robot, name: str, batch=(), seed=0) -> tuple[list, dict]:
    """Arrays for a method in the order of `Robot`, and its other arguments."""
    from qddot.dynamics.catalogue import ALL

    rng = np.random.default_rng(seed)
    q, v = states(robot, batch, rng)
    others = {x: rng.standard_normal((*batch, robot.nv)) for x in ("a", "tau")}
    arrays = [{"q": q, "v": v, **others}[x] for x in ALL[name].inputs]
    frame = robot.link_names[-1]
    needs = {"frame": frame, "rows": (0,), "prescribed": (robot.nv - 1,), "by": ("v", (robot.joint_names[0], 0))}
    return arrays, {x: needs[x] for x in ALL[name].needs}


def states(robot: Robot, batch, rng) -> tuple[np.ndarray, np.ndarray]:
    """Random ones; with loops closed."""
    q, v = robot.random_state(rng, int(np.prod(batch, dtype=int)))
    if robot.model.is_constrained:
        q = robot.close_loops(robot.integrate(np.broadcast_to(robot.neutral(), q.shape), 0.1 * v))[0]
        v = robot.project_velocity(q, v)
    return q.reshape(*batch, robot.nq), v.reshape(*batch, robot.nv)
