"""Rollouts that are differentiated: set up and compiled once, run with any numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qddot.dynamics.engine import HasEngine
from qddot.dynamics.input_checks import count, real_numbers
from qddot.errors import InputError, unexpected
from qddot.simulation import arguments
from qddot.simulation.adjoint import reverse_step
from qddot.simulation.arguments import RolloutOptions
from qddot.simulation.both_ways import Steps
from qddot.simulation.differentiable_run import DifferentiableRun, Records
from qddot.simulation.system import Law

Array = NDArray[Any]


class DifferentiableRollout:
    """A rollout that is set up and compiled once, run with any numbers, and differentiated (docs/rollout_gradients.md)."""

    def __init__(
        self,
        robot: HasEngine,
        controls: ArrayLike | Law | None = None,
        *,
        dt: float,
        steps: int,
        record: int | str = 1,
        cost: Law | None = None,
        **options: Unpack[RolloutOptions],
    ) -> None:
        for name in options:
            if name not in RolloutOptions.__annotations__:
                known = ("dt", "steps", "record", "cost", *RolloutOptions.__annotations__)
                raise unexpected("differentiable_rollout", name, known)
        self.robot, self.steps = robot, count(steps, "steps")
        self.record = self.steps if isinstance(record, str) and record == "end" else count(record, "record")
        if self.steps % self.record:
            raise InputError(
                f"record={self.record} does not divide the {self.steps} steps, so the end would not be recorded"
            )
        self.forward = Steps(robot, controls, cost, dt=dt, **options)
        self.has_law = callable(controls)

    def __repr__(self) -> str:
        own = self.forward
        return f"<DifferentiableRollout of {own.model.name!r}: {self.steps} steps of {own.dt:g} s by {own.integrator}>"

    @property
    def instructions(self) -> int:
        """Operations of a step."""
        return self.forward.traced()[0].instructions()

    @property
    def instructions_backwards(self) -> int:
        """Operations of a step of the way back."""
        return reverse_step(self.forward, False)[0].instructions()

    def __call__(
        self,
        q0: ArrayLike,
        v0: ArrayLike,
        *,
        controls: ArrayLike | None = None,
        inputs: ArrayLike | None = None,
        parameters: ArrayLike | None = None,
        free: Mapping[str, ArrayLike] | None = None,
        states: tuple[Array, Array] | None = None,
    ) -> DifferentiableRun:
        """The motion from (q0, v0), any leading batch axes. What is not given is as it was when this was made.

        `states` are q and v of the same run, if they are known: where they are all states there is nothing to simulate.
        """
        steps = self.forward.given(
            self._held(controls, inputs), self._weights(parameters), self._free(dict(free or {}), free)
        )
        return DifferentiableRun(steps, Records(self.steps, self.record), (q0, v0), states)

    def _held(self, controls: Any, inputs: Any) -> Array:
        own = self.forward.held
        for name, given, has_it in (("controls", controls, not self.has_law), ("inputs", inputs, self.has_law)):
            if given is not None and not (has_it and own.shape[-1]):
                raise InputError(f"this rollout was made without {name} that are an array; give it some when it is made")
        given = inputs if controls is None else controls
        if given is None:
            return own
        name = "inputs" if controls is None else "controls"
        array = real_numbers(given, name)
        if array.ndim < 2 or array.shape[-1] != own.shape[-1]:
            raise InputError(f"{name} has shape {array.shape}; it must be (..., steps, {own.shape[-1]}), a row a step")
        return np.ascontiguousarray(array, dtype=own.dtype)

    def _weights(self, given: Any) -> Array:
        own = self.forward.weights
        if given is None:
            return own
        array = real_numbers(given, "parameters")
        if not own.shape[-1]:
            raise InputError("this rollout was made without parameters=; give it some when it is made")
        if array.ndim == 0 or array.shape[-1] != own.shape[-1]:
            raise InputError(f"parameters have shape {array.shape}; their last axis must have {own.shape[-1]} entries")
        return np.ascontiguousarray(array, dtype=own.dtype)

    def _free(self, given: dict[str, Any], as_given: Any) -> list[Array]:
        own = self.forward
        if as_given is not None and not isinstance(as_given, Mapping):
            raise InputError("free= takes names and values, such as {'link3.mass': [1.0, 1.2]}")
        for name in given:
            if name not in own.free:
                raise InputError(f"{name!r} is not free in this rollout; it was made with free={own.free or None}")
        pairs = zip(own.free, own.values, strict=True)
        _, values = arguments.free(own.model, {name: given.get(name, x) for name, x in pairs})
        return [x.astype(own.dtype, copy=False) for x in values]
