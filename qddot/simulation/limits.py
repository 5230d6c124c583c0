"""What joint limits do in a simulation: compliant stops, joint forces that saturate, or nothing.

A stop pushes back where a coordinate is δ beyond its limit, with max(0, k δ + c δ̇): a spring and a damper that never pull.
By default they are scaled to the robot: k = m ω² and c = 2 m ω, ω = 200 1/s, rounded to three digits, with the inertia
m = 1/(M⁻¹)_kk that a degree of freedom has alone in the neutral configuration, as far as loops let it move. Then a joint
comes to rest within some 10 ms, bounces back with 14 % of its speed, and rests τ/k beyond its limit under a force τ.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qddot.algorithms import loop_constraints
from qddot.algorithms.composite_body import mass_matrix
from qddot.dynamics.conditioning import felt
from qddot.dynamics.engine import Engine
from qddot.errors import InputError, QddotWarning, outside, shown
from qddot.mechanism.array_axes import columns
from qddot.mechanism.configurations import bounds, clip, dof_limit, neutral
from qddot.mechanism.model import Model
from qddot.scalars import Scalar, less, stack, where

Array = NDArray[Any]
RATE = 200.0  # 1/s: how fast a stop acts, by default; RK4 is stable with steps of up to 14 ms against one
_MANY = 100  # degrees of freedom above which M is not inverted just for defaults
_LOOKED_AT = 200_000  # states of a run that are compared with the limits
_ROUNDING = 1e-9  # by which a coordinate may be beyond its limit, in m or rad


@dataclass(frozen=True)
class Stops:
    """Compliant stops at the limits of the coordinates, with the stiffness in N m/rad or N/m and the damping in N m s/rad
    or N s/m: a number for all, or one a degree of freedom. None: scaled to the robot.
    """

    stiffness: ArrayLike | None = None
    damping: ArrayLike | None = None


class LimitLaw(NamedTuple):
    """What limits do in one simulation; numbers one a degree of freedom, empty where they do nothing."""

    stiffness: tuple[float, ...] = ()
    damping: tuple[float, ...] = ()
    effort: tuple[float, ...] = ()

    def __str__(self) -> str:
        names = [name for name, numbers in (("stops", self.stiffness), ("saturate", self.effort)) if numbers]
        return " and ".join(names) or "ignore"

    @property
    def facts(self) -> dict[str, Any]:
        """How a run was limited, as plain numbers: part of what it is known by."""
        stops = {"stop_stiffness": list(self.stiffness), "stop_damping": list(self.damping)} if self.stiffness else {}
        return {"limits": str(self), **stops}


IGNORED = LimitLaw()


def limit_law(model: Model, given: Any) -> LimitLaw:
    """What a user asks with limits="stops", "saturate", "ignore", Stops(…), or several of them."""
    stops, saturates = None, False
    chosen = (given,) if isinstance(given, str | Stops) or not isinstance(given, Sequence) else given
    for x in chosen:
        if isinstance(x, Stops) or (isinstance(x, str) and x == "stops"):
            stops = x if isinstance(x, Stops) else Stops()
        elif isinstance(x, str) and x == "saturate":
            saturates = True
        elif not (x is None or (isinstance(x, str) and x == "ignore" and len(chosen) == 1)):
            raise InputError(
                f"limits={shown(given)} is not known; take 'ignore', 'stops', 'saturate', ('stops', 'saturate') or "
                f"qddot.simulation.Stops(stiffness=…, damping=…)"
            )
    effort = tuple(dof_limit(model, "effort").tolist()) if saturates else ()
    if stops is None:
        return LimitLaw(effort=effort)
    return LimitLaw(*_numbers(model, stops), effort)


def _numbers(model: Model, stops: Stops) -> tuple[tuple[float, ...], tuple[float, ...]]:
    m = _inertia_alone(model) if stops.stiffness is None or stops.damping is None else np.empty(0)
    k = m * RATE**2 if stops.stiffness is None else _each(model, stops.stiffness, "stiffness")
    # critical for the stiffness that there is
    c = 2.0 * np.sqrt(k * m) if stops.damping is None else _each(model, stops.damping, "damping")
    rounded = [x if given is not None else _rounded(x) for x, given in ((k, stops.stiffness), (c, stops.damping))]
    return tuple(rounded[0].tolist()), tuple(rounded[1].tolist())


def _each(model: Model, value: ArrayLike, what: str) -> Array:
    try:
        array = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        array = np.array(math.nan)
    if array.shape not in ((), (model.nv,)) or not np.all(np.isfinite(array)) or np.any(array < 0.0):
        raise InputError(
            f"the {what} of stops is {shown(value)}; give a number of zero or more, or one a degree of freedom: "
            f"({model.nv},)"
        )
    return np.broadcast_to(array, (model.nv,))


def _rounded(x: Array) -> Array:
    """Three digits: the same on every machine, whatever its linear algebra rounds to."""
    return np.array([float(f"{value:.3g}") for value in x.tolist()])


def _inertia_alone(model: Model) -> Array:
    """1/(M⁻¹)_kk in the neutral configuration, of the motion that loops leave; M_kk where that is nothing or takes long."""
    own = [i for i, _ in model.outward() if model.mimic[i] is None]
    if model.nv > _MANY:
        return np.array([x for i in own for x in felt(model).inertia[i]], dtype=float)
    q = clip(model, neutral(model))
    M, N = np.asarray(mass_matrix(model, q), dtype=float), np.eye(model.nv)
    if model.is_constrained:
        _, size, directions = np.linalg.svd(np.asarray(loop_constraints.jacobian(model, q), dtype=float))
        N = directions[np.count_nonzero(size > 1e-9 * np.max(size, initial=0.0)) :].T
    try:
        ease = np.diag(N @ np.linalg.solve(N.T @ M @ N, N.T))
    except np.linalg.LinAlgError:
        ease = np.zeros(model.nv)
    moves = ease * np.diag(M) > 1e-6  # where it does not, loops hold it, or M is singular
    return np.where(moves, 1.0 / np.where(moves, ease, 1.0), np.diag(M))


# ---- while it runs: on any scalars ------------------------------------------------------------------------------------


def saturated(tau: Array, effort: Sequence[float]) -> Array:
    """Joint forces within the effort limits; NaN stays NaN."""
    return stack([_clipped(x, e) if math.isfinite(e) else x for x, e in zip(tau.tolist(), effort, strict=True)])


def saturated_array(tau: Array, law: LimitLaw) -> Array:
    """The same of many states at once, in floats."""
    return np.clip(tau, *(sign * np.array(law.effort, tau.dtype) for sign in (-1, 1))) if law.effort else tau


def _clipped(x: Scalar, e: float) -> Scalar:
    return where(less(e, x), e, where(less(x, -e), -e, x))


def stop_forces(model: Model, law: LimitLaw, q: Array, v: Array) -> Array:
    """The joint forces of the stops."""
    out: list[Scalar] = [0.0] * model.nv
    x, u = model.coordinates(q), model.velocities(v)
    for i, _ in model.outward():
        joint, limits, slot = model.joint[i], model.limits[i], model.slots[i]
        if model.mimic[i] is not None or joint.nq != joint.nv:
            continue
        rates = joint.rate(x[i], u[i])
        for j, (low, high) in enumerate(zip(limits.lower, limits.upper, strict=True)):
            k, c = law.stiffness[slot.v.start + j], law.damping[slot.v.start + j]
            force: Scalar = 0.0
            if math.isfinite(low):
                force = force + _push(low - x[i][j], -rates[j], k, c)
            if math.isfinite(high):
                force = force - _push(x[i][j] - high, rates[j], k, c)
            if math.isfinite(low) or math.isfinite(high):
                for d in range(joint.nv):  # a coordinate may change along several degrees of freedom
                    along = joint.along(x[i], d)[j]
                    if not (isinstance(along, float) and along == 0.0):
                        out[slot.v.start + d] = out[slot.v.start + d] + along * force
    return stack(out)


def has_stop(model: Model) -> Array:
    """Which degrees of freedom have a stop."""
    out = np.zeros(model.nv, dtype=bool)
    for i, _ in model.outward():
        if model.mimic[i] is None and model.joint[i].nq == model.joint[i].nv:
            ends = model.limits[i][:2]
            out[model.slots[i].v] = np.isfinite(ends).any(axis=0)
    return out


def _push(depth: Scalar, rate: Scalar, k: float, c: float) -> Scalar:
    force = k * depth + c * rate
    return where(less(0.0, depth), where(less(0.0, force), force, 0.0), 0.0)


# ---- afterwards --------------------------------------------------------------------------------------------------------


def warn_outside(engine: Engine, q: Array, tau: Array) -> None:
    """Says, once a robot, that a run has left limits that nobody has said to ignore."""
    key = ("limits", "left")
    if key in engine.kept:
        return
    model = engine.model
    lower, upper = bounds(model)
    effort = dof_limit(model, "effort")
    found = [_beyond(q, lower, upper), _beyond(tau, -effort, effort)]
    for by, quantity, names, advice in zip(
        found, ("q", "tau"), ("its limits", "its effort limit"), ("'stops'", "'saturate'"), strict=True
    ):
        if np.any(by > _ROUNDING):
            k = int(np.argmax(by))
            column = columns(model, quantity)[k]
            engine.kept[key] = True
            warnings.warn(
                f"joint {column.name!r} of robot {model.name!r} goes beyond {names} by {by[k]:.3g} {column.unit}; "
                f"limits={advice} keeps them, limits='ignore' says that they do not matter",
                QddotWarning,
                stacklevel=outside(),
            )
            return


def _beyond(x: Array, lower: Array, upper: Array) -> Array:
    """By how much each column leaves its limits, at some of the states where there are many."""
    if not x.size or not (np.isfinite(lower).any() or np.isfinite(upper).any()):
        return np.zeros(len(lower))
    rows = x.reshape(-1, x.shape[-1])
    rows = rows[:: max(1, len(rows) // _LOOKED_AT)]
    with np.errstate(invalid="ignore"):
        return np.fmax(np.fmax.reduce(rows, axis=0) - upper, lower - np.fmin.reduce(rows, axis=0))
