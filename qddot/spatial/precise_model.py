"""A model's numbers with 120 digits: for rewriting a model without losing any of it.

A model's numbers span many orders of magnitude: an inertia of 1e16 kg m² beside one of 0.1, if a mass stands 1e8 m away.
A number of a file is known to one unit in its last place, an entry of a rotation matrix or of an axis to one unit in the
last place of 1. Zero and ±1 in a rotation are exact.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from qddot.scalars import sqrt
from qddot.spatial import Transform
from qddot.spatial.precise_number import Precise
from qddot.spatial.rotation import (
    EYE,
    IDENTITY,
    ZERO,
    AxisRotation,
    Mat,
    Rotation,
    Vec,
    dot,
    mat_mat,
    mat_sub,
    scale,
    transpose,
)

UNIT = 2.0**-52  # of a number: the distance to the next float
_NOTHING = 1e-80  # of its neighbours: what 120 digits leave where there is zero


# ---- data in, floats out ---------------------------------------------------------------------------------------------


def datum(x: Any) -> Precise:
    """A number of a model: a length, a mass."""
    return Precise(Decimal(float(x)), UNIT * abs(float(x)), float(x))


def data(x: Any) -> Any:
    """Nested tuples of a model's numbers."""
    return tuple(map(data, x)) if isinstance(x, tuple) else datum(x)


def unit(axis: Vec) -> Vec:
    """A direction, of unit length to the last digit."""
    if not all(isinstance(k, float) for k in axis):
        return axis
    x, y, z = (_entry(k) for k in axis)
    return scale(1.0 / sqrt(dot((x, y, z), (x, y, z))), (x, y, z))


def placed(T: Transform) -> Transform:
    """A transform whose rotation is one to the last digit."""
    return Transform(_rotation(T.R), ZERO if T.p is ZERO else data(tuple(T.p)))


def _rotation(R: Rotation) -> Rotation:
    if R is IDENTITY:
        return R
    if isinstance(R, AxisRotation):
        c, s = _entry(R.c), _entry(R.s)
        length = sqrt(c * c + s * s)
        return AxisRotation(R.axis, c / length, s / length)
    x, y, z = (tuple(_entry(k) for k in row) for row in R.rows)
    rows: Mat = (x, y, z)  # type: ignore[assignment]
    for _ in range(4):  # Newton: from 1e-9 or better to 120 digits
        three = tuple(scale(3.0, e) for e in EYE)
        off = mat_sub(three, mat_mat(transpose(rows), rows))  # type: ignore[arg-type]
        x, y, z = mat_mat(rows, off)
        rows = (scale(0.5, x), scale(0.5, y), scale(0.5, z))
    return Rotation(_known(rows))


def _known(rows: Mat) -> Mat:
    """A rotation's entries, each known to one unit in the last place of 1, and to be zero where it is."""
    x, y, z = (tuple(_entry(k.value) for k in row) for row in rows)
    return (x, y, z)  # type: ignore[return-value]


def _entry(x: Any) -> Precise:
    """Of a rotation or an axis. What is below the rounding of 1 came from composing rotations."""
    value = Decimal(x)
    if abs(value) <= UNIT:
        return Precise(Decimal(0))
    return Precise(value, 0.0 if abs(value) == 1 else UNIT)


def exactly(x: Any) -> Any:
    """A number that was chosen, such as the turn of a frame: whatever else follows from it uses the same one.

    Its bound is dropped. What the data leave uncertain of a choice (the direction of a vector of 1e-12, say) is no error:
    a later number that makes up for it would be taken for rounding.
    """
    return Precise(x.value, 0.0, x.near) if isinstance(x, Precise) else x


def settled(x: Vec) -> Vec:
    """A vector with zeros where there is nothing but the rounding of the data."""
    a, b, c = (0.0 if isinstance(k, Precise) and k.is_rounding else k for k in x)
    return (a, b, c)


def rounded(x: Any, beside: float = 0.0) -> float:
    """The nearest float; zero for what 120 digits leave of it beside a number of this size."""
    return 0.0 if abs(x) < _NOTHING * beside else float(x) + 0.0
