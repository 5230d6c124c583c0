"""MJCF -> Builder: MuJoCo's own compiler reads the file, and its tables become links, joints, frames and loops.

MuJoCo is the optional extra `qddot[mjcf]`. The order of bodies and joints is kept, and q of a hinge or slide is
MuJoCo's qpos; `qddot.conventions` converts the rest. A joint whose anchor is not the body's origin has its link frame
at the anchor, and several joints on a body become a chain of massless links; in both cases the body's own frame is
known by the body's name. What qddot does not compute (tendons, fluids, flexes, …) is left out, and each such element
is a finding.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qddot.formats import mjcf_compile, xml
from qddot.formats.files import plain_name
from qddot.formats.mjcf_equalities import Equality, Reduced, equality, reduced
from qddot.formats.mjcf_keyframes import with_keyframes
from qddot.formats.mjcf_left_out import find_left_out
from qddot.formats.mjcf_values import roll_pitch_yaw, scalar_last, turned, vec
from qddot.formats.registry import ReadOptions, register
from qddot.joints import Fixed, Free, Joint, Prismatic, Revolute, Spherical, Translational
from qddot.mechanism.builder import WORLD, Builder
from qddot.mechanism.model import Model
from qddot.spatial import Transform
from qddot.spatial.rotation import (
    ZERO,
    Vec,
    quaternion_rotation,
    quaternion_unit,
    scale,
    sub,
)

_ANGULAR_FIRST = (3, 4, 5, 0, 1, 2)  # the degrees of freedom of MuJoCo's free joint in qddot's order


def read(
    source: str | os.PathLike[str],
    *,
    text: str | None = None,
    snap: float = 0.0,
    package_dirs: Sequence[str] = (),
    trust: bool = False,
) -> Builder:
    """Reads the file `source`, or `text` that came from there and includes no other file.

    With `snap`, a roll, pitch or yaw that misses a multiple of π/2 by less than that many radians is set to it. Meshes
    and included files are below the file's folder, its package or `package_dirs`; with `trust` they may be anywhere, and
    MuJoCo's compiler runs in this process, without limits of time and memory.
    """
    return _translated(source, text, snap, package_dirs, trust)[0]


def _translated(
    source: str | os.PathLike[str], text: str | None, snap: float, package_dirs: Sequence[str], trust: bool
) -> tuple[Builder, mjcf_compile.Compiled]:
    file, root = xml.load(source, text)
    compiled = mjcf_compile.compiled(file, root, text, package_dirs, trust)
    builder = Builder(compiled.name or Path(plain_name(file)).stem or "mjcf", snap=snap, allow_unphysical=True)
    for remark in dict.fromkeys(" ".join(remark.split()) for remark in compiled.remarks):  # some come by both ways
        builder.find("note", file, "MuJoCo", remark, "see whether it matters")
    _Translation(compiled.mujoco, compiled.model, compiled.places, builder).run()
    return builder, compiled


@register("mjcf", ".mjcf", marks=(b"<mujoco",), rank=1)
def _model(path: Path, options: ReadOptions) -> Model:
    builder, compiled = _translated(path, None, options.snap, options.package_dirs, options.trust)
    return with_keyframes(builder.model(), compiled)


# ---- the tables of MuJoCo as calls of the Builder ------------------------------------------------------------------


class _Translation:
    """One compiled model on its way into a Builder."""

    def __init__(self, mujoco: Any, compiled: Any, places: mjcf_compile.Places, builder: Builder) -> None:
        self.mujoco, self.m, self.places, self.b = mujoco, compiled, places, builder
        self.bodies = self.names("body", compiled.nbody)
        self.joints = self.names("joint", compiled.njnt)
        self.sites = self.names("site", compiled.nsite)
        self.link_names = {WORLD, *self.bodies}
        self.joint_names = set(self.joints)
        # for each body: the link that carries it, the body's frame there, and the nearest body up the tree that moves
        self.at: list[tuple[str, Transform]] = [(WORLD, Transform())]
        self.mover = [0]
        self.driven = self._driven_joints()
        self.equalities = self.names("equality", compiled.neq)
        self.coupled = Reduced({}, [], [], [])

    def run(self) -> None:
        flags, off = self.m.opt.disableflags, self.mujoco.mjtDisableBit
        disabled = {what: bool(flags & int(getattr(off, f"mjDSBL_{what.upper()}"))) for what in _SWITCHES}
        for what, is_off in disabled.items():
            if is_off:
                self.find("note", "file", 0, "<flag>", f"the file disables {what}", "it is left out here too")
        self.springs, self.dampers = not disabled["spring"], not disabled["damper"]
        self.frictions = not disabled["frictionloss"]
        self.b.gravity = ZERO if disabled["gravity"] else vec(self.m.opt.gravity)
        has_equalities = not disabled["equality"] and not disabled["constraint"]
        if has_equalities:
            self._couple()
        for body in range(1, self.m.nbody):
            self._body(body)
        for site, name in enumerate(self.sites):
            body, place = self._site(site)
            link, T = self.at[body]
            self.b.frame(self._new(self.link_names, name), link, T @ place, self._where("site", site))
        if has_equalities:
            for k, name in enumerate(self.equalities):
                self._equality(k, name)
        find_left_out(self)

    # ---- names and places

    def names(self, kind: str, count: int) -> list[str]:
        """The names of a table's rows; those without one are numbered, such as body3."""
        table = getattr(self.mujoco.mjtObj, f"mjOBJ_{kind.upper()}")
        named = [self.mujoco.mj_id2name(self.m, table, i) for i in range(count)]
        taken = {name for name in named if name}
        return [name or self._new(taken, f"{kind}{i}") for i, name in enumerate(named)]

    @staticmethod
    def _new(taken: set[str], name: str) -> str:
        """The name, or one like it that is free."""
        free, k = name, 0
        while free in taken:
            k += 1
            free = name + "_" * k if k < 4 else f"{name}_{len(taken) + k}"
        taken.add(free)
        return free

    def find(self, severity: str, kind: str, i: int, element: str, problem: str, fix: str) -> None:
        self.b.find(severity, self._where(kind, i), element, problem, fix)

    def _where(self, kind: str, i: int) -> str:
        return self.places.get((kind, i), self.places["file", 0])

    def _pose(self, position: Any, quaternion: Any, element: str, where: str) -> Transform:
        w, x, y, z = quaternion.tolist()
        R = quaternion_rotation(*quaternion_unit((x, y, z, w)))
        if self.b.snap > 0.0:
            return self.b.pose(vec(position), roll_pitch_yaw(R, self.b.snap), element, where)
        return Transform(R, vec(position))

    def _site(self, site: int) -> tuple[int, Transform]:
        """The body a site is on, and its frame there."""
        m, element = self.m, f"site {self.sites[site]!r}"
        place = self._pose(m.site_pos[site], m.site_quat[site], element, self._where("site", site))
        return int(m.site_bodyid[site]), place

    # ---- bodies and joints

    def _body(self, body: int) -> None:
        """The chain of links that a body's joints make. The inertia is on the last."""
        m, name, where = self.m, self.bodies[body], self._where("body", body)
        parent, T = self.at[m.body_parentid[body]]
        T = T @ self._pose(m.body_pos[body], m.body_quat[body], f"body {name!r}", where)
        first, count = int(m.body_jntadr[body]), int(m.body_jntnum[body])
        anchor = ZERO
        if count == 0:
            self._link(name, body, ZERO, where)
            self.b.joint(self._new(self.joint_names, f"{name}/fixed"), parent, name, Fixed(), T, where=where)
            parent = name
        for j in range(first, first + count):
            before, anchor = anchor, self._anchor(j)
            shift = sub(anchor, before)
            is_last = j == first + count - 1
            at_body = is_last and anchor == ZERO
            link = name if at_body else self._new(self.link_names, f"{name}/{self.joints[j]}")
            if is_last:
                self._link(link, body, anchor, where)
            else:
                self.b.link(link, where=where)
            self._joint(j, parent, link, T @ Transform(p=shift))
            parent, T = link, Transform()
        if anchor != ZERO:
            self.b.frame(name, parent, Transform(p=scale(-1.0, anchor)), where)
        self.at.append((parent, Transform(p=scale(-1.0, anchor))))
        self.mover.append(body if count else self.mover[m.body_parentid[body]])
        if m.body_mocapid[body] >= 0:
            problem, fix = "it is a mocap body", "it stands still at its place in the file"
            self.find("note", "body", body, f"body {name!r}", problem, fix)

    def _link(self, link: str, body: int, anchor: Vec, where: str) -> None:
        m = self.m
        a, b, c = m.body_inertia[body].tolist()
        axes = self._pose(m.body_ipos[body], m.body_iquat[body], f"inertial of body {self.bodies[body]!r}", where)
        self.b.link(link, float(m.body_mass[body]), sub(axes.p, anchor), (a, 0.0, 0.0, b, 0.0, c), axes, where)

    def _is(self, j: int, kind: str) -> bool:
        return bool(self.m.jnt_type[j] == int(getattr(self.mujoco.mjtJoint, f"mjJNT_{kind}")))

    def _anchor(self, j: int) -> Vec:
        """Where on the body the joint turns it; slides and free joints move the body's own frame."""
        return vec(self.m.jnt_pos[j]) if self._is(j, "HINGE") or self._is(j, "BALL") else ZERO

    def _joint(self, j: int, parent: str, link: str, T: Transform) -> None:
        m, name, axis = self.m, self.joints[j], vec(self.m.jnt_axis[j])
        where, element = self._where("joint", j), f"joint {name!r}"
        start = int(m.jnt_qposadr[j])
        kind: Joint
        if self._is(j, "HINGE"):
            # MuJoCo turns by qpos - qpos0: the constant part goes into the placement
            angle = -self.b.angle(float(m.qpos0[start]), element, where)
            kind, T = Revolute(axis), T @ turned(axis, angle)
        elif self._is(j, "SLIDE"):
            kind, T = Prismatic(axis), T @ Transform(p=scale(-float(m.qpos0[start]), axis))
        elif self._is(j, "BALL"):
            kind = Spherical()
        else:
            # qpos of a free joint is the pose in the world, whatever the body's own place
            kind, T = Free(), Transform()
        first = int(m.jnt_dofadr[j])
        dofs = [first + k for k in (_ANGULAR_FIRST if kind.is_floating else range(kind.nv))]
        self._check_joint(j, kind, dofs, element)
        if kind.is_floating and m.dof_armature[dofs].any():
            between = self._new(self.link_names, f"{link}/translation")
            self.b.link(between, where=where)
            moved = self._new(self.joint_names, f"{name}/translation")
            self._add(j, moved, parent, between, Translational(), T, [first, first + 1, first + 2], start)
            parent, kind, dofs, start = between, Spherical(), [first + 3, first + 4, first + 5], start + 3
        self._add(j, name, parent, link, kind, T, dofs, start)

    def _add(
        self, j: int, name: str, parent: str, link: str, kind: Joint, T: Transform, dofs: list[int], start: int
    ) -> None:
        """MuJoCo's joint j, or a part of it, with the numbers of these DoFs and of the coordinates from `start` on."""
        m = self.m
        armature, damping = [m.dof_armature[k] for k in dofs], [m.dof_damping[k] for k in dofs]
        motor = self._motor(j, kind)
        lower, upper = self._limits(j, kind)
        self.b.joint(
            name,
            parent,
            link,
            kind,
            T,
            armature=[x + motor[0] for x in armature],
            damping=[x + motor[1] if self.dampers else 0.0 for x in damping],
            friction=[m.dof_frictionloss[k] if self.frictions else 0.0 for k in dofs],
            stiffness=float(m.jnt_stiffness[j]) if self.springs else 0.0,
            spring_reference=scalar_last(m.qpos_spring[start : start + kind.nq].tolist()),
            lower=lower,
            upper=upper,
            effort_limit=self._effort(j, kind),
            actuated=self._is_driven(j),
            mimic=None if (f := self.coupled.followers.get(j)) is None else (self.joints[f.leader], f.factor, f.offset),
            where=self._where("joint", j),
        )

    def _motor(self, j: int, kind: Joint) -> tuple[float, float]:
        """Rotor inertia and damping that an actuator adds to its joint through the gear; MuJoCo before 4 has none."""
        m = self.m
        actuator = int(m.jnt_actuatorid[j]) if hasattr(m, "jnt_actuatorid") else -1
        if actuator < 0:
            return 0.0, 0.0
        gear = float(m.actuator_gear[m.actuator_outadr[actuator], 0])
        armature, damping = float(m.actuator_armature[actuator]), float(m.actuator_damping[actuator])
        if kind.nv > 1 and (armature or damping):
            problem = f"its actuator adds armature {armature:g} and damping {damping:g} about one axis; left out"
            fix = "give armature and damping to the joint itself"
            self.find("warning", "joint", j, f"joint {self.joints[j]!r}", problem, fix)
            return 0.0, 0.0
        return gear * gear * armature, gear * gear * damping

    def _limits(self, j: int, kind: Joint) -> tuple[float, float]:
        if not self.m.jnt_limited[j]:
            return -math.inf, math.inf
        lower, upper = map(xml.or_none, self.m.jnt_range[j].tolist())
        if kind.nv > 1:
            problem = f"its limit of {upper:g} rad on the angle is left out"
            self.find("note", "joint", j, f"joint {self.joints[j]!r}", problem, "only hinges and slides have limits here")
            return -math.inf, math.inf
        return lower, upper

    def _effort(self, j: int, kind: Joint) -> float:
        """The largest force of actuators on the joint, where it is the same in both directions."""
        if kind.nv > 1 or not self.m.jnt_actfrclimited[j]:
            return math.inf
        least, most = self.m.jnt_actfrcrange[j].tolist()
        if least != -most:
            problem = f"its actuatorfrcrange is {least:g} to {most:g}; left out"
            self.find("note", "joint", j, f"joint {self.joints[j]!r}", problem, "effort limits are symmetric here")
            return math.inf
        return most

    def _check_joint(self, j: int, kind: Joint, dofs: list[int], element: str) -> None:
        """Finds what the joint has and qddot leaves out. Fields are missing from older MuJoCo."""
        m, linear = self.m, "only the linear law is kept: remove the higher coefficients, or add the force to tau"
        stiffness, damping = getattr(m, "jnt_stiffnesspoly", None), getattr(m, "dof_dampingpoly", None)
        if self.springs and stiffness is not None and stiffness[j].any():
            self.find("warning", "joint", j, element, f"its spring is not linear: {stiffness[j].tolist()}", linear)
        if self.dampers and damping is not None and damping[dofs].any():
            problem = f"its damping is not linear: {damping[dofs[0]].tolist()}"
            self.find("warning", "joint", j, element, problem, linear)
        springyield = getattr(m, "jnt_springyield", None)
        if springyield is not None and springyield[j] and m.jnt_stiffness[j]:
            problem = f"its spring yields at {springyield[j]:g}; left out"
            self.find("warning", "joint", j, element, problem, "the spring stays elastic here: remove springyield")
        if kind.is_floating and m.dof_armature[dofs].any():
            problem = f"a free joint with armature {m.dof_armature[dofs[-1]]:g}, which MuJoCo has in world axes"
            fix = "it is read as a translation and a ball; v is the velocity in world axes, then the turning in the body's"
            self.find("note", "joint", j, element, problem, fix)

    def _driven_joints(self) -> set[int] | None:
        """The joints that actuators drive; None where the model has no actuators."""
        m, kinds = self.m, self.mujoco.mjtTrn
        count = len(m.actuator_trntype)
        direct = (int(kinds.mjTRN_JOINT), int(kinds.mjTRN_JOINTINPARENT))
        driven = {int(m.actuator_trnid[a, 0]) for a in range(count) if m.actuator_trntype[a] in direct}
        for a, name in enumerate(self.names("actuator", count)):
            if m.actuator_trntype[a] not in direct:
                problem, fix = "it drives no single joint", "no joint counts as actuated because of it"
                self.find("note", "file", 0, f"actuator {name!r}", problem, fix)
        return driven if count else None

    def _is_driven(self, j: int) -> bool | None:
        """Whether an actuator drives the joint, or one that follows it."""
        if self.driven is None:
            return False if self._is(j, "FREE") else None
        return j in self.driven or any(self.coupled.leader(k) == j for k in self.driven)

    # ---- equalities

    def _couple(self) -> None:
        """Which joints follow others."""
        m = self.m
        found = [equality(self.mujoco, m, k) for k in range(m.neq) if m.eq_active0[k]]
        self.coupled = reduced(e for e in found if e is not None)
        for k in self.coupled.redundant:
            self.find("note", "equality", k, f"equality {self.equalities[k]!r}", "others say the same", "it is left out")
        for k, off in self.coupled.contradictory:
            problem = f"it contradicts the ones before it by {off:.3g}: left out"
            self.find("warning", "equality", k, f"equality {self.equalities[k]!r}", problem, "remove or correct it")
        for joint, f in self.coupled.followers.items():
            problem = f"an equality makes it follow {self.joints[f.leader]!r}: q = {f.factor:g} q' + {f.offset:g}"
            fix = "it has no degree of freedom of its own here; MuJoCo lets it yield as solref and solimp say"
            self.find("note", "joint", joint, f"joint {self.joints[joint]!r}", problem, fix)

    def _coupling(self, e: Equality) -> None:
        left, right = ({self.joints[j]: k for j, k in side.items()} for side in (e.left, e.right))
        name = self.equalities[e.number]
        self.b.coupling(name, left, e.polynomial, right, e.reference, self._where("equality", e.number))

    def _equality(self, index: int, name: str) -> None:
        m, kinds = self.m, self.mujoco.mjtEq
        kind, element = int(m.eq_type[index]), f"equality {name!r}"
        if not m.eq_active0[index]:
            self.find("note", "equality", index, element, "it is not active", "it is left out")
            return
        if (e := equality(self.mujoco, m, index)) is not None:
            if e in self.coupled.rows:
                self._coupling(e)
            return
        is_weld = kind == int(kinds.mjEQ_WELD)
        if not is_weld and kind != int(kinds.mjEQ_CONNECT):
            what = next(k for k, v in kinds.__members__.items() if int(v) == kind).removeprefix("mjEQ_").lower()
            what = "spatial tendon" if what == "tendon" else what
            fix = "what it couples moves freely here: use connect, weld, joint or fixed tendons, or add its force to tau"
            self.find("warning", "equality", index, element, f"a {what} equality is left out", fix)
            return
        (body_a, A), (body_b, B) = self._equality_frames(index, is_weld)
        if self.mover[body_a] == self.mover[body_b]:
            problem = f"bodies {self.bodies[body_a]!r} and {self.bodies[body_b]!r} do not move against each other"
            self.find("warning", "equality", index, element, problem, "it holds nothing and is left out: remove it")
            return
        (link_a, T_a), (link_b, T_b) = self.at[body_a], self.at[body_b]
        joint = Fixed() if is_weld else Spherical()
        self.b.loop(name, link_a, link_b, joint, T_a @ A, T_b @ B, self._where("equality", index))

    def _equality_frames(self, index: int, is_weld: bool) -> tuple[tuple[int, Transform], tuple[int, Transform]]:
        """The bodies that an equality holds together, and the frames on them that it makes coincide."""
        m, data = self.m, self.m.eq_data[index]
        a, b = int(m.eq_obj1id[index]), int(m.eq_obj2id[index])
        if m.eq_objtype[index] == int(self.mujoco.mjtObj.mjOBJ_SITE):
            return self._site(a), self._site(b)
        if is_weld:  # the anchor on the second body, then the pose of the second in the first
            held = self._pose(data[3:6], data[6:10], "weld", self._where("equality", index))
            return (a, held), (b, Transform(p=vec(data[:3])))
        return (a, Transform(p=vec(data[:3]))), (b, Transform(p=vec(data[3:6])))


_SWITCHES = ("constraint", "equality", "frictionloss", "spring", "damper", "gravity")
