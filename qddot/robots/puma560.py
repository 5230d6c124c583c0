"""The Unimation PUMA 560, as measured by Armstrong, Khatib and Burdick, with its motors and gears.

Link masses, centres of mass and inertias: B. Armstrong, O. Khatib and J. Burdick, "The explicit dynamic model and
inertial parameters of the PUMA 560 arm", ICRA 1986, who took one apart and swung its links. They are used here in the
standard Denavit-Hartenberg frames, with the consensus values for geometry, motor inertias, gear ratios and friction,
of P. I. Corke and B. Armstrong-Hélouvry, "A search for consensus among model parameters reported for the PUMA 560
robot", ICRA 1994. Joint ranges: L.-C. T. Wang and C. C. Chen, "A combined optimization method for solving the inverse
kinematics problem", IEEE Trans. Robotics and Automation 7 (1991).

Link 1 only turns about the fixed first axis and was measured only about it: its 0.35 kg m² stand in the armature of
joint 1. Motor inertias and viscous friction are reflected by the square of the gear ratio, Coulomb friction by the
ratio; the Coulomb friction reported for the two directions is averaged. The moments published for link 3 (0.066, 0.086,
0.0125) miss the triangle inequality by a tenth; they are kept as published, and the builder reports it.
"""

from __future__ import annotations

import math

from qddot.formats.dh import from_rows
from qddot.mechanism.builder import Builder
from qddot.robots.bodies import diagonal

_RIGHT = math.pi / 2
_LINK1_ABOUT_AXIS = 0.35

# alpha, a, d, mass, com, moments about com, range in degrees
_LINKS = (
    (_RIGHT, 0.0, 0.0, 0.0, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), (-160, 160)),
    (0.0, 0.4318, 0.0, 17.4, (-0.3638, 0.006, 0.2275), (0.13, 0.524, 0.539), (-45, 225)),
    (-_RIGHT, 0.0203, 0.15005, 4.8, (-0.0203, -0.0141, 0.070), (0.066, 0.086, 0.0125), (-225, 45)),
    (_RIGHT, 0.0, 0.4318, 0.82, (0.0, 0.019, 0.0), (1.8e-3, 1.3e-3, 1.8e-3), (-110, 170)),
    (-_RIGHT, 0.0, 0.0, 0.34, (0.0, 0.0, 0.0), (0.3e-3, 0.4e-3, 0.3e-3), (-100, 100)),
    (0.0, 0.0, 0.0, 0.09, (0.0, 0.0, 0.032), (0.15e-3, 0.15e-3, 0.04e-3), (-266, 266)),
)
# motor inertia, gear ratio, viscous friction and the two Coulomb frictions at the motor
_DRIVES = (
    (200e-6, 62.6111, 1.48e-3, (0.395, 0.435)),
    (200e-6, 107.815, 0.817e-3, (0.126, 0.071)),
    (200e-6, 53.7063, 1.38e-3, (0.132, 0.105)),
    (33e-6, 76.0364, 71.2e-6, (11.2e-3, 16.9e-3)),
    (33e-6, 71.923, 82.6e-6, (9.26e-3, 14.5e-3)),
    (33e-6, 76.686, 36.7e-6, (3.96e-3, 10.5e-3)),
)


def builder() -> Builder:
    rows = []
    for k, (link, drive) in enumerate(zip(_LINKS, _DRIVES, strict=True)):
        alpha, a, d, mass, com, moments, (lower, upper) = link
        rotor, gear, viscous, coulomb = drive
        row = {
            "alpha": alpha,
            "a": a,
            "d": d,
            "mass": mass,
            "com": com,
            "inertia": diagonal(*moments),
            "armature": rotor * gear**2 + (_LINK1_ABOUT_AXIS if k == 0 else 0.0),
            "damping": viscous * gear**2,
            "friction": sum(coulomb) / 2 * gear,
            "lower": math.radians(lower),
            "upper": math.radians(upper),
        }
        rows.append(row)
    return from_rows(rows, convention="standard", name="puma560", allow_unphysical=True)
