"""What one machine computes, as digests of the bits: `python machine_bits.py ROBOT …` prints them, and its target.

Run by tests/compiler/test_machines.py on this machine and on emulated ones. Inputs are fractions of powers of two, so
that they are the same everywhere; what passes through the C library (angles beyond 1e5, arctan2) is left out.
"""

import hashlib
import json
import sys

import numpy as np

import qddot
from qddot.compiler.runtime import llvm_compile
from qddot.compiler.targets.host import host

JOBS = [
    ("inverse_dynamics", "float64"),
    ("inverse_dynamics", "float32"),
    ("forward_dynamics", "float64"),
    ("mass_matrix", "float64"),
    ("forward_kinematics", "float64"),
    ("inverse_dynamics_derivatives", "float64"),
]
STATES = 11  # a block of eight lanes and a rest
ROLLED = "chain"  # ninety links: code that keeps its loops


def states(robot):
    """Positions and velocities of a batch; orientations are (0, 0.6, 0, 0.8)."""
    rng = np.random.default_rng(0)
    q, v = (rng.integers(-(2**21), 2**21, (STATES, n)) / 2**20 for n in (robot.nq, robot.nv))
    for joint in robot.model.joint:
        if joint is not None and joint.nq == joint.nv + 1:
            q[:, 3:7] = 0.0, 0.6, 0.0, 0.8
    return q, v


def digest(x):
    return hashlib.sha256(np.ascontiguousarray(x).tobytes()).hexdigest()[:16]


def law(t, q, v):
    """Functions of qddot's own, and selects."""
    return np.clip(-np.tanh(v) * np.exp(-np.abs(q)) - np.arctan(v) - np.log(1.0 + q**2), -1.5, 1.0)


def computed(name):
    """Digests of everything that is computed of one robot; and how many kernels came from the cache."""
    robot = qddot.chain(90) if name == ROLLED else qddot.load(name)
    q, v = states(robot)
    bits, cached = {}, 0
    for function, dtype in JOBS[: 3 if name == ROLLED else None]:
        kernel = robot.kernel(function, dtype=dtype)
        arrays = (q, v, v)[: len(kernel.inputs)]
        batch = kernel(*arrays)
        assert np.array_equal(kernel(*(x[3].astype(dtype) for x in arrays)), batch[3])
        assert kernel.info.fused == host().fma
        bits[f"{name} {function} {dtype}"] = digest(batch)
        cached += kernel.info.cached
    if name != ROLLED:
        batch = robot.simulate(q, v, dt=2.0**-10, steps=40)
        assert np.array_equal(robot.simulate(q[3], v[3], dt=2.0**-10, steps=40).q, batch.q[3])
        bits[f"{name} simulate"] = digest(batch.q)
    if name == "scara":
        run = robot.simulate(q, v, law, dt=2.0**-10, steps=40)
        bits[f"{name} law"] = digest(np.concatenate([run.q, run.tau], axis=-1))
    return bits, cached


def main():
    results = [computed(name) for name in sys.argv[1:]]
    bits = {name: x for own, _ in results for name, x in own.items()}
    target, cached = host(), sum(count for _, count in results)
    facts = {"fma": target.fma, "lanes": target.lanes("float64"), "loader": llvm_compile.loader(), "cached": cached}
    print(json.dumps({**facts, "bits": bits}))


if __name__ == "__main__":
    main()
