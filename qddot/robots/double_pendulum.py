"""Two mathematical pendulums, one hung on the other: a kilogram and a metre each. Our own round numbers.

It hangs along -z at q = 0 and swings about y; the second angle is relative to the first.
"""

from __future__ import annotations

from qddot.joints import Revolute
from qddot.mechanism.builder import Builder
from qddot.mechanism.validation import pose

MASSES = (1.0, 1.0)
LENGTHS = (1.0, 1.0)


def builder() -> Builder:
    b = Builder("double_pendulum")
    for k, (mass, length) in enumerate(zip(MASSES, LENGTHS, strict=True), 1):
        b.link(f"bob{k}", mass=mass, com=(0.0, 0.0, -length))
    hinge = Revolute((0.0, 1.0, 0.0))
    b.joint("hinge1", "world", "bob1", hinge)
    b.joint("hinge2", "bob1", "bob2", hinge, pose((0.0, 0.0, -LENGTHS[0])))
    b.frame("tip", "bob2", pose((0.0, 0.0, -LENGTHS[1])))
    return b
