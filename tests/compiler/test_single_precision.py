"""float32: its own sine and cosine, all lanes, calls of one state, derivatives."""

import dataclasses

import numpy as np
import pytest

import qddot
from qddot import scalars
from qddot.compiler.targets import host as processors
from qddot.compiler.targets.host import native
from qddot.dynamics.catalogue import FUNCTIONS
from tests.support.kernels import compiled, float_angles
from tests.support.mechanisms import needs_of

LANES = (1, 2, 4, 8, 16)


# ---- sine and cosine


def sincos(lanes):
    both = [scalars.sin, scalars.cos]
    return compiled(lambda x: np.array([f(x[0]) for f in both], dtype=object), [1], (2,), lanes, "float32")[0]


def errors(values, angles):
    """In units of the last place of the exact results, for which those of doubles do."""
    exact = np.stack([np.sin(angles.astype(float)), np.cos(angles.astype(float))], axis=-1)
    return np.abs(values - exact) / np.spacing(np.abs(exact).astype(np.float32))


@pytest.fixture(params=[True, False], ids=["fma", "no_fma"])
def arithmetic(request, monkeypatch):
    """Kernels are compiled for a processor with or without fused multiply-adds."""
    monkeypatch.setattr(processors, "native", lambda: dataclasses.replace(native(), fma=request.param))


def test_sine_and_cosine_of_all_magnitudes(arithmetic):
    """1.56 is the largest error of all floats, 1.14 of those within an eighth of a turn, which are not reduced."""
    angles = float_angles()
    values = sincos(16)(angles[:, None])
    found = errors(values, angles)
    assert values.dtype == np.float32
    assert np.max(found) < 1.56
    assert np.max(found[np.abs(angles) < np.pi / 4]) < 1.14
    for lanes in LANES[:-1]:
        assert np.array_equal(sincos(lanes)(angles[::7, None]), values[::7])


@pytest.mark.parametrize("lanes", LANES)
def test_large_angles_and_what_is_no_number(lanes, arithmetic):
    kernel = sincos(lanes)
    angles = np.float32([1.0000001e5, -3e7, 1e22, 3e38, 2.0**60, 1e5, np.nextafter(np.float32(1e5), np.float32(2e5))])
    padded = np.resize(angles, 16)  # a block of any width
    values = kernel(padded[:, None])
    assert np.max(errors(values, padded)) < 1.56
    bad = kernel(np.resize(np.float32([np.inf, -np.inf, np.nan]), 16)[:, None])
    assert np.isnan(bad).all()
    assert np.array_equal(kernel(np.resize(np.float32([0.0, -0.0]), 16)[:, None]), np.tile([0.0, 1.0], (16, 1)))


@pytest.mark.parametrize("lanes", LANES)
def test_one_far_angle_does_not_disturb_its_neighbours(lanes):
    x, kernel = np.linspace(-3, 3, 64, dtype=np.float32), sincos(lanes)
    quiet = kernel(x[:, None])
    x[13] = 1e9
    loud = kernel(x[:, None])
    assert np.array_equal(np.delete(loud, 13, axis=0), np.delete(quiet, 13, axis=0))
    assert np.max(errors(loud[13:14], x[13:14])) < 0.51


# ---- kernels


@pytest.mark.parametrize(("cpu", "lanes"), [("x86-64", 4), ("x86-64-v3", 8), ("x86-64-v4", 16), ("generic", 4)])
def test_default_lanes_fill_a_register(cpu, lanes):
    target = processors.processor(cpu)
    assert target.lanes("float32") == 2 * target.lanes("float64") == lanes


def test_types_by_name_and_of_numpy():
    robot = qddot.load("scara")
    named = robot.kernel("gravity_force", dtype="float32")
    for dtype in (np.float32, np.dtype("float32"), "f4"):
        assert robot.kernel("gravity_force", dtype=dtype) is named
    assert robot.kernel("gravity_force", dtype=float) is robot.kernel("gravity_force")
    by_name, by_type = (robot.export_c("gravity_force", dtype=t, cc="") for t in ("float32", np.float32))
    assert by_name == by_type
    for dtype in ("float16", np.int32, ">f4", None, "what", 3.5):
        with pytest.raises(qddot.InputError, match=r"dtype=.* is not known; take 'float64' or 'float32'"):
            robot.kernel("gravity_force", dtype=dtype)


def batch(robot, count=37):
    rng = np.random.default_rng(0)
    q, v = (np.stack(x) for x in zip(*(robot.random_state(rng) for _ in range(count)), strict=True))
    a = rng.standard_normal(v.shape)
    f_ext = rng.standard_normal((count, robot.model.n_links, 6))
    return {"q": q, "v": v, "a": a, "tau": a[::-1], "f_ext": f_ext}


@pytest.mark.parametrize("name", ["puma560", "quadruped"])
@pytest.mark.parametrize("function", ["inverse_dynamics", "forward_dynamics", "mass_matrix", "forward_kinematics"])
def test_every_number_of_lanes_gives_the_same_bits(name, function):
    """In a batch with a rest, and alone."""
    robot, known = qddot.load(name), batch(qddot.load(name))
    arrays = [known[x].astype(np.float32) for x in FUNCTIONS[function].inputs]
    expected = robot.kernel(function, dtype="float32")(*arrays)
    assert expected.dtype == np.float32
    for lanes in LANES:
        kernel = robot.kernel(function, dtype="float32", lanes=lanes)
        assert np.array_equal(kernel(*arrays), expected)
        assert np.array_equal(kernel(*(x[5] for x in arrays)), expected[5])


DERIVATIVES = [name for name in FUNCTIONS if "derivative" in name and not FUNCTIONS[name].needs]
DERIVATIVES += ["regressor", "external_force_jacobian", "jacobian_derivative"]


@pytest.mark.parametrize("function", DERIVATIVES)
@pytest.mark.parametrize("name", ["scara", "puma560", pytest.param("quadruped", marks=pytest.mark.slow)])
def test_derivatives_are_those_of_doubles_but_for_rounding(name, function):
    """Some hundred roundings of 6e-8; where the dynamics are solved, times the condition of M, some thousand."""
    robot, known = qddot.load(name), batch(qddot.load(name))
    arrays, needs = [known[x] for x in FUNCTIONS[function].inputs], needs_of(function, robot)
    single, double = (robot.kernel(function, dtype=t, **needs)(*arrays) for t in ("float32", "float64"))
    assert single.dtype == np.float32
    scale = np.max(np.abs(double), axis=tuple(range(1, double.ndim)), keepdims=True)
    assert np.max(np.abs(single - double) / scale) < (2e-3 if function.startswith("forward_dynamics") else 2e-5)
