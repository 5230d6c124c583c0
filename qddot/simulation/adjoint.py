"""One step backwards: from the gradient of a loss with respect to the state after a step to that before it.

A step is a traced program that may call functions, so its derivative is exact for the discrete integrator: the reverse
sweep goes through what leads to the new state, and through the calls, last one first, each by a function of its own.

The accelerations of a tree have a shorter way than through the recursions that compute them. They solve

    r(a) = tau(t, q, v) + Jᵀf_ext - inverse_dynamics(q, v, a) = 0,      M da = dr at constant a,

so ā·da = λ·dr with M λ = ā: forward dynamics without velocities, gravity and passive forces, and one reverse sweep of
inverse dynamics and of the laws. That is exact where both algorithms see the same mechanism in all directions of what is
differentiated; not where inertias are turned by what is no rotation: by quaternions that the stages of `rk4` leave off unit
length, other than that of a floating base, and by free placements. There, and for loops, the sweep goes through the
recursions themselves.

The loop over time (`codegen/abi/time_stepping.py`) runs this as a step of its own, with

    state        ū, x̄, p̄: the gradients by this step's held inputs, by the state, by the parameters as far as it came
    held inputs  x, u, and ∂loss/∂(q, v): the state before the step, its held inputs, and the loss's gradient after it
    parameters   as in the step itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from qddot.algorithms import newton_euler_classical
from qddot.dynamics import catalogue
from qddot.dynamics.pipeline import kernel_of, unknowns
from qddot.mechanism.simplify import with_sums_of_angles
from qddot.simulation import system as dynamics
from qddot.simulation.calls import Calls
from qddot.simulation.system import System

if TYPE_CHECKING:
    from qddot.compiler.ir.expr import Graph
    from qddot.compiler.ir.step_program import Step
    from qddot.simulation.rollout import Rollout

Array = NDArray[Any]
MAX_INLINE_OPS = 20_000  # of a step backwards: above, functions that are called several times are code of their own
_OF_TREES = ("forward_dynamics", "forward_dynamics_with_forces")


class Gradients:
    """Gradients of what a trace leads to with respect to some of its inputs, added up as sweeps find them."""

    def __init__(self, graph: Graph, inputs: Iterable[Array]) -> None:
        self.graph = graph
        self._found = {k: graph.const(0.0) for x in inputs for k in graph.nodes_of(x)}

    def sweep(self, outputs: Any, cotangents: Any) -> None:
        """Goes back from outputs."""
        from qddot.compiler.ir.differentiate import vjp

        inputs = list(self._found)
        nodes = self.graph.nodes_of(outputs), inputs, self.graph.nodes_of(cotangents)
        self._add(inputs, vjp(self.graph, *nodes))

    def add(self, inputs: Array, gradient: Array) -> None:
        """A gradient that is known."""
        self._add(self.graph.nodes_of(inputs), self.graph.nodes_of(gradient))

    def _add(self, inputs: list[int], gradient: list[int]) -> None:
        for k, node in zip(inputs, gradient, strict=True):
            self._found[k] = self.graph.binary("add", self._found[k], node)

    def of(self, inputs: Array) -> Array:
        """What was found for an array of inputs."""
        from qddot.compiler.ir.expr import Expr

        out = np.empty(inputs.shape, dtype=object)
        out.reshape(-1)[:] = [Expr(self.graph, self._found[k]) for k in self.graph.nodes_of(inputs)]
        return out


def _joined(parts: Iterable[Any]) -> Array:
    """Arrays side by side, as one vector."""
    return np.concatenate([np.empty(0, dtype=object), *(np.asarray(x, dtype=object).reshape(-1) for x in parts)])


def _shared(system: System) -> list[Array]:
    """Held inputs and parameters of a traced system, in the order of a step's inputs."""
    return [x for x in (system.held, system.weights, *system.values) if x is not None]


@dataclass(frozen=True)
class Adjoint:
    """Of a function of a system, by its arguments, its result and the gradient with respect to that: the gradients with
    respect to those arguments that are arrays, to held inputs and to parameters, side by side. Single numbers are times.
    """

    function: Callable[..., Any]
    by_multiplier: bool

    def __call__(self, system: System, *given: Any) -> Array:
        *args, result, bar = given
        inputs = [x for x in args if np.ndim(x)] + _shared(system)
        found = Gradients(bar.reshape(-1)[0].graph, inputs)
        if self.by_multiplier:
            t, q, v = args
            found.sweep(*_balance(system, (t, q, v), result, bar))
        else:
            found.sweep(self.function(system, *args), bar)
        return _joined(map(found.of, inputs))


def _balance(system: System, state: tuple[Any, Array, Array], a: Array, a_bar: Array) -> tuple[Array, Array]:
    """r at constant a, and λ."""
    t, q, v = state
    model = with_sums_of_angles(system.dynamics, q) if system.sums else system.dynamics
    at_rest = replace(model.without_passive_forces(), gravity=(0.0, 0.0, 0.0))
    forward = catalogue.lookup("forward_dynamics", system.method)[2]
    multiplier = forward(at_rest, q, np.zeros(len(v)), a_bar)
    tau, f_ext = system.applied(t, q, v)
    return tau - newton_euler_classical.inverse_dynamics(model, q, v, a, f_ext), multiplier


def _has_multiplier(rollout: Rollout, function: Any, starting: bool) -> bool:
    if function is not dynamics.derivative_at or rollout.plan.function not in _OF_TREES:
        return False
    model = rollout.model
    along_rates = rollout.integrator == "rk4" or (rollout.integrator == "ab4" and starting)
    carried = any(p and model.joint[i].has_unit_quaternion for i, p in model.outward())
    return not (along_rates and carried) and not any(p.kind == "placement" for p in rollout._parameters)


def reverse_step(rollout: Rollout, starting: bool) -> tuple[Step, int, tuple[int, ...]]:
    """The step backwards, the size of its state, and those of its held inputs."""
    from qddot.compiler.ir.step_program import Step

    n_x, _, n_u, *constants = rollout._sizes
    n_seen = rollout.model.nq + rollout.model.nv
    sizes = [n_u + n_x + sum(constants), 2, n_x + n_u + n_seen, *constants]
    what = f"a step of {rollout.integrator} of {rollout.model.name!r} backwards"
    graph, (carried, clock, row, *values) = unknowns(sizes)
    x, u, seen = np.split(row, [n_x, n_x + n_u])
    _, x_bar, p_bar = np.split(carried, [n_u, n_u + n_x])

    def system(graph: Graph, row: Array, *values: Array) -> System:
        return rollout._traced_system(graph, row[n_x : n_x + n_u], *values)

    calls = Calls(what, graph, sum(sizes), sizes[2:], system)
    after = rollout._step(starting, replace(system(graph, row, *values), calls=calls), x, *clock)
    forward = list(calls.made)
    p = _joined(values)
    found = Gradients(graph, [x, u, p, *(c.result for c in forward)])
    found.sweep(after, np.concatenate([x_bar[:n_seen] + seen, x_bar[n_seen:]]))
    for call in reversed(forward):
        adjoint = Adjoint(call.function, _has_multiplier(rollout, call.function, starting))
        moved = [a for a in call.arguments if a.ndim]
        gradient = calls(adjoint, *call.arguments, call.result, found.of(call.result))
        own, by_u, by_p = np.split(gradient, np.cumsum([sum(a.size for a in moved), n_u]))
        found.sweep(_joined(moved), own)
        found.add(u, by_u)
        found.add(p, by_p)
    result = _joined([found.of(u), found.of(x), p_bar + found.of(p)])
    step = calls.step(result)
    if len(forward) <= 1 or step.instructions() <= MAX_INLINE_OPS:
        step = Step(calls.inlined(result))
    return step, sizes[0], (n_x, n_u, rollout.model.nq, rollout.model.nv)


def tangent_gradient(rollout: Rollout, q: Array, gradient: Array, coordinates: str) -> Array:
    """A gradient by the numbers of q, along velocities ("tangent") or with nothing along quaternions ("ambient")."""
    model = rollout.model
    if coordinates == "ambient":
        out = gradient.copy()
        for i, _ in model.outward():
            if model.joint[i].has_unit_quaternion and model.mimic[i] is None:
                place = slice(model.slots[i].q.stop - 4, model.slots[i].q.stop)
                x, g = q[..., place], gradient[..., place]
                out[..., place] = g - x * (np.sum(g * x, axis=-1, keepdims=True) / np.sum(x * x, axis=-1, keepdims=True))
        return out
    sizes = (model.nq,), (model.nq,)
    graph, (x, g, v) = unknowns([model.nq, model.nq, model.nv])
    found = Gradients(graph, [v])
    found.sweep(rollout._system(()).rate(x, v), g)
    what = f"gradients in the tangent space of {model.name!r}"
    kernel = kernel_of(what, graph, found.of(v), ("q", "gradient"), sizes, (model.nv,), rollout.dtype)
    return np.asarray(kernel(q, gradient))
