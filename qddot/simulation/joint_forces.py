"""The joint forces of a rollout at known states: those of drives, and those that prescribed motion takes."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from qddot.compiler.runtime.kernel import Kernel
from qddot.dynamics.pipeline import kernel_of, unknowns
from qddot.simulation.limits import saturated_array

if TYPE_CHECKING:
    from qddot.simulation.rollout import Rollout

Array = NDArray[Any]


def evaluated(rollout: Rollout, u: Array, t: Array, q: Array, v: Array) -> Array:
    """For held inputs (..., T, n), times (T, 1) and states (..., T, nq), (..., T, nv)."""
    plan, width = rollout.plan, rollout.held.shape[-1]
    if plan.law is None and not plan.motion:
        return np.zeros(v.shape, rollout.dtype)
    if rollout._is_array and not plan.motion:
        return saturated_array(np.broadcast_to(u, v.shape).copy(), plan.limits)
    if not rollout.engine.compiled:
        return _in_python(rollout, t[:, 0], q, v, u)
    pairs = zip(rollout.constants, rollout.constant_shapes.values(), strict=True)
    values = [x[(..., None, *[slice(None)] * len(shape))] for x, shape in pairs]
    return np.asarray(rollout._forces_kernel(q, v, t, *((u,) if width else ()), *values))


def kernel(rollout: Rollout) -> Kernel:
    """By q, v, t, held inputs and what stays the same in a sample."""
    model, width = rollout.model, rollout.held.shape[-1]
    shapes = [(model.nq,), (model.nv,), (1,), *([(width,)] if width else []), *rollout.constant_shapes.values()]
    graph, (q, v, t, *rest) = unknowns([prod(s) for s in shapes])
    u, values = (rest[0], rest[1:]) if width else (np.empty(0), rest)
    forces = rollout._traced_system(graph, u, *values).joint_forces(t[0], q, v)
    names = ("q", "v", "t", *(("inputs",) if width else ()), *rollout.constant_shapes)
    return kernel_of(f"the joint forces of {model.name!r}", graph, forces, names, shapes, (model.nv,), rollout.dtype)


def _in_python(rollout: Rollout, t: Array, q: Array, v: Array, u: Array) -> Array:
    out, width, batch = np.empty(v.shape), rollout.held.shape[-1], v.shape[:-2]
    u, values = np.broadcast_to(u, (*v.shape[:-1], width)), rollout.arrays(batch)[1]
    for k in np.ndindex(v.shape[:-1]):
        own = rollout._system(rollout._apart(values[np.ravel_multi_index(k[:-1], batch) if batch else 0]))
        out[k] = replace(own, held=u[k] if width else None).joint_forces(float(t[k[-1]]), q[k], v[k])
    return out
