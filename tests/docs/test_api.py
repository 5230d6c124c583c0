"""The pages of the API as Sphinx makes them: nothing of a public class is missing, and no docstring is cut."""

import inspect
import os
import re
import shutil
import subprocess
import sys

import pytest

import qddot
from qddot import tasks, viewer
from qddot.cli import cache
from qddot.cli.robot_file import _FILE
from qddot.mechanism import declared_joint
from tests.support.paths import ROOT


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The pages of the API as plain text, in one line."""
    pytest.importorskip("sphinx")
    pytest.importorskip("myst_parser")
    pytest.importorskip("furo")
    folder = tmp_path_factory.mktemp("api")
    (folder / "conf.py").write_bytes((ROOT / "docs" / "conf.py").read_bytes())
    (folder / "index.md").write_bytes((ROOT / "docs" / "api.md").read_bytes())
    shutil.copytree(ROOT / "docs" / "api", folder / "api")
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "text", str(folder), str(folder / "out")]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    return " ".join(_plain(file.read_text(encoding="utf-8")) for file in sorted((folder / "out").rglob("*.txt")))


def _plain(text):
    return " ".join(re.sub(r"[`\"“”\\*]", "", text).split())


@pytest.mark.process
@pytest.mark.parametrize("of", [qddot.Robot, qddot.Builder], ids=lambda c: c.__name__)
def test_every_public_name_is_there_with_all_that_is_said_of_it(page, of):
    for name, member in inspect.getmembers(of):
        text = inspect.getdoc(member)
        if name.startswith("_") or not (inspect.isfunction(member) or isinstance(member, property)):
            continue
        assert re.search(rf"\b{name}\b", page), name
        first = _plain(text.split("\n\n")[0])
        assert first in page, f"{name}: {first}"


@pytest.mark.process
@pytest.mark.parametrize("of", [qddot, qddot.simulation, tasks, viewer], ids=lambda m: m.__name__)
def test_every_name_that_a_module_exports_is_there(page, of):
    for name in of.__all__:
        assert name == "__version__" or re.search(rf"\b{name}\b", page), name


def test_options_of_joints_are_there(page):
    for name in declared_joint.JointOptions.__annotations__:
        assert re.search(rf"\b{name}\b", page), name


# ---- what the help of commands says


def test_help_names_every_format():
    for name in ("URDF", "SDF", "MJCF", "DH", "qddot"):
        assert name in _FILE


def test_environment_variables_are_in_the_table():
    """All that the package reads stand on the page of machines; those of the cache also in the help of its command."""
    read = set()
    for path in (ROOT / "qddot").rglob("*.py"):
        read |= set(re.findall(r"\bQDDOT_[A-Z_]+\b", path.read_text(encoding="utf-8")))
    table = (ROOT / "docs" / "machines.md").read_text(encoding="utf-8")
    assert {"QDDOT_CACHE_DIR", "QDDOT_CACHE_KEY", "QDDOT_DEBUG"} <= read
    for name in read:
        assert f"| `{name}` |" in table, name
    for name in ("QDDOT_CACHE_DIR", "QDDOT_CACHE_KEY"):
        assert name in cache.EPILOG
    assert "QDDOT_CACHE_DIR" in (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
