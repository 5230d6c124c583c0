"""Trajectories for tests of what is done with them: a plain Runge-Kutta loop over a robot's own methods."""

import numpy as np

import qddot
from qddot.simulation.trajectory import Trajectory


def step(robot, q, v, tau, dt):
    """Runge & Kutta's step of fourth order, with stages in the tangent space at q."""

    loops = {"gains": (400.0, 40.0)} if robot.model.is_constrained else {}

    def slope(h, dq, dv):
        return v + h * dv, robot.forward_dynamics(robot.integrate(q, dq, h), v + h * dv, tau, **loops)

    k1 = v, robot.forward_dynamics(q, v, tau, **loops)
    k2 = slope(dt / 2, *k1)
    k3 = slope(dt / 2, *k2)
    k4 = slope(dt, *k3)
    dq, dv = ((a + 2 * b + 2 * c + d) / 6 for a, b, c, d in zip(k1, k2, k3, k4, strict=True))
    return robot.integrate(q, dq, dt), v + dt * dv


def rollout(robot, q, v, tau=None, dt=1e-3, steps=100, **options):
    tau = np.zeros(robot.nv) if tau is None else np.asarray(tau)
    rows = [(np.asarray(q), np.asarray(v))]
    for _ in range(steps):
        rows.append(step(robot, *rows[-1], tau, dt))
    qs, vs = (np.stack(x, axis=-2) for x in zip(*rows, strict=True))
    info = {"integrator": "rk4", "dt": dt, "steps": steps}
    taus = np.broadcast_to(tau, vs.shape)
    return Trajectory(robot, dt * np.arange(steps + 1), qs, vs, tau=taus, info=info, **options)


def arm(steps=100, **options):
    robot = qddot.load("puma560", passive_forces=False)
    return rollout(robot, robot.neutral() + 0.3, np.zeros(6), steps=steps, **options)
