"""Checks of single parts of a mechanism: numbers, placements, axes, inertias.

Everything here either returns plain finite floats, raises an error that names the element, or reports a finding.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from qddot.errors import ModelError, message, shown
from qddot.joints import KINDS, Joint
from qddot.spatial import Transform, constant_transform
from qddot.spatial.joint_blocks import Vector
from qddot.spatial.rotation import AxisRotation, Mat, as_vec, dot, mat_mat, mat_sub, scale, scaled_eye, transpose

Find = Callable[[str, str, str, str, str], None]

_QUARTERS = ((1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0))
_MAX_ROTATION_ROUNDING = 1e-14  # off orthogonal by no more: a product of a few rotations
_UNIT_TOLERANCE = 1e-9  # axes and rotation matrices further from unit than this are reported or refused


def cos_sin(angle: float) -> tuple[float, float]:
    """Cosine and sine, exact for the floats nearest to multiples of π/2, where the library gives 6e-17 for 0."""
    quarter = round(angle / (math.pi / 2))
    if abs(angle - quarter * (math.pi / 2)) <= 2e-16 * max(1.0, abs(angle)):
        return _QUARTERS[quarter % 4]
    return math.cos(angle), math.sin(angle)


def pose(xyz: Iterable[float] = (0.0, 0.0, 0.0), rpy: Iterable[float] = (0.0, 0.0, 0.0)) -> Transform:
    """A constant transform from a position and the angles about the fixed axes x, then y, then z (URDF's rpy)."""
    T = Transform()
    for axis, angle in zip((2, 1, 0), reversed(numbers(rpy, 3, "rpy")), strict=True):
        T = T @ Transform(AxisRotation(axis, *cos_sin(angle)))
    return constant_transform(T.R.rows, numbers(xyz, 3, "xyz"))  # type: ignore[arg-type]


def numbers(values: Any, count: int | None, what: str, where: str = "", element: str = "") -> tuple[float, ...]:
    """Finite floats, or an error that names the element."""
    try:
        array = np.asarray(values, dtype=float).reshape(-1)
    except (TypeError, ValueError):
        raise ModelError(message(where, element or what, f"{what} is {values!r}", "give numbers")) from None
    if count is not None and array.size != count:
        problem = f"{what} has {array.size} numbers where {count} are needed"
        raise ModelError(message(where, element or what, problem, f"give {count} numbers"))
    if not np.isfinite(array).all():
        raise ModelError(message(where, element or what, f"{what} is {array.tolist()}", "give finite numbers"))
    return tuple(array.tolist())


def check_link_names(links: Iterable[Any], element: str, where: str) -> None:
    """What names links is a text."""
    for link in links:
        if not isinstance(link, str):
            raise ModelError(message(where, element, f"it names a link by {shown(link)}", "give the name of one link"))


def tolerance(value: Any, what: str, where: str = "", element: str = "") -> float:
    """A number greater than zero."""
    (x,) = numbers(value, 1, what, where, element)
    if x <= 0.0:
        raise ModelError(
            message(where, element or what, f"{what} is {x:g}", "give a number greater than zero, in m or rad")
        )
    return x


def constant(T: Transform) -> Transform:
    """A product of placements as one transform that knows its zeros."""
    return constant_transform(T.R.rows, T.p)


def rigid(T: Transform | None, element: str, where: str, find: Find = lambda *_: None) -> Transform:
    """A rigid placement of plain numbers."""
    if T is None:
        return Transform()
    if not isinstance(T, Transform):
        fix = "use qddot.pose(xyz=…, rpy=…) or a qddot Transform"
        raise ModelError(message(where, element, f"its placement is a {type(T).__name__}", fix))
    rows = np.array(T.R.rows, dtype=float)
    numbers(T.p, 3, "placement", where, element)
    numbers(rows, 9, "placement", where, element)
    if abs(rows @ rows.T - np.eye(3)).max() > _UNIT_TOLERANCE or np.linalg.det(rows) < 0:
        problem = "the rotation of its placement is not orthogonal and right-handed"
        raise ModelError(message(where, element, problem, "give a rotation matrix"))
    off = abs(rows @ rows.T - np.eye(3)).max()
    if off <= _MAX_ROTATION_ROUNDING:
        return constant(T)
    find("note", where, element, f"the rotation of its placement is off by {off:.1e}", "it was made orthogonal")
    x, y, z = (as_vec(row) for row in rows.tolist())
    for _ in range(3):  # R (3 - RᵀR)/2 by plain sums: the library behind NumPy's products rounds as its processor does
        correction = mat_sub(scaled_eye(3.0), mat_mat(transpose((x, y, z)), (x, y, z)))
        x, y, z = (scale(0.5, row) for row in mat_mat((x, y, z), correction))
    return constant_transform((x, y, z), T.p)


def unit_axes(joint: Joint, element: str, where: str, find: Find) -> Joint:
    """The joint with axes of unit length and parameters that make sense."""
    if not isinstance(joint, Joint):
        fix = "give one of qddot.joints, such as Revolute((0, 0, 1))"
        raise ModelError(message(where, element, f"{joint!r} is no joint", fix))
    if type(joint) not in KINDS.values():  # its code would not be part of the model's identity
        fix = "give one of qddot.joints; a motion of your own is Own(function, freedoms)"
        raise ModelError(message(where, element, f"it is of the class {type(joint).__name__}, which qddot has not", fix))
    check_defects(joint, element, where)
    for attribute in joint.axis_names:
        axis = numbers(getattr(joint, attribute), 3, attribute, where, element)
        length = math.sqrt(dot(as_vec(axis), as_vec(axis)))
        if length < 1e-6:
            raise ModelError(message(where, element, f"its axis is {axis}", "give an axis that is not zero"))
        unit = axis if length == 1.0 else tuple(x / length for x in axis)
        if abs(length - 1.0) > 1e-3:
            find("note", where, element, f"its axis {axis} is not of unit length", "it was normalized")
        joint = dataclasses.replace(joint, **{attribute: unit})  # type: ignore[type-var]
    for attribute in joint.number_names:
        numbers(getattr(joint, attribute), 1, attribute, where, element)
    return joint


def check_defects(joint: Joint, element: str, where: str) -> None:
    """Raises what is wrong with a joint's parameters."""
    defect = joint.defect()
    if defect is not None:
        raise ModelError(message(where, element, defect.problem, defect.fix)) from defect.cause


def check_springs(joint: Joint, stiffness: Vector, element: str, where: str) -> None:
    """A spring has one stiffness for directions that turn into each other, or it would not conserve energy."""
    for group in joint.spring_groups:
        if len({stiffness[k] for k in group}) > 1:
            problem = f"its stiffness {list(stiffness)} differs between directions that turn into each other"
            raise ModelError(message(where, element, problem, "give these directions one stiffness"))


def inertia_matrix(inertia: Any, element: str, where: str) -> Mat:
    """Of nine numbers, of six (ixx ixy ixz iyy iyz izz), or of nothing."""
    size = 0 if inertia is None else np.size(inertia)
    if size == 0:
        flat: tuple[float, ...] = (0.0,) * 6
    elif size == 6:
        flat = numbers(inertia, 6, "inertia", where, element)
    elif size != 9:
        problem = f"inertia has {size} numbers where 6 or 9 are needed"
        raise ModelError(message(where, element, problem, "give ixx ixy ixz iyy iyz izz, or a 3×3 matrix"))
    else:
        full = np.array(numbers(inertia, 9, "inertia", where, element)).reshape(3, 3)
        if abs(full - full.T).max() > 1e-9 * max(1e-300, abs(full).max()):
            problem = f"its inertia {full.tolist()} is not symmetric"
            raise ModelError(message(where, element, problem, "give a symmetric matrix"))
        flat = (full[0, 0], full[0, 1], full[0, 2], full[1, 1], full[1, 2], full[2, 2])
    xx, xy, xz, yy, yz, zz = (float(x) for x in flat)
    return ((xx, xy, xz), (xy, yy, yz), (xz, yz, zz))


def check_mass(mass: float, I_c: Mat, element: str, where: str, find: Find) -> None:
    """A mass below zero is an error, an inertia without a mass a finding."""
    if mass < 0.0:
        raise ModelError(message(where, element, f"mass is {mass:g}", "give a mass of zero or more"))
    if mass == 0.0 and np.any(np.diag(I_c) > 0.0):
        find("warning", where, element, "it has an inertia but no mass", "give it a mass or remove its inertia")


def check_inertia(I_c: Mat, element: str, where: str, find: Find, *, allow_unphysical: bool, rounding: float = 0.0) -> None:
    """An inertia that no body has is an error, a finding if it is allowed. `rounding`: what its entries are off by."""
    a, b, c = np.linalg.eigvalsh(np.array(I_c)).tolist()
    slack = max(1e-6 * max(abs(a), abs(c)), 1e-15, rounding)  # files round to six digits, and write 1e-20 for nothing
    if a >= -slack and a + b >= c - slack:
        return
    why = "is not positive" if a < -slack else "violates the triangle inequality"
    problem = f"its inertia {why}: principal moments {a:.4g}, {b:.4g}, {c:.4g}"
    fix = "no body has such an inertia; correct it"
    if not allow_unphysical:
        raise ModelError(message(where, element, problem, f"{fix}, or keep it with allow_unphysical=True"))
    find("warning", where, element, problem, fix)
