"""`target="cuda"` from end to end without a card: the driver's stand-in, and its launches on emulated threads."""

import sys
import warnings

import numpy as np
import pytest

import qddot
from qddot.compiler.codegen.abi import grid
from qddot.compiler.runtime.cuda import arrays
from qddot.errors import InputError
from qddot.simulation import Rollout
from tests.support import fake_cuda, golden_grids
from tests.support.emulated_card import steps_of


def kernels(card, name, function, **options):
    """A function's kernel for a card and for this processor."""
    robot = qddot.load(name)
    kernel = robot.kernel(function, target="cuda", **options)
    emulated = golden_grids.emulated(kernel)
    card.knows(emulated.text, emulated.facts.threads)
    return robot, kernel, robot.kernel(function, **options)


def states(robot, count, dtype="float64"):
    q, v = robot.random_state(np.random.default_rng(0), count)
    return q.astype(dtype), v.astype(dtype), np.sin(v).astype(dtype)


def test_arrays_of_numpy(card):
    robot, kernel, here = kernels(card, "puma560", "inverse_dynamics")
    given = states(robot, 70)
    np.testing.assert_array_equal(kernel(*given), here(*given))
    one = [x[3] for x in given]
    np.testing.assert_array_equal(kernel(*one), here(*one))
    out = np.empty((70, 6))
    assert kernel(*given, out=out) is out
    np.testing.assert_array_equal(out, here(*given))


def test_arrays_on_the_device(card):
    robot, kernel, here = kernels(card, "puma560", "forward_dynamics", dtype="float32")
    given = states(robot, 40, "float32")
    result = kernel(*map(arrays.to_device, given))
    assert isinstance(result, arrays.DeviceArray)
    np.testing.assert_array_equal(result.copy_to_host(), here(*given))
    assert card.launched[-1][0] == "rows"


PACKAGES = {
    "qddot": lambda monkeypatch: (lambda x: x, lambda x: x),
    "interface": lambda monkeypatch: (fake_cuda.Foreign, lambda x: x),
    "torch": lambda monkeypatch: stand_in(monkeypatch, "torch", "Tensor"),
    "cupy": lambda monkeypatch: stand_in(monkeypatch, "cupy", "ndarray"),
    "jax": lambda monkeypatch: stand_in(monkeypatch, "jax", "Array"),
}


def stand_in(monkeypatch, package, title):
    """What makes an array of a package of one on the card, and what it was made of."""
    module = getattr(fake_cuda, package)(*([7] if package != "jax" else []))
    monkeypatch.setitem(sys.modules, package, module)
    return getattr(module, title), lambda x: x.array


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_methods_of_a_robot_on_arrays_of_a_card(card, monkeypatch, package, dtype):
    """They are computed there, by a kernel of their type, and the result stays there, as an array of the same package."""
    robot, _, here = kernels(card, "double_pendulum", "forward_dynamics", dtype=dtype)
    wrap, unwrap = PACKAGES[package](monkeypatch)
    given = states(robot, 40, dtype)
    there = [wrap(arrays.to_device(x)) for x in given]
    result = robot.forward_dynamics(*there)
    assert type(result) is (arrays.DeviceArray if package == "interface" else type(there[0]))
    np.testing.assert_array_equal(unwrap(result), here(*given))
    with pytest.raises(InputError, match=r"Robot.integrate is computed on the CPU by several kernels.*give "):
        robot.integrate(*there[:2])
    with pytest.raises(InputError, match=r"float(32|64)"):  # nor are arrays on a card cast in silence
        robot.forward_dynamics(*there[:2], wrap(arrays.to_device(given[2].astype(f"float{96 - int(dtype[5:])}"))))
    with pytest.raises(InputError, match="batch on the host"):
        robot.forward_dynamics(*there[:2], given[2])
    with pytest.raises(InputError, match="lies on a card"):
        robot.forward_dynamics(*there, {robot.link_names[0]: wrap(arrays.to_device(np.ones((40, 6), dtype)))})
    with pytest.raises(InputError, match="q lies on a card"):
        robot.forward_dynamics_derivatives(*there, np.ones((robot.model.n_links, 6), dtype))


@pytest.mark.parametrize("package", PACKAGES)
def test_derivatives_on_a_card_are_views_of_one_result(card, monkeypatch, package):
    robot, _, here = kernels(card, "double_pendulum", "forward_dynamics_derivatives")
    wrap, unwrap = PACKAGES[package](monkeypatch)
    given = states(robot, 5)
    found = robot.forward_dynamics_derivatives(*(wrap(arrays.to_device(x)) for x in given))
    for k, x in enumerate(found):
        np.testing.assert_array_equal(np.asarray(unwrap(x)), here(*given)[:, k])


def test_a_result_in_parts(card, monkeypatch):
    monkeypatch.setattr(grid, "ONE_THREAD_MAX_OPS", 1500)
    monkeypatch.setattr(grid, "REPEATED_MAX_RATIO", 4.0)
    robot, kernel, here = kernels(card, "quadruped", "forward_dynamics_derivatives", dtype="float32", packed=True)
    given = states(robot, 33, "float32")
    np.testing.assert_array_equal(kernel(*given), here(*given))
    assert card.launched[-1][2] > 1, "one layer only: the test is about several"
    np.testing.assert_array_equal(kernel.unpack(kernel(*given)), here.unpack(here(*given)))


def test_a_long_chain_takes_scratch_memory(card, fake):
    robot = qddot.chain(90)
    kernel = robot.kernel("forward_dynamics", target="cuda")
    assert kernel.info.form == "rolled"
    emulated = golden_grids.emulated(kernel)
    card.knows(emulated.text, emulated.facts.threads)
    given = states(robot, 34)
    np.testing.assert_array_equal(kernel(*given), robot.kernel("forward_dynamics")(*given))


def test_what_the_driver_says_of_a_kernel(card):
    _, kernel, here = kernels(card, "pendulum", "inverse_dynamics")
    facts = kernel.on_device
    assert facts["rows"][0]["registers"] == 40
    assert facts["threads"] == kernel.code.grid.threads
    with pytest.raises(InputError, match="this kernel runs on the processor"):
        _ = here.on_device


# ---- simulations


def damping(t, q, v):
    return -2.0 * v + 0.1 * t


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("integrator", ["rk4", "semi_implicit_euler"])
def test_simulations_have_the_bits_of_this_processor(card, integrator, dtype):
    robot = qddot.load("double_pendulum")
    options = {"dt": 1e-3, "integrator": integrator, "dtype": dtype}
    steps_of(card, robot, damping, **options)
    q, v, _ = states(robot, 37)
    there = robot.simulate(q, v, damping, steps=30, record=10, target="cuda", **options)
    here = robot.simulate(q, v, damping, steps=30, record=10, **options)
    assert card.launched, "nothing was launched"
    for name in ("q", "v", "tau", "t"):
        np.testing.assert_array_equal(there[name], here[name], err_msg=name)


def test_held_inputs_and_parameters(card):
    robot, rng = qddot.load("double_pendulum"), np.random.default_rng(2)
    controls, damper = rng.standard_normal((5, 12, 2)), rng.uniform(0.1, 1.0, 5)
    options = {"dt": 1e-3, "free": {f"{robot.joint_names[0]}.damping": damper}}
    steps_of(card, robot, controls, **options)
    q, v, _ = states(robot, 5)
    there = robot.simulate(q, v, controls, steps=12, record="end", target="cuda", **options)
    here = robot.simulate(q, v, controls, steps=12, record="end", **options)
    np.testing.assert_array_equal(there.q, here.q)


def test_one_start_and_inputs_that_all_samples_share(card):
    robot = qddot.load("double_pendulum")
    controls = np.random.default_rng(1).standard_normal((8, 2))
    steps_of(card, robot, controls, dt=1e-3)
    q, v = robot.random_state(0)
    for start in ((q, v), (np.tile(q, (40, 1)), v)):
        there = robot.simulate(*start, controls, dt=1e-3, steps=8, target="cuda")
        here = robot.simulate(*start, controls, dt=1e-3, steps=8)
        np.testing.assert_array_equal(there.v, here.v)


def test_long_runs_are_cut_into_pieces(card, monkeypatch):
    from qddot.compiler.runtime.cuda import time_stepping

    monkeypatch.setattr(time_stepping, "_MAX_OPS_PER_LAUNCH", 1)
    robot = qddot.load("pendulum")
    steps_of(card, robot, dt=1e-3, integrator="semi_implicit_euler")
    q, v, _ = states(robot, 3)
    options = {"dt": 1e-3, "steps": 24, "record": 4, "integrator": "semi_implicit_euler"}
    there, here = (robot.simulate(q, v, target=target, **options) for target in ("cuda", "cpu"))
    assert len(card.launched) >= 6
    np.testing.assert_array_equal(there.q, here.q)


def test_a_run_on_a_card_can_be_pickled_and_named():
    robot = qddot.load("double_pendulum")
    assert Rollout(robot, dt=1e-3, target="cuda").identity["target"] == "cuda"
    assert Rollout(robot, dt=1e-3).identity["target"] == "cpu"


def test_no_memory_is_left_behind(card, fake):
    robot = qddot.load("pendulum")
    steps_of(card, robot, dt=1e-3)
    q, v, _ = states(robot, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", qddot.QddotWarning)
        robot.simulate(q, v, dt=1e-3, steps=4, target="cuda")
        before = fake.get("bytes")
        for _ in range(20):
            robot.simulate(q, v, dt=1e-3, steps=4, target="cuda")
    assert fake.get("bytes") == before
