"""Numbers of MuJoCo's tables in qddot's order and form."""

from __future__ import annotations

import math
from typing import Any

from qddot.mechanism.validation import cos_sin
from qddot.spatial import Transform
from qddot.spatial.rotation import EYE, AxisRotation, Rotation, Vec, axis_angle, scale


def vec(values: Any) -> Vec:
    """Three numbers of a NumPy array."""
    x, y, z = values.tolist()
    return (x, y, z)


def turned(axis: Vec, angle: float) -> Transform:
    """A rotation about an axis, with no rounding at multiples of π/2 about a coordinate axis."""
    c, s = cos_sin(angle)
    for k, unit in enumerate(EYE):
        if axis == unit or axis == scale(-1.0, unit):
            return Transform(AxisRotation(k, c, axis[k] * s))
    return Transform(axis_angle(axis, angle))


def scalar_last(q: list[float]) -> list[float]:
    """MuJoCo's coordinates of one joint in qddot's order: the quaternion's scalar goes last."""
    if len(q) < 4:
        return q
    w, x, y, z = q[-4:]
    return [*q[:-4], x, y, z, w]


def roll_pitch_yaw(R: Rotation, near: float) -> tuple[float, float, float]:
    """The angles about the fixed axes x, y and z. Within `near` of the pitch ±π/2 the roll is called zero."""
    (a, b, _), (d, e, _), (g, h, i) = R.rows
    pitch = math.atan2(-g, math.hypot(h, i))
    if math.hypot(h, i) <= near:
        return 0.0, pitch, math.atan2(-b, e)
    return math.atan2(h, i), pitch, math.atan2(d, a)
