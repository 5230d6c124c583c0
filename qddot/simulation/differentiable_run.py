"""One run of a rollout, forward and back: checkpoints, the loop back through the steps, gradients shaped as the inputs.

The steps are cut into √T segments of √T steps. A run keeps the state at the beginning of each; the reverse sweep computes
the states of one segment again, from the last one to the first, and goes back through it in one compiled loop. Where every
state is recorded anyway, nothing is computed again.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import isqrt, prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qddot.dynamics.input_checks import real_numbers
from qddot.errors import InputError, shown
from qddot.progress import Loop
from qddot.simulation.adjoint import tangent_gradient
from qddot.simulation.both_ways import Steps
from qddot.simulation.integrators import INTEGRATORS
from qddot.simulation.rollout import Progress

Array = NDArray[Any]
COORDINATES = ("tangent", "ambient")


@dataclass(frozen=True)
class RolloutGradients:
    """The gradients of a loss, each with the shape of what was given, added up over the batch axes that it did not have.

    That of q0 is in the tangent space, nv numbers, or "ambient", nq numbers orthogonal to each quaternion.
    """

    q0: Array
    v0: Array
    controls: Array | None  # held joint forces
    inputs: Array | None  # of a law
    parameters: Array | None  # of a law
    free: dict[str, Array]


class Records(NamedTuple):
    """How many steps a run has, and every how many of them its state is recorded."""

    steps: int
    every: int

    @property
    def numbers(self) -> Array:
        """Of the recorded steps."""
        return np.arange(0, self.steps + 1, self.every)


class DifferentiableRun:
    """One run of a rollout: its recorded states, the start first, and the way back (`vjp`)."""

    def __init__(
        self,
        steps: Steps,
        records: Records,
        start_at: tuple[ArrayLike, ArrayLike],
        states: tuple[Array, Array] | None = None,
    ) -> None:
        self._steps, (T, every), (q0, v0) = steps, records, start_at
        self._numbers, self._every, self._given = records.numbers, every, (np.shape(q0), np.shape(v0))
        start = steps.start(q0, v0)
        self._batch, n = start.state.shape[:-1], start.state.shape[-1]
        self._samples = prod(self._batch)
        if steps.held.shape[-1] and steps.held.shape[-2] < T:
            raise InputError(f"controls are given for {steps.held.shape[-2]} steps; {T} are needed")
        steps.fits_in_memory(len(self._numbers), start, "record fewer states, record=…")
        self._edges = _edges(T, INTEGRATORS[steps.integrator].start_steps)
        self._has_all = every == 1
        self._checkpoints = np.empty((self._samples, 0 if self._has_all else len(self._edges) - 1, n), steps.dtype)
        self._records = np.empty((self._samples, len(self._numbers), n), steps.dtype)
        self._held, self._values = steps.arrays(self._batch)
        if states is not None and self._has_all and n == steps.model.nq + steps.model.nv:
            whole = np.concatenate(states, axis=-1)
            self._records[...] = whole.reshape(self._records.shape)
        else:
            self._forward(start)
        self._records.flags.writeable = False  # the way back begins with them

    def _forward(self, start: Progress) -> None:
        steps, every, rows = self._steps, self._every, self._records
        state = np.ascontiguousarray(start.state.reshape(-1, start.state.shape[-1]))
        rows[:, 0] = state
        what = f"simulating {self._samples:,} of {steps.model.name!r}"
        with Loop(what, self._edges[-1], samples=self._samples) as loop:
            for k, (begin, end) in enumerate(pairwise(self._edges)):
                if not self._has_all:
                    self._checkpoints[:, k] = state
                for n in loop.pieces(end - begin):
                    window = self._held[:, begin : begin + n], self._values
                    made = rows[:, begin // every + 1 : (begin + n) // every + 1]
                    if self._samples:
                        state = steps._compiled(self._is_start(begin), state, *window, begin, n, every, made)
                    begin += n
        self._end = state

    def _is_start(self, begin: int) -> bool:
        return begin < INTEGRATORS[self._steps.integrator].start_steps

    # ---- what it gives

    def _recorded(self, columns: slice) -> Array:
        rows = self._records[..., columns]
        return rows.reshape(*self._batch, *rows.shape[1:])

    @property
    def t(self) -> Array:
        """The times of the recorded states, in s."""
        return self._steps.t0 + self._steps.dt * self._numbers

    @property
    def q(self) -> Array:
        """Recorded configurations, (..., rows, nq), the start first; not to be written to."""
        return self._recorded(slice(self._steps.model.nq))

    @property
    def v(self) -> Array:
        """Recorded velocities, (..., rows, nv)."""
        nq = self._steps.model.nq
        return self._recorded(slice(nq, nq + self._steps.model.nv))

    @property
    def cost(self) -> Array:
        """The sum of cost(t, q, v, tau) over the steps, each at its beginning, (...)."""
        if self._steps.plan.cost is None:
            raise InputError("this rollout has no cost; make it with cost=, a function of (t, q, v, tau)")
        return self._end[:, -1].reshape(self._batch)

    @property
    def checkpoint_bytes(self) -> int:
        """What is kept for the way back beside the recorded states, in bytes: it grows as the square root of the steps."""
        return self._checkpoints.nbytes

    # ---- the way back

    def vjp(
        self,
        q_bar: ArrayLike | None = None,
        v_bar: ArrayLike | None = None,
        cost_bar: ArrayLike | None = None,
        *,
        coordinates: str = "tangent",
    ) -> RolloutGradients:
        """The gradients of a loss, from its gradients with respect to q, v and cost, which have their shapes.

        q_bar has a number for each number of q, whatever the `coordinates` of the result, "tangent" or "ambient".
        """
        if not isinstance(coordinates, str) or coordinates not in COORDINATES:
            raise InputError(f"coordinates={shown(coordinates)} is not known; take {' or '.join(map(repr, COORDINATES))}")
        if q_bar is None and v_bar is None and cost_bar is None:
            raise InputError("vjp: give the gradient of a loss with respect to q, v or cost: q_bar=, v_bar= or cost_bar=")
        steps = self._steps
        seen = [self._rows(x, like, n) for x, like, n in ((q_bar, self.q, "q_bar"), (v_bar, self.v, "v_bar"))]
        n_seen = steps.model.nq + steps.model.nv
        n_x, _, n_u, *constants = steps._sizes
        carried = np.zeros((self._samples, n_u + n_x + sum(constants)), steps.dtype)
        if cost_bar is not None:
            carried[:, n_u + n_x - 1] = self._fitting(cost_bar, self.cost, "cost_bar").reshape(-1)
        by_held = np.zeros(steps.held.shape, steps.dtype)
        if self._samples:
            carried = self._backwards(carried, seen, by_held)
        start, p_bar = carried[:, n_u : n_u + n_seen], carried[:, n_u + n_x :]
        start = start + np.concatenate([x.rows[:, 0] for x in seen], axis=-1)
        return self._gradients(start, by_held, p_bar, coordinates)

    def _rows(self, given: Any, like: Array, name: str) -> _Seen:
        """The loss's gradient with respect to recorded states, (samples, rows, n)."""
        width = like.shape[-1]
        nothing = np.broadcast_to(np.zeros(width, self._steps.dtype), (self._samples, self._edges[-1] + 1, width))
        if given is None:
            return _Seen(nothing, 1)
        array = self._fitting(given, like, name).astype(self._steps.dtype, copy=False)
        rows = np.ascontiguousarray(array).reshape(self._samples, len(self._numbers), width)
        return _Seen(rows, self._every)

    def _fitting(self, given: Any, like: Array, name: str) -> Array:
        array = real_numbers(given, name)
        try:
            return np.broadcast_to(array, like.shape)
        except ValueError:
            raise InputError(f"{name} has shape {array.shape}; it must fit {name[:-4]}, which has {like.shape}") from None

    def _backwards(self, carried: Array, seen: list[_Seen], by_held: Array) -> Array:
        """Through all segments, the last one first; `by_held` is written."""
        steps = self._steps
        n_x, _, n_u, *_ = steps._sizes
        longest = max(b - a for a, b in pairwise(self._edges))
        room = np.empty((self._samples, 0 if self._has_all else longest, n_x), steps.dtype)
        is_own = bool(n_u) and by_held.shape[:-2] == self._batch
        own = by_held.reshape(self._samples, by_held.shape[-2], n_u) if is_own else None
        buffer = np.empty((self._samples, 0 if own is not None else longest, n_u), steps.dtype)
        segments = list(enumerate(pairwise(self._edges)))
        what = f"gradients of {self._samples:,} of {steps.model.name!r}"
        with Loop(what, len(segments), samples=self._samples * longest) as loop:
            for _ in (k for n in loop.pieces(len(segments)) for k in range(n)):
                k, (begin, end) = segments.pop()
                states = self._states_of(k, begin, end, room)
                made = buffer[:, : end - begin] if own is None else own[:, begin:end]
                loop_back = steps.backwards(self._is_start(begin), steps.lanes(self._samples))
                carried = loop_back.backwards(
                    carried,
                    (states, self._held[:, begin:end], *(x.after(begin, end) for x in seen)),
                    self._values,
                    times=(steps.dt, steps.t0),
                    first=end - 1,
                    records=made,
                )
                if n_u and own is None:
                    by = made.reshape(*self._batch, end - begin, n_u)
                    by_held[..., begin:end, :] = _summed(by, (*by_held.shape[:-2], end - begin, n_u))
        return carried

    def _states_of(self, k: int, begin: int, end: int, room: Array) -> Array:
        """The states at the beginning of the steps of a segment."""
        if self._has_all:
            return self._records[:, begin:end]
        out, first = room[:, : end - begin], self._checkpoints[:, k]
        out[:, 0] = first
        if end - begin > 1:
            window = self._held[:, begin : end - 1], self._values
            self._steps._compiled(self._is_start(begin), first, *window, begin, end - begin - 1, 1, out[:, 1:])
        return out

    def _gradients(self, start: Array, by_held: Array, p_bar: Array, coordinates: str) -> RolloutGradients:
        steps, (q_shape, v_shape) = self._steps, self._given
        start = start.reshape(*self._batch, start.shape[-1])
        nq = steps.model.nq
        by_q = tangent_gradient(steps, self.q[..., 0, :], start[..., :nq], coordinates)
        p_bar = p_bar.reshape(*self._batch, p_bar.shape[-1])
        own = np.split(p_bar, np.cumsum([prod(s) for s in steps.constant_shapes.values()]), axis=-1)
        found = {}
        for (name, shape), x, part in zip(steps.constant_shapes.items(), steps.constants, own, strict=False):
            found[name] = _summed(part.reshape(*self._batch, *shape), x.shape)
        has_held, has_law = bool(by_held.shape[-1]), not steps._is_array
        return RolloutGradients(
            q0=_summed(by_q, (*q_shape[:-1], by_q.shape[-1])),
            v0=_summed(start[..., nq:], v_shape),
            controls=by_held if has_held and not has_law else None,
            inputs=by_held if has_held and has_law else None,
            parameters=found.pop("parameters", None) if steps.weights.shape[-1] else None,
            free=found,
        )


def _edges(steps: int, start_steps: int) -> list[int]:
    """Where segments begin and end; the first steps of a method that begins with another one are a segment of their own."""
    length = isqrt(steps - 1) + 1
    begin = min(start_steps, steps)
    return sorted({0, begin, steps, *range(begin, steps, length)})


class _Seen(NamedTuple):
    """The loss's gradient with respect to every n-th state, (samples, rows, n)."""

    rows: Array
    every: int

    def after(self, begin: int, end: int) -> Array:
        """With respect to the states after the steps of a segment, zero where there is no record."""
        if self.every == 1:
            return self.rows[:, begin + 1 : end + 1]
        samples, _, n = self.rows.shape
        first, last = begin // self.every + 1, end // self.every + 1
        if first == last:
            return np.broadcast_to(np.zeros(n, self.rows.dtype), (samples, end - begin, n))
        out = np.zeros((samples, end - begin, n), self.rows.dtype)
        out[:, first * self.every - begin - 1 :: self.every] = self.rows[:, first:last]
        return out


def _summed(x: Array, shape: tuple[int, ...]) -> Array:
    """An array summed over the axes in which a shape was broadcast to its own."""
    extra = x.ndim - len(shape)
    axes = tuple(range(extra)) + tuple(extra + k for k, n in enumerate(shape) if n == 1 and x.shape[extra + k] != 1)
    return x.sum(axis=axes).reshape(shape) if axes else x.reshape(shape)
