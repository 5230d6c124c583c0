"""The Stanford arm of Scheinman: six degrees of freedom, the third a sliding boom. The larger example of Saha 1999.

Geometry: R. P. Paul, "Modelling, trajectory calculation and servoing of a computer controlled arm", Stanford AIM-177
(1972), standard Denavit-Hartenberg. Masses, centres of mass, moments of inertia and the actuators' reflected inertias:
R. P. Paul, "Robot Manipulators: Mathematics, Programming, and Control" (1981), tables 6.5 and 6.6, which go back to
A. K. Bejczy, "Robot arm dynamics and control", JPL TM 33-669 (1974).

Two things about these tables need saying. The centres of mass are in centimetres; a copy that is much used took those
of links 2 to 6 for tenths of metres, ten times too far out. And the moments are about the origins of the link frames,
as Paul's pseudo-inertia matrices need them: only so does every link come out as a possible body. They are moved to
the centres of mass here. The table of Saha's own paper was not available.
"""

from __future__ import annotations

import math

import numpy as np

from qddot.formats.dh import from_rows
from qddot.mechanism.builder import Builder
from qddot.spatial.rotation import dot

# alpha, theta, d, kind
_GEOMETRY = (
    (-math.pi / 2, 0.0, 0.412, "revolute"),
    (math.pi / 2, 0.0, 0.154, "revolute"),
    (0.0, -math.pi / 2, 0.0, "prismatic"),
    (-math.pi / 2, 0.0, 0.0, "revolute"),
    (math.pi / 2, 0.0, 0.0, "revolute"),
    (0.0, 0.0, 0.263, "revolute"),
)
MASSES = (9.29, 5.01, 4.25, 1.08, 0.63, 0.51)
_COM = (
    (0.0, 0.0175, -0.1105),
    (0.0, -0.1054, 0.0),
    (0.0, 0.0, -0.6447),
    (0.0, 0.0092, -0.0054),
    (0.0, 0.0, 0.0566),
    (0.0, 0.0, 0.1554),
)
_MOMENTS_ABOUT_ORIGIN = (
    (0.276, 0.255, 0.071),
    (0.108, 0.018, 0.100),
    (2.51, 2.51, 0.006),
    (0.002, 0.001, 0.001),
    (0.003, 0.003, 0.0004),
    (0.013, 0.013, 0.0003),
)
ACTUATORS = (0.953, 2.193, 0.782, 0.106, 0.097, 0.020)


def builder() -> Builder:
    rows = []
    table = zip(_GEOMETRY, MASSES, _COM, _MOMENTS_ABOUT_ORIGIN, ACTUATORS, strict=True)
    for (alpha, theta, d, kind), mass, com, moments, armature in table:
        inertia = np.diag(moments) - mass * (dot(com, com) * np.eye(3) - np.outer(com, com))
        row = {"alpha": alpha, "theta": theta, "d": d, "kind": kind, "mass": mass, "com": com}
        rows.append({**row, "inertia": inertia, "armature": armature})
    return from_rows(rows, convention="standard", name="stanford")
