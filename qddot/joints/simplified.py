"""Internal joints: what `mechanism.simplify` makes of revolute joints. No file and no user can name them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qddot.joints.axial import Revolute
from qddot.joints.base import Joint, Z
from qddot.scalars import Scalar, cos, sin
from qddot.spatial import Inertia, Motion, Product, Slide, Transform
from qddot.spatial.joint_blocks import Motions
from qddot.spatial.rotation import ZERO, AxisRotation


@dataclass(frozen=True)
class OffsetRevolute(Joint):
    """A revolute joint about z whose child frame stands `travel` along the axis, and turned about it: by quarters, of
    which (c, s) are cosine and sine and which cost nothing, and by `offset`.
    """

    c: float = 1.0
    s: float = 0.0
    offset: Scalar = 0.0
    travel: Scalar = 0.0
    kind = "offset_revolute"
    nq = nv = 1
    is_angle = (True,)
    screw = (1.0, 0.0)

    def transform(self, q: Sequence[Scalar]) -> Transform:
        angle = q[0] + self.offset
        c, s = cos(angle), sin(angle)
        turn = AxisRotation(2, self.c * c - self.s * s, self.s * c + self.c * s)
        return Product(Transform(turn), self.transfer())

    def S(self, q: Sequence[Scalar]) -> Motions:
        return Motions((Motion(Z, ZERO),))

    def transferable_inertia(self, G: Inertia) -> Inertia:
        return Revolute().transferable_inertia(G)

    def transfer(self) -> Transform:
        """The shift alone: the turn does not change what can be transferred."""
        z = self.travel
        return Transform() if isinstance(z, float) and z == 0.0 else Slide((0.0, 0.0, z))


@dataclass(frozen=True)
class UnturnedRevolute(Joint):
    """A revolute joint about z whose child's frame does not turn with it; placements and inertias turn instead."""

    kind = "unturned_revolute"
    nq = nv = 1
    is_angle = (True,)
    screw = (1.0, 0.0)

    def transform(self, q: Sequence[Scalar]) -> Transform:
        return Transform()

    def S(self, q: Sequence[Scalar]) -> Motions:
        return Motions((Motion(Z, ZERO),))
