"""A robot that Python steps: a controller in plain code around the compiled step of a simulation.

`step` runs the code of `simulate`, for one step, in arrays whose addresses are looked up when it is reset: with the same
held joint forces the states have the same bits, one sample or many. A simulator belongs to one thread at a time.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from math import isfinite, prod
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qddot.compiler.runtime.time_stepping import TimeLoop
from qddot.dynamics.engine import HasEngine
from qddot.dynamics.input_checks import count, real_numbers
from qddot.errors import InputError, QddotWarning, outside, shown, unexpected
from qddot.simulation import adaptive, stiffness
from qddot.simulation.after_run import drift
from qddot.simulation.arguments import RolloutOptions
from qddot.simulation.integrators import INTEGRATORS
from qddot.simulation.rollout import Rollout
from qddot.simulation.simulate import facts
from qddot.simulation.system import Law
from qddot.simulation.trajectory import Trajectory

Array = NDArray[Any]
_FIRST_ROWS = 1024  # of a record: when it is full, it doubles


class Simulator:
    """One step at a time: `reset(q, v)`, then `q, v = step(tau)`. `Robot.simulator` makes one (docs/simulation.md)."""

    def __init__(
        self,
        robot: HasEngine,
        controls: Law | None = None,
        *,
        dt: float,
        record: bool | int = False,
        **options: Unpack[RolloutOptions],
    ) -> None:
        for name in options:
            if name not in RolloutOptions.__annotations__:
                raise unexpected("simulator", name, ("controls", "dt", "record", *RolloutOptions.__annotations__))
        integrator = options.get("integrator", "rk4")
        if isinstance(integrator, str) and integrator in adaptive.METHODS:
            raise InputError(
                f"integrator {integrator!r} chooses its own steps, and a simulator makes steps of dt; take "
                f"{', '.join(map(repr, INTEGRATORS))}, or robot.simulate"
            )
        self.robot, self._every = robot, int(record) if isinstance(record, bool) else count(record, "record")
        self._rollout = _rollout(robot, controls, dt, options)
        if not self._rollout.is_on_host:
            raise InputError(
                f"a simulator steps on the CPU, not on {options['target']!r}; robot.simulate does, or target='cpu'"
            )
        self._has_warned_of_steps = False
        self._samples = -1  # until it is reset
        self._batch: tuple[int, ...] = ()
        self._q: Array = np.empty(0)
        self._v: Array = np.empty(0)

    def __repr__(self) -> str:
        rollout, samples = self._rollout, "" if self._samples < 0 or not self._batch else f", {self._samples} samples"
        now = "not yet reset" if self._samples < 0 else f"t = {self.t:g} s after {self._steps} steps"
        return f"<Simulator of {rollout.model.name!r}: {rollout.integrator}, dt = {rollout.dt:g} s{samples}, {now}>"

    @property
    def dt(self) -> float:
        """The length of a step, in s."""
        return self._rollout.dt

    @property
    def steps(self) -> int:
        """How many steps were made since it was reset."""
        self._require_start()
        return self._steps

    @property
    def t(self) -> float:
        """The time, in s."""
        return self._rollout.t0 + self._rollout.dt * self.steps

    @property
    def q(self) -> Array:
        """The configuration, (..., nq)."""
        self._require_start()
        return self._q.copy()

    @property
    def v(self) -> Array:
        """The velocity, (..., nv)."""
        self._require_start()
        return self._v.copy()

    # ---- running

    def reset(self, q: ArrayLike, v: ArrayLike | None = None) -> tuple[Array, Array]:
        """Starts at (q, v), at rest without v, with any leading batch axes, and begins a new record."""
        rollout = self._rollout
        start = rollout.start(q, np.zeros(rollout.model.nv) if v is None else v)
        if not self._has_warned_of_steps:
            stiffness.warn(rollout, start)
            self._has_warned_of_steps = True
        batch, n = start.state.shape[:-1], start.state.shape[-1]
        if self._samples < 0 or self._batch != batch:
            self._batch, self._samples = batch, prod(batch)
            self._state = np.empty((self._samples, n), rollout.dtype)
            self._held = np.empty((self._samples, 1, rollout.held.shape[-1]), rollout.dtype)
            self._bind()
        self._state[...], self._held[...] = start.state.reshape(-1, n), 0.0
        self._steps, self._lost = 0, False
        self._record = self._recording(None) if self._every else None
        return self._q.copy(), self._v.copy()

    def _bind(self) -> None:
        """Views of the arrays that are stepped, and the functions that step them."""
        rollout, nq, nv = self._rollout, self._rollout.model.nq, self._rollout.model.nv
        whole = self._state.reshape(*self._batch, self._state.shape[-1])
        self._q, self._v = whole[..., :nq], whole[..., nq : nq + nv]
        self._u = self._held.reshape(*self._batch, self._held.shape[-1])
        self._is_single = not self._batch
        self._first = INTEGRATORS[rollout.integrator].start_steps
        values = np.ascontiguousarray(rollout.arrays(self._batch)[1])
        self._advance = _stepper(rollout, False, self._state, self._held, values)
        self._begin = _stepper(rollout, True, self._state, self._held, values) if self._first else self._advance

    def _recording(self, known: tuple[Array, Array] | None) -> _Record:
        return _Record(self._state[:, : self._rollout.model.nq + self._rollout.model.nv], self._held[:, 0], known)

    def step(self, tau: ArrayLike | None = None) -> tuple[Array, Array]:
        """The state after one step with tau held: (..., nv), or the `inputs` of a law of control; None is zero."""
        if self._samples < 0:
            self._require_start()
        u, k = self._u, self._steps
        if tau.__class__ is np.ndarray and tau.shape == u.shape and tau.dtype is u.dtype:
            u[...] = tau
        else:
            u[...] = self._checked(tau)
        if self._record is not None and k % self._every == 0:
            self._record.add_inputs()
        (self._advance if k >= self._first else self._begin)(k)
        self._steps = k = k + 1
        if self._record is not None and k % self._every == 0:
            self._record.add_state()
        q, v = self._q.copy(), self._v.copy()
        if not (self._lost or (self._is_single and isfinite(sum(v.tolist())))):  # NumPy would take as long as the step
            self._look()
        return q, v

    def trajectory(self) -> Trajectory:
        """What was recorded since it was reset, with record=True; record=n keeps every n-th state."""
        self._require_start()
        if self._record is None:
            raise InputError("nothing was recorded; make the simulator with record=True, or record=n for every n-th step")
        rollout, nq = self._rollout, self._rollout.model.nq
        states, inputs = self._record.arrays()
        states, inputs = (x.reshape(*self._batch, *x.shape[1:]) for x in (states, inputs))
        numbers, q, v = self._every * np.arange(states.shape[-2]), states[..., :nq].copy(), states[..., nq:].copy()
        tau = rollout.forces_of(inputs, numbers, q, v)
        info = {"integrator": rollout.integrator, "steps": self._steps, "record": self._every, **facts(rollout)}
        channels = drift(self.robot.engine, q, v, tuple(rollout.plan.motion or ()))
        return Trajectory(self.robot, rollout.t0 + rollout.dt * numbers, q, v, tau=tau, channels=channels, info=info)

    # ---- checks

    def _require_start(self) -> None:
        if self._samples < 0:
            raise InputError("this simulator has no state yet; call reset(q, v) first")

    def _checked(self, tau: ArrayLike | None) -> Array:
        u, what = self._u, "tau" if self._rollout._is_array else "the inputs of the law of control"
        if tau is None:
            return np.zeros(u.shape)
        array, n = real_numbers(tau, what), u.shape[-1]
        if n == 0:
            raise InputError("the law of control takes no inputs, so step() has no argument; inputs=n gives it n numbers")
        if array.ndim == 0 or array.shape[-1] != n:
            raise InputError(f"{what} has shape {array.shape}, but its last axis must have {n} entries")
        try:
            return np.broadcast_to(array, u.shape)
        except ValueError:
            raise InputError(
                f"{what} has the batch axes {array.shape[:-1]}, which do not fit the {self._batch} of the states that the "
                f"simulator was reset to"
            ) from None

    def _look(self) -> None:
        """Says so, once, if something is not finite."""
        fine = np.isfinite(self._state).all(axis=-1)
        if fine.all():
            return
        self._lost = True
        warnings.warn(
            f"{np.count_nonzero(~fine)} of {fine.size} samples are not finite after step {self._steps}: take shorter steps "
            f"than this {self._rollout.integrator!r} has, or 'rosenbrock' if something is stiff",
            QddotWarning,
            stacklevel=outside(),
        )

    # ---- copies

    def __deepcopy__(self, memo: Any = None) -> Simulator:
        """Another that goes on from here by itself; the compiled code is the same."""
        other = type(self).__new__(type(self))
        other.__setstate__({k: x.copy() if isinstance(x, np.ndarray) else x for k, x in self.__getstate__().items()})
        return other

    __copy__ = __deepcopy__

    def __getstate__(self) -> dict[str, Any]:
        """Where it is; addresses and machine code are of this process."""
        gone = ("_q", "_v", "_u", "_advance", "_begin", "_record")
        kept = {name: x for name, x in self.__dict__.items() if name not in gone}
        if self._samples >= 0:
            kept["_recorded"] = None if self._record is None else self._record.arrays(complete=False)
        return kept

    def __setstate__(self, state: dict[str, Any]) -> None:
        recorded = state.pop("_recorded", None)
        self.__dict__.update(state)
        if self._samples >= 0:
            self._bind()
            self._record = None if recorded is None else self._recording(recorded)


def _rollout(robot: HasEngine, controls: Any, dt: float, options: RolloutOptions) -> Rollout:
    """A rollout whose controls, or whose law's inputs, are one row: that of the present step."""
    inputs = options.pop("inputs", None)
    if controls is None:
        if inputs is not None:
            raise InputError("inputs=n is for a law controls(t, q, v, u), and there is none; step(tau) takes joint forces")
        controls = np.zeros((1, robot.engine.model.nv))
    elif not callable(controls):
        raise InputError(f"controls={shown(controls)} is no function of (t, q, v); joint forces are given to step(tau)")
    elif inputs is not None:
        options["inputs"] = np.zeros((1, count(inputs, "inputs")))
    return Rollout(robot, controls, dt=dt, **options)


def _stepper(rollout: Rollout, starting: bool, state: Array, held: Array, values: Array) -> Callable[[int], None]:
    """What makes step number k of these samples in place."""
    if not len(state):
        return lambda k: None
    if rollout.engine.compiled:
        loop = rollout._loop(starting, rollout.lanes(len(state)))
        assert isinstance(loop, TimeLoop)
        return loop.stepper(state, held, values, (rollout.dt, rollout.t0))
    nowhere = np.empty((len(state), 1, rollout.model.nq + rollout.model.nv))

    def step(k: int) -> None:
        state[...] = rollout._eagerly(starting, state, held, values, k, 1, 1, nowhere)

    return step


class _Record:
    """States, from the start on, and what was held from each of them on; rows of arrays that grow."""

    def __init__(self, state: Array, held: Array, known: tuple[Array, Array] | None = None) -> None:
        self._sources, self._counts = (state, held), [0, 0]
        self._rows = [np.empty((_FIRST_ROWS, *x.shape), x.dtype) for x in self._sources]
        if known is None:
            self.add_state()
            return
        for which, rows in enumerate(known):
            self._rows[which] = np.concatenate([rows.swapaxes(0, 1), self._rows[which]])
            self._counts[which] = rows.shape[1]

    def add_state(self) -> None:
        self._add(0)

    def add_inputs(self) -> None:
        self._add(1)

    def _add(self, which: int) -> None:
        n, rows = self._counts[which], self._rows[which]
        if n == len(rows):
            rows = self._rows[which] = np.concatenate([rows, np.empty_like(rows)])
        rows[n] = self._sources[which]
        self._counts[which] = n + 1

    def arrays(self, complete: bool = True) -> tuple[Array, Array]:
        """States and inputs, (samples, rows, n); `complete`: what is held now also stands for the last state."""
        states, inputs = (rows[:n] for rows, n in zip(self._rows, self._counts, strict=True))
        if complete and len(inputs) < len(states):
            inputs = np.concatenate([inputs, self._sources[1][None]])
        elif complete:
            inputs = inputs[: len(states)]
        return np.ascontiguousarray(states.swapaxes(0, 1)), np.ascontiguousarray(inputs.swapaxes(0, 1))
