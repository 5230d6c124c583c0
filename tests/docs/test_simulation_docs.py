"""The examples run, and so does every block of docs/simulation.md, one after the other."""

import re
import runpy

import numpy as np
import pytest

from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "simulation.md").read_text()


PROGRAMS = {  # with arguments of their own, and the tests that run them
    "fivebar_design.py": "study/test_examples.py",
    "million_arms.py": "docs/test_simulation_docs.py",
    "quadruped_drops.py": "study/test_examples.py",
    "swing_up.py": "simulation/test_swing_up.py",
    "torque_map.py": "study/test_examples.py",
}
EXAMPLES = [p.name for p in sorted((ROOT / "examples").glob("*.py")) if p.name not in PROGRAMS]
TASKS = ("control_loop", "randomised_masses", "fourbar_crank", "embedded_cmake", "paper_beside_code")  # of five trades


def test_examples_are_short():
    assert {f"{name}.py" for name in TASKS} <= set(EXAMPLES)
    for name in EXAMPLES:
        assert len((ROOT / "examples" / name).read_text(encoding="utf-8").splitlines()) <= 40, name


@pytest.mark.parametrize("name", PROGRAMS)
def test_longer_ones_are_tested_elsewhere(name):
    assert (ROOT / "examples" / name).is_file()
    assert name.removesuffix(".py") in (ROOT / "tests" / PROGRAMS[name]).read_text(encoding="utf-8")


def test_arms_under_random_gains(tmp_path, monkeypatch, capsys):
    """It asserts that some arms arrive; the table has a grid of all gains, in float32."""
    monkeypatch.setattr("sys.argv", ["million_arms.py", "300", "--table", str(tmp_path / "arms.npz")])
    runpy.run_path(str(ROOT / "examples" / "million_arms.py"), run_name="__main__")
    assert "300 arms, 10000 steps each" in capsys.readouterr().out
    with np.load(tmp_path / "arms.npz") as file:
        assert file["cells"].shape == (64, 64)
        assert np.isfinite(file["cells"]).sum() > 100


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name, capsys):
    """Each asserts at its end what it shows."""
    runpy.run_path(str(ROOT / "examples" / name))
    assert capsys.readouterr().out


def test_the_page():
    namespace: dict = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 7
    integrators = []
    for block in blocks:
        exec(block, namespace)
        assert np.isfinite(namespace["run"].q).all()
        integrators.append(namespace["run"].info["integrator"])
    assert namespace["progress"].step == 1500
    assert namespace["sim"].steps == 500
    assert len(namespace["run"]) == 51
    assert "DOP853" in integrators
