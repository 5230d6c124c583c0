"""The forms in which a placement may be given: a Transform, xyz with rpy or a quaternion, a 4×4 matrix, a DH row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.errors import ModelError, message, near, shown
from qddot.mechanism.validation import Find, constant, cos_sin, numbers, pose, rigid
from qddot.spatial import Rotation, Transform
from qddot.spatial.rotation import AxisRotation, Mat, as_vec, quaternion_rotation

Placement = Transform | Sequence[Any] | NDArray[Any] | Mapping[str, Any]

FORMS = (
    "give qddot.pose(xyz=…, rpy=…); 3 numbers x y z; 6 with roll pitch yaw; 7 with a quaternion x y z w; a 4×4 matrix; "
    "or a mapping of xyz with rpy or quaternion, or of alpha, a, theta, d"
)
_DH = ("alpha", "a", "theta", "d")
_KEYS = ("xyz", "rpy", "quaternion", *_DH, "convention")
_ROUNDING = 4e-16  # entries of a rotation this near to 0, 1 and -1 are these: a cosine of π/2 is 6e-17
_QUATERNION_TOLERANCE = 1e-6  # of its length


def placed(value: Placement | None, element: str, where: str, find: Find = lambda *_: None) -> Transform:
    """A rigid placement of plain numbers, from any of its forms."""
    if value is None or isinstance(value, Transform):
        return rigid(value, element, where, find)
    T = _of_mapping(value, element, where) if isinstance(value, Mapping) else _of_numbers(value, element, where)
    return rigid(T, element, where, find)


def _of_numbers(value: Any, element: str, where: str) -> Transform:
    array = _array(value)
    if array is None:
        raise ModelError(message(where, element, f"its placement is {shown(value)}", FORMS))
    numbers(array, None, "placement", where, element)
    if array.shape == (4, 4):
        if array[3].tolist() != [0.0, 0.0, 0.0, 1.0]:
            problem = f"the last row of its 4×4 placement is {array[3].tolist()}"
            raise ModelError(message(where, element, problem, "give 0 0 0 1: x y z stand in the last column"))
        return Transform(_rotation(array[:3, :3].tolist()), as_vec(array[:3, 3].tolist()))
    if array.shape in ((3,), (6,), (2, 3)):
        flat = array.reshape(-1).tolist()
        return pose(flat[:3], flat[3:] or (0.0, 0.0, 0.0))
    if array.shape == (7,):
        return Transform(_of_quaternion(array[3:], element, where), as_vec(array[:3].tolist()))
    raise ModelError(message(where, element, f"its placement has shape {array.shape}", FORMS))


def _array(value: Any) -> NDArray[Any] | None:
    """Numbers; (xyz, quaternion), which has rows of two lengths, as seven."""
    try:
        return np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        pass
    try:
        xyz, turn = (np.asarray(x, dtype=float) for x in value)
    except (TypeError, ValueError):
        return None
    return np.concatenate([xyz, turn]) if (xyz.shape, turn.shape) == ((3,), (4,)) else None


def _of_mapping(value: Mapping[str, Any], element: str, where: str) -> Transform:
    for key in value:
        if key not in _KEYS:
            hint = near(key, _KEYS) if isinstance(key, str) else ""
            raise ModelError(message(where, element, f"its placement has the key {shown(key)}{hint}", FORMS))
    of_dh = [key for key in (*_DH, "convention") if key in value]
    if of_dh and len(of_dh) < len(value):
        problem = f"its placement has {', '.join(map(str, value))}"
        raise ModelError(message(where, element, problem, "give xyz with rpy or quaternion, or a DH row, not both"))
    if of_dh:
        return _of_dh(value, element, where)
    if "rpy" in value and "quaternion" in value:
        raise ModelError(message(where, element, "its placement has rpy and quaternion", "give one of them"))
    xyz = numbers(value.get("xyz", (0.0, 0.0, 0.0)), 3, "xyz", where, element)
    if "quaternion" in value:
        turn = np.array(numbers(value["quaternion"], 4, "quaternion", where, element))
        return Transform(_of_quaternion(turn, element, where), as_vec(xyz))
    return pose(xyz, numbers(value.get("rpy", (0.0, 0.0, 0.0)), 3, "rpy", where, element))


def _of_dh(row: Mapping[str, Any], element: str, where: str) -> Transform:
    """Rx Tx Rz Tz for the modified convention, which is the default, Rz Tz Tx Rx for the standard one."""
    alpha, a, theta, d = (numbers(row.get(key, 0.0), 1, key, where, element)[0] for key in _DH)
    convention = row.get("convention", "modified")
    if convention not in ("modified", "standard"):
        problem = f"the convention of its DH row is {shown(convention)}"
        raise ModelError(message(where, element, problem, "give 'modified' or 'standard'"))
    twist = Transform(AxisRotation(0, *cos_sin(alpha)), (a, 0.0, 0.0))
    turn = Transform(AxisRotation(2, *cos_sin(theta)), (0.0, 0.0, d))
    return constant(twist @ turn if convention == "modified" else turn @ twist)


def _of_quaternion(q: NDArray[Any], element: str, where: str) -> Rotation:
    length = float(np.linalg.norm(q))
    if not abs(length - 1.0) <= _QUATERNION_TOLERANCE:
        problem = f"its quaternion {q.tolist()} has the length {length:.6g}"
        raise ModelError(message(where, element, problem, "give x y z w of unit length, the scalar last"))
    x, y, z, w = (float(v) / length for v in q)
    return _rotation(quaternion_rotation(x, y, z, w).rows)


def _rotation(rows: Any) -> Rotation:
    """A rotation whose entries that differ from 0, 1 or -1 by rounding only are these."""

    def clean(x: float) -> float:
        whole = float(round(x)) + 0.0 if math.isfinite(x) else x
        return whole if abs(x - whole) <= _ROUNDING else x

    x, y, z = (as_vec([clean(v) for v in row]) for row in rows)
    matrix: Mat = (x, y, z)
    return Rotation(matrix)
