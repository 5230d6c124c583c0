"""A joint as it is declared to a Builder, checked: its motion, its ends, its passive forces and its limits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np

from qddot.errors import ModelError, message, shown, unexpected
from qddot.joints import Fixed, Joint
from qddot.mechanism.model import Limits
from qddot.mechanism.placements import Placement, placed
from qddot.mechanism.validation import Find, check_link_names, check_springs, numbers, unit_axes
from qddot.spatial import Transform
from qddot.spatial.joint_blocks import Vector


class JointOptions(TypedDict, total=False):
    """What may be said of a joint besides its motion and its ends.

    Numbers given for a joint of several degrees of freedom may be one for all or one for each.
    """

    armature: Any  # rotor inertia, kg m² or kg (default 0)
    damping: Any  # N m s or N s/m (default 0)
    friction: Any  # Coulomb friction, N m or N (default 0)
    stiffness: Any  # of a spring, N m/rad or N/m (default 0)
    spring_reference: Any  # coordinates at which the spring is at rest (default the neutral ones)
    lower: Any  # limit of the coordinates (default none)
    upper: Any
    velocity_limit: Any  # default none
    effort_limit: Any  # default none
    actuated: bool | None  # whether it is driven; None: if no joint says True, and it is not floating
    mimic: tuple[str, float, float] | None  # (other, k, o): it follows another joint, q = k · q_other + o
    where: str  # the place in a file that it came from, for messages


@dataclass
class DeclaredJoint:
    """A checked joint between two links that are known by name only."""

    name: str
    joint: Joint
    parent: str
    child: str
    placement: Transform
    where: str
    armature: Vector
    damping: Vector
    friction: Vector
    stiffness: Vector
    spring_reference: Vector
    limits: Limits
    actuated: bool | None
    mimic: tuple[str, float, float] | None


@dataclass(frozen=True)
class _Numbers:
    """Checks numbers that are given once or for each degree of freedom."""

    nv: int
    element: str
    where: str

    def each(self, value: Any, what: str, *, least: float = 0.0, finite: bool = True) -> Vector:
        if isinstance(value, float | int):
            array = (float(value),) * self.nv
        else:
            array = tuple(np.asarray(value, dtype=float).reshape(-1).tolist())
        if len(array) != self.nv:
            problem = f"{what} has {len(array)} numbers for a joint of {self.nv} degrees of freedom"
            raise ModelError(message(self.where, self.element, problem, f"give one number or {self.nv}"))
        if not all(x >= least and (math.isfinite(x) or not finite) for x in array):
            what_is_right = "finite numbers" if least == -math.inf else "finite numbers of zero or more"
            raise ModelError(message(self.where, self.element, f"{what} is {list(array)}", f"give {what_is_right}"))
        return Vector(array)

    def limits(self, options: JointOptions) -> Limits:
        limits = Limits(
            self.each(options.get("lower", -math.inf), "lower limit", least=-math.inf, finite=False),
            self.each(options.get("upper", math.inf), "upper limit", least=-math.inf, finite=False),
            self.each(options.get("velocity_limit", math.inf), "velocity limit", finite=False),
            self.each(options.get("effort_limit", math.inf), "effort limit", finite=False),
        )
        for low, high in zip(limits.lower, limits.upper, strict=True):
            if low > high:
                problem = f"lower limit {low:g} is above upper limit {high:g}"
                raise ModelError(message(self.where, self.element, problem, "swap or correct them"))
        return limits


def declared_joint(
    name: str, ends: tuple[str, str], joint: Joint, placement: Placement | None, options: JointOptions, find: Find
) -> DeclaredJoint:
    """The joint between the links `ends`, parent first; `find` takes findings."""
    element, where = f"joint {name!r}", options.get("where", "")
    check_link_names(ends, element, where)
    joint = unit_axes(joint, element, where, find)
    given = _Numbers(joint.nv, element, where)
    limits = given.limits(options)
    reference, actuated, mimic = (options.get(key) for key in ("spring_reference", "actuated", "mimic"))
    stiffness = given.each(options.get("stiffness", 0.0), "stiffness")
    check_springs(joint, stiffness, element, where)
    rest = joint.neutral() if reference is None else reference
    return DeclaredJoint(
        name=name,
        joint=joint,
        parent=ends[0],
        child=ends[1],
        placement=placed(placement, element, where, find),
        where=where,
        armature=given.each(options.get("armature", 0.0), "armature"),
        damping=given.each(options.get("damping", 0.0), "damping"),
        friction=given.each(options.get("friction", 0.0), "friction"),
        stiffness=stiffness,
        spring_reference=Vector(numbers(rest, joint.nq, "spring reference", where, element)),
        limits=limits,
        actuated=None if actuated is None else bool(actuated),
        mimic=None if mimic is None else _mimic(mimic, element, where),
    )


def _mimic(given: Any, element: str, where: str) -> tuple[str, float, float]:
    if not isinstance(given, tuple | list) or len(given) != 3 or not isinstance(given[0], str):
        raise ModelError(
            message(where, element, f"mimic is {shown(given)}", "give (name of the other joint, factor, offset)")
        )
    factor, offset = numbers(given[1:], 2, "mimic", where, element)
    return given[0], factor, offset


def refuse_unknown(options: JointOptions) -> None:
    """A misspelt option is an error, as that of any function is."""
    for key in options:
        if key not in JointOptions.__annotations__:
            raise unexpected("Builder.joint", key, JointOptions.__annotations__)


def ground() -> DeclaredJoint:
    """The world's own row in the tables."""
    none = Vector()
    limits = Limits((), (), (), ())
    return DeclaredJoint("", Fixed(), "", "", Transform(), "", none, none, none, none, none, limits, False, None)
