"""A planar five-bar: two driven cranks, two forearms that meet in a hinge. Two degrees of freedom, four moving bars.

The layout with four bars of one length is that of L. Campos, F. Bourbonnais, I. A. Bonev and P. Bigras, "Development
of a five-bar parallel robot with large workspace", ASME DETC 2010. The numbers are our own: bars of 0.3 m and ground
pivots 0.12 m apart, so that at q = 0 elbows and tip fall on whole centimetres; cranks of 0.5 kg, forearms of 0.3 kg,
uniform bars 2 cm thick; gravity along -y.
"""

from __future__ import annotations

from qddot.joints import Revolute
from qddot.mechanism.builder import Builder
from qddot.mechanism.validation import pose
from qddot.robots.bodies import planar, rod

LENGTH, THICKNESS = 0.3, 0.02
PIVOT, ELBOW, TIP = (0.06, 0.0), (0.24, 0.24), (0.0, 0.42)  # of the right half at q = 0
CRANK_MASS, FOREARM_MASS = 0.5, 0.3


def builder() -> Builder:
    b = Builder("fivebar", gravity=(0.0, -9.81, 0.0))
    ends = {}
    for side, sign in (("left", -1.0), ("right", 1.0)):
        crank = (sign * (ELBOW[0] - PIVOT[0]), ELBOW[1] - PIVOT[1])
        forearm = (sign * (TIP[0] - ELBOW[0]), TIP[1] - ELBOW[1])
        b.link(f"{side}_crank", CRANK_MASS, (LENGTH / 2, 0.0, 0.0), rod(CRANK_MASS, LENGTH, THICKNESS))
        b.link(f"{side}_forearm", FOREARM_MASS, (LENGTH / 2, 0.0, 0.0), rod(FOREARM_MASS, LENGTH, THICKNESS))
        b.joint(f"{side}_shoulder", "world", f"{side}_crank", Revolute(), planar(sign * PIVOT[0], PIVOT[1], crank))
        at_elbow = planar(LENGTH, 0.0, _seen(crank, forearm))
        b.joint(f"{side}_elbow", f"{side}_crank", f"{side}_forearm", Revolute(), at_elbow, actuated=False)
        ends[side] = planar(LENGTH, 0.0, _seen(forearm, (1.0, 0.0)))  # level at q = 0
    b.loop("tip_hinge", "left_forearm", "right_forearm", Revolute(), ends["left"], ends["right"])
    b.frame("tip", "left_forearm", pose((LENGTH, 0.0, 0.0)))
    return b


def _seen(frame: tuple[float, float], direction: tuple[float, float]) -> tuple[float, float]:
    """A direction in the axes of a frame whose x axis points along `frame`, but for its length."""
    (c, s), (x, y) = frame, direction
    return (c * x + s * y, c * y - s * x)
