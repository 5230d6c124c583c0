"""Whether a robot's mass matrix can be solved with: motions that move no mass, and pivots that vanish in some states.

M = U D Uᵀ, eliminated from the leaves inward, has a vanishing pivot where the DoF behind can follow a DoF so that
nothing that has mass or inertia moves. The motion itself is a null vector of M: one for the DoF, and for those behind
it what they yield by.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.algorithms import composite_body
from qddot.dynamics import conditioning
from qddot.dynamics.catalogue import lookup
from qddot.dynamics.input_checks import AXES, all_finite
from qddot.errors import NumericalOverflowError, QddotWarning, SingularMassMatrixError, outside
from qddot.mechanism.configurations import batched, random_state
from qddot.mechanism.model import Model

Array = NDArray[Any]
Motions = Mapping[int, Array]  # null vectors by the degree of freedom whose pivot vanishes

MAX_DENSE_DOF = 300  # degrees of freedom above which M takes too long just to look at it
_BY_PAIRS = ("mass_matrix_inverse", "dynamics_derivatives")  # results with an entry for each pair of degrees of freedom
_ROUNDING = 1e-12  # of a diagonal entry of M: a thousand times the rounding of its elimination
_NEAR = 1e-3  # of a diagonal entry of M: within the step of a simulation
_PART = 1e-6  # of a null vector, scaled to a unit diagonal of M: what is less does not belong to it
_TERMS = 6  # of a motion that are written out


class Solvability:
    """What there is to know about the mass matrix of one model before and after it is divided by."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._singular: dict[tuple[int, ...], Motions] = {}

    # ---- in every configuration

    def massless(self, among: tuple[int, ...]) -> Motions:
        """The motions of these degrees of freedom, the others held, by which M is singular in every configuration."""
        model = self.model
        if model.nv > MAX_DENSE_DOF:
            return {k: unit for k, unit in self._weightless().items() if k in among}
        if among not in self._singular:
            rng = np.random.default_rng(0)
            states = np.stack([random_state(model, rng)[0] for _ in range(3)])
            with np.errstate(all="ignore"):
                M = batched(2, composite_body.mass_matrix(model, states), states)
            if not np.isfinite(M).all():
                raise _overflow(model, M[0])
            found = _always_null(list(M[:, among, :][:, :, among]))
            own = np.eye(model.nv)[list(among)]
            self._singular[among] = {among[k]: motion @ own for k, motion in found.items()}
        return self._singular[among]

    def _weightless(self) -> dict[int, Array]:
        """The joints without a rotor that carry no inertia at all: all that is known of a long robot without its M."""
        model = self.model
        carries = [any((I.m, *I.h, *(x for row in I.I for x in row))) for I in model.inertia]
        for i, p in model.inward():
            carries[p] = carries[p] or carries[i]
        own = [i for i, _ in model.outward() if not carries[i] and not all(model.armature[i]) and model.mimic[i] is None]
        places = [k for i in own for k in range(model.slots[i].v.start, model.slots[i].v.stop)]
        return {k: np.arange(model.nv) == k for k in places}

    @property
    def massless_joints(self) -> tuple[str, ...]:
        """The joints that can move, alone or together, without moving mass or inertia, in every configuration."""
        return _joints_of(self.model, self.massless(tuple(range(self.model.nv))))

    def require_mass(self, held: Sequence[int] = ()) -> None:
        """An error if the degrees of freedom that are not held can move without moving mass."""
        if motions := self.massless(tuple(k for k in range(self.model.nv) if k not in held)):
            raise _nothing_moved(self.model, motions)

    def error(self) -> SingularMassMatrixError:
        """For robots whose mass matrix is singular in every configuration."""
        return _nothing_moved(self.model, self.massless(tuple(range(self.model.nv))))

    # ---- in some configurations

    @cached_property
    def guarded(self) -> Model:
        """The model whose pivots of M are watched where they can vanish."""
        return conditioning.guarded(self.model)

    @cached_property
    def watched(self) -> list[int]:
        """The degrees of freedom with such pivots."""
        return [k for k, floor in enumerate(self.guarded.floors) if floor != 0.0]

    def has_lost(self, axes: int, function: str, result: Array) -> bool:
        """Whether a pivot of M was rounding in some state: then its acceleration, or its derivative with respect to its
        own force, is NaN. A batch is only read where a kernel has met an invalid operation (`Engine.solve`).
        """
        if not self.watched or not result.size or result.dtype.kind != "f":
            return False
        if result.ndim == axes == 1:
            total = sum(result.tolist())
            return bool(total != total)
        if axes == 1 or not function.endswith(_BY_PAIRS):
            return bool(np.isnan(np.maximum.reduce(result.reshape(-1))))
        return any(np.isnan(np.maximum.reduce(result[..., k, k], axis=None)) for k in self.watched)

    def explain_lost(self, axes: int, function: str, inputs: Sequence[Any], result: Array) -> None:
        """An error for one state, a warning for samples of a batch: where, and which motion has no mass there."""
        q, batch = np.asarray(inputs[0]), result.shape[: result.ndim - axes]
        if q.dtype.kind not in "fiub" or (not batch and not all_finite(inputs)):
            return
        if not batch:
            raise self._lost_at(q)
        lost = np.isnan(result).any(axis=tuple(range(-axes, 0)))
        for name, x in zip(lookup(function, "auto")[0].inputs, inputs, strict=True):
            lost &= np.isfinite(np.asarray(x, dtype=float)).all(axis=tuple(range(-AXES.get(name, 1), 0)))
        if lost.any():
            result[lost] = np.nan
            first = np.unravel_index(int(np.argmax(lost)), batch)
            warnings.warn(
                f"{function}: {np.count_nonzero(lost)} of {lost.size} samples are NaN; in sample "
                f"{', '.join(map(str, first))} {self._lost_at(np.broadcast_to(q, (*batch, self.model.nq))[first])}",
                QddotWarning,
                stacklevel=outside(),
            )

    def _lost_at(self, q: Array) -> SingularMassMatrixError | NumericalOverflowError:
        with np.errstate(all="ignore"):
            M = np.asarray(composite_body.mass_matrix(self.model, np.asarray(q, dtype=float)), dtype=float)
        return _in_this_configuration(self.model, M)

    def near_singular(self, q: Array) -> str:
        """What M says of a configuration after which a simulation has lost its numbers; empty if it explains nothing."""
        if not self.watched:
            return ""
        M = np.asarray(composite_body.mass_matrix(self.model, q), dtype=float)
        motions = _null_motions(M, _NEAR)
        return f"near a singular configuration, where {_said(self.model, motions)} moves no mass" if motions else ""


# ---- motions that move no mass ------------------------------------------------------------------------------------------


def _null_motions(M: Array, tolerance: float = _ROUNDING) -> dict[int, Array]:
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


def _always_null(matrices: Sequence[Array]) -> dict[int, Array]:
    """The motions that move no mass in all of several configurations; their vectors are those of the first."""
    found = [_null_motions(M) for M in matrices]
    return {k: motion for k, motion in found[0].items() if all(k in other for other in found[1:])}


def _joints_of(model: Model, motions: Motions) -> tuple[str, ...]:
    """The joints that take part in any of the motions, in order."""
    moving = {k for motion in motions.values() for k in np.flatnonzero(motion)}
    own = (i for i, _ in model.outward() if model.mimic[i] is None)
    return tuple(model.joint_names[i] for i in own if moving & {*range(model.slots[i].v.start, model.slots[i].v.stop)})


def _said(model: Model, motions: Motions) -> str:
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


def _nothing_moved(model: Model, motions: Motions) -> SingularMassMatrixError:
    """For robots that are singular in every configuration."""
    return SingularMassMatrixError(
        f"robot {model.name!r} has a singular mass matrix: {_said(model, motions)} moves nothing that has mass or inertia; "
        f"give the links it carries an inertial, give the joint a rotor inertia (armature), or fix it"
    )


def _in_this_configuration(model: Model, M: Array) -> SingularMassMatrixError | NumericalOverflowError:
    """For a configuration whose mass matrix cannot be solved with."""
    if not np.isfinite(M).all():
        return _overflow(model, M)
    motions = _null_motions(M) or _nearest(M)
    guilty = [model.joint[model.joint_index(name)] for name in _joints_of(model, motions)]
    fix = next(
        (joint.folding_advice for joint in guilty if joint.folding_advice),
        "keep away from it, give the links between these joints an inertial, or the joints a rotor inertia (armature)",
    )
    return SingularMassMatrixError(
        f"the mass matrix of robot {model.name!r} is singular in this configuration, to rounding: {_said(model, motions)} "
        f"moves nothing that has mass or inertia; {fix}"
    )


def _nearest(M: Array) -> dict[int, Array]:
    """The motion that moves the least mass, each degree of freedom measured by its own."""
    size = np.sqrt(np.abs(np.diag(M)))
    _, vectors = np.linalg.eigh(M / np.outer(size, size))
    motion = np.where(np.abs(vectors[:, 0]) < 1e-3 * np.max(np.abs(vectors[:, 0])), 0.0, vectors[:, 0]) / size
    k = int(np.argmax(np.abs(motion) > 0.0))
    return {k: motion / motion[k]}


def _overflow(model: Model, M: Array) -> NumericalOverflowError:
    """A mass matrix that is no matrix of numbers."""
    k = int(np.argmax(~np.isfinite(M).all(axis=-1)))
    names = [name for i, _ in model.outward() if model.mimic[i] is None for name in _dof_names(model, i)]
    return NumericalOverflowError(
        f"the mass matrix of robot {model.name!r} overflows: its entry for joint {names[k]} is beyond the range of "
        f"floating-point numbers (1.8e308); check masses and lengths, or give them in other units"
    )
