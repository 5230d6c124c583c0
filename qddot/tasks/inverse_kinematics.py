"""Inverse kinematics: configurations in which tasks are reached, by compiled iterations over batches of targets and starts.

The iterations of `qddot.tasks.iteration` run in machine code, samples in lanes. Between rounds of some iterations the
samples that have stopped are taken out, so that lanes stay full. Where a sample does not reach its targets from q0, it
starts again from random configurations, the same ones for all samples: results do not depend on the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qddot.compiler.ir.step_program import Layout, Step
from qddot.compiler.runtime.time_stepping import OfSamples
from qddot.compiler.targets.host import host
from qddot.dynamics.engine import Engine
from qddot.dynamics.input_checks import count, positive
from qddot.dynamics.pipeline import program_of, time_loop_of, unknowns
from qddot.errors import InputError, KernelTooLargeError, shown
from qddot.mechanism import configurations
from qddot.mechanism.model import Model
from qddot.progress import Loop
from qddot.tasks.iteration import ANGLE, CONVERGED, COST, ITERATIONS, LENGTH, RUNNING, STATUS, Iteration
from qddot.tasks.targets import LoopClosure, Posture, Task, as_tasks, has_positions

Array = NDArray[Any]

_ROUND = 8  # iterations, after which samples that have stopped are taken out
_FEW, _LONG_ROUND = 64, 32  # samples for which a round costs more by itself than by its iterations
_INNER = 0.85  # of the range of a coordinate: what fails mostly ends at a limit
_NEVER = 1 << 40  # steps between records: there are none
_STATUSES = np.array(["limit of iterations", "converged", "local minimum", "not finite"])  # by RUNNING, CONVERGED, …


@dataclass(frozen=True, repr=False)
class Solution:
    """What inverse kinematics has found, with the batch axes of targets and q0.

    `q` are configurations. `status` says of each sample "converged"; "local minimum", where no motion brings it nearer;
    "limit of iterations"; or "not finite", where target or start are not numbers and q is NaN. Where no start converged, q
    is the one of least cost. `position_error` and `rotation_error`, in m and rad, are what all tasks together are off by,
    `iterations` what the start that was kept took, and `restart` which it was, 0 for q0.
    """

    q: Array
    status: Any
    position_error: Any
    rotation_error: Any
    iterations: Any
    restart: Any

    def __repr__(self) -> str:
        if not np.ndim(self.status):
            return f"<Solution: {self.status}, off by {self.error:.2g} (m or rad), q = {self.q}>"
        good, size = np.count_nonzero(self.success), np.size(self.status)
        worst = f", off by {np.max(self.error[self.success]):.2g} (m or rad) at most" if good else ""
        return f"<Solution: {good} of {size} converged{worst}>"

    def with_arrays(self, f: Callable[[Any], Any]) -> Solution:
        """The same with f of the configurations; how it went stays in NumPy's arrays."""
        return replace(self, q=f(self.q))

    @property
    def success(self) -> Any:
        """Which samples converged."""
        return self.status == "converged"

    @property
    def error(self) -> Any:
        """The larger of both errors, in m or rad."""
        return np.maximum(self.position_error, self.rotation_error)


class Options(NamedTuple):
    """The choices of `inverse_kinematics`."""

    limits: bool = True
    restarts: int = 8
    iterations: int = 100
    tolerance: float = 1e-8
    seed: int = 0


def inverse_kinematics(engine: Engine, targets: Any, q0: ArrayLike | None, options: Options) -> Solution:
    """The configurations in which the tasks cost least."""
    iteration, codes, parts = iteration_of(engine, targets, bool(options.limits))
    model = engine.model
    tolerance = np.full(2, positive(options.tolerance, "tolerance", "m and rad") ** 2)
    lower, upper, middle = _limits(engine, bool(options.limits))
    start = middle if q0 is None else _real(engine, q0)
    try:
        batch = np.broadcast_shapes(start.shape[:-1], *(x.shape[:-1] for x in parts))
    except ValueError:
        shapes = [x.shape[:-1] for x in (start, *parts)]
        raise InputError(f"the batch axes of q0 and of the targets do not fit together: {shapes}") from None
    flat = np.broadcast_to(start, (*batch, model.nq)).reshape(-1, model.nq)
    numbers = np.concatenate([np.broadcast_to(x, (*batch, x.shape[-1])) for x in (*parts, tolerance)], axis=-1)
    numbers = numbers.reshape(-1, numbers.shape[-1])
    search = _Search(iteration, _compiled(engine, iteration, (codes, bool(options.limits))), options)
    sound = np.isfinite(flat).all(axis=-1) & np.isfinite(numbers).all(axis=-1)
    state, restart = search.all(np.clip(flat[sound], lower, upper), numbers[sound])
    return _solution(iteration, flat, sound, state, restart, batch)


def iteration_of(engine: Engine, targets: Any, limits: bool) -> tuple[Iteration, tuple[Any, ...], list[Array]]:
    """The iteration for these targets, what its code depends on, and the numbers of its tasks."""
    tasks = _tasks(engine.model, targets)
    codes = tuple(task.code(engine.model) for task in tasks)
    parts = [task.numbers(engine.model) for task in tasks]
    lower, upper, _ = _limits(engine, limits)
    return Iteration(engine.model, tasks, tuple(x.shape[-1] for x in parts), lower, upper), codes, parts


def _tasks(model: Model, targets: Any) -> tuple[Task, ...]:
    tasks = as_tasks(targets)
    if model.nv == 0:
        raise InputError(f"robot {model.name!r} has no degrees of freedom, so there is nothing to solve for")
    if has_positions(model) and not any(isinstance(t, LoopClosure) for t in tasks):
        tasks.append(LoopClosure())
    if not tasks:
        raise InputError("inverse_kinematics needs a target: {frame: pose}, or tasks of qddot.tasks")
    return tuple(tasks)


def _real(engine: Engine, q0: ArrayLike) -> Array:
    q = engine.checks.q(q0, "q0")
    if q.dtype.kind != "f":
        raise InputError(f"q0 must hold real numbers, not {q.dtype}")
    return q.astype(float, copy=False)


def _limits(engine: Engine, kept: bool) -> tuple[Array, Array, Array]:
    """Lower and upper limits, infinite where they are not kept, and the middle between them; found once."""
    found = engine.kept.get(("limits", kept))
    if found is None:
        nq = engine.model.nq
        lower, upper = bounds(engine.model) if kept else (np.full(nq, -np.inf), np.full(nq, np.inf))
        found = engine.kept["limits", kept] = lower, upper, _middle(engine.model, lower, upper)
    return found


# ---- limits ----------------------------------------------------------------------------------------------------------


def bounds(model: Model) -> tuple[Array, Array]:
    """The limits in the order of q, where a mimic joint's limits are limits of the joint that it follows."""
    lower, upper = configurations.bounds(model)
    for i, _ in model.outward():
        slot, own = model.slots[i], model.limits[i]
        if model.mimic[i] is None or not slot.factor:
            continue
        ends = [(np.array(x) - slot.offset) / slot.factor for x in (own.lower, own.upper)]
        lower[slot.q] = np.maximum(lower[slot.q], np.minimum(*ends))
        upper[slot.q] = np.minimum(upper[slot.q], np.maximum(*ends))
        if np.any(lower[slot.q] > upper[slot.q]):
            name = model.joint_names[i]
            raise InputError(f"no configuration keeps the limits of mimic joint {name!r} and of the joint it follows")
    return lower, upper


def _middle(model: Model, lower: Array, upper: Array) -> Array:
    """Half way between the limits; the neutral coordinates, clipped, where there are not two."""
    two = np.isfinite(lower) & np.isfinite(upper)
    half = np.where(two, 0.5 * (np.where(two, lower, 0.0) + np.where(two, upper, 0.0)), configurations.neutral(model))
    return np.clip(half, lower, upper)


def _turns(model: Model) -> Array:
    """Which coordinates are angles that a full turn changes nothing about: no constraint and no mimic joint counts them."""
    free = np.zeros(model.nq, bool)
    for i, _ in model.outward():
        if model.mimic[i] is None:
            free[model.slots[i].q] = model.joint[i].can_turn_frame
    for i, mimic in enumerate(model.mimic):
        if mimic is not None:
            free[model.slots[i].q] = False
    return free & (not model.constraints)


def random_starts(model: Model, lower: Array, upper: Array, several: int, seed: int) -> Array:
    """Configurations to start again from: in the inner part of the limits and at most half a turn from their middle, any
    turn of a ball joint. All samples share them, so they are spread: each coordinate has one in each of `several` equal
    parts of its range (a Latin hypercube).

    NaN stands for what stays as in q0: lengths without limits, and free joints.
    """
    rng, out = np.random.default_rng(seed), np.full((several, model.nq), np.nan)
    centre = _middle(model, lower, upper)
    for i, _ in model.outward():
        joint, place = model.joint[i], model.slots[i].q
        if model.mimic[i] is not None:
            continue
        if joint.nq != joint.nv:
            if not joint.is_floating:
                out[:, place] = [joint.random(rng) for _ in range(several)]
            continue
        reach = np.where(joint.is_angle, np.pi, np.inf)  # half a turn either way is every angle
        low, high = np.maximum(lower[place], centre[place] - reach), np.minimum(upper[place], centre[place] + reach)
        two = np.isfinite(low) & np.isfinite(high)
        middle, half = (
            np.where(two, 0.5 * (np.where(two, high, 0.0) + k * np.where(two, low, 0.0)), np.nan) for k in (1, -1)
        )
        parts = np.stack([rng.permutation(several) for _ in range(joint.nq)], axis=-1).reshape(several, joint.nq)
        drawn = (parts + rng.random((several, joint.nq))) / max(several, 1)
        out[:, place] = middle + _INNER * half * (2.0 * drawn - 1.0)
    return out


# ---- running ---------------------------------------------------------------------------------------------------------


def _compiled(engine: Engine, iteration: Iteration, key: tuple[Any, ...]) -> OfSamples | None:
    """The loop over iterations, made once; None where the robot is not compiled."""
    if not engine.compiled:
        return None
    found = engine.kept.get(("inverse kinematics", key))
    if found is None:
        what = f"inverse kinematics of {engine.model.name!r}"
        sizes = [iteration.n_state, 2, iteration.n_numbers]
        graph, (state, _, numbers) = unknowns(sizes)
        try:
            program = program_of(what, graph, graph.nodes_of(iteration(state, numbers)), sum(sizes))
        except KernelTooLargeError as error:
            raise KernelTooLargeError(f"{error}; Robot(model, compiled=False) iterates in Python") from None
        layout = Layout(iteration.n_state, 0, iteration.n_numbers, 0, host().lanes("float64"))
        found = engine.kept["inverse kinematics", key] = time_loop_of(what, Step(program), layout)
    return found


class _Search:
    """Samples, from q0 and from other starts, until they stop."""

    def __init__(self, iteration: Iteration, loop: OfSamples | None, options: Options) -> None:
        self.iteration, self.loop = iteration, loop
        self.restarts = 0 if options.restarts == 0 else count(options.restarts, "restarts")
        self.iterations = count(options.iterations, "iterations")
        self.seed, self.lanes = options.seed, host().lanes("float64")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int | np.integer) or self.seed < 0:
            raise InputError(f"seed is {shown(self.seed)}; it must be a whole number of zero or more")
        self.own = iteration.model.nq + iteration.model.nv

    def all(self, q0: Array, numbers: Array) -> tuple[Array, Array]:
        """The best of every sample, in pieces where somebody is told how far it is: samples do not notice each other."""
        n, first, found = len(q0), 0, []
        with Loop(f"inverse kinematics of {n:,} of {self.iteration.model.name!r}", n) as loop:
            for size in loop.pieces(n):
                found.append(self.best(q0[first : first + size], numbers[first : first + size]))
                first += size
        if len(found) == 1:
            return found[0]
        states, restarts = zip(*(found or [self.best(q0, numbers)]), strict=True)
        return np.concatenate(states), np.concatenate(restarts)

    def best(self, q0: Array, numbers: Array) -> tuple[Array, Array]:
        """The samples as they stopped, from the first start that converged or the best one, and which start that was."""
        it, tried = self.iteration, 0
        state, restart = self._pursued(q0, numbers), np.zeros(len(q0), int)
        while tried < self.restarts:
            left = np.flatnonzero(state[:, self.own + STATUS] != CONVERGED)
            if not len(left):
                break
            several = min(self.restarts - tried, max(1, self.lanes // len(left)))  # what lanes would be empty otherwise
            starts = self._fresh[tried : tried + several]
            starts = np.where(np.isnan(starts), q0[left][:, None], starts).reshape(-1, it.model.nq)
            found = self._pursued(starts, np.repeat(numbers[left], several, axis=0)).reshape(len(left), several, -1)
            for k in range(several):
                better = self._better(found[:, k], state[left])
                state[left[better]], restart[left[better]] = found[better, k], tried + k + 1
            tried += several
        return state, restart

    @cached_property
    def _fresh(self) -> Array:
        """Where to start again; drawn only if some sample needs it."""
        it = self.iteration
        return random_starts(it.model, it.lower, it.upper, self.restarts, self.seed)

    def _better(self, new: Array, old: Array) -> Array:
        """Where the first start has not converged, and another has, or costs less."""
        done, found = (x[:, self.own + STATUS] == CONVERGED for x in (old, new))
        return np.asarray(~done & (found | (new[:, self.own + COST] < old[:, self.own + COST])))

    def _pursued(self, q: Array, numbers: Array) -> Array:
        """Each sample from its start until it stops, or for all iterations."""
        state, going, done = self.iteration.start(q), np.arange(len(q)), 0
        while len(going) and done < self.iterations:
            steps = min(_LONG_ROUND if len(going) <= _FEW else _ROUND, self.iterations - done)
            part = self._run(state[going], numbers[going], steps)
            state[going], done = part, done + steps
            going = going[part[:, self.own + STATUS] == RUNNING]
        return state

    def _run(self, state: Array, numbers: Array, steps: int) -> Array:
        if self.loop is None:
            with np.errstate(all="ignore"):
                for _ in range(steps):
                    state = self.iteration(state, numbers)
            return state
        held, records = np.empty((len(state), steps, 0)), np.empty((len(state), 0, 0))
        return self.loop(state, held, numbers, times=(0.0, 0.0), first=0, steps=steps, every=_NEVER, records=records)


def _solution(
    iteration: Iteration, q0: Array, sound: Array, state: Array, restart: Array, batch: tuple[int, ...]
) -> Solution:
    """Results with their batch axes; samples that are not sound are NaN."""
    model, own = iteration.model, state[:, iteration.model.nq + iteration.model.nv :]
    q = _unwound(iteration, state[:, : model.nq], q0[sound])

    def spread(x: Array, fill: Any, dtype: Any) -> Any:
        out = np.full((len(sound), *x.shape[1:]), fill, dtype)
        out[sound] = x
        return out.reshape((*batch, *x.shape[1:]))[()]

    length, angle = np.sqrt(own[:, LENGTH]), 2.0 * np.arcsin(np.minimum(0.5 * np.sqrt(own[:, ANGLE]), 1.0))
    return Solution(
        spread(q, np.nan, float),
        spread(_STATUSES[own[:, STATUS].astype(int)], _STATUSES[-1], _STATUSES.dtype),
        spread(length, np.nan, float),
        spread(angle, np.nan, float),
        spread(own[:, ITERATIONS], 0, int),
        spread(restart, 0, int),
    )


def _unwound(iteration: Iteration, q: Array, q0: Array) -> Array:
    """Angles brought to within half a turn of q0 where limits and tasks allow it."""
    if any(isinstance(task, Posture) for task in iteration.tasks):
        return q
    near = q0 + np.remainder(q - q0 + np.pi, 2.0 * np.pi) - np.pi
    fits = _turns(iteration.model) & (near >= iteration.lower) & (near <= iteration.upper)
    return np.where(fits & (np.abs(q - q0) > np.pi), near, q)
