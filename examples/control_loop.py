"""A controller in plain Python holds a PUMA 560, within its limits, with a payload: python examples/control_loop.py"""

import time

import numpy as np

import qddot

arm = qddot.load("puma560")
loaded = arm.with_payload(arm.link_names[-1], 2.0, com=(0.0, 0.0, 0.1))  # kg, and m in front of the hand
drives = np.array([100.0, 180.0, 90.0, 25.0, 25.0, 25.0])  # N m
goal, dt, period = np.array([0.5, -0.6, 0.4, 0.2, 0.5, 0.0]), 2e-4, 5  # a controller every millisecond


def run(robot: qddot.Robot, steps: int) -> qddot.simulation.Trajectory:
    """PID about the gravity of the arm without its payload, which it does not know of."""
    sim = robot.simulator(dt=dt, record=period, limits="stops")  # of the joints
    (q, v), total = sim.reset(np.zeros(6)), np.zeros(6)
    for k in range(steps):
        if k % period == 0:
            total += (goal - q) * dt * period
            tau = np.clip(arm.gravity_force(q) + 400.0 * (goal - q) + 400.0 * total - 40.0 * v, -drives, drives)
        q, v = sim.step(tau)
    return sim.trajectory()


for robot in (arm, loaded):
    begin = time.perf_counter()
    found = run(robot, steps := 15_000)
    error = np.abs(found.q - goal).max(axis=-1)
    took = time.perf_counter() - begin
    print(f"{robot.mass:.1f} kg: error {error[0]:.2f} rad at first, {error[-1]:.4f} at last; {steps} steps in {took:.2f} s")
    assert np.all(np.abs(found.tau) <= drives)
    assert error[-1] < 0.02
    assert np.all((found.q > robot.lower) & (found.q < robot.upper))
