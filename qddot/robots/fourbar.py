"""A planar four-bar, crank and rocker, closed by a hinge between the crank's tip and the coupler.

The numbers are those of the four-bar that comes with S. V. Shah, P. V. Nandihal and S. K. Saha, "Recursive dynamics
simulator (ReDySim): a multibody dynamics solver", Theoretical and Applied Mechanics Letters 2 (2012): crank 0.05 m
and 1.5 kg, output link 0.13 m and 5 kg, coupler 0.1 m and 3 kg, ground 0.15 m, uniform bars 1 cm thick, gravity along
-y. At q = 0 the crank points at the other ground pivot and the output link stands above the ground line. The crank is
driven.
"""

from __future__ import annotations

import math

from qddot.joints import Revolute
from qddot.mechanism.builder import Builder
from qddot.mechanism.validation import pose
from qddot.robots.bodies import planar, rod

CRANK, OUTPUT, COUPLER, GROUND = 0.05, 0.13, 0.1, 0.15
MASSES = {"crank": 1.5, "output": 5.0, "coupler": 3.0}
THICKNESS = 0.01


def builder() -> Builder:
    b = Builder("fourbar", gravity=(0.0, -9.81, 0.0))
    for name, length in (("crank", CRANK), ("output", OUTPUT), ("coupler", COUPLER)):
        b.link(name, MASSES[name], (length / 2, 0.0, 0.0), rod(MASSES[name], length, THICKNESS))
    # the triangle of output, coupler and what the crank leaves of the ground line
    gap = GROUND - CRANK
    at_ground = math.acos((OUTPUT**2 + gap**2 - COUPLER**2) / (2 * OUTPUT * gap))
    at_top = math.acos((OUTPUT**2 + COUPLER**2 - gap**2) / (2 * OUTPUT * COUPLER))
    up = (-math.cos(at_ground), math.sin(at_ground))
    b.joint("crank_pivot", "world", "crank", Revolute())
    b.joint("output_pivot", "world", "output", Revolute(), planar(GROUND, 0.0, up), actuated=False)
    b.joint(
        *("coupler_pivot", "output", "coupler", Revolute()),
        planar(OUTPUT, 0.0, (-math.cos(at_top), math.sin(at_top))),
        actuated=False,
    )
    # the frame on the coupler is turned back, so that both frames of the loop agree at q = 0
    turned = at_ground + at_top
    b.loop(
        *("closure", "crank", "coupler", Revolute()),
        pose((CRANK, 0.0, 0.0)),
        planar(COUPLER, 0.0, (math.cos(turned), math.sin(turned))),
    )
    return b
