"""How a robot's dynamics change with their inputs and with its own numbers: the methods that `Robot` has of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import ArrayLike

from qddot.dynamics.constrained_solver import solver_of
from qddot.dynamics.derivative_results import (
    ByAllInputs,
    ConstrainedDerivatives,
    ForwardDynamicsDerivatives,
    HybridDynamicsDerivatives,
    InverseDynamicsDerivatives,
    Pull,
    SecondDerivatives,
)
from qddot.dynamics.named_forces import (
    ForceOptions,
    Forces,
    ScalarForceOptions,
    link_forces,
    with_slope,
    with_slopes,
)
from qddot.dynamics.request import ignores_loops
from qddot.errors import InputError
from qddot.mechanism import derivative_variable as scalar
from qddot.robot.base import Array, RobotBase

if TYPE_CHECKING:
    from qddot.simulation.step_derivatives import StepDerivatives


class DerivativeMethods(RobotBase):
    """A part of `Robot`."""

    def inverse_dynamics_derivatives(
        self,
        q: ArrayLike,
        v: ArrayLike,
        a: ArrayLike,
        f_ext: Forces | None = None,
        **forces: Unpack[ForceOptions],
    ) -> InverseDynamicsDerivatives:
        """How the joint forces change with q (in the tangent space), v and a: dq, dv, da, each (..., nv, nv).

        `f_ext` is (..., n_links, 6) or by name, as in `inverse_dynamics`; it keeps its components while q changes, in the
        axes that `expressed_in` says. Forces that depend on q and v come with their Jacobians in the links' frames,
        `df_ext_dq` and `df_ext_dv`, (..., n_links, 6, nv), and dq and dv are total derivatives. The result has `df_ext`,
        (..., nv, n_links, 6), then: with respect to the forces in the links' frames, computed at its first use.
        """
        self._only_trees("inverse_dynamics_derivatives")
        pushes, *by = with_slopes(self.engine, "inverse_dynamics_derivatives", q, f_ext, forces)
        if pushes is None:
            return InverseDynamicsDerivatives(*_parts(3, self._evaluate("inverse_dynamics_derivatives", q, v, a)))
        parts = _parts(3, self._evaluate("inverse_dynamics_derivatives_with_forces", q, v, a, pushes))
        return Pull(self.engine, q, *by).complete(InverseDynamicsDerivatives, parts, None, less_own=True)

    def forward_dynamics_derivatives(
        self,
        q: ArrayLike,
        v: ArrayLike,
        tau: ArrayLike,
        f_ext: Forces | None = None,
        **forces: Unpack[ForceOptions],
    ) -> ForwardDynamicsDerivatives:
        """How the accelerations change with q (in the tangent space), v and tau: dq, dv, dtau, each (..., nv, nv).

        External forces as in `inverse_dynamics_derivatives`.
        """
        if self.model.is_constrained:
            return self.constrained_forward_dynamics_derivatives(q, v, tau, f_ext, **forces).a
        pushes, *by = with_slopes(self.engine, "forward_dynamics_derivatives", q, f_ext, forces)
        if pushes is None:
            return ForwardDynamicsDerivatives(*_parts(3, self._solve(3, "forward_dynamics_derivatives", q, v, tau)))
        parts = _parts(3, self._solve(3, "forward_dynamics_derivatives_with_forces", q, v, tau, pushes))
        return Pull(self.engine, q, *by).complete(ForwardDynamicsDerivatives, parts, parts[2])

    def step_derivatives(
        self,
        q: ArrayLike,
        v: ArrayLike,
        tau: ArrayLike | None = None,
        *,
        dt: float,
        integrator: str = "semi_implicit_euler",
    ) -> StepDerivatives:
        """A and B of one step of `simulate`, x' = f(x, tau) with x = (q, v): (..., 2 nv, 2 nv) and (..., 2 nv, nv).

        q counts in the tangent space, before the step and after it. d.dq, d.dv and d.dtau are their columns. Joint forces
        are held over the step of `dt`. Integrators: those without a memory, such as "rk4" (docs/derivatives.md).
        """
        from qddot.simulation.step_derivatives import step_derivatives

        return step_derivatives(self, q, v, tau, dt=dt, integrator=integrator)

    def constrained_forward_dynamics_derivatives(
        self,
        q: ArrayLike,
        v: ArrayLike,
        tau: ArrayLike,
        f_ext: Forces | None = None,
        **forces: Unpack[ForceOptions],
    ) -> ConstrainedDerivatives:
        """How accelerations and constraint forces change, loops closed: d.a.dq, …, d.lam.dtau (docs/derivatives.md).

        d.lam has one row for each row of the constraints; where rows are redundant it is that of the least forces, along
        motions that keep the loops closed. External forces as in `inverse_dynamics_derivatives`.
        """
        solver = solver_of(self.engine)
        pushes, *by = with_slopes(self.engine, "constrained_forward_dynamics_derivatives", q, f_ext, forces)
        of_a, of_lam = solver.derivatives(q, v, tau, pushes)
        if pushes is None:
            return ConstrainedDerivatives(ForwardDynamicsDerivatives(*of_a), ForwardDynamicsDerivatives(*of_lam))
        pull = Pull(self.engine, q, *by)
        return ConstrainedDerivatives(
            pull.complete(ForwardDynamicsDerivatives, of_a, of_a[2]),
            pull.complete(ForwardDynamicsDerivatives, of_lam, of_lam[2]),
        )

    def external_force_jacobian(self, q: ArrayLike) -> Array:
        """Jᵀ of all links, (..., nv, n_links, 6), with Jᵀf_ext the joint forces that external forces amount to."""
        found = self._evaluate("external_force_jacobian", q)
        return found.reshape(*found.shape[:-1], self.model.n_links, 6)

    def constraint_jacobian_derivatives(self, q: ArrayLike) -> Array:
        """∂A/∂q, (..., rows, nv, nv): [r, j, k] is the slope of A's entry [r, j] along degree of freedom k."""
        solver_of(self.engine)  # an error where there are no constraints
        return self._evaluate("constraint_jacobian_derivatives", q)

    def hybrid_dynamics_derivatives(
        self,
        q: ArrayLike,
        v: ArrayLike,
        a: ArrayLike,
        tau: ArrayLike,
        f_ext: Forces | None = None,
        *,
        prescribed: Iterable[str | int | tuple[str, int]],
        **forces: Unpack[ForceOptions],
    ) -> HybridDynamicsDerivatives:
        """How all accelerations and all forces of `hybrid_dynamics` change: d.a.dq, …, d.tau.dtau, each (..., nv, nv).

        External forces as in `inverse_dynamics_derivatives`.
        """
        self._only_trees("hybrid_dynamics_derivatives")
        chosen = self._yielding_has_mass(prescribed)
        pushes, *by = with_slopes(self.engine, "hybrid_dynamics_derivatives", q, f_ext, forces)
        if pushes is None:
            both = self._solve(4, "hybrid_dynamics_derivatives", q, v, a, tau, prescribed=chosen)
            of_a, of_tau = (_parts(3, x) for x in _parts(4, both))
            return HybridDynamicsDerivatives(ByAllInputs(*of_a), ByAllInputs(*of_tau))
        both = self._solve(4, "hybrid_dynamics_derivatives_with_forces", q, v, a, tau, pushes, prescribed=chosen)
        of_a, of_tau = (_parts(3, x) for x in _parts(4, both))
        pull = Pull(self.engine, q, *by)
        return HybridDynamicsDerivatives(
            pull.complete(ByAllInputs, of_a, of_a[3]),
            pull.complete(ByAllInputs, of_tau, of_tau[3], less_own=True),
        )

    def inverse_dynamics_derivative(
        self,
        q: ArrayLike,
        v: ArrayLike,
        a: ArrayLike,
        f_ext: Forces | None = None,
        *,
        by: Any,
        **forces: Unpack[ScalarForceOptions],
    ) -> Array:
        """How the joint forces change with one scalar p, (..., nv): an entry of q, v or a, an inertia, gravity, …

        `by` says which (docs/derivatives.md): ("q", joint), ("inertia", link, ten numbers), ("placement", link, twist),
        ("gravity", direction), ("f_ext", link, k). The code is made for it alone. `f_ext` and `expressed_in` are as in
        `inverse_dynamics`; `df_ext_dp`, (..., n_links, 6), is how the forces change with p in the links' frames.
        Kim 2012, Table 5.
        """
        self._only_trees("inverse_dynamics_derivative")
        p = scalar.resolve(self.model, by)
        name, inputs = self._pushed_by("inverse_dynamics_derivative", (q, v, a), f_ext, p, forces)
        return self._evaluate(name, *inputs, by=p)

    def forward_dynamics_derivative(
        self,
        q: ArrayLike,
        v: ArrayLike,
        tau: ArrayLike,
        f_ext: Forces | None = None,
        *,
        by: Any,
        **forces: Unpack[ScalarForceOptions],
    ) -> Array:
        """How the accelerations change with one scalar, (..., nv); `by` as above.   Kim 2012, Table 6."""
        self._only_trees("forward_dynamics_derivative")
        p = scalar.resolve(self.model, by)
        name, inputs = self._pushed_by("forward_dynamics_derivative", (q, v, tau), f_ext, p, forces)
        return self._solve(1, name, *inputs, by=p)

    def hybrid_dynamics_derivative(
        self,
        q: ArrayLike,
        v: ArrayLike,
        a: ArrayLike,
        tau: ArrayLike,
        f_ext: Forces | None = None,
        *,
        prescribed: Iterable[str | int | tuple[str, int]],
        by: Any,
        **forces: Unpack[ScalarForceOptions],
    ) -> tuple[Array, Array]:
        """How all accelerations and all forces change with one scalar; `by` as above.   Kim 2012, Table 7."""
        self._only_trees("hybrid_dynamics_derivative")
        needs = {"prescribed": self._yielding_has_mass(prescribed), "by": scalar.resolve(self.model, by)}
        name, inputs = self._pushed_by("hybrid_dynamics_derivative", (q, v, a, tau), f_ext, needs["by"], forces)
        both = self._solve(2, name, *inputs, **needs)
        return both[..., 0, :], both[..., 1, :]

    def inverse_dynamics_second_derivatives(
        self, q: ArrayLike, v: ArrayLike, a: ArrayLike, f_ext: Forces | None = None, *, expressed_in: str = "frame"
    ) -> SecondDerivatives:
        """The derivatives of `inverse_dynamics_derivatives` (docs/derivatives.md), each (..., nv, nv, nv)."""
        self._only_trees("inverse_dynamics_second_derivatives")
        name, inputs = self._pushed("inverse_dynamics_second_derivatives", (q, v, a), f_ext, expressed_in)
        return SecondDerivatives(*_parts(4, self._evaluate(name, *inputs)))

    def forward_dynamics_second_derivatives(
        self, q: ArrayLike, v: ArrayLike, tau: ArrayLike, f_ext: Forces | None = None, *, expressed_in: str = "frame"
    ) -> SecondDerivatives:
        """The derivatives of `forward_dynamics_derivatives` (docs/derivatives.md), each (..., nv, nv, nv)."""
        self._only_trees("forward_dynamics_second_derivatives")
        name, inputs = self._pushed("forward_dynamics_second_derivatives", (q, v, tau), f_ext, expressed_in)
        return SecondDerivatives(*_parts(4, self._solve(4, name, *inputs)))

    def regressor(self, q: ArrayLike, v: ArrayLike, a: ArrayLike) -> Array:
        """Y with inverse dynamics = Y π for the links' inertias π, ten numbers a link: (..., nv, 10 n_links).

        The order is that of docs/parameters.md. Rotors and passive joint forces are not in it.
        """
        return self._evaluate("regressor", q, v, a)

    def forward_dynamics_inertia_derivatives(
        self, q: ArrayLike, v: ArrayLike, tau: ArrayLike, f_ext: Forces | None = None, *, expressed_in: str = "frame"
    ) -> Array:
        """How the accelerations change with the links' inertias, in the order of `regressor`: (..., nv, 10 n_links)."""
        self._only_trees("forward_dynamics_inertia_derivatives")
        name, inputs = self._pushed("forward_dynamics_inertia_derivatives", (q, v, tau), f_ext, expressed_in)
        return self._solve(2, name, *inputs)

    def _pushed(
        self, name: str, inputs: tuple[Any, ...], f_ext: Forces | None, expressed_in: str
    ) -> tuple[str, tuple[Any, ...]]:
        """The function to call and its inputs: without external forces, or with them."""
        if f_ext is None:
            return name, inputs
        if expressed_in == "world" and name.endswith("_second_derivatives"):
            raise InputError(
                f"{name}: second derivatives are of forces that stay as they are in the links' frames; "
                f"take expressed_in='frame' or 'link', or robot.link_forces(q, f_ext, 'world') as f_ext"
            )
        return f"{name}_with_forces", (*inputs, link_forces(self.engine, inputs[0], f_ext, expressed_in))

    def _pushed_by(
        self,
        name: str,
        inputs: tuple[Any, ...],
        f_ext: Forces | None,
        by: tuple[Any, ...],
        given: ScalarForceOptions,
    ) -> tuple[str, tuple[Any, ...]]:
        """The same by one scalar: after the forces comes their slope."""
        f_ext, slope = with_slope(self.engine, name, inputs[0], f_ext, by, given)
        if f_ext is None:
            return name, inputs
        return f"{name}_with_forces", (*inputs, f_ext, np.zeros((self.model.n_links, 6)) if slope is None else slope)

    def _only_trees(self, function: str) -> None:
        if self.model.is_constrained:
            raise ignores_loops(self.model, function)

    def _yielding_has_mass(self, prescribed: Iterable[str | int | tuple[str, int]]) -> tuple[int, ...]:
        """The prescribed degrees of freedom, if the others have mass to be moved."""
        chosen = self.model.dof_indices(prescribed)
        self.engine.solvability.require_mass(chosen)
        return chosen


def _parts(axes: int, stacked: Any) -> list[Any]:
    """The arrays stacked on the first of the axes that one state's result has, by indices that all packages take."""
    rest = (slice(None),) * (axes - 1)
    return [stacked[(..., k, *rest)] for k in range(stacked.shape[-axes])]
