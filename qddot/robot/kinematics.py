"""Poses, velocities, energy and momentum: the methods that `Robot` has for them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from qddot.errors import InputError
from qddot.robot.array_arguments import taking_any_arrays
from qddot.robot.base import Array, RobotBase


class KinematicMethods(RobotBase):
    """A part of `Robot`."""

    # ---- kinematics

    def forward_kinematics(self, q: ArrayLike) -> Array:
        """The poses of all moving links in the world: (..., n_links, 4, 4)."""
        return self._evaluate("forward_kinematics", q)

    def pose(self, q: ArrayLike, frame: str) -> Array:
        """The pose of a link or frame in the world: (..., 4, 4)."""
        return self._evaluate("pose", q, frame=frame)

    def velocity(self, q: ArrayLike, v: ArrayLike, frame: str) -> Array:
        """The twist of a frame in its own coordinates, angular first: (..., 6)."""
        return self._evaluate("velocity", q, v, frame=frame)

    def acceleration(self, q: ArrayLike, v: ArrayLike, a: ArrayLike, frame: str) -> Array:
        """The componentwise derivative of the frame's twist: (..., 6). Gravity is not in it."""
        return self._evaluate("acceleration", q, v, a, frame=frame)

    def jacobian(self, q: ArrayLike, frame: str, reference: str = "body") -> Array:
        """J with twist = J v: (..., 6, nv), angular first.

        `reference` says in whose coordinates: "body" the frame's own, "world" the world's axes and origin, "aligned"
        the world's axes at the frame's origin.
        """
        if reference == "body":
            return self._evaluate("jacobian", q, frame=frame)
        return self._jacobian_along(q, frame, reference)

    def _turned_jacobian(self, q: ArrayLike, frame: str, reference: str) -> Array:
        if reference not in ("world", "aligned"):
            raise InputError(f"reference={reference!r} is not known; take 'body', 'world' or 'aligned'")
        J, T = self._evaluate("jacobian", q, frame=frame), self.pose(q, frame)
        R, p = T[..., :3, :3], T[..., :3, 3]
        w, u = R @ J[..., :3, :], R @ J[..., 3:, :]
        if reference == "world":
            u = u + np.cross(p[..., None, :], np.swapaxes(w, -1, -2)).swapaxes(-1, -2)
        return np.concatenate([w, u], axis=-2)

    _jacobian_along = taking_any_arrays(_turned_jacobian, "jacobian")

    def jacobian_derivative(self, q: ArrayLike, v: ArrayLike, frame: str) -> Array:
        """J̇ of the body Jacobian, so that acceleration = J a + J̇ v: (..., 6, nv)."""
        return self._evaluate("jacobian_derivative", q, v, frame=frame)

    # ---- energy and momentum

    def kinetic_energy(self, q: ArrayLike, v: ArrayLike) -> Array:
        """Kinetic energy, rotors included."""
        return self._evaluate("kinetic_energy", q, v)

    def potential_energy(self, q: ArrayLike) -> Array:
        """Potential energy of gravity and springs; zero where the links' masses lie in the world's origin."""
        return self._evaluate("potential_energy", q)

    def center_of_mass(self, q: ArrayLike) -> Array:
        """Of the moving links, in the world: (..., 3)."""
        self._require_some_mass()
        return self._evaluate("center_of_mass", q)

    def momentum(self, q: ArrayLike, v: ArrayLike) -> Array:
        """Angular momentum about the centre of mass and linear momentum, in the world's axes: (..., 6)."""
        self._require_some_mass()
        return self._evaluate("momentum", q, v)

    def centroidal_momentum_matrix(self, q: ArrayLike) -> Array:
        """A_G with momentum = A_G v: (..., 6, nv)."""
        self._require_some_mass()
        return self._evaluate("centroidal_momentum_matrix", q)

    def centroidal_momentum_matrix_derivative(self, q: ArrayLike, v: ArrayLike) -> Array:
        """Ȧ_G, so that the momentum changes by A_G a + Ȧ_G v: (..., 6, nv)."""
        self._require_some_mass()
        return self._evaluate("centroidal_momentum_matrix_derivative", q, v)

    def center_of_mass_jacobian(self, q: ArrayLike) -> Array:
        """J_c with the velocity J_c v of the centre of mass, in the world's axes: (..., 3, nv)."""
        self._require_some_mass()
        return self._evaluate("center_of_mass_jacobian", q)

    def center_of_mass_jacobian_derivative(self, q: ArrayLike, v: ArrayLike) -> Array:
        """J̇_c, so that the centre of mass accelerates by J_c a + J̇_c v: (..., 3, nv)."""
        self._require_some_mass()
        return self._evaluate("center_of_mass_jacobian_derivative", q, v)

    @property
    def mass(self) -> float:
        """The mass of the moving links."""
        return float(self.model.mass)

    def _require_some_mass(self) -> None:
        if self.model.mass == 0.0:
            raise InputError(f"robot {self.name!r} has no mass, so it has no centre of mass")
