"""A SCARA arm: two upright hinges, a quill that moves down, and a tool that turns on it.

The arm lengths, 0.425 m and 0.375 m, are those of the Adept One (Adept Technology, data sheet). No published set of
its masses and inertias was available: those here are round numbers of our own that suit its size. Bars are taken as
uniform; the tool is a cylinder of 5 cm radius. Positive travel of joint 3 is downward.
"""

from __future__ import annotations

from qddot.joints import Prismatic, Revolute
from qddot.mechanism.builder import Builder
from qddot.mechanism.validation import pose
from qddot.robots.bodies import cylinder, rod

LENGTHS = (0.425, 0.375)
MASSES = (15.0, 12.0, 3.0, 1.0)
ARM_THICKNESS = 0.12
QUILL_LENGTH, QUILL_RADIUS = 0.4, 0.02
TOOL_LENGTH, TOOL_RADIUS = 0.1, 0.05


def builder() -> Builder:
    b = Builder("scara")
    (l1, l2), (m1, m2, m3, m4) = LENGTHS, MASSES
    b.link("inner_arm", m1, (l1 / 2, 0.0, 0.0), rod(m1, l1, ARM_THICKNESS))
    b.link("outer_arm", m2, (l2 / 2, 0.0, 0.0), rod(m2, l2, ARM_THICKNESS))
    b.link("quill", m3, (0.0, 0.0, 0.0), cylinder(m3, QUILL_LENGTH, QUILL_RADIUS))
    b.link("tool", m4, (0.0, 0.0, -TOOL_LENGTH / 2), cylinder(m4, TOOL_LENGTH, TOOL_RADIUS))
    b.joint("joint1", "world", "inner_arm", Revolute())
    b.joint("joint2", "inner_arm", "outer_arm", Revolute(), pose((l1, 0.0, 0.0)))
    b.joint("joint3", "outer_arm", "quill", Prismatic((0.0, 0.0, -1.0)), pose((l2, 0.0, 0.0)), lower=0.0, upper=0.2)
    b.joint("joint4", "quill", "tool", Revolute(), pose((0.0, 0.0, -QUILL_LENGTH / 2)))
    b.frame("tip", "tool", pose((0.0, 0.0, -TOOL_LENGTH)))
    return b
