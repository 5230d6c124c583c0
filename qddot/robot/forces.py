"""External forces by name: what `Robot` makes of them."""

from __future__ import annotations

from numpy.typing import ArrayLike

from qddot.dynamics.named_forces import Forces, link_forces
from qddot.robot.base import Array, RobotBase


class ForceMethods(RobotBase):
    """A part of `Robot`."""

    def link_forces(self, q: ArrayLike, f_ext: Forces, expressed_in: str = "frame") -> Array:
        """External forces by name as the array of forces on all links in their own frames, (..., n_links, 6).

        `f_ext` is {name of a frame or link: (..., 6)}, moment and force. With `expressed_in` "frame" a wrench acts at the
        frame's origin in the frame's axes, with "world" at the frame's origin in the world's axes, with "link" at the
        origin of the link that carries the frame, in the link's axes.
        """
        return self.engine.checks.forces(link_forces(self.engine, q, f_ext, expressed_in), "f_ext")
