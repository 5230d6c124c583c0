"""The same dynamics with fewer numbers: inertias regrouped into base parameters, link frames where zeros are.

A joint that cannot move a part K of its link's inertia, because K S = 0 and K looks the same to the parent at every q,
may leave that part to the parent: a revolute joint leaves the mass, the first moment along its axis and one second
moment (`Joint.unmoved` has the rule of every kind). The link keeps seven parameters of ten, and what arrives at the
world is gone. Lin 1991 knows it of J_yy; Gautier & Khalil 1990 and Mayeda et al. 1990 have it of whole arms.

The frame of a link may stand anywhere on a revolute joint's axis and be turned about it, as long as nobody looks: joint
forces, accelerations and mass matrices stay as they are. Denavit and Hartenberg's choice, x along the common normal to
the next axis, leaves of a placement a shift along x, a turn about x and a shift along z. Where frames already stand
along the axes there is nothing to turn, and a shift is kept only if it gets rid of another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from qddot.blocks import Motions
from qddot.joints import Cylindrical, Helical, Joint, Planar, Prismatic, Revolute, Z
from qddot.model import Model
from qddot.rotation import IDENTITY, ZERO, AxisRotation, Vec, add, dot, mat_sub, scale, sub, transpose, z_to
from qddot.scalars import Scalar, cos, sin
from qddot.spatial import Inertia, Motion, Product, Slide, Transform, constant_transform, inertia_seen, zero_inertia

_FAR = 3.0  # times a placement's length: axes nearly parallel have their normal far away, and large numbers cancel
_ROUNDING = 1e-13  # of a length or a direction: what is smaller came from composing transforms


def simplified(model: Model) -> Model:
    """Regrouped and in frames of its own: for what does not look into the mechanism."""
    return reframed(regrouped(model))


def regrouped(model: Model) -> Model:
    """The model with all that parents can carry moved to them.

    Joint forces and accelerations are unchanged, also under external forces; momentum and centres of mass are not.
    """
    inertia = list(model.inertia)
    for i, p in model.inward():
        joint = model.joint[i]
        left = joint.unmoved(inertia[i])
        inertia[i] = _less(inertia[i], left)
        inertia[p] = inertia[p] + inertia_seen(Product(model.placement[i], joint.transform(joint.neutral())), left)
    inertia[0] = zero_inertia()
    return replace(model, inertia=tuple(inertia))


def _less(a: Inertia, b: Inertia) -> Inertia:
    return Inertia(a.m - b.m, sub(a.h, b.h), mat_sub(a.I, b.I))


# ---- frames ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hinge(Joint):
    """A revolute joint about z whose child frame stands `travel` along the axis, and turned about it: by quarters, of
    which (c, s) are cosine and sine and which cost nothing, and by `offset`.
    """

    c: float = 1.0
    s: float = 0.0
    offset: Scalar = 0.0
    travel: Scalar = 0.0
    kind = "hinge"
    nq = nv = 1
    is_angle = (True,)

    def transform(self, q: Sequence[Scalar]) -> Transform:
        angle = q[0] + self.offset
        c, s = cos(angle), sin(angle)
        turn = AxisRotation(2, self.c * c - self.s * s, self.s * c + self.c * s)
        return Product(Transform(turn), _along_z(self.travel))

    def S(self, q: Sequence[Scalar]) -> Motions:
        return Motions((Motion(Z, ZERO),))

    def unmoved(self, G: Inertia) -> Inertia:
        return Revolute().unmoved(G)


def reframed(model: Model) -> Model:
    """The model with the axes of its joints along z and the frames of revolute links where placements are short.

    Poses, frames and external forces refer to frames that are gone: it is for joint forces and accelerations only. Loops
    are kept, their frames where they were.
    """
    gauge = [Transform() for _ in model.parent]  # the new frame of each link in its old one
    below: list[list[int]] = [[] for _ in model.parent]
    size = [1 for _ in model.parent]
    for i, p in model.inward():
        below[p].insert(0, i)
        size[p] += size[i]
    placement, joint = list(model.placement), list(model.joint)
    for i, p in model.outward():
        X, own = gauge[p].inverse() @ model.placement[i], model.joint[i]
        if isinstance(own, Revolute):
            gauge[i] = Transform(z_to(own.axis))
            c, s, shift = _choice(model, i, X @ gauge[i], gauge[i], sorted(below[i], key=lambda k: -size[k]))
            gauge[i] = gauge[i] @ Transform(AxisRotation(2, c, s), (0.0, 0.0, shift))
            placement[i], joint[i] = _hinge(X @ Transform(z_to(own.axis)), c, s, shift)
        elif isinstance(own, Prismatic | Helical | Cylindrical):
            gauge[i] = Transform(z_to(own.axis))
            placement[i], joint[i] = _clean(X @ gauge[i]), replace(own, axis=Z)
        elif isinstance(own, Planar):
            gauge[i] = Transform(constant_transform(transpose((*own.basis, own.axis))).R)
            placement[i], joint[i] = _clean(X @ gauge[i]), Planar()
        else:
            placement[i] = _clean(X)
    inertia = [_without_rounding(inertia_seen(B.inverse(), I)) for B, I in zip(gauge, model.inertia, strict=True)]
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


@dataclass(frozen=True)
class Still(Joint):
    """A revolute joint about z whose child's frame does not turn with it; what does is in placements and inertias."""

    kind = "still"
    nq = nv = 1
    is_angle = (True,)

    def transform(self, q: Sequence[Scalar]) -> Transform:
        return Transform()

    def S(self, q: Sequence[Scalar]) -> Motions:
        return Motions((Motion(Z, ZERO),))


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
            assert isinstance(own, Hinge)
            before = angle[p] if i in parallel else 0.0
            angle[i] = before + (coordinates[i][0] + (math.atan2(own.s, own.c) + own.offset))
            placement[i], joint[i] = Product(placement[i], _along_z(own.travel)), Still()
            inertia[i] = inertia_seen(Transform(AxisRotation(2, cos(angle[i]), sin(angle[i]))), model.inertia[i])

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
    hinged = {i for i, _ in model.outward() if isinstance(model.joint[i], Hinge)}
    return {i for i in flat & hinged if model.parent[i] in hinged}


def _choice(model: Model, i: int, X: Transform, turned: Transform, below: list[int]) -> tuple[float, float, float]:
    """Cosine and sine of the turn of a revolute link's frame about its axis, and its shift along it.

    `X` is the joint's frame with its axis along z, in the parent; `turned` the link's frame with its axis along z;
    `below` are the links on this one, the one that carries most first.
    """
    if not below:
        return _leaf(inertia_seen(turned.inverse(), model.inertia[i]), X)
    places = [turned.inverse() @ model.placement[c] for c in below]
    axes = [
        _short(x.R @ j.axis) if isinstance(j := model.joint[c], Revolute) else None
        for c, x in zip(below, places, strict=True)
    ]
    if not any(axes):
        return 1.0, 0.0, 0.0
    first = next(k for k, axis in enumerate(axes) if axis)
    c, s, normal = _common_normal(axes[first] or Z, places[first].p)
    if (len(below) > 1 and 0.0 not in (c, s)) or abs(normal) > _FAR * math.hypot(*places[first].p):
        c, s, normal = 1.0, 0.0, 0.0
    back, along = AxisRotation(2, c, -s), X.R @ Z

    def numbers(shift: float) -> int:
        """How many components the shifts of this link and of its children have."""
        count = _length(_split(X.p, along, shift))
        for place, axis in zip(places, axes, strict=True):
            end = sub(back @ place.p, (0.0, 0.0, shift))
            count += _length(_split(end, back @ axis, 0.0)) if axis else _count(end)
        return count

    return c, s, min((0.0, normal, -dot(X.p, along)), key=numbers)


def _leaf(G: Inertia, X: Transform) -> tuple[float, float, float]:
    """For a link that carries nothing: its first moment along x, and I_xz zero if there is a shift along z anyway."""
    x, y, _ = G.h
    r = math.hypot(x, y)
    if r == 0.0 or 0.0 in (x, y):
        return 1.0, 0.0, 0.0
    c, s = x / r, y / r
    if G.m != 0.0 or abs(dot(X.p, X.R @ Z)) < _ROUNDING:
        return c, s, 0.0
    shift = -inertia_seen(Transform(AxisRotation(2, c, -s)), G).I[0][2] / r
    return c, s, shift if abs(shift) < _FAR * math.hypot(*X.p) else 0.0


def _common_normal(u: Vec, p: Vec) -> tuple[float, float, float]:
    """For an axis u through p: the direction of the common normal with z, and where on z it begins."""
    k = u[2]
    if abs(k) > 1.0 - _ROUNDING:
        r = math.hypot(p[0], p[1])
        return (1.0, 0.0, p[2]) if 0.0 in (p[0], p[1]) else (p[0] / r, p[1] / r, p[2])
    r = math.hypot(u[0], u[1])
    return -u[1] / r, u[0] / r, p[2] + k * (p[2] * k - dot(p, u)) / (1.0 - k * k)


def _hinge(X: Transform, c: float, s: float, shift: float) -> tuple[Transform, Hinge]:
    """Placement and joint of X · Rz(q) · Rz(c, s) · Tz(shift): R = Rz Rx Rz, and a shift split by the axis."""
    u, x = _short(X.R @ Z), X.R @ (1.0, 0.0, 0.0)
    r = math.hypot(u[0], u[1])
    b = (-u[1] / r, u[0] / r) if r > 0.0 else (1.0, 0.0)  # the first turn, then u = (sin b sin a, -cos b sin a, cos a)
    first, second = AxisRotation(2, *b), AxisRotation(0, u[2], r)
    t = _short(second.T @ (first.T @ x))  # (c, s, 0) of the last turn
    p, travel = _split(X.p, u, shift)
    parts = [constant_transform(first.rows, p), constant_transform(second.rows)]
    x, y, _ = _short((t[0] * c - t[1] * s, t[0] * s + t[1] * c, 0.0))
    joint = Hinge(x, y, 0.0, travel) if 0.0 in (x, y) else Hinge(1.0, 0.0, math.atan2(y, x), travel)
    return Product(*parts), joint


def _split(p: Vec, u: Vec, shift: float) -> tuple[Vec, float]:
    """p + shift u = p' + t u in the fewest numbers: (p', t)."""
    steps = [shift, *(-p[k] / u[k] for k in range(3) if abs(u[k]) > 1.0 / _FAR)]
    ways = [(_short(add(p, scale(t, u)), p), shift - t) for t in steps]
    return min(ways, key=_length)


def _length(way: tuple[Vec, float]) -> int:
    return _count(way[0]) + (abs(way[1]) > _ROUNDING)


def _along_z(z: Scalar) -> Transform:
    return Transform() if isinstance(z, float) and z == 0.0 else Slide((0.0, 0.0, z))


def _count(x: Vec) -> int:
    return sum(abs(k) > _ROUNDING for k in x)


def _short(x: Vec, like: Vec = Z) -> Vec:
    """x with what is rounding put right: components that are zero, and one that is ±1 next to zeros."""
    size = max(abs(k) for k in (*x, *like))
    y = tuple(0.0 if abs(k) < _ROUNDING * size else float(k) for k in x)
    if like is Z and sum(k != 0.0 for k in y) == 1:
        y = tuple(math.copysign(1.0, k) if k else 0.0 for k in y)
    return (y[0], y[1], y[2])


def _without_rounding(G: Inertia) -> Inertia:
    """An inertia without what is left where a frame was chosen to make it vanish."""
    largest = max((x for row in G.I for x in row), key=abs)
    x, y, z = (_short(row, (largest, 0.0, 0.0)) for row in G.I)
    return Inertia(G.m, _short(G.h, G.h), (x, y, z))


def _clean(X: Transform) -> Transform:
    rows = tuple(_short(row) for row in X.R.rows)
    return constant_transform((rows[0], rows[1], rows[2]), _short(X.p, X.p))
