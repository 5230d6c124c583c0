"""What the joints do by themselves: dampers, Coulomb friction, springs.

    passive(q, v) = -d v - f v/√(v² + ε²) - k displacement(q_ref, q)

Friction is Coulomb's law made smooth at the velocity scale ε = `model.friction_velocity`: at |v| = ε it has 71 %
of its full value, at 10 ε 99.5 %.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from qddot.mechanism.model import Model
from qddot.scalars import sqrt
from qddot.spatial.joint_blocks import Vector


def passive_forces(model: Model, q: Any, v: Any) -> NDArray[Any]:
    """Joint forces from damping, friction and springs."""
    x, u = model.coordinates(q), model.velocities(v)
    scale_squared = model.friction_velocity**2
    tau = model.joint_vector("passive")
    for i, _ in model.outward():
        viscous = model.damping[i].times(u[i])
        coulomb = model.friction[i].times(Vector(w / sqrt(w * w + scale_squared) for w in u[i]))
        spring = model.stiffness[i].times(model.joint[i].displacement(model.spring_reference[i], x[i]))
        tau[i] = -1.0 * (viscous + coulomb + spring)
    return tau.stack()


def passive_derivatives(model: Model, q: Any, v: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """∂passive/∂q, in the tangent space, and ∂passive/∂v."""
    x, u = model.coordinates(q), model.velocities(v)
    by_q, by_v = model.joint_matrix("passive by q"), model.joint_matrix("passive by v")
    for i, _ in model.outward():
        for k in range(model.joint[i].nv):
            by_q.column(i, k)[i], by_v.column(i, k)[i] = joint_derivatives(model, i, x[i], u[i], k)
    return by_q.stack(), by_v.stack()


def joint_derivatives(model: Model, i: int, x: Vector, u: Vector, k: int) -> tuple[Vector, Vector]:
    """Of one joint, by its degree of freedom k."""
    square = u[k] * u[k] + model.friction_velocity**2
    coulomb = model.friction[i][k] * (model.friction_velocity**2 / (square * sqrt(square)))
    none = Vector((0.0,) * len(u))
    by_v = Vector((-1.0 * (model.damping[i][k] + coulomb),) * len(u)).only(k)
    if all(isinstance(s, float) and s == 0.0 for s in model.stiffness[i]):
        return none, by_v
    return -1.0 * model.stiffness[i].times(model.joint[i].displacement_slope(model.spring_reference[i], x, k)), by_v
