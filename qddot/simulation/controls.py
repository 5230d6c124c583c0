"""Laws of control u(t, q, v) -> joint forces, to be traced with the dynamics that they drive.

A law is any function of the time, the coordinates and the velocities of one state, written with arithmetic, NumPy and the
functions of `qddot.scalars`. These here are the usual ones; a user's own look the same. References are functions of t too,
so that their velocities and accelerations follow by differentiating them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qddot.algorithms import newton_euler_classical
from qddot.dynamics.engine import HasEngine
from qddot.errors import InputError
from qddot.mechanism.model import Model
from qddot.scalars import Scalar, stack
from qddot.spatial.dual import Dual
from qddot.spatial.tape import record

Array = NDArray[Any]
Law = Callable[[Scalar, Array, Array], Array]


def pd(robot: HasEngine, q_ref: ArrayLike | Callable[[Scalar], Sequence[Scalar]], kp: ArrayLike, kd: ArrayLike) -> Law:
    """u = kp (q_ref ⊖ q) + kd (v_ref - v), the gains a number each or one a degree of freedom; ⊖ as in `Robot.difference`.

    `q_ref` is a configuration, or a function of t that gives one.
    """
    k_p, k_d = _gains(robot, kp, "kp"), _gains(robot, kd, "kd")
    reference = _reference(robot, q_ref)

    def law(t: Scalar, q: Array, v: Array) -> Array:
        wanted, rate, _ = reference(t)
        return k_p * _difference(robot.engine.model, q, wanted) + k_d * (rate - v)

    return law


def computed_torque(
    robot: HasEngine, q_ref: ArrayLike | Callable[[Scalar], Sequence[Scalar]], kp: ArrayLike, kd: ArrayLike
) -> Law:
    """u = inverse_dynamics(q, v, a_ref + kd (v_ref - v) + kp (q_ref ⊖ q)): the error obeys ë + kd ė + kp e = 0.

    `q_ref` is a configuration, or a function of t that gives one, differentiated twice by dual numbers.
    """
    k_p, k_d = _gains(robot, kp, "kp"), _gains(robot, kd, "kd")
    reference = _reference(robot, q_ref)
    if robot.engine.model.is_constrained:
        raise InputError(f"computed torque is for trees, and robot {robot.engine.model.name!r} has loops")

    def law(t: Scalar, q: Array, v: Array) -> Array:
        wanted, rate, acceleration = reference(t)
        a = acceleration + k_d * (rate - v) + k_p * _difference(robot.engine.model, q, wanted)
        return newton_euler_classical.inverse_dynamics(robot.engine.model, q, v, a)

    return law


def gravity_compensation(robot: HasEngine) -> Law:
    """u = gravity_force(q): what holds the robot where it is."""

    def law(t: Scalar, q: Array, v: Array) -> Array:
        still = np.zeros(robot.engine.model.nv)
        return newton_euler_classical.rigid_body_forces(robot.engine.model, q, still, still)

    return law


def _gains(robot: HasEngine, k: ArrayLike, what: str) -> Array:
    array, nv = np.asarray(k, dtype=float), robot.engine.model.nv
    if array.shape not in ((), (nv,)) or not np.all(np.isfinite(array)):
        raise InputError(f"{what} has shape {array.shape}; give a finite number, or one a degree of freedom: ({nv},)")
    return np.broadcast_to(array, (nv,))


def _difference(model: Model, q: Array, wanted: Array) -> Array:
    x, y = model.coordinates(q), model.coordinates(wanted)
    own = [i for i, _ in model.outward() if model.mimic[i] is None]
    return stack([d for i in own for d in model.joint[i].difference(x[i], y[i])])


def _reference(robot: HasEngine, q_ref: Any) -> Callable[[Scalar], tuple[Array, Array, Array]]:
    """q, v and a of the reference at a time."""
    model = robot.engine.model
    if not callable(q_ref):
        fixed, still = robot.engine.checks.q(q_ref, "q_ref"), np.zeros(model.nv)
        if fixed.shape != (model.nq,):
            raise InputError(f"q_ref has shape {fixed.shape}; give one configuration, or a function of t")
        return lambda t: (fixed, still, still)
    if model.nq != model.nv:
        raise InputError("a reference q_ref(t) is for robots whose velocities are the rates of their coordinates")

    def moving(t: Scalar) -> tuple[Array, Array, Array]:
        tape = record("q_ref", lambda at: list(q_ref(at[0])), (1,))
        wanted = tape([Dual(Dual(t, 1.0), Dual(1.0, 0.0))])
        if len(wanted) != model.nq:
            raise InputError(f"q_ref(t) gives {len(wanted)} numbers; robot {model.name!r} has nq = {model.nq}")
        parts = [_three(x) for x in wanted]
        q, v, a = (stack(list(column)) for column in zip(*parts, strict=True))
        return q, v, a

    return moving


def _three(x: Any) -> tuple[Scalar, Scalar, Scalar]:
    """Value, first and second derivative out of a dual number of dual numbers."""
    if not isinstance(x, Dual):
        return x, 0.0, 0.0
    value, slope = (y if isinstance(y, Dual) else Dual(y) for y in (x.value, x.slope))
    return value.value, value.slope, slope.slope


__all__ = ["Law", "computed_torque", "gravity_compensation", "pd"]
