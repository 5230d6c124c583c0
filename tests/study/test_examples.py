"""The three studies of the repository, small: that they run, and that what they say is so."""

import importlib.util
import re
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
    limit = np.where(np.isfinite(robot.effort_limit), robot.effort_limit, example("torque_map").PUMA)
    # what gravity asks of a joint is the slope of the potential energy
    h = 1e-6 * np.eye(robot.nv)
    slope = (robot.potential_energy(q + h) - robot.potential_energy(q - h)) / 2e-6
    assert np.isclose(study.results["part"][row], np.max(np.abs(slope) / limit), rtol=1e-6)
    assert np.isfinite(study.results["part"]).all()


MILLION = """
import os, resource, sys
sys.path.insert(0, sys.argv[2])
import torque_map
if __name__ == "__main__":
    torque_map.study(1_000_000, sys.argv[1]).run(workers=2)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, len(os.listdir(sys.argv[1])))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the unit of a process's peak memory is another elsewhere")
def test_a_million_samples_take_little_memory_and_few_files(tmp_path):
    script = tmp_path / "million.py"
    script.write_text(MILLION, encoding="utf-8")
    command = [sys.executable, str(script), str(tmp_path / "s"), str(ROOT / "examples")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    megabytes, files = map(int, done.stdout.split())
    assert megabytes < 500
    assert files < 20


def test_designs_of_a_fivebar(tmp_path):
    """The geometry closes the loop, and the Jacobian is the slope of the tip."""
    own = example("fivebar_design")
    sweep, descents = own.studies(64, tmp_path, "serial")
    assert (sweep.results["reached"] <= 1.0).all()
    assert descents.results["condition"].min() <= sweep.results["condition"].min()
    design = np.array([[0.3, 0.06], [0.25, 0.03]])
    usual, reached = own.condition(design)
    assert (reached == 1.0).all()
    assert (usual > 1.0).all()
    q, fine, lengths = own.configuration(design)
    robot = qddot.load("fivebar")
    assert np.abs(robot.kernel("constraint_residual", free=own.FREE)(q, *lengths)[fine]).max() < 1e-12
    tips = robot.spanning_tree().kernel("pose", frame="tip", free=own.FREE)(q, *lengths)[..., :2, 3]
    assert np.allclose(tips[fine], np.broadcast_to(own.SQUARE, tips.shape)[fine], rtol=0.0, atol=1e-12)


def test_pictures_of_their_pages(tmp_path):
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    spec = importlib.util.spec_from_file_location("study_pictures", ROOT / "docs" / "pictures" / "studies.py")
    own = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(own)
    _, mixed = own.torque_map(tmp_path, tmp_path, 512, engine="serial")
    total = mixed.results.sensitivity("part").total
    assert total[0] < 1e-12  # gravity does not know the angle of the base
    assert total[1] > 0.1
    own.fivebar_design(tmp_path, tmp_path, 64, engine="serial")
    drawn = {p.name: p.stat().st_size for p in tmp_path.glob("*.png")}
    named = {n for page in ("torque_map", "fivebar_design") for n in pictures_of(page)}
    assert named == drawn.keys()
    assert min(drawn.values()) > 3000
    assert all((ROOT / "docs" / "pictures" / name).is_file() for name in [*named, *pictures_of("quadruped_drops")])


def pictures_of(page):
    return re.findall(r"pictures/(\w+\.png)", (ROOT / "docs" / "tutorials" / f"{page}.md").read_text(encoding="utf-8"))


@pytest.mark.process
def test_drops_of_a_quadruped():
    command = [sys.executable, str(ROOT / "examples" / "quadruped_drops.py"), "16"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "16 drops, 0 failed" in done.stdout
