"""The examples run, and so does every block of docs/simulation.md, one after the other."""

import re
import runpy

import numpy as np
import pytest

from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "simulation.md").read_text()


@pytest.mark.parametrize("name", [p.name for p in sorted((ROOT / "examples").glob("*.py"))])
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
