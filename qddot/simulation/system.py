"""What integrators ask of a robot: accelerations under its controls and forces, and how its coordinates move.

A `Plan` says what is simulated: the law of the joint forces u(t, q, v), external forces f(t, q, v), DoF with a
prescribed motion, how constraints are kept, what joint limits do. A `System` is that of one sample, while it is traced or
on floats. A user's functions are tapes, recorded once: every stage of every step, and what is reported afterwards, replays
the same operations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.algorithms import constrained_hybrid, derivatives, dual_derivatives, loop_constraints, newton_euler_classical
from qddot.algorithms.composite_body import mass_matrix
from qddot.algorithms.coriolis import coriolis_matrix
from qddot.algorithms.newton_euler import gravity_force
from qddot.algorithms.passive_forces import passive_forces
from qddot.dynamics import catalogue
from qddot.mechanism.model import Model
from qddot.mechanism.simplify import with_sums_of_angles
from qddot.scalars import Scalar, split, stack
from qddot.simulation.limits import IGNORED, LimitLaw, saturated, stop_forces
from qddot.spatial.dual import Dual
from qddot.spatial.joint_blocks import Inverse, Matrix, Vector
from qddot.spatial.tape import Tape

Array = NDArray[Any]
Law = Callable[..., Any]
Run = Callable[..., Any]
BAUMGARTE = (100.0, 20.0)  # k_p, k_d: an opened loop closes critically damped in some tenths of a second


@dataclass(frozen=True)
class Plan:
    """What is simulated, apart from numbers that may differ from sample to sample."""

    law: Tape | None = None  # joint forces by (t, q, v), then held inputs u and parameters p where there are such
    n_held: int = 0
    forces: tuple[Tape, ...] = ()  # by (t, q, v) and the parameters that are free
    motion: Mapping[int, Tape] | None = None  # degree of freedom -> q(t) of a joint of one degree of freedom
    rows: tuple[int, ...] = ()  # of the constraints
    gains: tuple[float, float] | None = None
    project: bool = False
    limits: LimitLaw = IGNORED
    cost: Tape | None = None  # by (t, q, v, tau), added up over steps

    @property
    def function(self) -> str:
        """The name of the dynamics that are integrated."""
        name = "hybrid_dynamics" if self.motion else "forward_dynamics"
        name = f"constrained_{name}" if self.rows else name
        with_forces = self.forces or (self.rows and self.gains)
        return f"{name}_with_forces" if with_forces else name

    @property
    def needs(self) -> dict[str, Any]:
        """What else that function is made for."""
        rows = {"rows": self.rows} if self.rows else {}
        return {"prescribed": tuple(self.motion), **rows} if self.motion else rows


@dataclass(frozen=True)
class System:
    """A robot in motion. `dynamics` is the model whose forward dynamics are computed; `model` that of its file."""

    plan: Plan
    model: Model
    dynamics: Model
    method: str = "auto"
    sums: bool = False
    held: Array | None = None
    weights: Array | None = None  # the parameters of the law
    values: tuple[Array, ...] = ()  # of the parameters that are free
    calls: Callable[..., Any] | None = None  # while a step is traced whose functions are to be code of their own

    # ---- how coordinates move

    def together(self, q: Array, v: Array) -> Array:
        """y = (q, v)."""
        return np.concatenate([q, v])

    def apart(self, y: Array) -> tuple[Array, Array]:
        """q, its quaternions made unit, and v."""
        return self.normalize(y[: self.model.nq]), y[self.model.nq :]

    def flow(self, t: Scalar, y: Array) -> Array:
        """ẏ = (q̇, v̇)."""
        q, v = y[: self.model.nq], y[self.model.nq :]
        return self.together(self.rate(q, v), self.derivative(t, q, v))

    def rate(self, q: Array, v: Array) -> Array:
        """q̇ when the robot moves with v."""
        x, u = self.model.coordinates(q), self.model.velocities(v)
        return self._gather(lambda i: self.model.joint[i].rate(x[i], u[i]))

    def move(self, q: Array, step: Array) -> Array:
        """q ⊕ ξ: along the joints' own exponentials."""
        x, u = self.model.coordinates(q), self.model.velocities(step)
        return self._gather(lambda i: self.model.joint[i].integrate(x[i], u[i]))

    def normalize(self, q: Array) -> Array:
        """Quaternions made unit."""
        x = self.model.coordinates(q)
        return self._gather(lambda i: self.model.joint[i].normalize(x[i]))

    def bracket(self, x: Array, y: Array) -> Array:
        """[x, y] = ad_x y, joint by joint; zero where velocities are rates."""
        a, b = self.model.velocities(x), self.model.velocities(y)
        return self._gather(lambda i: self.model.joint[i].bracket(a[i], b[i]))

    def dual_bracket(self, x: Array, p: Array) -> Array:
        """ad_xᵀ p."""
        a, b = self.model.velocities(x), self.model.velocities(p)
        return self._gather(lambda i: self.model.joint[i].dual_bracket(a[i], b[i]))

    @cached_property
    def has_brackets(self) -> bool:
        """Whether some joint moves on a group that does not commute."""
        return not all(j.is_commutative for j in self.model.joint)

    def _gather(self, values: Callable[[int], Sequence[Scalar]]) -> Array:
        own = [i for i, _ in self.model.outward() if self.model.mimic[i] is None]
        return stack([x for i in own for x in values(i)])

    # ---- how it accelerates

    def driven(self, t: Scalar, q: Array, v: Array) -> Array:
        """Joint forces by the law, as far as drives can give them."""
        if self.plan.law is None:
            return np.zeros(self.model.nv)
        tau = stack(self.plan.law([t], q, v, *(x for x in (self.held, self.weights) if x is not None)))
        return saturated(tau, self.plan.limits.effort) if self.plan.limits.effort else tau

    def applied(self, t: Scalar, q: Array, v: Array) -> tuple[Array, Array | None]:
        """Joint forces of drives and stops, and external forces, (n_links, 6) in body frames."""
        tau = self.driven(t, q, v)
        if self.plan.limits.stiffness:
            tau = tau + stop_forces(self.model, self.plan.limits, q, v)
        pushes = [stack(f([t], q, v, *self.values), (self.model.n_links, 6)) for f in self.plan.forces]
        return tau, sum(pushes[1:], pushes[0]) if pushes else None

    def call(self, function: Law, *args: Any) -> Array:
        """function(system, *args), which may become a function of the compiled code that is called here."""
        return function(self, *args) if self.calls is None else self.calls(function, *args)

    def derivative(self, t: Scalar, q: Array, v: Array) -> Array:
        """v̇."""
        return self.call(derivative_at, t, q, v)

    def accelerations(self, t: Scalar, q: Array, v: Array) -> tuple[Array, Array]:
        """v̇ and the joint forces that act; of prescribed degrees of freedom those that their motion takes."""
        tau, f_ext = self.applied(t, q, v)
        plan, nv = self.plan, self.model.nv
        algorithm = catalogue.lookup(plan.function, self.method)[2]
        dynamics = with_sums_of_angles(self.dynamics, q) if self.sums else self.dynamics
        gains = None if plan.gains is None else np.array(plan.gains)
        if plan.motion:
            a = stack([self._motion(k, t)[2] if k in plan.motion else 0.0 for k in range(nv)])
            if plan.rows:
                out = constrained_hybrid.stabilised(dynamics, gains, q, v, a, tau, f_ext, **plan.needs)
                return out[:nv], out[nv : 2 * nv]
            both = algorithm(dynamics, q, v, a, tau, f_ext, **plan.needs)
            return both[0], both[1]
        if plan.rows:
            return algorithm(dynamics, q, v, tau, f_ext, gains, rows=plan.rows)[:nv], tau
        return algorithm(dynamics, q, v, tau, f_ext), tau

    def cost(self, t: Scalar, q: Array, v: Array) -> Scalar:
        """What the state costs at the beginning of a step."""
        assert self.plan.cost is not None
        return self.plan.cost([t], q, v, self.driven(t, q, v))[0]

    def joint_forces(self, t: Scalar, q: Array, v: Array) -> Array:
        """The joint forces of drives, and those that a prescribed motion takes."""
        tau = self.driven(t, q, v)
        if not self.plan.motion:
            return tau
        taken = self.accelerations(t, q, v)[1]
        return stack([taken[k] if k in self.plan.motion else x for k, x in enumerate(split(tau))])

    def settle(self, t: Scalar, q: Array, v: Array) -> tuple[Array, Array]:
        """What a step has left undone: prescribed degrees of freedom where their motion is, constraints projected."""
        if self.plan.motion:
            place = {self._place(k): k for k in self.plan.motion}
            q = stack([self._motion(place[j], t)[0] if j in place else x for j, x in enumerate(split(q))])
            v = stack([self._motion(k, t)[1] if k in self.plan.motion else x for k, x in enumerate(split(v))])
        return self._projected(q, v) if self.plan.project else (q, v)

    def _place(self, freedom: int) -> int:
        slots = (s for i, s in enumerate(self.model.slots) if i and self.model.mimic[i] is None)
        return next(s.q.start for s in slots if s.v.start == freedom)

    def _motion(self, freedom: int, t: Scalar) -> tuple[Scalar, Scalar, Scalar]:
        """q, q̇ and q̈ of a prescribed degree of freedom, by dual numbers of dual numbers."""
        assert self.plan.motion is not None
        (x,) = self.plan.motion[freedom]([Dual(Dual(t, 1.0), Dual(1.0, 0.0))])
        x = x if isinstance(x, Dual) else Dual(x)
        (q, v), (_, a) = _parts(x.value), _parts(x.slope)
        return q, v, a

    def _projected(self, q: Array, v: Array) -> tuple[Array, Array]:
        """One step of Newton's method toward φ(q) = 0, and the velocity's part that keeps it: nearest in the metric M."""
        phi = split(loop_constraints.residual(self.model, q))
        q = self.move(q, -1.0 * self._onto(q, lambda A: [phi[r] for r in self.plan.rows]))
        return q, v - self._onto(q, lambda A: [a.dot(split(v)) for a in A])

    def _onto(self, q: Array, off: Callable[[list[Vector]], list[Scalar]]) -> Array:
        """M⁻¹Aᵀ(A M⁻¹Aᵀ)⁻¹ off, of the DoF whose motion is not prescribed; the others stay."""
        rows = loop_constraints.jacobian_rows(self.model, q)
        A, driven = [Vector(rows[r]) for r in self.plan.rows], self.plan.motion or {}
        moved = [k for k in range(self.model.nv) if k not in driven]
        M_all, A_v = [split(row) for row in mass_matrix(self.model, q)], [Vector(a[k] for k in moved) for a in A]
        M = Inverse(Matrix(Vector(M_all[j][k] for k in moved) for j in moved))
        pushed = [M @ a for a in A_v]
        lam = Inverse(Matrix(Vector(a.dot(x) for x in pushed) for a in A_v)) @ off(A)
        found = dict(zip(moved, (Vector(column).dot(lam) for column in zip(*pushed, strict=True)), strict=True))
        return stack([found.get(k, 0.0) for k in range(self.model.nv)])

    # ---- for implicit steps

    def mass_matrix(self, q: Array) -> Array:
        """M(q)."""
        return mass_matrix(self.dynamics, q)

    def momentum_balance(self, t: Scalar, q: Array, v: Array) -> tuple[Array, Array]:
        """M, and ∂L/∂q with all other forces in it: Cᵀv - gravity - ad_vᵀ M v + passive + tau + Jᵀf_ext."""
        model = self.dynamics
        M, C = mass_matrix(model, q), coriolis_matrix(model, q, v)
        f = C.T @ v - gravity_force(model, q) + passive_forces(model, q, v)
        f = f - self.dual_bracket(v, M @ v) if self.has_brackets else f
        tau, f_ext = self.applied(t, q, v)
        return M, f + self._joint_forces(q, tau, f_ext)

    def linearized(self, t: Scalar, q: Array, v: Array, a: Array) -> tuple[Array, Array, Array]:
        """M, and the slopes by q, in the tangent space, and by v of M a + bias - passive - tau - Jᵀf_ext."""
        by_q, by_v, M = derivatives.inverse_dynamics_derivatives(self.dynamics, q, v, a)
        if self.plan.law is None and not self.plan.forces and not self.plan.limits.stiffness:
            return M, by_q, by_v

        def pushed(model: Model, q: Array, v: Array) -> Array:
            return self._joint_forces(q, *self.applied(t, q, v))

        slopes = [dual_derivatives.by(pushed, self.model, (q, v), which) for which in (0, 1)]
        return M, by_q - slopes[0], by_v - slopes[1]

    def _joint_forces(self, q: Array, tau: Array, f_ext: Array | None) -> Array:
        """tau + Jᵀ f_ext."""
        if f_ext is None:
            return tau
        still, weightless = np.zeros(self.model.nv), replace(self.model, gravity=(0.0, 0.0, 0.0))
        return tau - newton_euler_classical.rigid_body_forces(weightless, q, still, still, f_ext)


def derivative_at(system: System, t: Scalar, q: Array, v: Array) -> Array:
    """v̇, as a function that a step may call."""
    return system.accelerations(t, q, v)[0]


def _parts(x: Any) -> tuple[Scalar, Scalar]:
    return (x.value, x.slope) if isinstance(x, Dual) else (x, 0.0)
