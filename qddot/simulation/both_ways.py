"""Steps in both directions: a rollout whose whole states are recorded, and the loop back through its steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from qddot.compiler.ir.step_program import Layout, Step
from qddot.compiler.runtime.time_stepping import TimeLoop
from qddot.dynamics.engine import HasEngine
from qddot.dynamics.pipeline import time_loop_of
from qddot.errors import InputError, KernelTooLargeError, shown
from qddot.simulation import arguments
from qddot.simulation.adjoint import reverse_step
from qddot.simulation.rollout import Rollout
from qddot.simulation.system import Law

Array = NDArray[Any]


class Steps(Rollout):
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

    def given(self, held: Array, weights: Array, values: list[Array]) -> Steps:
        """The same steps with other numbers."""
        other = object.__new__(Steps)
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

    def backwards(self, starting: bool, lanes: int) -> TimeLoop:
        """The loop back through steps (`adjoint`)."""
        if self._has_functions:
            return self._reverse_loop(starting, lanes)
        plan, kept = self.plan, self.engine.kept
        key: tuple[Any, ...] = ("reverse rollout", self.integrator, starting, lanes, self.dtype, self.free)
        key = (*key, plan.n_held, plan.rows, plan.gains, plan.project, plan.limits)
        if key not in kept:
            kept[key] = self._reverse_loop(starting, lanes)
        found: TimeLoop = kept[key]
        return found

    def _reverse_loop(self, starting: bool, lanes: int) -> TimeLoop:
        known: Any = self._loops
        if (starting, lanes, "backwards") not in known:
            what = f"{self.integrator} of {self.model.name!r} backwards"
            try:
                step, n, parts = reverse_step(self, starting)
            except KernelTooLargeError as error:
                raise KernelTooLargeError(f"the derivative of a step is too large: {error}") from None
            _, _, n_held, *constants = self._sizes
            layout = Layout(n, sum(parts), sum(constants), n_held, lanes, 0, self.dtype, backwards=True, held_parts=parts)
            known[starting, lanes, "backwards"] = time_loop_of(what, step, layout)
        found: TimeLoop = known[starting, lanes, "backwards"]
        return found
