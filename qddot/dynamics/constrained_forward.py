"""A robot with constraints: dynamics by several methods, with checks that say by how much a state or a motion does not fit.

`assembly` has the rows that are kept as independent. Where they come near to being dependent (a singular configuration, or
one where other rows would do better, as Bennett's linkage has), `auto` goes over to the null space method, which finds the
rank from singular values; forces of dependent rows are the least that do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qddot.algorithms import constrained_dynamics
from qddot.dynamics.input_checks import all_finite
from qddot.dynamics.loop_assembly import GENERIC_RANK, Assembly, kept, on
from qddot.errors import InputError, SingularMassMatrixError

Array = NDArray[Any]

_FOLLOWS = 1e-8  # of the largest velocity: loops that open faster do not follow the joints that are held
_DEPENDENT = 1e8  # times what is usual for W's trace over a pivot: λ would keep fewer than eight digits
_DEPENDENT_CHOICE = 30.0  # the same where other rows could have been kept: those have what these have lost


class ConstrainedForward(Assembly):
    """Accelerations and multipliers of one robot with constraints."""

    @cached_property
    def dependence_limit(self) -> float:
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
        still = np.zeros(self.model.nv)
        return float(np.nanmedian(self._of_rows("constrained_forward_dynamics", self._generic, still, still)[..., -3]))

    def dependence(self, q: Array, v: Array) -> Array:
        """How nearly the kept rows depend on each other: above 1 what follows is doubtful."""
        still = np.zeros(self.model.nv)
        return np.asarray(self._of_rows("constrained_forward_dynamics", q, v, still)[..., -3] / self.dependence_limit)

    def _of_rows(self, function: str, *inputs: Any, **more: Any) -> Array:
        """A function that is compiled for the kept rows."""
        return self.engine.evaluate(function, *inputs, rows=self.rows, **more)

    # ---- velocities

    def project_velocity(self, q: ArrayLike, v: ArrayLike, hold: Sequence[int] = ()) -> Array:
        """The velocities nearest to v that keep loops closed; those of the degrees of freedom in `hold` stay."""
        run = self.engine.evaluate
        x, u = self.engine.checks.all("project_velocity", ("q", "v"), (q, v))
        self.see(x)
        (A,), M = self.consistent(run("constraint_jacobian", x)), run("mass_matrix", x)
        batch, held = np.broadcast_shapes(A.shape[:-2], u.shape[:-1]), list(hold)
        others = [k for k in range(self.model.nv) if k not in held]
        out = np.array(np.broadcast_to(u, (*batch, self.model.nv)))
        if others:
            M_o, A_o = M[..., others, :][..., others], A[..., others]
            asked = np.broadcast_to(-on(A[..., held], u[..., held]), (*batch, A.shape[-2]))
            out[..., others] = self._null_space(M_o, on(M_o, u[..., others]), A_o, asked)[0]
        return self._following(A, out, held) if held else out

    def _following(self, A: Array, v: Array, held: list[int]) -> Array:
        """The velocities with which loops stay closed, NaN for others, or an error if it is one state."""
        rate = np.abs(on(A, v))
        off, size = np.max(rate, axis=-1, initial=0.0), np.max(np.abs(v), axis=-1, initial=1.0)
        if v.ndim == 1 and off > _FOLLOWS * size:
            names = ", ".join(map(self.dof_name, held))
            raise InputError(
                f"the loops of robot {self.model.name!r} cannot follow this velocity of {names}: "
                f"{self.names[int(np.argmax(rate))]} opens by {off:.3g} m/s or rad/s; hold fewer joints, or velocities "
                f"that fit together"
            )
        return kept(off <= _FOLLOWS * size, v)

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
        solvability = self.engine.solvability
        if method not in ("auto", "direct", "multipliers", "null_space"):
            raise InputError(f"method={method!r} is not known; take 'auto', 'direct', 'multipliers' or 'null_space'")
        self.see(q)
        if tau_loops is not None:
            tau = np.asarray(tau) + self.engine.evaluate("loop_joint_forces", q, tau_loops)
        if method == "null_space" or (method == "auto" and solvability.massless_joints):
            a, lam, worst = self._by_null_space(q, v, tau, f_ext, gains)
            a = self._only_closed(a, worst, gains)
            return a, kept(np.isfinite(a).all(axis=-1), lam)
        solvability.require_mass()
        inputs: tuple[Any, ...] = (q, v, tau)
        name = "constrained_forward_dynamics"
        if f_ext is not None or gains is not None:
            name += "_with_forces"
            no_force = np.zeros((self.model.n_links, 6))
            inputs = (*inputs, no_force if f_ext is None else f_ext, (0.0, 0.0) if gains is None else gains)
        out = self._of_rows(name, *inputs, **({} if method == "auto" else {"method": method}))
        nv = self.model.nv
        if out.ndim == 1:  # one state, most often a good one: NumPy's functions would take longer than the kernel
            near, off, fast = out[-3:].real.tolist()
            is_usual = 0.0 <= near < self.dependence_limit and not self.has_other_ranks
            if is_usual and off <= self._open_squared and fast <= self._open_squared:
                return out[:nv], out[nv:-3]
        a, lam, dependence, worst = out[..., :nv], out[..., nv:-3], out[..., -3].real, out[..., -2:].real
        dependence = np.where(dependence >= 0.0, dependence, np.inf)  # W has no negative pivots but by rounding
        a, more = self._only_closed(a, worst, gains), self.needs_more_rows(q)
        if method != "auto" and np.any(more):
            if a.ndim == 1:
                raise self.more_rows_error("take method='auto' or 'null_space'")
            a = kept(~more, a)
        if method == "auto" and not np.all((dependence < self.dependence_limit) & ~more):
            taken = np.all(worst <= (self._open_squared if gains is None else np.inf), axis=-1)
            bad = np.asarray((~(dependence < self.dependence_limit) | more) & taken)
            batch = [(x, 1) for x in (q, v, tau)] + ([] if f_ext is None else [(f_ext, 2)])
            x, u, t, *forces = (_some(bad, np.asarray(x), axes) for x, axes in batch)
            a, lam = np.array(a), np.array(lam)
            if bad.any():
                a[bad], lam[bad], _ = self._by_null_space(x, u, t, forces[0] if forces else None, gains)
        return a, kept(np.isfinite(a).all(axis=-1), lam)

    def _by_null_space(self, q: Any, v: Any, tau: Any, f_ext: Any, gains: Any) -> tuple[Array, Array, Array]:
        x, u, t = self.engine.checks.all("forward_dynamics", ("q", "v", "tau"), (q, v, tau))
        M, A, drift, phi = self._matrices(x, u)
        rate = on(A, u)
        c = -drift if gains is None else -drift - gains[0] * phi - gains[1] * rate
        force = t - self._tree_forces(x, u, np.zeros(self.model.nv), f_ext)
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
                    f"robot {self.model.name!r} can move without moving any mass, its loops closed; give its links an "
                    f"inertial, or its joints a rotor inertia"
                ) from None
            a, lam = np.full(force.shape, np.nan), np.full((*force.shape[:-1], A.shape[-2]), np.nan)
            M, A, c = (np.broadcast_to(x, (*force.shape[:-1], *x.shape[x.ndim - n :])) for x, n in ((M, 2), (A, 2), (c, 1)))
            for k in np.ndindex(force.shape[:-1]):
                with contextlib.suppress(SingularMassMatrixError):
                    a[k], lam[k] = self._null_space(M[k], force[k], A[k], c[k])
        return kept(sound, a), kept(sound, lam)

    def _matrices(self, q: Array, v: Array) -> tuple[Array, Array, Array, Array]:
        run = self.engine.evaluate
        A, drift, phi = run("constraint_jacobian", q), run("constraint_bias", q, v), run("constraint_residual", q)
        A, drift, phi = self.consistent(A, drift, phi)
        return run("mass_matrix", q), A, drift, phi

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
                f"the loops of robot {self.model.name!r} are not closed in this configuration: off by {off:.3g} m or rad; "
                f"robot.close_loops(q) closes them to its loop tolerance of {self.tolerance:.0e}, gains=(k_p, k_d) "
                f"pulls them together"
            )
        raise InputError(
            f"this velocity opens the loops of robot {self.model.name!r}: by {fast:.3g} m/s or rad/s; "
            f"robot.project_velocity(q, v) gives the nearest that does not"
        )

    def least(self, q: ArrayLike, lam: Array) -> Array:
        """The least multipliers that give the same joint forces: those of dependent rows are not unique."""
        if len(self.rows) == len(self.names):
            return lam
        A_T = np.swapaxes(finite(self.consistent(self.engine.evaluate("constraint_jacobian", q))[0]), -1, -2)
        return on(np.linalg.pinv(A_T, rcond=GENERIC_RANK), on(A_T, lam))

    def derivatives(
        self, q: ArrayLike, v: ArrayLike, tau: ArrayLike, f_ext: ArrayLike | None
    ) -> tuple[list[Array], list[Array]]:
        """Those of the accelerations, and of the multipliers, by q, v and tau."""
        self.see(q)
        self.engine.solvability.require_mass()
        name, forces = "constrained_forward_dynamics_derivatives", () if f_ext is None else (f_ext,)
        out = self._of_rows(f"{name}_with_forces" if forces else name, q, v, tau, *forces)
        flat = self._only_closed(out[..., :-3], out[..., -2:].real, None)
        near = out[..., -3].real
        singular = np.asarray(~((near >= 0.0) & (near < self._usual * _DEPENDENT)))
        if singular.ndim == 0 and singular and all_finite((q, v, tau, *forces)):
            raise InputError(
                f"the rows of robot {self.model.name!r}'s constraints depend on each other in this configuration, which is "
                f"singular: accelerations have no derivatives there"
            )
        more = self.needs_more_rows(q)
        if flat.ndim == 1 and more:
            raise self.more_rows_error("there are no derivatives of its dynamics there")
        flat = np.where((singular | more)[..., None], np.nan, flat)
        n = self.model.nv
        parts = np.moveaxis(flat.reshape(*flat.shape[:-1], 3, n + len(self.names), n), -3, 0)
        of_a, of_lam = list(parts[..., :n, :]), list(parts[..., n:, :])
        return of_a, of_lam if len(self.rows) == len(self.names) else self._least_derivatives(q, v, tau, f_ext, of_lam)

    def _least_derivatives(self, q: Any, v: Any, tau: Any, f_ext: Any, kept: list[Array]) -> list[Array]:
        """Those of the least multipliers λ = X⁺Xλ_kept, X = Aᵀ, where the rank of A stays as it is:

        ∂λ = X⁺(∂(Xλ_kept) - ∂X λ) + (1 - X⁺X) ∂Xᵀ X⁺ᵀλ.
        """
        A, dA = (self.engine.evaluate(f"constraint_jacobian{which}", q) for which in ("", "_derivatives"))
        A = finite(self.consistent(A)[0])
        lam_kept = self.forward(q, v, tau, f_ext, "direct", None, None)[1]
        X = np.swapaxes(A, -1, -2)
        inverse = np.linalg.pinv(X, rcond=GENERIC_RANK)
        lam = on(inverse, on(X, lam_kept))
        out = [inverse @ X @ slopes for slopes in kept]
        turned = np.einsum("...rjk,...r->...jk", dA, lam_kept - lam)
        back = np.einsum("...rjk,...j->...rk", dA, on(np.swapaxes(inverse, -1, -2), lam))
        out[0] = out[0] + inverse @ turned + back - inverse @ X @ back
        return out

    def _tree_forces(self, q: Array, v: Array, a: Array, f_ext: ArrayLike | None) -> Array:
        """Inverse dynamics of the spanning tree."""
        run = self.engine.tree.evaluate
        if f_ext is None:
            return run("inverse_dynamics", q, v, a)
        return run("inverse_dynamics_with_forces", q, v, a, f_ext)


def _some(chosen: Array, x: Array, axes: int) -> Array:
    """The samples of a batch that are chosen; x may have fewer batch axes."""
    own = x.shape[x.ndim - axes :]
    return np.asarray(np.broadcast_to(x, (*chosen.shape, *own))[chosen])


def finite(x: Array, axes: int = 2) -> Array:
    """Nothing in samples that are not finite, so that the others can be computed; of one sample x has so many axes."""
    return np.where(np.isfinite(x).all(axis=tuple(range(-axes, 0)), keepdims=True), x, 0.0)
