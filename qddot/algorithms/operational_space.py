"""Dynamics as seen from a frame: Khatib 1987, cited as [20] in Featherstone & Orin; Lilly & Orin 1990 for its inertia.

    Λ V̇ + μ = F,    Λ = (J M⁻¹ Jᵀ)⁻¹,    μ = Λ (J M⁻¹ bias - J̇ v)

with V the frame's twist in its own coordinates, or the rows of it that the task uses. Gravity is in the bias, so it is
in μ. Λ exists where the chosen rows of J are independent; Λ⁻¹ always does.

`inverse_inertia` is Λ⁻¹ by force propagation: a unit force on the frame passes inward, and each joint that yields to it
takes its part. A force F on link i pushes joint i with SᵀF, which answers with Ψ SᵀF; that adds FᵀS Ψ SᵀF to Λ⁻¹, and
F - U Ψ SᵀF goes on to the parent.

| code   | Kim     | meaning                                                 |
|--------|---------|---------------------------------------------------------|
| U, Psi | ÎS, Ψ   | of the articulated bodies, as in forward dynamics       |
| F      |         | six forces, for each unit of force on the frame         |
| push   |         | SᵀF of a joint                                          |

Cost: O(n) for the articulated inertias, O(depth) for the forces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.algorithms.articulated_body import articulated_inertias, mass_matrix_inverse
from qddot.algorithms.kinematics import jacobian, jacobian_derivative
from qddot.algorithms.newton_euler import bias_force
from qddot.mechanism.model import Frame, Model
from qddot.scalars import split, stack
from qddot.spatial import Ad_inv_T, force, zero_force
from qddot.spatial.joint_blocks import Matrix, Vector

_LOWER = [(r, c) for r in range(6) for c in range(r + 1)]  # of a symmetric matrix


def operational_space(
    model: Model, q: Any, v: Any, frame: Frame, rows: Sequence[int] = range(6)
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Λ and μ of the chosen rows of a frame's twist."""
    J, J_dot = jacobian(model, q, frame)[..., rows, :], jacobian_derivative(model, q, v, frame)[..., rows, :]
    J_Minv = J @ mass_matrix_inverse(model, q)
    Lambda = _inverse(J_Minv @ np.swapaxes(J, -1, -2))
    along = J_Minv @ bias_force(model, q, v)[..., None] - J_dot @ np.asarray(v)[..., None]
    return Lambda, (Lambda @ along)[..., 0]


def inverse_inertia(model: Model, q: Any, frame: Frame) -> NDArray[Any]:
    """Λ⁻¹ = J M⁻¹ Jᵀ, 6×6, by force propagation.   Lilly & Orin. Shared coordinates have no such recursion."""
    if model.is_coupled:
        return inverse_inertia_by_jacobian(model, q, frame)
    T, S = model.transforms(q), model.axes(q)
    _, U, Psi = articulated_inertias(model, T, S)
    (F,), found = model.per_link("F"), model.total(len(_LOWER))
    F[frame.link] = tuple(Ad_inv_T(frame.placement, force(unit)) for unit in np.eye(6).tolist())
    for j, p in model.path_to_base(frame.link):
        push = [S[j].T @ f for f in F[j]]
        answer = [Psi[j] @ x for x in push]
        found.add(*(push[r].dot(answer[c]) for r, c in _LOWER))
        # a joint of six degrees of freedom passes nothing on
        left = [zero_force() if model.is_free_without_rotor(j) else f - U[j] @ x for f, x in zip(F[j], answer, strict=True)]
        F[p] = tuple(Ad_inv_T(T[j], f) for f in left)
    sums = dict(zip(_LOWER, found.sums, strict=True))
    return stack([sums[max(r, c), min(r, c)] for r in range(6) for c in range(6)], (6, 6))


def inverse_inertia_by_jacobian(model: Model, q: Any, frame: Frame) -> NDArray[Any]:
    """Λ⁻¹ as its definition has it, J M⁻¹ Jᵀ."""
    J = jacobian(model, q, frame)
    return J @ mass_matrix_inverse(model, q) @ np.swapaxes(J, -1, -2)


def acceleration_by_force(model: Model, q: Any, frame: Frame) -> NDArray[Any]:
    """M⁻¹Jᵀ, nv×6: what a unit of force on the frame, in its own coordinates, accelerates.

    With Λ it is Khatib's dynamically consistent inverse, J̄ = M⁻¹JᵀΛ.
    """
    return mass_matrix_inverse(model, q) @ np.swapaxes(jacobian(model, q, frame), -1, -2)


def _inverse(A: NDArray[Any]) -> NDArray[Any]:
    n = A.shape[-1]
    scalars = split(A.reshape(*A.shape[:-2], n * n))
    inverse = Matrix(Vector(scalars[r * n : (r + 1) * n]) for r in range(n)).inverse()
    return stack([x for unit in np.eye(n) for x in inverse @ unit.tolist()], (n, n))
