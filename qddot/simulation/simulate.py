"""A robot from a start through time, as one call."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from qddot.dynamics.engine import HasEngine
from qddot.dynamics.input_checks import count, positive
from qddot.errors import InputError, unexpected, unknown
from qddot.simulation import adaptive, limits, stiffness
from qddot.simulation.after_run import drift, warn_diverged
from qddot.simulation.arguments import RolloutOptions
from qddot.simulation.integrators import INTEGRATORS
from qddot.simulation.rollout import Progress, Rollout
from qddot.simulation.trajectory import Trajectory

_WAY_OUT = "keep fewer states (record=…), or run it in pieces (Rollout) or into a folder (simulation.recorded)"


def simulate(
    robot: HasEngine,
    q0: ArrayLike,
    v0: ArrayLike,
    controls: Any = None,
    *,
    dt: float,
    steps: int,
    integrator: str = "rk4",
    record: int | str = 1,
    **options: Any,
) -> Trajectory:
    """A robot from (q0, v0) through time; docs/simulation.md has the options."""
    steps = count(steps, "steps")
    every = steps if isinstance(record, str) and record == "end" else count(record, "record")
    if steps % every:
        raise InputError(f"record={every} does not divide the {steps} steps, so the end would not be recorded")
    known = (*INTEGRATORS, *adaptive.METHODS)
    if not isinstance(integrator, str) or integrator not in known:
        raise unknown("integrator", integrator, known, "qddot")
    is_adaptive = integrator in adaptive.METHODS
    tolerances = {name: options.pop(name) for name in ("rtol", "atol", "events") if is_adaptive and name in options}
    if is_adaptive and robot.engine.model.is_constrained:  # there are no steps of ours after which to project
        options.setdefault("constraints", "baumgarte")
    info: dict[str, Any] = {"integrator": integrator, "steps": steps, "record": every}
    if not is_adaptive and robot.engine.compiled and str(options.get("target", "cpu")).partition(":")[0] == "cuda":
        from qddot.simulation import on_device

        controls, options, away = on_device.taken(robot.engine.model, controls, options)
        rollout = made(robot, controls, dt=dt, integrator=integrator, **options)
        info |= facts(rollout)
        return on_device.run(rollout, q0, v0, away, (steps, every), info, "limits" in options)
    rollout = made(robot, controls, dt=dt, **options, **({} if is_adaptive else {"integrator": integrator}))
    if is_adaptive and rollout.dtype != "float64":
        raise InputError(f"integrator {integrator!r} is SciPy's, in float64 only; take dtype='float64', or rk4")
    start = rollout.start(q0, v0)
    rollout.fits_in_memory(steps // every + 1, start, _WAY_OUT)
    numbers = np.arange(0, steps + 1, every)
    if is_adaptive:
        q, v, found = _adaptively(rollout, start, integrator, numbers, **tolerances)
        if q.ndim == 2:  # one sample is as long as it got; of a batch, what comes after a terminal event is NaN
            numbers = numbers[np.isfinite(q).all(axis=-1)]
            q, v = q[: len(numbers)], v[: len(numbers)]
        info |= found
    else:
        stiffness.warn(rollout, start)
        _, q, v = rollout.run(start, steps, every, with_start=True)
        warn_diverged(robot.engine, q, v, numbers, integrator)
    t = rollout.t0 + rollout.dt * numbers
    info |= facts(rollout)
    tau = rollout.forces_at(numbers, q, v)
    if "limits" not in options:
        limits.warn_outside(robot.engine, q, tau)
    channels = drift(robot.engine, q, v, tuple(rollout.plan.motion or ()))
    return Trajectory(robot, t, q, v, tau=tau, channels=channels, info=info)


def made(robot: HasEngine, controls: Any, **options: Any) -> Rollout:
    """A rollout, or an error that says which option there is not."""
    for name in ("rtol", "atol", "events"):
        if name in options:
            raise InputError(f"{name}= is for the integrators {', '.join(adaptive.METHODS)}")
    known = RolloutOptions.__annotations__
    for name in options:
        if name not in known and name != "dt":
            raise unexpected("simulate", name, ("controls", "dt", "steps", "record", *known, "rtol", "atol", "events"))
    return Rollout(robot, controls, **options)


def _adaptively(
    rollout: Rollout, start: Progress, method: str, numbers: Any, rtol: Any = 1e-8, atol: Any = 1e-10, events: Any = ()
) -> tuple[Any, Any, dict[str, Any]]:
    own = {"rtol": positive(rtol, "rtol"), "atol": positive(atol, "atol")}
    if rollout.held.shape[-1]:
        raise InputError(f"integrator {method!r} chooses its own steps; give controls as a function of (t, q, v)")
    if rollout.plan.project:
        raise InputError(f"integrator {method!r} chooses its own steps; take constraints='baumgarte'")
    times = rollout.t0 + rollout.dt * numbers
    q, v, facts = adaptive.solve(rollout, method, start.state, times, events=adaptive.checked(events), **own)
    return q, v, {**own, **facts}


def facts(rollout: Rollout) -> dict[str, Any]:
    """What is noted of a run beside its integrator and its steps."""
    return {"dt": rollout.dt, "free": rollout.free, **rollout.plan.limits.facts}
