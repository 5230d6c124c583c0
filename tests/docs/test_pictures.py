"""What the worked examples of docs/loops.md say is so; with matplotlib, that their pictures can be drawn."""

import importlib.util
import re

import numpy as np
import pytest

from tests.support.paths import ROOT

PICTURES = ROOT / "docs" / "pictures"


@pytest.fixture(scope="module")
def examples():
    spec = importlib.util.spec_from_file_location("loops_pictures", PICTURES / "loops.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_fivebar(examples):
    """Least torque is less than any other, least force in the hinge as well, and two motors need more of both."""
    robot, _, q, torques = examples.fivebar()
    assert np.abs(robot.constraint_residual(q)).max() < 1e-12
    two, torque, force = ([np.sum(x**2, axis=-1) for x in pair] for pair in torques.values())
    assert (torque[0] <= np.minimum(two[0], force[0]) + 1e-12).all()
    assert (force[1] <= np.minimum(two[1], torque[1]) + 1e-9).all()
    assert (torque[0] < 0.9 * force[0]).any()


def test_the_delta(examples):
    """The platform translates; its drives hold it at rest where it starts and ends, and power is the rate of energy."""
    robot, times, q, tau = examples.delta()
    turn = robot.pose(q, "platform")[:, :3, :3]
    assert np.abs(turn - np.eye(3)).max() < 1e-9
    z = np.zeros(robot.nv)
    for k in (0, -1):
        full = np.zeros(robot.nv)
        full[[robot.v_index[f"arm{i}_drive"] for i in (1, 2, 3)]] = tau[k]
        assert np.abs(robot.forward_dynamics(q[k], z, full)).max() < 1e-8
    places = [robot.q_index[f"arm{i}_drive"] for i in (1, 2, 3)]
    work = np.sum(0.5 * (tau[1:] + tau[:-1]) * np.diff(q[:, places], axis=0))
    gained = robot.potential_energy(q[-1]) - robot.potential_energy(q[0])
    assert abs(work - gained) < 1e-3 * np.abs(tau).max()  # trapezoids of a hundredth of a second
    assert times[-1] == 0.5


def test_the_shaken_pendulum(examples):
    """Kapitza's limit: shaken faster than √(2gl) it stays up, slower it falls."""
    length = (3.4e-4 + 0.1 * 0.1**2) / (0.1 * 0.1)
    limit = np.sqrt(2 * 9.81 * length) / (2 * np.pi * 30.0)
    assert 0.005 < limit < 0.02
    assert np.abs(examples.prescribed(0.02)[1]).max() < 0.6
    assert np.abs(examples.prescribed(0.005)[1]).max() > 2.0


def curves(svg):
    """Lines of more than 30 points, each scaled to a box of size one: sizes of fonts move the axes."""
    found = []
    for path in re.findall(r'<path d="([^"]*)"', svg):
        points = np.array(re.findall(r"[ML] (-?[\d.]+) (-?[\d.]+)", path), dtype=float)
        if len(points) > 30:
            found.append((points - points.min(axis=0)) / np.ptp(points, axis=0))
    return found


@pytest.mark.parametrize("name", ["fivebar", "delta", "prescribed"])
def test_the_pictures_are_those_that_are_drawn(examples, monkeypatch, tmp_path, name):
    """The same curves and words as in the file that the page shows: `python docs/pictures/loops.py` draws it again."""
    matplotlib = pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'qddot[view]'")
    matplotlib.use("Agg")
    monkeypatch.setattr(examples, "save", lambda figure, file: figure.savefig(tmp_path / file))
    getattr(examples, f"draw_{name}")()
    drawn, shown = ((folder / f"{name}.svg").read_text() for folder in (tmp_path, PICTURES))
    assert len(curves(drawn)) == len(curves(shown)) > 2
    for x, y in zip(curves(drawn), curves(shown), strict=True):
        np.testing.assert_allclose(x, y, atol=0.01)
    words = [set(re.findall(r"<text[^>]*>([^<]*[a-z][^<]*)</text>", svg)) for svg in (drawn, shown)]
    assert words[0] == words[1]
    assert words[0]
