"""Joint limits, and configurations that keep them: the methods that `Robot` has for them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from qddot.errors import InputError, shown
from qddot.mechanism import configurations
from qddot.robot.base import Array, RobotBase


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

        With loops they are zero whatever the limits: to move some of the joints alone would open the loops.
        """
        zero = configurations.neutral(self.model)
        return zero if self.model.is_constrained else configurations.clip(self.model, zero)

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
