"""Whether steps are short enough: the linearised motion near rest against the stability of the integrator.

Joint friction is a smooth law of slope μ/v_s at rest, which dominates everything else there: an explicit step h that is
longer than the integrator's limit (2.785/|λ| for Runge and Kutta's method, λ the rate at which velocities decay) makes the
velocity jump from one side of zero to the other, and what is simulated is no longer friction. So the motion about the start

    M ξ̈ + D ξ̇ + K ξ = 0,   D by joint damping, friction at rest and controls, K by springs and controls,

on the directions that constraints and prescribed motion leave, is followed through one step: what decays must not grow.
Gravity and Coriolis forces are left out; they are not stiff. M is that of the start. Implicit integrators have no limit.
Stops at joint limits are looked at one by one, each joint as if it stood at its stop alone.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qddot.algorithms import loop_constraints
from qddot.algorithms.composite_body import mass_matrix
from qddot.algorithms.passive_forces import passive_derivatives
from qddot.errors import QddotWarning, outside
from qddot.mechanism.array_axes import JointIndex
from qddot.mechanism.model import Model
from qddot.scalars import stack
from qddot.simulation.limits import has_stop
from qddot.spatial.dual import Dual

if TYPE_CHECKING:
    from qddot.simulation.rollout import Progress, Rollout
    from qddot.simulation.system import System

Array = NDArray[Any]
_LONG = 100  # degrees of freedom above which a mass matrix takes too long just to warn
_SAMPLES = 4  # of a batch
_OPERATIONS = 50_000  # of a user's functions that are differentiated by dual numbers, some tenths of a second
_GROWS = 1.0 + 1e-6  # a step's factor: more than rounding of what neither grows nor decays
_MARGIN = 0.7  # of the limit: a step that is stable and has some accuracy


class Limit(NamedTuple):
    """The longest stable step, and what demands it: a rate in 1/s, a joint, and what acts in it."""

    step: float
    rate: float
    joint: str
    cause: str


def warn(rollout: Rollout, start: Progress) -> None:
    """Says so where steps are too long, with the step or the integrator to take."""
    found = limit(rollout, start)
    if found is None or rollout.dt <= found.step:
        return
    near_rest = " near rest" if found.cause == "the friction of" else ""
    plan = rollout.plan
    other = "'Radau'" if plan.rows or plan.motion else "'rosenbrock'"
    instead = "" if other == "'Radau'" and plan.n_held else f", or integrator={other}, which is implicit"
    warnings.warn(
        f"steps of {rollout.dt:g} s are too long for {rollout.integrator!r}: {found.cause} joint {found.joint!r} "
        f"acts at a rate of {found.rate:.2g} 1/s{near_rest}, so that velocities jump instead of settling; take "
        f"dt={_nice(found.step):g} or shorter{instead}",
        QddotWarning,
        stacklevel=outside(),
    )


def limit(rollout: Rollout, start: Progress) -> Limit | None:
    """The longest stable step of an explicit integrator; None where there is no limit, or it would take long to find."""
    if rollout.integrator not in _GROWTH or rollout.model.nv > _LONG:
        return None
    states = start.state.reshape(-1, start.state.shape[-1])[:, : rollout.model.nq]
    some = np.unique(np.linspace(0, len(states) - 1, _SAMPLES).astype(int)) if len(states) else np.empty(0, int)
    q, values = (x[some].astype(float) for x in (states, rollout.arrays(start.state.shape[:-1])[1]))
    if rollout._has_functions or rollout.free:
        return _of_samples(rollout, q, values)
    known, key = rollout.engine.kept, ("step limit", rollout.integrator, rollout.plan.rows, rollout.plan.limits)
    if key not in known or known[key][0] != q.tobytes():  # one start is remembered: it may be simulated again and again
        known[key] = q.tobytes(), _of_samples(rollout, q, values)
    return known[key][1]


def _of_samples(rollout: Rollout, q: Array, values: Array) -> Limit | None:
    sound = np.isfinite(q).all(axis=-1) & np.isfinite(values).all(axis=-1)
    pairs = zip(q[sound], values[sound], strict=True)
    found = []
    for x, own in pairs:
        system = rollout._system(rollout._apart(own))
        found += [_of_one(rollout, system, x), _of_stops(rollout, system, x)]
    return min((x for x in found if x is not None), key=lambda x: x.step, default=None)


def _of_one(rollout: Rollout, system: System, q: Array) -> Limit | None:
    model, h, still = system.model, rollout.dt, np.zeros(system.model.nv)
    with np.errstate(all="ignore"):
        by_q, by_v = (np.asarray(x, dtype=float) for x in passive_derivatives(model, q, still))
        own_q, own_v = _slopes(rollout, system, q)
    damping = np.array([x for i, _ in model.outward() if model.mimic[i] is None for x in model.damping[i]], dtype=float)
    K, D = -by_q - own_q, -by_v - own_v
    N = _directions(rollout, system, q)
    if not (K.any() or D.any()) or not (np.isfinite(K).all() and np.isfinite(D).all()) or not N.size:
        return None
    M = np.asarray(mass_matrix(model, q), dtype=float)
    try:
        K, D = (np.linalg.solve(N.T @ M @ N, N.T @ X @ N) for X in (K, D))
    except np.linalg.LinAlgError:
        return None
    n, growth = len(D), _GROWTH[rollout.integrator]
    A = np.block([[np.zeros((n, n)), np.eye(n)], [-K, -D]])
    rates, modes = np.linalg.eig(A)
    fastest = int(np.argmax(np.abs(rates)))
    rate = float(np.abs(rates[fastest]))
    if rate == 0.0:
        return None
    j = int(np.argmax(np.abs(N @ modes[n:, fastest])))
    friction = -by_v[j, j] - damping[j]
    causes = {"the friction of": friction, "the damping of": damping[j], "the spring of": -by_q[j, j] * h}
    causes["a law of control or force at"] = abs(own_v[j, j]) + abs(own_q[j, j]) * h
    step = _longest(lambda step: growth(step, A, rates), 10.0 / rate)
    return Limit(step, rate, _joint_at(model, j), max(causes, key=causes.__getitem__))


def _of_stops(rollout: Rollout, system: System, q: Array) -> Limit | None:
    """Of the joint that runs into its stop alone and settles fastest there."""
    law, model = rollout.plan.limits, system.model
    held = has_stop(model)
    if not law.stiffness or not held.any():
        return None
    N = _directions(rollout, system, q)
    try:
        inverse = N @ np.linalg.inv(N.T @ np.asarray(mass_matrix(model, q), dtype=float) @ N) @ N.T
    except np.linalg.LinAlgError:
        return None
    ease = np.where(held, np.diag(inverse), 0.0)
    K, D = ease * law.stiffness, ease * law.damping
    j = int(np.argmax(D + np.sqrt(np.maximum(K, 0.0))))
    A = np.array([[0.0, 1.0], [-K[j], -D[j]]])
    rates = np.linalg.eigvals(A)
    rate = float(np.max(np.abs(rates)))
    if not math.isfinite(rate) or rate == 0.0:
        return None
    step = _longest(lambda step: _GROWTH[rollout.integrator](step, A, rates), 10.0 / rate)
    return Limit(step, rate, _joint_at(model, j), "the stop of")


def _joint_at(model: Model, j: int) -> str:
    """The joint that degree of freedom j belongs to."""
    return next(name for name, at in JointIndex(model, "v").items() if j in np.atleast_1d(np.arange(model.nv)[at]))


def _longest(growth: Callable[[float], float], long: float) -> float:
    """The step at which what should decay begins to grow, by bisection."""
    if growth(long) <= _GROWS:
        return math.inf
    short = 0.0
    for _ in range(40):
        middle = 0.5 * (short + long)
        short, long = (middle, long) if growth(middle) <= _GROWS else (short, middle)
    return short


def _slopes(rollout: Rollout, system: System, q: Array) -> tuple[Array, Array]:
    """Those of the joint forces of controls and external forces by q, in the tangent space, and by v, at rest."""
    plan, nv = system.plan, system.model.nv
    tapes = [*plan.forces, *([plan.law] if plan.law is not None else [])]
    none = np.zeros((nv, nv))
    work = 2 * nv * (sum(len(tape.entries) for tape in tapes) + (300 * system.model.n_links if plan.forces else 0))
    if not rollout._has_functions or not tapes or work > _OPERATIONS:
        return none, none
    if plan.n_held:
        return none, none  # what will be held is not known here
    still = np.zeros(nv)
    columns_q: list[list[float]] = []
    columns_v: list[list[float]] = []
    for unit in np.eye(nv):
        moved, faster = _dual(q, system.rate(q, unit)), _dual(still, unit)
        for columns, state in ((columns_q, (moved, still)), (columns_v, (q, faster))):
            forces = system._joint_forces(state[0], *system.applied(rollout.t0, *state))
            columns.append([x.slope if isinstance(x, Dual) else 0.0 for x in forces])
    return np.array(columns_q).T, np.array(columns_v).T


def _dual(x: Array, slopes: Array) -> Array:
    return stack([Dual(a, b) for a, b in zip(x.tolist(), slopes.tolist(), strict=True)])


def _directions(rollout: Rollout, system: System, q: Array) -> Array:
    """Columns that span the velocities which constraints and prescribed motion leave."""
    nv, plan = system.model.nv, system.plan
    N = np.eye(nv)[:, [k for k in range(nv) if k not in (plan.motion or {})]]
    if not plan.rows:
        return N
    A = np.asarray(loop_constraints.jacobian(system.model, q), dtype=float)[list(plan.rows)]
    _, _, Vt = np.linalg.svd(A @ N)
    return N @ Vt[len(plan.rows) :].T


def _nice(step: float) -> float:
    """The next shorter of 1, 2 and 5 times a power of ten, with some margin."""
    wanted = _MARGIN * step
    power = 10.0 ** math.floor(math.log10(wanted))
    return power * max((k for k in (1.0, 2.0, 5.0) if k * power <= wanted), default=1.0)


# ---- one step of what decays -------------------------------------------------------------------------------------------


def _decaying(rates: Array) -> Array:
    return rates[rates.real <= 1e-9 * np.max(np.abs(rates))]


def _rk4(h: float, A: Array, rates: Array) -> float:
    z = h * _decaying(rates)
    return float(np.max(np.abs(1.0 + z * (1.0 + z / 2.0 * (1.0 + z / 3.0 * (1.0 + z / 4.0)))), initial=0.0))


def _ab4(h: float, A: Array, rates: Array) -> float:
    """The largest root of ζ⁴ - ζ³ = z/24 (55 ζ³ - 59 ζ² + 37 ζ - 9)."""
    roots = [np.roots([1.0, -1.0 - 55.0 * z, 59.0 * z, -37.0 * z, 9.0 * z]) for z in h * _decaying(rates) / 24.0]
    return float(np.max(np.abs(roots), initial=0.0))


def _semi_implicit_euler(h: float, A: Array, rates: Array) -> float:
    """v' = v - h (K x + D v), x' = x + h v'; where something grows by itself, nothing can be said."""
    if len(_decaying(rates)) < len(rates):
        return 0.0
    n = len(A) // 2
    I, K, D = np.eye(n), -A[n:, :n], -A[n:, n:]
    faster = np.hstack([-h * K, I - h * D])
    step = np.vstack([np.hstack([I, np.zeros((n, n))]) + h * faster, faster])
    return float(np.max(np.abs(np.linalg.eigvals(step))))


_GROWTH: dict[str, Callable[[float, Array, Array], float]] = {
    "rk4": _rk4,
    "rkmk4": _rk4,
    "ab4": _ab4,
    "semi_implicit_euler": _semi_implicit_euler,
}
