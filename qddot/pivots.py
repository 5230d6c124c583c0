"""Which pivots of the mass matrix can vanish, and below what they are nothing but rounding.

Eliminating M from the leaves inward, as every formulation of forward dynamics does in its way, divides by a pivot for each
freedom: the inertia that it feels while the freedoms it carries yield. That is at least the inertia of its own link, and
at most M_kk. Where the link's own is well above the rounding of the largest M_kk there can be, nothing is to be watched. It
may be as small as rounding where a link has no inertia about its joint (a massless link between two hinges), where several
joints share a coordinate, and where the axes of a joint come to lie in a plane or a line (three angles at gimbal lock, a
rotation vector of length 2π, a user's own joint). Such pivots have a floor, `Model.pivot_floor`, below which they give NaN.

| code    | meaning                                                                                |
|---------|------------------------------------------------------------------------------------------|
| m, H, J | mass of what link i carries, bounds on its first and second moment about the link's origin |
| far     | a bound on how far a link's origin can be from its parent's                               |
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from qddot.blocks import Vector, apply
from qddot.joints import Joint, Own, SphericalEuler, SphericalExponential, Universal
from qddot.model import Model
from qddot.rotation import dot
from qddot.scalars import Scalar, sqrt

FLOOR = 1e-12  # of the largest M_kk: a pivot of this size has three digits left
_FOLDING = (SphericalEuler, SphericalExponential, Own)  # joints whose axes depend on q, and on each other somewhere
_TURN = 2.0 * math.pi  # for a screw without limits
_SAMPLES = 5  # configurations at which a user's joint is looked at


def guarded(model: Model, numbers: Model | None = None) -> Model:
    """The model with floors for the pivots that can vanish; `numbers` is the same one where some of its are not known yet."""
    numbers = model if numbers is None else numbers
    watched = _watched(numbers)
    largest = _largest(model, _reach(numbers)) if any(watched) else [Vector((0.0,) * j.nv) for j in model.joint]
    floors = (Vector(FLOOR * x if k else 0.0 for x in row) for k, row in zip(watched, largest, strict=True))
    return replace(model, pivot_floor=tuple(floors))


@lru_cache(maxsize=64)
def _watched(model: Model) -> tuple[bool, ...]:
    """For each link whether a pivot of its joint may be rounding."""
    largest = _largest(model, _reach(model))
    out = [False]
    for i, _ in model.outward():
        least = 0.0 if model.is_coupled else _least_own(model, i)
        out.append(bool(len(largest[i])) and not least > 2.0 * FLOOR * max(largest[i]))
    return tuple(out)


def _least_own(model: Model, i: int) -> float:
    """The least inertia that joint i feels of its own link, in any direction and configuration."""
    joint = model.joint[i]
    if isinstance(joint, _FOLDING):
        return 0.0
    S = joint.S(joint.neutral())
    A = np.array(S.T.on(apply(model.inertia[i], S)), dtype=float).reshape(len(S), len(S))
    if isinstance(joint, Universal):  # its axes turn in the link, and keep their angle
        across = 1.0 - abs(dot(joint.first, joint.second))
        return across * float(np.linalg.eigvalsh(np.array(model.inertia[i].I, dtype=float))[0])
    return float(np.linalg.eigvalsh(A + np.diag(model.armature[i]))[0]) if len(S) else math.inf


def _reach(model: Model) -> list[float]:
    """How far each link's origin can be from its parent's; joints that travel without limits go as far as the robot."""
    shifts = [math.hypot(*map(float, T.p)) for T in model.placement]
    size = sum(shifts) or 1.0
    return [0.0, *(shifts[i] + _travel(model, i, size) for i, _ in model.outward())]


def _travel(model: Model, i: int, size: float) -> float:
    joint, limits = model.joint[i], model.limits[i]
    sliding = [k for k, angle in enumerate(joint.is_angle) if not angle] or ([0] if hasattr(joint, "pitch") else [])
    ends = [max(abs(limits.lower[k]), abs(limits.upper[k])) for k in sliding]
    if hasattr(joint, "pitch"):
        return abs(joint.pitch) * (ends[0] if math.isfinite(ends[0]) else _TURN)
    return math.hypot(*(x if math.isfinite(x) else size for x in ends))


def _largest(model: Model, far: list[float]) -> list[Vector]:
    """A bound on M_kk for each freedom of each link's joint."""
    m: list[Scalar] = [G.m for G in model.inertia]
    H: list[Scalar] = [_length(G.h) for G in model.inertia]
    J: list[Scalar] = [G.I[0][0] + G.I[1][1] + G.I[2][2] for G in model.inertia]
    out: list[Vector] = [Vector()] * len(m)
    for i, p in model.inward():
        turning = (2.0 * (w * J[i] + v * m[i]) for w, v in _squares(model.joint[i]))
        out[i] = Vector(x + rotor for x, rotor in zip(turning, model.armature[i], strict=True))
        m[p], H[p] = m[p] + m[i], H[p] + H[i] + far[i] * m[i]
        J[p] = J[p] + J[i] + (2.0 * far[i]) * H[i] + (far[i] * far[i]) * m[i]
    return _shared(model, out) if model.is_coupled else out


def _length(h: Any) -> Scalar:
    return sqrt(dot(h, h))


def _squares(joint: Joint) -> list[tuple[float, float]]:
    """Of each column of S the squares of its parts. Of a user's joint, whose S may be anything, the largest of a few."""
    states = [joint.neutral()]
    if isinstance(joint, Own):
        rng = np.random.default_rng(0)
        states += [joint.random(rng) for _ in range(_SAMPLES)]
    columns = zip(*(joint.S(q) for q in states), strict=True)
    return [(max(dot(s.w, s.w) for s in column), max(dot(s.v, s.v) for s in column)) for column in columns]


def _shared(model: Model, largest: list[Vector]) -> list[Vector]:
    """A coordinate that several joints share feels what all of them do."""
    total: dict[int, Scalar] = {}
    for i, _ in model.outward():
        if model.joint[i].nv == 1:
            slot = model.slots[i]
            own = sqrt(largest[i][0]) if slot.factor is None else abs(slot.factor) * sqrt(largest[i][0])
            total[slot.v.start] = total[slot.v.start] + own if slot.v.start in total else own
    single = (model.joint[i].nv == 1 for i in range(len(largest)))
    return [
        Vector((total[model.slots[i].v.start] * total[model.slots[i].v.start],)) if k else largest[i]
        for i, k in enumerate(single)
    ]
