"""Builder -> Model: everything about a mechanism is checked here, once, so that no algorithm has to.

Parts may be declared in any order. Links on fixed joints are merged into the link that carries them and stay known as
frames; links are numbered parents first, otherwise in the order of declaration. What is impossible raises an error;
what is merely doubtful is collected as findings.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

from qddot.errors import Finding, ModelError, message, near
from qddot.joints import Joint
from qddot.mechanism.couplings import Declared, Place
from qddot.mechanism.declared_joint import DeclaredJoint, JointOptions, declared_joint, ground, refuse_unknown
from qddot.mechanism.declared_tree import (
    DECLARE,
    WORLD,
    Carrier,
    DeclaredLink,
    carriers,
    joints_above,
    mimics,
    parents_first,
)
from qddot.mechanism.model import Constraint, Frame, Loop, Model
from qddot.mechanism.placements import Placement, placed
from qddot.mechanism.validation import (
    check_inertia,
    check_link_names,
    check_mass,
    constant,
    inertia_matrix,
    numbers,
    pose,
    tolerance,
    unit_axes,
)
from qddot.spatial import Inertia, Transform, inertia_from, transform_inertia, zero_inertia
from qddot.spatial.joint_blocks import Vector
from qddot.spatial.rotation import IDENTITY

__all__ = ["WORLD", "Builder"]

MAX_NAME_CHARS = 4000  # readers take at most 1,000 and make names of two or three others


@dataclass(repr=False)
class Builder:
    """Collects links, joints, frames and loops, and makes the Model of them.

    `where` in its methods is the place in a file that a part came from; errors and findings repeat it. With `snap`,
    angles that miss a multiple of π/2 by less than that many radians are set to it, and each is reported. Loops count as
    closed up to `loop_tolerance`, in m or rad; by default that comes from how well the numbers let them close. An inertia
    that no body has (principal moments below zero or against the triangle inequality) is an error; with
    `allow_unphysical` it is kept, and is a finding.
    """

    name: str
    gravity: Sequence[float] = (0.0, 0.0, -9.81)
    friction_velocity: float = 1e-3
    snap: float = 0.0
    loop_tolerance: float | None = None
    allow_unphysical: bool = False
    findings: list[Finding] = field(default_factory=list)
    _links: dict[str, DeclaredLink] = field(default_factory=dict)
    _joints: dict[str, DeclaredJoint] = field(default_factory=dict)
    _frames: list[tuple[str, str, Transform, str]] = field(default_factory=list)
    _loops: list[tuple[str, Joint, str, Transform, str, Transform, str]] = field(default_factory=list)
    _couplings: dict[str, Declared] = field(default_factory=dict)
    _loop_names: set[str] = field(default_factory=set)
    _ground: Inertia = field(default_factory=zero_inertia)  # of bodies on the world that are no links any more

    def __repr__(self) -> str:
        parts = f"{len(self._links)} links, {len(self._joints)} joints, {len(self._loops)} loops"
        return f"<Builder {self.name!r}: {parts}>"

    # ---- parts

    def link(
        self,
        name: str,
        mass: float = 0.0,
        com: Sequence[float] = (0.0, 0.0, 0.0),
        inertia: Any = None,
        inertia_axes: Transform | None = None,
        where: str = "",
    ) -> Builder:
        """A body: its mass, centre of mass, and inertia about the centre of mass (3×3, or ixx ixy ixz iyy iyz izz).

        `inertia_axes` gives the axes of the inertia where they are not the link's own.
        """
        element = f"link {name!r}"
        self._new_name(self._links, name, element, where)
        (m,) = numbers(mass, 1, "mass", where, element)
        c = numbers(com, 3, "com", where, element)
        I_c = inertia_matrix(inertia, element, where)
        check_mass(m, I_c, element, where, self.find)
        check_inertia(I_c, element, where, self.find, allow_unphysical=self.allow_unphysical)
        R = IDENTITY if inertia_axes is None else inertia_axes.R
        self._links[name] = DeclaredLink(name, inertia_from(m, c, I_c, R), where)  # type: ignore[arg-type]
        return self

    def joint(
        self,
        name: str,
        parent: str,
        child: str,
        joint: Joint,
        placement: Placement | None = None,
        **options: Unpack[JointOptions],
    ) -> Builder:
        """A joint that lets `child` move in `parent` ("world" for the ground); `placement` is its frame in the parent.

        A placement, here and below, is a `Transform` such as `qddot.pose` gives; x y z; x y z and roll pitch yaw; x y z and
        a quaternion x y z w; a 4×4 matrix; or a mapping of `xyz` with `rpy` or `quaternion`, or a DH row of `alpha`, `a`,
        `theta`, `d` (modified, or `convention="standard"`).

        The options are those of `JointOptions`: armature, damping, friction, stiffness, spring_reference, lower, upper,
        velocity_limit, effort_limit, actuated, mimic, where. Numbers given for a joint of several degrees of freedom may
        be one for all or one for each. `mimic=(other, k, o)` makes the joint follow another: q = k · q_other + o.
        `actuated=True` says that a motor drives the joint, which matters where loops leave a choice; then joints that say
        nothing are not driven. If no joint says it, all are but those that float and those of `actuated=False`.
        """
        refuse_unknown(options)
        self._new_name(self._joints, name, f"joint {name!r}", options.get("where", ""))
        self._joints[name] = declared_joint(name, (parent, child), joint, placement, options, self.find)
        return self

    def frame(self, name: str, link: str, placement: Placement | None = None, where: str = "") -> Builder:
        """A named frame fixed to a link."""
        check_name(name, f"frame {name!r}", where)
        check_link_names((link,), f"frame {name!r}", where)
        self._frames.append((name, link, placed(placement, f"frame {name!r}", where, self.find), where))
        return self

    def loop(
        self,
        name: str,
        link_a: str,
        link_b: str,
        joint: Joint,
        placement_a: Placement | None = None,
        placement_b: Placement | None = None,
        where: str = "",
    ) -> Builder:
        """A joint that closes a loop: the frame on link b moves in the frame on link a as the joint allows."""
        element = f"loop {name!r}"
        check_name(name, element, where)
        if name in self._loop_names:
            raise ModelError(message(where, element, "there are two loops of this name", "rename one"))
        self._loop_names.add(name)
        check_link_names((link_a, link_b), element, where)
        a, b = (placed(T, element, where, self.find) for T in (placement_a, placement_b))
        self._loops.append((name, unit_axes(joint, element, where, self.find), link_a, a, link_b, b, where))
        return self

    def coupling(
        self,
        name: str,
        joints: Mapping[str, float],
        polynomial: Sequence[float] = (0.0,),
        of: Mapping[str, float] | None = None,
        reference: float = 0.0,
        where: str = "",
    ) -> Builder:
        """Joints of one degree of freedom with Σ k q = p(x), x = Σ k q of others less a reference: a constraint of one row.

        `joints` and `of` give the factors k by the joints' names; `polynomial` is p, the constant first.
        """
        element, others = f"coupling {name!r}", {} if of is None else of
        self._new_name(self._couplings, name, element, where)
        numbers([*joints.values(), *others.values()], None, "its factors", where, element)
        (x_0,) = numbers(reference, 1, "its reference", where, element)
        p = numbers(polynomial, None, "its polynomial", where, element)
        self._couplings[name] = Declared(name, dict(joints), dict(others), x_0, p, where)
        return self

    def angle(self, value: float, element: str, where: str = "") -> float:
        """An angle as the model will have it: snapped to a multiple of π/2 with `snap`."""
        right = round(value / (math.pi / 2)) * (math.pi / 2)
        miss = abs(value - right)
        if not 0.0 < miss <= self.snap:
            return value
        if miss > 2e-16 * max(1.0, abs(value)):
            self.find("note", where, element, f"angle {value!r} misses {right!r} by {miss:.1e}", "it was snapped")
        return right

    def pose(self, xyz: Iterable[float], rpy: Iterable[float], element: str, where: str = "") -> Transform:
        """`qddot.pose` with snapped angles."""
        return pose(xyz, [self.angle(a, element, where) for a in rpy])

    def find(self, severity: str, where: str, element: str, problem: str, fix: str) -> None:
        """Notes something doubtful about the model."""
        self.findings.append(Finding(severity, where, element, problem, fix))

    # ---- the model

    def model(self) -> Model:
        """Checks the whole and freezes it."""
        if self.name:
            check_name(self.name, "robot", "")
        above = joints_above(self._links, self._joints)
        order = parents_first(self._links, above)
        carrier = carriers(above, order)
        moving = [name for name in order if above[name].joint.nv > 0]
        index = {WORLD: 0} | {name: i for i, name in enumerate(moving, 1)}
        inertia = [self._ground, *(zero_inertia() for _ in moving)]
        for name in order:
            holder, T = carrier[name]
            inertia[index[holder]] = inertia[index[holder]] + transform_inertia(T, self._links[name].inertia)
        rows = [above[name] for name in moving]
        placements = [constant(carrier[j.parent][1] @ j.placement) for j in rows]
        for j, T in zip(rows, placements, strict=True):
            I = inertia[index[j.child]]
            if not all(map(math.isfinite, (I.m, *I.h, *I.I[0], *I.I[1], *I.I[2], *T.p))):
                problem = f"the inertia or the place of link {j.child!r} is beyond the largest number"
                raise ModelError(message(j.where, f"joint {j.name!r}", problem, "give masses and lengths in SI units"))
        world = ground()
        model = Model(
            name=self.name,
            link_names=(WORLD, *moving),
            joint_names=("", *(j.name for j in rows)),
            parent=(-1, *(index[carrier[j.parent][0]] for j in rows)),
            joint=(world.joint, *(j.joint for j in rows)),
            placement=(Transform(), *placements),
            inertia=tuple(inertia),
            armature=(Vector(), *(j.armature for j in rows)),
            damping=(Vector(), *(j.damping for j in rows)),
            friction=(Vector(), *(j.friction for j in rows)),
            stiffness=(Vector(), *(j.stiffness for j in rows)),
            spring_reference=(Vector(), *(j.spring_reference for j in rows)),
            limits=(world.limits, *(j.limits for j in rows)),
            actuated=(False, *self._actuated(rows)),
            mimic=(None, *mimics(rows, self._joints, index)),
            frames=self._frozen_frames(carrier, index),
            loops=self._frozen_loops(carrier, index),
            gravity=numbers(self.gravity, 3, "gravity"),  # type: ignore[arg-type]
            friction_velocity=numbers(self.friction_velocity, 1, "friction_velocity")[0],
            loop_tolerance=None if self.loop_tolerance is None else tolerance(self.loop_tolerance, "loop_tolerance"),
            findings=tuple(self.findings),
        )
        return replace(model, constraints=self._frozen_couplings(model)) if self._couplings else model

    # ---- parts of the model

    def _actuated(self, rows: Sequence[DeclaredJoint]) -> list[bool]:
        """Whether each joint is driven: as it says, or, where no joint says that it is, all but those that float."""
        some = any(j.actuated for j in self._joints.values())
        return [not some and not j.joint.is_floating if j.actuated is None else j.actuated for j in rows]

    def _resolve(
        self, name: str, carrier: dict[str, Carrier], index: dict[str, int], element: str, where: str
    ) -> tuple[int, Transform]:
        if name not in carrier:
            raise ModelError(message(where, element, f"link {name!r} does not exist{near(name, self._links)}", DECLARE))
        holder, T = carrier[name]
        return index[holder], T

    def _frozen_frames(self, carrier: dict[str, Carrier], index: dict[str, int]) -> tuple[Frame, ...]:
        merged = [Frame(n, index[h], T) for n, (h, T) in carrier.items() if n != h]
        taken = {WORLD, *self._links}
        for name, link, placement, where in self._frames:
            element = f"frame {name!r}"
            if name in taken:
                raise ModelError(message(where, element, "a link or frame of this name exists", "rename it"))
            taken.add(name)
            i, T = self._resolve(link, carrier, index, element, where)
            merged.append(Frame(name, i, constant(T @ placement)))
        return tuple(merged)

    def _frozen_loops(self, carrier: dict[str, Carrier], index: dict[str, int]) -> tuple[Loop, ...]:
        loops = []
        for name, joint, link_a, T_a, link_b, T_b, where in self._loops:
            element = f"loop {name!r}"
            a, A = self._resolve(link_a, carrier, index, element, where)
            b, B = self._resolve(link_b, carrier, index, element, where)
            if a == b:
                problem = f"its links {link_a!r} and {link_b!r} do not move against each other"
                raise ModelError(message(where, element, problem, "close the loop between two moving links"))
            placed = constant(A @ T_a), constant(B @ T_b)
            loops.append(Loop(name, joint, a, placed[0], b, placed[1]))
        return tuple(loops)

    def _frozen_couplings(self, model: Model) -> tuple[Constraint, ...]:
        places = {
            name: Place(slot.q.start, 1.0 if slot.factor is None else slot.factor, slot.offset or 0.0)
            for name, joint, slot in zip(model.joint_names, model.joint, model.slots, strict=True)
            if joint.nq == joint.nv == 1
        }
        for loop in model.loops:
            if loop.name in self._couplings:
                where = self._couplings[loop.name].where
                raise ModelError(message(where, f"coupling {loop.name!r}", "a loop has this name, too", "rename one"))
        return tuple(Constraint(name, 1, declared.coupling(places)) for name, declared in self._couplings.items())

    # ---- checks of single parts

    def _new_name(self, table: dict[str, Any], name: str, element: str, where: str) -> None:
        check_name(name, element, where)
        if name == WORLD and table is self._links:
            raise ModelError(message(where, element, "'world' is the ground's own name", "rename the link"))
        if name in table:
            first = getattr(table[name], "where", "")
            also = f" (first at {first})" if first else ""
            raise ModelError(message(where, element, f"the name is used twice{also}", "rename one"))


def check_name(name: Any, element: str, where: str) -> None:
    """What names a part is a text of some characters, and not of too many."""
    if not isinstance(name, str) or not name:
        raise ModelError(message(where, element[:MAX_NAME_CHARS], "it has no name", "give it a name"))
    if len(name) > MAX_NAME_CHARS:
        shown = f"{element[:60]}…"
        raise ModelError(
            message(where, shown, f"its name has {len(name):,} characters", f"give at most {MAX_NAME_CHARS:,}")
        )
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ModelError(message(where, element, "its name has half a surrogate pair", "give it a name of text")) from None


def free_name(wanted: str, taken: Container[str]) -> str:
    """The name, or one with a number where it is taken."""
    name, k = wanted, 2
    while name in taken:
        name, k = f"{wanted}_{k}", k + 1
    return name
