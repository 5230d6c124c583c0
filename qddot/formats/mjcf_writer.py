"""A model as MJCF: bodies, joints with their springs, rotors and dampers, sites, equalities, and motors.

Frames are sites. A link without mass that carries one other link only, which MuJoCo refuses as a body, becomes a further
joint of the body after it. Joints of several degrees of freedom that MuJoCo does not know become several hinges and slides
on one body. Mimic joints, couplings and loops held by a ball joint or rigidly are equalities; MuJoCo lets them yield as
its solver does. Shapes are not written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from qddot.formats.mjcf_keyframes import keyframes
from qddot.formats.mjcf_written_parts import Axis, Loops, axes_of, couplings, inertial
from qddot.formats.registry import Written, register_writer
from qddot.formats.writer import (
    Losses,
    Part,
    body,
    check_friction_velocity,
    check_order,
    check_sizes,
    depth_first,
    element,
    is_identity,
    is_massless,
    limit,
    moved_to,
    numbers,
    parts_of,
)
from qddot.joints import Free, Spherical
from qddot.mechanism.model import Frame, Model
from qddot.spatial import Transform
from qddot.spatial.rotation import EYE, ZERO, rotation_quaternion

_MAX_DEPTH = 450  # nested bodies: MuJoCo's reader takes 500 nested elements
_MAX_DOF = 6  # of one body
_WHAT = {"armature": "armature", "damping": "damping", "frictionloss": "friction", "stiffness": "stiffness"}


@register_writer(".xml", ".mjcf")
def mjcf(model: Model, lossy: bool = False) -> Written:
    """The text of an MJCF file."""
    losses = Losses("MJCF", lossy)
    writer = _Writer(model, losses)
    lines = list(writer.lines())
    check_friction_velocity(model, losses)
    check_sizes(model, losses)
    if any(math.isfinite(x) for limits in model.limits for x in limits.velocity):
        losses.note(f"robot {model.name!r}", "MJCF has no velocity limits of joints", "they are left out")
    check_order(model, losses, [0, *writer.order])
    if model.groups.joints:
        losses.note(f"robot {model.name!r}", "MJCF has no groups of joints", "they are left out; keep the SRDF file")
    losses.raise_if_any()
    return Written("\n".join([*lines, ""]), tuple(losses.findings))


class _Writer:
    """One model on its way into a file."""

    def __init__(self, model: Model, losses: Losses) -> None:
        self.model, self.losses = model, losses
        self.loops = Loops(model, losses)
        self.parts = parts_of(model)
        for i, sites in self.loops.added.items():
            self.parts[i] += [Part(frame=site) for site in sites]
        self.order = [part.link for _, part in depth_first(self.parts) if part.frame is None]
        self.next = {i: found for i, _ in model.outward() if (found := self._merged_into(i))}
        first = next((part.frame for part in self.parts[0] if part.frame is not None), None)
        self.heavy = None if is_massless(model.inertia[0]) else first  # has the inertia of what is fixed to the ground

    def _merged_into(self, i: int) -> int:
        """The link whose body has the joint of a massless link as well; 0 where it is a body of its own."""
        model = self.model
        if not is_massless(model.inertia[i]) or len(self.parts[i]) != 1 or self.parts[i][0].frame is not None:
            return 0
        child = self.parts[i][0].link
        dof = model.joint[i].nv + model.joint[child].nv
        turned = model.placement[child].R.rows != EYE and isinstance(model.joint[i], Spherical)
        is_free = isinstance(model.joint[i], Free) or isinstance(model.joint[child], Free)
        return 0 if dof > _MAX_DOF or turned or is_free else child

    # ---- the text

    def lines(self) -> Iterator[str]:
        model = self.model
        name = {"model": self.losses.name(model.name, "robot")} if model.name else {}
        yield element("mujoco", name, is_open=True)
        yield '  <compiler angle="radian" autolimits="true"/>'
        yield f"  {element('option', {'gravity': numbers(model.gravity)})}"
        yield "  <worldbody>"
        yield from self._bodies()
        yield "  </worldbody>"
        tendons, equalities = couplings(model, self.losses)
        yield from _block("tendon", tendons)
        yield from _block("equality", [*self._mimics(), *equalities, *self.loops.equalities()])
        yield from _block("actuator", list(self._motors()))
        yield from _block("keyframe", keyframes(model, self.order, self.losses))
        yield "</mujoco>"

    def _bodies(self) -> Iterator[str]:
        """What stands on the ground, and what that carries: a stack of parts, and of tags to be closed."""
        stack: list[Part | str] = list(reversed(self.parts[0]))
        depth = 0
        while stack:
            part = stack.pop()
            if isinstance(part, str):
                yield part
                depth -= 1
                continue
            indent = "  " * (depth + 2)
            if part.frame is not None:
                yield from self._frame(part.frame, indent)
                continue
            depth += 1
            if depth == _MAX_DEPTH:
                fix = "MuJoCo reads no deeper files: use another format"
                self.losses.cannot(f"link {self.model.link_names[part.link]!r}", f"it is nested {depth} deep", fix)
            links = [part.link]
            while (following := self.next.get(links[-1], 0)) and self._dof([*links, following]) <= _MAX_DOF:
                links.append(following)
            yield from self._body(links, indent)
            stack.append(f"{indent}</body>")
            stack.extend(reversed(self.parts[links[-1]]))

    def _dof(self, links: list[int]) -> int:
        return sum(self.model.joint[i].nv for i in links)

    def _frame(self, frame: Frame, indent: str) -> Iterator[str]:
        name = self.losses.name(frame.name, f"frame {frame.name!r}")
        if frame is not self.heavy:
            yield indent + element("site", {"name": name, **_place(frame.placement)})
            return
        found = inertial(*body(moved_to(frame, self.model.inertia[0])))
        if isinstance(found, str):
            problem = "links that are fixed to the ground have an inertia, which plays no part"
            self.losses.note(f"frame {name!r}", problem, "it is left out")
            yield indent + element("site", {"name": name, **_place(frame.placement)})
            return
        yield indent + element("body", {"name": name, **_place(frame.placement)}, is_open=True)
        yield f"{indent}  {element('inertial', found)}"
        yield f"{indent}</body>"

    def _body(self, links: list[int], indent: str) -> Iterator[str]:
        """A body with the joints of a massless chain and of the link at its end, which it is named after."""
        model, last = self.model, links[-1]
        name, owner = model.link_names[last], f"link {model.link_names[last]!r}"
        T = Transform()
        for i in links:
            T = T @ model.placement[i]
        yield indent + element("body", {"name": self.losses.name(name, owner), **_place(T)}, is_open=True)
        found = inertial(*body(model.inertia[last])) if not is_massless(model.inertia[last]) else "it has no inertia"
        if isinstance(found, str):
            self.losses.cannot(owner, f"{found}, and MuJoCo refuses such moving bodies", "give it the inertia of a body")
        else:
            yield f"{indent}  {element('inertial', found)}"
        for i in links[:-1]:
            as_read = f"{name}/{model.joint_names[i]}"
            if model.link_names[i] != as_read:
                lost = f"link {model.link_names[i]!r}"
                self.losses.note(lost, f"without mass it is no body but a joint of {name!r}", f"it is read as {as_read!r}")
        for k, i in enumerate(links):
            after = Transform()
            for j in links[k + 1 :]:
                after = after @ model.placement[j]
            yield from (f"{indent}  {line}" for line in self._joints(i, after.inverse()))

    # ---- joints

    def _joints(self, i: int, back: Transform) -> Iterator[str]:
        """The joint of link i on a body in whose frame the link's own is `back` at rest."""
        model, joint, name = self.model, self.model.joint[i], self.model.joint_names[i]
        owner = f"joint {name!r}"
        axes = axes_of(joint, name)
        if not axes:
            fix = "MJCF has hinges, slides, balls and free joints: use one, or another format"
            self.losses.cannot(owner, f"MJCF has no {joint.kind} joints", fix)
        if isinstance(joint, Free) and not (model.parent[i] == 0 and is_identity(model.placement[i])):
            problem = "a free joint of MJCF stands on the world, without a placement"
            self.losses.cannot(owner, problem, "carry the link by other joints, or leave out the placement")
        if len(axes) > 1:
            names = ", ".join(repr(axis.name) for axis in axes)
            self.losses.note(owner, f"MJCF has no {joint.kind} joints", f"it is written as {names}, with the same q and v")
        for k, axis in enumerate(axes):
            whole = len(axes) == 1
            dof = range(joint.nv) if whole else range(k, k + 1)
            place = {"name": self.losses.name(axis.name, owner), "type": axis.kind}
            if axis.direction is not None:
                place["axis"] = numbers(back.R @ axis.direction)
            if axis.kind in ("hinge", "ball") and back.p != ZERO:
                place["pos"] = numbers(back.p)
            yield element("joint", {**place, **self._numbers(i, axis, dof), **self._limits(i, axis, dof)})

    def _numbers(self, i: int, axis: Axis, dof: range) -> dict[str, str]:
        """Rotor, damping, friction and spring of some degrees of freedom, which have one number for all."""
        model, joint, owner = self.model, self.model.joint[i], f"joint {self.model.joint_names[i]!r}"
        found = {}
        for attribute, what in _WHAT.items():
            values = [getattr(model, what)[i][k] for k in dof]
            if len(set(values)) > 1 or (what == "armature" and axis.kind == "free" and any(values)):
                self.losses.lose(owner, f"{what} of a {axis.kind} joint is {', '.join(f'{x:g}' for x in values)}")
            elif values[0]:
                found[attribute] = numbers(values[:1])
        if "stiffness" in found:
            rest = model.spring_reference[i]
            if axis.direction is not None:
                found["springref"] = numbers([rest[dof[0]]])
            elif tuple(rest) != joint.neutral():
                self.losses.lose(owner, f"the spring of a {axis.kind} joint is at rest at {list(rest)}")
        return found

    def _limits(self, i: int, axis: Axis, dof: range) -> dict[str, str]:
        limits, owner = self.model.limits[i], f"joint {self.model.joint_names[i]!r}"
        if axis.direction is None:
            if any(math.isfinite(x) for k in dof for x in (limits.lower[k], limits.upper[k], limits.effort[k])):
                self.losses.note(owner, f"limits of a {axis.kind} joint are not written", "they are left out")
            return {}
        lower, upper, effort = (x[dof[0]] for x in (limits.lower, limits.upper, limits.effort))
        found = {}
        if lower == upper:
            self.losses.note(owner, f"both its limits are {lower:g}, which MJCF takes for none", "they are left out")
        if effort == 0.0:
            self.losses.note(owner, "its effort limit is 0, which MJCF takes for none", "it is left out")
        if lower < upper and (math.isfinite(lower) or math.isfinite(upper)):
            found["range"] = f"{limit(lower)} {limit(upper)}"
        if 0.0 < effort < math.inf:
            found["actuatorfrcrange"] = numbers([-effort, effort])
        return found

    # ---- besides the bodies

    def _mimics(self) -> Iterator[str]:
        model = self.model
        for i, _ in model.outward():
            if (mimic := model.mimic[i]) is not None:
                if mimic.factor == 0.0:
                    owner = f"joint {model.joint_names[i]!r}"
                    self.losses.note(
                        owner, "it mimics with the factor 0", "MJCF holds it by a constraint, and so it is read"
                    )
                ends = {"joint1": model.joint_names[i], "joint2": model.joint_names[mimic.link]}
                yield element("joint", {**ends, "polycoef": numbers([mimic.offset, mimic.factor, 0.0, 0.0, 0.0])})

    def _motors(self) -> Iterator[str]:
        model = self.model
        driven = [i for i, _ in model.outward() if model.actuated[i]]
        if not driven and any(not joint.is_floating for joint in model.joint[1:]):
            self.losses.note(f"robot {model.name!r}", "no joint is driven", "read again, all but free ones are")
        for i in driven:
            for axis in axes_of(model.joint[i], model.joint_names[i]):
                if axis.direction is not None:
                    yield element("motor", {"name": axis.name, "joint": axis.name})
                    continue
                for k in range(model.joint[i].nv):  # one motor a degree of freedom
                    gear = ["1" if k == j else "0" for j in range(6)]
                    yield element("motor", {"name": f"{axis.name}/{k}", "joint": axis.name, "gear": " ".join(gear)})


def _block(tag: str, lines: list[str]) -> list[str]:
    return [f"  <{tag}>", *(f"    {line}" for line in lines), f"  </{tag}>"] if lines else []


def _place(T: Transform) -> dict[str, str]:
    found = {} if T.p == ZERO else {"pos": numbers(T.p)}
    if T.R.rows != EYE:
        x, y, z, w = rotation_quaternion(T.R)
        found["quat"] = numbers((w, x, y, z))
    return found
