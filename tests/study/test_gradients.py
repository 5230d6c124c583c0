"""Derivatives of measures, against differences of the measures themselves, and what is said of sensitivity by them."""

import numpy as np
import pytest

import qddot
from qddot.errors import InputError, UnknownNameError
from qddot.study import Choice, Grid, LogUniform, Normal, Uniform
from tests.support import study_functions as functions

COMMON = {"dt": 2e-3, "steps": 40}
MEASURES = {
    "last": "energy",
    "low": "min:potential_energy",
    "peak": "max:kinetic_energy",
    "fastest": "max_abs:v",
    "tip": "mean:link3.position",
    "size": "rms:center_of_mass",
    "spin": "momentum",
    "one": "rms:joint2.q",
    "work": ("integral", lambda t, q, v: v @ v * (1.0 + t) + np.cos(q[0])),
    "when": ("first_time", lambda t, q, v: t - 0.04 - 0.01 * q[1] ** 2 - 0.01 * v[0] ** 2),
}


def measured(study, name, values):
    """A measure of one sample with these values, as the study computes it."""
    found, _ = study.plan.work({x: array[None] for x, array in values.items()}, 0)
    head, _, place = name.partition("[")
    return found[head][(0, *([int(place[:-1])] if place else []))]


def compare(study, name, row, names=None, h=1e-6):
    robot = study.plan.work.setups.robot(study.values(row))[0]
    gradients, values = study.gradients(name, [row]), study.values(row)
    assert set(gradients) >= set(names or ())
    for x, found in gradients.items():
        for place in np.ndindex(values[x].shape):
            ends = []
            for sign in (1.0, -1.0):
                moved = {k: array.copy() for k, array in values.items()}
                moved[x] = np.array(moved[x])
                moved[x][place] += sign * h
                if x == "q0":
                    moved[x] = robot.normalize(moved[x])
                ends.append(measured(study, name, moved))
            # central differences of a double: the root of rounding over h, and the curvature
            assert found[(0, *place)] == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=2e-5, abs=2e-6), (name, x, place)


def test_gradients_of_every_reduction_and_channel(tmp_path):
    arm = qddot.chain(3, rng=1)
    space = {"q0": Uniform(np.full(3, -1.0), 1.0), "v0": Normal(np.zeros(3), 1.0), "link2.mass": Normal(1.0, 0.1)}
    study = qddot.Study(arm, space, MEASURES, samples=4, directory=tmp_path / "s", **COMMON)
    for name in ("last", "low", "peak", "fastest[1]", "tip[0]", "size[2]", "spin[4]", "one", "work", "when"):
        compare(study, name, 1, space)
    every = study.gradients("last")
    assert every["q0"].shape == (4, 3)
    assert np.array_equal(every["q0"][2], study.gradients("last", [2])["q0"][0])  # the same bits alone


def test_gradients_of_controls_inputs_and_floating_bases(tmp_path):
    arm = qddot.chain(2, rng=0)
    tau = np.random.default_rng(0).normal(size=(3, 40, 2))
    study = qddot.Study(arm, {"controls": tau}, {"e": "max:energy"}, directory=tmp_path / "a", **COMMON)
    compare(study, "e", 2)
    space = {"inputs": Uniform(np.zeros(1), 1.0), "v0": Uniform(np.zeros(2), 1.0)}
    study = qddot.Study(
        arm, space, {"e": "energy"}, controls=lambda t, q, v, u: -u * v, samples=3, directory=tmp_path / "b", **COMMON
    )
    compare(study, "e", 1)
    builder = qddot.Builder("brick")
    builder.link("brick", 1.0, (0.0, 0.1, 0.0), (0.01, 0.0, 0.0, 0.02, 0.0, 0.03))
    builder.joint("base", "world", "brick", qddot.joints.Free())
    body = builder.robot()
    space = {"q0": body.random_state(0, 2)[0], "v0": Uniform(np.full(6, -0.5), 0.5)}
    study = qddot.Study(body, space, {"x": "brick.position"}, directory=tmp_path / "c", **COMMON)
    compare(study, "x[2]", 1)


def test_gradients_of_robots_of_a_factory(tmp_path):
    space = {"q0": Uniform([-1.0], 1.0), "length": Grid([0.3, 0.5])}
    study = qddot.Study(functions.pendulum, space, {"v": "v"}, samples=2, directory=tmp_path / "s", **COMMON)
    for row in range(4):
        compare(study, "v[0]", row)
    assert set(study.gradients("v[0]")) == {"q0"}  # a length that makes another robot has no derivative


def test_what_has_no_gradient(tmp_path):
    arm = qddot.chain(2, rng=0)
    measures = {"v": "v", "tau": "max_abs:tau", "power": lambda t, q, v, tau: tau @ v}
    study = qddot.Study(arm, {"v0": Uniform(np.zeros(2), 1.0)}, measures, samples=3, directory=tmp_path / "s", **COMMON)
    for name in ("v", "v[2]", "v[0, 0]", "tau[0]", "v[x]"):
        with pytest.raises(InputError):
            study.gradients(name)
    with pytest.raises(UnknownNameError, match="'power'"):
        study.gradients("powr")


def line(robot, values):
    x, y = values["x"], values["y"]
    f = 3.0 * x[:, 0] - x[:, 1] + 2.0 * np.log(y)
    slope = np.broadcast_to([3.0, -1.0], x.shape)
    return {"f": f, "f.by.x": slope, "f.by.y": 2.0 / y}


def test_sensitivity_by_gradients_of_a_function(tmp_path):
    """Of a linear function: the slope times the deviation, and the share of the variance, or 12/π² of it."""
    space = {"x": Normal([0.0, 1.0], 0.5), "y": LogUniform(1.0, 10.0), "n": Choice([1.0, 2.0])}
    study = qddot.Study(None, space, line, samples=4000, sampling="latin", directory=tmp_path / "s").run("serial")
    found = study.gradient_sensitivity("f", 4000)
    assert found.names == ["x[0]", "x[1]", "y"]
    deviation = 2.0 * np.log(10.0) / np.sqrt(12.0)
    assert np.allclose(found.mean, [1.5, -0.5, deviation], rtol=1e-12)
    assert np.allclose(found.rms, np.abs(found.mean), rtol=1e-12)
    share = np.array([1.5**2, 0.25, deviation**2])
    share /= share.sum()
    # the variance of 4000 samples of a Latin hypercube
    assert np.allclose(found.bound, share * [1.0, 1.0, 12.0 / np.pi**2], rtol=0.05)
    with pytest.raises(InputError, match=r"f\.by\.x\.by"):
        study.gradients("f.by.x")


def test_bounds_of_simulations_are_above_sobols_indices(tmp_path):
    arm = qddot.load("double_pendulum")
    space = {"q0": Uniform([0.2, -0.3], 0.8), f"{arm.link_names[-1]}.mass": Uniform(0.8, 1.2)}
    options = {"samples": 5 * 512, "sampling": "saltelli", "directory": tmp_path / "s"}
    study = qddot.Study(arm, space, {"e": "energy"}, dt=1e-2, steps=20, **options).run("serial")
    sobol, found = study.results.sensitivity("e"), study.gradient_sensitivity("e", 512)
    assert found.names == sobol.names
    assert (found.bound > sobol.total - 0.03).all()
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    study.plot("e", kind="gradients", path=tmp_path / "g.png")
    assert (tmp_path / "g.png").stat().st_size > 5000
