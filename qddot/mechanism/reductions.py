"""Smaller mechanisms made of one: with joints that stand still, and what one of its links carries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qddot.errors import ModelError, message, shown
from qddot.mechanism.builder import WORLD
from qddot.mechanism.couplings import Declared
from qddot.mechanism.declared_joint import DeclaredJoint
from qddot.mechanism.model import Model
from qddot.mechanism.validation import constant, numbers
from qddot.mechanism.variants import built, declared, weld
from qddot.scalars import total
from qddot.spatial import Transform, constant_transform
from qddot.spatial.rotation import Vec

_UNIT_ROUNDING = 2.3e-16  # of entries of a rotation: cos(π/2) is 6e-17
_CLOSED = 1e-9  # what a coupling of locked joints may be off by


def locked(model: Model, values: Mapping[str, Any]) -> Model:
    """The model with joints that stand still at these coordinates: their links are part of those that carry them."""
    if not isinstance(values, Mapping):
        problem = f"joints to lock are {shown(values)}"
        raise ModelError(message("", f"robot {model.name!r}", problem, "give joints and values, such as {'joint3': 0.5}"))
    if not values:
        return model
    still = _coordinates(model, values)
    parts = declared(model, "loses the coordinates of locked joints")
    for i, q in still.items():
        joint = parts._joints[model.joint_names[i]]
        parts._joints[joint.name] = weld(joint, constant(joint.placement @ _settled(joint.joint.transform(q))))
    known = {model.joint_names[i]: q[0] for i, q in still.items() if len(q) == 1}
    for coupling in list(parts._couplings.values()):
        left = _without(coupling, known)
        del parts._couplings[coupling.name]
        if left is not None:
            parts._couplings[coupling.name] = left
    above = {joint.child: joint for joint in parts._joints.values()}
    for name, _, a, _, b, _, _ in parts._loops:
        if _body(a, above) == _body(b, above):
            problem = f"locking {', '.join(map(repr, values))} makes one body of its links {a!r} and {b!r}"
            raise ModelError(message("", f"loop {name!r}", problem, "lock fewer joints, or those of spanning_tree()"))
    return built(parts, model)


def _coordinates(model: Model, values: Mapping[str, Any]) -> dict[int, tuple[float, ...]]:
    """By link, where its joint stands: those that are locked, and those that follow them."""
    still: dict[int, tuple[float, ...]] = {}
    for name, value in values.items():
        i, element = model.joint_index(name), f"joint {name!r}"
        mimic = model.mimic[i]
        if mimic is not None:
            master = model.joint_names[mimic.link]
            raise ModelError(message("", element, f"it follows {master!r}", f"lock {master!r}, and it stands still, too"))
        q = numbers(value, model.joint[i].nq, "its value", "", element)
        if model.joint[i].has_unit_quaternion:
            size = sum(x * x for x in q[-4:])
            if abs(size - 1.0) > 1e-6:
                problem = f"the square of its quaternion is {size:g}"
                raise ModelError(message("", element, problem, "give a quaternion of unit length, (x, y, z, w)"))
            q = tuple(float(x) for x in model.joint[i].normalize(q))
        still[i] = q
    for i, mimic in enumerate(model.mimic):
        if mimic is not None and mimic.link in still:
            still[i] = (mimic.factor * still[mimic.link][0] + mimic.offset,)
    return dict(sorted(still.items()))


def _settled(T: Transform) -> Transform:
    """A joint's motion with zeros and ones where cosines and sines of right angles are off by rounding."""

    def row(x: Vec) -> Vec:
        a, b, c = (float(round(k)) if abs(k - round(k)) <= _UNIT_ROUNDING else k for k in x)
        return (a + 0.0, b + 0.0, c + 0.0)

    x, y, z = T.R.rows
    return constant_transform((row(x), row(y), row(z)), T.p)


def _without(coupling: Declared, known: Mapping[str, float]) -> Declared | None:
    """The coupling with the numbers of joints that stand still in their place; None where nothing is left of it."""

    def apart(terms: Mapping[str, float]) -> tuple[dict[str, float], float]:
        left = {name: k for name, k in terms.items() if name not in known}
        return left, total(k * known[name] for name, k in terms.items() if name in known)

    (joints, constant_term), (of, shift) = apart(coupling.joints), apart(coupling.of)
    reference, p = coupling.reference - shift, (coupling.polynomial[0] - constant_term, *coupling.polynomial[1:])
    if joints:
        return coupling._replace(joints=joints, of=of, reference=reference, polynomial=p)
    element, slopes = f"coupling {coupling.name!r}", p[1:]
    if of and slopes and not any(slopes[1:]):  # 0 = p_0 + p_1 (Σ k q - x_0)
        line = {name: slopes[0] * k for name, k in of.items()}
        return coupling._replace(joints=line, of={}, reference=0.0, polynomial=(slopes[0] * reference - p[0],))
    if of:
        problem = "with its joints locked it is a polynomial equation for the others"
        raise ModelError(message("", element, problem, "lock the others as well, where they fit"))
    off = abs(sum(c * (-reference) ** k for k, c in enumerate(p)))
    if off > _CLOSED:
        raise ModelError(message("", element, f"the values of the locked joints miss it by {off:.3g}", "let them fit"))
    return None


def _body(link: str, above: Mapping[str, DeclaredJoint]) -> str:
    """The moving link, or the world, that a link is fixed to."""
    while link != WORLD and above[link].joint.nv == 0:
        link = above[link].parent
    return link


def subtree(model: Model, link: str) -> Model:
    """What a moving link carries, on its own: the link's frame is the world's."""
    found = model.frame(link)
    if found.link == 0 or model.link_names[found.link] != link:
        owner = model.link_names[found.link]
        fix = "take the robot itself" if found.link == 0 else f"take {owner!r}, which it is part of"
        raise ModelError(message("", f"subtree of {link!r}", f"{link!r} is no moving link", fix))
    kept = {found.link}
    for i, p in model.outward():
        if p in kept:
            kept.add(i)
    inside = {model.link_names[i] for i in kept}
    parts = declared(model, "loses the coordinates of the rest of the robot")
    parts._ground = model.inertia[found.link]
    parts._links = {name: x for name, x in parts._links.items() if name in inside and name != link}
    parts._joints = {name: j for name, j in parts._joints.items() if j.child in parts._links}
    for joint in parts._joints.values():
        joint.parent = WORLD if joint.parent == link else joint.parent
        if joint.mimic is not None and joint.mimic[0] not in parts._joints:
            _leads_out(f"joint {joint.name!r}", f"it follows {joint.mimic[0]!r}", link)
    parts._frames = [(n, WORLD if at == link else at, T, w) for n, at, T, w in parts._frames if at in inside]
    parts._frames.append((link, WORLD, Transform(), ""))
    loops = []
    for name, closing, a, A, b, B, where in parts._loops:
        if (a in inside) != (b in inside):
            _leads_out(f"loop {name!r}", f"it connects {a!r} and {b!r}", link)
        if a in inside:
            ends = (WORLD if x == link else x for x in (a, b))
            loops.append((name, closing, next(ends), A, next(ends), B, where))
    parts._loops, parts._loop_names = loops, {x[0] for x in loops}
    for coupling in list(parts._couplings.values()):
        joints = {*coupling.joints, *coupling.of}
        if joints & parts._joints.keys() and joints - parts._joints.keys():
            _leads_out(f"coupling {coupling.name!r}", f"it is of {', '.join(sorted(joints))}", link)
        if joints - parts._joints.keys():
            del parts._couplings[coupling.name]
    return built(parts, model)


def _leads_out(element: str, problem: str, link: str) -> None:
    fix = "take a larger subtree, or lock joints first"
    raise ModelError(message("", element, f"{problem}, which are not all carried by {link!r}", fix))
