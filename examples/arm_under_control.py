"""A PUMA 560 follows a curve by computed torque, in copies whose payload differs: python examples/arm_under_control.py"""

import numpy as np

import qddot
from qddot.scalars import sin
from qddot.simulation import controls

arm = qddot.load("puma560")
law = controls.computed_torque(arm, lambda t: [0.5 * sin(t + k) for k in range(arm.nq)], kp=100.0, kd=20.0)

q0 = 0.5 * np.sin(np.arange(arm.nq)) + 0.05  # a little off the curve
v0 = 0.5 * np.cos(np.arange(arm.nq))
hand = arm.link_names[-1]
mass = np.linspace(1.0, 3.0, 9) * arm.parameters(f"{hand}.mass")  # the law knows the first of them only

run = arm.simulate(q0, v0, law, dt=2e-4, steps=15_000, record=150, free={f"{hand}.mass": mass})

error = np.abs(run.q - 0.5 * np.sin(run.t[:, None] + np.arange(arm.nq))).max(axis=-1)
for m, e in zip(mass, error, strict=True):
    print(f"{hand} of {m:.3f} kg: error {e[0]:.3f} rad at first, {e[-1]:.1e} after {run.t[-1]:g} s")
assert error[0, -1] < 1e-3 < error[-1, 0]
