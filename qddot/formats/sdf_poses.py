"""Elements of SDF and their poses: names, numbers, and what stands where relative to what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from qddot.formats.reader import ElementReader
from qddot.formats.xml import LARGEST, NUMBER, Element
from qddot.mechanism.builder import WORLD
from qddot.spatial import Transform, constant_transform

MODEL = "__model__"
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


class JointHead(NamedTuple):
    """What the tree needs of a joint."""

    name: str
    kind: str
    parent: str
    child: str
    element: Element


class Placed(NamedTuple):
    """Where something stands: its pose, and the name of what that is relative to."""

    pose: Transform
    base: str
    element: Element


class SdfElements(ElementReader):
    """Takes values out of elements."""

    def name_of(self, e: Element, owner: str) -> str:
        return self.attribute(e, "name", owner)

    def child(self, e: Element, tag: str) -> Element | None:
        return next((c for c in e.children if c.tag == tag), None)

    def inside(self, e: Element, *tags: str) -> list[Element]:
        found = [e]
        for tag in tags:
            found = [c for x in found for c in x.children if c.tag == tag]
        return found

    def attribute(self, e: Element, name: str, owner: str) -> str:
        value = e.attributes.get(name, "").strip()
        if not value or len(value) > 1000 or (name == "name" and value in (WORLD, MODEL)):
            self.fail(e, f"<{owner}>", f"its {name} is {value[:60]!r}", f'give {name}="…", other than {WORLD} and {MODEL}')
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

    def note_unread(self, e: Element, owner: str, kind: str = "") -> None:
        kind = kind or e.tag
        strange = {c.tag: c for c in e.children if c.tag not in _READ[kind] | _IGNORED.get(kind, set())}
        for tag, c in strange.items():
            self.find("note", c, owner, f"its <{tag[:60]}> is not read", "nothing to do, unless dynamics depend on it")


@dataclass
class SdfPoses(SdfElements):
    """Where links, joints and frames stand."""

    poses: dict[str, Placed] = field(default_factory=dict)
    found: dict[str, Transform] = field(default_factory=lambda: {MODEL: Transform()})  # poses in the model, as computed

    def place(self, model: Element, links: Mapping[str, Element], joints: list[JointHead]) -> None:
        """Remembers what stands where: links and frames in the model, joints in their child, or in what they name."""
        self.poses[MODEL] = self.placed(model, WORLD, "model")
        if frame := model.attributes.get("placement_frame"):
            fix = "give the pose of the model itself"
            self.fail(model, "model", f"its pose is that of placement_frame {frame[:60]!r}, which is not read", fix)
        if (base := self.poses[MODEL].base) != WORLD:
            fix = "give the model's pose in the world; frames of the world are not read"
            self.fail(model, "model", f"its pose is relative to {base[:60]!r}", fix)
        for name, e in links.items():
            self.poses[name] = self.placed(e, MODEL, f"link {name!r}")
        for name, e in self.named(model, "frame").items():
            base = e.attributes.get("attached_to") or MODEL
            self.poses.setdefault(name, self.placed(e, base, f"frame {name!r}"))
        for j in joints:
            self.poses[pose_key(j)] = self.placed(j.element, j.child, f"joint {j.name!r}")
            self.poses.setdefault(j.name, self.poses[pose_key(j)])

    def placed(self, e: Element, base: str, owner: str) -> Placed:
        pose = self.child(e, "pose")
        if pose is None:
            return Placed(Transform(), base, e)
        for odd in ("frame", "rotation_format", "degrees"):
            if pose.attributes.get(odd, "") not in ("", "euler_rpy", "false"):
                problem = f"the attribute {odd} = {pose.attributes[odd]!r} of its <pose> is not read"
                self.fail(pose, owner, problem, "give a pose of x y z roll pitch yaw in radians, or use relative_to")
        x = self.numbers(pose, 6, owner)
        T = self.builder.pose(x[:3], x[3:], f"{owner} <pose>", self.where(pose))
        return Placed(T, pose.attributes.get("relative_to") or base, e)

    def in_model(self, name: str) -> Transform:
        """The pose of a link, joint or frame in the model: outward from the nearest that is known, each computed once."""
        chain: dict[str, Placed] = {}
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
        return self.poses[MODEL].pose

    def between(self, link: str, j: JointHead) -> Transform:
        """The joint's frame in a link's, as the file has them stand."""
        pose, base, _ = self.poses[pose_key(j)]
        if base == link:
            return pose
        at = self.in_model(pose_key(j))
        return plain(self.in_world() @ at if link == WORLD else self.in_model(link).inverse() @ at)


def pose_key(j: JointHead) -> str:
    """A joint's key among the poses, where a link may have its name."""
    return f"joint {j.name}"


def plain(T: Transform) -> Transform:
    """A product of placements whose entries that are rounding alone are zero, and those next to one are one."""
    x, y, z = (tuple(cleaned(c) for c in row) for row in T.R.rows)
    return constant_transform((x, y, z), tuple(cleaned(c) for c in T.p))  # type: ignore[arg-type]


def cleaned(x: float) -> float:
    whole = round(x)
    return float(whole) if abs(x - whole) < 1e-15 else x
