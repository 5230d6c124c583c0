"""float32: its own sine and cosine, all lanes, calls of one state, derivatives."""

import dataclasses

import numpy as np
import pytest

from qddot import scalars
from qddot.compiler.targets import host as processors
from qddot.compiler.targets.host import native
from tests.support.kernels import compiled, float_angles

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
