"""Packages that the tests compare with, each skipped with a reason where it is missing.

`QDDOT_TEST_WITHOUT=pinocchio,example_robot_data pytest` runs as if these were not installed.
"""

import importlib.abc
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import pytest

HOW = {
    "pinocchio": "pip install pin (no wheel for Windows)",
    "mujoco": "pip install 'qddot[mjcf]'",
    "daqp": "pip install 'qddot[qp]'",
    "example_robot_data": "pip install 'example-robot-data<6'",
    "brax": "pip install 'qddot[models]'",
    "mujoco_warp": "pip install 'qddot[models]'",
    "xacro": "pip install 'qddot[xacro]'",
    "torch": "pip install 'qddot[torch]'",
    "gymnasium": "pip install 'qddot[test]'",
    "jax": "pip install 'qddot[jax]'",
}
MISSING = frozenset(filter(None, os.environ.get("QDDOT_TEST_WITHOUT", "").replace(" ", "").split(",")))


class _Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.split(".")[0] in MISSING:
            raise ModuleNotFoundError(f"{name} is hidden by QDDOT_TEST_WITHOUT", name=name)


def hide() -> None:
    """Makes imports of what QDDOT_TEST_WITHOUT names fail."""
    if MISSING and not any(isinstance(finder, _Blocked) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Blocked())


def peer(name: str) -> Any:
    """The package, or the test (the module, where it calls this at its top) is skipped."""
    return pytest.importorskip(name, reason=f"needs {name}: {HOW[name]}")


def folder_of(name: str) -> Path:
    """Where an installed package has its files; it is not imported, so that what it depends on is not needed."""
    spec = None if name in MISSING else importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        pytest.skip(f"needs {name}: {HOW[name]}")
    return Path(spec.origin).parent
