"""Rollouts as operations of JAX, by callbacks to the host: under jit and vmap, with gradients in reverse.

The loop over time is not one of XLA's foreign functions, unlike the other methods: a callback costs some 100 µs, which a
rollout of many steps does not notice. The way back starts from the recorded states, or runs the rollout again.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from qddot.errors import InputError
from qddot.jax.arrays import alike
from qddot.simulation.rollout_function import RolloutFunction, known_function, own_shapes, rollout_function

if TYPE_CHECKING:
    from qddot.jax.dynamics import Dynamics

_ARRAYS = ("controls", "inputs", "parameters")


class Rollout:
    """A rollout of JAX arrays, set up once: `q, v = rollout(q0, v0, controls=…)`, and the cost where there is one."""

    def __init__(self, function: RolloutFunction, defaults: dict[str, Any]) -> None:
        self._function, self._defaults = function, defaults

    def __repr__(self) -> str:
        return f"<qddot.jax: {self._function.rollout!r}>"

    def __call__(self, q0: Any, v0: Any, **given: Any) -> Any:
        """Recorded states, the start first, (..., rows, nq) and (..., rows, nv); what is not given is as it was made."""
        names, own = tuple(self._function.shapes), self._function
        values = {"q0": q0, "v0": v0, **self._defaults, **given}
        for name in given:
            if name not in names:
                raise InputError(f"this rollout takes {', '.join(names)}; {name!r} is none of them")
        arrays = alike("rollout", names, [values[name] for name in names])
        if arrays[0].dtype != own.dtype:
            raise InputError(f"rollout: the arrays hold {arrays[0].dtype}, and this rollout computes in {own.dtype}")
        batch = own.batch([x.shape for x in arrays])
        wide = [jnp.broadcast_to(x, (*batch, *s)) for x, s in zip(arrays, own.shapes.values(), strict=True)]
        q, v, cost = _evaluated(own.key, tuple(wide))
        return (q, v, cost) if own.has_cost else (q, v)


def differentiable_rollout(self: Dynamics, controls: Any = None, *, dt: float, **options: Any) -> Rollout:
    """`Robot.differentiable_rollout` on JAX arrays: made once, called with arrays.

    Takes `steps`, `record`, `cost`, `inputs`, `parameters`, the free parameters of this `Dynamics` by name, `dtype`, and
    the other options of `simulate`. Of arrays that are given here the shapes count; a call may give others.
    """
    given = {name: options.pop(name) for name in (*self.free, *_ARRAYS[1:]) if name in options}
    arrays = {name: x for name, x in given.items() if x is not None}
    law = controls if callable(controls) else None
    if controls is not None and law is None:
        arrays["controls"] = controls
    found = [x.dtype for x in arrays.values() if hasattr(x, "dtype")]
    dtype = options.pop("dtype", None) or np.dtype(jnp.result_type(float, *found) if found else jnp.result_type(float))
    shapes = own_shapes(self, {name: np.shape(x) for name, x in arrays.items()})
    return Rollout(rollout_function(self, shapes, law, dt=dt, dtype=str(np.dtype(dtype)), **options), arrays)


def rollout(self: Dynamics, q0: Any, v0: Any, controls: Any = None, *, dt: float, **options: Any) -> Any:
    """The motion from (q0, v0), differentiable: q (..., rows, nq), v (..., rows, nv), and the sum of `cost` if given.

    `controls` are held joint forces (..., steps, nv), or a law that is traced; options as for `differentiable_rollout`.
    """
    names = [name for name in (*self.free, *_ARRAYS[1:]) if options.get(name) is not None]
    held = {} if controls is None or callable(controls) else {"controls": controls}
    given = {"q0": q0, "v0": v0, **held, **{name: options[name] for name in names}}
    first, *_ = alike("rollout", tuple(given), list(given.values()))
    return differentiable_rollout(self, controls, dt=dt, **{"dtype": first.dtype, **options})(q0, v0)


def step(self: Dynamics, q: Any, v: Any, tau: Any = None, *, dt: float, **options: Any) -> tuple[Any, Any]:
    """One step of an integrator with tau held, differentiable; options as for `differentiable_rollout`."""
    held = None if tau is None else jnp.asarray(tau)[..., None, :]
    states = rollout(self, q, v, held, dt=dt, steps=1, **options)
    return states[0][..., -1, :], states[1][..., -1, :]


METHODS = {f.__name__: f for f in (differentiable_rollout, rollout, step)}


# ---- the operation -----------------------------------------------------------------------------------------------------


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _evaluated(key: str, inputs: tuple[Any, ...]) -> Any:
    function = known_function(key)
    batch = function.batch([x.shape for x in inputs])
    shapes = [jax.ShapeDtypeStruct(s, function.dtype) for s in function.results(batch)]
    if not function.has_cost:
        shapes.pop()
    found = jax.pure_callback(functools.partial(_run, key), tuple(shapes), *inputs, vmap_method="broadcast_all")
    return tuple(found) if function.has_cost else (*found, jnp.zeros(0, function.dtype))


def _run(key: str, *inputs: Any) -> tuple[Any, ...]:
    function = known_function(key)
    run = function.run([np.asarray(x) for x in inputs])
    return (run.q.copy(), run.v.copy(), *([np.array(run.cost)] if function.has_cost else []))


def _forward(key: str, inputs: tuple[Any, ...]) -> Any:
    found = _evaluated(key, inputs)
    return found, (inputs, found[:2])


def _backward(key: str, kept: Any, cotangents: Sequence[Any]) -> Any:
    inputs, states = kept
    function = known_function(key)
    shapes = tuple(jax.ShapeDtypeStruct(x.shape, function.dtype) for x in inputs)
    bars = cotangents if function.has_cost else cotangents[:2]
    found = _pulled(key, len(inputs), shapes, (*inputs, *states, *bars))
    return (tuple(found),)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def _pulled(key: str, count: int, shapes: tuple[Any, ...], arrays: tuple[Any, ...]) -> Any:
    back = functools.partial(_gradients, key, count)
    return jax.pure_callback(back, shapes, *arrays, vmap_method="broadcast_all")


@_pulled.defjvp
def _no_second(key: str, count: int, shapes: tuple[Any, ...], primals: Any, tangents: Any) -> Any:
    raise InputError("a rollout has first derivatives, in reverse, and no second ones")


def _gradients(key: str, count: int, *arrays: Any) -> tuple[Any, ...]:
    function = known_function(key)
    own = [np.asarray(x) for x in arrays]
    run = function.run(own[:count], states=(own[count], own[count + 1]))
    bars = own[count + 2 :]
    return tuple(np.array(x) for x in function.gradients(run, [*bars, None][:3]))


_evaluated.defvjp(_forward, _backward)
