"""The MIT Mini Cheetah: a floating body and four legs of three joints, 18 degrees of freedom.

The robot: B. Katz, J. Di Carlo and S. Kim, "Mini Cheetah: a platform for pushing the limits of dynamic quadruped
control", ICRA 2019. The numbers, drawn from its design data, are those of the group's published control software
("Cheetah-Software", 2019): masses, inertias, lengths, gear ratios 6, 6 and 9.33, rotors of 0.055 kg and 63e-6 kg m²
about their axes, damping 0.01, dry friction 0.2, motor torque 3 N m.

Each rotor is carried as a mass by the link its motor sits on, and what it adds by spinning is the armature of its
joint, 63e-6 times the square of the gear ratio; the small gyroscopic coupling of the rotors is left out. As in the
source, hip frames are turned by half a turn about z, and right legs mirror the left ones. At q = 0 the legs point
straight down. The thigh's published inertia misses the triangle inequality by 5 %; it is kept, and reported.
"""

from __future__ import annotations

import math

from qddot.joints import Fixed, Free, Revolute
from qddot.mechanism.builder import Builder
from qddot.mechanism.validation import pose
from qddot.robots.bodies import Six, diagonal
from qddot.spatial import Transform

BODY_MASS, ABDUCTION_MASS, THIGH_MASS, SHANK_MASS, ROTOR_MASS = 3.3, 0.54, 0.634, 0.064, 0.055
BODY_LENGTH, BODY_WIDTH = 0.38, 0.098
ABDUCTION, THIGH, SHANK, FOOT_OFFSET = 0.062, 0.209, 0.195, 0.004
GEARS = (6.0, 6.0, 9.33)
_ROTOR_ACROSS, _ROTOR_SPIN = 33e-6, 63e-6
_MOTOR_TORQUE, _DAMPING, _FRICTION = 3.0, 0.01, 0.2

_X, _Y = Revolute((1.0, 0.0, 0.0)), Revolute((0.0, 1.0, 0.0))
_LEGS = (("front_right", 1, -1), ("front_left", 1, 1), ("rear_right", -1, -1), ("rear_left", -1, 1))


def builder() -> Builder:
    b = Builder("quadruped", allow_unphysical=True)  # the thigh, as published
    b.link("body", BODY_MASS, inertia=diagonal(11253e-6, 36203e-6, 42673e-6))
    b.joint("base", "world", "body", Free())
    for name, front, left in _LEGS:
        _leg(b, name, front, left)
    return b


def _leg(b: Builder, name: str, front: int, left: int) -> None:
    abduction, thigh, shank = f"{name}_abduction", f"{name}_thigh", f"{name}_shank"
    half_turn = (0.0, 0.0, math.pi)
    b.link(abduction, ABDUCTION_MASS, (0.0, left * 0.036, 0.0), _mirrored((381, 58, 0.45, 560, 0.95, 444), left))
    b.link(thigh, THIGH_MASS, (0.0, left * 0.016, -0.02), _mirrored((1983, 245, 13, 2103, 1.5, 408), left))
    b.link(shank, SHANK_MASS, (0.0, 0.0, -0.061), diagonal(245e-6, 248e-6, 6e-6))
    at_corner = pose((front * BODY_LENGTH / 2, left * BODY_WIDTH / 2, 0.0))
    _driven(b, f"{name}_abduction_joint", "body", abduction, _X, at_corner, GEARS[0])
    _driven(b, f"{name}_hip", abduction, thigh, _Y, pose((0.0, left * ABDUCTION, 0.0), half_turn), GEARS[1])
    _driven(b, f"{name}_knee", thigh, shank, _Y, pose((0.0, 0.0, -THIGH)), GEARS[2])
    about_x = diagonal(_ROTOR_SPIN, _ROTOR_ACROSS, _ROTOR_ACROSS)
    about_y = diagonal(_ROTOR_ACROSS, _ROTOR_SPIN, _ROTOR_ACROSS)
    _rotor(b, f"{name}_abduction_rotor", "body", pose((front * 0.125, left * 0.049, 0.0)), about_x)
    _rotor(b, f"{name}_hip_rotor", abduction, pose((0.0, left * 0.04, 0.0)), about_y)
    _rotor(b, f"{name}_knee_rotor", thigh, pose(), about_y)
    b.frame(f"{name}_foot", shank, pose((0.0, -left * FOOT_OFFSET, -SHANK)))


def _driven(b: Builder, name: str, parent: str, child: str, joint: Revolute, placement: Transform, gear: float) -> None:
    b.joint(
        *(name, parent, child, joint, placement),
        armature=_ROTOR_SPIN * gear**2,
        damping=_DAMPING,
        friction=_FRICTION,
        effort_limit=_MOTOR_TORQUE * gear,
    )


def _rotor(b: Builder, name: str, carrier: str, placement: Transform, inertia: Six) -> None:
    b.link(name, ROTOR_MASS, inertia=inertia)
    b.joint(f"{name}_bearing", carrier, name, Fixed(), placement)


def _mirrored(inertia: Six, left: int) -> Six:
    """In units of 1e-6 kg m², for the left side; a mirror across the x-z plane changes the sign of products with y."""
    xx, xy, xz, yy, yz, zz = (1e-6 * x for x in inertia)
    return (xx, left * xy, xz, yy, left * yz, zz)
