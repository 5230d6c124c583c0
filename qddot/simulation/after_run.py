"""What is said of a run when its states are there: which samples are lost, and how far constraints are off."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from qddot.dynamics.constrained_solver import solver_of
from qddot.dynamics.engine import Engine
from qddot.errors import QddotWarning, outside


def warn_diverged(engine: Engine, q: Any, v: Any, numbers: Any, integrator: str) -> None:
    """Says which samples have gone where no number is, and whether a singular configuration is the reason."""
    fine = np.isfinite(q).all(axis=-1) & np.isfinite(v).all(axis=-1)
    lost = fine[..., 0] & ~fine[..., -1]
    if lost.any():
        place = int(np.argmax(~fine[lost].all(axis=0)))
        sample = int(np.argmax(~fine[lost][:, place]))
        reason = engine.solvability.near_singular(q[lost][sample, place - 1])
        advice = f"take shorter steps than this {integrator!r} has, or 'rosenbrock' if something is stiff"
        warnings.warn(
            f"{np.count_nonzero(lost)} of {lost.size} samples are not finite any more, the first at step {numbers[place]}: "
            f"{reason or advice}",
            QddotWarning,
            stacklevel=outside(),
        )


def drift(engine: Engine, q: Any, v: Any, driven: tuple[int, ...] = ()) -> dict[str, Any]:
    """How far constraints are off, in position and in velocity; nothing where there are none.

    `driven` are the degrees of freedom with a prescribed motion.
    """
    if not engine.model.is_constrained:
        return {}
    solver = solver_of(engine)
    residual = engine.evaluate("constraint_residual", q)
    rate = (engine.evaluate("constraint_jacobian", q) @ v[..., None])[..., 0]
    off, fast = np.max(np.abs(residual), axis=-1), np.max(np.abs(rate), axis=-1)
    if driven and np.any(off > solver.open_limit):
        warnings.warn(
            f"the prescribed motion has torn the loops of robot {engine.model.name!r} open, by {np.nanmax(off):.2g} m or "
            f"rad: they cannot follow it through a singular configuration; prescribe less, or the motion of another joint",
            QddotWarning,
            stacklevel=outside(),
        )
    elif np.any((solver.hybrid_dependence(q, v, driven) if driven else solver.dependence(q, v)) > 1.0):
        warnings.warn(
            f"the loops of robot {engine.model.name!r} came so near to a singular configuration that their rows depend "
            f"on each other; what follows is doubtful. Start elsewhere, or add joint friction",
            QddotWarning,
            stacklevel=outside(),
        )
    return {"drift": off, "drift_rate": fast}
