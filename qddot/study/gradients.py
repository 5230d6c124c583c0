"""Derivatives of a study's measures with respect to what it varies, by kernels of the rollout and of the channels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qddot.errors import InputError, unknown
from qddot.mechanism.array_axes import columns
from qddot.robot import Robot
from qddot.simulation.differentiable import DifferentiableRollout
from qddot.study.measures import POSITION, REDUCTIONS, Measure, States
from qddot.study.results import Results
from qddot.study.work import HELD, STARTS, Rollouts, starts

Array = NDArray[Any]
BY = ".by."  # in the name of a result that is a derivative
_OF_STATES = {  # channels that are functions of the states, as kernels: their inputs
    "kinetic_energy": ("q", "v"),
    "potential_energy": ("q",),
    "momentum": ("q", "v"),
    "center_of_mass": ("q",),
    "pose": ("q",),
}


class Slopes(NamedTuple):
    """A measure of some samples, (n,), and its gradients with respect to each varied quantity, (n, ...)."""

    value: Array
    by: dict[str, Array]


def of_rollouts(work: Rollouts, values: Mapping[str, Array], name: str) -> Slopes:
    """Of one number that is measured, "energy" or "tip[2]"; what chooses a robot has no derivative and is left out."""
    measure, place = _found(work.measures, name)
    n = len(next(iter(values.values())))
    value = np.full(n, np.nan)
    by = {x: np.full(values[x].shape, np.nan) for x in values if x not in work.setups.names}
    for group in work.setups.groups(values):
        part = {x: array[group] for x, array in values.items()}
        value[group], found = _of_group(work, part, measure, place)
        for x, array in found.items():
            by[x][group] = array
    return Slopes(value, by)


def of_results(results: Results, rows: Sequence[int], name: str) -> Slopes:
    """Those that a function of arrays has given beside its results, named "energy.by.q"."""
    value, by = np.asarray(results[name])[list(rows)], {}
    for x in results.space.names:
        own = f"{name}{BY}{x}"
        if own in results.names:
            by[x] = np.asarray(results[own])[list(rows)]
            if by[x].shape[1:] != results.space.values(0, 1)[x].shape[1:] or value.ndim != 1:
                raise InputError(
                    f"result {own!r} is {by[x].shape}; it must have the shape of {x!r}, and {name!r} one number"
                )
    if not by:
        raise InputError(
            f"the function of this study gives no derivatives of {name!r}: let it give results with names such as "
            f"{name}{BY}{results.space.names[0]}, with the shape of that"
        )
    return Slopes(value, by)


def _found(measures: tuple[Measure, ...], name: str) -> tuple[Measure, tuple[int, ...]]:
    """The measure, and which of its numbers."""
    head, _, inside = str(name).partition("[")
    known = {m.name: m for m in measures}
    if head not in known:
        raise unknown("measure", head, known, "this study")
    try:
        return known[head], tuple(int(k) for k in inside.removesuffix("]").split(",")) if inside else ()
    except ValueError:
        raise InputError(f"{name!r} is no number of measure {head!r}; write {head}[0], or {head}[0, 1]") from None


def _of_group(
    work: Rollouts, values: Mapping[str, Array], measure: Measure, place: tuple[int, ...]
) -> tuple[Array, dict[str, Array]]:
    """For samples with a robot in common: through the reduction, the channel and the rollout, backwards."""
    robot, more = work.setups.robot({name: values[name][0] for name in work.setups.names})
    rollout = _rollout(work, robot, more, values)
    q0, v0 = (np.ascontiguousarray(x, dtype=float) for x in starts(robot, values))
    free = {x: values[x] for x in rollout.forward.free}
    held: dict[str, Any] = {kind: work.held(values[kind]) for kind in HELD if kind in values}
    run = rollout(q0, v0, free=free, **held)
    with np.errstate(all="ignore"):  # samples that diverged
        numbers = np.arange(0, work.steps + 1, work.every)
        tau = _forces(rollout, held, numbers, run)
        states = States(robot, run.t, run.q, run.v, tau, free)
        x = measure.over(states)
        weights = np.array(REDUCTIONS[measure.reduction].slopes(run.t, x), dtype=float)
        reduced: Array = REDUCTIONS[measure.reduction].of(run.t, x)
        one: Array = np.zeros(reduced.shape[1:])
        if len(place) != one.ndim or any(not 0 <= k < m for k, m in zip(place, one.shape, strict=False)):
            raise InputError(f"measure {measure.name!r} has {one.shape} numbers a sample; name one, {measure.name}[0]")
        one[place] = 1.0
        q_bar, v_bar, direct = _through(measure, states, np.where(one == 1.0, weights, 0.0))
        found = run.vjp(q_bar, v_bar, coordinates="ambient")
    by = {"q0": found.q0, "v0": found.v0}
    by |= {parameter: found.free[parameter] + direct.get(parameter, 0.0) for parameter in free}
    for kind in held:
        rows = getattr(found, kind)
        by[kind] = rows if values[kind].ndim == 3 else rows.sum(axis=1)
    where: tuple[Any, ...] = (slice(None), *place)
    return reduced[where], {varied: slope for varied, slope in by.items() if varied in values}


def _rollout(work: Rollouts, robot: Robot, more: Mapping[str, Any], values: Mapping[str, Array]) -> DifferentiableRollout:
    options: dict[str, Any] = {**work.options, **more}
    free = {x: array for x, array in values.items() if x not in (*STARTS, *HELD, *work.setups.names)}
    if free:
        options["free"] = free
    if "controls" in values:
        options["controls"] = work.held(values["controls"])
    elif "inputs" in values:
        options["inputs"] = work.held(values["inputs"])
    law = options.pop("controls", None)
    return DifferentiableRollout(robot, law, steps=work.steps, record=work.every, **options)


def _forces(rollout: DifferentiableRollout, held: Mapping[str, Array], numbers: Array, run: Any) -> Array:
    steps = rollout.forward
    rows = next(iter(held.values()), steps.held)
    width = rows.shape[-1]
    u = rows[..., np.minimum(numbers, rows.shape[-2] - 1), :] if width else np.zeros((1, 0))
    return steps.forces_of(u, numbers, run.q, run.v)


def _through(measure: Measure, states: States, weights: Array) -> tuple[Array, Array, dict[str, Array]]:
    """The gradients of weights · channel with respect to q, v and, directly, the free parameters."""
    q_bar, v_bar = np.zeros(states.q.shape), np.zeros(states.v.shape)
    source = measure.source
    if not isinstance(source, str):
        by_q, by_v, by_tau = source.slopes(states, weights)
        if by_tau.any():
            raise _no_slopes(measure)
        return by_q, by_v, {}
    if source in ("q", "v"):
        return (weights, v_bar, {}) if source == "q" else (q_bar, weights, {})
    if source == "t":
        return q_bar, v_bar, {}
    if source.endswith(POSITION):
        cotangent = np.zeros((*weights.shape[:-1], 4, 4))
        cotangent[..., :3, 3] = weights
        return _backwards(states, "pose", cotangent, frame=source.removesuffix(POSITION))
    if source == "energy":
        kinetic, potential = (_backwards(states, f"{kind}_energy", weights) for kind in ("kinetic", "potential"))
        free = {name: kinetic[2][name] + potential[2][name] for name in states.free}
        return kinetic[0] + potential[0], kinetic[1] + potential[1], free
    if source in _OF_STATES:
        return _backwards(states, source, weights)
    for quantity, bar in (("q", q_bar), ("v", v_bar)):  # a single column, such as "elbow.q"
        known = [f"{c.name}.{quantity}" for c in columns(states.robot.model, quantity)]
        if source in known:
            bar[..., known.index(source)] = weights
            return q_bar, v_bar, {}
    raise _no_slopes(measure)


def _no_slopes(measure: Measure) -> InputError:
    return InputError(
        f"measure {measure.name!r} has no gradient here: it must be of q, v, energies, momentum, the centre of mass, a "
        f"position, or a function of (t, q, v), and not of joint forces or drift"
    )


def _backwards(states: States, function: str, weights: Array, **static: Any) -> tuple[Array, Array, dict[str, Array]]:
    inputs = _OF_STATES[function]
    free = tuple(states.free)
    make: Callable[..., Any] = states.robot.kernel
    kernel = make(function, vjp=True, coordinates="ambient", wrt=(*inputs, *free), free=free, **static)
    arrays = [getattr(states, x) for x in inputs] + [x[:, None] for x in states.free.values()]
    parts = kernel.parts(kernel(*arrays, weights))
    v_bar = parts.get("v", np.zeros(states.v.shape))
    return parts["q"], v_bar, {name: parts[name].sum(axis=1) for name in free}
