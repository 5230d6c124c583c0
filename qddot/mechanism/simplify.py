"""The same dynamics with fewer numbers: inertias regrouped into base parameters, link frames where zeros are.

A joint that cannot move a part K of its link's inertia, because K S = 0 and K looks the same to the parent at every q,
may leave that part to the parent: a revolute joint leaves the mass, the first moment along its axis and one second
moment (`Joint.transferable_inertia` has the rule of every kind). The link keeps seven parameters of ten, and what arrives
at the world is gone. Lin 1991 knows it of J_yy; Gautier & Khalil 1990 and Mayeda et al. 1990 have it of whole arms.

The frame of a link may stand anywhere on a revolute joint's axis and be turned about it, as long as nobody looks: joint
forces, accelerations and mass matrices stay as they are. Denavit and Hartenberg's choice, x along the common normal to
the next axis, leaves of a placement a shift along x, a turn about x and a shift along z. Where frames already stand
along the axes there is nothing to turn, and a shift is kept only if it gets rid of another.

All of it is computed with the 120 digits of `precise` and rounded once. A component of a direction or a shift is zero where
the rounding of the data explains it; an inertia only where it vanishes exactly (docs/decisions/0008).
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

from qddot.joints import Joint, Z
from qddot.joints.axial import OffsetRevolute, UnturnedRevolute
from qddot.mechanism.model import Model
from qddot.scalars import Scalar, cos, sin, sqrt
from qddot.spatial import Inertia, Product, Transform, constant_transform, transform_inertia, zero_inertia
from qddot.spatial.precise_model import UNIT, data, exactly, placed, rounded, settled, unit
from qddot.spatial.rotation import IDENTITY, ZERO, AxisRotation, Vec, add, dot, mat_sub, outer, scale, sub

# Axes nearly parallel have their common normal far away, and large numbers cancel. A frame is moved by at most
_MAX_SHIFT_RATIO = 3.0  # times the length of a placement
_MAX_SHIFT_LINK_SIZES = 30.0  # times the link's own size I / h, where that is more: its moment of inertia is rounded


def simplified(model: Model) -> Model:
    """Regrouped and in frames of its own: for what does not look into the mechanism."""
    return replace(model, **_simplified_tables(model))


@lru_cache(maxsize=8)  # a kernel is traced in several ways
def _simplified_tables(model: Model) -> dict[str, Any]:
    exact = _exact(model)
    found = _rounded(_regrouped(_reframed(exact, _regrouped(exact))))
    return {name: getattr(found, name) for name in ("joint", "placement", "inertia", "frames", "loops")}


def regrouped(model: Model) -> Model:
    """The model with all that parents can carry moved to them.

    Joint forces and accelerations are unchanged, also under external forces; momentum and centres of mass are not.
    """
    return replace(model, inertia=_rounded(_regrouped(_exact(model))).inertia)


def reframed(model: Model) -> Model:
    """The model with the axes of its joints along z and the frames of revolute links where placements are short.

    Poses, frames and external forces refer to frames that are gone: it is for joint forces and accelerations only. Loops
    are kept, their frames where they were.
    """
    exact = _exact(model)
    return _rounded(_reframed(exact, exact))


def _exact(model: Model) -> Model:
    """The model on numbers of 120 digits."""
    loops = (x._replace(placement_a=placed(x.placement_a), placement_b=placed(x.placement_b)) for x in model.loops)
    return replace(
        model,
        joint=tuple(replace(j, axis=unit(j.axis)) if hasattr(j, "axis") else j for j in model.joint),  # type: ignore[type-var]
        placement=tuple(Product(*map(placed, T.parts)) for T in model.placement),
        inertia=tuple(map(_exact_inertia, model.inertia)),
        loops=tuple(loops),
    )


def _exact_inertia(G: Inertia) -> Inertia:
    """Products of inertia about the origin came from adding -h_i h_j / m to those about the centre of mass."""
    about_origin = outer(G.h, scale(1.0 / G.m, G.h)) if G.m else (ZERO, ZERO, ZERO)
    entries = zip(G.I, about_origin, strict=True)
    x, y, z = (tuple(0.0 if abs(k) <= UNIT * abs(a) else k for k, a in zip(*pair, strict=True)) for pair in entries)
    return Inertia(*data((G.m, G.h, (x, y, z))))


def _rounded(model: Model) -> Model:
    """The model on floats."""
    loops = (x._replace(placement_a=_constant(x.placement_a), placement_b=_constant(x.placement_b)) for x in model.loops)
    return replace(
        model,
        joint=tuple(map(_float_joint, model.joint)),
        placement=tuple(Product(*map(_constant, T.parts)) for T in model.placement),
        inertia=tuple(map(_float_inertia, model.inertia)),
        loops=tuple(loops),
    )


def _regrouped(model: Model) -> Model:
    inertia = list(model.inertia)
    for i, p in model.inward():
        joint = model.joint[i]
        left = joint.transferable_inertia(inertia[i])
        inertia[i] = _less(inertia[i], left)
        inertia[p] = inertia[p] + transform_inertia(Product(model.placement[i], joint.transfer()), left)
    inertia[0] = zero_inertia()
    return replace(model, inertia=tuple(inertia))


def _less(a: Inertia, b: Inertia) -> Inertia:
    return Inertia(a.m - b.m, sub(a.h, b.h), mat_sub(a.I, b.I))


def _float_joint(joint: Joint) -> Joint:
    if isinstance(joint, OffsetRevolute):
        c, s, offset, travel = (rounded(x) for x in (joint.c, joint.s, joint.offset, joint.travel))
        return OffsetRevolute(c, s, offset, travel)
    return replace(joint, axis=_floats(joint.axis)) if hasattr(joint, "axis") else joint  # type: ignore[type-var]


def _float_inertia(G: Inertia) -> Inertia:
    largest = max(abs(float(x)) for row in G.I for x in row)
    x, y, z = (_floats(row, largest) for row in G.I)
    return Inertia(rounded(G.m), _floats(G.h), (x, y, z))


def _constant(T: Transform) -> Transform:
    x, y, z = (_floats(row, 1.0) for row in T.R.rows)
    return constant_transform((x, y, z), _floats(T.p))


def _floats(x: Vec, beside: float = 0.0) -> Vec:
    size = max(beside, *(abs(float(k)) for k in x))
    return (rounded(x[0], size), rounded(x[1], size), rounded(x[2], size))


# ---- frames ------------------------------------------------------------------------------------------------------------


def _reframed(model: Model, regrouped: Model) -> Model:
    """The model in frames that suit the inertias of the regrouped one."""
    gauge = [Transform() for _ in model.parent]  # the new frame of each link in its old one
    below: list[list[int]] = [[] for _ in model.parent]
    size = [1 for _ in model.parent]
    for i, p in model.inward():
        below[p].insert(0, i)
        size[p] += size[i]
    placement, joint = list(model.placement), list(model.joint)
    for i, p in model.outward():
        X, own = gauge[p].inverse() @ model.placement[i], model.joint[i]
        turned, joint[i] = own.canonical()
        gauge[i] = Transform(turned)
        if own.can_turn_frame:
            place = X @ gauge[i]
            chosen = _choice(regrouped, i, place, gauge[i], sorted(below[i], key=lambda k: -size[k]))
            c, s, shift = map(exactly, chosen)
            gauge[i] = gauge[i] @ Transform(AxisRotation(2, c, s), (0.0, 0.0, shift))
            placement[i], joint[i] = _offset_revolute(place, c, s, shift)
        else:
            placement[i] = _clean(X @ gauge[i])
    inertia = [transform_inertia(B.inverse(), I) for B, I in zip(gauge, model.inertia, strict=True)]
    back = [B.inverse() for B in gauge]
    loops = tuple(
        loop._replace(
            placement_a=_clean(back[loop.link_a] @ loop.placement_a),
            placement_b=_clean(back[loop.link_b] @ loop.placement_b),
        )
        for loop in model.loops
    )
    tables = {"placement": tuple(placement), "joint": tuple(joint), "inertia": tuple(inertia)}
    return replace(model, **tables, frames=(), loops=loops)  # type: ignore[arg-type]


# ---- parallel axes -----------------------------------------------------------------------------------------------------


def with_sums_of_angles(model: Model, q: Any) -> Model:
    """A reframed model at one configuration, with links on parallel axes in frames that do not turn with them.

    From one such link to the next nothing is turned. Inertias and positions are, by the sum of the angles, but they have
    zeros that vectors have not; and what hangs on the last of them is turned once. Accelerations and forces are vectors,
    which any axes at one instant may describe; q may be traced.
    """
    parallel = _on_parallel_axes(model)
    together = parallel | {model.parent[i] for i in parallel}
    coordinates, angle = model.coordinates(q), dict[int, Scalar]()
    placement, joint, inertia = list(model.placement), list(model.joint), list(model.inertia)
    for i, p in model.outward():
        if p in together:  # its frame has stayed behind
            turned = Transform(AxisRotation(2, cos(angle[p]), sin(angle[p])))
            placement[i] = Transform(p=turned.R @ model.placement[i].p) if i in parallel else Product(turned, placement[i])
        if i in together:
            own = model.joint[i]
            assert isinstance(own, OffsetRevolute)
            before = angle[p] if i in parallel else 0.0
            angle[i] = before + (coordinates[i][0] + (math.atan2(own.s, own.c) + own.offset))
            placement[i], joint[i] = Product(placement[i], own.transfer()), UnturnedRevolute()
            inertia[i] = transform_inertia(Transform(AxisRotation(2, cos(angle[i]), sin(angle[i]))), model.inertia[i])

    def on_link(i: int, T: Transform) -> Transform:
        return Product(Transform(AxisRotation(2, cos(angle[i]), sin(angle[i]))), T) if i in angle else T

    loops = tuple(
        loop._replace(
            placement_a=on_link(loop.link_a, loop.placement_a), placement_b=on_link(loop.link_b, loop.placement_b)
        )
        for loop in model.loops
    )
    return replace(model, placement=tuple(placement), joint=tuple(joint), inertia=tuple(inertia), loops=loops)


def has_parallel_axes(model: Model) -> bool:
    """Whether a reframed model has links for `with_sums_of_angles`."""
    return bool(_on_parallel_axes(model))


def _on_parallel_axes(model: Model) -> set[int]:
    """The links that turn about an axis parallel to their parent's."""
    flat = {i for i, _ in model.outward() if all(part.R is IDENTITY for part in model.placement[i].parts)}
    hinged = {i for i, _ in model.outward() if isinstance(model.joint[i], OffsetRevolute)}
    return {i for i in flat & hinged if model.parent[i] in hinged}


def _choice(model: Model, i: int, X: Transform, turned: Transform, below: list[int]) -> tuple[Scalar, Scalar, Scalar]:
    """Cosine and sine of the turn of a revolute link's frame about its axis, and its shift along it.

    `X` is the joint's frame with its axis along z, in the parent; `turned` the link's frame with its axis along z;
    `below` are the links on this one, the one that carries most first.
    """
    G = transform_inertia(turned.inverse(), model.inertia[i])
    if not below:
        return _leaf(G, X)
    places = [turned.inverse() @ model.placement[c] for c in below]
    axes = [
        settled(x.R @ axis) if (axis := _turning_axis(model.joint[c])) else None for c, x in zip(below, places, strict=True)
    ]
    if not any(axes):
        return 1.0, 0.0, 0.0
    first = next(k for k, axis in enumerate(axes) if axis)
    c, s, normal = _common_normal(axes[first] or Z, settled(places[first].p))
    most = max(_MAX_SHIFT_RATIO * _size(X.p), _MAX_SHIFT_LINK_SIZES * _own_size(G))
    far = min(_MAX_SHIFT_RATIO * _size(places[first].p), most)
    if (len(below) > 1 and 0.0 not in (c, s)) or abs(normal) > far:
        c, s, normal = 1.0, 0.0, 0.0
    back, along = AxisRotation(2, c, -s), X.R @ Z

    def numbers(shift: Scalar) -> int:
        """How many components the shifts of this link and of its children have."""
        count = _length(_split(X.p, along, shift))
        for place, axis in zip(places, axes, strict=True):
            end = sub(back @ place.p, (0.0, 0.0, shift))
            count += _length(_split(end, back @ axis, 0.0)) if axis else _count(settled(end))
        return count

    return c, s, min((0.0, normal, -dot(X.p, along)), key=numbers)


def _turning_axis(joint: Joint) -> Vec | None:
    axis: Vec | None = getattr(joint, "axis", None)
    return axis if joint.can_turn_frame else None


def _size(p: Vec) -> float:
    return math.hypot(*map(float, p))


def _own_size(G: Inertia) -> float:
    """The distance at which a link's first moment is worth its moment of inertia."""
    h = _size(G.h)
    return max(abs(float(x)) for row in G.I for x in row) / h if h else math.inf


def _leaf(G: Inertia, X: Transform) -> tuple[Scalar, Scalar, Scalar]:
    """For a link that carries nothing: its first moment along x, and I_xz zero if there is a shift along z anyway."""
    x, y, _ = settled(G.h)
    if 0.0 in (x, y):
        return 1.0, 0.0, 0.0
    r = sqrt(x * x + y * y)
    c, s = x / r, y / r
    if G.m != 0.0 or not _count(settled((dot(X.p, X.R @ Z), 0.0, 0.0))):
        return c, s, 0.0
    shift = -transform_inertia(Transform(AxisRotation(2, c, -s)), G).I[0][2] / r
    return c, s, shift if abs(float(shift)) < _MAX_SHIFT_RATIO * _size(X.p) else 0.0


def _common_normal(u: Vec, p: Vec) -> tuple[Scalar, Scalar, Scalar]:
    """For an axis u through p: the direction of the common normal with z, and where on z it begins."""
    if 0.0 == u[0] == u[1]:
        if 0.0 in (p[0], p[1]):
            return 1.0, 0.0, p[2]
        r = sqrt(p[0] * p[0] + p[1] * p[1])
        return p[0] / r, p[1] / r, p[2]
    r = sqrt(u[0] * u[0] + u[1] * u[1])
    return -u[1] / r, u[0] / r, p[2] + u[2] * (p[2] * u[2] - dot(p, u)) / (r * r)


def _offset_revolute(X: Transform, c: Scalar, s: Scalar, shift: Scalar) -> tuple[Transform, OffsetRevolute]:
    """Placement and joint of X · Rz(q) · Rz(c, s) · Tz(shift): R = Rz Rx Rz, and a shift split by the axis."""
    u, x = _direction(X.R @ Z), X.R @ (1.0, 0.0, 0.0)
    r = sqrt(u[0] * u[0] + u[1] * u[1])
    b = (-u[1] / r, u[0] / r) if r > 0.0 else (1.0, 0.0)  # the first turn, then u = (sin b sin a, -cos b sin a, cos a)
    first, second = AxisRotation(2, *map(exactly, b)), AxisRotation(0, u[2], r)
    t = _direction(second.T @ (first.T @ x))  # (c, s, 0) of the last turn
    p, travel = _split(X.p, u, shift)
    parts = [constant_transform(first.rows, p), constant_transform(second.rows)]
    x, y, _ = _direction((t[0] * c - t[1] * s, t[0] * s + t[1] * c, 0.0))
    quarter = OffsetRevolute(x, y, 0.0, travel)
    return Product(*parts), quarter if 0.0 in (x, y) else OffsetRevolute(1.0, 0.0, math.atan2(y, x), travel)


def _split(p: Vec, u: Vec, shift: Scalar) -> tuple[Vec, Scalar]:
    """p + shift u = p' + t u in the fewest numbers: (p', t)."""
    steps = [shift, *(exactly(-p[k] / u[k]) for k in range(3) if abs(u[k]) > 1.0 / _MAX_SHIFT_RATIO)]
    ways = [(settled(add(p, scale(t, u))), shift - t) for t in steps]
    return min(ways, key=_length)


def _length(way: tuple[Vec, Scalar]) -> int:
    return _count(way[0]) + _count(settled((way[1], 0.0, 0.0)))


def _count(x: Vec) -> int:
    return sum(k != 0.0 for k in x)


def _direction(x: Vec) -> Vec:
    """A unit vector with zeros where there is rounding, and ±1 next to zeros."""
    y = settled(x)
    if _count(y) > 1:
        return y
    a, b, c = (math.copysign(1.0, float(k)) if k != 0.0 else 0.0 for k in y)
    return (a, b, c)


def _clean(X: Transform) -> Transform:
    rows = tuple(_direction(row) for row in X.R.rows)
    return constant_transform((rows[0], rows[1], rows[2]), settled(X.p))
