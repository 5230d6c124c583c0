"""The joints: one small class a kind.

A joint of nv degrees of freedom and nq coordinates has the motion T(q) of its child frame in its parent frame, the map
S(q) from joint velocity to relative twist in the child's frame, S v = T⁻¹Ṫ (Kim (37)), and the bias Ṡ v. Velocities are
the rates of the coordinates except for the quaternion spherical, the free and the planar joint, whose velocity is a body
twist and whose S is constant. `integrate(q, v)` moves along v for a unit of time; `difference` is its inverse. A spring
pulls along `displacement`, the gradient of half its own square.

A new kind is a class that answers what `Joint` asks, and a name in the list below.
"""

from __future__ import annotations

from qddot.joints.axial import Cylindrical, Fixed, Helical, Prismatic, Revolute
from qddot.joints.base import Defect, Joint, X, Y, Z
from qddot.joints.loop_rows import LoopRows
from qddot.joints.own import Form, Own, RecordedTransform
from qddot.joints.rotational import Spherical, SphericalEuler, SphericalExponential, Universal
from qddot.joints.spatial_motion import Free, Planar, Translational

KINDS: dict[str, type[Joint]] = {
    cls.kind: cls
    for cls in (
        Fixed,
        Revolute,
        Prismatic,
        Helical,
        Cylindrical,
        Universal,
        Planar,
        Translational,
        Spherical,
        SphericalEuler,
        SphericalExponential,
        Free,
        Own,
    )
}

__all__ = [
    "KINDS",
    "Cylindrical",
    "Defect",
    "Fixed",
    "Form",
    "Free",
    "Helical",
    "Joint",
    "LoopRows",
    "Own",
    "Planar",
    "Prismatic",
    "RecordedTransform",
    "Revolute",
    "Spherical",
    "SphericalEuler",
    "SphericalExponential",
    "Translational",
    "Universal",
    "X",
    "Y",
    "Z",
]
