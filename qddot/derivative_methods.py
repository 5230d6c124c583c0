"""How a robot's dynamics change with their inputs and with its own numbers: the methods that `Robot` has of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qddot import by as scalar
from qddot.errors import InputError, SingularMassMatrixError
from qddot.model import Model

if TYPE_CHECKING:
    from qddot.constraints import Constrained

Array = NDArray[Any]


class InverseDynamicsDerivatives(NamedTuple):
    """∂tau/∂q in the tangent space, ∂tau/∂v, and ∂tau/∂a, which is the mass matrix. Rows are forces."""

    dq: Array
    dv: Array
    da: Array


class ForwardDynamicsDerivatives(NamedTuple):
    """By q in the tangent space, by v, and by tau, which of accelerations is the inverse of the mass matrix."""

    dq: Array
    dv: Array
    dtau: Array


class ByAllInputs(NamedTuple):
    """By q in the tangent space, v, a and tau. Columns of what hybrid dynamics does not read are zero."""

    dq: Array
    dv: Array
    da: Array
    dtau: Array


class HybridDynamicsDerivatives(NamedTuple):
    """Of all accelerations, and of all joint forces."""

    a: ByAllInputs
    tau: ByAllInputs


class SecondDerivatives(NamedTuple):
    """∂²/∂q∂q, ∂²/∂q∂v, ∂²/∂v∂v, and the slope of M or M⁻¹ by q. [i, j, k] is that of the matrix [i, j] by freedom k."""

    dqq: Array
    dqv: Array
    dvv: Array
    dM: Array


class ConstrainedDerivatives(NamedTuple):
    """Of the accelerations, and of the constraints' forces λ."""

    a: ForwardDynamicsDerivatives
    lam: ForwardDynamicsDerivatives


class DerivativeMethods:
    """A part of `Robot`."""

    model: Model

    if TYPE_CHECKING:  # what `Robot` has

        @property
        def nv(self) -> int: ...
        def _run(self, function: str, *inputs: Any, **needs: Any) -> Array: ...
        def _solve(self, axes: int, function: str, *inputs: Any, **needs: Any) -> Array: ...
        def _massless(self, among: tuple[int, ...]) -> Mapping[int, Array]: ...
        def _no_mass(self, motions: Mapping[int, Array] | None = None) -> SingularMassMatrixError: ...
        def _has_loops(self, function: str) -> InputError: ...
        @property
        def _closure(self) -> Constrained: ...

    def inverse_dynamics_derivatives(self, q: ArrayLike, v: ArrayLike, a: ArrayLike) -> InverseDynamicsDerivatives:
        """How the joint forces change with q (in the tangent space), v and a: dq, dv, da, each (..., nv, nv)."""
        self._only_trees("inverse_dynamics_derivatives")
        return InverseDynamicsDerivatives(*_parts(3, self._run("inverse_dynamics_derivatives", q, v, a)))

    def forward_dynamics_derivatives(self, q: ArrayLike, v: ArrayLike, tau: ArrayLike) -> ForwardDynamicsDerivatives:
        """How the accelerations change with q (in the tangent space), v and tau: dq, dv, dtau, each (..., nv, nv)."""
        if self.model.is_constrained:
            return self.constrained_forward_dynamics_derivatives(q, v, tau).a
        return ForwardDynamicsDerivatives(*_parts(3, self._solve(3, "forward_dynamics_derivatives", q, v, tau)))

    def constrained_forward_dynamics_derivatives(
        self, q: ArrayLike, v: ArrayLike, tau: ArrayLike
    ) -> ConstrainedDerivatives:
        """How accelerations and constraint forces change, loops closed: d.a.dq, …, d.lam.dtau (docs/derivatives.md).

        d.lam has one row for each row of the constraints; where rows are redundant it is that of the least forces, along
        motions that keep the loops closed.
        """
        of_a, of_lam = self._closure.derivatives(q, v, tau)
        return ConstrainedDerivatives(ForwardDynamicsDerivatives(*of_a), ForwardDynamicsDerivatives(*of_lam))

    def constraint_jacobian_derivatives(self, q: ArrayLike) -> Array:
        """∂A/∂q, (..., rows, nv, nv): [r, j, k] is the slope of A's entry [r, j] along freedom k."""
        return self._run("constraint_jacobian_derivatives", q)

    def hybrid_dynamics_derivatives(
        self,
        q: ArrayLike,
        v: ArrayLike,
        a: ArrayLike,
        tau: ArrayLike,
        *,
        prescribed: Iterable[str | int | tuple[str, int]],
    ) -> HybridDynamicsDerivatives:
        """How all accelerations and all forces of `hybrid_dynamics` change: d.a.dq, …, d.tau.dtau, each (..., nv, nv)."""
        self._only_trees("hybrid_dynamics_derivatives")
        chosen = self._yielding_has_mass(prescribed)
        both = self._solve(4, "hybrid_dynamics_derivatives", q, v, a, tau, prescribed=chosen)
        of_a, of_tau = np.moveaxis(both, (-4, -3), (0, 1))
        return HybridDynamicsDerivatives(ByAllInputs(*of_a), ByAllInputs(*of_tau))

    def inverse_dynamics_derivative(self, q: ArrayLike, v: ArrayLike, a: ArrayLike, *, by: Any) -> Array:
        """How the joint forces change with one scalar, (..., nv): a freedom of q, v or a, an inertia, a placement, gravity.

        `by` says which (docs/derivatives.md): ("q", joint), ("inertia", link, ten numbers), ("placement", link, twist),
        ("gravity", direction). The code is made for it alone.   Kim 2012, Table 5.
        """
        self._only_trees("inverse_dynamics_derivative")
        return self._run("inverse_dynamics_derivative", q, v, a, by=scalar.exact(self.model, by))

    def forward_dynamics_derivative(self, q: ArrayLike, v: ArrayLike, tau: ArrayLike, *, by: Any) -> Array:
        """How the accelerations change with one scalar, (..., nv); `by` as above.   Kim 2012, Table 6."""
        self._only_trees("forward_dynamics_derivative")
        return self._solve(1, "forward_dynamics_derivative", q, v, tau, by=scalar.exact(self.model, by))

    def hybrid_dynamics_derivative(
        self,
        q: ArrayLike,
        v: ArrayLike,
        a: ArrayLike,
        tau: ArrayLike,
        *,
        prescribed: Iterable[str | int | tuple[str, int]],
        by: Any,
    ) -> tuple[Array, Array]:
        """How all accelerations and all forces change with one scalar; `by` as above.   Kim 2012, Table 7."""
        self._only_trees("hybrid_dynamics_derivative")
        needs = {"prescribed": self._yielding_has_mass(prescribed), "by": scalar.exact(self.model, by)}
        both = self._solve(2, "hybrid_dynamics_derivative", q, v, a, tau, **needs)
        return both[..., 0, :], both[..., 1, :]

    def inverse_dynamics_second_derivatives(self, q: ArrayLike, v: ArrayLike, a: ArrayLike) -> SecondDerivatives:
        """The derivatives of `inverse_dynamics_derivatives` (docs/derivatives.md), each (..., nv, nv, nv)."""
        self._only_trees("inverse_dynamics_second_derivatives")
        return SecondDerivatives(*_parts(4, self._run("inverse_dynamics_second_derivatives", q, v, a)))

    def forward_dynamics_second_derivatives(self, q: ArrayLike, v: ArrayLike, tau: ArrayLike) -> SecondDerivatives:
        """The derivatives of `forward_dynamics_derivatives` (docs/derivatives.md), each (..., nv, nv, nv)."""
        self._only_trees("forward_dynamics_second_derivatives")
        return SecondDerivatives(*_parts(4, self._solve(4, "forward_dynamics_second_derivatives", q, v, tau)))

    def regressor(self, q: ArrayLike, v: ArrayLike, a: ArrayLike) -> Array:
        """Y with inverse dynamics = Y π for the links' inertias π, ten numbers a link: (..., nv, 10 n_links).

        The order is that of docs/parameters.md. Rotors and passive joint forces are not in it.
        """
        return self._run("regressor", q, v, a)

    def forward_dynamics_inertia_derivatives(self, q: ArrayLike, v: ArrayLike, tau: ArrayLike) -> Array:
        """How the accelerations change with the links' inertias, in the order of `regressor`: (..., nv, 10 n_links)."""
        self._only_trees("forward_dynamics_inertia_derivatives")
        return self._solve(2, "forward_dynamics_inertia_derivatives", q, v, tau)

    def _only_trees(self, function: str) -> None:
        if self.model.is_constrained:
            raise self._has_loops(function)

    def _yielding_has_mass(self, prescribed: Iterable[str | int | tuple[str, int]]) -> tuple[int, ...]:
        """The prescribed freedoms, if the others have mass to be moved."""
        chosen = self.model.freedoms(prescribed)
        if guilty := self._massless(tuple(k for k in range(self.nv) if k not in chosen)):
            raise self._no_mass(guilty)
        return chosen


def _parts(count: int, stacked: Array) -> list[Array]:
    """The arrays stacked on the first axis of one state's result, which has as many axes as there are parts."""
    return list(np.moveaxis(stacked, -count, 0))
