"""Trees and chains on joints of one axis, for the tests of Lin 1991."""

import numpy as np
from hypothesis import strategies as st

from qddot.robot import Robot
from qddot.robots.generators import random_tree
from tests.support.mechanisms import State
from tests.support.profiles import examples
from tests.support.tolerances import ROUNDING

SETTINGS = examples(25)
ONE_AXIS = ("revolute", "prismatic", "helical")


def close(x, y, tolerance=ROUNDING):
    y = np.asarray(y)
    scale = max(1.0, np.max(np.abs(y), initial=0.0))
    assert np.max(np.abs(np.asarray(x) - y), initial=0.0) <= tolerance * scale


def state(seed, n=5, kinds=ONE_AXIS):
    return State(Robot(random_tree(n, rng=seed, kinds=kinds).model(), compiled=False), seed)


@st.composite
def arms(draw):
    """Trees and chains on joints of one axis, some of them mimics."""
    seed, n = draw(st.integers(0, 2**32 - 1)), draw(st.integers(1, 7))
    kinds = draw(st.sampled_from((ONE_AXIS, ("revolute",), ("prismatic", "revolute"), ("prismatic",))))
    order = draw(st.sampled_from(("depth", "breadth", "random")))
    return Robot(random_tree(n, rng=seed, kinds=kinds, mimic=draw(st.booleans()), order=order).model(), compiled=False)
