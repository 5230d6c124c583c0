"""Robots in time: the methods that `Robot` has for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from qddot.robot.base import RobotBase

if TYPE_CHECKING:
    from qddot.simulation.differentiable import DifferentiableRollout
    from qddot.simulation.simulator import Simulator
    from qddot.simulation.trajectory import Trajectory


class SimulationMethods(RobotBase):
    """A part of `Robot`."""

    def simulate(
        self,
        q0: ArrayLike,
        v0: ArrayLike,
        controls: ArrayLike | Callable[..., Any] | None = None,
        *,
        dt: float,
        steps: int,
        integrator: str = "rk4",
        record: int | str = 1,
        **options: Any,
    ) -> Trajectory:
        """The motion from (q0, v0) through `steps` steps of `dt`, any leading batch axes, compiled as a whole.

        `controls` are joint forces: None, an array (..., steps, nv), or a function of (t, q, v). `record` says every how
        many steps the state is kept, "end" only the last. Options (docs/simulation.md): `inputs`, `forces`, `prescribed`,
        `free`, `t0`, `constraints`, `gains`, `dtype`, `limits`; for the integrators of SciPy `rtol`, `atol`, `events`.
        """
        from qddot.simulation.simulate import simulate

        chosen = {"dt": dt, "steps": steps, "integrator": integrator, "record": record, **options}
        return simulate(self, q0, v0, controls, **chosen)

    def simulator(
        self, controls: Callable[..., Any] | None = None, *, dt: float, record: bool | int = False, **options: Any
    ) -> Simulator:
        """A simulation that Python steps: `sim.reset(q, v)`, then `q, v = sim.step(tau)`, any leading batch axes.

        tau is held over a step of `dt`, and the states have the bits of `simulate` with the same rows of controls. With a
        law `controls` of (t, q, v) `step()` takes nothing, with one of (t, q, v, u) and `inputs=n` it takes u, n numbers.
        `record=True` keeps every state for `sim.trajectory()`, `record=n` every n-th. The other options are those of
        `simulate` (docs/simulation.md), without those of the integrators of SciPy.
        """
        from qddot.simulation.simulator import Simulator

        return Simulator(self, controls, dt=dt, record=record, **options)

    def differentiable_rollout(
        self,
        controls: ArrayLike | Callable[..., Any] | None = None,
        *,
        dt: float,
        steps: int,
        record: int | str = 1,
        cost: Callable[..., Any] | None = None,
        **options: Any,
    ) -> DifferentiableRollout:
        """A rollout with gradients: `run = rollout(q0, v0)`, then `run.q`, `run.v` and `run.vjp(q_bar=…, v_bar=…)`.

        The gradients are those of the discrete integrator, with respect to q0, v0, held `controls` or `inputs`, the
        `parameters` of a law controls(t, q, v, p), and what is `free`; each may be given anew in a call. A function
        `cost(t, q, v, tau)` is added up over the steps. `record` and the other options are those of `simulate`
        (docs/rollout_gradients.md).
        """
        from qddot.simulation.differentiable import DifferentiableRollout

        return DifferentiableRollout(self, controls, dt=dt, steps=steps, record=record, cost=cost, **options)
