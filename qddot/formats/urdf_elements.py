"""Single elements and attributes of URDF: names, numbers, placements, and what is not read."""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass, field

from qddot.formats.reader import ElementReader, short, shown
from qddot.formats.xml import LARGEST, NUMBER, Element
from qddot.spatial import Transform

# what is read of each element: the elements in it, and its attributes
READ: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "robot": (("link", "joint"), ("name",)),
    "link": (("inertial",), ("name",)),
    "inertial": (("origin", "mass", "inertia"), ()),
    "origin": ((), ("xyz", "rpy")),
    "mass": ((), ("value",)),
    "inertia": ((), ("ixx", "ixy", "ixz", "iyy", "iyz", "izz")),
    "joint": (("origin", "parent", "child", "axis", "limit", "dynamics", "mimic"), ("name", "type")),
    "parent": ((), ("link",)),
    "child": ((), ("link",)),
    "axis": ((), ("xyz",)),
    "limit": ((), ("lower", "upper", "effort", "velocity")),
    "dynamics": ((), ("damping", "friction")),
    "mimic": ((), ("joint", "multiplier", "offset")),
}
# what files often hold beside that, and what has no part in the dynamics
_ELSEWHERE = {
    "robot": {"transmission", "gazebo", "material", "sensor", "ros2_control", "version"},
    "link": {"visual", "collision", "sensor", "gazebo", "contact", "self_collision_checking", "type"},
    "joint": {"safety_controller", "calibration", "hardwareInterface", "gazebo"},
}

MAX_CHARS = 1000  # characters of a name or of the numbers in one attribute
MAX_UNREAD_KINDS = 100  # kinds of things that nobody reads and that are noted

EXPAND = "this is a xacro file: rename it to .xacro and load it with trust=True, or expand it first (xacro A > B.urdf)"


@dataclass
class _Unread:
    """Elements or attributes of one name that nobody reads: the first of them, and how many there are."""

    where: str
    owner: str
    meant: str | None
    count: int = 0


@dataclass
class UrdfElements(ElementReader):
    """Takes values out of elements, and remembers what nobody reads."""

    unread: dict[tuple[str, str, str], _Unread] = field(default_factory=dict)

    def name_of(self, e: Element, owner: str) -> str:
        return self.name(e, "name", owner)

    # ---- single elements and attributes

    def placement(self, e: Element, owner: str) -> Transform:
        """The <origin> of an element; the identity where there is none."""
        origin = self.child(e, "origin", owner)
        if origin is None:
            return Transform()
        if "quat_xyzw" in origin.attributes:
            problem = "its rotation is given as quat_xyzw, which is not read"
            self.fail(origin, f"{owner} <origin>", problem, "give the rotation as rpy")
        xyz = self.numbers(origin, "xyz", 3, owner, default=(0.0, 0.0, 0.0))
        rpy = self.numbers(origin, "rpy", 3, owner, default=(0.0, 0.0, 0.0))
        return self.builder.pose(xyz, rpy, f"{owner} <origin>", self.where(origin))

    def child(self, e: Element, tag: str, owner: str) -> Element | None:
        """The element of that name inside another; the first, if there are several."""
        found = [c for c in e.children if c.tag == tag]
        if not found:
            return None
        if len(found) > 1:
            problem = f"it has {len(found)} <{tag}> where one is meant"
            self.find("warning", found[1], owner, problem, f"the first, at line {found[0].line}, is read; remove the rest")
        self.check_known(found[0], f"{owner} <{tag}>")
        return found[0]

    def name(self, e: Element, attribute: str, owner: str) -> str:
        element = owner if e.tag in ("robot", "link", "joint") else f"{owner} <{e.tag}>"
        value = e.attributes.get(attribute)
        if value is None or not value.strip():
            problem = f"it has no {attribute}" if value is None else f"its {attribute} is empty"
            self.fail(e, element, problem, f'give {attribute}="…"')
        self.check_length(e, element, attribute, value)
        if "${" in value or "$(" in value:
            self.fail(e, element, f"its {attribute} is {shown(value)}", EXPAND)
        return value

    def number(
        self, e: Element, attribute: str, owner: str, default: float | None = None, largest: float = LARGEST
    ) -> float:
        fallback = None if default is None else (default,)
        return self.numbers(e, attribute, 1, owner, fallback, largest)[0]

    def numbers(
        self,
        e: Element,
        attribute: str,
        count: int,
        owner: str,
        default: tuple[float, ...] | None = None,
        largest: float = LARGEST,
    ) -> tuple[float, ...]:
        element = f"{owner} <{e.tag}>"
        value = e.attributes.get(attribute)
        example = "a plain number such as 0.5" if count == 1 else f"{count} plain numbers such as '0 0.5 -2e-3'"
        if value is None:
            if default is None:
                self.fail(e, element, f"it has no {attribute}", f"give {attribute} as {example}")
            return default
        self.check_length(e, element, attribute, value)
        words = value.split() if value.isascii() else [value]
        wrong = next((w for w in words if not NUMBER.fullmatch(w)), None)
        if wrong is not None:
            which = "" if wrong == value else f", and {shown(wrong)} in it is no number"
            self.fail(e, element, f"{attribute} is {shown(value)}{which}", fix_for(value, f"give {example}"))
        if len(words) != count:
            problem = f"{attribute} is {shown(value)}: {len(words)} numbers where {count} are needed"
            self.fail(e, element, problem.replace(" 1 numbers", " 1 number"), f"give {example}")
        result = tuple(float(w) for w in words)
        if not all(math.isfinite(x) and abs(x) <= largest for x in result):
            problem = f"{attribute} is {shown(value)}, which is too large"
            self.fail(e, element, problem, f"give {example}, in SI units")
        return result

    def check_length(self, e: Element, element: str, attribute: str, value: str) -> None:
        if len(value) > MAX_CHARS:
            problem = f"its {attribute} has {len(value):,} characters"
            self.fail(e, element, problem, f"give at most {MAX_CHARS:,}")

    # ---- what nobody reads

    def check_known(self, e: Element, owner: str) -> None:
        """Remembers the elements and attributes that nobody reads, so that a misspelt one is not lost in silence."""
        tags, attributes = READ[e.tag]
        ignored = _ELSEWHERE.get(e.tag, set())
        strange_tags = [c for c in e.children if c.tag not in tags and c.tag not in ignored]
        strange_attributes = [a for a in e.attributes if a not in attributes and a not in ignored and ":" not in a]
        if strange_tags:
            # something there already is not what a stranger was meant to be, unless there may be many of it
            meant = set(tags) - (set() if e.tag == "robot" else {c.tag for c in e.children})
            for c in strange_tags:
                if c.tag.startswith("xacro:"):
                    self.fail(c, f"{owner} <{short(c.tag)}>", "it is an instruction to xacro", EXPAND)
                self.count_unread((e.tag, "element", c.tag), c, owner, meant)
        for a in strange_attributes:
            if a != "xmlns":
                self.count_unread((e.tag, "attribute", a), e, owner, set(attributes) - e.attributes.keys())

    def count_unread(self, key: tuple[str, str, str], e: Element, owner: str, meant: set[str]) -> None:
        if key not in self.unread and len(self.unread) < MAX_UNREAD_KINDS:
            close = difflib.get_close_matches(key[2].lower(), meant, n=1, cutoff=0.6)
            self.unread[key] = _Unread(self.where(e), owner, close[0] if close else None)
        if key in self.unread:
            self.unread[key].count += 1

    def note_unread(self) -> None:
        for (_, what, name), entry in self.unread.items():
            times = f" ({entry.count} times in this file)" if entry.count > 1 else ""
            problem = f"its {what} {shown(name)} is not read{times}"
            if entry.meant is None:
                fix = "nothing to do, unless the dynamics should depend on it"
                self.builder.find("note", entry.where, entry.owner, problem, fix)
            else:
                self.builder.find("warning", entry.where, entry.owner, problem, f"did you mean {entry.meant!r}?")


def fix_for(value: str, otherwise: str) -> str:
    """What to do about a wrong value."""
    return EXPAND if "${" in value or "$(" in value else otherwise
