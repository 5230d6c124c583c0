"""A mathematical pendulum: one kilogram on a weightless metre. Our own round numbers.

It hangs along -z at q = 0 and swings about y: M = m l², gravity torque m g l sin q.
"""

from __future__ import annotations

from qddot.joints import Revolute
from qddot.mechanism.builder import Builder

MASS, LENGTH = 1.0, 1.0


def builder() -> Builder:
    b = Builder("pendulum")
    b.link("bob", mass=MASS, com=(0.0, 0.0, -LENGTH))
    b.joint("hinge", "world", "bob", Revolute((0.0, 1.0, 0.0)))
    return b
