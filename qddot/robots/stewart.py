"""A Stewart-Gough platform: six legs, each universal, sliding and spherical, under a free plate.

The numbers are those of N. Smith and J. Wendlandt, "Creating a Stewart platform model using SimMechanics", MATLAB
Digest (2002): joints on circles of 3 m below and 1 m above, in pairs 2.5° and 10° to either side of three directions,
the upper directions between the lower ones, the plate 2 m up; everything of steel of 76 kN/m³. Lower legs are tubes
of 5 and 3 cm radius, upper legs rods of 3 cm radius, both three quarters of a leg long; the plate is a disc 5 cm
thick. The leg's sliding joint is driven; its turning about itself, which the source has, is left out, as the ball on
top does not need it.

The tree is the legs and the free plate, 24 degrees of freedom; the six balls take 18.
"""

from __future__ import annotations

import math

from qddot.joints import Free, Prismatic, Spherical, Universal
from qddot.mechanism.builder import Builder
from qddot.mechanism.validation import pose
from qddot.robots.bodies import along, cylinder
from qddot.spatial.rotation import cross, dot, sub

BASE_RADIUS, PLATE_RADIUS, HEIGHT = 3.0, 1.0, 2.0
BASE_OFFSET, PLATE_OFFSET = math.radians(2.5), math.radians(10.0)
DENSITY = 76e3 / 9.81
PLATE_THICKNESS, OUTER, INNER = 0.05, 0.05, 0.03
PART = 0.75  # of a leg's length at q = 0, that each of its two halves is long


def builder() -> Builder:
    b = Builder("stewart")
    plate_mass = DENSITY * math.pi * PLATE_RADIUS**2 * PLATE_THICKNESS
    b.link("plate", plate_mass, inertia=cylinder(plate_mass, PLATE_THICKNESS, PLATE_RADIUS))
    b.joint("plate_motion", "world", "plate", Free(), pose((0.0, 0.0, HEIGHT)))
    for k, (foot, top) in enumerate(_legs(), 1):
        direction = sub((top[0], top[1], HEIGHT), foot)
        length = math.sqrt(dot(direction, direction))
        half = PART * length
        lower_mass = DENSITY * math.pi * (OUTER**2 - INNER**2) * half
        upper_mass = DENSITY * math.pi * INNER**2 * half
        b.link(f"lower{k}", lower_mass, (0.0, 0.0, half / 2), cylinder(lower_mass, half, OUTER, INNER))
        b.link(f"upper{k}", upper_mass, (0.0, 0.0, length - half / 2), cylinder(upper_mass, half, INNER))
        # the universal joint's first axis is level, the second normal to it and to the leg
        level = cross(direction, (0.0, 0.0, 1.0))
        at_foot = along(foot, direction, cross(direction, level))
        b.joint(f"universal{k}", "world", f"lower{k}", Universal(), at_foot, actuated=False)
        b.joint(f"slide{k}", f"lower{k}", f"upper{k}", Prismatic())
        at_top = along(top, direction, cross(direction, level))
        b.loop(f"ball{k}", f"upper{k}", "plate", Spherical(), pose((0.0, 0.0, length)), at_top)
    return b


def _legs() -> list[tuple[tuple[float, float, float], tuple[float, float, float]]]:
    """The joints of each leg: on the base, and on the plate in its own frame."""

    def point(radius: float, angle: float) -> tuple[float, float, float]:
        return (radius * math.cos(angle), radius * math.sin(angle), 0.0)

    legs = []
    for k in range(3):
        below = 2 * math.pi * k / 3
        for sign in (-1, 1):
            above = below + sign * (math.pi / 3 - PLATE_OFFSET)
            legs.append((point(BASE_RADIUS, below + sign * BASE_OFFSET), point(PLATE_RADIUS, above)))
    return legs
