"""Whether a robot's mass matrix can be solved with: motions that move no mass, and pivots that vanish in some states."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.algorithms import composite_body
from qddot.dynamics import pivots, singularity
from qddot.dynamics.catalogue import lookup
from qddot.dynamics.input_checks import AXES, all_finite
from qddot.errors import NumericalOverflowError, QddotWarning, SingularMassMatrixError
from qddot.mechanism.configurations import batched, random_state
from qddot.mechanism.model import Model

Array = NDArray[Any]

MAX_DENSE_DOF = 300  # degrees of freedom above which M takes too long just to look at it
_BY_PAIRS = ("mass_matrix_inverse", "dynamics_derivatives")  # results with an entry for each pair of degrees of freedom


class Solvability:
    """What there is to know about the mass matrix of one model before and after it is divided by."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._singular: dict[tuple[int, ...], singularity.Motions] = {}

    # ---- in every configuration

    def massless(self, among: tuple[int, ...]) -> singularity.Motions:
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
                raise singularity.overflow(model, M[0])
            found = singularity.always_null(list(M[:, among, :][:, :, among]))
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
        return singularity.joints_of(self.model, self.massless(tuple(range(self.model.nv))))

    def require_mass(self, held: Sequence[int] = ()) -> None:
        """An error if the degrees of freedom that are not held can move without moving mass."""
        if motions := self.massless(tuple(k for k in range(self.model.nv) if k not in held)):
            raise singularity.nothing_moved(self.model, motions)

    def error(self) -> SingularMassMatrixError:
        """For robots whose mass matrix is singular in every configuration."""
        return singularity.nothing_moved(self.model, self.massless(tuple(range(self.model.nv))))

    # ---- in some configurations

    @cached_property
    def guarded(self) -> Model:
        """The model whose pivots of M are watched where they can vanish."""
        return pivots.guarded(self.model)

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

    def explain_lost(self, axes: int, function: str, inputs: Sequence[Any], result: Array, stacklevel: int = 4) -> None:
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
                stacklevel=stacklevel,
            )

    def _lost_at(self, q: Array) -> SingularMassMatrixError | NumericalOverflowError:
        with np.errstate(all="ignore"):
            M = np.asarray(composite_body.mass_matrix(self.model, np.asarray(q, dtype=float)), dtype=float)
        return singularity.in_this_configuration(self.model, M)

    def near_singular(self, q: Array) -> str:
        """What M says of a configuration after which a simulation has lost its numbers; empty if it explains nothing."""
        if not self.watched:
            return ""
        M = np.asarray(composite_body.mass_matrix(self.model, q), dtype=float)
        motions = singularity.null_motions(M, singularity.NEAR)
        return (
            f"near a singular configuration, where {singularity.said(self.model, motions)} moves no mass" if motions else ""
        )
