"""One iteration of Levenberg and Marquardt's method on one sample: what inverse kinematics compiles and repeats.

A sample carries its best configuration q and the step δ that is to be tried from there. An iteration evaluates the errors
e and their slopes J at q ⊕ δ, clipped to the limits. If the cost is less, it moves there and takes

    δ = Jᵀ(J Jᵀ + μ)⁻¹ e = (JᵀJ + μ)⁻¹Jᵀ e,    μ = damping · cost + ε,

by whichever of the two matrices is smaller, with the columns left out of J whose joint is at a limit and pulled beyond
it. Otherwise it stays, tries a quarter of δ next, and raises the damping. So every iteration evaluates errors and slopes
once, costs never grow, and convergence is quadratic, since μ vanishes with the cost.

J. Nocedal, S. Wright, "Numerical Optimization", 2006, chapter 10; damping by the cost: N. Yamashita, M. Fukushima 2001;
in inverse kinematics T. Sugihara 2011.

| number of a sample | meaning                                                   |
|--------------------|-----------------------------------------------------------|
| q, δ               | best configuration, and the step that is tried from it    |
| cost               | at q; infinite at first                                   |
| damping            | μ / cost                                                  |
| status             | RUNNING, or why it has stopped: it then stays as it is    |
| iterations         | how many it has taken                                     |
| length, angle      | squares of the errors at q, in m² and rad²                |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.mechanism.configurations import integrate
from qddot.mechanism.model import Model
from qddot.scalars import Scalar, less, split, stack, where
from qddot.spatial.joint_blocks import Inverse, Matrix, Vector
from qddot.tasks.targets import Errors, Task, no_errors

Array = NDArray[Any]

RUNNING, CONVERGED, STATIONARY = 0.0, 1.0, 2.0
COST, DAMPING, STATUS, ITERATIONS, LENGTH, ANGLE = range(6)  # behind q and δ
N_OWN = 6

FIRST_DAMPING = 1.0
_LESS_DAMPING, _MORE_DAMPING = 0.5, 4.0
_LEAST_DAMPING = 1e-6
_SHORTER = 0.25  # of a step that led uphill
_REGULAR = 1e-10  # ε, of the trace of J Jᵀ: rows that depend on each other stay solvable
_STATIONARY_STEP = 1e-18  # rad², m²: square of a step that leads nowhere


@dataclass(frozen=True)
class Iteration:
    """The tasks of a robot, and the limits that solutions keep."""

    model: Model
    tasks: tuple[Task, ...]
    sizes: tuple[int, ...]  # of the tasks' numbers
    lower: Array
    upper: Array

    @property
    def n_state(self) -> int:
        """How many numbers a sample has."""
        return self.model.nq + self.model.nv + N_OWN

    @property
    def n_numbers(self) -> int:
        """How many numbers the tasks have, and behind them the squares of the two tolerances."""
        return sum(self.sizes) + 2

    def start(self, q: Array) -> Array:
        """Samples before their first iteration."""
        state = np.zeros((len(q), self.n_state))
        state[:, : self.model.nq] = q
        state[:, self.model.nq + self.model.nv + COST] = np.inf
        state[:, self.model.nq + self.model.nv + DAMPING] = FIRST_DAMPING
        return state

    def __call__(self, state: Array, numbers: Array) -> Array:
        """The sample after one more iteration."""
        nq, nv = self.model.nq, self.model.nv
        q, step, own = state[..., :nq], state[..., nq : nq + nv], split(state[..., nq + nv :])
        running = less(own[STATUS], 0.5)
        trial = self._clipped(integrate(self.model, q, step))
        *targets, longest, widest = self._apart(numbers)
        there = self._errors(trial, targets)
        better = less(there.cost, where(running, own[COST], -1.0))

        def moved(new: Scalar, old: Scalar) -> Scalar:
            return where(better, new, old)

        damping = own[DAMPING]
        eased = _LESS_DAMPING * damping
        damping = moved(where(less(eased, _LEAST_DAMPING), _LEAST_DAMPING, eased), _MORE_DAMPING * damping)
        wanted = self._step(trial, there, damping)
        delta = Vector(moved(new, _SHORTER * old) for new, old in zip(wanted, split(step), strict=True))
        cost, length, angle = (
            moved(new, own[k]) for k, new in ((COST, there.cost), (LENGTH, there.length), (ANGLE, there.angle))
        )
        still = less(delta.dot(delta), _STATIONARY_STEP)
        within = where(less(longest, length), 0.0, where(less(widest, angle), 0.0, 1.0))
        found = where(still, where(less(0.5, within), CONVERGED, STATIONARY), RUNNING)
        if not any(task.is_soft for task in self.tasks):
            found = where(less(0.5, within), CONVERGED, found)
        status, count = where(running, found, own[STATUS]), own[ITERATIONS] + where(running, 1.0, 0.0)
        place = [moved(new, old) for new, old in zip(split(trial), split(q), strict=True)]
        return stack([*place, *delta, cost, damping, status, count, length, angle])

    def _apart(self, numbers: Array) -> list[Any]:
        """The numbers of each task, and the two tolerances."""
        x, ends = split(numbers), np.cumsum(self.sizes)
        return [*(x[end - n : end] for n, end in zip(self.sizes, ends, strict=True)), *x[-2:]]

    def _errors(self, q: Array, targets: Sequence[Sequence[Scalar]]) -> Errors:
        found = (task.errors(self.model, q, x) for task, x in zip(self.tasks, targets, strict=True))
        return reduce(add, found, no_errors())

    def _clipped(self, q: Array) -> Array:
        out = []
        for x, low, high in zip(split(q), self.lower.tolist(), self.upper.tolist(), strict=True):
            x = where(less(x, low), low, x) if np.isfinite(low) else x
            out.append(where(less(high, x), high, x) if np.isfinite(high) else x)
        return stack(out)

    def _step(self, q: Array, there: Errors, damping: Scalar) -> Vector:
        rows, columns = there.rows, [Vector(c) for c in zip(*there.slopes, strict=True)]
        columns = [self._free(k, q, column.dot(rows)) * column for k, column in enumerate(columns)]
        m, n = len(rows), len(columns)
        small = [Vector(row) for row in zip(*columns, strict=True)] if m <= n else columns
        A = [[a.dot(b) if c <= r else 0.0 for c, b in enumerate(small)] for r, a in enumerate(small)]
        mu = damping * there.cost + _REGULAR * reduce(add, (A[k][k] for k in range(len(A))))
        solve = Inverse(Matrix(map(Vector, A)).add_diagonal([mu] * len(A)))
        if m <= n:
            y = solve @ rows
            return Vector(column.dot(y) for column in columns)
        return solve @ [column.dot(rows) for column in columns]

    def _free(self, k: int, q: Array, pull: Scalar) -> Scalar:
        """Zero where degree of freedom k is at a limit and is pulled beyond it, one elsewhere."""
        place = self._coordinate(k)
        if place is None:
            return 1.0
        x, low, high = split(q)[place], float(self.lower[place]), float(self.upper[place])
        free: Scalar = 1.0
        if np.isfinite(low):
            free = where(less(low, x), free, where(less(pull, 0.0), 0.0, free))
        if np.isfinite(high):
            free = where(less(x, high), free, where(less(0.0, pull), 0.0, free))
        return free

    def _coordinate(self, k: int) -> int | None:
        """The coordinate whose rate degree of freedom k is; None where velocities are no rates."""
        for i, _ in self.model.outward():
            slot = self.model.slots[i]
            if self.model.mimic[i] is None and slot.v.start <= k < slot.v.stop:
                return slot.q.start + k - slot.v.start if self.model.joint[i].nq == self.model.joint[i].nv else None
        return None
