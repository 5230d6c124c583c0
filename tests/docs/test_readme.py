"""The README's examples run as they are printed."""

import json
import re

import numpy as np
import pytest

from qddot.cli.main import main
from tests.support.paths import ROOT
from tests.support.real_robots import ROBOTS, URDFS, WHY

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.filterwarnings("ignore::qddot.QddotWarning")
@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_example(number, tmp_path, monkeypatch):
    if not URDFS:
        pytest.skip(WHY)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "panda.urdf").write_bytes((ROBOTS / "panda_description/urdf/panda.urdf").read_bytes())
    namespace: dict = {}
    for block in BLOCKS[: number + 1]:  # an example may go on from those before it
        exec(block, namespace)
    assert namespace["robot"].nv > 0
    if number == 0:
        assert np.max(np.abs(namespace["a"])) < 1e-9  # the example says that it is zero again


@pytest.mark.parametrize(("title", "name"), [("PUMA 560", "puma560"), ("Stanford arm", "stanford")])
def test_operation_counts(title, name, capsys):
    """The table says what the command beside it prints."""
    functions = ("inverse_dynamics", "bias_force", "mass_matrix", "forward_dynamics", "mass_matrix_inverse")
    words = [x for f in functions for x in ("--function", f)]
    assert main(["count", name, "--json", "--no-passive-forces", *words]) == 0
    rows = [r for r in json.loads(capsys.readouterr().out)["rows"] if r["auto"]]
    assert [r["function"] for r in rows] == list(functions)
    cells = " | ".join(f"{r['regrouped']['mul']} + {r['regrouped']['add']}" for r in rows)
    assert f"| {title} | {cells} |" in README


def test_the_two_commands_stand_first():
    commands = re.findall(r"```\n(pip .*?)\n```", README)
    assert commands[0] == "pip install . && qddot demo"
    assert commands[1] == 'pip install -e ".[test]" && pytest'
