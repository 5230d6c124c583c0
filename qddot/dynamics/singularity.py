"""Motions that move no mass: which joints make a mass matrix singular, and how to say so.

M = U D Uᵀ, eliminated from the leaves inward, has a vanishing pivot where the DoF behind can follow a DoF so that
nothing that has mass or inertia moves. The motion itself is a null vector of M: one for the DoF, and for those behind
it what they yield by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.errors import NumericalOverflowError, SingularMassMatrixError
from qddot.mechanism.model import Model

Array = NDArray[Any]
Motions = Mapping[int, Array]  # null vectors by the degree of freedom whose pivot vanishes

_ROUNDING = 1e-12  # of a diagonal entry of M: a thousand times the rounding of its elimination
NEAR = 1e-3  # of a diagonal entry of M: within the step of a simulation
_PART = 1e-6  # of a null vector, scaled to a unit diagonal of M: what is less does not belong to it
_TERMS = 6  # of a motion that are written out


def null_motions(M: Array, tolerance: float = _ROUNDING) -> dict[int, Array]:
    """The motions that move no mass, of one mass matrix."""
    A, out, kept = M.copy(), dict[int, Array](), list[int]()
    for k in reversed(range(len(A))):
        if A[k, k] > tolerance * M[k, k]:
            A[:k, :k] -= np.outer(A[:k, k], A[k, :k]) / A[k, k]
            kept.insert(0, k)
            continue
        motion = np.zeros(len(A))
        motion[k] = 1.0
        motion[kept] = -np.linalg.lstsq(M[np.ix_(kept, kept)], M[kept, k], rcond=None)[0] if kept else 0.0
        size = np.abs(motion) * np.sqrt(np.abs(np.diag(M)))
        motion[(size < _PART * np.max(size)) & (np.arange(len(A)) != k)] = 0.0
        out[k] = motion
        A[:k, k] = A[k, :k] = 0.0
    return out


def always_null(matrices: Sequence[Array]) -> dict[int, Array]:
    """The motions that move no mass in all of several configurations; their vectors are those of the first."""
    found = [null_motions(M) for M in matrices]
    return {k: motion for k, motion in found[0].items() if all(k in other for other in found[1:])}


def joints_of(model: Model, motions: Motions) -> tuple[str, ...]:
    """The joints that take part in any of the motions, in order."""
    moving = {k for motion in motions.values() for k in np.flatnonzero(motion)}
    own = (i for i, _ in model.outward() if model.mimic[i] is None)
    return tuple(model.joint_names[i] for i in own if moving & {*range(model.slots[i].v.start, model.slots[i].v.stop)})


def said(model: Model, motions: Motions) -> str:
    """The motions in words: `joint 'spin'`, or `the motion 'j1' - 0.5 'j2'`."""
    names = [name for i, _ in model.outward() if model.mimic[i] is None for name in _dof_names(model, i)]
    return " and ".join(_motion(names, motion) for motion in motions.values())


def _dof_names(model: Model, i: int) -> list[str]:
    joint, n = model.joint_names[i], model.joint[i].nv
    return [f"{joint!r}"] if n == 1 else [f"{joint!r}[{k}]" for k in range(n)]


def _motion(names: list[str], motion: Array) -> str:
    terms = np.flatnonzero(motion)
    if len(terms) == 1:
        return f"joint {names[terms[0]]}"
    signs = ["" if motion[terms[0]] > 0 else "-", *(" + " if motion[k] > 0 else " - " for k in terms[1:])]
    sizes = [f"{abs(motion[k]):.3g} " for k in terms]
    written = [sign + (size if size != "1 " else "") + names[k] for sign, size, k in zip(signs, sizes, terms, strict=True)]
    return f"the motion {''.join(written[:_TERMS])}{' …' if len(terms) > _TERMS else ''}"


# ---- errors ----------------------------------------------------------------------------------------------------------


def nothing_moved(model: Model, motions: Motions) -> SingularMassMatrixError:
    """For robots that are singular in every configuration."""
    return SingularMassMatrixError(
        f"robot {model.name!r} has a singular mass matrix: {said(model, motions)} moves nothing that has mass or inertia; "
        f"give the links it carries an inertial, give the joint a rotor inertia (armature), or fix it"
    )


def in_this_configuration(model: Model, M: Array) -> SingularMassMatrixError | NumericalOverflowError:
    """For a configuration whose mass matrix cannot be solved with."""
    if not np.isfinite(M).all():
        return overflow(model, M)
    motions = null_motions(M) or _nearest(M)
    guilty = [model.joint[model.joint_index(name)] for name in joints_of(model, motions)]
    fix = next(
        (joint.folding_advice for joint in guilty if joint.folding_advice),
        "keep away from it, give the links between these joints an inertial, or the joints a rotor inertia (armature)",
    )
    return SingularMassMatrixError(
        f"the mass matrix of robot {model.name!r} is singular in this configuration, to rounding: {said(model, motions)} "
        f"moves nothing that has mass or inertia; {fix}"
    )


def _nearest(M: Array) -> dict[int, Array]:
    """The motion that moves the least mass, each degree of freedom measured by its own."""
    size = np.sqrt(np.abs(np.diag(M)))
    _, vectors = np.linalg.eigh(M / np.outer(size, size))
    motion = np.where(np.abs(vectors[:, 0]) < 1e-3 * np.max(np.abs(vectors[:, 0])), 0.0, vectors[:, 0]) / size
    k = int(np.argmax(np.abs(motion) > 0.0))
    return {k: motion / motion[k]}


def overflow(model: Model, M: Array) -> NumericalOverflowError:
    """A mass matrix that is no matrix of numbers."""
    k = int(np.argmax(~np.isfinite(M).all(axis=-1)))
    names = [name for i, _ in model.outward() if model.mimic[i] is None for name in _dof_names(model, i)]
    return NumericalOverflowError(
        f"the mass matrix of robot {model.name!r} overflows: its entry for joint {names[k]} is beyond the range of "
        f"floating-point numbers (1.8e308); check masses and lengths, or give them in other units"
    )
