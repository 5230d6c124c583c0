"""Configurations of a model: neutral and random ones, limits, steps along velocities, and the differences between two."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.errors import InputError, unknown
from qddot.mechanism.model import Model
from qddot.scalars import split, stack

Array = NDArray[Any]


def neutral(model: Model) -> Array:
    """All coordinates zero, quaternions at rest, whatever the limits."""
    return _gather(model, lambda i: model.joint[i].neutral())


def random_state(model: Model, rng: np.random.Generator, size: tuple[int, ...] = ()) -> tuple[Array, Array]:
    """Configurations and velocities within the limits, (*size, nq) and (*size, nv)."""

    def coordinates(i: int) -> Sequence[Any]:
        limits, joint = model.limits[i], model.joint[i]
        if joint.nq == 1 and math.isfinite(limits.lower[0]) and math.isfinite(limits.upper[0]):
            return split(rng.uniform(limits.lower[0], limits.upper[0], (*size, 1)))
        return joint.random(rng, size)

    q, fastest = _gather(model, coordinates), dof_limit(model, "velocity")
    if not model.nq:
        q = np.zeros((*size, 0))  # without joints nothing has the batch axes
    return _folded(model, q), np.clip(rng.standard_normal((*size, model.nv)), -fastest, fastest)


def _folded(model: Model, q: Array) -> Array:
    """Coordinates that were drawn outside their limits, brought inside: what is inside stays as it is drawn."""
    lower, upper = bounds(model)
    outside = (q < lower) | (q > upper)
    if not outside.any():
        return q
    width = np.where(upper > lower, upper - lower, 1.0)
    with np.errstate(invalid="ignore"):
        mirrored = np.where(q < lower, 2.0 * lower - q, 2.0 * upper - q)
        wrapped = np.where(np.isfinite(width), lower + np.mod(q - lower, width), mirrored)
    return np.where(outside, np.clip(wrapped, lower, upper), q)


# ---- limits ------------------------------------------------------------------------------------------------------------


def bounds(model: Model) -> tuple[Array, Array]:
    """The lower and upper limits in the order of q, infinite where there is none.

    Coordinates that are not those of one degree of freedom each, quaternions and what stands with them, have no limits.
    """

    def of(which: str) -> Array:
        none = math.inf if which == "upper" else -math.inf
        own = [i for i, _ in model.outward() if model.mimic[i] is None]
        rows = [
            getattr(model.limits[i], which) if model.joint[i].nq == model.joint[i].nv else (none,) * model.joint[i].nq
            for i in own
        ]
        return np.array([x for row in rows for x in row], dtype=float)

    return of("lower"), of("upper")


def dof_limit(model: Model, which: str) -> Array:
    """The limits of "velocity" or "effort" (joint forces), in the order of v, infinite where there is none."""
    own = (i for i, _ in model.outward() if model.mimic[i] is None)
    return np.array([x for i in own for x in getattr(model.limits[i], which)], dtype=float)


def clip(model: Model, q: Array) -> Array:
    """The nearest configuration within the limits; NaN stays NaN."""
    return np.clip(q, *bounds(model))


# ---- along velocities --------------------------------------------------------------------------------------------------


def integrate(model: Model, q: Array, step: Array) -> Array:
    """The configuration reached from q along a step of the tangent space; leading axes are a batch."""
    x, u = model.coordinates(q), model.velocities(step)
    return batched(1, _gather(model, lambda i: model.joint[i].integrate(x[i], u[i])), q, step)


def difference(model: Model, q0: Array, q1: Array) -> Array:
    """The step of the tangent space that leads from q0 to q1."""
    x, y = model.coordinates(q0), model.coordinates(q1)
    return batched(1, _gather(model, lambda i: model.joint[i].difference(x[i], y[i])), q0, q1)


def normalize(model: Model, q: Array) -> Array:
    """The nearest valid configuration: quaternions made unit."""
    x = model.coordinates(q)
    return _gather(model, lambda i: model.joint[i].normalize(x[i]))


def named(model: Model, name: str, group: str | None = None) -> Array:
    """A configuration by its name, of all groups that have one of this name together or of one; the rest is neutral."""
    found = [c for c in model.groups.configurations if c.name == name]
    owner = f"robot {model.name!r}"
    if not found:
        raise unknown("configuration", name, (c.name for c in model.groups.configurations), owner)
    chosen = found if group is None else [c for c in found if c.group == group]
    if not chosen:
        raise unknown(f"configuration {name!r} of group", str(group), [c.group for c in found], owner)
    q, given = neutral(model), dict[str, tuple[float, ...]]()
    for c in chosen:
        for joint, coordinates in c.coordinates:
            if given.setdefault(joint, coordinates) != coordinates:
                groups = ", ".join(repr(c.group) for c in chosen)
                problem = f"configuration {name!r} of {owner} has two values of joint {joint!r}"
                raise InputError(f"{problem}; give group= one of {groups}")
            q[model.slots[model.joint_index(joint)].q] = coordinates
    return q


def _gather(model: Model, values: Callable[[int], Sequence[Any]]) -> Array:
    own = [i for i, _ in model.outward() if model.mimic[i] is None]
    return stack([x for i in own for x in values(i)])


def batched(core: int, result: Any, *inputs: Array, axes: Sequence[int] | None = None) -> Array:
    """The result with the batch axes of the inputs, which it lacks where it does not depend on them.

    `core` counts the axes of one state's result, `axes` those of one state's inputs (one each by default).
    """
    batches = [x.shape[: x.ndim - n] for x, n in zip(inputs, axes or [1] * len(inputs), strict=True)]
    out = np.asarray(result)
    shape = (*np.broadcast_shapes(*batches), *out.shape[out.ndim - core :])
    return out if out.shape == shape else np.broadcast_to(out, shape).copy()
