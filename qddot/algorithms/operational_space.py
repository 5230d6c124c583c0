"""Dynamics as seen from a frame: Khatib 1987, cited as [20] in Featherstone & Orin.

    Λ V̇ + μ = F,    Λ = (J M⁻¹ Jᵀ)⁻¹,    μ = Λ (J M⁻¹ bias - J̇ v)

with V the frame's twist in its own coordinates, or the rows of it that the task uses. Gravity is in the bias, so it is
in μ. Λ exists where the chosen rows of J are independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.algorithms.articulated_body import mass_matrix_inverse
from qddot.algorithms.kinematics import jacobian, jacobian_derivative
from qddot.algorithms.newton_euler import bias_force
from qddot.blocks import Matrix, Vector
from qddot.model import Frame, Model
from qddot.scalars import split, stack


def operational_space(
    model: Model, q: Any, v: Any, frame: Frame, rows: Sequence[int] = range(6)
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Λ and μ of the chosen rows of a frame's twist."""
    J, J_dot = jacobian(model, q, frame)[..., rows, :], jacobian_derivative(model, q, v, frame)[..., rows, :]
    J_Minv = J @ mass_matrix_inverse(model, q)
    Lambda = _inverse(J_Minv @ np.swapaxes(J, -1, -2))
    along = J_Minv @ bias_force(model, q, v)[..., None] - J_dot @ np.asarray(v)[..., None]
    return Lambda, (Lambda @ along)[..., 0]


def _inverse(A: NDArray[Any]) -> NDArray[Any]:
    n = A.shape[-1]
    scalars = split(A.reshape(*A.shape[:-2], n * n))
    inverse = Matrix(Vector(scalars[r * n : (r + 1) * n]) for r in range(n)).inverse()
    return stack([x for unit in np.eye(n) for x in inverse @ unit.tolist()], (n, n))
