"""What a robot can do about its loops and other constraints: the methods that `Robot` has of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qddot.constraints import Constrained, with_constraint
from qddot.errors import InputError
from qddot.model import Model

Array = NDArray[Any]


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
        return self._run("constraint_residual", q)

    def constraint_jacobian(self, q: ArrayLike) -> Array:
        """A with A q̇ = 0 on closed loops, (..., rows, nv)."""
        return self._run("constraint_jacobian", q)

    def constraint_bias(self, q: ArrayLike, v: ArrayLike) -> Array:
        """Ȧq̇, so that A q̈ + Ȧq̇ = 0."""
        return self._run("constraint_bias", q, v)

    def close_loops(self, q: ArrayLike, tolerance: float = 1e-10) -> tuple[Array, Array]:
        """The configuration with closed loops that is found from q, and the largest residual left."""
        return self._closure.close(q, tolerance)

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
    ) -> tuple[Array, Array, Array]:
        """As `hybrid_dynamics`, and the constraints' forces λ; `choice` and `weights` as for inverse dynamics."""
        return self._closure.hybrid(q, v, a, tau, f_ext, self.model.freedoms(prescribed), choice, weights)

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
