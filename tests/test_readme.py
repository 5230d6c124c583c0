"""The README's examples run as they are printed."""

import re
from pathlib import Path

import numpy as np
import pytest
from test_pinocchio import ROBOTS

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.filterwarnings("ignore::qddot.QddotWarning")
@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_example(number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "panda.urdf").write_bytes((ROBOTS / "panda_description/urdf/panda.urdf").read_bytes())
    namespace: dict = {}
    for block in BLOCKS[: number + 1]:  # an example may go on from those before it
        exec(block, namespace)
    assert namespace["robot"].nv > 0
    if number == 0:
        assert np.max(np.abs(namespace["a"])) < 1e-9  # the example says that it is zero again


def test_the_two_commands_stand_first():
    commands = re.findall(r"```\n(pip .*?)\n```", README)
    assert commands[0] == "pip install . && qddot demo"
    assert commands[1] == 'pip install -e ".[test]" && pytest'
