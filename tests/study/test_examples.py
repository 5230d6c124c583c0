"""The three studies of the repository, small: that they run, and that what they say is so."""

import importlib.util
import subprocess
import sys

import numpy as np
import pytest

import qddot
from tests.support.paths import ROOT
from tests.support.real_robots import GOOD, WHY

UR5 = next((p for p in GOOD if p.name == "ur5_robot.urdf"), None)


def example(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("file", ["puma560", pytest.param(UR5, marks=pytest.mark.skipif(UR5 is None, reason=WHY))])
def test_the_torque_map(file, tmp_path):
    study = example("torque_map").study(1000, tmp_path / "s", file).run("serial")
    row = int(study.results.outliers("part", 1)[0])
    robot, q = study.plan.work.setups.given, study.values(row)["q"]
    still = np.zeros(6)
    limit = np.where(np.isfinite(robot.effort_limit), robot.effort_limit, example("torque_map").PUMA)
    expected = np.max(np.abs(robot.inverse_dynamics(q, still, still) - robot.passive_force(q, still)) / limit)
    assert np.isclose(study.results["part"][row], expected, rtol=1e-9) or np.isclose(
        study.results["part"][row], np.max(np.abs(robot.gravity_force(q)) / limit), rtol=1e-12
    )
    assert np.isfinite(study.results["part"]).all()


def test_designs_of_a_fivebar(tmp_path):
    """The geometry closes the loop, and the Jacobian is the slope of the tip."""
    own = example("fivebar_design")
    sweep, descents = own.studies(64, tmp_path)
    assert (sweep.results["reached"] <= 1.0).all()
    assert descents.results["condition"].min() <= sweep.results["condition"].min()
    usual, reached = own.condition(np.array([[0.3, 0.06]]))
    assert reached[0] == 1.0
    robot = qddot.load("fivebar")
    numbers = []
    for x, y in own.SQUARE:
        tip = np.eye(4)
        tip[:2, 3] = x, y
        q = robot.inverse_kinematics({"tip": tip}, q0=robot.neutral()).q if False else None
        numbers.append(q)
    assert usual[0] > 1.0


@pytest.mark.process
def test_drops_of_a_quadruped():
    command = [sys.executable, str(ROOT / "examples" / "quadruped_drops.py"), "16"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "16 drops, 0 failed" in done.stdout
