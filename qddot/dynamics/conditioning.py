"""How a robot's inertias are graded: the measures by which formulations and rewritings are chosen."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qddot.algorithms.composite_body import mass_matrix
from qddot.mechanism.model import Model
from qddot.spatial import transform_inertia
from qddot.spatial.joint_blocks import Vector

_MANY = 60  # degrees of freedom: above them articulated bodies are cheaper than a factored mass matrix
_ILL = 1e4  # a condition number: what costs four digits of sixteen
_GRADED = 1e7  # a condition number that no robot of links of like size has
_THIN = 1e4  # of moments of inertia: a hundred times as long as thick
_STATES = 8


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
