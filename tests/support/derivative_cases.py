"""Real robots that derivatives are compared on: a few by default, thirty with `-m slow`."""

from typing import Any

import pytest

import qddot
from tests.support.real_robots import GOOD

# 1e-10 of the largest entry, and what rounding leaves of M⁻¹ twice: only iCub's condition of 2e10 needs it
TOLERANCE = 1e-10

FEWER = ("panda.urdf", "solo12.urdf")  # for what frameworks make of the same kernels
FEW = ("panda.urdf", "g1_29dof_rev_1_0.urdf", "solo12.urdf", "talos_reduced.urdf", "kinova.urdf")


def _marked(few: tuple[str, ...]) -> list[Any]:
    return [
        pytest.param(p, marks=() if p.name in few else pytest.mark.slow, id=f"{p.parent.parent.name}-{p.stem}")
        for p in sorted({*GOOD[::2][:30], *(p for p in GOOD if p.name in FEW)})
    ]


MARKED, MOSTLY_SLOW = _marked(FEW), _marked(FEWER)


def dynamics_of(robot: qddot.Robot) -> tuple[str, ...]:
    """The functions to compare: forward dynamics has no answer where a joint moves nothing that has mass."""
    if robot.nv == 0:
        pytest.skip("the robot has no degrees of freedom")
    try:
        robot.engine.solvability.require_mass(())
    except qddot.SingularMassMatrixError:
        return ("inverse_dynamics",)
    return "inverse_dynamics", "forward_dynamics"
