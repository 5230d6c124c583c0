"""The planar arm of three revolute joints that Saha's group uses as its first example.

The mechanism is that of S. K. Saha, "Dynamics of serial multibody systems using the decoupled natural orthogonal
complement matrices", J. Applied Mechanics 66 (1999); the numbers are those of the three-link arm that comes with the
group's simulator: S. V. Shah, P. V. Nandihal and S. K. Saha, "Recursive dynamics simulator (ReDySim): a multibody
dynamics solver", Theoretical and Applied Mechanics Letters 2 (2012). Lengths 0.3, 0.25 and 0.22 m, masses 0.5, 0.4
and 0.3 kg, uniform bars 1 cm thick, the plane upright with gravity along -y.
"""

from __future__ import annotations

from qddot.joints import Revolute
from qddot.mechanism.builder import WORLD, Builder
from qddot.mechanism.validation import pose
from qddot.robots.bodies import rod

LENGTHS = (0.3, 0.25, 0.22)
MASSES = (0.5, 0.4, 0.3)
THICKNESS = 0.01


def builder() -> Builder:
    b = Builder("planar3", gravity=(0.0, -9.81, 0.0))
    parent, reach = WORLD, 0.0
    for k, (length, mass) in enumerate(zip(LENGTHS, MASSES, strict=True), 1):
        b.link(f"link{k}", mass, (length / 2, 0.0, 0.0), rod(mass, length, THICKNESS))
        b.joint(f"joint{k}", parent, f"link{k}", Revolute(), pose((reach, 0.0, 0.0)))
        parent, reach = f"link{k}", length
    b.frame("tip", parent, pose((reach, 0.0, 0.0)))
    return b
