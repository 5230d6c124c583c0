"""Names and units of what a trajectory holds: coordinate by coordinate, freedom by freedom."""

from __future__ import annotations

from typing import NamedTuple

from qddot.joints import Joint
from qddot.mechanism.model import Model

_XYZ, _TWIST = ("x", "y", "z"), ("wx", "wy", "wz", "vx", "vy", "vz")
_QUATERNION = ("qx", "qy", "qz", "qw")
# what a joint's coordinates and freedoms are called where it has several: by kind
_COORDINATES = {
    "free": (*_XYZ, *_QUATERNION),
    "spherical": _QUATERNION,
    "translational": _XYZ,
    "planar": ("x", "y", "angle"),
    "cylindrical": ("angle", "shift"),
}
_FREEDOMS = {
    "free": _TWIST,
    "spherical": _TWIST[:3],
    "translational": ("vx", "vy", "vz"),
    "planar": ("vx", "vy", "w"),
    "cylindrical": ("angle", "shift"),
}
_UNITS = {  # of an angle's freedom, of a length's
    "q": ("rad", "m"),
    "v": ("rad/s", "m/s"),
    "a": ("rad/s²", "m/s²"),
    "tau": ("N m", "N"),
}
QUANTITIES = {"q": "position", "v": "velocity", "a": "acceleration", "tau": "torque"}


class Column(NamedTuple):
    """One number a time: its name, such as "elbow" or "base.qx", and its unit, "" where it has none."""

    name: str
    unit: str


def columns(model: Model, quantity: str) -> tuple[Column, ...]:
    """The columns of q, v, a or tau, in their order."""
    found: list[Column] = []
    for i, _ in model.outward():
        if model.mimic[i] is None:
            found += _of_joint(model.joint_names[i], model.joint[i], quantity)
    return tuple(found)


def _of_joint(name: str, joint: Joint, quantity: str) -> list[Column]:
    count, table = (joint.nq, _COORDINATES) if quantity == "q" else (joint.nv, _FREEDOMS)
    suffixes = table.get(joint.kind, tuple(str(k) for k in range(count)))
    names = [name] if count == 1 else [f"{name}.{suffix}" for suffix in suffixes]
    return [Column(n, _unit(joint, quantity, k)) for k, n in enumerate(names)]


def _unit(joint: Joint, quantity: str, k: int) -> str:
    angle, length = _UNITS[quantity]
    if quantity == "q" and joint.nq != joint.nv:  # lengths, then a quaternion, which has no unit
        return length if k < joint.nq - 4 else ""
    return angle if joint.is_angle[k] else length
