"""The delta robot of R. Clavel (US patent 4976582, 1990): three driven arms, six rods, a platform that only translates.

Arm 0.42 m, rod 1.055 m, arm pivots on a circle of 0.33 m, rod ends on a platform circle of 0.125 m: the three-axis
delta whose model the testbed group of CIIRC, Czech Technical University, made public ("delta-robot-public"). Masses
and the 0.1 m between the rods of a pair are round numbers of our own: arm 2 kg, rod 0.2 kg, platform 1.5 kg; arms as
uniform bars, rods as cylinders 16 mm across, the platform as a disc 2 cm thick. At q = 0 the arms are level.

The tree is the arms with their rods on universal joints, and the free platform; spherical joints close the six loops.
Of its 21 degrees of freedom, 18 are taken by the loops, none twice: three are left, and the arms drive them.
"""

from __future__ import annotations

import math

from qddot.joints import Free, Revolute, Spherical, Universal
from qddot.mechanism.builder import Builder
from qddot.mechanism.validation import cos_sin, pose
from qddot.robots.bodies import along, cylinder, rod
from qddot.spatial import constant_transform

BASE, ARM, ROD, PLATFORM, SPREAD = 0.33, 0.42, 1.055, 0.125, 0.1
ARM_MASS, ROD_MASS, PLATFORM_MASS = 2.0, 0.2, 1.5
HEIGHT = math.sqrt(ROD**2 - (BASE + ARM - PLATFORM) ** 2)
DOWN = (PLATFORM - BASE - ARM, 0.0, -HEIGHT)  # along a rod, x outward


def builder() -> Builder:
    b = Builder("delta")
    b.link("platform", PLATFORM_MASS, inertia=cylinder(PLATFORM_MASS, 0.02, PLATFORM))
    b.joint("platform_motion", "world", "platform", Free(), pose((0.0, 0.0, -HEIGHT)))
    for k in (1, 2, 3):
        c, s = cos_sin(2 * math.pi * (k - 1) / 3)
        outward = ((c, -s, 0.0), (s, c, 0.0), (0.0, 0.0, 1.0))
        arm = f"arm{k}"
        b.link(arm, ARM_MASS, (ARM / 2, 0.0, 0.0), rod(ARM_MASS, ARM, 0.04))
        pivot = constant_transform(outward, (c * BASE, s * BASE, 0.0))
        b.joint(f"{arm}_drive", "world", arm, Revolute((0.0, 1.0, 0.0)), pivot)
        for side, y in (("left", SPREAD / 2), ("right", -SPREAD / 2)):
            bar = f"rod{k}_{side}"
            b.link(bar, ROD_MASS, (0.0, 0.0, ROD / 2), cylinder(ROD_MASS, ROD, 0.008))
            elbow = along((ARM, y, 0.0), DOWN, (0.0, 1.0, 0.0))
            b.joint(
                *(f"{bar}_elbow", arm, bar, Universal((0.0, 1.0, 0.0), (1.0, 0.0, 0.0)), elbow),
                actuated=False,
            )
            on_platform = constant_transform(outward) @ along((PLATFORM, y, 0.0), DOWN, (0.0, 1.0, 0.0))
            b.loop(f"{bar}_ball", bar, "platform", Spherical(), pose((0.0, 0.0, ROD)), on_platform)
    return b
