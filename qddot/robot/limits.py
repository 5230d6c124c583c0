"""Joint limits, and configurations that keep them: the methods that `Robot` has for them."""

from __future__ import annotations

import contextlib

import numpy as np
from numpy.typing import ArrayLike

from qddot.dynamics.constrained_solver import solver_of
from qddot.errors import InputError, shown
from qddot.mechanism import configurations
from qddot.robot.base import Array, RobotBase

_STARTS = 30  # random configurations from which loops are closed within the limits


class LimitMethods(RobotBase):
    """A part of `Robot`."""

    @property
    def lower(self) -> Array:
        """The lower limits of the coordinates, in the order of q, -inf where there is none.

        Joints that follow others (mimic) have no place in q; quaternions, and the position beside one, have no limits.
        """
        return configurations.bounds(self.model)[0]

    @property
    def upper(self) -> Array:
        """The upper limits of the coordinates, in the order of q, inf where there is none."""
        return configurations.bounds(self.model)[1]

    @property
    def velocity_limit(self) -> Array:
        """The largest velocities, in the order of v, inf where there is no limit."""
        return configurations.dof_limit(self.model, "velocity")

    @property
    def effort_limit(self) -> Array:
        """The largest joint forces and torques, in the order of v, inf where there is no limit."""
        return configurations.dof_limit(self.model, "effort")

    def neutral(self) -> Array:
        """All coordinates zero, or at the limit nearest to zero, and quaternions at rest.

        With loops they are zero where that is within the limits. Elsewhere they are within them, loops closed, found
        from the limits nearest to zero, the middle of the limits and random configurations; zero if none is found.
        """
        zero = configurations.neutral(self.model)
        inside = configurations.clip(self.model, zero)
        if not self.model.is_constrained or np.array_equal(zero, inside):
            return inside
        kept = self.engine.kept
        if "neutral" not in kept:
            found = self._closed_inside(inside)
            kept["neutral"] = zero if found is None else found
        return np.array(kept["neutral"])

    def _closed_inside(self, inside: Array) -> Array | None:
        """The first configuration within the limits that has closed loops, of those found from a few starts."""
        lower, upper = configurations.bounds(self.model)
        has_both = np.isfinite(lower) & np.isfinite(upper)
        middle = np.where(has_both, 0.5 * np.where(has_both, lower, 0.0) + 0.5 * np.where(has_both, upper, 0.0), inside)
        others = configurations.random_state(self.model, np.random.default_rng(0), (_STARTS,))[0]
        solver = solver_of(self.engine)
        with contextlib.suppress(InputError):  # a robot whose loops do not close at all
            closed, _ = solver.close(np.stack([inside, middle, *others]), solver.tolerance)
            return next((q for q in closed if np.all((lower <= q) & (q <= upper))), None)
        return None

    def random_state(
        self, rng: np.random.Generator | int | None = None, size: int | tuple[int, ...] | None = None
    ) -> tuple[Array, Array]:
        """A configuration and a velocity within the limits; with `size`, arrays of them with these leading axes."""
        return configurations.random_state(self.model, np.random.default_rng(rng), _shape(size))

    def clip_configuration(self, q: ArrayLike) -> Array:
        """The nearest configuration within the limits: each coordinate by itself; loops are not closed again."""
        return configurations.clip(self.model, self.engine.checks.q(q))


def _shape(size: int | tuple[int, ...] | None) -> tuple[int, ...]:
    axes = () if size is None else tuple(size) if isinstance(size, tuple | list) else (size,)
    for n in axes:
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
            raise InputError(f"size is {shown(size)}; give a whole number of zero or more, or a tuple of such numbers")
    return tuple(int(n) for n in axes)
