"""Operational space: how a robot moves as seen from a frame. The methods that `Robot` has for it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from qddot.dynamics.input_checks import AXES
from qddot.dynamics.request import twist_rows
from qddot.dynamics.task_functions import TASK_FUNCTIONS
from qddot.errors import InputError, QddotWarning, outside
from qddot.mechanism.configurations import batched
from qddot.robot.base import Array
from qddot.robot.kinematics import KinematicMethods

_INVERSE = "operational_space_inverse_inertia"


class OperationalSpaceMethods(KinematicMethods):
    """A part of `Robot`."""

    def operational_space(
        self, q: ArrayLike, v: ArrayLike, frame: str, rows: Iterable[int] = range(6)
    ) -> tuple[Array, Array]:
        """Λ and μ with Λ V̇ + μ = F for the chosen rows of the frame's twist, in its own coordinates (Khatib)."""
        x, u = self.engine.checks.all("operational_space", ("q", "v"), (q, v))
        Lambda = self._of_task("operational_space_inertia", (x,), frame, rows)
        return batched(2, Lambda, x, u), self._of_task("operational_space_bias_force", (x, u), frame, rows)

    def operational_space_inverse_inertia(self, q: ArrayLike, frame: str) -> Array:
        """Λ⁻¹ = J M⁻¹ Jᵀ of a frame, in its own coordinates: (..., 6, 6). It exists for every robot and configuration."""
        return self._solve(2, _INVERSE, q, frame=frame)

    def operational_space_inertia(self, q: ArrayLike, frame: str, rows: Iterable[int] = range(6)) -> Array:
        """Λ of the chosen rows of the frame's twist (Khatib): the inertia that a force on the frame feels."""
        return self._of_task("operational_space_inertia", (q,), frame, rows)

    def operational_space_bias_force(self, q: ArrayLike, v: ArrayLike, frame: str, rows: Iterable[int] = range(6)) -> Array:
        """μ of the chosen rows of the frame's twist (Khatib): the force on the frame that keeps it from accelerating."""
        return self._of_task("operational_space_bias_force", (q, v), frame, rows)

    def acceleration_by_force(self, q: ArrayLike, frame: str) -> Array:
        """M⁻¹Jᵀ: how the joints accelerate under a unit of force on a frame, in its own coordinates. (..., nv, 6)."""
        return self._solve(2, "acceleration_by_force", q, frame=frame)

    def dynamically_consistent_inverse(self, q: ArrayLike, frame: str, rows: Iterable[int] = range(6)) -> Array:
        """J̄ = M⁻¹JᵀΛ of the chosen rows of the frame's twist (Khatib): (..., nv, rows).

        J̄ᵀ makes a force on the frame of joint forces; J̄ V is the motion of least kinetic energy that gives the twist V.
        """
        return self._of_task("dynamically_consistent_inverse", (q,), frame, rows)

    def null_space_projector(self, q: ArrayLike, frame: str, rows: Iterable[int] = range(6)) -> Array:
        """N = 1 - J̄J, (..., nv, nv): velocities N v do not move the frame, joint forces Nᵀtau do not accelerate it."""
        return self._of_task("null_space_projector", (q,), frame, rows)

    def _of_task(self, function: str, inputs: Sequence[Any], frame: str, rows: Iterable[int]) -> Array:
        """A function of the chosen rows of a frame's twist; an error where they depend on each other."""
        arrays, chosen = self.engine.checks.all(function, TASK_FUNCTIONS[function].inputs, inputs), twist_rows(rows)
        self._require_independent(arrays[0], frame, chosen)
        result = self._evaluate(function, *arrays, frame=frame, rows=chosen)
        if result.dtype.kind == "f" and np.isnan(result).any():
            self._explain_nan(function, arrays, frame, result)
        return result

    def _require_independent(self, q: Array, frame: str, rows: Sequence[int]) -> None:
        """Λ is the inverse of something only where the rows of the Jacobian are independent."""
        J = self.jacobian(q, frame)[..., rows, :]
        rank = int(np.min(np.linalg.matrix_rank(J))) if J.size else 0
        if rank < len(rows):
            raise InputError(
                f"the motion of {frame!r} has only {rank} independent rows of the {len(rows)} requested; "
                f"choose fewer rows, or a configuration that is not singular"
            )
        self.engine.solvability.require_mass()

    def _explain_nan(self, function: str, inputs: Sequence[Array], frame: str, result: Array) -> None:
        """An error for one state, a warning for samples of a batch: M is singular there, or the rows are to rounding."""
        solvability, q = self.engine.solvability, inputs[0]
        axes = len(TASK_FUNCTIONS[function].output(self.model))
        lost = np.isnan(result).any(axis=tuple(range(-axes, 0)))
        result[lost] = np.nan
        inverse = self._evaluate(_INVERSE, q, frame=frame)
        if solvability.has_lost(2, _INVERSE, inverse):
            solvability.explain_lost(2, _INVERSE, (q,), inverse)
        lost &= np.isfinite(inverse).all(axis=(-1, -2))
        for name, x in zip(TASK_FUNCTIONS[function].inputs, inputs, strict=True):
            lost &= np.isfinite(x).all(axis=tuple(range(-AXES.get(name, 1), 0)))
        why = f"the chosen rows of the motion of {frame!r} depend on each other, to rounding"
        advice = "choose fewer rows, or keep away from singular configurations"
        if not lost.shape and lost:
            raise InputError(f"{function}: {why}; {advice}")
        if lost.any():
            first = ", ".join(map(str, np.argwhere(lost)[0]))
            warnings.warn(
                f"{function}: {np.count_nonzero(lost)} of {lost.size} samples are NaN; in sample {first} {why}; {advice}",
                QddotWarning,
                stacklevel=outside(),
            )
