"""A quadruped falls onto its feet, held by springs in its joints: python examples/falling_quadruped.py"""

import numpy as np

import qddot
from qddot.simulation import controls, forces

robot = qddot.load("quadruped")
q0 = robot.neutral()
q0[2] = 0.6  # the body, 60 cm above the ground
legs = np.r_[np.zeros(6), np.ones(robot.nv - 6)]  # nothing drives the floating base

feet = [name for name in robot.frame_names if name.endswith("_foot")]
ground = forces.ground(robot, feet, stiffness=2e5, damping=0.5, friction=0.8)
hold = controls.pd(robot, q0, 100.0 * legs, 3.0 * legs)

run = robot.simulate(q0, np.zeros(robot.nv), hold, forces=ground, dt=5e-5, steps=40_000, record=4000)

for t, q in zip(run.t, run.q, strict=True):
    lowest = min(robot.pose(q, foot)[2, 3] for foot in feet)
    print(f"t = {t:.1f} s: body at {q[2]:.3f} m, lowest foot {1000 * lowest:+.2f} mm")
assert run.q[-1, 2] > 0.2
assert abs(run.v[-1]).max() < 0.5
