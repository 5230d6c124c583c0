"""What a robot can do about its loops and other constraints: the methods that `Robot` has of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property
from typing import Any, Self, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike

from qddot.dynamics.constrained_solver import Drives, solver_of, with_constraint
from qddot.dynamics.input_checks import positive
from qddot.dynamics.named_forces import Forces, checked_options, link_forces
from qddot.errors import InputError, QddotWarning, outside, unexpected
from qddot.robot.base import Array, RobotBase


class SpreadOptions(TypedDict, total=False):
    """How `constrained_inverse_dynamics` chooses among forces."""

    choice: str | None
    weights: ArrayLike | None


class HybridOptions(TypedDict, total=False):
    """The choices of `constrained_hybrid_dynamics`."""

    choice: str
    weights: ArrayLike | None
    method: str


class ConstraintMethods(RobotBase):
    """A part of `Robot`."""

    def with_constraint(
        self, name: str, *, position: Callable[[Any], Any] | None = None, velocity: Callable[[Any, Any], Any] | None = None
    ) -> Self:
        """The same robot with a constraint of its user's own: φ(q) = 0, or A(q) q̇ = 0 as a function of q and v."""
        return type(self)(with_constraint(self.model, name, position, velocity), self.compiled)

    @property
    def mobility(self) -> int:
        """How many degrees of freedom the constraints leave."""
        return self.nv - len(solver_of(self.engine).rows) if self.model.is_constrained else self.nv

    def constraint_residual(self, q: ArrayLike) -> Array:
        """φ(q): what each row of the constraints is off by, in m and rad."""
        return self._of_constraints("constraint_residual", q)

    def constraint_jacobian(self, q: ArrayLike) -> Array:
        """A with A q̇ = 0 on closed loops, (..., rows, nv)."""
        return self._of_constraints("constraint_jacobian", q)

    def constraint_bias(self, q: ArrayLike, v: ArrayLike) -> Array:
        """Ȧq̇, so that A q̈ + Ȧq̇ = 0."""
        return self._of_constraints("constraint_bias", q, v)

    @property
    def loop_tolerance(self) -> float:
        """Up to how many m or rad loops count as closed: as given to `load` or `Builder`, or from the model's own accuracy.

        It is 1e-10 where the numbers of the model are exact enough, and more where they are rounded (docs/loops.md).
        """
        return solver_of(self.engine).tolerance

    def with_loop_tolerance(self, tolerance: float | None) -> Self:
        """The same robot with loops that count as closed up to so many m or rad; None: from the model's own accuracy."""
        checked = None if tolerance is None else positive(tolerance, "loop_tolerance", "m or rad")
        return type(self)(replace(self.model, loop_tolerance=checked), self.compiled)

    def close_loops(
        self, q: ArrayLike, tolerance: float | None = None, *, hold: Iterable[str | int | tuple[str, int]] = ()
    ) -> tuple[Array, Array]:
        """The configuration with closed loops that is found from q, and the largest residual left.

        `tolerance` is another than the robot's own `loop_tolerance`, for this call. The joints in `hold` stay where they
        are; loops that cannot close so are an error, or NaN in a batch.
        """
        solver, held = solver_of(self.engine), self.model.dof_indices(hold)
        return solver.close(q, None if tolerance is None else positive(tolerance, "tolerance", "m or rad"), held)

    def project_velocity(self, q: ArrayLike, v: ArrayLike, *, hold: Iterable[str | int | tuple[str, int]] = ()) -> Array:
        """The velocity nearest to v in kinetic energy that keeps the loops closed: what an impulse in them makes of v.

        The joints in `hold` keep their velocity; where loops cannot follow it is an error, or NaN in a batch.
        """
        return solver_of(self.engine).project_velocity(q, v, self.model.dof_indices(hold))

    def constrained_forward_dynamics(
        self,
        q: ArrayLike,
        v: ArrayLike,
        tau: ArrayLike,
        f_ext: Forces | None = None,
        *,
        method: str = "auto",
        gains: tuple[float, float] | None = None,
        tau_loops: ArrayLike | None = None,
        expressed_in: str = "frame",
    ) -> tuple[Array, Array]:
        """Accelerations under tau with the loops closed, and the constraints' forces λ, one a row.

        `method` is "direct" (Featherstone & Orin's 1), "multipliers" (2), "null_space" (3), or "auto": the cheaper of the
        first two, and the third where rows become dependent. `gains` = (k_p, k_d) add Baumgarte's terms,
        A q̈ = -Ȧq̇ - k_d A q̇ - k_p φ. `tau_loops` are active forces in the closing joints, loop after loop. `f_ext` as in
        `inverse_dynamics`.
        """
        solver = solver_of(self.engine)
        forces = None if f_ext is None else link_forces(self.engine, q, f_ext, expressed_in)
        a, lam = solver.forward(q, v, tau, forces, method, gains, tau_loops)
        return a, solver.least(q, lam)

    def constrained_inverse_dynamics(
        self,
        q: ArrayLike,
        v: ArrayLike,
        a: ArrayLike,
        f_ext: Forces | None = None,
        *,
        actuated: Iterable[str | int | tuple[str, int]] | None = None,
        tau_passive: ArrayLike | None = None,
        expressed_in: str = "frame",
        **options: Unpack[SpreadOptions],
    ) -> tuple[Array, Array]:
        """Joint forces that give the accelerations a, and the constraints' forces λ.   Kim (56)-(66).

        Only `actuated` joints are driven (None: `actuated_joints`); the others have the forces `tau_passive`. Where there
        are more drives than needed, `choice` is the least "torque" (None), each joint weighted by `weights`, or the least
        "constraint_force". `f_ext` as in `inverse_dynamics`.
        """
        named = checked_options("constrained_inverse_dynamics", options, SpreadOptions.__annotations__)
        choice, weights = named.get("choice"), named.get("weights")
        if actuated is None and choice is None and weights is None:
            self._note_spread()
        driven = self._actuated if actuated is None else self.model.dof_indices(actuated)
        mask = np.isin(np.arange(self.nv), driven)
        drives = Drives(mask, tau_passive, "torque" if choice is None else choice, weights)
        solver = solver_of(self.engine)
        forces = None if f_ext is None else link_forces(self.engine, q, f_ext, expressed_in)
        return solver.inverse(q, v, a, forces, drives)

    def _note_spread(self) -> None:
        """Says, once a robot, that inverse dynamics has a choice that nobody has made."""
        if "spread is noted" in self.engine.kept or not self.model.is_constrained:
            return
        self.engine.kept["spread is noted"] = True
        if len(self._actuated) > self.mobility:
            warnings.warn(
                f"robot {self.name!r} has {len(self._actuated)} drives and a mobility of {self.mobility}: inverse dynamics "
                f"spreads the forces over all of them, as the least torques. Say which joints are driven, "
                f"Builder.joint(…, actuated=True) or actuated=[…], or choose, choice='torque' or 'constraint_force'",
                QddotWarning,
                stacklevel=outside(),
            )

    def constrained_hybrid_dynamics(
        self,
        q: ArrayLike,
        v: ArrayLike,
        a: ArrayLike,
        tau: ArrayLike,
        f_ext: Forces | None = None,
        *,
        prescribed: Iterable[str | int | tuple[str, int]],
        expressed_in: str = "frame",
        **options: Unpack[HybridOptions],
    ) -> tuple[Array, Array, Array]:
        """As `hybrid_dynamics`, and the constraints' forces λ; `choice` and `weights` as for inverse dynamics.

        `method` "dense" solves with the blocks of the mass matrix and takes any prescribed joints; "multipliers" is one
        kernel of Kim's recursions (70)-(80), for prescribed joints that leave the constraints' rows independent.
        """
        chosen, method = self.model.dof_indices(prescribed), options.pop("method", "dense")
        if extra := set(options) - {"choice", "weights"}:
            known = ("f_ext", "expressed_in", *HybridOptions.__annotations__)
            raise unexpected("constrained_hybrid_dynamics", extra.pop(), known)
        solver = solver_of(self.engine)
        forces = None if f_ext is None else link_forces(self.engine, q, f_ext, expressed_in)
        if method == "dense":
            mask = np.isin(np.arange(self.nv), chosen)
            return solver.hybrid(q, v, a, tau, forces, Drives(mask, None, **options))  # type: ignore[misc]
        if method != "multipliers":
            raise InputError(f"method={method!r} is not known; take 'dense' or 'multipliers'")
        return solver.hybrid_by_multipliers(q, v, a, tau, forces, chosen)

    def _of_constraints(self, function: str, *inputs: ArrayLike) -> Array:
        """A function of the constraints; an error where there are none."""
        _ = solver_of(self.engine)
        return self._evaluate(function, *inputs)

    @cached_property
    def _actuated(self) -> tuple[int, ...]:
        links = [i for i, _ in self.model.outward() if self.model.actuated[i] and self.model.mimic[i] is None]
        return self.model.dof_indices(self.model.joint_names[i] for i in links)
