"""Operational space: how a robot moves as seen from a frame. The methods that `Robot` has for it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from qddot.algorithms.operational_space import operational_space
from qddot.errors import InputError
from qddot.mechanism.configurations import batched
from qddot.robot.base import Array
from qddot.robot.kinematics import KinematicMethods


class OperationalSpaceMethods(KinematicMethods):
    """A part of `Robot`."""

    def operational_space(
        self, q: ArrayLike, v: ArrayLike, frame: str, rows: Sequence[int] = range(6)
    ) -> tuple[Array, Array]:
        """Λ and μ with Λ V̇ + μ = F for the chosen rows of the frame's twist, in its own coordinates (Khatib)."""
        (x, u), rows = self.engine.checks.all("operational_space", ("q", "v"), (q, v)), list(rows)
        self._require_independent(q, frame, rows)
        if self.engine.compiled:
            return self._by_kernels(x, u, frame, rows)
        solvability = self.engine.solvability
        Lambda, mu = operational_space(solvability.guarded, x, u, self.model.frame(frame), rows)
        if np.isnan(Lambda).any():
            Lambda, mu = np.array(Lambda), np.array(mu)
            solvability.explain_lost(2, "operational_space_inverse_inertia", (x,), Lambda, stacklevel=3)
        return batched(2, Lambda, x, u), batched(1, mu, x, u)

    def _by_kernels(self, q: Array, v: Array, frame: str, rows: Sequence[int]) -> tuple[Array, Array]:
        """Λ and μ = Λ (J M⁻¹ bias - J̇ v) from compiled matrices."""
        Lambda = np.linalg.inv(self.operational_space_inverse_inertia(q, frame)[..., rows, :][..., rows])
        drift = self.jacobian_derivative(q, v, frame)[..., rows, :] @ v[..., None]
        J_Minv = np.swapaxes(self.acceleration_by_force(q, frame)[..., rows], -1, -2)
        mu = (Lambda @ (J_Minv @ self._evaluate("bias_force", q, v)[..., None] - drift))[..., 0]
        return batched(2, Lambda, q, v), mu

    def operational_space_inverse_inertia(self, q: ArrayLike, frame: str) -> Array:
        """Λ⁻¹ = J M⁻¹ Jᵀ of a frame, in its own coordinates: (..., 6, 6). It exists for every robot and configuration."""
        return self._solve(2, "operational_space_inverse_inertia", q, frame=frame)

    def operational_space_inertia(self, q: ArrayLike, frame: str, rows: Sequence[int] = range(6)) -> Array:
        """Λ of the chosen rows of the frame's twist (Khatib): the inertia that a force on the frame feels."""
        rows = list(rows)
        self._require_independent(q, frame, rows)
        return np.linalg.inv(self.operational_space_inverse_inertia(q, frame)[..., rows, :][..., rows])

    def acceleration_by_force(self, q: ArrayLike, frame: str) -> Array:
        """M⁻¹Jᵀ: how the joints accelerate under a unit of force on a frame, in its own coordinates. (..., nv, 6)."""
        return self._solve(2, "acceleration_by_force", q, frame=frame)

    def dynamically_consistent_inverse(self, q: ArrayLike, frame: str, rows: Sequence[int] = range(6)) -> Array:
        """J̄ = M⁻¹JᵀΛ of the chosen rows of the frame's twist (Khatib): (..., nv, rows).

        J̄ᵀ makes a force on the frame of joint forces; J̄ V is the motion of least kinetic energy that gives the twist V.
        """
        rows = list(rows)
        return self.acceleration_by_force(q, frame)[..., rows] @ self.operational_space_inertia(q, frame, rows)

    def null_space_projector(self, q: ArrayLike, frame: str, rows: Sequence[int] = range(6)) -> Array:
        """N = 1 - J̄J, (..., nv, nv): velocities N v do not move the frame, joint forces Nᵀtau do not accelerate it."""
        rows = list(rows)
        inverse = self.dynamically_consistent_inverse(q, frame, rows)
        return np.eye(self.nv) - inverse @ self.jacobian(q, frame)[..., rows, :]

    def _require_independent(self, q: ArrayLike, frame: str, rows: Sequence[int]) -> None:
        """Λ is the inverse of something only where the rows of the Jacobian are independent."""
        J = self.jacobian(q, frame)[..., rows, :]
        rank = int(np.min(np.linalg.matrix_rank(J))) if J.size else 0
        if rank < len(rows):
            raise InputError(
                f"the motion of {frame!r} has only {rank} independent rows of the {len(rows)} requested; "
                f"choose fewer rows, or a configuration that is not singular"
            )
        self.engine.solvability.require_mass()
