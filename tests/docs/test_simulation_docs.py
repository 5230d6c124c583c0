"""The examples run, and so does every block of docs/simulation.md, one after the other."""

import re
import runpy

import numpy as np
import pytest

from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "simulation.md").read_text()


EXAMPLES = [p.name for p in sorted((ROOT / "examples").glob("*.py"))]
TASKS = ("control_loop", "randomised_masses", "fourbar_crank", "embedded_cmake", "paper_beside_code")  # of five trades


def test_examples_are_short():
    assert {f"{name}.py" for name in TASKS} <= set(EXAMPLES)
    for name in EXAMPLES:
        assert len((ROOT / "examples" / name).read_text(encoding="utf-8").splitlines()) <= 40, name


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
