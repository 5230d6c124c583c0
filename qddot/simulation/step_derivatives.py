"""Derivatives of one step of an integrator: x' = f(x, tau) with x = (q, v), in the tangent space, as matrices A and B.

A change δq of a configuration is a velocity, q ⊕ δq, before the step and after it; so A is 2 nv × 2 nv. Both are exact for
the discrete step. Of `semi_implicit_euler` on a tree they follow from the derivatives of forward dynamics,

    v' = v + h a(q, v, tau),   q' = q ⊕ h v',   δv' = δv + h δa,   δq' = X δq + h Y δv',

with X and Y the slopes of q ⊕ ξ, ones but for joints on groups that do not commute. Any other step is traced, and a reverse
sweep gives a row of A and B, a compiled kernel all rows at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qddot.compiler.runtime.kernel import Kernel
from qddot.dynamics.engine import HasEngine
from qddot.dynamics.input_checks import positive
from qddot.dynamics.pipeline import kernel_of, unknowns
from qddot.dynamics.products import ambient_rate, squared_rates, tangent_gradient
from qddot.errors import InputError, KernelTooLargeError
from qddot.joints import Joint
from qddot.scalars import Scalar, split, stack
from qddot.simulation.integrators import INTEGRATORS
from qddot.simulation.rollout import Rollout
from qddot.spatial.dual import Dual

Array = NDArray[Any]
BY_MATRICES = "semi_implicit_euler"


class StepDerivatives(NamedTuple):
    """x' = A x + B tau for small changes: A (..., 2 nv, 2 nv) and B (..., 2 nv, nv), rows and columns q first, then v."""

    A: Array
    B: Array

    @property
    def dq(self) -> Array:
        """By q, in the tangent space: the first half of A's columns."""
        return self.A[..., : self.B.shape[-1]]

    @property
    def dv(self) -> Array:
        """By v: the second half."""
        return self.A[..., self.B.shape[-1] :]

    @property
    def dtau(self) -> Array:
        """By the joint forces, which is B."""
        return self.B


def step_derivatives(
    robot: HasEngine, q: ArrayLike, v: ArrayLike, tau: ArrayLike | None, *, dt: float, integrator: str = BY_MATRICES
) -> StepDerivatives:
    """A and B of one step; `Robot.step_derivatives` says more."""
    engine, model, key = robot.engine, robot.engine.model, ("step derivatives", integrator)
    if not isinstance(integrator, str) or key not in engine.kept:
        engine.kept[key] = _code(robot, integrator)
    forces = np.zeros(model.nv) if tau is None else tau
    arrays = engine.checks.all("step_derivatives", ("q", "v", "tau"), (q, v, forces))
    if any(x.dtype.kind != "f" for x in arrays):
        raise InputError("step_derivatives: q, v and tau must hold real numbers")
    h, kernel, n = positive(dt, "dt"), engine.kept[key], 2 * model.nv
    if kernel is None:
        return _by_matrices(robot, arrays, h)
    rows = kernel(*(x[..., None, :] for x in arrays), np.array([h]), np.eye(n))
    return StepDerivatives(rows[..., :n], rows[..., n:])


def _code(robot: HasEngine, integrator: str) -> Kernel | None:
    """What computes A and B row by row; None where the derivatives of forward dynamics do."""
    model = robot.engine.model
    # what simulations refuse is refused here, in the same words
    rollout = Rollout(robot, np.zeros((1, model.nv)), dt=1.0, integrator=integrator)
    if INTEGRATORS[integrator].past(model.nq, model.nv):
        able = ", ".join(repr(name) for name, found in INTEGRATORS.items() if not found.past(1, 1))
        raise InputError(
            f"integrator {integrator!r} remembers more of earlier steps than q and v, so that a step has no A and B; take "
            f"one of {able}"
        )
    if integrator == BY_MATRICES and not model.is_constrained:
        return None
    if not robot.engine.compiled:
        raise InputError(f"derivatives of a step of {integrator!r} are compiled code; Robot(model) is a compiled robot")
    return _kernel(rollout)


def _kernel(rollout: Rollout) -> Kernel:
    """A row of the derivatives, as a function of q, v, tau, dt and the unit vector of the row."""
    from qddot.compiler.ir.differentiate import vjp
    from qddot.compiler.ir.expr import Expr

    model, n = rollout.model, rollout.model.nq
    sizes = [n, model.nv, model.nv, 1, 2 * model.nv]
    names, shapes = ("q", "v", "tau", "dt", "row"), [(size,) for size in sizes]
    what = f"the derivative of a step of {rollout.integrator!r} of {model.name!r}"
    try:
        graph, (q, v, tau, h, row) = unknowns(sizes)
        after = rollout._step(False, rollout._traced_system(graph, tau), np.concatenate([q, v]), 0.0, h[0])
        scaled = [w / square for w, square in zip(row[: model.nv], squared_rates(model), strict=True)]
        cotangent = stack([*ambient_rate(model, split(after[:n]), scaled), *row[model.nv :]])
        inputs = graph.nodes_of(np.concatenate([q, v, tau]))
        found = [Expr(graph, x) for x in vjp(graph, graph.nodes_of(after), inputs, graph.nodes_of(cotangent))]
        gradient = stack([*tangent_gradient(model, split(q), found[:n]), *found[n:]])
        return kernel_of(what, graph, gradient, names, shapes, (3 * model.nv,))
    except KernelTooLargeError as error:
        raise KernelTooLargeError(f"{error}; integrator={BY_MATRICES!r} takes less code") from None


def _by_matrices(robot: HasEngine, arrays: list[Array], h: float) -> StepDerivatives:
    """Of a semi-implicit Euler step."""
    engine, model, nv = robot.engine, robot.engine.model, robot.engine.model.nv
    slopes = engine.solve(3, "forward_dynamics_derivatives", *arrays)
    by_v = h * np.concatenate([slopes[..., k, :, :] for k in range(3)], axis=-1)
    by_v[..., nv : 2 * nv] += np.eye(nv)
    by_q = h * by_v
    by_q[..., :nv] += np.eye(nv)
    if not all(joint.is_commutative for joint in model.joint):
        step = h * (arrays[1] + h * engine.solve(1, "forward_dynamics", *arrays))
        q = arrays[0]
        for i, _ in model.outward():
            if not model.joint[i].is_commutative and model.mimic[i] is None:
                slot = model.slots[i]
                X, Y = _move_slopes(model.joint[i], split(q[..., slot.q]), split(step[..., slot.v]))
                rows = h * (Y @ by_v[..., slot.v, :])
                rows[..., slot.v] += X
                by_q[..., slot.v, :] = rows
    both = np.concatenate([by_q, by_v], axis=-2)
    return StepDerivatives(both[..., : 2 * nv], both[..., 2 * nv :])


def _move_slopes(joint: Joint, x: list[Scalar], u: list[Scalar]) -> tuple[Array, Array]:
    """The slopes of x ⊕ u with respect to x and to u, in the tangent space: (..., nv, nv) each."""
    after, units = joint.integrate(x, u), np.eye(joint.nv).tolist()
    squares = [sum(rate * rate for rate in joint.along(joint.neutral(), k)) for k in range(joint.nv)]

    def seen(moved: Any) -> list[Scalar]:
        """How far the joint has moved at the end, in its tangent space."""
        rates = [y.slope for y in moved]
        return [
            sum(e * rate for e, rate in zip(joint.along(after, k), rates, strict=True)) / squares[k]
            for k in range(joint.nv)
        ]

    def columns(moved: list[Any]) -> Array:
        return np.stack([stack(seen(m)) for m in moved], axis=-1)

    along = [[Dual(y, rate) for y, rate in zip(x, joint.along(x, k), strict=True)] for k in range(joint.nv)]
    turned = [[Dual(w, unit) for w, unit in zip(u, e, strict=True)] for e in units]
    return columns([joint.integrate(a, u) for a in along]), columns([joint.integrate(x, b) for b in turned])
