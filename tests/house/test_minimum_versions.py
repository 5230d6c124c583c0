"""The stated minimum of every hard dependency is real: `pytest -m slow tests/house/test_minimum_versions.py`."""

import os
import re
import subprocess
import sys
import tomllib

import pytest

from tests.support.paths import ROOT

RUNNER = ("pytest", "pytest-xdist", "hypothesis", "mpmath", "scipy", "mujoco")  # what the quick tests run with


def minimum_versions():
    """`name==version` of every hard dependency, from the lower bound in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [re.fullmatch(r"([\w-]+)>=([\d.]+)", x).expand(r"\1==\2") for x in project["dependencies"]]


def test_every_hard_dependency_has_a_minimum():
    assert [x.split("==")[0] for x in minimum_versions()] == ["numpy", "llvmlite"]


@pytest.mark.slow
def test_the_quick_tests_pass_with_the_minimum_versions(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path)], check=True)
    python = str(tmp_path / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))
    pip = [python, "-m", "pip", "install", "--quiet", *minimum_versions(), *RUNNER]
    installed = subprocess.run(pip, capture_output=True, text=True)
    if installed.returncode:
        pytest.skip(f"these versions cannot be installed here: {installed.stderr[-500:]}")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "QDDOT_CACHE_DIR": str(tmp_path / "cache")}
    command = [python, "-m", "pytest", "-m", "quick", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]
