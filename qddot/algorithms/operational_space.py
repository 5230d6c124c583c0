"""Dynamics as seen from a frame: Khatib 1987, cited as [20] in Featherstone & Orin; Lilly & Orin 1990 for its inertia.

    Λ V̇ + μ = F,    Λ = (J M⁻¹ Jᵀ)⁻¹,    J̄ = M⁻¹JᵀΛ,    N = 1 - J̄J

with V the frame's twist in its own coordinates, or the rows of it that the task uses. With all joint forces zero the
frame accelerates by V̇_free, which makes μ = -Λ V̇_free; gravity is in it. Λ exists where the chosen rows of J are
independent, and is NaN elsewhere; Λ⁻¹ always exists.

`inverse_inertia` is Λ⁻¹ by force propagation: a unit force on the frame passes inward, and each joint that yields to it
takes its part. A force F on link i pushes joint i with SᵀF, which answers with Ψ SᵀF; that adds FᵀS Ψ SᵀF to Λ⁻¹, and
F - U Ψ SᵀF goes on to the parent.

`task_by_factors` takes M = LᵀDL of `sparse_factors`: with Z = L⁻ᵀJᵀ it is Λ⁻¹ = ZᵀD⁻¹Z and M⁻¹Jᵀ = L⁻¹D⁻¹Z.

| code   | Kim     | meaning                                                 |
|--------|---------|---------------------------------------------------------|
| U, Psi | ÎS, Ψ   | of the articulated bodies, as in forward dynamics       |
| F      |         | six forces, for each unit of force on the frame         |
| push   |         | SᵀF of a joint                                          |
| W      |         | M⁻¹Jᵀ by columns, a row of the task each                |

Cost: O(n) for the articulated inertias, O(depth) for the forces; O(n depth²) for the factors, O(n depth) for each row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qddot.algorithms import newton_euler, newton_euler_classical, sparse_factors
from qddot.algorithms.articulated_body import articulated_inertias, mass_matrix_inverse
from qddot.algorithms.composite_body import mass_matrix
from qddot.algorithms.kinematics import acceleration, jacobian
from qddot.mechanism.model import Frame, Model
from qddot.scalars import stack
from qddot.spatial import Ad_inv_T, force, zero_force
from qddot.spatial.joint_blocks import Inverse, Matrix, Vector

_LOWER = [(r, c) for r in range(6) for c in range(r + 1)]  # of a symmetric matrix


class Task(NamedTuple):
    """The rows of a frame's twist that a task uses, at one configuration: J, M⁻¹Jᵀ by columns, and Λ."""

    J: Matrix
    W: Matrix
    Lambda: Inverse


Formulation = Callable[[Model, Any, Frame, Sequence[int]], Task]


def task_by_inverse(model: Model, q: Any, frame: Frame, rows: Sequence[int]) -> Task:
    """With M⁻¹ as articulated bodies give it."""
    J = jacobian(model, q, frame)[..., rows, :]
    W = sparse_factors.rows_of(J @ mass_matrix_inverse(model, q))
    return Task(sparse_factors.rows_of(J), W, _products(sparse_factors.rows_of(J), W).inverse_or_nan())


def task_by_factors(model: Model, q: Any, frame: Frame, rows: Sequence[int]) -> Task:
    """With the factors of M."""
    J, above = sparse_factors.rows_of(jacobian(model, q, frame)[..., rows, :]), sparse_factors.dof_above(model)
    L, reciprocal = sparse_factors.factors(sparse_factors.rows_of(mass_matrix(model, q)), above, model.floors)
    Z = Matrix(Vector(sparse_factors.solve_inward(L, above, row)) for row in J)
    W = Matrix(Vector(sparse_factors.solve_outward(L, reciprocal, above, row)) for row in Z)
    return Task(J, W, _products(Z, Matrix(row.times(reciprocal) for row in Z)).inverse_or_nan())


def inertia(task: Formulation, model: Model, q: Any, frame: Frame, rows: Sequence[int]) -> NDArray[Any]:
    """Λ of the chosen rows, by columns."""
    return _full(task(model, q, frame, rows).Lambda, len(rows))


def inertia_by_propagation(model: Model, q: Any, frame: Frame, rows: Sequence[int]) -> NDArray[Any]:
    """Λ of the chosen rows from Λ⁻¹ by force propagation."""
    inverse = sparse_factors.rows_of(inverse_inertia(model, q, frame)[..., rows, :][..., rows])
    return _full(inverse.inverse_or_nan(), len(rows))


def bias(model: Model, q: Any, v: Any, frame: Frame, rows: Sequence[int]) -> NDArray[Any]:
    """μ of the chosen rows, with M⁻¹."""
    Lambda = task_by_inverse(model, q, frame, rows).Lambda
    a_free = -(mass_matrix_inverse(model, q) @ newton_euler.bias_force(model, q, v)[..., None])[..., 0]
    return _bias(Lambda, acceleration(model, q, v, a_free, frame).components, rows)


def bias_by_factors(model: Model, q: Any, v: Any, frame: Frame, rows: Sequence[int]) -> NDArray[Any]:
    """μ of the chosen rows, with the factors of M."""
    Lambda = task_by_factors(model, q, frame, rows).Lambda
    a_free = -sparse_factors.solve(model, mass_matrix(model, q), newton_euler_classical.bias_force(model, q, v))
    return _bias(Lambda, acceleration(model, q, v, a_free, frame).components, rows)


def _bias(Lambda: Inverse, V_dot_free: Sequence[Any], rows: Sequence[int]) -> NDArray[Any]:
    return stack(Lambda @ [-V_dot_free[r] for r in rows])


def consistent_inverse(task: Formulation, model: Model, q: Any, frame: Frame, rows: Sequence[int]) -> NDArray[Any]:
    """J̄ = M⁻¹JᵀΛ, nv × rows: Λ is symmetric, and a row of J̄ is Λ times a row of M⁻¹Jᵀ."""
    _, W, Lambda = task(model, q, frame, rows)
    return stack([x for row in W.T for x in Lambda @ row], (model.nv, len(rows)))


def null_space_projector(task: Formulation, model: Model, q: Any, frame: Frame, rows: Sequence[int]) -> NDArray[Any]:
    """N = 1 - J̄J."""
    J, W, Lambda = task(model, q, frame, rows)
    J_bar, n = [Lambda @ w for w in W.T], model.nv
    return stack([float(r == c) - J_bar[r].dot(j) for r in range(n) for c, j in enumerate(J.T)], (n, n))


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


def _products(A: Matrix, B: Matrix) -> Matrix:
    """A Bᵀ, which is symmetric: its lower half, and its mirror image."""
    lower = [[row.dot(B[c]) for c in range(r + 1)] for r, row in enumerate(A)]
    return Matrix(Vector(lower[max(r, c)][min(r, c)] for c in range(len(A))) for r in range(len(A)))


def _full(A: Inverse, n: int) -> NDArray[Any]:
    """An inverse as an array: of its columns what is above the diagonal is what is below it."""
    columns = [A @ unit for unit in np.eye(n).tolist()]
    return stack([columns[min(r, c)][max(r, c)] for r in range(n) for c in range(n)], (n, n))
