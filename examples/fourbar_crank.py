"""A four-bar of one's own, driven at its crank, and the torque that takes: python examples/fourbar_crank.py"""

import numpy as np

import qddot
from qddot.joints import Revolute
from qddot.scalars import sin

LENGTHS, GROUND = {"crank": 0.1, "coupler": 0.35, "rocker": 0.25}, 0.3  # m

b = qddot.Builder("my four-bar", gravity=(0.0, -9.81, 0.0))
for name, length in LENGTHS.items():
    mass = 2.0 * length  # kg: uniform bars
    b.link(name, mass, (length / 2, 0, 0), np.diag([1e-5, mass * length**2 / 12, mass * length**2 / 12]))
b.joint("motor", "world", "crank", Revolute(), actuated=True)
b.joint("knee", "crank", "coupler", Revolute(), qddot.pose((LENGTHS["crank"], 0, 0)))
b.joint("pivot", "world", "rocker", Revolute(), qddot.pose((GROUND, 0, 0)))
ends = [qddot.pose((LENGTHS[name], 0, 0)) for name in ("coupler", "rocker")]
b.loop("pin", "coupler", "rocker", Revolute(), *ends)
robot = b.robot()

omega = 2 * np.pi  # rad/s: one turn a second, with a ripple
q0, _ = robot.close_loops([0.0, 1.0, 1.5], hold=["motor"])  # the crank stays, the rest is assembled above it
v0 = robot.project_velocity(q0, [omega + 0.5, 0.0, 0.0], hold=["motor"])
run = robot.simulate(q0, v0, dt=1e-3, steps=2000, prescribed={"motor": lambda t: omega * t + 0.05 * sin(10.0 * t)})

angle, torque = np.degrees(run.q[:, robot.q_index["pivot"]]), run.tau[:, robot.v_index["motor"]]
print(f"mobility {robot.mobility}; the rocker swings from {angle.min():.1f}° to {angle.max():.1f}°")
print(f"the motor's torque is {torque.min():.2f} to {torque.max():.2f} N m")
work = np.sum(0.5 * (torque[1:] * run.v[1:, 0] + torque[:-1] * run.v[:-1, 0])) * 1e-3
gained = run.energy[-1] - run.energy[0]
print(f"two turns take {work:.4f} J, and the energy is {gained:.4f} J more")
assert abs(work - gained) < 1e-4
assert run.channels["drift"].max() < 1e-9
