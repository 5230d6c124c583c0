"""Generated kernels and simulations on a real card: the bits of this processor's; skipped without a card.

`pytest -m gpu` on a machine with one. `test_cuda_emulated.py` has the same without a card.
"""

import numpy as np
import pytest

import qddot
from qddot.compiler.runtime.cuda import arrays, context, plan
from tests.support.golden_bits import ALL, given, kernel_of, names_of

_obstacle = context.obstacle()
pytestmark = pytest.mark.skipif(_obstacle is not None, reason=str(_obstacle))
COUNT = 1000


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ["double_pendulum", "puma560", "fivebar"])
@pytest.mark.filterwarnings("ignore::qddot.QddotWarning")
def test_every_function_has_the_bits_of_this_processor(name, dtype):
    robot = qddot.load(name)
    known, wrong = given(robot), []
    for function in names_of(robot):
        kernel = kernel_of(robot, function, dtype=dtype, target="cuda")
        if kernel.info.ops.get("arctan2"):
            continue  # of qddot's own there, of the C library here
        own = [np.resize(known[x], (COUNT, *known[x].shape[1:])).astype(dtype) for x in ALL[function].inputs]
        wanted = kernel_of(robot, function, dtype=dtype)(*own)
        there = kernel(*map(arrays.to_device, own)).copy_to_host()
        if not np.array_equal(there, wanted, equal_nan=True):
            wrong.append(function)
    assert wrong == []


@pytest.mark.parametrize("layout", ["rows", "columns", "NumPy"])
def test_a_quadruped(layout):
    robot = qddot.load("quadruped")
    kernel = robot.kernel("forward_dynamics_derivatives", dtype="float32", packed=True, target="cuda")
    q, v = robot.random_state(np.random.default_rng(0), COUNT)
    own = [x.astype(np.float32) for x in (q, v, np.sin(v))]
    wanted = robot.kernel("forward_dynamics_derivatives", dtype="float32", packed=True)(*own)
    if layout == "NumPy":
        result = kernel(*own)
    elif layout == "rows":
        result = kernel(*map(arrays.to_device, own)).copy_to_host()
    else:
        result = kernel(*(arrays.to_device(np.ascontiguousarray(x.T)).T for x in own)).copy_to_host()
    np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_large_batches_of_long_programs_go_through_passes(monkeypatch, dtype):
    robot, name = qddot.load("quadruped"), "forward_dynamics_derivatives"
    kernel = robot.kernel(name, dtype=dtype, packed=True, target="cuda")
    assert kernel.code.large_batches is not None
    count = 5000
    q, v = robot.random_state(np.random.default_rng(0), count)
    own = [x.astype(dtype) for x in (q, v, np.sin(v))]
    wanted = robot.kernel(name, dtype=dtype, packed=True)(*own)
    given = [arrays.to_device(x) for x in own]
    np.testing.assert_array_equal(kernel(*given).copy_to_host(), wanted)
    monkeypatch.setattr(plan, "MOST_KEPT_BYTES", 1 << 20)  # many chunks
    again = robot.kernel(name, dtype=dtype, packed=True, target="cuda")
    np.testing.assert_array_equal(again(*given).copy_to_host(), wanted)
    rows = arrays.to_device(np.full((count, kernel.output[0] + 3), 7.0, dtype))  # not aligned to 16 bytes
    kernel(*given, out=rows[:, : kernel.output[0]])
    found = rows.copy_to_host()
    np.testing.assert_array_equal(found[:, : kernel.output[0]], wanted)
    assert (found[:, kernel.output[0] :] == 7.0).all()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("integrator", ["rk4", "semi_implicit_euler"])
@pytest.mark.filterwarnings("ignore::qddot.QddotWarning")
def test_simulations(integrator, dtype):
    robot, rng = qddot.load("quadruped"), np.random.default_rng(0)
    q, v = robot.random_state(rng, COUNT)
    options = {"dt": 1e-3, "steps": 100, "record": 20, "integrator": integrator, "dtype": dtype}
    there, here = (robot.simulate(q, v, target=target, **options) for target in ("cuda", "cpu"))
    for x in ("q", "v"):
        np.testing.assert_array_equal(there[x], here[x], err_msg=x)


def test_far_angles_and_numbers_that_are_not_finite():
    robot = qddot.load("puma560")
    q, v = robot.random_state(np.random.default_rng(0), COUNT)
    q[::7, 2] += 1e7
    q[5, 1] = np.nan
    there, here = (robot.kernel("inverse_dynamics", target=target)(q, v, v) for target in ("cuda", "cpu"))
    assert np.isnan(there[5]).any()
    near = np.abs(q).max(axis=1) < 1e5
    np.testing.assert_array_equal(there[near], here[near])
    np.testing.assert_allclose(np.delete(there, 5, axis=0), np.delete(here, 5, axis=0), rtol=1e-12, atol=1e-10)
