"""Steps along velocities and differences of configurations on JAX arrays: the joints' own formulas, on `Number`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from qddot.errors import InputError
from qddot.jax.number import Number, value_of
from qddot.mechanism.model import Model


def integrate(model: Model, q: Any, step: Any) -> Any:
    """The configuration reached from q along a step of the tangent space."""
    x, u = _split(model, q, "q", "q"), _split(model, step, "v", "v")
    return _gathered(model, lambda i: model.joint[i].integrate(x[i], u[i]), q, step)


def difference(model: Model, q0: Any, q1: Any) -> Any:
    """The step of the tangent space that leads from q0 to q1."""
    x, y = _split(model, q0, "q", "q0"), _split(model, q1, "q", "q1")
    return _gathered(model, lambda i: model.joint[i].difference(x[i], y[i]), q0, q1)


def normalize(model: Model, q: Any) -> Any:
    """The configuration with its quaternions made unit."""
    x = _split(model, q, "q", "q")
    return _gathered(model, lambda i: model.joint[i].normalize(x[i]), q)


def tangent_gradient(model: Model, q: Any, gradient: Any) -> Any:
    """The gradient along the degrees of freedom of one along the coordinates."""
    _split(model, gradient, "q", "g")
    batch = jnp.broadcast_shapes(q.shape[:-1], gradient.shape[:-1])
    q, gradient = (jnp.broadcast_to(x, (*batch, model.nq)) for x in (q, gradient))
    still = jnp.zeros((*batch, model.nv), q.dtype)
    _, back = jax.vjp(lambda v: integrate(model, q, v), still)
    return back(gradient)[0]


def _split(model: Model, x: Any, which: str, name: str) -> dict[int, Sequence[Any]]:
    """The coordinates or velocities of each joint that has some of its own."""
    n = model.nq if which == "q" else model.nv
    if x.shape[-1:] != (n,):
        raise InputError(
            f"{name} has shape {tuple(x.shape)}, but its last axis must have {n} entries: "
            f"robot {model.name!r} has n{which} = {n}"
        )
    out: dict[int, Sequence[Any]] = {}
    for i, _ in model.outward():
        if model.mimic[i] is None:
            own = getattr(model.slots[i], which)
            out[i] = [Number(x[..., k]) for k in range(own.start, own.stop)]
    return out


def _gathered(model: Model, of_joint: Callable[[int], Sequence[Any]], *like: Any) -> Any:
    """What each joint gives, as one array."""
    parts = [value_of(x) for i, _ in model.outward() if model.mimic[i] is None for x in of_joint(i)]
    batch = jnp.broadcast_shapes(*(x.shape[:-1] for x in like))
    return jnp.stack([jnp.broadcast_to(jnp.asarray(x, like[0].dtype), batch) for x in parts], axis=-1)


FUNCTIONS: dict[str, Callable[..., Any]] = {f.__name__: f for f in (integrate, difference, normalize, tangent_gradient)}
