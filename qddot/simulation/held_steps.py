"""Many samples that Python steps together: their states and held inputs lie in arrays that may be written to in between."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.compiler.runtime.time_stepping import TimeLoop
from qddot.errors import InputError
from qddot.simulation import arguments
from qddot.simulation.integrators import INTEGRATORS
from qddot.simulation.rollout import Rollout

Array = NDArray[Any]


class HeldSteps:
    """`steps` steps of a rollout at a time, from `state` on, with `inputs` held; the rollout takes one row of inputs."""

    def __init__(self, rollout: Rollout, samples: int, steps: int) -> None:
        if INTEGRATORS[rollout.integrator].past(1, 1):
            names = [name for name, x in INTEGRATORS.items() if not x.past(1, 1)]
            raise InputError(
                f"integrator {rollout.integrator!r} remembers earlier steps, which states that are set from outside do not "
                f"have; take {', '.join(map(repr, names))}"
            )
        if not rollout.is_on_host:
            raise InputError(f"these steps are made on the CPU, not on {rollout.target!r}")
        model = rollout.model
        self._rollout, self._steps, self.dt = rollout, steps, rollout.dt
        self.state = np.zeros((samples, model.nq + model.nv), rollout.dtype)
        self.inputs = np.zeros((samples, rollout.held.shape[-1]), rollout.dtype)
        self.q, self.v = self.state[:, : model.nq], self.state[:, model.nq :]
        self._values = np.ascontiguousarray(rollout.arrays((samples,))[1])
        self._held = np.broadcast_to(self.inputs[:, None], (samples, steps, self.inputs.shape[-1]))
        self._advance, self._system = None, rollout._system(())
        if rollout.engine.compiled:
            loop = rollout._loop(False, rollout.lanes(samples))
            assert isinstance(loop, TimeLoop)
            times = rollout.dt, rollout.t0
            self._advance = loop.stepper(self.state, self._held, self._values, times, steps)

    def put(self, rows: Array, q: Any, v: Any) -> None:
        """Sets the states of some samples, after a check that robots can be in them."""
        engine = self._rollout.engine
        x, u = engine.checks.all("the state after a reset", ("q", "v"), (q, v))
        arguments.fitting_start(engine, self._system, self._rollout.t0, x, u)
        self.q[rows], self.v[rows] = x, u

    def advance(self) -> None:
        """Makes the steps, in place."""
        if self._advance is not None:
            self._advance(0)
            return
        nowhere = np.empty((len(self.state), self._steps, self.state.shape[-1]))
        self.state[...] = self._rollout._eagerly(
            False, self.state, self._held, self._values, 0, self._steps, self._steps, nowhere
        )
