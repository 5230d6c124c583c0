"""Configurations of a model: neutral and random ones, steps along velocities, and the differences between two."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.errors import InputError, unknown
from qddot.mechanism.model import Model
from qddot.scalars import stack

Array = NDArray[Any]


def neutral(model: Model) -> Array:
    """All coordinates zero, quaternions at rest."""
    return _gather(model, lambda i: model.joint[i].neutral())


def random_state(model: Model, rng: np.random.Generator) -> tuple[Array, Array]:
    """A configuration, within the limits where a joint has them, and a velocity."""

    def coordinates(i: int) -> Sequence[float]:
        limits, joint = model.limits[i], model.joint[i]
        if joint.nq == 1 and math.isfinite(limits.lower[0]) and math.isfinite(limits.upper[0]):
            return (float(rng.uniform(limits.lower[0], limits.upper[0])),)
        return joint.random(rng)

    return _gather(model, coordinates), rng.standard_normal(model.nv)


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
