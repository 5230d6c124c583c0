"""Derivatives of any algorithm by running it on dual numbers: a check on the closed forms, and the way to second ones.

Not in the papers. A coordinate moves along a DoF as `integrate` moves it, so derivatives are in the tangent space. In
second derivatives the last index is the DoF by which the matrix of first ones was differentiated: where rotations do
not commute, ∂/∂q_k of ∂/∂q_j is not that of j and k exchanged.

Cost: two to three times the algorithm's for each DoF, less what the columns have in common when they are traced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.algorithms import articulated_body, derivatives, newton_euler_classical
from qddot.mechanism.model import Model
from qddot.scalars import Scalar, split, stack
from qddot.spatial.dual import Dual

Algorithm = Callable[..., NDArray[Any]]


def inverse_dynamics_derivatives(model: Model, q: Any, v: Any, a: Any, f_ext: Any = None) -> NDArray[Any]:
    """∂tau/∂q, ∂tau/∂v and ∂tau/∂a, stacked: (3, nv, nv)."""
    run = partial(newton_euler_classical.inverse_dynamics, f_ext=f_ext)
    return _stacked([by(run, model, (q, v, a), which) for which in range(3)])


def forward_dynamics_derivatives(model: Model, q: Any, v: Any, tau: Any, f_ext: Any = None) -> NDArray[Any]:
    """∂a/∂q, ∂a/∂v and ∂a/∂tau, stacked: (3, nv, nv)."""
    run = partial(articulated_body.forward_dynamics, f_ext=f_ext)
    return _stacked([by(run, model, (q, v, tau), which) for which in range(3)])


def inverse_dynamics_second_derivatives(model: Model, q: Any, v: Any, a: Any, f_ext: Any = None) -> NDArray[Any]:
    """∂²tau/∂q∂q, ∂²tau/∂q∂v, ∂²tau/∂v∂v and ∂M/∂q, stacked: (4, nv, nv, nv)."""
    return _second(partial(derivatives.inverse_dynamics_derivatives, f_ext=f_ext), model, (q, v, a))


def forward_dynamics_second_derivatives(model: Model, q: Any, v: Any, tau: Any, f_ext: Any = None) -> NDArray[Any]:
    """∂²a/∂q∂q, ∂²a/∂q∂v, ∂²a/∂v∂v and ∂M⁻¹/∂q, stacked: (4, nv, nv, nv)."""
    return _second(partial(derivatives.forward_dynamics_derivatives, f_ext=f_ext), model, (q, v, tau))


def _second(first: Algorithm, model: Model, state: tuple[Any, Any, Any]) -> NDArray[Any]:
    by_q, by_v = by(first, model, state, 0), by(first, model, state, 1)
    parts = (by_q[..., 0, :, :, :], by_v[..., 0, :, :, :], by_v[..., 1, :, :, :], by_q[..., 2, :, :, :])
    return np.stack(np.broadcast_arrays(*parts), axis=-4)


def by(function: Algorithm, model: Model, state: Sequence[Any], which: int) -> NDArray[Any]:
    """The derivatives of a function of (q, v, …) by one of its arguments: one more axis, over the degrees of freedom."""
    parts = [split(x) for x in state]
    columns = []
    for k in range(model.nv):
        rates = [[0.0] * len(x) for x in parts]
        rates[which] = _along(model, parts[0], k) if which == 0 else [float(j == k) for j in range(model.nv)]
        moving = [_moving(x, dx) for x, dx in zip(parts, rates, strict=True)]
        result = function(model, *moving)
        slopes = [x.slope if isinstance(x, Dual) else 0.0 for x in result.reshape(-1).tolist()]
        columns.append(stack(slopes, result.shape))
    return np.stack(np.broadcast_arrays(*columns), axis=-1)


def _along(model: Model, q: Sequence[Scalar], k: int) -> list[Scalar]:
    """How all coordinates change along degree of freedom k."""
    rates: list[Scalar] = [0.0] * model.nq
    for i, _ in model.outward():
        slot = model.slots[i]
        if model.mimic[i] is None and slot.v.start <= k < slot.v.stop:
            rates[slot.q] = model.joint[i].along(slot.read_q(q), k - slot.v.start)
    return rates


def _moving(x: Sequence[Scalar], rates: Sequence[Scalar]) -> NDArray[Any]:
    """Dual numbers in an array of one axis; where there is a batch, it is inside of them."""
    out = np.empty(len(x), dtype=object)
    out[:] = [Dual(value, rate) for value, rate in zip(x, rates, strict=True)]
    return out


def _stacked(matrices: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return np.stack(np.broadcast_arrays(*matrices), axis=-3)
