"""A robot with constraints: inverse and hybrid dynamics beside the forward ones, and the solver that has them all.

Checks say by how much a state or a motion does not fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qddot.algorithms import constrained_dynamics
from qddot.dynamics.constrained_forward import ConstrainedForward, finite
from qddot.dynamics.engine import Engine
from qddot.dynamics.input_checks import all_finite
from qddot.dynamics.loop_assembly import kept, on
from qddot.errors import InputError
from qddot.mechanism.model import Constraint, Model

Array = NDArray[Any]

MAX_DEPENDENCE = 1e10  # trace of A_v M_vv⁻¹A_vᵀ times its reciprocal pivots: above, λ would keep fewer than six digits
FITS = 1e-6  # of the largest acceleration: by so much accelerations may open the loops
UNBALANCED = 1e-7  # of the largest force: what no active force can balance


@dataclass(frozen=True)
class Drives:
    """Which joints are driven, what the others do, and how forces are chosen where there are more drives than needed."""

    actuated: Array
    tau_passive: ArrayLike | None = None
    choice: str = "torque"
    weights: ArrayLike | None = None


class Constrained(ConstrainedForward):
    """The dynamics of one robot with constraints."""

    def inverse(
        self,
        q: ArrayLike,
        v: ArrayLike,
        a: ArrayLike,
        f_ext: ArrayLike | None,
        drives: Drives,
        advice: str = "robot.hybrid_dynamics(…, prescribed=[the actuated joints]) lets the others move as they must",
    ) -> tuple[Array, Array]:
        """Joint forces and multipliers.   Kim (56)-(66)."""
        choice, nv, checks = drives.choice, self.model.nv, self.engine.checks
        if choice not in ("torque", "constraint_force"):
            raise InputError(f"choice={choice!r} is not known; take 'torque' or 'constraint_force'")
        x, u, acc = checks.all("inverse_dynamics", ("q", "v", "a"), (q, v, a))
        _, A, drift, phi = self._matrices(x, u)
        possible = self._possible(phi, on(A, u), on(A, acc) + drift, np.max(np.abs(acc), axis=-1, initial=1.0))
        tau_r = self._tree_forces(x, u, acc, f_ext)
        tau_p = np.zeros(nv) if drives.tau_passive is None else checks.v(drives.tau_passive, "tau_passive")
        w = np.ones(nv) if drives.weights is None else checks.v(drives.weights, "weights")
        if np.any(w <= 0):
            raise InputError("weights must be positive: a joint whose force is free of charge is no minimum")
        tau, lam, left = constrained_dynamics.multipliers_of_inverse(
            finite(tau_r, 1), finite(A), drives.actuated, tau_p, choice, w
        )
        size = np.max(np.abs(tau_r), axis=-1, initial=1.0)
        possible = possible & self._balanced(drives.actuated, left, size, advice)
        return kept(possible, tau), kept(possible, lam)

    def _possible(self, phi: Array, rate: Array, acceleration: Array, size: Any) -> Array:
        """Which samples of a batch can be; one state that cannot is an error."""
        possible = np.asarray(True)
        for x, limit, what, unit, help in (
            (phi, self.open_limit, "configuration does not close", "m or rad", "robot.close_loops(q)"),
            (rate, self.open_limit, "velocity opens", "m/s or rad/s", "robot.project_velocity(q, v)"),
            (acceleration, FITS * size, "acceleration opens", "m/s² or rad/s²", "robot.forward_dynamics(…)"),
        ):
            worst = np.max(np.abs(x), axis=-1, initial=0.0)
            if x.ndim == 1 and worst > limit:
                row = self.names[int(np.argmax(np.abs(x)))]
                raise InputError(
                    f"this {what} the loops of robot {self.model.name!r}: {row} is off by {worst:.3g} {unit}; "
                    f"{help} gives one that fits"
                )
            possible = possible & (worst <= limit)
        return possible

    def _balanced(self, actuated: Array, left: Array, size: Array, advice: str) -> Array:
        """In which samples of a batch active forces suffice; one state in which they do not is an error."""
        lacking = np.max(np.abs(left), axis=-1, initial=0.0)
        if left.ndim > 1 or not lacking > UNBALANCED * size:
            return np.asarray(lacking <= UNBALANCED * size)
        passive, direction = np.flatnonzero(~actuated), left / lacking  # after (66): too few drives
        moves = ", ".join(
            f"{self.dof_name(k)} by {x:.2g}" for k, x in zip(passive, direction, strict=True) if abs(x) > 1e-6
        )
        raise InputError(
            f"this motion of robot {self.model.name!r} is not possible with the joints that are actuated: the passive "
            f"joints can move together ({moves}) with all drives held, and along that a force of "
            f"{np.linalg.norm(left):.3g} is missing; {advice}"
        )

    def hybrid(
        self,
        q: ArrayLike,
        v: ArrayLike,
        a: ArrayLike,
        tau: ArrayLike,
        f_ext: ArrayLike | None,
        drives: Drives,
    ) -> tuple[Array, Array, Array]:
        """Accelerations, joint forces and multipliers.   Kim (70)-(80).

        The driven joints are those whose acceleration is prescribed.
        """
        chosen, nv = drives.actuated, self.model.nv
        x, u, acc, t = self.engine.checks.all("hybrid_dynamics", ("q", "v", "a", "tau"), (q, v, a, tau))
        forces = () if f_ext is None else (f_ext,)
        name = "hybrid_dynamics_with_forces" if forces else "hybrid_dynamics"
        held = tuple(map(int, np.flatnonzero(chosen)))
        free = self.engine.tree.solve(2, name, x, u, acc, t, *forces, prescribed=held)[..., 0, :]
        M, A, drift, phi = self._matrices(x, u)
        possible = self._possible(phi, on(A, u), np.zeros(1), 1.0)
        sound = np.where(np.isfinite(M).all(axis=(-2, -1), keepdims=True), M, np.eye(nv))
        A, drift = finite(A), finite(drift, 1)
        found = constrained_dynamics.hybrid_accelerations(sound, finite(free, 1), A, drift, chosen)  # (70) (78)
        left = np.abs(on(A, found) + drift)
        off, size = np.max(left, axis=-1, initial=0.0), np.max(np.abs(found), axis=-1, initial=1.0)
        if left.ndim == 1 and off > FITS * size:
            row = self.names[int(np.argmax(left))]
            raise InputError(
                f"the prescribed accelerations of robot {self.model.name!r} cannot be: with them {row} opens by {off:.3g} "
                f"m/s² or rad/s², whatever the other joints do; prescribe fewer degrees of freedom, or accelerations that "
                f"fit together"
            )
        found = kept(possible & (off <= FITS * size) & np.isfinite(free).all(axis=-1), found)
        others = replace(drives, tau_passive=np.where(chosen, 0.0, t))
        force, lam = self.inverse(x, u, found, f_ext, others, "prescribe fewer degrees of freedom")  # (70) (79)
        return found, force, lam

    def hybrid_dependence(self, q: Array, v: Array, chosen: tuple[int, ...]) -> Array:
        """How nearly rows depend on each other in the DoF that are not prescribed: above 1 those have no unique motion."""
        still, given = np.zeros(self.model.nv), {"prescribed": chosen, "rows": self.rows}
        near = self.engine.evaluate("constrained_hybrid_dynamics", q, v, still, still, **given)[..., -3].real
        return np.where(near >= 0.0, near, np.inf) / MAX_DEPENDENCE

    def hybrid_by_multipliers(
        self,
        q: ArrayLike,
        v: ArrayLike,
        a: ArrayLike,
        tau: ArrayLike,
        f_ext: ArrayLike | None,
        chosen: tuple[int, ...],
    ) -> tuple[Array, Array, Array]:
        """The same as one kernel of Kim's recursions (70)-(80).

        Where rows of A_v depend on each other, one state is an error and a sample of a batch NaN.
        """
        n = self.model.nv
        self.see(q)
        self.engine.solvability.require_mass(chosen)
        too_many = len(self.rows) > n - len(chosen)
        forces = () if f_ext is None else (f_ext,)
        name = "constrained_hybrid_dynamics_with_forces" if forces else "constrained_hybrid_dynamics"
        out = self.engine.evaluate(name, q, v, a, tau, *forces, prescribed=chosen, rows=self.rows)
        found, force, lam, near = out[..., :n], out[..., n : 2 * n], out[..., 2 * n : -3], out[..., -3].real
        found = self._only_closed(found, out[..., -2:].real, None)
        more = self.needs_more_rows(q)
        if out.ndim == 1 and more:
            raise self.more_rows_error("take method='dense'")
        # rounding makes pivots negative
        independent = np.asarray((near >= 0.0) & (near < MAX_DEPENDENCE) & (not too_many) & ~more)
        if out.ndim == 1 and not independent and all_finite((q, v, a, tau, *forces)):
            raise InputError(
                f"with {len(chosen)} degrees of freedom prescribed the {len(self.rows)} constraints of robot "
                f"{self.model.name!r} depend on each other in the {n - len(chosen)} that are left, so their forces are not "
                f"unique; prescribe fewer degrees of freedom, or take method='dense', which chooses among them"
            )
        good = independent & np.isfinite(found).all(axis=-1)
        known = [np.where(good[..., None], x, np.nan) for x in (found, force, lam)]
        return known[0], known[1], self.least(q, known[2])


def solver_of(engine: Engine) -> Constrained:
    """The constrained solver of an engine, made once; an error if there are no constraints."""
    found = engine.kept.get("constrained")
    if found is None:
        found = engine.kept["constrained"] = Constrained(engine)
    return found


def with_constraint(
    model: Model, name: str, position: Callable[..., Any] | None, velocity: Callable[..., Any] | None
) -> Model:
    """The model with a user's own constraint."""
    if (position is None) == (velocity is None):
        raise InputError(
            f"constraint {name!r} takes one function: position=φ(q), or velocity=A(q) v as a function of q and v"
        )
    if name in [*(c.name for c in model.constraints), *(p.name for p in model.loops)]:
        raise InputError(f"robot {model.name!r} already has a loop or constraint {name!r}; choose another name")
    return replace(model, constraints=(*model.constraints, Constraint(name, 0, position, velocity)))
