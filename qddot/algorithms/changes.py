"""What a scalar p is that dynamics are differentiated by: how everything that the recursions start from changes with it.

Kim 2012, section 4, (89)-(92), with K12 of the errata. Zeros that are plain numbers vanish when the code is traced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from qddot.algorithms.passive import passive_derivatives
from qddot.blocks import Motions, Vector
from qddot.model import Model
from qddot.scalars import Scalar, split
from qddot.spatial import Ad_inv, Inertia, Motion, motion, zero_inertia, zero_motion


@dataclass
class Change:
    """Kim (92): how everything that the recursions start from changes with p. Lists run over the links, the world first."""

    h: list[Motion]
    S: list[Motions]
    Sdot_v: list[Motion]
    inertia: list[Inertia]
    v: list[Vector]
    a: list[Vector]
    tau: list[Vector]
    passive: list[Vector]
    base: Motion


def _nothing(model: Model) -> Change:
    """p that enters nowhere."""
    links = range(len(model.parent))
    none = [Vector((0.0,) * model.joint[i].nv) for i in links]
    return Change(
        h=[zero_motion() for _ in links],
        S=[Motions(zero_motion() for _ in none[i]) for i in links],
        Sdot_v=[zero_motion() for _ in links],
        inertia=[zero_inertia() for _ in links],
        v=list(none),
        a=list(none),
        tau=list(none),
        passive=list(none),
        base=zero_motion(),
    )


def _joints_of(model: Model, k: int) -> list[tuple[int, int, float]]:
    """(link, its freedom, factor) of the joints that freedom k of v moves: several where others follow it."""
    own = ((i, model.slots[i]) for i, _ in model.outward())
    return [(i, k - s.v.start, 1.0 if s.factor is None else s.factor) for i, s in own if s.v.start <= k < s.v.stop]


def _unit(n: int, k: int, x: Scalar) -> Vector:
    return Vector(x if j == k else 0.0 for j in range(n))


def by_coordinate(model: Model, q: Any, v: Any, k: int) -> Change:
    """p = q^k in the tangent space: ∂h_i/∂p is the joint's own column of S, Kim (90), and zero elsewhere, (91)."""
    change, x, u = _nothing(model), model.coordinates(q), model.velocities(v)
    for i, j, factor in _joints_of(model, k):
        joint = model.joint[i]
        change.h[i] = factor * joint.S(x[i])[j]
        change.S[i] = Motions(factor * s for s in joint.S_slope(x[i], j))
        change.Sdot_v[i] = factor * joint.bias_slope(x[i], u[i], j)
    change.passive = _column(model, passive_derivatives(model, q, v)[0], k)
    return change


def by_velocity(model: Model, q: Any, v: Any, k: int) -> Change:
    """p = q̇^k."""
    change, x, u = _nothing(model), model.coordinates(q), model.velocities(v)
    for i, j, factor in _joints_of(model, k):
        joint = model.joint[i]
        change.v[i] = _unit(joint.nv, j, factor)
        change.Sdot_v[i] = factor * (joint.S_slope(x[i], j) @ u[i] + joint.S_dot(x[i], u[i])[j])
    change.passive = _column(model, passive_derivatives(model, q, v)[1], k)
    return change


def by_acceleration(model: Model, k: int) -> Change:
    """p = q̈^k."""
    change = _nothing(model)
    for i, j, factor in _joints_of(model, k):
        change.a[i] = _unit(model.joint[i].nv, j, factor)
    return change


def by_force(model: Model, k: int) -> Change:
    """p = τ^k."""
    change = _nothing(model)
    for i, j, _ in _joints_of(model, k):
        if model.mimic[i] is None:
            change.tau[i] = _unit(model.joint[i].nv, j, 1.0)
    return change


def by_inertia(model: Model, i: int, unit: Inertia) -> Change:
    """p is the amount of a unit inertia that link i has."""
    change = _nothing(model)
    change.inertia[i] = unit
    return change


def by_placement(model: Model, q: Any, i: int, X: Motion) -> Change:
    """p moves the placement P of joint i as P exp(p X); all behind goes with it. Kim (89); (91) does not hold (K12)."""
    change = _nothing(model)
    change.h[i] = Ad_inv(model.joint[i].transform(model.coordinates(q)[i]), X)
    return change


def by_gravity(model: Model, g: Sequence[Scalar]) -> Change:
    """p is the amount of an acceleration g of gravity."""
    change = _nothing(model)
    change.base = Motion((0.0, 0.0, 0.0), (-g[0], -g[1], -g[2]))
    return change


def _column(model: Model, matrix: NDArray[Any], k: int) -> list[Vector]:
    """A column over the freedoms, joint by joint; none for those that follow another."""
    x = split(matrix[..., :, k])
    own = [i > 0 and model.mimic[i] is None for i in range(len(model.parent))]
    return [Vector(x[model.slots[i].v]) if own[i] else Vector((0.0,) * joint.nv) for i, joint in enumerate(model.joint)]


def change_of(model: Model, q: Any, v: Any, by: tuple[Any, ...]) -> Change:
    """What changes with p: ("q", k), "v", "a" or "tau", ("inertia", i, ten), ("placement", i, twist), ("gravity", g)."""
    match by:
        case "q", k:
            return by_coordinate(model, q, v, k)
        case "v", k:
            return by_velocity(model, q, v, k)
        case "a", k:
            return by_acceleration(model, k)
        case "tau", k:
            return by_force(model, k)
        case "inertia", i, (m, x, y, z, xx, xy, yy, xz, yz, zz):
            return by_inertia(model, i, Inertia(m, (x, y, z), ((xx, xy, xz), (xy, yy, yz), (xz, yz, zz))))
        case "placement", i, twist:
            return by_placement(model, q, i, motion(twist))
        case "gravity", g:
            return by_gravity(model, g)
    raise ValueError(f"{by!r} is no scalar that dynamics depend on")
