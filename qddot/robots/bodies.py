"""Plain bodies and plain placements that the embedded robots are put together from."""

from __future__ import annotations

import math
from collections.abc import Sequence

from qddot.spatial import Transform, constant_transform
from qddot.spatial.rotation import Vec, as_vec, cross, transpose, unit

Six = tuple[float, float, float, float, float, float]


def diagonal(xx: float, yy: float, zz: float) -> Six:
    """An inertia without products, as the Builder takes it."""
    return (xx, 0.0, 0.0, yy, 0.0, zz)


def rod(mass: float, length: float, thickness: float) -> Six:
    """A bar along x: m l²/12 across it, m t²/12 about it."""
    across = mass * length**2 / 12
    return diagonal(mass * thickness**2 / 12, across, across)


def cylinder(mass: float, length: float, outer: float, inner: float = 0.0) -> Six:
    """A tube along z, or a full cylinder, by its radii."""
    square = outer**2 + inner**2
    across = mass * (3 * square + length**2) / 12
    return diagonal(across, across, mass * square / 2)


def planar(x: float, y: float, direction: Sequence[float] = (1.0, 0.0)) -> Transform:
    """A frame in the x-y plane whose x axis points along `direction`."""
    length = math.hypot(*direction)
    c, s = direction[0] / length, direction[1] / length
    return constant_transform(((c, -s, 0.0), (s, c, 0.0), (0.0, 0.0, 1.0)), (x, y, 0.0))


def along(p: Sequence[float], z: Vec, y: Vec) -> Transform:
    """A frame at p whose z axis points along `z`, and whose y axis is as near to `y` as that allows."""
    e_z = unit(z)
    e_x = unit(cross(y, e_z))
    return constant_transform(transpose((e_x, cross(e_z, e_x), e_z)), as_vec(p))
