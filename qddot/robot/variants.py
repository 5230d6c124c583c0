"""Other robots made of one: the methods that `Robot` has for them. Each gives a new robot and leaves this one as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from numpy.typing import ArrayLike

from qddot.errors import InputError, shown
from qddot.mechanism import parameters, reductions, variants
from qddot.mechanism.model import Model
from qddot.mechanism.placements import Placement
from qddot.robot.base import RobotBase


class VariantMethods(RobotBase):
    """A part of `Robot`."""

    def _like(self, model: Model) -> Self:
        return type(self)(model, self.compiled)

    def with_payload(
        self,
        frame: str,
        mass: float,
        com: Sequence[float] = (0.0, 0.0, 0.0),
        inertia: Any = None,
        *,
        name: str = "payload",
        allow_unphysical: bool = False,
    ) -> Self:
        """The robot with a body fixed to a link or frame, which is a frame of that `name` from then on.

        Centre of mass and inertia about it (3×3, or ixx ixy ixz iyy iyz izz) are in the frame's axes. An inertia that no
        body has is an error, with `allow_unphysical` a finding.
        Loads that vary are free parameters, "tool0.payload" (docs/variants.md).
        """
        return self._like(variants.with_payload(self.model, frame, (mass, com, inertia), name, allow_unphysical))

    def attach(self, other: RobotBase, frame: str, pose: Placement | None = None, *, prefix: str = "") -> Self:
        """The robot with another one, such as a gripper, whose world stands at `pose` in a link or frame of this one.

        Coordinates of the other come after those of this robot; `prefix` begins its names. Gravity is this robot's.
        """
        if not isinstance(other, RobotBase):
            raise InputError(f"what is attached is {shown(other)}; give a robot")
        return self._like(variants.attach(self.model, other.model, frame, pose, prefix))

    def locked(self, joints: Mapping[str, ArrayLike]) -> Self:
        """The robot with joints that stand still at these coordinates, and no longer have a place in q and v.

        Exact: links of locked joints are part of those that carry them, and stay known as frames. Joints that follow a
        locked one (mimic) stand still as well. What a rotor, a damper, a spring or a limit did at a locked joint is gone.
        """
        return self._like(reductions.locked(self.model, joints))

    def subtree(self, link: str) -> Self:
        """What a moving link carries, as a robot of its own: the link's frame is its world, in which gravity stays."""
        return self._like(reductions.subtree(self.model, link))

    def renamed(
        self,
        name: str | None = None,
        *,
        links: Mapping[str, str] | None = None,
        joints: Mapping[str, str] | None = None,
        prefix: str = "",
    ) -> Self:
        """The robot with another name, and other names of its parts: {"old": "new"}.

        `links` are links, bodies and frames, `joints` also loops and constraints; what is not named gets the prefix.
        """
        return self._like(variants.renamed(self.model, name, links, joints, prefix))

    def with_gravity(self, gravity: ArrayLike) -> Self:
        """The robot under another gravity: three numbers in the world's axes, such as (0, 0, -1.62)."""
        return self._like(parameters.with_values(self.model, {"gravity": gravity}))

    def with_base(self, base: str) -> Self:
        """The robot on a base that is "fixed" to the world, "floating", or "planar": in the world's plane z = 0.

        What is fixed to the world becomes the base's body. The new joint is "root_joint"; it is first in q and v, and
        not actuated. A base that moved is fixed where it stands at neutral coordinates.
        """
        return self._like(variants.with_base(self.model, base))

    def scaled(self, length: float, mass: float | None = None) -> Self:
        """The robot with all lengths times `length` and all masses times `mass`, by default length³: the same material.

        Inertias and rotors grow with them. Dampers, friction, springs and limits of velocity and effort stay as they are.
        """
        return self._like(variants.scaled(self.model, length, mass))
