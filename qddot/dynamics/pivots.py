"""Which pivots of the mass matrix can vanish, and below what they are nothing but rounding.

Eliminating M from the leaves inward, as every formulation of forward dynamics does in its way, divides by a pivot for each
DoF: the inertia that it feels while the DoF it carries yield. That is at least the inertia of its own link, and
at most M_kk. Where the link's own is well above the rounding of M_kk, nothing is to be watched. It may be as small as
rounding where a link has no inertia about its joint (a massless link between two hinges), where several joints share a
coordinate, and where the axes of a joint come to lie in a plane or a line (three angles at gimbal lock, a rotation vector
of length 2π, a user's own joint). Such pivots have a floor, `Model.pivot_floor`, below which they give NaN.

How large M_kk is, is taken from a few random configurations; a floor is many times the rounding of that in the type
that is computed with. Which pivots have one does not depend on the type.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

from qddot.dynamics.conditioning import felt
from qddot.mechanism.model import Model
from qddot.scalars import Scalar
from qddot.spatial.joint_blocks import Vector

FLOOR = 1e-12  # of M_kk: a pivot of this size has three digits left
SINGLE_FLOOR = 1e-5  # the same for float32, where it has two: three would refuse all within two degrees of gimbal lock


def guarded(model: Model, numbers: Model | None = None, dtype: str = "float64") -> Model:
    """The model with floors for the pivots that can vanish.

    `numbers` is the same model where some inertias of `model` are not known yet: floors grow with the mass that is carried.
    """
    unit = 1.0 if dtype == "float64" else SINGLE_FLOOR / FLOOR
    floors = tuple(Vector(unit * x for x in row) for row in _floors(model if numbers is None else numbers))
    if numbers is not None:
        more = [_ratio(x, y) for x, y in zip(_carried(model), _carried(numbers), strict=True)]
        floors = tuple(Vector(x * k if x else 0.0 for x in row) for k, row in zip(more, floors, strict=True))
    return replace(model, pivot_floor=floors)


@lru_cache(maxsize=64)
def _floors(model: Model) -> tuple[Vector, ...]:
    largest = _largest(model)
    out = [Vector()]
    for i, _ in model.outward():
        joint = model.joint[i]
        least = 0.0 if model.is_coupled else joint.least_inertia(model.inertia[i], model.armature[i])
        safe = joint.never_folding
        floors = (0.0 if k in safe or least > 2.0 * FLOOR * x else FLOOR * x for k, x in enumerate(largest[i]))
        out.append(Vector(floors))
    return tuple(out)


def _largest(model: Model) -> list[Vector]:
    """The largest M_kk of each joint's degrees of freedom at some random configurations."""
    found = list(felt(model).inertia)
    return _shared(model, found) if model.is_coupled else found


def _shared(model: Model, largest: list[Vector]) -> list[Vector]:
    """A coordinate that several joints share feels what all of them do."""
    total: dict[int, float] = {}
    single = [i for i, _ in model.outward() if model.joint[i].nv == 1]
    for i in single:
        slot = model.slots[i]
        own = math.sqrt(max(0.0, largest[i][0])) * abs(1.0 if slot.factor is None else slot.factor)
        total[slot.v.start] = total.get(slot.v.start, 0.0) + own
    for i in single:
        largest[i] = Vector((total[model.slots[i].v.start] ** 2,))
    return largest


def _carried(model: Model) -> list[Scalar]:
    """The mass that each joint carries."""
    mass: list[Any] = [G.m for G in model.inertia]
    for i, p in model.inward():
        mass[p] = mass[p] + mass[i]
    return mass


def _ratio(x: Scalar, y: float) -> Scalar:
    return x / y if y else 1.0
