"""Arms with randomised masses, as for learning: dynamics and a rollout of a batch: python examples/randomised_masses.py"""

import time

import numpy as np

import qddot
from qddot.simulation import controls

arm, rng, n = qddot.load("puma560"), np.random.default_rng(0), 1024
names = [f"{link}.mass" for link in arm.link_names if arm.parameters(f"{link}.mass") > 0]
masses = {name: arm.parameters(name) * rng.uniform(0.7, 1.3, n) for name in names}  # each sample has its own
q, v = arm.random_state(rng, n)
tau = rng.normal(0.0, 10.0, (n, arm.nv))

# the masses are arguments of the compiled code: no sample compiles anew
kernel = arm.kernel("forward_dynamics", free=names)
a = kernel(q, v, tau, *masses.values())
one = arm.with_parameters({name: m[7] for name, m in masses.items()})
assert np.allclose(a[7], one.forward_dynamics(q[7], v[7], tau[7]), rtol=1e-9, atol=1e-9)
print(
    f"accelerations of {n} arms differ by {np.std(a - arm.forward_dynamics(q, v, tau)):.1f} rad/s² from the nominal arm's"
)

# a rollout of the whole batch, by a policy that is a function of the state
goal = np.array([0.5, -0.8, 0.6, 0.0, 0.4, 0.0])
policy = controls.pd(arm, goal, kp=300.0, kd=30.0)
begin = time.perf_counter()
run = arm.simulate(arm.neutral(), np.zeros(6), policy, dt=2e-4, steps=2500, record="end", free=masses, limits="stops")
took = time.perf_counter() - begin
error = np.linalg.norm(run.q[:, -1] - goal, axis=-1)
print(f"{n} rollouts of 0.5 s in {took:.1f} s; the error is {error.min():.3f} to {error.max():.3f} rad")
assert run.q.shape == (n, 2, 6)
assert np.isfinite(run.q).all()
assert error.std() > 1e-3  # masses matter
