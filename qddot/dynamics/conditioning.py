"""How well a mass matrix can be solved with: how its inertias are graded, and which of its pivots can vanish.

The grading decides between formulations and between rewritings.

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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qddot.algorithms.composite_body import mass_matrix
from qddot.mechanism.model import Model
from qddot.scalars import Scalar
from qddot.spatial import transform_inertia
from qddot.spatial.joint_blocks import Vector

_MANY = 60  # degrees of freedom: above them articulated bodies are cheaper than a factored mass matrix
_ILL = 1e4  # a condition number: what costs four digits of sixteen
_GRADED = 1e7  # a condition number that no robot of links of like size has
_THIN = 1e4  # of moments of inertia: a hundred times as long as thick
_STATES = 8
FLOOR = 1e-12  # of M_kk: a pivot of this size has three digits left
SINGLE_FLOOR = 1e-5  # the same for float32, where it has two: three would refuse all within two degrees of gimbal lock


def _configurations(model: Model) -> NDArray[Any]:
    rng = np.random.default_rng(0)
    own = [model.joint[i] for i, _ in model.outward() if model.mimic[i] is None]
    return np.array([[x for joint in own for x in joint.random(rng)] for _ in range(_STATES)])


def is_ill_conditioned(model: Model) -> bool:
    """Whether solving with M loses digits that the articulated-body algorithm keeps (docs/accuracy.md)."""
    return _condition(model) > _ILL


def is_graded(model: Model) -> bool:
    """Whether M is so ill-conditioned that links differ by orders of magnitude: rewriting the model would cost digits.

    A chain of sixty equal links has 5e5.
    """
    return _condition(model) > _GRADED


@lru_cache(maxsize=16)
def _condition(model: Model) -> float:
    """The condition number of M scaled to a unit diagonal, at a few random configurations: links that differ much in size
    and mass do no harm by themselves.
    """
    if not 0 < model.nv <= _MANY:
        return 1.0
    q = _configurations(model)
    M = np.broadcast_to(mass_matrix(model, q), (_STATES, model.nv, model.nv))
    with np.errstate(all="ignore"):
        size = np.sqrt(np.einsum("...kk->...k", M))
        scaled = M / (size[..., :, None] * size[..., None, :])
    return float(np.max(np.linalg.cond(scaled))) if np.isfinite(scaled).all() else np.inf


class Felt(NamedTuple):
    """What the joints feel of all that they carry, the largest of some random configurations."""

    inertia: tuple[Vector, ...]  # M_kk of each joint's degrees of freedom
    is_thin: bool  # whether some joint carries much more inertia across its axes than about them


@lru_cache(maxsize=16)
def felt(model: Model) -> Felt:
    """By composite bodies. Where a joint carries something long and thin, turning frames costs its small inertia digits:
    the plain algorithm has exact zeros where bodies lie along an axis, and in turned frames large numbers cancel.
    """
    q = _configurations(model)
    T, S, composite, thin = model.transforms(q), model.axes(q), list(model.inertia), False
    out = [Vector()] * len(T)
    for i, p in model.inward():
        rotors, G = zip(S[i], model.armature[i], strict=True), composite[i]
        out[i] = Vector(float(np.max(s.dot(G @ s))) + rotor for s, rotor in rotors)
        turning = [s for s in S[i] if any(np.any(x != 0.0) for x in s.w)]
        if turning:
            blocks = np.broadcast_arrays(*(a.dot(G @ b) for a in turning for b in turning))
            A = np.stack(blocks, axis=-1).reshape(-1, len(turning), len(turning))
            least = np.max(np.linalg.eigvalsh(A)[:, 0]) if np.isfinite(A).all() else 0.0
            thin |= bool(np.max(G.I[0][0] + G.I[1][1] + G.I[2][2]) > _THIN * max(0.0, float(least)))
        composite[p] = composite[p] + transform_inertia(T[i], G)
    return Felt(tuple(out), thin)


# ---- pivots ----------------------------------------------------------------------------------------------------------


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
