"""Other mechanisms made of one: with a load, with another one attached, on another base, scaled, with other names.

Each function gives a new Model, the one that a Builder makes of the changed parts. Numbers that a change does not touch
keep their bits. Joints that move no more are welds to the Builder, which merges their links and keeps them as frames.
A constraint that is a user's function of the whole configuration survives only where the configuration stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from qddot.errors import Finding, InputError, ModelError, message, one_name, shown, unknown
from qddot.joints import Fixed, Free, Joint, Planar
from qddot.mechanism.builder import WORLD, Builder, check_name, free_name
from qddot.mechanism.couplings import Coupling, Declared
from qddot.mechanism.declared_joint import DeclaredJoint, ground
from qddot.mechanism.declared_tree import DeclaredLink
from qddot.mechanism.model import Frame, Limits, Model
from qddot.mechanism.placements import Placement, placed
from qddot.mechanism.validation import check_inertia, check_mass, constant, inertia_matrix, numbers
from qddot.spatial import Inertia, Transform, constant_transform, inertia_from, transform_inertia, zero_inertia
from qddot.spatial.joint_blocks import Vector
from qddot.spatial.rotation import IDENTITY, ZERO, scale

BASES: dict[str, Joint] = {"fixed": Fixed(), "floating": Free(), "planar": Planar()}


# ---- models and their parts ------------------------------------------------------------------------------------------


def declared(model: Model, change: str = "") -> Builder:
    """A Builder with all parts of a model. `change` says what a user's constraint function would not survive."""
    parts = Builder(
        model.name, model.gravity, model.friction_velocity, loop_tolerance=model.loop_tolerance, allow_unphysical=True
    )
    parts.findings, parts._ground = list(model.findings), model.inertia[0]
    for i, p in model.outward():
        mimic, name = model.mimic[i], model.joint_names[i]
        parts._links[model.link_names[i]] = DeclaredLink(model.link_names[i], model.inertia[i], "")
        parts._joints[name] = DeclaredJoint(
            name=name,
            joint=model.joint[i],
            parent=model.link_names[p],
            child=model.link_names[i],
            placement=model.placement[i],
            where="",
            armature=model.armature[i],
            damping=model.damping[i],
            friction=model.friction[i],
            stiffness=model.stiffness[i],
            spring_reference=model.spring_reference[i],
            limits=model.limits[i],
            actuated=model.actuated[i],
            mimic=None if mimic is None else (model.joint_names[mimic.link], mimic.factor, mimic.offset),
        )
    names = model.link_names
    parts._frames = [(f.name, names[f.link], f.placement, "") for f in model.frames]
    parts._loops = [
        (x.name, x.joint, names[x.link_a], x.placement_a, names[x.link_b], x.placement_b, "") for x in model.loops
    ]
    parts._loop_names = {x.name for x in model.loops}
    owner = {s.q.start: n for n, s, m in zip(model.joint_names, model.slots, model.mimic, strict=True) if n and m is None}
    for c in model.constraints:
        if not isinstance(c.position, Coupling):
            problem = f"it is a function of the whole configuration, which {change}"
            raise ModelError(message("", f"constraint {c.name!r}", problem, "add it afterwards, with_constraint(…)"))
        left, right = ({owner[at]: k for at, k in side} for side in (c.position.left, c.position.right))
        parts._couplings[c.name] = Declared(c.name, left, right, c.position.reference, c.position.polynomial, "")
    return parts


def built(parts: Builder, like: Model) -> Model:
    """The model of the parts; shapes are where those of `like` are, and so are groups of joints that are there."""
    model = parts.model()
    own = {model.joint_names[i]: model.joint[i].nq for i, _ in model.outward() if model.mimic[i] is None}
    groups = like.groups.among(set(model.joint_names), own)
    return replace(model, source=like.source, package_dirs=like.package_dirs, trusted=like.trusted, groups=groups)


def weld(joint: DeclaredJoint, placement: Transform) -> DeclaredJoint:
    """A joint that moves no more."""
    return replace(ground(), name=joint.name, parent=joint.parent, child=joint.child, placement=placement)


# ---- loads and attached robots ---------------------------------------------------------------------------------------


def with_payload(
    model: Model, frame: str, body: tuple[Any, Any, Any], name: str = "payload", allow_unphysical: bool = False
) -> Model:
    """The model with a body fixed to a frame: mass, centre of mass and inertia as `Builder.link` takes them."""
    found, element = model.frame(frame), f"payload {name!r}"
    if found.link == 0:
        raise ModelError(message("", element, f"frame {frame!r} is fixed to the world", "name a frame that moves"))
    check_name(name, "payload", "")
    if name in model.frame_names:
        raise ModelError(message("", element, "a link or frame of this name exists", "give it another, name=…"))
    findings = list(model.findings)

    def find(*facts: str) -> None:
        findings.append(Finding(*facts))

    (m,), c = numbers(body[0], 1, "mass", "", element), numbers(body[1], 3, "com", "", element)
    I_c = inertia_matrix(body[2], element, "")
    check_mass(m, I_c, element, "", find)
    check_inertia(I_c, element, "", find, allow_unphysical=allow_unphysical)
    load = transform_inertia(found.placement, inertia_from(m, c, I_c))  # type: ignore[arg-type]
    carried = tuple(I + load if i == found.link else I for i, I in enumerate(model.inertia))
    frames = (*model.frames, Frame(name, found.link, found.placement))
    return replace(model, inertia=carried, frames=frames, findings=tuple(findings))


def attach(model: Model, other: Model, frame: str, pose: Placement | None = None, prefix: str = "") -> Model:
    """The model with another one whose world stands in a frame of this one; names of the other begin with `prefix`."""
    change = "grows by the coordinates of what is attached"
    added = renamed(other, prefix=prefix) if prefix else other
    parts, more = declared(model, change), declared(added, change)
    found, element = model.frame(frame), f"robot {other.name!r}"
    _refuse_unfit(model, added, found)
    place = constant(found.placement @ placed(pose, element, "", parts.find))
    holder = model.link_names[found.link]
    for kind, ours, theirs in (
        ("link or frame", model.frame_names, added.frame_names[1:]),
        ("joint", model.joint_names, added.joint_names[1:]),
        ("loop or coupling", (*parts._loop_names, *parts._couplings), (*more._loop_names, *more._couplings)),
    ):
        for name in sorted(set(ours) & set(theirs)):
            problem = f"both robots have a {kind} {name!r}"
            raise ModelError(message("", element, problem, "give the names of the attached robot a prefix=…"))

    def end(link: str, T: Transform) -> tuple[str, Transform]:
        return (holder, constant(place @ T)) if link == WORLD else (link, T)

    base = transform_inertia(place, more._ground)
    if found.link == 0:
        parts._ground = parts._ground + base
    else:
        parts._links[holder].inertia = parts._links[holder].inertia + base
    parts._links |= more._links
    for name, joint in more._joints.items():
        parent, placement = end(joint.parent, joint.placement)
        parts._joints[name] = replace(joint, parent=parent, placement=placement)
    parts._frames += [(name, *end(link, T), where) for name, link, T, where in more._frames]
    parts._loops += [(name, joint, *end(a, A), *end(b, B), where) for name, joint, a, A, b, B, where in more._loops]
    parts._loop_names |= more._loop_names
    parts._couplings |= more._couplings
    parts.findings += more.findings
    if parts.loop_tolerance is None:
        parts.loop_tolerance = more.loop_tolerance
    return built(parts, model)


def _refuse_unfit(model: Model, other: Model, frame: Frame) -> None:
    """A base that floats is not held by a frame that moves, and a model has one law of friction."""
    for i, p in other.outward():
        if frame.link != 0 and p == 0 and other.joint[i].is_floating:
            problem = f"its base floats, by joint {other.joint_names[i]!r}"
            raise ModelError(message("", f"robot {other.name!r}", problem, 'attach its variant with_base("fixed")'))
    differs = model.friction_velocity != other.friction_velocity
    if differs and any(any(row) for row in model.friction) and any(any(row) for row in other.friction):
        problem = (
            f"its friction_velocity is {other.friction_velocity:g}, that of {model.name!r} {model.friction_velocity:g}"
        )
        raise ModelError(message("", f"robot {other.name!r}", problem, "build both with the same number"))


# ---- the whole -------------------------------------------------------------------------------------------------------


def with_base(model: Model, base: str) -> Model:
    """The model on a base that is fixed to the world, floats, or moves in the plane z = 0 of the world.

    What was fixed to the world is the base's; a base that moves is fixed where it stands at its neutral coordinates.
    """
    if not isinstance(base, str) or base not in BASES:
        raise unknown("base", str(base), BASES, "qddot")
    parts = declared(model, "has other coordinates for another base")
    now = _base_joint(model)
    if now is not None:
        joint = parts._joints[now]
        if type(joint.joint) is type(BASES[base]):
            return model
        parts._joints[now] = weld(joint, joint.placement)
        return with_base(built(parts, model), base)
    if base == "fixed":
        return model
    on_world = [f.name for f in model.frames if f.link == 0 and f.placement.R is IDENTITY and f.placement.p is ZERO]
    root, own = on_world[0] if on_world else free_name("root", model.frame_names), BASES[base]
    name, rest = free_name("root_joint", model.joint_names), Vector(own.neutral())
    none, limits = Vector((0.0,) * own.nv), Limits((-inf,) * own.nv, *((inf,) * own.nv for _ in range(3)))
    joint = DeclaredJoint(
        name, own, WORLD, root, Transform(), "", none, none, none, none, rest, limits, actuated=False, mimic=None
    )
    joints = {name: replace(j, parent=root if j.parent == WORLD else j.parent) for name, j in parts._joints.items()}
    parts._links, parts._joints = (
        {root: DeclaredLink(root, parts._ground, ""), **parts._links},
        {joint.name: joint, **joints},
    )
    parts._ground = zero_inertia()

    def end(link: str) -> str:
        return root if link == WORLD else link

    parts._frames = [(x, end(link), T, where) for x, link, T, where in parts._frames if x != root]
    parts._loops = [(x, closing, end(a), A, end(b), B, where) for x, closing, a, A, b, B, where in parts._loops]
    return built(parts, model)


def _base_joint(model: Model) -> str | None:
    """The joint by which the whole robot floats or moves in a plane."""
    roots = [i for i, p in model.outward() if p == 0]
    moves = len(roots) == 1 and isinstance(model.joint[roots[0]], Free | Planar)
    return model.joint_names[roots[0]] if moves else None


def scaled(model: Model, length: float, mass: float | None = None) -> Model:
    """The model with all lengths times `length` and all masses times `mass`, by default length³: of the same material.

    Inertias, rotors' included, grow by mass · length² (rotors of sliding joints by mass). Dampers, friction, springs and
    the limits of velocities and forces stay as they are.
    """
    s = _factor(length, "length")
    m = s**3 if mass is None else _factor(mass, "mass")
    parts = declared(model, "is measured in other lengths")
    parts._ground = _scaled_inertia(parts._ground, s, m)
    for link in parts._links.values():
        link.inertia = _scaled_inertia(link.inertia, s, m)
    unit = {name: s if j.joint.coordinate_units[:1] == ("m",) else 1.0 for name, j in parts._joints.items()}
    for name, j in parts._joints.items():
        by = [1.0 if angle else s for angle in j.joint.is_angle]
        lower, upper = (tuple(x * k for x, k in zip(row, by, strict=True)) for row in j.limits[:2])
        references = zip(j.spring_reference, j.joint.coordinate_units, strict=True)
        rotors = zip(j.armature, j.joint.is_angle, strict=True)
        parts._joints[name] = replace(
            j,
            joint=_scaled_joint(j.joint, f"joint {name!r}", s),
            placement=_scaled_transform(j.placement, s),
            armature=Vector(x * m * s * s if angle else x * m for x, angle in rotors),
            spring_reference=Vector(x * s if unit == "m" else x for x, unit in references),
            limits=j.limits._replace(lower=lower, upper=upper),
            mimic=None if j.mimic is None else _scaled_mimic(j.mimic, unit, unit[name]),
        )
    parts._frames = [(name, link, _scaled_transform(T, s), where) for name, link, T, where in parts._frames]
    parts._loops = [
        (name, _scaled_joint(own, f"loop {name!r}", s), a, _scaled_transform(A, s), b, _scaled_transform(B, s), where)
        for name, own, a, A, b, B, where in parts._loops
    ]
    for name, c in parts._couplings.items():
        left, right = ({joint: k / unit[joint] for joint, k in side.items()} for side in (c.joints, c.of))
        parts._couplings[name] = c._replace(joints=left, of=right)
    factors = {name: [s if unit == "m" else 1.0 for unit in j.joint.coordinate_units] for name, j in parts._joints.items()}
    done = built(parts, model)
    return replace(done, source="", package_dirs=(), groups=done.groups.scaled(factors))


def _factor(x: Any, what: str) -> float:
    (k,) = numbers(x, 1, what)
    if k <= 0.0:
        raise ModelError(message("", what, f"its factor is {k:g}", "give a number greater than zero"))
    return k


def _scaled_inertia(G: Inertia, s: float, m: float) -> Inertia:
    x, y, z = (scale(m * s * s, row) for row in G.I)
    return Inertia(m * G.m, scale(m * s, G.h), (x, y, z))


def _scaled_transform(T: Transform, s: float) -> Transform:
    return constant_transform(T.R.rows, scale(s, T.p))


def _scaled_joint(joint: Joint, element: str, s: float) -> Joint:
    scaled = joint.scaled(s)
    if scaled is None:
        raise ModelError(
            message("", element, "its motion is a user's function", "scale the function, and build the robot anew")
        )
    return scaled


def _scaled_mimic(mimic: tuple[str, float, float], unit: Mapping[str, float], own: float) -> tuple[str, float, float]:
    other, k, o = mimic
    return other, k * own / unit[other], o * own


# ---- names -----------------------------------------------------------------------------------------------------------


def renamed(
    model: Model,
    name: str | None = None,
    links: Mapping[str, str] | None = None,
    joints: Mapping[str, str] | None = None,
    prefix: str = "",
) -> Model:
    """The model with other names: of itself, of links, bodies and frames, of joints, loops and constraints.

    What is not named gets the prefix.
    """
    of_links = _new_names(model, "link or frame", model.frame_names[1:], links, prefix) | {WORLD: WORLD}
    constrained = [*(x.name for x in model.loops), *(x.name for x in model.constraints)]
    of_joints = _new_names(model, "joint, loop or constraint", (*model.joint_names[1:], *constrained), joints, prefix)
    if name is not None:
        check_name(name, "robot", "")
    same = all(old == new for old, new in of_links.items())
    return replace(
        model,
        name=model.name if name is None else name,
        link_names=tuple(of_links[x] for x in model.link_names),
        joint_names=("", *(of_joints[x] for x in model.joint_names[1:])),
        frames=tuple(x._replace(name=of_links[x.name]) for x in model.frames),
        loops=tuple(x._replace(name=of_joints[x.name]) for x in model.loops),
        constraints=tuple(replace(x, name=of_joints[x.name]) for x in model.constraints),
        source=model.source if same else "",  # shapes are found by the names of links
        package_dirs=model.package_dirs if same else (),
        groups=model.groups.renamed(of_joints),
    )


def _new_names(
    model: Model, what: str, known: Sequence[str], given: Mapping[str, str] | None, prefix: str
) -> dict[str, str]:
    if not isinstance(given, Mapping | None) or not isinstance(prefix, str):
        wrong = f"names are {shown(given)}" if isinstance(prefix, str) else f"the prefix is {shown(prefix)}"
        raise InputError(f'{wrong}; give names such as {{"old": "new"}}, and a text as prefix')
    for old in given or {}:
        if one_name(old, what) not in known:
            raise unknown(what, old, known, f"robot {model.name!r}")
    new = {old: (given or {}).get(old, prefix + old) for old in known}
    owner: dict[str, str] = {}
    for old, name in new.items():
        check_name(name, f"{what} {old!r}", "")
        if name in owner or (name == WORLD and what.startswith("link")):
            taken = "the ground's own name" if name == WORLD else f"that of {owner[name]!r}, too"
            raise ModelError(message("", f"{what} {old!r}", f"its new name {name!r} is {taken}", "give it another"))
        owner[name] = old
    return new
