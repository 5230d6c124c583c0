"""Rollouts and their gradients: the adjoint of the compiled loop over time, with checkpoints.

The steps are cut into √T segments of √T steps. A run keeps the state at the beginning of each; the reverse sweep computes
the states of one segment again, from the last one to the first, and goes back through it in one compiled loop. Where every
state is recorded anyway, nothing is computed again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from math import isqrt, prod
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qddot.compiler.ir.step_program import Layout, Step
from qddot.compiler.runtime.time_stepping import OfSamples
from qddot.dynamics.engine import HasEngine
from qddot.dynamics.input_checks import count, real_numbers
from qddot.dynamics.pipeline import time_loop_of
from qddot.errors import InputError, KernelTooLargeError, shown, unexpected
from qddot.progress import Loop
from qddot.simulation import arguments
from qddot.simulation.adjoint import reverse_step, tangent_gradient
from qddot.simulation.arguments import RolloutOptions
from qddot.simulation.integrators import INTEGRATORS
from qddot.simulation.rollout import Progress, Rollout
from qddot.simulation.system import Law

Array = NDArray[Any]
COORDINATES = ("tangent", "ambient")


class _Steps(Rollout):
    """Steps in both directions, whose whole states are recorded, and which may add up a cost."""

    def __init__(self, robot: HasEngine, controls: Any, cost: Law | None, **options: Any) -> None:
        super().__init__(robot, controls, **options)
        if not self.engine.compiled:
            raise InputError("gradients of rollouts are of compiled robots; Robot(model) is one")
        if not self.is_on_host:
            raise InputError(f"gradients of rollouts are computed on the CPU, not on {self.target!r}; leave target= out")
        if cost is not None:
            if not callable(cost):
                raise InputError(f"cost={shown(cost)} is no function of (t, q, v, tau)")
            sizes = (self.model.nq, self.model.nv, self.model.nv)
            self.plan = replace(self.plan, cost=arguments.recorded("cost", cost, (), sizes))

    def given(self, held: Array, weights: Array, values: list[Array]) -> _Steps:
        """The same steps with other numbers."""
        other = object.__new__(_Steps)
        shared = {"_loops": self._loops, "_steps": self._steps}
        own = {"held": held, "weights": weights, "values": values}
        other.__dict__.update({**self.__dict__, **shared, **own})
        return other

    @property
    def _has_functions(self) -> bool:
        return super()._has_functions or bool(self._past) or self.plan.cost is not None

    def traced(self, starting: bool = False, lanes: int = 1) -> tuple[Step, Layout]:
        step, layout = super().traced(starting, lanes)
        return step, layout._replace(n_recorded=layout.n_state)

    def backwards(self, starting: bool, lanes: int) -> OfSamples:
        """The loop back through steps (`adjoint`)."""
        if self._has_functions:
            return self._reverse_loop(starting, lanes)
        plan, kept = self.plan, self.engine.kept
        key: tuple[Any, ...] = ("reverse rollout", self.integrator, starting, lanes, self.dtype, self.free)
        key = (*key, plan.n_held, plan.rows, plan.gains, plan.project, plan.limits)
        if key not in kept:
            kept[key] = self._reverse_loop(starting, lanes)
        found: OfSamples = kept[key]
        return found

    def _reverse_loop(self, starting: bool, lanes: int) -> OfSamples:
        known: Any = self._loops
        if (starting, lanes, "backwards") not in known:
            what = f"{self.integrator} of {self.model.name!r} backwards"
            try:
                step, (n, n_rows) = reverse_step(self, starting)
            except KernelTooLargeError as error:
                raise KernelTooLargeError(f"the derivative of a step is too large: {error}") from None
            *_, n_held = self._sizes[:3]
            layout = Layout(n, n_rows, sum(self._sizes[3:]), n_held, lanes, dtype=self.dtype, backwards=True)
            known[starting, lanes, "backwards"] = time_loop_of(what, step, layout)
        found: OfSamples = known[starting, lanes, "backwards"]
        return found


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


class _Shapes(NamedTuple):
    """Of what was given."""

    q0: tuple[int, ...]
    v0: tuple[int, ...]


class DifferentiableRollout:
    """A rollout that is set up and compiled once, run with any numbers, and differentiated (docs/rollout_gradients.md)."""

    def __init__(
        self,
        robot: HasEngine,
        controls: ArrayLike | Law | None = None,
        *,
        dt: float,
        steps: int,
        record: int | str = 1,
        cost: Law | None = None,
        **options: Unpack[RolloutOptions],
    ) -> None:
        for name in options:
            if name not in RolloutOptions.__annotations__:
                known = ("dt", "steps", "record", "cost", *RolloutOptions.__annotations__)
                raise unexpected("differentiable_rollout", name, known)
        self.robot, self.steps = robot, count(steps, "steps")
        self.record = self.steps if isinstance(record, str) and record == "end" else count(record, "record")
        if self.steps % self.record:
            raise InputError(
                f"record={self.record} does not divide the {self.steps} steps, so the end would not be recorded"
            )
        self._rollout = _Steps(robot, controls, cost, dt=dt, **options)
        self._has_law = callable(controls)

    def __repr__(self) -> str:
        own = self._rollout
        return f"<DifferentiableRollout of {own.model.name!r}: {self.steps} steps of {own.dt:g} s by {own.integrator}>"

    def __call__(
        self,
        q0: ArrayLike,
        v0: ArrayLike,
        *,
        controls: ArrayLike | None = None,
        inputs: ArrayLike | None = None,
        parameters: ArrayLike | None = None,
        free: Mapping[str, ArrayLike] | None = None,
    ) -> DifferentiableRun:
        """The motion from (q0, v0), any leading batch axes. What is not given is as it was when this was made."""
        steps = self._rollout.given(
            self._held(controls, inputs), self._weights(parameters), self._free(dict(free or {}), free)
        )
        return DifferentiableRun(self, steps, q0, v0)

    def _held(self, controls: Any, inputs: Any) -> Array:
        own = self._rollout.held
        for name, given, has_it in (("controls", controls, not self._has_law), ("inputs", inputs, self._has_law)):
            if given is not None and not (has_it and own.shape[-1]):
                raise InputError(f"this rollout was made without {name} that are an array; give it some when it is made")
        given = inputs if controls is None else controls
        if given is None:
            return own
        name = "inputs" if controls is None else "controls"
        array = real_numbers(given, name)
        if array.ndim < 2 or array.shape[-1] != own.shape[-1]:
            raise InputError(f"{name} has shape {array.shape}; it must be (..., steps, {own.shape[-1]}), a row a step")
        return np.ascontiguousarray(array, dtype=own.dtype)

    def _weights(self, given: Any) -> Array:
        own = self._rollout.weights
        if given is None:
            return own
        array = real_numbers(given, "parameters")
        if not own.shape[-1]:
            raise InputError("this rollout was made without parameters=; give it some when it is made")
        if array.ndim == 0 or array.shape[-1] != own.shape[-1]:
            raise InputError(f"parameters have shape {array.shape}; their last axis must have {own.shape[-1]} entries")
        return np.ascontiguousarray(array, dtype=own.dtype)

    def _free(self, given: dict[str, Any], as_given: Any) -> list[Array]:
        own = self._rollout
        if as_given is not None and not isinstance(as_given, Mapping):
            raise InputError("free= takes names and values, such as {'link3.mass': [1.0, 1.2]}")
        for name in given:
            if name not in own.free:
                raise InputError(f"{name!r} is not free in this rollout; it was made with free={own.free or None}")
        pairs = zip(own.free, own.values, strict=True)
        _, values = arguments.free(own.model, {name: given.get(name, x) for name, x in pairs})
        return [x.astype(own.dtype, copy=False) for x in values]


class DifferentiableRun:
    """One run of a rollout: its recorded states, the start first, and the way back (`vjp`)."""

    def __init__(self, rollout: DifferentiableRollout, steps: _Steps, q0: ArrayLike, v0: ArrayLike) -> None:
        self._rollout, self._steps, self._given = rollout, steps, _Shapes(np.shape(q0), np.shape(v0))
        start = steps.start(q0, v0)
        self._batch, n = start.state.shape[:-1], start.state.shape[-1]
        self._samples, T = prod(self._batch), rollout.steps
        if steps.held.shape[-1] and steps.held.shape[-2] < T:
            raise InputError(f"controls are given for {steps.held.shape[-2]} steps; {T} are needed")
        steps.fits_in_memory(T // rollout.record + 1, start, "record fewer states, record=…")
        self._edges = _edges(T, INTEGRATORS[steps.integrator].start_steps)
        self._has_all = rollout.record == 1
        self._checkpoints = np.empty((self._samples, 0 if self._has_all else len(self._edges) - 1, n), steps.dtype)
        self._records = np.empty((self._samples, T // rollout.record + 1, n), steps.dtype)
        self._held, self._values = steps.arrays(self._batch)
        self._forward(start)
        self._records.flags.writeable = False  # the way back begins with them

    def _forward(self, start: Progress) -> None:
        steps, every, rows = self._steps, self._rollout.record, self._records
        state = np.ascontiguousarray(start.state.reshape(-1, start.state.shape[-1]))
        rows[:, 0] = state
        what = f"simulating {self._samples:,} of {steps.model.name!r}"
        with Loop(what, self._rollout.steps, samples=self._samples) as loop:
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
        numbers = np.arange(0, self._rollout.steps + 1, self._rollout.record)
        return self._steps.t0 + self._steps.dt * numbers

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
        nq, n_seen = steps.model.nq, steps.model.nq + steps.model.nv
        seen = np.zeros((self._samples, self._records.shape[1], n_seen), steps.dtype)
        for name, given, columns in (("q", q_bar, slice(nq)), ("v", v_bar, slice(nq, None))):
            if given is not None:
                own = self._fitting(given, getattr(self, name), f"{name}_bar")
                seen[..., columns] = own.reshape(seen[..., columns].shape)
        n_x, _, n_u, *constants = steps._sizes
        carried = np.zeros((self._samples, n_u + n_x + sum(constants)), steps.dtype)
        if cost_bar is not None:
            carried[:, n_u + n_x - 1] = self._fitting(cost_bar, self.cost, "cost_bar").reshape(-1)
        by_held = np.zeros(steps.held.shape, steps.dtype)
        if self._samples:
            carried = self._backwards(carried, seen, by_held)
        x_bar, p_bar = carried[:, n_u : n_u + n_x], carried[:, n_u + n_x :]
        return self._gradients(x_bar[:, :n_seen] + seen[:, 0], by_held, p_bar, coordinates)

    def _fitting(self, given: Any, like: Array, name: str) -> Array:
        array = real_numbers(given, name)
        try:
            return np.broadcast_to(array, like.shape)
        except ValueError:
            raise InputError(f"{name} has shape {array.shape}; it must fit {name[:-4]}, which has {like.shape}") from None

    def _backwards(self, carried: Array, seen: Array, by_held: Array) -> Array:
        """Through all segments, the last one first; `by_held` is added to."""
        steps, every = self._steps, self._rollout.record
        n_x, _, n_u, *_ = steps._sizes
        longest = max(b - a for a, b in pairwise(self._edges))
        rows = np.empty((self._samples, longest, n_x + n_u + seen.shape[-1]), steps.dtype)
        made = np.empty((self._samples, longest, n_u), steps.dtype)
        segments = list(enumerate(pairwise(self._edges)))
        what = f"gradients of {self._samples:,} of {steps.model.name!r}"
        with Loop(what, len(segments), samples=self._samples * longest) as loop:
            for number in (k for n in loop.pieces(len(segments)) for k in range(n)):
                k, (begin, end) = segments.pop()
                n = end - begin
                self._states_of(k, begin, rows[:, :n, :n_x])
                rows[:, :n, n_x : n_x + n_u] = self._held[:, begin:end]
                rows[:, :n, n_x + n_u :] = 0.0
                last = -(-(begin + 1) // every)  # the first record after the beginning
                due = slice(last * every - begin - 1, n, every)
                rows[:, due, n_x + n_u :] = seen[:, last : end // every + 1]
                loop_back = steps.backwards(self._is_start(begin), steps.lanes(self._samples))
                carried = loop_back(
                    carried,
                    rows[:, :n][:, ::-1],
                    self._values,
                    times=(steps.dt, steps.t0),
                    first=end - 1,
                    steps=n,
                    every=1,
                    records=made[:, :n][:, ::-1],
                )
                del number
                if n_u:
                    by = made[:, :n].reshape(*self._batch, n, n_u)
                    by_held[..., begin:end, :] += _summed(by, (*by_held.shape[:-2], n, n_u))
        return carried

    def _states_of(self, k: int, begin: int, out: Array) -> None:
        """The states at the beginning of the steps of a segment."""
        n = out.shape[1]
        if self._has_all:
            out[...] = self._records[:, begin : begin + n]
            return
        out[:, 0] = self._checkpoints[:, k]
        if n > 1:
            window = self._held[:, begin : begin + n - 1], self._values
            state = np.ascontiguousarray(out[:, 0])
            self._steps._compiled(self._is_start(begin), state, *window, begin, n - 1, 1, out[:, 1:])

    def _gradients(self, start: Array, by_held: Array, p_bar: Array, coordinates: str) -> RolloutGradients:
        steps, (q_shape, v_shape) = self._steps, self._given
        start = start.reshape(*self._batch, -1)
        nq = steps.model.nq
        by_q = tangent_gradient(steps, self.q[..., 0, :], start[..., :nq], coordinates)
        own = np.split(p_bar.reshape(*self._batch, -1), np.cumsum([prod(s) for s in steps.constant_shapes.values()]), -1)
        found = {}
        for (name, shape), x, part in zip(steps.constant_shapes.items(), steps.constants, own, strict=False):
            found[name] = _summed(part.reshape(*self._batch, *shape), x.shape)
        has_held, has_law = bool(by_held.shape[-1]), self._rollout._has_law
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


def _summed(x: Array, shape: tuple[int, ...]) -> Array:
    """An array summed over the axes in which a shape was broadcast to its own."""
    extra = x.ndim - len(shape)
    axes = tuple(range(extra)) + tuple(extra + k for k, n in enumerate(shape) if n == 1 and x.shape[extra + k] != 1)
    return x.sum(axis=axes).reshape(shape) if axes else x.reshape(shape)
