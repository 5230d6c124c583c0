"""What a scalar p is that dynamics are differentiated by: how everything that the recursions start from changes with it.

Kim 2012, section 4, (89)-(92), with K12 of the errata. Zeros that are plain numbers vanish when the code is traced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from qddot.algorithms.passive_forces import joint_derivatives
from qddot.mechanism.model import Model
from qddot.scalars import Scalar, split
from qddot.spatial import Ad_inv, Force, Inertia, Motion, force, motion, zero_force, zero_inertia, zero_motion
from qddot.spatial.joint_blocks import Motions, Vector, sum_motions


@dataclass
class Change:
    """Kim (92): how everything that the recursions start from changes with p. Lists run over the links, the world first."""

    h: list[Motion]
    S: list[Motions]
    Sdot_v: list[Motion]
    inertia: list[Inertia]
    F_ext: list[Force]
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
        F_ext=[zero_force() for _ in links],
        v=list(none),
        a=list(none),
        tau=list(none),
        passive=list(none),
        base=zero_motion(),
    )


def along_coordinates(model: Model, q: Any, v: Any, e: Any) -> Change:
    """p moves q along e, in the tangent space: ∂h_i/∂p is S_i e_i, Kim (90), and zero where e has no part, (91)."""
    change, x, u = _nothing(model), model.coordinates(q), model.velocities(v)
    for i, d in _parts(model, e):
        joint, n = model.joint[i], range(model.joint[i].nv)
        change.h[i] = joint.S(x[i]) @ d
        slopes = [joint.S_slope(x[i], j) for j in n]
        change.S[i] = Motions(sum_motions(d[j] * slopes[j][k] for j in n) for k in n)
        change.Sdot_v[i] = sum_motions(d[j] * joint.bias_slope(x[i], u[i], j) for j in n)
    change.passive = _passive(model, x, u, e, 0)
    return change


def along_velocities(model: Model, q: Any, v: Any, e: Any) -> Change:
    """p changes q̇ along e."""
    change, x, u = _nothing(model), model.coordinates(q), model.velocities(v)
    for i, d in _parts(model, e):
        joint, n = model.joint[i], range(model.joint[i].nv)
        change.v[i] = d
        rates = joint.S_dot(x[i], u[i])
        change.Sdot_v[i] = sum_motions(d[j] * (joint.S_slope(x[i], j) @ u[i] + rates[j]) for j in n)
    change.passive = _passive(model, x, u, e, 1)
    return change


def along_accelerations(model: Model, e: Any) -> Change:
    """p changes q̈ along e."""
    change = _nothing(model)
    for i, d in _parts(model, e):
        change.a[i] = d
    return change


def along_forces(model: Model, e: Any) -> Change:
    """p changes τ along e."""
    change = _nothing(model)
    for i, d in _parts(model, e):
        change.tau[i] = d if model.mimic[i] is None else change.tau[i]
    return change


def by_coordinate(model: Model, q: Any, v: Any, k: int) -> Change:
    """p = q^k in the tangent space."""
    return along_coordinates(model, q, v, np.eye(model.nv)[k])


def by_velocity(model: Model, q: Any, v: Any, k: int) -> Change:
    """p = q̇^k."""
    return along_velocities(model, q, v, np.eye(model.nv)[k])


def by_acceleration(model: Model, k: int) -> Change:
    """p = q̈^k."""
    return along_accelerations(model, np.eye(model.nv)[k])


def by_force(model: Model, k: int) -> Change:
    """p = τ^k."""
    return along_forces(model, np.eye(model.nv)[k])


def by_inertia(model: Model, i: int, unit: Inertia) -> Change:
    """p is the amount of a unit inertia that link i has."""
    change = _nothing(model)
    change.inertia[i] = unit
    return change


def by_external_force(model: Model, i: int, k: int) -> Change:
    """p = F_ext^k of link i, in its own frame: moment, then force."""
    change = _nothing(model)
    change.F_ext[i] = force([float(j == k) for j in range(6)])
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


def with_external(model: Model, change: Change, dF_ext: Any) -> Change:
    """The same p where external forces depend on it: ∂F_ext/∂p, (n_links, 6) in the links' own frames."""
    own = zip(change.F_ext, model.external(dF_ext), strict=True)
    return replace(change, F_ext=[F + dF for F, dF in own])


def _parts(model: Model, e: Any) -> Iterator[tuple[int, Vector]]:
    """(link, e_i) of the joints that a direction over the degrees of freedom has to do with."""
    parts = model.velocities(e)
    return ((i, parts[i]) for i, _ in model.outward() if not all(isinstance(x, float) and x == 0.0 for x in parts[i]))


def _passive(model: Model, x: Any, u: Any, e: Any, which: int) -> list[Vector]:
    """What passive forces change by, joint by joint; none for those that follow another."""
    total = model.joint_vector("passive")
    for i, d in _parts(model, e):
        columns = [joint_derivatives(model, i, x[i], u[i], k)[which] for k in range(len(d))]
        total[i] = reduce(Vector.__add__, (d[k] * column for k, column in enumerate(columns)))
    found = split(total.stack())
    own = [i > 0 and model.mimic[i] is None for i in range(len(model.mimic))]
    return [Vector(found[s.v]) if own[i] else Vector((0.0,) * model.joint[i].nv) for i, s in enumerate(model.slots)]


def change_of(model: Model, q: Any, v: Any, by: tuple[Any, ...]) -> Change:
    """What changes with p: ("q", k), "v", "a" or "tau", ("inertia", i, ten), ("placement", i, twist), ("gravity", g),
    ("f_ext", i, k).
    """
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
        case "f_ext", i, k:
            return by_external_force(model, i, k)
        case "placement", i, twist:
            return by_placement(model, q, i, motion(twist))
        case "gravity", g:
            return by_gravity(model, g)
    raise ValueError(f"{by!r} is no scalar that dynamics depend on")
