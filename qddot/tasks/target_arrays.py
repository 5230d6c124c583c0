"""Targets as users give them, as arrays: points, rotations, poses, directions, weights. Leading axes are a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.dynamics.input_checks import real_numbers
from qddot.errors import InputError
from qddot.spatial import Transform
from qddot.spatial.rotation import quaternion_rotation, quaternions_of

Array = NDArray[Any]

_ORTHONORMAL = 1e-6  # by so much the entries of RᵀR may differ from those of the unit matrix
_FORMS = "a 4×4 matrix, (p, R), (p, quaternion) with a quaternion (x, y, z, w), or a qddot.Transform"


def points(x: Any, what: str, n: int = 3) -> Array:
    """(..., n) numbers."""
    array = real_numbers(x, what)
    if array.ndim == 0 or array.shape[-1] != n:
        raise InputError(f"{what} has shape {array.shape}, but its last axis must have {n} entries")
    return array


def weights(x: Any, what: str) -> Array:
    """Numbers that are not negative."""
    array = real_numbers(x, what)
    if not np.all((array >= 0.0) & np.isfinite(array)):
        raise InputError(f"{what} must be finite and not negative: it multiplies the error of its task")
    return array


def rotations(x: Any, what: str) -> Array:
    """(..., 3, 3) from such matrices or from quaternions (..., 4), scalar last. NaN stays NaN."""
    array = real_numbers(x, what)
    if array.ndim >= 2 and array.shape[-2:] == (3, 3):
        off = np.abs(np.swapaxes(array, -1, -2) @ array - np.eye(3))
        if np.any(off > _ORTHONORMAL) or np.any(np.linalg.det(array) < 0.0):
            raise InputError(f"{what} is no rotation: RᵀR must be the unit matrix and det R = 1")
        array = np.roll(quaternions_of(array), -1, axis=-1)  # unit to rounding, however the matrix was written
    elif array.ndim == 0 or array.shape[-1] != 4:
        raise InputError(f"{what} has shape {array.shape}; give matrices (..., 3, 3) or quaternions (..., 4)")
    length = np.linalg.norm(array, axis=-1, keepdims=True)
    if np.any(length < 1e-9):
        raise InputError(f"{what} is a quaternion of length zero, which is no rotation")
    x, y, z, w = np.moveaxis(array / length, -1, 0)
    return np.stack([np.stack(row, axis=-1) for row in quaternion_rotation(x, y, z, w).rows], axis=-2)


def poses(x: Any, what: str) -> tuple[Array, Array]:
    """p and R, (..., 3) and (..., 3, 3), of whatever a pose is given as."""
    if isinstance(x, Transform):
        return np.array(x.p, dtype=float), rotations(x.R.rows, what)
    if isinstance(x, tuple) and len(x) == 2:
        return points(x[0], f"{what}: the position"), rotations(x[1], f"{what}: the rotation")
    array = real_numbers(x, what)
    if array.shape[-2:] != (4, 4):
        raise InputError(f"{what} has shape {array.shape}; give {_FORMS}")
    if np.any(np.abs(array[..., 3, :] - (0.0, 0.0, 0.0, 1.0)) > _ORTHONORMAL):
        raise InputError(f"{what}: the last row of a 4×4 matrix must be 0, 0, 0, 1; is it transposed?")
    return array[..., :3, 3], rotations(array[..., :3, :3], what)


def joined(*parts: Array) -> Array:
    """Arrays (..., k) side by side, their batch axes broadcast."""
    batch = np.broadcast_shapes(*(x.shape[:-1] for x in parts))
    return np.concatenate([np.broadcast_to(x, (*batch, x.shape[-1])) for x in parts], axis=-1)
