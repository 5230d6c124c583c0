"""What the joints do by themselves: dampers, Coulomb friction, springs.

    passive(q, v) = -d v - f v/√(v² + ε²) - k displacement(q_ref, q)

Friction is Coulomb's law made smooth at the velocity scale ε = `model.friction_velocity`: at |v| = ε it has 71 %
of its full value, at 10 ε 99.5 %.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from qddot.blocks import Matrix, Vector
from qddot.model import Model
from qddot.scalars import sqrt


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
    scale_squared = model.friction_velocity**2
    by_q, by_v = model.joint_matrix("passive by q"), model.joint_matrix("passive by v")
    for i, _ in model.outward():
        joint, n = model.joint[i], model.joint[i].nv
        square = [w * w + scale_squared for w in u[i]]
        coulomb = model.friction[i].times(Vector(scale_squared / (s * sqrt(s)) for s in square))
        by_v[i, i] = Matrix(Vector((0.0,) * n) for _ in range(n)).add_diagonal(-1.0 * (model.damping[i] + coulomb))
        if any(not isinstance(k, float) or k != 0.0 for k in model.stiffness[i]):
            columns = [joint.displacement_slope(model.spring_reference[i], x[i], k) for k in range(n)]
            by_q[i, i] = Matrix(-1.0 * model.stiffness[i].times(c) for c in columns).T
    return by_q.stack(), by_v.stack()
