"""What a robot can do about its loops and other constraints: the methods that `Robot` has of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qddot.dynamics.constrained_solver import Constrained, with_constraint
from qddot.dynamics.loop_assembly import positive
from qddot.errors import InputError
from qddot.mechanism.model import Model

Array = NDArray[Any]

_MOST_DEPENDENT = 1e10  # trace of A_v M_vv⁻¹A_vᵀ times its reciprocal pivots: above, λ would keep fewer than six digits


class ConstraintMethods:
    """A part of `Robot`."""

    model: Model
    compiled: bool

    if TYPE_CHECKING:  # what `Robot` has

        def __init__(self, model: Model, compiled: bool = True) -> None: ...
        @property
        def name(self) -> str: ...
        @property
        def nv(self) -> int: ...
        def neutral(self) -> Array: ...
        def _run(self, function: str, *inputs: Any, **needs: Any) -> Array: ...
        def _yielding_has_mass(self, prescribed: Iterable[str | int | tuple[str, int]]) -> tuple[int, ...]: ...

    def with_constraint(
        self, name: str, *, position: Callable[[Any], Any] | None = None, velocity: Callable[[Any, Any], Any] | None = None
    ) -> Self:
        """The same robot with a constraint of its user's own: φ(q) = 0, or A(q) q̇ = 0 as a function of q and v."""
        return type(self)(with_constraint(self.model, name, position, velocity), self.compiled)

    @property
    def mobility(self) -> int:
        """How many freedoms the constraints leave."""
        return self.nv - len(self._closure.rows) if self.model.is_constrained else self.nv

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
        return self._closure.tolerance

    def with_loop_tolerance(self, tolerance: float | None) -> Self:
        """The same robot with loops that count as closed up to so many m or rad; None: from the model's own accuracy."""
        checked = None if tolerance is None else positive(tolerance, "loop_tolerance")
        return type(self)(replace(self.model, loop_tolerance=checked), self.compiled)

    def close_loops(self, q: ArrayLike, tolerance: float | None = None) -> tuple[Array, Array]:
        """The configuration with closed loops that is found from q, and the largest residual left.

        `tolerance` is another than the robot's own `loop_tolerance`, for this call.
        """
        return self._closure.close(q, None if tolerance is None else positive(tolerance, "tolerance"))

    def project_velocity(self, q: ArrayLike, v: ArrayLike) -> Array:
        """The velocity nearest to v in kinetic energy that keeps the loops closed: what an impulse in them makes of v."""
        return self._closure.project_velocity(q, v)

    def constrained_forward_dynamics(
        self,
        q: ArrayLike,
        v: ArrayLike,
        tau: ArrayLike,
        f_ext: ArrayLike | None = None,
        *,
        method: str = "auto",
        gains: tuple[float, float] | None = None,
        tau_loops: ArrayLike | None = None,
    ) -> tuple[Array, Array]:
        """Accelerations under tau with the loops closed, and the constraints' forces λ, one a row.

        `method` is "direct" (Featherstone & Orin's 1), "multipliers" (2), "null_space" (3), or "auto": the cheaper of the
        first two, and the third where rows become dependent. `gains` = (k_p, k_d) add Baumgarte's terms,
        A q̈ = -Ȧq̇ - k_d A q̇ - k_p φ. `tau_loops` are active forces in the closing joints, loop after loop.
        """
        a, lam = self._closure.forward(q, v, tau, f_ext, method, gains, tau_loops)
        return a, self._closure.least(q, lam)

    def constrained_inverse_dynamics(
        self,
        q: ArrayLike,
        v: ArrayLike,
        a: ArrayLike,
        f_ext: ArrayLike | None = None,
        *,
        actuated: Iterable[str | int | tuple[str, int]] | None = None,
        tau_passive: ArrayLike | None = None,
        choice: str = "torque",
        weights: ArrayLike | None = None,
    ) -> tuple[Array, Array]:
        """Joint forces that give the accelerations a, and the constraints' forces λ.   Kim (56)-(66).

        Only `actuated` joints are driven (None: those that the model says); the others have the forces `tau_passive`.
        Where there are more drives than needed, `choice` is the least "torque", each joint weighted by `weights`, or the
        least "constraint_force".
        """
        driven = self._actuated if actuated is None else self.model.freedoms(actuated)
        mask = np.isin(np.arange(self.nv), driven)
        return self._closure.inverse(q, v, a, f_ext, mask, tau_passive, choice, weights)

    def constrained_hybrid_dynamics(
        self,
        q: ArrayLike,
        v: ArrayLike,
        a: ArrayLike,
        tau: ArrayLike,
        f_ext: ArrayLike | None = None,
        *,
        prescribed: Iterable[str | int | tuple[str, int]],
        choice: str = "torque",
        weights: ArrayLike | None = None,
        method: str = "dense",
    ) -> tuple[Array, Array, Array]:
        """As `hybrid_dynamics`, and the constraints' forces λ; `choice` and `weights` as for inverse dynamics.

        `method` "dense" solves with the blocks of the mass matrix and takes any choice of freedoms; "multipliers" is one
        kernel of Kim's recursions (70)-(80), for prescribed freedoms that leave the constraints' rows independent.
        """
        chosen = self.model.freedoms(prescribed)
        if method == "dense":
            return self._closure.hybrid(q, v, a, tau, f_ext, chosen, choice, weights)
        if method != "multipliers":
            raise InputError(f"method={method!r} is not known; take 'dense' or 'multipliers'")
        return self._hybrid_by_multipliers(q, v, a, tau, f_ext, chosen)

    def _hybrid_by_multipliers(
        self, q: ArrayLike, v: ArrayLike, a: ArrayLike, tau: ArrayLike, f_ext: ArrayLike | None, chosen: tuple[int, ...]
    ) -> tuple[Array, Array, Array]:
        """Where rows of A_v depend on each other, one state is an error and a sample of a batch NaN."""
        closure, n = self._closure, self.nv
        closure.see(q)
        self._yielding_has_mass(chosen)
        too_many = len(closure.rows) > n - len(chosen)
        forces = () if f_ext is None else (f_ext,)
        name = "constrained_hybrid_dynamics_with_forces" if forces else "constrained_hybrid_dynamics"
        out = self._run(name, q, v, a, tau, *forces, prescribed=chosen)
        found, force, lam, near = out[..., :n], out[..., n : 2 * n], out[..., 2 * n : -3], out[..., -3].real
        found = closure._only_closed(found, out[..., -2:].real, None)
        more = closure.needs_more_rows(q)
        if out.ndim == 1 and more:
            raise closure.more_rows_error("take method='dense'")
        # rounding makes pivots negative
        independent = np.asarray((near >= 0.0) & (near < _MOST_DEPENDENT) & (not too_many) & ~more)
        if out.ndim == 1 and not independent and all(np.isfinite(np.asarray(x)).all() for x in (q, v, a, tau, *forces)):
            raise InputError(
                f"with {len(chosen)} freedoms prescribed the {len(closure.rows)} constraints of robot {self.name!r} depend "
                f"on each other in the {n - len(chosen)} that are left, so their forces are not unique; prescribe fewer "
                f"freedoms, or take method='dense', which chooses among them"
            )
        good = independent & np.isfinite(found).all(axis=-1)
        kept = [np.where(good[..., None], x, np.nan) for x in (found, force, lam)]
        return kept[0], kept[1], closure.least(q, kept[2])

    def _of_constraints(self, function: str, *inputs: ArrayLike) -> Array:
        """A function of the constraints; an error where there are none."""
        _ = self._closure
        return self._run(function, *inputs)

    @cached_property
    def _closure(self) -> Constrained:
        if not self.model.is_constrained:
            raise InputError(f"robot {self.name!r} has neither loops nor other constraints")
        return Constrained(self)

    @cached_property
    def _actuated(self) -> tuple[int, ...]:
        links = [i for i, _ in self.model.outward() if self.model.actuated[i] and self.model.mimic[i] is None]
        return self.model.freedoms(self.model.joint_names[i] for i in links)

    def _no_choices(self, choices: Mapping[str, Any]) -> None:
        if choices:
            raise InputError(f"{next(iter(choices))}= is for robots with loops, and robot {self.name!r} has none")
