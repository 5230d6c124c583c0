"""SDF into Builder calls: one <model> of links and joints, of which those that close loops are told apart.

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
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

from qddot.errors import FileError, message, near
from qddot.formats import xml
from qddot.formats.xml import LARGEST, NUMBER, Element
from qddot.joints import Fixed, Free, Joint, Prismatic, Revolute, Spherical, Universal
from qddot.mechanism.builder import WORLD, Builder
from qddot.spatial import Transform, constant_transform
from qddot.spatial.rotation import Vec

_VERSIONS = ("1.5", "1.6", "1.7", "1.8", "1.9", "1.10", "1.11", "1.12")
_KINDS = ("revolute", "continuous", "prismatic", "ball", "universal", "fixed")
_MOMENTS = ("ixx", "ixy", "ixz", "iyy", "iyz", "izz")
_MODEL = "__model__"
_GRAVITY = (0.0, 0.0, -9.8)  # of a world that says nothing, by SDF
_DEFAULT_MASS = 1.0  # kg, of an <inertial> that says nothing, by SDF
_BOUNDLESS = 1e16  # how SDF writes that there is no limit
_IGNORED = {
    "world": {
        "physics",
        "plugin",
        "light",
        "scene",
        "gui",
        "audio",
        "wind",
        "atmosphere",
        "magnetic_field",
        "state",
        "road",
    }
    | {"spherical_coordinates"},
    "model": {"self_collide", "plugin", "allow_auto_disable", "enable_wind"},
    "link": {"visual", "collision", "sensor", "light", "self_collide", "kinematic", "enable_wind", "velocity_decay"},
    "joint": {"sensor", "physics"},
}
_READ = {
    "world": {"model", "gravity", "include", "joint", "population", "actor"},
    "model": {"pose", "link", "joint", "frame", "static", "include", "model"},
    "link": {"pose", "inertial", "gravity"},
    "joint": {"pose", "parent", "child", "axis", "axis2"},
    "axis": {"xyz", "limit", "dynamics", "use_parent_model_frame"},
}


def read(source: str | os.PathLike[str], *, snap: float = 0.0, text: str | None = None) -> Builder:
    """The mechanism of an SDF file; with `text`, of that text, `source` being its name in messages."""
    file, root = xml.load(source, text, keep_text=True)
    reader = _Reader(file, Builder("", snap=snap))
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


class _Joint(NamedTuple):
    name: str
    kind: str
    parent: str
    child: str
    element: Element


class _Placed(NamedTuple):
    """Where something stands: its pose, and the name of what that is relative to."""

    pose: Transform
    base: str
    element: Element


@dataclass
class _Reader:
    file: str
    builder: Builder
    poses: dict[str, _Placed] = field(default_factory=dict)
    found: dict[str, Transform] = field(default_factory=lambda: {_MODEL: Transform()})  # poses in the model, as computed

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

    def named(self, model: Element, tag: str) -> dict[str, Element]:
        table: dict[str, Element] = {}
        for e in (e for e in model.children if e.tag == tag):
            name = self.attribute(e, "name", tag)
            if name in table:
                problem = f"the name is used twice (first at {self.where(table[name])})"
                self.fail(e, f"{tag} {name!r}", problem, "rename one")
            table[name] = e
        return table

    def joint_head(self, name: str, e: Element, links: Mapping[str, Element]) -> _Joint:
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
        return _Joint(name, kind, ends[0], ends[1], e)

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
            self.builder.joint(f"{name}_base", WORLD, name, motion, _plain(placement), where=self.where(links[name]))

    # ---- poses

    def place(self, model: Element, links: Mapping[str, Element], joints: list[_Joint]) -> None:
        """Remembers what stands where: links and frames in the model, joints in their child, or in what they name."""
        self.poses[_MODEL] = self.placed(model, WORLD, "model")
        if frame := model.attributes.get("placement_frame"):
            fix = "give the pose of the model itself"
            self.fail(model, "model", f"its pose is that of placement_frame {frame[:60]!r}, which is not read", fix)
        if (base := self.poses[_MODEL].base) != WORLD:
            fix = "give the model's pose in the world; frames of the world are not read"
            self.fail(model, "model", f"its pose is relative to {base[:60]!r}", fix)
        for name, e in links.items():
            self.poses[name] = self.placed(e, _MODEL, f"link {name!r}")
        for name, e in self.named(model, "frame").items():
            base = e.attributes.get("attached_to") or _MODEL
            self.poses.setdefault(name, self.placed(e, base, f"frame {name!r}"))
        for j in joints:
            self.poses[_own(j)] = self.placed(j.element, j.child, f"joint {j.name!r}")
            self.poses.setdefault(j.name, self.poses[_own(j)])

    def placed(self, e: Element, base: str, owner: str) -> _Placed:
        pose = self.child(e, "pose")
        if pose is None:
            return _Placed(Transform(), base, e)
        for odd in ("frame", "rotation_format", "degrees"):
            if pose.attributes.get(odd, "") not in ("", "euler_rpy", "false"):
                problem = f"the attribute {odd} = {pose.attributes[odd]!r} of its <pose> is not read"
                self.fail(pose, owner, problem, "give a pose of x y z roll pitch yaw in radians, or use relative_to")
        x = self.numbers(pose, 6, owner)
        T = self.builder.pose(x[:3], x[3:], f"{owner} <pose>", self.where(pose))
        return _Placed(T, pose.attributes.get("relative_to") or base, e)

    def in_model(self, name: str) -> Transform:
        """The pose of a link, joint or frame in the model: outward from the nearest that is known, each computed once."""
        chain: dict[str, _Placed] = {}
        at = name
        while at not in self.found:
            if at not in self.poses:
                e = chain[next(reversed(chain))].element
                fix = "name a link, joint or frame of this model"
                self.fail(e, f"<{e.tag}>", f"its pose is relative to {at[:60]!r}, which is not here", fix)
            chain[at] = placed = self.poses[at]
            at = placed.base
            if at in chain:
                e = placed.element
                self.fail(e, f"<{e.tag}>", f"its pose is relative to itself, by way of {at[:60]!r}", "break the circle")
        for here, placed in reversed(chain.items()):
            self.found[here] = self.found[placed.base] @ placed.pose
        return self.found[name]

    def in_world(self) -> Transform:
        return self.poses[_MODEL].pose

    def between(self, link: str, j: _Joint) -> Transform:
        """The joint's frame in a link's, as the file has them stand."""
        pose, base, _ = self.poses[_own(j)]
        if base == link:
            return pose
        at = self.in_model(_own(j))
        return _plain(self.in_world() @ at if link == WORLD else self.in_model(link).inverse() @ at)

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

    def tree_joint(self, j: _Joint) -> None:
        e, owner, child = j.element, f"joint {j.name!r}", j.child
        off = _plain(self.between(child, j).inverse())
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

    def loop(self, j: _Joint) -> None:
        """A joint whose child is carried already."""
        ends, motion = (self.between(j.parent, j), self.between(j.child, j)), self.motion(j)
        for dynamics in self.inside(j.element, "axis", "dynamics"):
            if any(self.numbers(x, 1, j.name) != (0.0,) for x in dynamics.children if x.tag != "spring_reference"):
                problem = "it closes a loop, and its damping, friction and spring are not read"
                severity = "warning" if motion.nv == 1 else "note"  # of more freedoms nothing is read anyway
                self.find(severity, dynamics, f"joint {j.name!r}", problem, "put this joint before the others of the loop")
        self.builder.loop(j.name, j.parent, j.child, motion, *ends, where=self.where(j.element))

    def motion(self, j: _Joint) -> Joint:
        if j.kind == "fixed":
            return Fixed()
        if j.kind == "ball":
            return Spherical()
        if j.kind == "universal":
            return Universal(self.axis(j, "axis"), self.axis(j, "axis2"))
        return Prismatic(self.axis(j, "axis")) if j.kind == "prismatic" else Revolute(self.axis(j, "axis"))

    def axis(self, j: _Joint, tag: str) -> Vec:
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
            base = _MODEL
        if not base or base == j.name:
            return (x, y, z)
        if base not in self.poses:
            self.fail(xyz, owner, f"its axis is expressed in {base!r}, which is not here", "name a link, joint or frame")
        a, b, c = self.in_model(_own(j)).R.T @ (self.in_model(base).R @ (x, y, z))
        return (_cleaned(a), _cleaned(b), _cleaned(c))

    def one_axis(self, e: Element, owner: str) -> dict[str, float]:
        """Limits and passive forces of a joint of one freedom."""
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

    # ---- single elements

    def child(self, e: Element, tag: str) -> Element | None:
        return next((c for c in e.children if c.tag == tag), None)

    def inside(self, e: Element, *tags: str) -> list[Element]:
        found = [e]
        for tag in tags:
            found = [c for x in found for c in x.children if c.tag == tag]
        return found

    def attribute(self, e: Element, name: str, owner: str) -> str:
        value = e.attributes.get(name, "").strip()
        if not value or len(value) > 1000 or (name == "name" and value in (WORLD, _MODEL)):
            self.fail(e, f"<{owner}>", f"its {name} is {value[:60]!r}", f'give {name}="…", other than {WORLD} and {_MODEL}')
        return value

    def value(self, e: Element | None, tag: str, owner: str, default: float) -> float:
        found = None if e is None else self.child(e, tag)
        return default if found is None else self.numbers(found, 1, owner)[0]

    def numbers(self, e: Element, count: int, owner: str) -> tuple[float, ...]:
        words, element = e.text.split(), f"{owner} <{e.tag}>"
        if len(words) != count or not all(NUMBER.fullmatch(w) for w in words):
            problem = f"{e.text[:60]!r} stands where {count} {'number is' if count == 1 else 'numbers are'} needed"
            self.fail(e, element, problem, "give plain numbers such as '0 0.5 -2e-3'")
        found = tuple(float(w) for w in words)
        if not all(abs(x) <= LARGEST for x in found):
            self.fail(e, element, f"{e.text[:60]!r} is too large", "give numbers in SI units")
        return found

    # ---- messages

    def note_unread(self, e: Element, owner: str, kind: str = "") -> None:
        kind = kind or e.tag
        strange = {c.tag: c for c in e.children if c.tag not in _READ[kind] | _IGNORED.get(kind, set())}
        for tag, c in strange.items():
            self.find("note", c, owner, f"its <{tag[:60]}> is not read", "nothing to do, unless dynamics depend on it")

    def where(self, e: Element) -> str:
        return f"{self.file}:{e.line}"

    def fail(self, e: Element, element: str, problem: str, fix: str) -> NoReturn:
        raise FileError(message(self.where(e), element, problem, fix))

    def find(self, severity: str, e: Element, element: str, problem: str, fix: str) -> None:
        self.builder.find(severity, self.where(e), element, problem, fix)


def _own(j: _Joint) -> str:
    """A joint's key among the poses, where a link may have its name."""
    return f"joint {j.name}"


def _spanning(joints: list[_Joint], links: Mapping[str, Element]) -> tuple[list[_Joint], list[_Joint]]:
    """The joints of the tree and those that close loops: a joint carries its child unless something does already."""
    group = {name: name for name in (WORLD, *links)}

    def top(name: str) -> str:
        while group[name] != name:
            group[name] = group[group[name]]
            name = group[name]
        return name

    tree, loops, carried = list[_Joint](), list[_Joint](), set[str]()
    for j in joints:
        if j.child in carried or top(j.parent) == top(j.child):
            loops.append(j)
            continue
        tree.append(j)
        carried.add(j.child)
        group[top(j.child)] = top(j.parent)
    return tree, loops


def _plain(T: Transform) -> Transform:
    """A product of placements whose entries that are rounding alone are zero, and those next to one are one."""
    x, y, z = (tuple(_cleaned(c) for c in row) for row in T.R.rows)
    return constant_transform((x, y, z), tuple(_cleaned(c) for c in T.p))  # type: ignore[arg-type]


def _cleaned(x: float) -> float:
    whole = round(x)
    return float(whole) if abs(x - whole) < 1e-15 else x
