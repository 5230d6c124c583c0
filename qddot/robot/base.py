"""What all parts of `Robot` stand on: the model, the engine that evaluates its functions, and its names."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from qddot.dynamics.constrained_solver import solver_of
from qddot.dynamics.engine import Engine
from qddot.errors import Finding, one_name
from qddot.mechanism.array_axes import JointIndex
from qddot.mechanism.model import Model
from qddot.robot.array_arguments import differentiated

Array = NDArray[Any]


class RobotBase:
    """A part of `Robot`."""

    def __init__(self, model: Model, compiled: bool = True) -> None:
        self._stand_on(Engine(model, compiled))

    def _stand_on(self, engine: Engine) -> None:
        self.engine, self.model, self.compiled = engine, engine.model, engine.compiled
        self._evaluate, self._solve = engine.evaluate, engine.solve
        engine.kept["robot"], engine.differentiable = weakref.ref(self), differentiated

    @property
    def name(self) -> str:
        """The robot's name."""
        return self.model.name

    @property
    def nq(self) -> int:
        """How many coordinates a configuration has."""
        return self.model.nq

    @property
    def nv(self) -> int:
        """How many degrees of freedom the robot has: those of its spanning tree, of which loops leave `mobility`."""
        return self.model.nv

    @property
    def link_names(self) -> tuple[str, ...]:
        """The moving links, in order; link k is moved by joint k."""
        return self.model.link_names[1:]

    @property
    def joint_names(self) -> tuple[str, ...]:
        """The joints, in order."""
        return self.model.joint_names[1:]

    @property
    def actuated_joints(self) -> tuple[str, ...]:
        """The joints that are driven, as the file or `Builder` says; it matters for inverse dynamics with loops."""
        return tuple(self.model.joint_names[i] for i, _ in self.model.outward() if self.model.actuated[i])

    @property
    def frame_names(self) -> tuple[str, ...]:
        """Everything that has a pose: the world, links, bodies merged into them, frames."""
        return self.model.frame_names

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was found doubtful when the model was read."""
        return self.model.findings

    @cached_property
    def q_index(self) -> Mapping[str, int | slice]:
        """Where a joint's coordinates stand in q, by its name: an index, or a slice if there are several."""
        return JointIndex(self.model, "q")

    @cached_property
    def v_index(self) -> Mapping[str, int | slice]:
        """Where a joint's degrees of freedom stand in v, a and tau, by its name."""
        return JointIndex(self.model, "v")

    def _rows_for(self, function: str) -> Sequence[int] | None:
        """The independent rows of the constraints, for functions that are compiled for them."""
        needs_rows = self.model.is_constrained and one_name(function, "function").startswith("constrained_")
        return solver_of(self.engine).rows if needs_rows else None
