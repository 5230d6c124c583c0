"""Mechanisms with closed loops that the embedded robots do not have, for the tests."""

import math

import numpy as np

import qddot
from qddot.joints import Fixed, Prismatic, Revolute
from qddot.robots.bodies import planar, rod
from qddot.robots.fivebar import CRANK_MASS, ELBOW, FOREARM_MASS, LENGTH, PIVOT, THICKNESS, TIP
from qddot.spatial import Transform, constant_transform

BAR = np.diag([0.01, 0.02, 0.025])


def turned(axis, angle, p=(0.0, 0.0, 0.0)):
    return qddot.pose(p, tuple(angle if k == axis else 0.0 for k in range(3)))


def product(*transforms):
    T = Transform()
    for X in transforms:
        T = T @ X
    return constant_transform(T.R.rows, T.p)


def fivebar_weld():
    """The embedded five-bar cut through its right crank: five hinges in the tree, a weld of three rows that matter.

    Either half of the crank has half of its mass, in the same place.
    """
    b = qddot.Builder("fivebar_weld", gravity=(0.0, -9.81, 0.0))

    def seen(frame, direction):
        (c, s), (x, y) = frame, direction
        return (c * x + s * y, c * y - s * x)

    crank, forearm = (ELBOW[0] - PIVOT[0], ELBOW[1] - PIVOT[1]), (TIP[0] - ELBOW[0], TIP[1] - ELBOW[1])
    left_crank, left_forearm = (-crank[0], crank[1]), (-forearm[0], forearm[1])
    half, arm = rod(CRANK_MASS / 2, LENGTH, THICKNESS), rod(FOREARM_MASS, LENGTH, THICKNESS)
    middle = (LENGTH / 2, 0.0, 0.0)
    b.link("left_crank", CRANK_MASS, middle, rod(CRANK_MASS, LENGTH, THICKNESS))
    b.link("left_forearm", FOREARM_MASS, middle, arm)
    b.link("right_forearm", FOREARM_MASS, middle, arm)  # its frame at its elbow, as in the embedded one
    b.link("far_half", CRANK_MASS / 2, (-LENGTH / 2, 0.0, 0.0), half)
    b.link("near_half", CRANK_MASS / 2, middle, half)
    b.joint("left_shoulder", "world", "left_crank", Revolute(), planar(-PIVOT[0], 0.0, left_crank))
    b.joint("left_elbow", "left_crank", "left_forearm", Revolute(), planar(LENGTH, 0.0, seen(left_crank, left_forearm)))
    at_tip = planar(LENGTH, 0.0, seen(left_forearm, forearm))
    back = planar(-LENGTH, 0.0, (1.0, 0.0))
    b.link("tip", 0.0)
    b.joint("tip_hinge", "left_forearm", "tip", Revolute(), at_tip, actuated=False)
    b.joint("tip_fixed", "tip", "right_forearm", Fixed(), back)
    b.joint("right_elbow", "right_forearm", "far_half", Revolute(), planar(0.0, 0.0, seen(forearm, crank)), actuated=False)
    b.joint("right_shoulder", "world", "near_half", Revolute(), planar(PIVOT[0], 0.0, crank))
    # the far half has its frame at the elbow, a crank's length from the near one's
    b.loop("cut", "near_half", "far_half", Fixed(), qddot.pose((LENGTH, 0.0, 0.0)), qddot.pose((0.0, 0.0, 0.0)))
    return b


def fourbar_six_rows():
    """A planar parallelogram-like four-bar in space, closed by a weld in its coupler: six rows of which three matter."""
    b = qddot.Builder("fourbar_weld", gravity=(0.0, -9.81, 0.0))
    tilt = turned(0, 0.4)
    b.link("crank", 1.0, (0.1, 0.0, 0.0), BAR).joint("j1", "world", "crank", Revolute(), product(tilt, turned(2, 1.2)))
    b.link("half_a", 0.5, (0.15, 0.0, 0.0), BAR).joint("j2", "crank", "half_a", Revolute(), turned(2, -1.2, (0.2, 0, 0)))
    x = 0.2 * math.cos(1.2) + 0.5 - 0.25 * math.cos(1.4)
    y = 0.2 * math.sin(1.2) - 0.25 * math.sin(1.4)
    b.link("rocker", 2.0, (0.1, 0.0, 0.0), BAR)
    b.joint("j3", "world", "rocker", Revolute(), product(tilt, turned(2, 1.4, (x, y, 0.0))))
    b.link("half_b", 0.5, (-0.15, 0.0, 0.0), BAR)
    b.joint("j4", "rocker", "half_b", Revolute(), turned(2, -1.4, (0.25, 0, 0)))
    b.loop("cut", "half_a", "half_b", Fixed(), qddot.pose((0.25, 0, 0)), qddot.pose((-0.25, 0, 0)))
    return b


def slider_crank():
    """Crank, rod, and a block on a rail; the hinge between rod and block closes it."""
    b = qddot.Builder("slider_crank", gravity=(0.0, -9.81, 0.0))
    crank, rod_length, angle = 0.1, 0.3, 0.7
    b.link("crank", 1.0, (0.05, 0, 0), BAR).joint("drive", "world", "crank", Revolute(), turned(2, angle))
    down = -math.asin(crank * math.sin(angle) / rod_length)
    b.link("rod", 0.7, (0.15, 0, 0), BAR)
    b.joint("wrist", "crank", "rod", Revolute(), turned(2, down - angle, (crank, 0, 0)), actuated=False)
    far = crank * math.cos(angle) + rod_length * math.cos(down)
    b.link("block", 2.0, (0, 0, 0), BAR)
    b.joint("rail", "world", "block", Prismatic((1.0, 0.0, 0.0)), qddot.pose((far, 0, 0)), actuated=False)
    b.loop("pin", "rod", "block", Revolute(), product(qddot.pose((rod_length, 0, 0)), turned(2, -down)), Transform())
    return b


def bennett(reference=0.9):
    """Bennett's linkage: four hinges whose axes are neither parallel nor meet, and which moves all the same.

    Opposite links are alike, a/sin α = b/sin β. Closed by a hinge with five rows, of which two are independent.
    """
    a, alpha, beta = 0.3, 0.6, 1.1
    c = a * math.sin(beta) / math.sin(alpha)
    ratio = math.sin((beta + alpha) / 2) / math.sin((beta - alpha) / 2)
    second = 2.0 * math.atan(ratio / math.tan(reference / 2))
    long, short = product(qddot.pose((a, 0, 0)), turned(0, alpha)), product(qddot.pose((c, 0, 0)), turned(0, beta))
    angles = (reference, second, 2 * math.pi - reference, 2 * math.pi - second)
    b = qddot.Builder("bennett")
    b.link("l1", 1.0, (a / 2, 0, 0), BAR).joint("j1", "world", "l1", Revolute(), turned(2, angles[0]))
    b.link("l2", 1.5, (c / 2, 0, 0), BAR).joint("j2", "l1", "l2", Revolute(), product(long, turned(2, angles[1])))
    b.link("l3", 1.0, (a / 2, 0, 0), BAR).joint("j3", "l2", "l3", Revolute(), product(short, turned(2, angles[2])))
    at = short.inverse()
    b.loop("j4", "l3", "world", Revolute(), product(long, turned(2, angles[3])), constant_transform(at.R.rows, at.p))
    return b


MECHANISMS = {
    **{name: lambda name=name: qddot.load(name) for name in ("fourbar", "fivebar", "delta", "stewart")},
    "fivebar_weld": lambda: fivebar_weld().robot(),
    "fourbar_six_rows": lambda: fourbar_six_rows().robot(),
    "slider_crank": lambda: slider_crank().robot(),
    "bennett": lambda: bennett().robot(),
}
# rows of the constraints, and the degrees of freedom that they leave
COUNTS = {
    "fourbar": (5, 1),
    "fivebar": (5, 2),
    "delta": (18, 3),
    "stewart": (18, 6),
    "fivebar_weld": (6, 2),
    "fourbar_six_rows": (6, 1),
    "slider_crank": (5, 1),
    "bennett": (5, 1),
}


def closed_states(robot, count=6, spread=0.15):
    """Random states with closed loops, and forces."""
    rng = np.random.default_rng(1)
    near = robot.integrate(robot.neutral(), spread * rng.standard_normal((count, robot.nv)))
    q, _ = robot.close_loops(near)
    return q, robot.project_velocity(q, rng.standard_normal((count, robot.nv))), rng.standard_normal((count, robot.nv))


def motion(robot, count=4):
    """States and accelerations that the loops allow."""
    q, v, tau = closed_states(robot, count)
    return q, v, robot.forward_dynamics(q, v, 3.0 * tau)


# Six points at steps of 4e-3 rad are off by h⁶ times a seventh derivative: 4e-15 times up to 1e5 of mechanisms that turn
# within tenths of a metre, and what closing to 1e-12 leaves, divided by h, is less.
DIFFERENCES = 1e-8


def state_along(robot, q, v, tau, direction, h):
    """The state that is reached along a direction, the loops closed again by the least change, which is of second order.

    What is of second order is even in h only if it is the same on both sides, so the end is found at h along the direction.
    """
    x = robot.integrate(q, h * direction)
    for _ in range(12):
        A, phi = robot.constraint_jacobian(x), robot.constraint_residual(x)
        across = np.vstack([A, direction @ np.eye(robot.nv)])
        off = np.append(phi, direction @ robot.difference(q, x) - h)
        x = robot.integrate(x, -np.linalg.pinv(across, rcond=1e-9) @ off)
    assert np.abs(robot.constraint_residual(x)).max() < 1e-12
    return np.concatenate(robot.constrained_forward_dynamics(x, v, tau, method="null_space"))
