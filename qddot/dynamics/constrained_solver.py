"""A robot with constraints: dynamics by several methods, with checks that say by how much a state or a motion does not fit.

`assembly` has the rows that are kept as independent. Where they come near to being dependent (a singular configuration, or
one where other rows would do better, as Bennett's linkage has), `auto` goes over to the null space method, which finds the
rank from singular values; forces of dependent rows are the least that do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qddot.algorithms import constrained_dynamics
from qddot.dynamics.loop_assembly import GENERIC_RANK, Assembly, kept, on
from qddot.errors import InputError, SingularMassMatrixError
from qddot.mechanism.model import Constraint, Model

Array = NDArray[Any]

_DEPENDENT = 1e8  # times what is usual for W's trace over a pivot: λ would keep fewer than eight digits
_DEPENDENT_CHOICE = 30.0  # the same where other rows could have been kept: those have what these have lost
_FITS = 1e-6  # of the largest acceleration: by so much accelerations may open the loops
_UNBALANCED = 1e-7  # of the largest force: what no active force can balance


class Constrained(Assembly):
    """The dynamics of one robot with constraints."""

    @cached_property
    def _most_dependent(self) -> float:
        """Up to which measure the kept rows are taken to be independent."""
        dropped = np.delete(self._generic_jacobians, self.rows, axis=-2)
        is_choice = np.max(np.abs(dropped), initial=0.0) > 1e-9
        return self._usual * (_DEPENDENT_CHOICE if is_choice else _DEPENDENT)

    @cached_property
    def _open_squared(self) -> float:
        return self.open_limit**2

    @cached_property
    def _usual(self) -> float:
        """What the kept rows' measure of dependence is at most configurations."""
        still = np.zeros(self.robot.nv)
        return float(np.nanmedian(self.robot._run("constrained_forward_dynamics", self._generic, still, still)[..., -3]))

    # ---- velocities

    def project_velocity(self, q: ArrayLike, v: ArrayLike) -> Array:
        robot = self.robot
        x, u = robot._checked("project_velocity", ("q", "v"), (q, v))
        self.see(x)
        (A,), M = self.consistent(robot._run("constraint_jacobian", x)), robot._run("mass_matrix", x)
        still = np.zeros((*np.broadcast_shapes(A.shape[:-2], u.shape[:-1]), A.shape[-2]))
        return self._null_space(M, on(M, u), A, still)[0]

    # ---- dynamics

    def forward(
        self,
        q: ArrayLike,
        v: ArrayLike,
        tau: ArrayLike,
        f_ext: ArrayLike | None,
        method: str,
        gains: tuple[float, float] | None,
        tau_loops: ArrayLike | None,
    ) -> tuple[Array, Array]:
        """Accelerations and multipliers."""
        robot = self.robot
        if method not in ("auto", "direct", "multipliers", "null_space"):
            raise InputError(f"method={method!r} is not known; take 'auto', 'direct', 'multipliers' or 'null_space'")
        self.see(q)
        if tau_loops is not None:
            tau = np.asarray(tau) + robot._run("loop_joint_forces", q, tau_loops)
        if method == "null_space" or (method == "auto" and robot.massless_joints):
            a, lam, worst = self._by_null_space(q, v, tau, f_ext, gains)
            a = self._only_closed(a, worst, gains)
            return a, kept(np.isfinite(a).all(axis=-1), lam)
        if robot.massless_joints:
            raise robot._no_mass()
        inputs: tuple[Any, ...] = (q, v, tau)
        name = "constrained_forward_dynamics"
        if f_ext is not None or gains is not None:
            name += "_with_forces"
            no_force = np.zeros((self.model.n_links, 6))
            inputs = (*inputs, no_force if f_ext is None else f_ext, (0.0, 0.0) if gains is None else gains)
        out = robot._run(name, *inputs, **({} if method == "auto" else {"method": method}))
        nv = robot.nv
        if out.ndim == 1:  # one state, most often a good one: NumPy's functions would take longer than the kernel
            near, off, fast = out[-3:].real.tolist()
            is_usual = 0.0 <= near < self._most_dependent and not self.has_other_ranks
            if is_usual and off <= self._open_squared and fast <= self._open_squared:
                return out[:nv], out[nv:-3]
        a, lam, dependence, worst = out[..., :nv], out[..., nv:-3], out[..., -3].real, out[..., -2:].real
        dependence = np.where(dependence >= 0.0, dependence, np.inf)  # W has no negative pivots but by rounding
        a, more = self._only_closed(a, worst, gains), self.needs_more_rows(q)
        if method != "auto" and np.any(more):
            if a.ndim == 1:
                raise self.more_rows_error("take method='auto' or 'null_space'")
            a = kept(~more, a)
        if method == "auto" and not np.all((dependence < self._most_dependent) & ~more):
            taken = np.all(worst <= (self._open_squared if gains is None else np.inf), axis=-1)
            bad = np.asarray((~(dependence < self._most_dependent) | more) & taken)
            batch = [(x, 1) for x in (q, v, tau)] + ([] if f_ext is None else [(f_ext, 2)])
            x, u, t, *forces = (_some(bad, np.asarray(x), axes) for x, axes in batch)
            a, lam = np.array(a), np.array(lam)
            if bad.any():
                a[bad], lam[bad], _ = self._by_null_space(x, u, t, forces[0] if forces else None, gains)
        return a, kept(np.isfinite(a).all(axis=-1), lam)

    def _by_null_space(self, q: Any, v: Any, tau: Any, f_ext: Any, gains: Any) -> tuple[Array, Array, Array]:
        robot = self.robot
        x, u, t = robot._checked("forward_dynamics", ("q", "v", "tau"), (q, v, tau))
        M, A, drift, phi = self._matrices(x, u)
        rate = on(A, u)
        c = -drift if gains is None else -drift - gains[0] * phi - gains[1] * rate
        force = t - robot.spanning_tree().inverse_dynamics(x, u, np.zeros(robot.nv), f_ext)
        a, lam = self._null_space(M, force, A, c)
        off, fast = (np.sum(x[..., self.rows] ** 2, axis=-1) for x in (phi, rate))
        return a, lam, np.stack(np.broadcast_arrays(off, fast), axis=-1)

    def _null_space(self, M: Array, force: Array, A: Array, c: Array) -> tuple[Array, Array]:
        """Method 3. A sample that is not finite, or that can move without mass, is NaN; one state that can is an error."""
        sound = np.asarray(np.isfinite(M).all(axis=(-2, -1)) & np.isfinite(A).all(axis=(-2, -1)))
        M = np.where(sound[..., None, None], M, np.eye(M.shape[-1]))
        A = np.where(sound[..., None, None], A, 0.0)
        try:
            a, lam = constrained_dynamics.null_space(M, force, A, c, self.largest_rank)
        except np.linalg.LinAlgError:
            if force.ndim == 1:
                raise SingularMassMatrixError(
                    f"robot {self.robot.name!r} can move without moving any mass, its loops closed; give its links an "
                    f"inertial, or its joints a rotor inertia"
                ) from None
            a, lam = np.full(force.shape, np.nan), np.full((*force.shape[:-1], A.shape[-2]), np.nan)
            M, A, c = (np.broadcast_to(x, (*force.shape[:-1], *x.shape[x.ndim - n :])) for x, n in ((M, 2), (A, 2), (c, 1)))
            for k in np.ndindex(force.shape[:-1]):
                with contextlib.suppress(SingularMassMatrixError):
                    a[k], lam[k] = self._null_space(M[k], force[k], A[k], c[k])
        return kept(sound, a), kept(sound, lam)

    def _matrices(self, q: Array, v: Array) -> tuple[Array, Array, Array, Array]:
        run = self.robot._run
        A, drift, phi = run("constraint_jacobian", q), run("constraint_bias", q, v), run("constraint_residual", q)
        return (run("mass_matrix", q), *self.consistent(A, drift, phi))

    def _only_closed(self, a: Array, worst: Array, gains: Any) -> Array:
        """The accelerations where loops are closed, NaN where not, or an error if it is one state. Stabilised, all are."""
        is_open = worst > self._open_squared
        if gains is not None or not np.any(is_open):
            return a
        if a.ndim > 1:
            return np.where(np.any(is_open, axis=-1)[..., None], np.nan, a)
        off, fast = np.sqrt(worst)
        if off > self.open_limit:
            raise InputError(
                f"the loops of robot {self.robot.name!r} are not closed in this configuration: off by {off:.3g} m or rad; "
                f"robot.close_loops(q) closes them to its loop tolerance of {self.tolerance:.0e}, gains=(k_p, k_d) "
                f"pulls them together"
            )
        raise InputError(
            f"this velocity opens the loops of robot {self.robot.name!r}: by {fast:.3g} m/s or rad/s; "
            f"robot.project_velocity(q, v) gives the nearest that does not"
        )

    def least(self, q: ArrayLike, lam: Array) -> Array:
        """The least multipliers that give the same joint forces: those of dependent rows are not unique."""
        if len(self.rows) == len(self.names):
            return lam
        A_T = np.swapaxes(_finite(self.consistent(self.robot._run("constraint_jacobian", q))[0]), -1, -2)
        return on(np.linalg.pinv(A_T, rcond=GENERIC_RANK), on(A_T, lam))

    def derivatives(
        self, q: ArrayLike, v: ArrayLike, tau: ArrayLike, f_ext: ArrayLike | None
    ) -> tuple[list[Array], list[Array]]:
        """Those of the accelerations, and of the multipliers, by q, v and tau."""
        robot = self.robot
        self.see(q)
        if robot.massless_joints:
            raise robot._no_mass()
        name, forces = "constrained_forward_dynamics_derivatives", () if f_ext is None else (f_ext,)
        out = robot._run(f"{name}_with_forces" if forces else name, q, v, tau, *forces)
        flat = self._only_closed(out[..., :-3], out[..., -2:].real, None)
        near = out[..., -3].real
        singular = np.asarray(~((near >= 0.0) & (near < self._usual * _DEPENDENT)))
        if singular.ndim == 0 and singular and all(np.isfinite(np.asarray(x)).all() for x in (q, v, tau, *forces)):
            raise InputError(
                f"the rows of robot {robot.name!r}'s constraints depend on each other in this configuration, which is "
                f"singular: accelerations have no derivatives there"
            )
        more = self.needs_more_rows(q)
        if flat.ndim == 1 and more:
            raise self.more_rows_error("there are no derivatives of its dynamics there")
        flat = np.where((singular | more)[..., None], np.nan, flat)
        n = robot.nv
        parts = np.moveaxis(flat.reshape(*flat.shape[:-1], 3, n + len(self.names), n), -3, 0)
        of_a, of_lam = list(parts[..., :n, :]), list(parts[..., n:, :])
        return of_a, of_lam if len(self.rows) == len(self.names) else self._least_derivatives(q, v, tau, f_ext, of_lam)

    def _least_derivatives(self, q: Any, v: Any, tau: Any, f_ext: Any, kept: list[Array]) -> list[Array]:
        """Those of the least multipliers λ = X⁺Xλ_kept, X = Aᵀ, where the rank of A stays as it is:

        ∂λ = X⁺(∂(Xλ_kept) - ∂X λ) + (1 - X⁺X) ∂Xᵀ X⁺ᵀλ.
        """
        A, dA = (self.robot._run(f"constraint_jacobian{which}", q) for which in ("", "_derivatives"))
        A = _finite(self.consistent(A)[0])
        lam_kept = self.forward(q, v, tau, f_ext, "direct", None, None)[1]
        X = np.swapaxes(A, -1, -2)
        inverse = np.linalg.pinv(X, rcond=GENERIC_RANK)
        lam = on(inverse, on(X, lam_kept))
        out = [inverse @ X @ slopes for slopes in kept]
        turned = np.einsum("...rjk,...r->...jk", dA, lam_kept - lam)
        back = np.einsum("...rjk,...j->...rk", dA, on(np.swapaxes(inverse, -1, -2), lam))
        out[0] = out[0] + inverse @ turned + back - inverse @ X @ back
        return out

    def inverse(
        self,
        q: ArrayLike,
        v: ArrayLike,
        a: ArrayLike,
        f_ext: ArrayLike | None,
        actuated: Array,
        tau_passive: ArrayLike | None,
        choice: str,
        weights: ArrayLike | None,
        advice: str = "robot.hybrid_dynamics(…, prescribed=[the actuated joints]) lets the others move as they must",
    ) -> tuple[Array, Array]:
        """Joint forces and multipliers.   Kim (56)-(66)."""
        if choice not in ("torque", "constraint_force"):
            raise InputError(f"choice={choice!r} is not known; take 'torque' or 'constraint_force'")
        robot = self.robot
        x, u, acc = robot._checked("inverse_dynamics", ("q", "v", "a"), (q, v, a))
        _, A, drift, phi = self._matrices(x, u)
        possible = self._possible(phi, on(A, u), on(A, acc) + drift, np.max(np.abs(acc), axis=-1, initial=1.0))
        tau_r = robot.spanning_tree().inverse_dynamics(x, u, acc, f_ext)
        tau_p = np.zeros(robot.nv) if tau_passive is None else robot._v(tau_passive, "tau_passive")
        w = np.ones(robot.nv) if weights is None else robot._v(weights, "weights")
        if np.any(w <= 0):
            raise InputError("weights must be positive: a joint whose force is free of charge is no minimum")
        tau, lam, left = constrained_dynamics.multipliers_of_inverse(
            _finite(tau_r, 1), _finite(A), actuated, tau_p, choice, w
        )
        possible = possible & self._balanced(actuated, left, np.max(np.abs(tau_r), axis=-1, initial=1.0), advice)
        return kept(possible, tau), kept(possible, lam)

    def _possible(self, phi: Array, rate: Array, acceleration: Array, size: Any) -> Array:
        """Which samples of a batch can be; one state that cannot is an error."""
        possible = np.asarray(True)
        for x, limit, what, unit, help in (
            (phi, self.open_limit, "configuration does not close", "m or rad", "robot.close_loops(q)"),
            (rate, self.open_limit, "velocity opens", "m/s or rad/s", "robot.project_velocity(q, v)"),
            (acceleration, _FITS * size, "acceleration opens", "m/s² or rad/s²", "robot.forward_dynamics(…)"),
        ):
            worst = np.max(np.abs(x), axis=-1, initial=0.0)
            if x.ndim == 1 and worst > limit:
                row = self.names[int(np.argmax(np.abs(x)))]
                raise InputError(
                    f"this {what} the loops of robot {self.robot.name!r}: {row} is off by {worst:.3g} {unit}; "
                    f"{help} gives one that fits"
                )
            possible = possible & (worst <= limit)
        return possible

    def _balanced(self, actuated: Array, left: Array, size: Array, advice: str) -> Array:
        """In which samples of a batch active forces suffice; one state in which they do not is an error."""
        lacking = np.max(np.abs(left), axis=-1, initial=0.0)
        if left.ndim > 1 or not lacking > _UNBALANCED * size:
            return np.asarray(lacking <= _UNBALANCED * size)
        passive, direction = np.flatnonzero(~actuated), left / lacking  # after (66): too few drives
        moves = ", ".join(
            f"{self._freedom(k)} by {x:.2g}" for k, x in zip(passive, direction, strict=True) if abs(x) > 1e-6
        )
        raise InputError(
            f"this motion of robot {self.robot.name!r} is not possible with the joints that are actuated: the passive "
            f"joints can move together ({moves}) with all drives held, and along that a force of "
            f"{np.linalg.norm(left):.3g} is missing; {advice}"
        )

    def _freedom(self, k: Any) -> str:
        for i, _ in self.model.outward():
            slot = self.model.slots[i].v
            if self.model.mimic[i] is None and slot.start <= k < slot.stop:
                return repr(self.model.joint_names[i]) + (f"[{k - slot.start}]" if slot.stop - slot.start > 1 else "")
        return str(k)

    def hybrid(
        self,
        q: ArrayLike,
        v: ArrayLike,
        a: ArrayLike,
        tau: ArrayLike,
        f_ext: ArrayLike | None,
        prescribed: Iterable[int],
        choice: str,
        weights: ArrayLike | None,
    ) -> tuple[Array, Array, Array]:
        """Accelerations, joint forces and multipliers.   Kim (70)-(80)."""
        robot, chosen = self.robot, np.zeros(self.robot.nv, bool)
        chosen[list(prescribed)] = True
        x, u, acc, t = robot._checked("hybrid_dynamics", ("q", "v", "a", "tau"), (q, v, a, tau))
        free, _ = robot.spanning_tree().hybrid_dynamics(x, u, acc, t, f_ext, prescribed=tuple(np.flatnonzero(chosen)))
        M, A, drift, phi = self._matrices(x, u)
        possible = self._possible(phi, on(A, u), np.zeros(1), 1.0)
        sound = np.where(np.isfinite(M).all(axis=(-2, -1), keepdims=True), M, np.eye(robot.nv))
        A, drift = _finite(A), _finite(drift, 1)
        found = constrained_dynamics.hybrid_accelerations(sound, _finite(free, 1), A, drift, chosen)  # (70) (78)
        left = np.abs(on(A, found) + drift)
        off, size = np.max(left, axis=-1, initial=0.0), np.max(np.abs(found), axis=-1, initial=1.0)
        if left.ndim == 1 and off > _FITS * size:
            row = self.names[int(np.argmax(left))]
            raise InputError(
                f"the prescribed accelerations of robot {robot.name!r} cannot be: with them {row} opens by {off:.3g} m/s² "
                f"or rad/s², whatever the other joints do; prescribe fewer freedoms, or accelerations that fit together"
            )
        found = kept(possible & (off <= _FITS * size) & np.isfinite(free).all(axis=-1), found)
        advice = "prescribe fewer freedoms"
        given = np.where(chosen, 0.0, t)
        force, lam = self.inverse(x, u, found, f_ext, chosen, given, choice, weights, advice)  # (70) (79)
        return found, force, lam


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


def _some(chosen: Array, x: Array, axes: int) -> Array:
    """The samples of a batch that are chosen; x may have fewer batch axes."""
    own = x.shape[x.ndim - axes :]
    return np.asarray(np.broadcast_to(x, (*chosen.shape, *own))[chosen])


def _finite(x: Array, axes: int = 2) -> Array:
    """Nothing in samples that are not finite, so that the others can be computed; of one sample x has so many axes."""
    return np.where(np.isfinite(x).all(axis=tuple(range(-axes, 0)), keepdims=True), x, 0.0)
