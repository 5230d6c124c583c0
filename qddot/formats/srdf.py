"""SRDF: groups of joints and named configurations of a robot. The rest of the format is for motion planners.

A group is a list of joints, links (whose joints are meant), chains of links and other groups. Fixed joints stand in such
lists too; a group has its moving joints only. Coordinates are in qddot's order; Pinocchio's (cos, sin) of an angle is read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from qddot.errors import FileError, Finding, message, near, printable
from qddot.formats import places, xml
from qddot.formats.files import plain_name
from qddot.formats.reader import short, shown
from qddot.formats.xml import LARGEST, NUMBER, Element
from qddot.mechanism.model import Model
from qddot.mechanism.named_configurations import Groups, NamedConfiguration

MAX_GROUPS = 2_000
MAX_MEMBERS = 20_000  # of all groups together
MAX_CHAINS = 1_000
_MAX_SHOWN = 5


def with_groups(model: Model, file: str | Path, text: str | None = None) -> Model:
    """The model with the groups and configurations of an SRDF file; `text` stands for its content."""
    name, root = xml.load(file, text)
    reader = _Reader(name, model)
    if root.tag != "robot":
        fix = "give an SRDF file: its root element is <robot>"
        raise reader.error(root, "document", f"the root element is <{short(root.tag)}> instead of <robot>", fix)
    groups = reader.read(root)
    new = {(c.name, c.group) for c in groups.configurations}
    kept = (c for c in model.groups.configurations if (c.name, c.group) not in new)  # of a keyframe or a saved robot
    groups = groups._replace(configurations=(*kept, *groups.configurations))
    return replace(model, groups=groups, findings=(*model.findings, *reader.findings))


def beside(file: Path, package_dirs: Sequence[str] = ()) -> Path | None:
    """The SRDF file of a robot's file: of the same name beside it, or in a folder called srdf beside its own."""
    name = f"{Path(plain_name(file.name)).stem}.srdf"
    for path in (file.parent / name, file.parent.parent / "srdf" / name):
        if path.is_file() and places.is_inside(path, file.parent, package_dirs):
            return path
    return None


def with_groups_beside(model: Model, file: Path, package_dirs: Sequence[str] = ()) -> Model:
    """The model with what an SRDF file beside its own says; one that cannot be read is a finding."""
    found = beside(file, package_dirs)
    if found is None:
        return model
    try:
        return with_groups(model, found)
    except FileError as error:
        fix = "correct it, or load the robot with srdf=False"
        finding = Finding("warning", str(found), "SRDF", f"it cannot be read: {printable(str(error))}", fix)
        return replace(model, findings=(*model.findings, finding))


@dataclass
class _Reader:
    """One file and the model that it is about."""

    file: str
    model: Model
    findings: list[Finding] = field(default_factory=list)
    groups: dict[str, Element] = field(default_factory=dict)
    parts: dict[str, list[str]] = field(default_factory=dict)  # the groups in a group
    joints: dict[str, set[str]] = field(default_factory=dict)  # of the groups that are done
    virtual: dict[str, str] = field(default_factory=dict)  # the joint that carries a virtual joint's link, by its name

    def __post_init__(self) -> None:
        model = self.model
        self.joint_of = dict(zip(model.link_names[1:], model.joint_names[1:], strict=True))
        self.moving, self.frames = set(self.joint_of.values()), set(model.frame_names)

    def error(self, e: Element, element: str, problem: str, fix: str) -> FileError:
        return FileError(message(f"{self.file}:{e.line}", element, problem, fix))

    def note(self, e: Element, element: str, problem: str, fix: str) -> None:
        self.findings.append(Finding("note", f"{self.file}:{e.line}", element, problem, fix))

    def name(self, e: Element, attribute: str) -> str:
        value = e.attributes.get(attribute, "")
        if not value.strip() or len(value) > 1000:
            problem = f"its {attribute} has {len(value):,} characters" if value else f"it has no {attribute}"
            raise self.error(e, f"<{e.tag}>", problem, f'give {attribute}="…"')
        return value

    def read(self, root: Element) -> Groups:
        model = self.model
        for e in (e for e in root.children if e.tag == "virtual_joint"):
            link = e.attributes.get("child_link", "")
            if link in self.frames and (i := model.frame(link).link) and model.parent[i] == 0:
                self.virtual[self.name(e, "name")] = model.joint_names[i]
        declared = [e for e in root.children if e.tag == "group"]
        members = [e.tag for group in declared for e in group.children]
        counts = {"groups": len(declared), "members of groups": len(members), "chains": members.count("chain")}
        for (what, count), most in zip(counts.items(), (MAX_GROUPS, MAX_MEMBERS, MAX_CHAINS), strict=True):
            if count > most:
                raise self.error(root, "robot", f"it has {count:,} {what}", f"give at most {most:,}")
        for e in declared:
            name = self.name(e, "name")
            if name in self.groups:
                raise self.error(e, f"group {shown(name)}", "the name is used twice", "rename one")
            self.groups[name] = e
        for name, e in self.groups.items():
            self.parts[name] = self.parts_of(e, name)
        for name in self.groups:
            self.group(name)
        order = {name: i for i, name in enumerate(model.joint_names)}
        found = tuple((name, tuple(sorted(self.joints[name], key=order.__getitem__))) for name in self.groups)
        states = [self.state(e) for e in root.children if e.tag == "group_state"]
        self.check_twice(root, states)
        return Groups(found, tuple(states))

    # ---- groups

    def group(self, wanted: str) -> None:
        """Collects the joints of a group, those that it is made of first."""
        waiting = [wanted]
        trail: dict[str, None] = {}
        while waiting:
            name = waiting[-1]
            if name in self.joints:
                trail.pop(name, None)
                waiting.pop()
                continue
            e = self.groups[name]
            missing = [part for part in self.parts[name] if part not in self.joints]
            if name in trail and missing:
                raise self.error(e, f"group {shown(name)}", "it is a part of itself", "remove one of the groups in it")
            trail[name] = None
            if missing:
                waiting.extend(missing)
                continue
            own = self.members(e, name)
            self.joints[name] = own.union(*(self.joints[part] for part in self.parts[name]))

    def parts_of(self, group: Element, name: str) -> list[str]:
        """The groups that a group is made of."""
        found = []
        for e in (e for e in group.children if e.tag == "group"):
            part = self.name(e, "name")
            if part in self.groups:
                found.append(part)
            else:
                problem = f"group {shown(part)} does not exist{near(part, self.groups)}"
                self.note(e, f"group {shown(name)}", problem, "it is left out; declare it or correct the name")
        return found

    def members(self, group: Element, name: str) -> set[str]:
        """The moving joints that a group names itself."""
        found, strange = set[str](), []
        for e in group.children:
            if e.tag == "joint":
                joint = self.name(e, "name")
                joint = self.virtual.get(joint, joint)
                if joint in self.moving:
                    found.add(joint)
                else:
                    strange.append(joint)
            elif e.tag == "link":
                link = self.name(e, "name")
                if link in self.joint_of:
                    found.add(self.joint_of[link])
                elif link not in self.frames:
                    strange.append(link)
            elif e.tag == "chain":
                found |= self.chain(e, name)
        if strange:
            shown_names = ", ".join(map(short, strange[:_MAX_SHOWN])) + (", …" if len(strange) > _MAX_SHOWN else "")
            problem = f"{shown_names}: no moving joint or link of the robot"
            self.note(group, f"group {shown(name)}", problem, "nothing to do where they are fixed; else correct the names")
        return found

    def chain(self, e: Element, group: str) -> set[str]:
        """The joints between two links."""
        model, ends = self.model, []
        for attribute in ("base_link", "tip_link"):
            link = self.name(e, attribute)
            if link not in self.frames:
                problem = f"its {attribute} {shown(link)} is no link of the robot{near(link, self.frames)}"
                self.note(e, f"group {shown(group)} <chain>", problem, "the chain is left out; correct the name")
                return set()
            ends.append(set(model.ancestors(model.frame(link).link)))
        return {model.joint_names[i] for i in ends[0] ^ ends[1]}

    # ---- configurations

    def state(self, e: Element) -> NamedConfiguration:
        name, group = self.name(e, "name"), e.attributes.get("group", "")
        owner = f"group_state {shown(name)}"
        if group and group not in self.groups:
            problem = f"its group {shown(group)} does not exist{near(group, self.groups)}"
            self.note(e, owner, problem, "it is kept; declare the group or correct the name")
        rows: dict[str, tuple[float, ...]] = {}
        strange = []
        for joint in (child for child in e.children if child.tag == "joint"):
            own = self.name(joint, "name")
            own = self.virtual.get(own, own)
            if own not in self.moving:
                strange.append(own)
            elif self.model.mimic[self.model.joint_index(own)] is None:
                rows[own] = self.coordinates(joint, own, owner)
        if strange:
            problem = f"{', '.join(map(short, strange[:_MAX_SHOWN]))}: no moving joint of the robot"
            self.note(e, owner, problem, "they are left out; a floating base is there with floating_base=True")
        return NamedConfiguration(name, group, tuple(rows.items()))

    def coordinates(self, e: Element, name: str, owner: str) -> tuple[float, ...]:
        text, joint = e.attributes.get("value", ""), self.model.joint[self.model.joint_index(name)]
        words = text.split() if len(text) <= 1000 else []
        if not words or not all(NUMBER.fullmatch(w) and abs(float(w)) <= LARGEST for w in words):
            fix = "give plain numbers such as '0.5'"
            raise self.error(e, f"{owner} joint {shown(name)}", f"its value is {shown(text)}", fix)
        values = [float(w) for w in words]
        if len(values) == joint.nq + 1 and joint.ends_in_angle:  # Pinocchio's
            values[-2:] = [math.atan2(values[-1], values[-2])]
        if len(values) != joint.nq:
            problem = f"it has {len(values)} values where a {joint.kind} joint has {joint.nq} coordinates"
            raise self.error(e, f"{owner} joint {shown(name)}", problem, f"give {joint.nq} numbers")
        if joint.has_unit_quaternion:
            length = math.hypot(*values[-4:])
            if abs(length - 1.0) > 1e-3:
                problem = f"its quaternion {values[-4:]} is not of unit length"
                raise self.error(e, f"{owner} joint {shown(name)}", problem, "give a unit quaternion x y z w")
            values[-4:] = [x / length for x in values[-4:]]
        return tuple(values)

    def check_twice(self, root: Element, states: list[NamedConfiguration]) -> None:
        seen = set()
        for state in states:
            if (state.name, state.group) in seen:
                owner = f"group_state {shown(state.name)}"
                raise self.error(root, owner, f"there are two of group {shown(state.group)}", "rename one")
            seen.add((state.name, state.group))
