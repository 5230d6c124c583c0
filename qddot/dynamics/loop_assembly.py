"""Closing loops: configurations that close them, by how much a file's rounding lets them miss, which rows are independent.

The rule for redundant rows, stated once: the constraints' generic rank r is the rank that A has at most of the closed
configurations that are found near the neutral one, and r rows that stay independent there, and at all others of that rank
that are found from random ones, are kept; the others follow from them on closed loops, and are dropped. So a planar
four-bar written with six rows keeps three, wherever rounding has put it. Some linkages can also be assembled in a way that
has another rank: three parallel rods of one length between two plates, crossed, do not move. Such states are left to
methods that find the rank of each (`largest_rank`).

Where a file's numbers are rounded, redundant rows contradict each other by about the last digit, and no configuration
closes them all. Loops count as closed up to one number, `tolerance`: `Model.loop_tolerance` where the user gave one, else
the accuracy of the model's own numbers, measured at the same configurations: the median of what least squares leave
there, `miss`. Singular values of A up to ten times `miss` are then rounding, too, and the kept rows decide what the dropped
ones ask (`consistent`).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qddot.algorithms import loop_constraints
from qddot.algorithms.constrained_dynamics import RANK
from qddot.dynamics.engine import Engine
from qddot.dynamics.request import no_constraints
from qddot.errors import Finding, InputError
from qddot.mechanism.configurations import integrate, neutral, normalize, random_state
from qddot.mechanism.model import Loop, Model

Array = NDArray[Any]

EXACT = 1e-10  # m or rad: what misses by less is closed up to the rounding of float64
SIX_DIGITS = 1e-5  # of a loop's length: what numbers with six digits, of which a loop has some ten, let it miss by
CLOSED = 1e-3  # m or rad, and a second: more than a simulation's steps open, less than a state that was not meant has
GENERIC_RANK = 1e-7  # of the largest singular value, for the generic rank: closed to 1e-12, dependent rows leave less
_ROUNDED_RANK = 10.0  # times the miss, for the same: a redundant row that misses by δ changes by some δ a radian
_NEAR_FOLDS = 10.0  # times what loops miss by at most configurations: they miss by more near singular ones
_AS_INDEPENDENT = 0.01  # of the kept rows' least singular value at most configurations: one more that is no rounding
_STARTS = 12
_MINOR = 1e-7  # weight of the dropped rows beside the kept ones: over RANK where those fail, nothing elsewhere
_STIFF = 1e4  # least damping of the last steps, times |φ|²: directions in which rows change by less than 100 |φ| stay


class Assembly:
    """The loops and other constraints of one robot: their rows, and how they close."""

    def __init__(self, engine: Engine) -> None:
        if not engine.model.is_constrained:
            raise no_constraints(engine.model)
        self.engine, self.model = engine, engine.model
        self.names = loop_constraints.row_names(self.model)
        self._seen: list[Array] = []

    # ---- one tolerance

    @cached_property
    def tolerance(self) -> float:
        """Up to how many m or rad loops count as closed: the user's number, or from the accuracy of the model's own."""
        if self.model.loop_tolerance is not None:
            return self.model.loop_tolerance
        if self.is_exact:
            return EXACT
        return min(_decade(_NEAR_FOLDS * self.miss), max(_decade(self.miss), self._most))

    @cached_property
    def miss(self) -> float:
        """What loops miss by at most configurations, as closed as they can be, in m or rad."""
        _, off = self._tried
        return float(np.median(off[off <= self._most]))

    @property
    def is_exact(self) -> bool:
        """Whether the constraints agree with each other up to the rounding of float64."""
        return self.miss <= EXACT / 10

    @cached_property
    def open_limit(self) -> float:
        """How far the loops of a state may be open, in m or rad, and a second; four rows may miss by the tolerance."""
        return max(CLOSED, 2.0 * self.tolerance)

    @cached_property
    def _most(self) -> float:
        """The most that loops may miss by: the user's tolerance, or what six digits in a file explain."""
        if self.model.loop_tolerance is not None:
            return self.model.loop_tolerance
        longest = max((_length(self.model, loop) for loop in self.model.loops), default=0.0)
        return max(EXACT, SIX_DIGITS * longest)

    @property
    def finding(self) -> Finding | None:
        """What there is to say of how the loops close."""
        element = f"robot {self.model.name!r}"
        try:
            if self.is_exact:
                return None
        except InputError as error:
            return Finding("warning", self.model.source, element, str(error), "its dynamics cannot be computed")
        problem = f"its loops cannot close to less than about {self.miss:.1e} m or rad, because its numbers are rounded"
        fix = f"they count as closed to loop_tolerance={self.tolerance:.0e}; write its numbers with more digits"
        return Finding("note", self.model.source, element, problem, fix)

    # ---- closed configurations, and the rows that stay independent in them

    @cached_property
    def rows(self) -> tuple[int, ...]:
        """The rows that are kept as independent."""
        return independent_rows(self._generic_jacobians, self._generic_rank)

    @cached_property
    def largest_rank(self) -> int:
        """The largest rank that was found anywhere."""
        return int(np.max(self._ranks))

    @cached_property
    def has_other_ranks(self) -> bool:
        """Whether there are ways of assembly in which more rows than the kept ones are independent."""
        return bool(np.any(self._has_more(self._jacobians)))

    def needs_more_rows(self, q: ArrayLike) -> Array:
        """Which configurations are assembled in such a way."""
        if not self.has_other_ranks:
            return np.asarray(False)
        A = self.engine.evaluate("constraint_jacobian", q)
        return self._has_more(np.where(np.isfinite(A), A, 0.0))

    def _has_more(self, A: Array) -> Array:
        """Where a row beyond the kept ones is as independent as these; where they become dependent, rounding is not."""
        r, sizes = len(self.rows), np.linalg.svd(A, compute_uv=False)
        if r == 0 or r >= sizes.shape[-1]:
            return np.zeros(A.shape[:-2], bool)
        usual = np.median(np.linalg.svd(self._generic_jacobians, compute_uv=False)[:, r - 1])
        return np.asarray(sizes[..., r] > _AS_INDEPENDENT * usual)

    def more_rows_error(self, help: str) -> InputError:
        return InputError(
            f"the constraints of robot {self.model.name!r} have a larger rank in this configuration than near its neutral "
            f"one, where it is {len(self.rows)}: it is assembled in another way; {help}"
        )

    def rank(self, A: Array) -> Array:
        """How many singular values of A are more than rounding, in float64 or in the model."""
        sizes = np.linalg.svd(A, compute_uv=False)
        rounding = 0.0 if self.is_exact else _ROUNDED_RANK * self.miss
        return np.sum(sizes > np.maximum(GENERIC_RANK * np.max(sizes, axis=-1, keepdims=True), rounding), axis=-1)

    @cached_property
    def _generic_rank(self) -> int:
        """The rank at most closed configurations near the neutral one; if as many have another, the larger."""
        near = self._ranks[: np.sum(self._tried[1][: 1 + _STARTS] <= self.tolerance)]
        counts = np.bincount(near if len(near) else self._ranks)
        return int(np.flatnonzero(counts == np.max(counts))[-1])

    @cached_property
    def _generic_jacobians(self) -> Array:
        """A at configurations of the generic rank."""
        return self._jacobians[self._ranks == self._generic_rank]

    @cached_property
    def _generic(self) -> Array:
        """Closed configurations of the generic rank."""
        q, off = self._tried
        return q[off <= self.tolerance][self._ranks == self._generic_rank]

    @property
    def closed(self) -> Array:
        """A configuration with closed loops of the generic rank, away from the neutral one if one was found there."""
        return np.array(self._generic[-1])

    @cached_property
    def _ranks(self) -> Array:
        return self.rank(self._jacobians)

    @cached_property
    def _jacobians(self) -> Array:
        """A at the closed configurations, those near the neutral one first."""
        q, off = self._tried
        return np.asarray(self.engine.evaluate("constraint_jacobian", q[off <= self.tolerance]))

    @cached_property
    def _tried(self) -> tuple[Array, Array]:
        """Configurations as closed as they can be, and what they miss by; some are closed."""
        model, rng = self.model, np.random.default_rng(0)
        near = [integrate(model, neutral(model), x) for x in 0.3 * rng.standard_normal((_STARTS, model.nv))]
        starts = np.stack([neutral(model), *near, *(random_state(model, rng)[0] for _ in range(_STARTS))])
        q, off = self._closed(starts, 1e-12)
        if not np.any(off <= self._most) and self._seen:  # a user may know better where it closes
            q, off = self._closed(np.concatenate(self._seen), 1e-12)
        if not np.any(off <= self._most):
            raise self._cannot_close(q[np.nanargmin(off)], "none of the configurations tried closes its loops; ")
        return q, off

    def see(self, q: ArrayLike) -> None:
        """Remembers a few configurations of callers, until closed ones are known."""
        if "_tried" not in self.__dict__:
            array = self.engine.checks.q(q).reshape(-1, self.model.nq)[:8]
            self._seen = [*self._seen[-7:], array[np.isfinite(array).all(axis=-1)].astype(float)]

    def close(self, q: ArrayLike, tolerance: float | None, hold: Sequence[int] = ()) -> tuple[Array, Array]:
        """The configurations with closed loops that are found from q, and what they miss by; `hold` are DoF that stay."""
        given = self.engine.checks.q(q)
        sound = np.asarray(np.isfinite(given).all(axis=-1))
        start = np.where(sound[..., None], given, neutral(self.model))
        if tolerance is None:
            self.see(given)
            tolerance = self._tolerance_or_exact()
            closed, off = self._settled(*self._closed(start, EXACT, tolerance, hold), tolerance, hold)
        else:
            closed, off = self._closed(start, tolerance, hold=hold)
            self.see(closed)
        off = np.where(sound, off, np.nan)
        if off.ndim == 0 and (off > tolerance or not sound):
            held = f" with {', '.join(map(self.dof_name, hold))} held, so hold fewer joints" if hold else ""
            raise self._cannot_close(closed if sound else given, f"its loops do not close from here{held}; ", tolerance)
        return kept(off <= tolerance, closed), off

    def _tolerance_or_exact(self) -> float:
        """The tolerance, also of a robot of which no closed configuration is known."""
        with contextlib.suppress(InputError):
            return self.tolerance
        return EXACT

    def _closed(
        self, q: Array, tolerance: float, enough: float = 0.0, hold: Sequence[int] = (), steps: int = 60
    ) -> tuple[Array, Array]:
        """Levenberg and Marquardt with the damping |φ|², which is quadratic also where rows depend on each other.

        It goes on to a hundredth of the tolerance, or until steps no longer halve |φ| where it is `enough` already.
        The last steps are damped more: rows that contradict each other by rounding pull along free motions otherwise.
        """
        run = self.engine.evaluate
        q = np.array(normalize(self.model, self.engine.checks.shaped(q, self.model.nq, "q", "nq")), dtype=float)
        phi = run("constraint_residual", q)
        damping, settled = np.ones(phi.shape[:-1]), np.zeros(phi.shape[:-1], bool)
        for _ in range(steps):
            off = np.max(np.abs(phi), axis=-1, initial=0.0)
            if not np.any((off > 0.01 * tolerance) & ~settled):
                break
            A = _without(hold, run("constraint_jacobian", q))
            size = np.sum(phi * phi, axis=-1)
            least = np.where(off <= self._most, _STIFF, 0.0)
            moved = integrate(self.model, q, -_damped(A, np.minimum(np.maximum(damping, least) * size, 1e6), phi))
            there = run("constraint_residual", moved)
            new = np.nan_to_num(np.sum(there * there, axis=-1), nan=np.inf)
            settled |= (off <= enough) & ~(new < 0.25 * size)
            better = (new < size) & ~settled
            q, phi = np.where(better[..., None], moved, q), np.where(better[..., None], there, phi)
            damping = np.where(better, np.maximum(damping * 0.2, 1e-6), damping * 8.0)
        return q, np.max(np.abs(phi), axis=-1, initial=0.0)

    def _settled(self, q: Array, off: Array, tolerance: float, hold: Sequence[int]) -> tuple[Array, Array]:
        """Where rounding keeps loops from closing: the kept rows closed exactly, as dynamics keep them, near least squares.

        A simulation would begin with a jump otherwise.
        """
        if tolerance == EXACT or self.is_exact:
            return q, off
        for _ in range(4):
            A, phi = self.consistent(*(self.engine.evaluate(f"constraint_{x}", q) for x in ("jacobian", "residual")))
            moved = integrate(self.model, q, -_damped(_without(hold, A), np.zeros(phi.shape[:-1]), phi))
            there = np.max(np.abs(self.engine.evaluate("constraint_residual", moved)), axis=-1, initial=0.0)
            better = (off <= tolerance) & (there <= tolerance)
            q, off = np.where(better[..., None], moved, q), np.where(better, there, off)
        return q, off

    def consistent(self, A: Array, *sides: Array) -> tuple[Array, ...]:
        """A, and vectors b of A x = b, without what rounding in the model makes dependent rows contradict each other by.

        The kept rows decide, and the others are made to follow. With the weight that these have they count only where
        kept rows become dependent, and there singular values tell what is independent instead; so they do where the rank
        is larger than usual.
        """
        if self.is_exact or len(self.rows) == len(self.names):
            return (A, *sides)
        sound = np.asarray(np.isfinite(A).all(axis=(-2, -1)))
        known = np.where(sound[..., None, None], A, 0.0)
        more = self._has_more(known)[..., None]
        rank = np.where(more, self.rank(known)[..., None], len(self.rows))
        weight = np.where(more | np.isin(np.arange(len(self.names)), self.rows), 1.0, _MINOR)
        U, s, Vt = np.linalg.svd(weight[..., None] * known, full_matrices=False)
        some = (np.arange(s.shape[-1]) < rank) & (s > RANK * s[..., :1])
        reciprocal = np.where(some, 1.0 / np.where(some, s, 1.0), 0.0)
        V, U_T = np.swapaxes(Vt, -1, -2) * some[..., None, :], np.swapaxes(U, -1, -2)
        A = (A @ V) @ np.swapaxes(V, -1, -2)
        return (A, *(on(A, on(V, reciprocal * on(U_T, weight * b))) for b in sides))

    def dof_name(self, k: Any) -> str:
        """The joint of a degree of freedom, and which of several it is."""
        for i, _ in self.model.outward():
            slot = self.model.slots[i].v
            if self.model.mimic[i] is None and slot.start <= k < slot.stop:
                return repr(self.model.joint_names[i]) + (f"[{k - slot.start}]" if slot.stop - slot.start > 1 else "")
        return str(k)

    def _cannot_close(self, q: Array, why: str, tolerance: float | None = None) -> InputError:
        phi = np.abs(self.engine.evaluate("constraint_residual", q))
        worst = int(np.argmax(np.nan_to_num(phi, nan=np.inf)))
        off, limit = float(phi[worst]), self._most if tolerance is None else tolerance
        said = "what six digits in a file explain" if self.model.loop_tolerance is None and tolerance is None else "allowed"
        help = "check the loop's frames and the links' lengths, or start from elsewhere"
        if off <= CLOSED:
            help = f"if they are meant to miss by so much, take robot.with_loop_tolerance({_decade(off):.0e}); else {help}"
        return InputError(
            f"robot {self.model.name!r} cannot be assembled: {why}{self.names[worst]} stays off by {off:.3g} m or rad, "
            f"more than the loop tolerance of {limit:.1e} that is {said}; {help}"
        )


def independent_rows(A: Array, rank: int) -> tuple[int, ...]:
    """So many rows of the matrices A, chosen one after the other as the most independent in all."""
    chosen: list[int] = []
    for _ in range(rank):
        left = np.sum(A * A, axis=-1)
        best = int(np.argmax(np.sum(np.log(left + 1e-24), axis=0)))
        chosen.append(best)
        unit = A[:, best] / np.sqrt(left[:, best])[:, None]
        A = A - (A @ unit[:, :, None]) * unit[:, None, :]
    return tuple(sorted(chosen))


def _length(model: Model, loop: Loop) -> float:
    """The links around a loop, put end to end, in m."""
    one, other = set(model.ancestors(loop.link_a)), set(model.ancestors(loop.link_b))
    parts = [loop.placement_a, loop.placement_b, *(model.placement[i] for i in one ^ other)]
    return sum(math.hypot(*T.p) for T in parts)


def _decade(x: float) -> float:
    """The power of ten from three times x on."""
    return float(10.0 ** math.ceil(math.log10(3.0 * x)))


def _damped(A: Array, mu: Array, phi: Array) -> Array:
    """Aᵀ(A Aᵀ + μ)⁻¹ φ by singular values, so that nothing is lost where rows depend."""
    U, s, Vt = np.linalg.svd(A, full_matrices=False)
    weight = s / (s * s + mu[..., None] + 1e-30 * s[..., :1] ** 2)
    taken = np.where(s > 1e-12 * s[..., :1], weight, 0.0)
    return on(np.swapaxes(Vt, -1, -2), taken * on(np.swapaxes(U, -1, -2), phi))


def _without(hold: Sequence[int], A: Array) -> Array:
    """A where some DoF do not move: their columns are nothing."""
    if hold:
        A = np.array(A)
        A[..., list(hold)] = 0.0
    return A


def kept(good: Any, x: Array) -> Array:
    """NaN in the samples that are not good."""
    return x if np.all(good) else np.where(np.asarray(good)[..., None], x, np.nan)


def on(A: Array, x: Array) -> Array:
    return np.asarray((A @ x[..., None])[..., 0])
