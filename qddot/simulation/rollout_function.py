"""A differentiable rollout as a function of arrays by name, for libraries that keep arrays of their own.

The key names everything that results depend on beside the arrays, so that two rollouts with the same operations are one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.dynamics.engine import HasEngine
from qddot.errors import InputError
from qddot.mechanism import parameters
from qddot.simulation.differentiable import DifferentiableRollout
from qddot.simulation.differentiable_run import DifferentiableRun

Array = NDArray[Any]
Shape = tuple[int, ...]
_known: dict[str, RolloutFunction] = {}


class RolloutFunction:
    """Inputs are q0, v0, then of controls, inputs, parameters and free parameters what there is; results are q, v, cost."""

    def __init__(self, rollout: DifferentiableRollout) -> None:
        own = rollout.forward
        self.rollout, self.model, self.dtype = rollout, own.model, own.dtype
        held = "inputs" if rollout.has_law else "controls"
        width = own.held.shape[-1]
        self.shapes: dict[str, Shape] = {
            "q0": (own.model.nq,),
            "v0": (own.model.nv,),
            **({held: (own.held.shape[-2], width)} if width else {}),
            **own.constant_shapes,
        }
        self.has_cost = own.plan.cost is not None

    @cached_property
    def key(self) -> str:
        """A digest of what it computes."""
        own = self.rollout.forward
        cost = own.plan.cost.digest if own.plan.cost else None
        known = (own.model.digest, self.shapes, self.rollout.steps, self.rollout.record, cost, sorted(own.identity.items()))
        return hashlib.sha256(repr(known).encode()).hexdigest()

    def results(self, batch: Shape) -> tuple[Shape, Shape, Shape]:
        """The shapes of q, v and cost, the last with no entries where there is none."""
        rows = self.rollout.steps // self.rollout.record + 1
        cost = batch if self.has_cost else (0,)
        return (*batch, rows, self.model.nq), (*batch, rows, self.model.nv), cost

    def batch(self, shapes: Sequence[Shape]) -> Shape:
        """The batch axes of inputs of these shapes; an error where one does not fit."""
        batches = []
        for (name, own), shape in zip(self.shapes.items(), shapes, strict=True):
            cut = len(shape) - len(own)
            if cut < 0 or tuple(shape[cut:]) != own:
                wanted = f"(..., {', '.join(map(str, own))})" if own else "(...)"
                raise InputError(f"rollout: {name} has shape {tuple(shape)}, but must be {wanted}")
            batches.append(tuple(shape[:cut]))
        try:
            return np.broadcast_shapes(*batches)
        except ValueError:
            named = ", ".join(f"{name} {tuple(s)}" for name, s in zip(self.shapes, shapes, strict=True))
            raise InputError(f"rollout: the batch axes of {named} do not fit together") from None

    def run(self, arrays: Sequence[Array], states: tuple[Array, Array] | None = None) -> DifferentiableRun:
        """The run for these inputs; `states` are q and v that it gave before, which saves simulating where they suffice."""
        given: dict[str, Any] = dict(zip(self.shapes, arrays, strict=True))
        start = given.pop("q0"), given.pop("v0")
        own = {name: given.pop(name) for name in ("controls", "inputs", "parameters") if name in given}
        return self.rollout(*start, **own, free=given, states=states)

    def gradients(self, run: DifferentiableRun, bars: Sequence[Any]) -> list[Array]:
        """With respect to all inputs, in their shapes, for those with respect to q, v and cost; None is zero."""
        q_bar, v_bar, cost_bar = bars
        if all(x is None for x in bars):
            v_bar = np.zeros(run.v.shape[-1], self.dtype)
        found = run.vjp(q_bar, v_bar, cost_bar if self.has_cost else None, coordinates="ambient")
        return [found.free[name] if name in found.free else getattr(found, name) for name in self.shapes]


def rollout_function(robot: HasEngine, shapes: Mapping[str, Shape], controls: Any, **options: Any) -> RolloutFunction:
    """The function of a rollout whose arrays have these shapes, without their batch axes.

    `shapes` has "controls", "inputs" or "parameters" where they are arrays, and the free parameters by name; `controls` is
    a law or None. What was made before with the same operations is taken again.
    """
    zeros = {name: np.zeros(shape) for name, shape in shapes.items()}
    own: dict[str, Any] = {name: zeros.pop(name) for name in ("inputs", "parameters") if name in zeros}
    law = zeros.pop("controls", controls)
    if "steps" not in options or options["steps"] is None:
        rows = own.get("inputs", None if callable(law) else law)
        if rows is None:
            raise InputError("rollout: there are no rows of controls or inputs that say how many steps; give steps=")
        options["steps"] = rows.shape[-2]
    made = RolloutFunction(DifferentiableRollout(robot, law, **own, **options, free=zeros))
    return _known.setdefault(made.key, made)


def known_function(key: str) -> RolloutFunction:
    """The function of a key that this process has made."""
    if key not in _known:
        raise InputError("this program calls a rollout that this process has not made: make it before the program runs")
    return _known[key]


def own_shapes(robot: HasEngine, arrays: Mapping[str, Shape]) -> dict[str, Shape]:
    """The shapes of arrays without their batch axes: rows of controls and inputs, parameters, free ones."""
    axes = {"controls": 2, "inputs": 2, "parameters": 1}
    free = [name for name in arrays if name not in axes]
    found = parameters.parameters(robot.engine.model, free)
    out = {}
    for name, shape in arrays.items():
        if name in axes and len(shape) < axes[name]:
            raise InputError(f"rollout: {name} has shape {tuple(shape)}; it has {axes[name]} axes or more")
        if name in axes:
            out[name] = tuple(int(n) for n in shape[len(shape) - axes[name] :])
    return {**out, **{p.name: p.shape for p in found}}


__all__ = ["RolloutFunction", "known_function", "own_shapes", "rollout_function"]
