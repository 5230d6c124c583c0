"""SDF into Builder calls: one <model> of links and joints, some of which close loops.

The model stands right below <sdf>, or is the only one of a <world>, whose gravity it then has.

As in URDF, dirt that leaves the dynamics alone becomes findings, and what would make them a guess is an error; messages
name the file and the line. Shapes, sensors and plugins are not read.

- Poses: of a link in the model, of a joint in its child link, or in what `relative_to` names. Everything stands as the file
  says at q = 0, so that loops are closed there.
- Axes: in the joint's frame; in the model's with <use_parent_model_frame>, or in what `expressed_in` names.
- The tree: joints in the order of the file; one whose child is carried already closes a loop. A root that no joint ties to
  the world moves freely, its coordinates being its pose in the world, unless the model is <static>.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path

from qddot.errors import near
from qddot.formats import xml
from qddot.formats.registry import ReadOptions, register
from qddot.formats.sdf_poses import MODEL, JointHead, SdfPoses, cleaned, plain, pose_key
from qddot.formats.xml import Element
from qddot.joints import Fixed, Free, Joint, Prismatic, Revolute, Spherical, Universal
from qddot.mechanism.builder import WORLD, Builder
from qddot.mechanism.model import Model
from qddot.spatial import Transform
from qddot.spatial.rotation import Vec

_VERSIONS = ("1.5", "1.6", "1.7", "1.8", "1.9", "1.10", "1.11", "1.12")
_KINDS = ("revolute", "continuous", "prismatic", "ball", "universal", "fixed")
_MOMENTS = ("ixx", "ixy", "ixz", "iyy", "iyz", "izz")
_GRAVITY = (0.0, 0.0, -9.8)  # of a world that says nothing, by SDF
_DEFAULT_MASS = 1.0  # kg, of an <inertial> that says nothing, by SDF
_BOUNDLESS = 1e16  # how SDF writes that there is no limit


def read(source: str | os.PathLike[str], *, snap: float = 0.0, text: str | None = None) -> Builder:
    """The mechanism of an SDF file; with `text`, of that text, `source` being its name in messages."""
    file, root = xml.load(source, text, keep_text=True)
    reader = _Reader(file, Builder("", snap=snap, allow_unphysical=True))
    if root.tag != "sdf":
        reader.fail(root, "document", f"the root element is <{root.tag[:60]}> instead of <sdf>", "give an SDF file")
    if (version := root.attributes.get("version", "")) not in _VERSIONS:
        reader.fail(root, "<sdf>", f"its version is {version!r}", f"give one of {', '.join(_VERSIONS)}")
    worlds = [e for e in root.children if e.tag == "world"]
    models = [e for place in (root, *worlds) for e in place.children if e.tag == "model"]
    if len(models) != 1:
        names = ", ".join(repr(e.attributes.get("name", "")[:60]) for e in models[:12])
        which = f": {names}{', …' if len(models) > 12 else ''}" if models else ""
        fix = "give a file with one <model>, right below <sdf> or in its <world>; what is included is not read"
        reader.fail(root, "<sdf>", f"it has {len(models)} models{which}", fix)
    for world in worlds:
        if models[0] in world.children:
            reader.world(world)
    reader.model(models[0])
    return reader.builder


@register("sdf", ".sdf", marks=(b"<sdf",), rank=2)
def _model(path: Path, options: ReadOptions) -> Model:
    return read(path, snap=options.snap).model()


class _Reader(SdfPoses):
    """The world, the model, its links and its joints."""

    # ---- the whole

    def world(self, world: Element) -> None:
        """What of a world matters to the one model in it."""
        self.note_unread(world, "world")
        gravity = self.child(world, "gravity")
        if gravity is None:
            fix = "SDF's (0, 0, -9.8) m/s² is taken; say which it has"
            self.find("note", world, "world", "it has no <gravity>", fix)
        self.builder.gravity = _GRAVITY if gravity is None else self.numbers(gravity, 3, "world")
        for e in world.children:
            if e.tag in ("include", "joint", "population", "actor"):
                fix = "if the robot depends on it, write it into the model"
                self.find("warning", e, "world", f"its <{e.tag}> is not read", fix)

    def model(self, model: Element) -> None:
        self.builder.name = self.attribute(model, "name", "model")
        self.note_unread(model, "model")
        for e in model.children:
            if e.tag in ("include", "model"):
                self.fail(e, f"<{e.tag}>", "models inside of models are not read", "write its links and joints out")
        links, elements = self.named(model, "link"), self.named(model, "joint")
        if not links:
            self.fail(model, "model", "it has no <link>", "give it at least one link")
        joints = [self.joint_head(name, e, links) for name, e in elements.items()]
        self.place(model, links, joints)
        tree, loops = _spanning(joints, links)
        self.bases(model, links, {j.child for j in tree})
        for name, e in links.items():
            self.link(name, e)
        for j in tree:
            self.tree_joint(j)
        for j in loops:
            self.loop(j)

    def joint_head(self, name: str, e: Element, links: Mapping[str, Element]) -> JointHead:
        owner, kind = f"joint {name!r}", e.attributes.get("type", "")
        self.note_unread(e, owner)
        if kind not in _KINDS:
            fix = f"give one of {', '.join(_KINDS)}" + ("; a gear is not read" if kind == "gearbox" else "")
            self.fail(e, owner, f"its type is {kind[:60]!r}", fix)
        ends = []
        for role in ("parent", "child"):
            end = self.child(e, role)
            if end is None or not end.text:
                self.fail(e, owner, f"it has no <{role}>", f"add <{role}>the link's name</{role}>")
            if end.text not in links and not (role == "parent" and end.text == WORLD):
                problem = f"its {role} link {end.text[:60]!r} does not exist{near(end.text, links)}"
                self.fail(end, owner, problem, "correct the name, or declare the link")
            ends.append(end.text)
        if ends[0] == ends[1]:
            self.fail(e, owner, f"it joins link {ends[0]!r} with itself", "give it two links")
        return JointHead(name, kind, ends[0], ends[1], e)

    def bases(self, model: Element, links: Mapping[str, Element], carried: set[str]) -> None:
        """What carries the roots: the world, or nothing at all."""
        static = self.child(model, "static")
        still = static is not None and static.text in ("1", "true")
        first: Transform | None = None
        for name in (name for name in links if name not in carried):
            here = self.in_model(name)
            placement = self.in_world() @ here if still else Transform() if first is None else first.inverse() @ here
            first = here if first is None else first
            motion: Joint = Fixed() if still else Free()
            self.builder.joint(f"{name}_base", WORLD, name, motion, plain(placement), where=self.where(links[name]))

    # ---- links

    def link(self, name: str, e: Element) -> None:
        owner, inertial = f"link {name!r}", self.child(e, "inertial")
        self.note_unread(e, owner)
        gravity = self.child(e, "gravity")
        if gravity is not None and gravity.text in ("0", "false"):
            self.find("warning", gravity, owner, "it is not to feel gravity", "it does here; give it no mass, or leave it")
        if inertial is None:
            self.find("warning", e, owner, "it has no <inertial>", "SDF gives it 1 kg and 1 kg m² then; say what it has")
            self.builder.link(name, 1.0, inertia=(1.0, 0.0, 0.0, 1.0, 0.0, 1.0), where=self.where(e))
            return
        origin = self.placed(inertial, name, f"{owner} <inertial>").pose
        mass, inertia = self.child(inertial, "mass"), self.child(inertial, "inertia")
        if mass is None:
            fix = f"{_DEFAULT_MASS:g} kg is taken, SDF's default; say what it has"
            self.find("warning", inertial, f"{owner} <inertial>", "it has no <mass>", fix)
        missing = [m for m in _MOMENTS if m[1] == m[2] and (inertia is None or self.child(inertia, m) is None)]
        if missing:
            fix = "1 kg m² is taken for each, SDF's default; say what it has"
            self.find("warning", inertial, f"{owner} <inertial>", f"it has no <{'>, <'.join(missing)}>", fix)
        moments = [self.value(inertia, m, owner, 0.0 if m[1] != m[2] else 1.0) for m in _MOMENTS]
        m = _DEFAULT_MASS if mass is None else self.numbers(mass, 1, owner)[0]
        self.builder.link(name, m, origin.p, moments, origin, where=self.where(inertial))

    # ---- joints

    def tree_joint(self, j: JointHead) -> None:
        e, owner, child = j.element, f"joint {j.name!r}", j.child
        off = plain(self.between(child, j).inverse())
        if off.R.rows != Transform().R.rows or any(off.p):  # the child's frame is not where the joint's is
            child = f"{j.child}_at_joint"
            self.builder.link(child, where=self.where(e))
            self.builder.joint(f"{j.name}_offset", child, j.child, Fixed(), off, where=self.where(e))
        motion = self.motion(j)
        options = self.one_axis(e, owner) if motion.nv == 1 else {}
        if motion.nv > 1 and any(c.children for a in ("axis", "axis2") for c in self.inside(e, a, "dynamics")):
            self.find("note", e, owner, f"<dynamics> of a {j.kind} joint is not read", "it is taken to move freely")
        at = self.between(j.parent, j)
        self.builder.joint(j.name, j.parent, child, motion, at, where=self.where(e), **options)  # type: ignore[arg-type]

    def loop(self, j: JointHead) -> None:
        """A joint whose child is carried already."""
        ends, motion = (self.between(j.parent, j), self.between(j.child, j)), self.motion(j)
        for dynamics in self.inside(j.element, "axis", "dynamics"):
            if any(self.numbers(x, 1, j.name) != (0.0,) for x in dynamics.children if x.tag != "spring_reference"):
                problem = "it closes a loop, and its damping, friction and spring are not read"
                severity = "warning" if motion.nv == 1 else "note"  # of more degrees of freedom nothing is read anyway
                self.find(severity, dynamics, f"joint {j.name!r}", problem, "put this joint before the others of the loop")
        self.builder.loop(j.name, j.parent, j.child, motion, *ends, where=self.where(j.element))

    def motion(self, j: JointHead) -> Joint:
        if j.kind == "fixed":
            return Fixed()
        if j.kind == "ball":
            return Spherical()
        if j.kind == "universal":
            return Universal(self.axis(j, "axis"), self.axis(j, "axis2"))
        return Prismatic(self.axis(j, "axis")) if j.kind == "prismatic" else Revolute(self.axis(j, "axis"))

    def axis(self, j: JointHead, tag: str) -> Vec:
        """The axis in the joint's frame."""
        owner, axis = f"joint {j.name!r}", self.child(j.element, tag)
        xyz = None if axis is None else self.child(axis, "xyz")
        if axis is None or xyz is None:
            self.fail(j.element, owner, f"it has no <{tag}> with <xyz>", f"add <{tag}><xyz>0 0 1</xyz></{tag}>")
        self.note_unread(axis, f"{owner} <{tag}>", "axis")
        x, y, z = self.numbers(xyz, 3, owner)
        model_frame = self.child(axis, "use_parent_model_frame")
        base = xyz.attributes.get("expressed_in", "")
        if model_frame is not None and model_frame.text in ("1", "true"):
            base = MODEL
        if not base or base == j.name:
            return (x, y, z)
        if base not in self.poses:
            self.fail(xyz, owner, f"its axis is expressed in {base!r}, which is not here", "name a link, joint or frame")
        a, b, c = self.in_model(pose_key(j)).R.T @ (self.in_model(base).R @ (x, y, z))
        return (cleaned(a), cleaned(b), cleaned(c))

    def one_axis(self, e: Element, owner: str) -> dict[str, float]:
        """Limits and passive forces of a joint of one degree of freedom."""
        axis = self.child(e, "axis")
        limit, dynamics = (None if axis is None else self.child(axis, tag) for tag in ("limit", "dynamics"))
        out: dict[str, float] = {}
        for tag, name in (("damping", "damping"), ("friction", "friction"), ("spring_stiffness", "stiffness")):
            out[name] = self.value(dynamics, tag, owner, 0.0)
        out["spring_reference"] = self.value(dynamics, "spring_reference", owner, 0.0)
        lower, upper = self.value(limit, "lower", owner, -math.inf), self.value(limit, "upper", owner, math.inf)
        if lower > upper and limit is not None:
            problem = f"lower {lower:g} is above upper {upper:g}"
            self.find("warning", limit, f"{owner} <limit>", problem, "both were left out; swap or correct them")
            lower, upper = -math.inf, math.inf
        out |= {"lower": -math.inf if lower <= -_BOUNDLESS else lower, "upper": math.inf if upper >= _BOUNDLESS else upper}
        for tag in ("effort", "velocity"):
            most = self.value(limit, tag, owner, -1.0)
            out[f"{tag}_limit"] = math.inf if most < 0.0 or most >= _BOUNDLESS else most
        return out


def _spanning(joints: list[JointHead], links: Mapping[str, Element]) -> tuple[list[JointHead], list[JointHead]]:
    """The joints of the tree and those that close loops: a joint carries its child unless something does already."""
    group = {name: name for name in (WORLD, *links)}

    def top(name: str) -> str:
        while group[name] != name:
            group[name] = group[group[name]]
            name = group[name]
        return name

    tree, loops, carried = list[JointHead](), list[JointHead](), set[str]()
    for j in joints:
        if j.child in carried or top(j.parent) == top(j.child):
            loops.append(j)
            continue
        tree.append(j)
        carried.add(j.child)
        group[top(j.child)] = top(j.parent)
    return tree, loops
