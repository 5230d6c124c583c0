"""Results of derivatives of dynamics, and derivatives with respect to external forces.

External forces enter as joint forces Jᵀf_ext beside tau. With D the derivative of a result x with respect to joint forces,

    ∂x/∂f_ext = D Jᵀ,      total dx/dq = ∂x/∂q + D Jᵀ ∂f_ext/∂q,      total dx/dv = ∂x/∂v + D Jᵀ ∂f_ext/∂v.

D is ∂x/∂tau for accelerations and constraint forces, -1 for the joint forces of inverse dynamics, and ∂tau/∂tau - 1 for
those of hybrid dynamics.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from qddot.compiler.runtime.array_kinds import on_host
from qddot.dynamics.engine import Engine
from qddot.dynamics.input_checks import numbers
from qddot.errors import InputError

Array = NDArray[Any]


class _ByForces:
    """Adds `df_ext` to a tuple of derivatives, but not to its entries: code unpacks them."""

    _answer: Callable[[], Array] | None = None

    @cached_property
    def df_ext(self) -> Array:
        """With respect to f_ext, (..., rows, n_links, 6); computed at its first use, and only where f_ext was given."""
        if self._answer is None:
            raise InputError("df_ext needs f_ext in the call; give np.zeros((n_links, 6)) where no force acts")
        return self._answer()

    def with_arrays(self, f: Callable[[Any], Any]) -> Any:
        """The same with f of each array, `df_ext` among them when it is computed."""
        out: Any = type(self)(*(f(x) for x in self))  # type: ignore[attr-defined]
        if self._answer is not None:
            out._answer = lambda: f(self.df_ext)
        return out

    def __reduce__(self) -> Any:
        known = {} if self._answer is None else {"df_ext": self.df_ext}
        return type(self), tuple(self), known  # type: ignore[arg-type]


class _InverseDynamics(NamedTuple):
    dq: Array
    dv: Array
    da: Array


class _ForwardDynamics(NamedTuple):
    dq: Array
    dv: Array
    dtau: Array


class _AllInputs(NamedTuple):
    dq: Array
    dv: Array
    da: Array
    dtau: Array


class InverseDynamicsDerivatives(_ByForces, _InverseDynamics):
    """∂tau/∂q in the tangent space, ∂tau/∂v, and ∂tau/∂a, which is the mass matrix. Rows are forces."""


class ForwardDynamicsDerivatives(_ByForces, _ForwardDynamics):
    """By q in the tangent space, by v, and by tau, which of accelerations is the inverse of the mass matrix."""


class ByAllInputs(_ByForces, _AllInputs):
    """By q in the tangent space, v, a and tau. Columns of what hybrid dynamics does not read are zero."""


Kind = TypeVar("Kind", InverseDynamicsDerivatives, ForwardDynamicsDerivatives, ByAllInputs)


class HybridDynamicsDerivatives(NamedTuple):
    """Of all accelerations, and of all joint forces."""

    a: ByAllInputs
    tau: ByAllInputs


class SecondDerivatives(NamedTuple):
    """∂²/∂q∂q, ∂²/∂q∂v, ∂²/∂v∂v, and the slope of M or M⁻¹ by q. [i, j, k] is that of the matrix [i, j] by DoF k."""

    dqq: Array
    dqv: Array
    dvv: Array
    dM: Array


class ConstrainedDerivatives(NamedTuple):
    """Of the accelerations, and of the constraints' forces λ."""

    a: ForwardDynamicsDerivatives
    lam: ForwardDynamicsDerivatives


class Pull:
    """Jᵀ at the configurations of one call, and the slopes that its external forces have there."""

    def __init__(self, engine: Engine, q: Any, df_ext_dq: Any, df_ext_dv: Any) -> None:
        self.engine, self.q = engine, np.array(on_host(q, "q"))  # a copy: it is read again when df_ext is computed
        self.slopes = [("df_ext_dq", self._checked("df_ext_dq", df_ext_dq))]
        self.slopes += [("df_ext_dv", self._checked("df_ext_dv", df_ext_dv))]

    @cached_property
    def J_T(self) -> Array:
        """(..., nv, 6 n_links)."""
        return np.asarray(self.engine.evaluate("external_force_jacobian", self.q))

    def complete(self, kind: type[Kind], parts: list[Array], D: Array | None, *, less_own: bool = False) -> Kind:
        """The slopes by q, by v and by all else, with the chain rule. D answers joint forces, less themselves if asked."""

        def answer(slopes: Array | None) -> Array:
            with np.errstate(all="ignore"):  # a sample that is not finite is its own affair, as in kernels
                forces = self.J_T if slopes is None else self.J_T @ slopes
                found = 0.0 if D is None else D @ forces
                return np.asarray(found - forces if less_own else found)

        def by_forces() -> Array:
            found = answer(None)
            return found.reshape(*found.shape[:-1], self.engine.model.n_links, 6)

        total = list(parts)
        for k, (what, slopes) in enumerate(self.slopes):
            if slopes is not None:
                self._fits(what, slopes, parts[k])
                total[k] = parts[k] + answer(slopes)
        shape = np.broadcast_shapes(*(x.shape for x in total))
        out = kind(*(x if x.shape == shape else np.broadcast_to(x, shape).copy() for x in total))
        out._answer = by_forces
        return out

    def _checked(self, what: str, slopes: Any) -> Array | None:
        """Slopes of forces, (..., 6 n_links, nv)."""
        if slopes is None:
            return None
        model, n = self.engine.model, self.engine.model.n_links
        array = numbers(slopes, what)
        if array.shape[-3:] != (n, 6, model.nv):
            raise InputError(
                f"{what} has shape {array.shape}, but must be (..., {n}, 6, {model.nv}): "
                f"the slope of each component of f_ext along each degree of freedom of robot {model.name!r}"
            )
        return np.asarray(array.reshape(*array.shape[:-3], 6 * n, model.nv))

    def _fits(self, what: str, slopes: Array, part: Array) -> None:
        try:
            np.broadcast_shapes(slopes.shape[:-2], part.shape[:-2])
        except ValueError:
            raise InputError(
                f"{what} has the batch axes {slopes.shape[:-2]}, which do not fit the {part.shape[:-2]} of the states"
            ) from None
