"""A model as URDF: its tree, inertias, limits, damping, friction, mimic joints and which joints are driven.

Inertias of links that were merged stay where they were merged to, and the links stay as frames without mass. The root is
the first frame that stands where the world does, or else a link called "world", to which a floating base has a joint of
type "floating". Shapes are not written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from qddot.formats.registry import Written, register_writer
from qddot.formats.writer import (
    UNLIMITED,
    Losses,
    Part,
    body,
    check_friction_velocity,
    check_order,
    check_sizes,
    depth_first,
    element,
    free_name,
    is_identity,
    is_massless,
    limit,
    moved_to,
    numbers,
    parts_of,
)
from qddot.joints import Free, Joint, Planar, Prismatic, Revolute
from qddot.mechanism.builder import WORLD
from qddot.mechanism.model import Frame, Model
from qddot.mechanism.validation import cos_sin
from qddot.spatial import Inertia, Transform
from qddot.spatial.rotation import Rotation

_KINDS: dict[type[Joint], str] = {Revolute: "revolute", Prismatic: "prismatic", Planar: "planar", Free: "floating"}
_GRAVITY = (0.0, 0.0, -9.81)


@register_writer(".urdf")
def urdf(model: Model, lossy: bool = False) -> Written:
    """The text of a URDF file."""
    losses = Losses("URDF", lossy)
    parts = parts_of(model)
    writer = _Writer(model, losses, parts)
    writer.check()
    lines = list(writer.lines())
    check_order(model, losses, [0, *(part.link for _, part in depth_first(parts) if part.frame is None)])
    losses.raise_if_any()
    return Written("\n".join(['<?xml version="1.0" encoding="utf-8"?>', *lines, ""]), tuple(losses.findings))


class _Writer:
    """One model on its way into a file."""

    def __init__(self, model: Model, losses: Losses, parts: list[list[Part]]) -> None:
        self.model, self.losses, self.parts = model, losses, parts
        self.joint_names = set(model.joint_names)
        first = parts[0][0].frame if parts[0] else None
        self.root: Frame | None = first if first is not None and is_identity(first.placement) else None
        self.heavy = next((part.frame for part in parts[0] if part.frame is not None), None)  # has the ground's inertia

    # ---- what URDF has no place for

    def check(self) -> None:
        model, losses = self.model, self.losses
        whole = f"robot {model.name!r}"
        if model.gravity != _GRAVITY:
            losses.lose(whole, f"gravity is ({', '.join(f'{g:g}' for g in model.gravity)}) instead of (0, 0, -9.81)")
        for loop in model.loops:
            losses.lose(f"loop {loop.name!r}", "it closes a loop")
        for constraint in model.constraints:
            losses.lose(f"constraint {constraint.name!r}", "it is a constraint")
        check_friction_velocity(model, losses)
        check_sizes(model, losses)
        if any(model.groups):
            losses.note(whole, "URDF has no groups and named configurations", "they are left out; keep the SRDF file")
        for i, _ in model.outward():
            self._check_joint(i)
        if self.heavy is None and not is_massless(model.inertia[0]):
            problem = "links that are fixed to the ground have an inertia, which plays no part"
            losses.note("link 'world'", problem, "it is left out")

    def _check_joint(self, i: int) -> None:
        model, losses, joint = self.model, self.losses, self.model.joint[i]
        owner = f"joint {model.joint_names[i]!r}"
        if type(joint) not in _KINDS:
            fix = "URDF has revolute, prismatic, planar and floating joints: use one, or another format"
            losses.cannot(owner, f"URDF has no {joint.kind} joints", fix)
            return
        for what in ("armature", "stiffness"):
            if any(values := getattr(model, what)[i]):
                losses.lose(owner, f"{what} is {_shown(values)}")
        if joint.nv == 1:
            return
        for what in ("damping", "friction"):
            if any(values := getattr(model, what)[i]):
                losses.lose(owner, f"{what} of a {_KINDS[type(joint)]} joint is {_shown(values)}")
        if any(math.isfinite(x) for limits in model.limits[i] for x in limits):
            losses.note(owner, f"URDF has no limits of a {_KINDS[type(joint)]} joint", "they are left out")

    # ---- the text

    def lines(self) -> Iterator[str]:
        model = self.model
        yield element("robot", {"name": self._text(model.name, "robot")} if model.name else {}, is_open=True)
        root = WORLD if self.root is None else self.root.name
        yield from self._link(root, None if self.root is None or self.root is not self.heavy else model.inertia[0])
        for holder, part in depth_first(self.parts):
            if part.frame is None:
                yield from self._moving(part.link, root if holder == 0 else model.link_names[holder])
            elif part.frame is not self.root:
                yield from self._frame(part.frame, root if holder == 0 else model.link_names[holder])
        yield from self._transmissions()
        yield "</robot>"

    def _text(self, name: str, what: str) -> str:
        owner = what if what == "robot" else f"{what} {name!r}"
        if "${" in name or "$(" in name:
            self.losses.cannot(owner, "its name would be an instruction to xacro", "rename it")
        return self.losses.name(name, owner)

    def _link(self, name: str, G: Inertia | None) -> Iterator[str]:
        tag = {"name": self._text(name, "link")}
        if G is None or is_massless(G):
            yield f"  {element('link', tag)}"
            return
        m, c, I = body(G)
        if m == 0.0 and any(G.h):
            self.losses.cannot(f"link {name!r}", f"it has the first moment {_shown(G.h)} and no mass", "give it a mass")
        yield f"  {element('link', tag, is_open=True)}"
        yield "    <inertial>"
        yield f"      {element('origin', {'xyz': numbers(c), 'rpy': '0 0 0'})}"
        yield f"      {element('mass', {'value': numbers([m])})}"
        entries = {"ixx": I[0][0], "ixy": I[0][1], "ixz": I[0][2], "iyy": I[1][1], "iyz": I[1][2], "izz": I[2][2]}
        yield f"      {element('inertia', {key: numbers([x]) for key, x in entries.items()})}"
        yield "    </inertial>"
        yield "  </link>"

    def _frame(self, frame: Frame, holder: str) -> Iterator[str]:
        yield from self._link(frame.name, moved_to(frame, self.model.inertia[0]) if frame is self.heavy else None)
        name = free_name(f"{frame.name}_fixed", self.joint_names)
        yield f"  {element('joint', {'name': self._text(name, 'joint'), 'type': 'fixed'}, is_open=True)}"
        yield from _ends(holder, frame.name, frame.placement)
        yield "  </joint>"

    def _moving(self, i: int, parent: str) -> Iterator[str]:
        model, name, joint = self.model, self.model.joint_names[i], self.model.joint[i]
        yield from self._link(model.link_names[i], model.inertia[i])
        kind = _KINDS.get(type(joint), "")
        lower, upper, velocity, effort = ((x[0] if joint.nv == 1 else math.inf) for x in model.limits[i])
        if kind == "revolute" and lower == -math.inf and upper == math.inf:
            kind = "continuous"
        yield f"  {element('joint', {'name': self._text(name, 'joint'), 'type': kind}, is_open=True)}"
        yield from _ends(parent, model.link_names[i], model.placement[i])
        if isinstance(joint, Revolute | Prismatic | Planar):
            yield f"    {element('axis', {'xyz': numbers(joint.axis)})}"
        bounds = {"effort": limit(effort), "velocity": limit(velocity)}
        if kind in ("revolute", "prismatic"):
            yield f"    {element('limit', {'lower': limit(lower), 'upper': limit(upper), **bounds})}"
        elif kind == "continuous" and min(effort, velocity) < UNLIMITED:
            yield f"    {element('limit', bounds)}"
        damping, friction = model.damping[i], model.friction[i]
        if joint.nv == 1 and (damping[0] or friction[0]):
            yield f"    {element('dynamics', {'damping': numbers(damping), 'friction': numbers(friction)})}"
        if (mimic := model.mimic[i]) is not None:
            followed = {"multiplier": numbers([mimic.factor]), "offset": numbers([mimic.offset])}
            yield f"    {element('mimic', {'joint': model.joint_names[mimic.link], **followed})}"
        yield "  </joint>"

    def _transmissions(self) -> Iterator[str]:
        """Which joints are driven, unless it is all of them."""
        model = self.model
        own = [(i, model.actuated[i]) for i, _ in model.outward() if not model.joint[i].is_floating]
        driven = [i for i, _ in model.outward() if model.actuated[i]]
        if all(is_driven for _, is_driven in own) and len(driven) == len(own):
            return
        if not any(is_driven for _, is_driven in own):
            self.losses.note(f"robot {model.name!r}", "no joint is driven", "read again, all but floating ones are")
            return
        for i in driven:
            joint = element("joint", {"name": model.joint_names[i]}, is_open=True)
            yield f"  {element('transmission', {'name': model.joint_names[i]}, is_open=True)}"
            yield "    <type>transmission_interface/SimpleTransmission</type>"
            yield f"    {joint}<hardwareInterface>hardware_interface/EffortJointInterface</hardwareInterface></joint>"
            yield f"    {element('actuator', {'name': model.joint_names[i]})}"
            yield "  </transmission>"


def _ends(parent: str, child: str, T: Transform) -> Iterator[str]:
    yield f"    {element('parent', {'link': parent})}"
    yield f"    {element('child', {'link': child})}"
    yield f"    {element('origin', {'xyz': numbers(T.p), 'rpy': numbers(_roll_pitch_yaw(T.R))})}"


def _roll_pitch_yaw(R: Rotation) -> tuple[float, float, float]:
    """The angles about the fixed axes x, y and z. Near the pitch ±π/2 the roll is rounding; the yaw goes with it."""
    (_, b, c), (_, e, f), (g, h, i) = R.rows
    roll = math.atan2(h, i)
    cosine, sine = cos_sin(roll)
    return roll, math.atan2(-g, math.hypot(h, i)), math.atan2(c * sine - b * cosine, e * cosine - f * sine)


def _shown(values: object) -> str:
    return ", ".join(f"{x:g}" for x in values)  # type: ignore[attr-defined]
