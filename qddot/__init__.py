"""qddot: a compiler for robot dynamics."""

from qddot.build import pose
from qddot.errors import (
    FileError,
    Finding,
    InputError,
    ModelError,
    QddotError,
    QddotWarning,
    SingularMassMatrixError,
    UnknownNameError,
)
from qddot.model import Model
from qddot.robot import Builder, Robot, chain, from_dh, load, random_tree
from qddot.spatial import Transform

__version__ = "0.1.0"

__all__ = [
    "Builder",
    "FileError",
    "Finding",
    "InputError",
    "Model",
    "ModelError",
    "QddotError",
    "QddotWarning",
    "Robot",
    "SingularMassMatrixError",
    "Transform",
    "UnknownNameError",
    "chain",
    "from_dh",
    "load",
    "pose",
    "random_tree",
]
