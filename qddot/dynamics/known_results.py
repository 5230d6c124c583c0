"""Products with the Jacobian of forward dynamics whose result is known, as it is in a backward pass.

Accelerations a solve ID(x, a) = tau, where x are q, v, external forces and free parameters. So their derivatives are
those of inverse dynamics, which has half the operations, and solutions with M, at rest and without gravity:

    VJP:  λ = M⁻¹ ā,  x̄ = -(∂ID/∂x)ᵀ λ,  tau̅ = λ            JVP:  ȧ = M⁻¹ (tau̇ - ∂ID/∂x ẋ)

The result is taken as it comes: for other numbers than the accelerations at these inputs the product is that of another
function. Nothing is differentiated with respect to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from qddot.dynamics.products import JVP, RESULT, Product, traced
from qddot.mechanism.model import Model
from qddot.spatial.joint_blocks import Vector

if TYPE_CHECKING:
    from qddot.compiler.ir.expr import Graph

INVERSE = {  # by function: which function of the same inputs, with the result in tau's place, gives tau
    "forward_dynamics": "inverse_dynamics",
    "forward_dynamics_with_forces": "inverse_dynamics_with_forces",
}
_UNKNOWN = "tau"
Evaluate = Callable[[Model, Mapping[str, Any]], NDArray[Any]]


def traced_product(
    graph: Graph,
    model: Model,
    product: Product,
    inputs: Mapping[str, NDArray[Any]],
    forward: Evaluate,
    inverse: Evaluate,
) -> NDArray[Any]:
    """The product for a result that is among the `inputs`; `forward` and `inverse` evaluate the functions on a model."""

    def solved(force: Any) -> NDArray[Any]:
        at_rest = {"q": inputs["q"], "v": np.zeros(model.nv), _UNKNOWN: force}
        return forward(_without_forces(model), {**inputs, **at_rest, "f_ext": None})

    rest = product._replace(wrt=tuple(name for name in product.wrt if name != _UNKNOWN))
    has_unknown = len(rest.wrt) < len(product.wrt)
    own = {**inputs, "a": inputs[RESULT]}
    if product.sweeps == (JVP,):
        force: Any = inputs[f"{_UNKNOWN}_tangent"] if has_unknown else np.zeros(model.nv)
        if rest.wrt:
            force = force - traced(graph, model, rest, inputs, inverse(model, own))
        return solved(force)
    multiplier = solved(inputs["cotangent"])
    row: list[Any] = []
    if rest.wrt:
        row = list(traced(graph, model, rest, {**inputs, "cotangent": -multiplier}, inverse(model, own)))
    if has_unknown:
        before = product.wrt[: product.wrt.index(_UNKNOWN)]
        at = sum(prod(product.tangent_shape(model, name, inputs[name].shape)) for name in before)
        row[at:at] = multiplier
    out = np.empty(len(row), dtype=object)
    out[:] = row
    return out


def _without_forces(model: Model) -> Model:
    """The model without gravity, dampers, friction and springs."""
    none = tuple(Vector((0.0,) * len(x)) for x in model.damping)
    return replace(model, damping=none, friction=none, stiffness=none, gravity=(0.0, 0.0, 0.0))
