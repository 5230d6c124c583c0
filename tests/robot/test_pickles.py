"""What goes to another process: robots, kernels and rollouts, which are compiled again where they arrive."""

import copy
import dataclasses
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import qddot
from qddot.simulation import Rollout

KERNELS = {
    "plain": ("puma560", "inverse_dynamics", {}),
    "single": ("puma560", "forward_dynamics", {"dtype": np.float32}),
    "one lane": ("puma560", "mass_matrix", {"lanes": 1, "regroup": False}),
    "packed": ("puma560", "mass_matrix", {"packed": True}),
    "free": ("puma560", "inverse_dynamics", {"free": ["gravity"]}),
    "frame": ("puma560", "jacobian", {"frame": "link6"}),
    "prescribed": ("puma560", "hybrid_dynamics", {"prescribed": ["joint2"]}),
    "derivative": ("puma560", "inverse_dynamics_derivative", {"by": ("q", 1)}),
    "loops": ("fivebar", "constrained_forward_dynamics", {}),
    "with its loops": ("puma560", "inverse_dynamics", {"form": "rolled"}),
}


def inputs(kernel):
    rng = np.random.default_rng(0)
    return [rng.uniform(-0.1, 0.1, (5, *shape)) for shape in kernel.inputs]


@pytest.mark.parametrize("case", KERNELS)
def test_kernels_are_made_again(case):
    name, function, options = KERNELS[case]
    kernel = qddot.load(name).kernel(function, **options)
    back = pickle.loads(pickle.dumps(kernel))
    assert np.array_equal(back(*inputs(kernel)), kernel(*inputs(kernel)))
    assert (back.names, back.inputs, back.output) == (kernel.names, kernel.inputs, kernel.output)
    if kernel.layout is not None:
        assert back.layout.to_json() == kernel.layout.to_json()
    changed = {"compile_seconds": 0.0, "cached": True}
    assert dataclasses.replace(back.info, **changed) == dataclasses.replace(kernel.info, **changed)
    assert back.explain() == kernel.explain()
    assert pickle.loads(pickle.dumps(back)) is back  # once a process


def test_copies_of_a_kernel_are_the_kernel():
    kernel = qddot.load("pendulum").kernel("mass_matrix")
    assert copy.copy(kernel) is kernel
    assert copy.deepcopy({"k": [kernel]})["k"][0] is kernel


def test_a_rollout_travels_with_its_functions():
    """They are tapes by then; a lambda could not be pickled itself."""
    robot, gain = qddot.load("double_pendulum"), 3.0
    rollout = Rollout(robot, lambda t, q, v: -gain * q, dt=1e-3, free={"bob1.mass": [1.0, 2.0]})

    def run(rollout):
        _, q, v = rollout.run(rollout.start(np.full((2, 2), 0.3), np.zeros(2)), 20)
        return np.concatenate([q, v], axis=-1)

    expected = run(rollout)
    back = pickle.loads(pickle.dumps(rollout))
    assert back.engine is back.robot.engine
    assert np.array_equal(run(back), expected)
    assert back.identity == rollout.identity


@pytest.mark.process
def test_in_a_new_process(tmp_path):
    """With no cache, so that it is compiled there."""
    kernel = qddot.load("fivebar").kernel("constrained_forward_dynamics", lanes=1)
    (tmp_path / "kernel").write_bytes(pickle.dumps((kernel, inputs(kernel))))
    code = (
        "import pickle, sys; kernel, inputs = pickle.load(open(sys.argv[1], 'rb')); assert not kernel.info.cached; "
        "pickle.dump(kernel(*inputs), open(sys.argv[2], 'wb'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "kernel"), str(tmp_path / "result")],
        env={**os.environ, "QDDOT_CACHE_DIR": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert np.array_equal(pickle.loads((tmp_path / "result").read_bytes()), kernel(*inputs(kernel)))
