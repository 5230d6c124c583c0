"""qddot: a compiler for robot dynamics."""

import importlib
from typing import TYPE_CHECKING, Any

from qddot import joints
from qddot.compiler.runtime.kernel import Kernel
from qddot.compiler.runtime.threads import get_num_threads, set_num_threads
from qddot.errors import (
    FileError,
    Finding,
    InputError,
    ModelError,
    NumericalOverflowError,
    QddotError,
    QddotWarning,
    SingularMassMatrixError,
    UnknownNameError,
)
from qddot.mechanism.model import Model
from qddot.mechanism.validation import pose
from qddot.progress import get_progress, set_progress
from qddot.robot import Robot
from qddot.robot.load import Builder, chain, from_dh, load, load_trajectory, random_tree
from qddot.spatial import Transform
from qddot.version import __version__

if TYPE_CHECKING:
    from qddot.study import Study

__all__ = [
    "Builder",
    "FileError",
    "Finding",
    "InputError",
    "Kernel",
    "Model",
    "ModelError",
    "NumericalOverflowError",
    "QddotError",
    "QddotWarning",
    "Robot",
    "SingularMassMatrixError",
    "Study",
    "Transform",
    "UnknownNameError",
    "__version__",
    "chain",
    "from_dh",
    "get_num_threads",
    "get_progress",
    "joints",
    "load",
    "load_trajectory",
    "pose",
    "random_tree",
    "set_num_threads",
    "set_progress",
]

# loaded at their first use
_PUBLIC_MODULES = ("comparison", "conventions", "functions", "simulation", "study", "tasks", "viewer")
_FRAMEWORKS = ("jax", "torch")  # with an extra of their own; modules of qddot that are named as what they are for


def __getattr__(name: str) -> Any:
    if name == "Study":
        return importlib.import_module("qddot.study").Study
    if name in _PUBLIC_MODULES or name in _FRAMEWORKS:
        return importlib.import_module(f"qddot.{name}")
    raise AttributeError(f"module 'qddot' has no attribute {name!r}")
