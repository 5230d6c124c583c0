"""Names and units of what a trajectory holds: one column a coordinate or degree of freedom."""

from __future__ import annotations

from typing import NamedTuple

from qddot.joints import Joint
from qddot.mechanism.model import Model

_UNITS = {  # of angles, of lengths
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
    suffixes = joint.coordinate_names if quantity == "q" else joint.velocity_names
    names = [name] if len(suffixes) == 1 else [f"{name}.{suffix}" for suffix in suffixes]
    return [Column(n, unit) for n, unit in zip(names, _units(joint, quantity), strict=True)]


def _units(joint: Joint, quantity: str) -> tuple[str, ...]:
    if quantity == "q":
        return joint.coordinate_units
    angle, length = _UNITS[quantity]
    return tuple(angle if is_angle else length for is_angle in joint.is_angle)
