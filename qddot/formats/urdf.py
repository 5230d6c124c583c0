"""URDF into Builder calls.

Lenient about dirt that leaves the dynamics alone, and loud about it: such things become findings. What would make the
dynamics a guess is an error. Every message names the file and the line. Of transmissions and ros2_control it is read
which joints they drive. Shapes, materials and simulator blocks are not read; meshes are never opened.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from qddot.errors import near
from qddot.formats import places, xml
from qddot.formats.files import plain_name
from qddot.formats.reader import short, shown
from qddot.formats.registry import ReadOptions, register
from qddot.formats.urdf_elements import READ, UrdfElements, fix_for
from qddot.formats.xml import Element, or_none
from qddot.joints import Fixed, Free, Joint, Planar, Prismatic, Revolute
from qddot.mechanism.builder import WORLD, Builder, free_name
from qddot.mechanism.model import Model

_KINDS = ("revolute", "continuous", "prismatic", "fixed", "planar", "floating")
_PRODUCTS = ("ixy", "ixz", "iyz")

_NO_MASS = 'add <mass value="…"/>; lenient readers take 0 kg, so write value="0" where that is meant'
_OTHER_FORMATS = {
    "mujoco": "this is an MJCF file: load it as MJCF",
    "sdf": "this is an SDF file: load it as SDF",
    "COLLADA": "this is a COLLADA file: give the URDF that uses it",
}


def read(
    source: str | os.PathLike[str],
    *,
    floating_base: bool = False,
    package_dirs: Sequence[str] = (),
    snap: float = 0.0,
    text: str | None = None,
) -> Builder:
    """The mechanism of a URDF file; with `text`, of that text, `source` being its name in messages.

    The root link stands on the ground, or moves freely with `floating_base`; a root link called "world" without a free
    base is the ground itself. Links are numbered depth first in the order of the file's joints. With `package_dirs`,
    meshes that are not found there are noted.
    """
    file, robot = xml.load(source, text)
    reader = _Reader(file, Builder("", snap=snap, allow_unphysical=True))
    if robot.tag != "robot":
        fix = _OTHER_FORMATS.get(robot.tag, "give a URDF file: its root element is <robot>")
        reader.fail(robot, "document", f"the root element is <{short(robot.tag)}> instead of <robot>", fix)
    reader.robot(robot, floating_base)
    if package_dirs:
        reader.note_missing_meshes(robot, [package_dirs] if isinstance(package_dirs, str) else package_dirs)
    reader.note_unread()
    return reader.builder


@register("urdf", ".urdf", marks=(b"<robot",), has_floating_base=True)
def _model(path: Path, options: ReadOptions) -> Model:
    given = {"package_dirs": options.package_dirs, "snap": options.snap}
    return read(path, floating_base=options.floating_base, **given).model()  # type: ignore[arg-type]


class _JointHead(NamedTuple):
    """What the tree needs of a joint."""

    name: str
    kind: str
    parent: str
    child: str
    element: Element


class _Reader(UrdfElements):
    """The robot, its links and its joints."""

    # ---- the whole

    def robot(self, robot: Element, floating_base: bool) -> None:
        self.builder.name = self.robot_name(robot)
        self.check_known(robot, "robot")
        links = self.named(robot, "link")
        if not links:
            self.fail(robot, "robot", "it has no <link>", "give it at least one link")
        joints = self.named(robot, "joint")
        heads = [self.joint_head(name, e, links) for name, e in joints.items()]
        root = self.root(links, heads)
        ground = root == WORLD and not floating_base
        renamed = {}
        if root == WORLD and floating_base:
            renamed[WORLD] = free_name("root", links)
            problem = "the floating base is called 'world', which is the ground's own name"
            self.find("note", links[WORLD], "link 'world'", problem, f"it was renamed {renamed[WORLD]!r}")
        order = _depth_first(root, links, heads)
        heavy = {}
        for name in order:
            heavy[name] = self.link(renamed.get(name, name), links[name], ground=ground and name == root)
        if root is not None and not ground:
            motion, where = Free() if floating_base else Fixed(), self.where(links[root])
            self.builder.joint(free_name("root_joint", joints), WORLD, renamed.get(root, root), motion, where=where)
        driven = self.driven(robot, joints)
        for head in heads:
            self.joint(head._replace(parent=renamed.get(head.parent, head.parent)), joints, driven)
        self.find_massless(links, heavy, heads, root if floating_base else None)

    def robot_name(self, robot: Element) -> str:
        if robot.attributes.get("name", "").strip():
            return self.name(robot, "name", "robot")
        stem = os.path.splitext(os.path.basename(plain_name(self.file)))[0]
        self.find("note", robot, "robot", "it has no name", f"it is called {stem!r} after its file")
        return stem

    def joint_head(self, name: str, e: Element, links: dict[str, Element]) -> _JointHead:
        owner = f"joint {name!r}"
        self.check_known(e, owner)
        kind = e.attributes.get("type", "")
        if kind not in _KINDS:
            problem = f"its type is {shown(kind)}" if "type" in e.attributes else "it has no type"
            self.fail(e, owner, problem, fix_for(kind, "give one of " + ", ".join(_KINDS)))
        ends = []
        for role in ("parent", "child"):
            end = self.child(e, role, owner)
            if end is None:
                self.fail(e, owner, f"it has no <{role}>", f'add <{role} link="…"/>')
            link = self.name(end, "link", owner)
            if link not in links:
                problem = f"its {role} link {shown(link)} does not exist{near(link, links)}"
                fix = f"correct the name or declare the link with <link name={shown(link)}/>"
                self.fail(end, owner, problem, fix)
            ends.append(link)
        return _JointHead(name, kind, ends[0], ends[1], e)

    def root(self, links: dict[str, Element], heads: list[_JointHead]) -> str | None:
        """The one link that is no joint's child; None where there is none, and so a cycle for the Builder to name."""
        carried = {head.child for head in heads}
        roots = [name for name in links if name not in carried]
        if len(roots) > 1:
            first = f"{roots[0]!r} (at {self.where(links[roots[0]])})"
            problem = f"it is a second root beside {first}: neither is the child of a joint"
            fix = "a URDF has one root link: add a joint that carries the other"
            self.fail(links[roots[1]], f"link {roots[1]!r}", problem, fix)
        return roots[0] if roots else None

    # ---- links

    def link(self, name: str, e: Element, ground: bool) -> bool:
        """Declares a link (the ground needs no declaration) and says whether it has any inertia."""
        owner = f"link {name!r}"
        self.check_known(e, owner)
        inertial = self.child(e, "inertial", owner)
        if inertial is None:
            if not ground:
                self.builder.link(name, where=self.where(e))
            return False
        origin = self.placement(inertial, owner)
        mass_element = self.child(inertial, "mass", owner)
        if mass_element is None:
            self.fail(inertial, f"{owner} <inertial>", "it has no <mass>", _NO_MASS)
        mass = self.number(mass_element, "value", owner)
        moments = self.moments(inertial, owner)
        if ground:
            problem = "it is the ground, and its inertia plays no part"
            self.find("note", inertial, owner, problem, "remove its <inertial> or rename the link")
            return False
        self.builder.link(name, mass, origin.p, moments, origin, where=self.where(inertial))
        return mass > 0.0 or any(moments)

    def moments(self, inertial: Element, owner: str) -> list[float]:
        e = self.child(inertial, "inertia", owner)
        if e is None:
            self.find("warning", inertial, owner, "its <inertial> has no <inertia>", "it is taken as a point mass")
            return [0.0] * 6
        missing = [a for a in _PRODUCTS if a not in e.attributes]
        if missing:
            self.find("note", e, f"{owner} <inertia>", f"it has no {', '.join(missing)}", "they are taken as 0")
        return [self.number(e, a, owner, default=0.0 if a in _PRODUCTS else None) for a in READ["inertia"][1]]

    def find_massless(
        self, links: dict[str, Element], heavy: dict[str, bool], heads: list[_JointHead], free_root: str | None
    ) -> None:
        """Findings about links that move without inertia, counting what is fixed to them and what they carry.

        `heavy` says of each link, parents first, whether it has inertia itself.
        """
        above = {head.child: head for head in heads}
        body = dict(heavy)  # the link and what is fixed to it
        carried = dict(heavy)  # the link and all that stands on it
        for name in reversed(heavy):
            if name in above:
                parent = above[name].parent
                carried[parent] |= carried[name]
                body[parent] |= body[name] and above[name].kind == "fixed"
        for name in heavy:
            e, owner = links[name], f"link {name!r}"
            tags = {c.tag for c in e.children}
            moved = name == free_root or (name in above and above[name].kind != "fixed")
            if moved and not carried[name]:
                by = f"joint {above[name].name!r}" if name in above else "the floating base"
                problem = f"it has no inertia and carries none, so that {by} moves no mass"
                self.find("warning", e, owner, problem, "give it an <inertial>, or make its joint fixed")
            elif moved and not body[name]:
                self.find(
                    "note", e, owner, "it moves but has no inertia of its own", "give it an <inertial> if it has a mass"
                )
            elif not moved and name in above and "inertial" not in tags and tags & {"visual", "collision"}:
                self.find("note", e, owner, "it has a shape but no <inertial>", "it is taken as without mass")

    # ---- joints

    def driven(self, robot: Element, joints: dict[str, Element]) -> set[str] | None:
        """The joints that transmissions or ros2_control drive, or a joint that mimics them; None: the file does not say."""
        found: set[str] = set()
        for e in (e for block in robot.children for e in block.children if _drives(block, e)):
            name = e.attributes["name"]
            if name not in joints:
                problem = f"it drives {shown(name)}, which is no joint{near(name, joints)}"
                self.find("note", e, "robot", problem, "nothing is driven by it: correct the name")
            while name in joints and name not in found:
                found.add(name)
                name = next((m.attributes.get("joint", "") for m in joints[name].children if m.tag == "mimic"), "")
        moving = [name for name, e in joints.items() if e.attributes.get("type") not in ("fixed", "floating")]
        rest = [name for name in moving if name not in found]
        if len(rest) == len(moving):
            return None
        if rest:
            problem = f"its transmissions drive {len(moving) - len(rest)} of {len(moving)} joints"
            fix = f"the others, such as {rest[0]!r}, count as not actuated; that matters for inverse dynamics with loops"
            self.find("note", robot, "robot", problem, fix)
        return found

    def joint(self, head: _JointHead, joints: dict[str, Element], driven: set[str] | None) -> None:
        e, owner = head.element, f"joint {head.name!r}"
        limits = self.limits(e, head.kind, owner)
        damping, friction = self.resistance(e, head.kind, owner)
        self.builder.joint(
            head.name,
            head.parent,
            head.child,
            self.motion(e, head.kind, owner),
            self.placement(e, owner),
            damping=damping,
            friction=friction,
            lower=limits["lower"],
            upper=limits["upper"],
            velocity_limit=limits["velocity"],
            effort_limit=limits["effort"],
            actuated=None if driven is None else head.name in driven,
            mimic=self.mimic(e, head.kind, owner, joints),
            where=self.where(e),
        )

    def motion(self, e: Element, kind: str, owner: str) -> Joint:
        if kind == "fixed":
            return Fixed()
        if kind == "floating":
            return Free()
        axis_element = self.child(e, "axis", owner)
        x, y, z = (1.0, 0.0, 0.0) if axis_element is None else self.numbers(axis_element, "xyz", 3, owner)
        if kind == "prismatic":
            return Prismatic((x, y, z))
        return Planar((x, y, z)) if kind == "planar" else Revolute((x, y, z))

    def resistance(self, e: Element, kind: str, owner: str) -> tuple[float, float]:
        """Damping and friction; URDF defines them for joints of one degree of freedom."""
        dynamics = self.child(e, "dynamics", owner)
        if dynamics is None or kind == "fixed":
            return 0.0, 0.0
        damping, friction = (self.number(dynamics, a, owner, default=0.0) for a in ("damping", "friction"))
        if kind in ("planar", "floating") and (damping, friction) != (0.0, 0.0):
            problem = f"damping and friction are not defined for a {kind} joint"
            self.find("warning", dynamics, owner, problem, "they were left out; remove them")
            return 0.0, 0.0
        return damping, friction

    def limits(self, e: Element, kind: str, owner: str) -> dict[str, float]:
        """Limits do not touch the dynamics, so that wrong ones are dropped and reported."""
        limits = {"lower": -math.inf, "upper": math.inf, "velocity": math.inf, "effort": math.inf}
        if kind not in ("revolute", "continuous", "prismatic"):
            return limits
        limit = self.child(e, "limit", owner)
        if limit is None:
            if kind != "continuous":
                self.find("note", e, owner, f"a {kind} joint needs a <limit> and has none", "it is taken as unlimited")
            return limits
        element = f"{owner} <limit>"
        for a in ("effort", "velocity"):
            if a not in limit.attributes:
                self.find("note", limit, element, f"it has no {a}", "it is taken as unlimited")
            elif (value := self.number(limit, a, owner, largest=math.inf)) < 0.0:
                self.find("warning", limit, element, f"{a} is {value:g}", "it was left out; give zero or more")
            else:
                limits[a] = or_none(value)
        if not limit.attributes.keys() & {"lower", "upper"}:
            if kind != "continuous":
                self.find("note", limit, element, "it has neither lower nor upper", "they are taken as unlimited")
            return limits
        lower, upper = (self.number(limit, a, owner, default=0.0, largest=math.inf) for a in ("lower", "upper"))
        if kind == "continuous":
            self.find("note", limit, element, "a continuous joint has no lower and upper", "they were left out")
        elif lower > upper:
            problem = f"lower {lower:g} is above upper {upper:g}"
            self.find("warning", limit, element, problem, "both were left out; swap or correct them")
        else:
            limits |= {"lower": or_none(lower), "upper": or_none(upper)}
        return limits

    def mimic(self, e: Element, kind: str, owner: str, joints: dict[str, Element]) -> tuple[str, float, float] | None:
        mimic = self.child(e, "mimic", owner)
        if mimic is None:
            return None
        other = self.name(mimic, "joint", owner)
        factor = self.number(mimic, "multiplier", owner, default=1.0)
        offset = self.number(mimic, "offset", owner, default=0.0)
        if kind == "fixed":
            problem = f"a fixed joint cannot mimic {other!r}"
            self.find("note", mimic, owner, problem, "its <mimic> was left out; remove it or change the type")
            return None
        if other not in joints:
            problem = f"it mimics {other!r}, which is no joint{near(other, joints)}"
            self.fail(mimic, f"{owner} <mimic>", problem, "name an existing joint or remove the <mimic>")
        return other, factor, offset

    def note_missing_meshes(self, robot: Element, package_dirs: Sequence[str]) -> None:
        seen, folder = set[str](), Path(self.file).parent
        shapes = (s for link in robot.children if link.tag == "link" for s in link.children)
        boxes = (g for s in shapes if s.tag in ("visual", "collision") for g in s.children if g.tag == "geometry")
        for mesh in (m for g in boxes for m in g.children if m.tag == "mesh"):
            name = mesh.attributes.get("filename", "")
            if name not in seen and places.locate(name, folder, package_dirs) is None:
                fix = "the dynamics need no meshes; to see it, correct package_dirs or the name"
                self.find("note", mesh, f"mesh {shown(name)}", "it is not found in package_dirs", fix)
            seen.add(name)


def _depth_first(root: str | None, links: dict[str, Element], heads: list[_JointHead]) -> list[str]:
    """The links from the root on, children in the order of the joints, and last those that no path from it reaches."""
    children: dict[str, list[str]] = {}
    for head in reversed(heads):  # reversed, because the stack below turns them round again
        children.setdefault(head.parent, []).append(head.child)
    order: dict[str, None] = {}
    stack = [] if root is None else [root]
    while stack:
        name = stack.pop()
        if name not in order:
            order[name] = None
            stack.extend(children.get(name, ()))
    return [*order, *(name for name in links if name not in order)]


def _drives(block: Element, e: Element) -> bool:
    """Whether an element in a block names a joint that is driven."""
    if not e.attributes.get("name"):
        return False
    if block.tag == "transmission":  # PR2's have flexJoint, rollJoint, gap_joint and passive_joint
        return e.tag.lower().endswith("joint") and e.tag != "passive_joint"
    return block.tag == "ros2_control" and e.tag == "joint" and any(c.tag == "command_interface" for c in e.children)
