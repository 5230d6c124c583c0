"""The three worked examples of docs/loops.md: their numbers, and with matplotlib their pictures.

python docs/pictures/loops.py    writes fivebar.svg, delta.svg and prescribed.svg beside itself.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import qddot
from qddot.joints import Prismatic, Revolute


def smooth(t, duration):
    """From 0 to 1 with velocity and acceleration zero at both ends, and its two derivatives."""
    s = np.clip(t / duration, 0.0, 1.0)
    position = s**3 * (10 - 15 * s + 6 * s**2)
    return position, 30 * s**2 * (1 - s) ** 2 / duration, 60 * s * (1 - s) * (1 - 2 * s) / duration**2


def moving(robot, drives, path, times):
    """Closed motions along which the drives follow a path: drive coordinates q, velocities and accelerations at times."""
    driven = [robot.v_index[d] for d in drives]
    places = [robot.q_index[d] for d in drives]
    q, states = robot.neutral(), []
    for t in times:
        wanted, speed, acceleration = path(t)
        for _ in range(8):  # Newton's method for the other coordinates: loops closed, drives where they are wanted
            A = np.vstack([robot.constraint_jacobian(q), np.eye(robot.nv)[driven]])
            off = [*robot.constraint_residual(q), *(q[places] - wanted)]
            q = robot.integrate(q, -np.linalg.lstsq(A, off, rcond=None)[0])
        A = np.vstack([robot.constraint_jacobian(q), np.eye(robot.nv)[driven]])
        rows = len(A) - len(driven)
        v = np.linalg.lstsq(A, [*np.zeros(rows), *speed], rcond=None)[0]
        a = np.linalg.lstsq(A, [*-robot.constraint_bias(q, v), *acceleration], rcond=None)[0]
        states.append((q, v, a))
    return [np.stack(x) for x in zip(*states, strict=True)]


def fivebar():
    """Torques of a move with two motors, and with motors in the elbows as well: least torque, least force in the hinge."""
    robot, times = qddot.load("fivebar"), np.linspace(0, 0.4, 41)
    goal = np.array([0.7, 0.25])

    def path(t):
        return [goal * x for x in smooth(t, 0.4)]

    q, v, a = moving(robot, ["left_shoulder", "right_shoulder"], path, times)
    everything = robot.joint_names
    torques = {
        "two motors": robot.constrained_inverse_dynamics(q, v, a),
        "four motors, least torque": robot.constrained_inverse_dynamics(q, v, a, actuated=everything),
        "four motors, least hinge force": robot.constrained_inverse_dynamics(
            q, v, a, actuated=everything, choice="constraint_force"
        ),
    }
    return robot, times, q, torques


def delta():
    """Torques of the three arms of a delta robot that carries its platform to the side."""
    robot, times = qddot.load("delta"), np.linspace(0, 0.5, 51)
    drives = [f"arm{k}_drive" for k in (1, 2, 3)]
    goal = np.array([0.5, -0.1, 0.3])

    def path(t):
        return [goal * x for x in smooth(t, 0.5)]

    q, v, a = moving(robot, drives, path, times)
    tau = robot.inverse_dynamics(q, v, a)[:, [robot.v_index[d] for d in drives]]
    return robot, times, q, tau


def prescribed(amplitude, frequency=30.0, duration=3.0, dt=5e-4):
    """A pendulum upside down whose pivot is shaken up and down: the pivot's motion is prescribed, the hinge is free.

    Kapitza: it stays up where the pivot's speed is more than sqrt(2 g l), l the length of the equal simple pendulum.
    """
    b = qddot.Builder("shaken")
    b.link("pivot", 0.2).joint("shake", "world", "pivot", Prismatic((0.0, 0.0, 1.0)))
    b.link("rod", 0.1, (0.0, 0.0, 0.1), np.diag([3.4e-4, 3.4e-4, 1e-6]))
    robot = b.joint("hinge", "pivot", "rod", Revolute((0.0, 1.0, 0.0))).robot()
    omega = 2 * np.pi * frequency

    def slopes(t, state):
        angle, speed = state
        q = np.array([amplitude * np.sin(omega * t), angle])
        v = np.array([amplitude * omega * np.cos(omega * t), speed])
        given = np.array([-amplitude * omega**2 * np.sin(omega * t), 0.0])
        a, tau = robot.hybrid_dynamics(q, v, given, np.zeros(2), prescribed=["shake"])
        return np.array([speed, a[1]]), tau[0]

    state, rows = np.array([0.2, 0.0]), []
    for k in range(round(duration / dt)):
        t = k * dt
        k1, force = slopes(t, state)
        k2, _ = slopes(t + dt / 2, state + dt / 2 * k1)
        k3, _ = slopes(t + dt / 2, state + dt / 2 * k2)
        k4, _ = slopes(t + dt, state + dt * k3)
        rows.append((t, state[0], force))
        state = state + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return np.array(rows).T


# ---- pictures ------------------------------------------------------------------------------------------------------------

COLOURS = ("#1b5e9b", "#c2571a", "#3a7d44")
GREY = "#9a9a9a"


def figure(*sizes):
    import matplotlib.pyplot as plt

    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "qddot", "font.size": 9, "axes.spines.top": False})
    plt.rcParams.update({"axes.spines.right": False, "legend.frameon": False, "path.simplify_threshold": 0.5})
    return plt.figure(figsize=sizes, layout="constrained")


def save(fig, name):
    fig.savefig(Path(__file__).with_name(name), metadata={"Date": None, "Creator": None})


def draw_fivebar():
    robot, times, q, torques = fivebar()
    fig = figure(8, 3.2)
    left, right = fig.subplots(1, 2, width_ratios=(1, 1.35))
    for k, alpha in ((0, 0.25), (20, 0.5), (40, 1.0)):
        at = [
            robot.pose(q[k], name)[:2, 3] for name in ("left_crank", "left_forearm", "tip", "right_forearm", "right_crank")
        ]
        left.plot(*np.array(at).T, "o-", color=COLOURS[0], alpha=alpha, lw=3, ms=5)
    tip = np.array([robot.pose(x, "tip")[:2, 3] for x in q])
    left.plot(*tip.T, color=COLOURS[1], lw=1.2)
    left.plot([-0.06, 0.06], [0, 0], color=GREY, lw=5, solid_capstyle="butt", zorder=0)
    left.set(aspect="equal", xlabel="x, m", ylabel="y, m", title="the move, and the path of the tip")
    for (name, (tau, _)), colour in zip(torques.items(), COLOURS, strict=True):
        right.plot(times, np.sqrt(np.sum(tau**2, axis=-1)), color=colour, label=name)
    right.set(xlabel="t, s", ylabel="|τ|, N m", title="joint torques, all together", ylim=(0, None))
    right.legend()
    save(fig, "fivebar.svg")


def draw_delta():
    robot, times, q, tau = delta()
    fig = figure(8, 3.6)
    left, right = fig.add_subplot(1, 2, 1, projection="3d"), fig.add_subplot(1, 2, 2)
    for k, alpha in ((0, 0.3), (50, 1.0)):
        ends = []
        for arm, colour in zip((1, 2, 3), COLOURS, strict=True):
            pivot = robot.pose(q[k], f"arm{arm}")[:3, 3]
            for side in ("left", "right"):
                rod = robot.pose(q[k], f"rod{arm}_{side}")
                end = rod[:3, 3] + 1.055 * rod[:3, 2]
                left.plot(*np.array([pivot, rod[:3, 3], end]).T, color=colour, alpha=alpha, lw=1.8)
                ends.append(end)
        left.plot(*np.array([*ends, ends[0]]).T, color="black", alpha=alpha, lw=1.5)
    left.set(xticks=(-0.5, 0, 0.5), yticks=(-0.5, 0, 0.5), zticks=(-0.8, -0.4, 0))
    left.set(xlabel="x", ylabel="y", zlabel="z, m", title="start (pale) and end of the move")
    left.tick_params(pad=0)
    left.set_aspect("equal")
    left.view_init(18, -65)
    for k, colour in enumerate(COLOURS):
        right.plot(times, tau[:, k], color=colour, label=f"arm {k + 1}")
    right.set(xlabel="t, s", ylabel="τ, N m", title="torques of the drives")
    right.legend()
    save(fig, "delta.svg")


def draw_prescribed():
    fig = figure(8, 3.2)
    left, right = fig.subplots(1, 2, width_ratios=(1.35, 1))
    for amplitude, colour in ((0.02, COLOURS[0]), (0.005, COLOURS[1])):
        t, angle, force = prescribed(amplitude)
        shown = angle < 2 * np.pi
        left.plot(t[shown], angle[shown], color=colour, label=f"shaken by {1000 * amplitude:.0f} mm at 30 Hz")
        if amplitude == 0.02:
            short = t < 0.2
            right.plot(t[short], force[short], color=colour)
    left.axhline(0.0, color=GREY, lw=0.8)
    left.set(xlabel="t, s", ylabel="angle from upright, rad", title="the free hinge")
    left.legend(loc="upper left")
    right.set(xlabel="t, s", ylabel="force, N", title="what drives the pivot, 20 mm")
    save(fig, "prescribed.svg")


if __name__ == "__main__":
    import matplotlib

    matplotlib.use("Agg")
    draw_fivebar()
    draw_delta()
    draw_prescribed()
