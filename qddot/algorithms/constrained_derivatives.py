"""Forward dynamics with constraints differentiated by q, v and tau: accelerations, and the constraints' forces λ.

Kim 2012, (54) (55) (71), differentiated at the solution. With ID the tree's inverse dynamics, external forces in it,

    ID(q, v, q̈) - Aᵀλ = τ,      A q̈ + Ȧq̇ = 0.

The slopes have the same matrix as the solution (Featherstone & Orin (20)) and other right-hand sides, with q̈ and λ held:

    M ∂q̈ - Aᵀ ∂λ = ∂τ - ∂ID + ∂(Aᵀλ) = r,      A ∂q̈ = -∂(A q̈ + Ȧq̇) = -s.

∂ID has its closed form (`derivatives`); Aᵀλ and A q̈ + Ȧq̇ are run on dual numbers, for a user's own constraints as well.

| code  | meaning                                                      |
|-------|--------------------------------------------------------------|
| A     | the rows that are kept as independent, as in `constrained`   |
| Y, W  | M⁻¹Aᵀ by its columns, A M⁻¹ Aᵀ                               |
| z     | M⁻¹ r, a column                                              |

Directions that open the loops have slopes too: those of these formulas, whatever a mechanism would do there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from qddot.algorithms import constrained_dynamics, dual_derivatives, loop_constraints
from qddot.algorithms.derivatives import inverse_dynamics_derivatives
from qddot.algorithms.sparse_factors import dof_above, inverse_factors, inverse_of, inverse_times, rows_of
from qddot.mechanism.model import Model
from qddot.scalars import Scalar, split, stack
from qddot.spatial.joint_blocks import Matrix, Vector

Columns = list[tuple[Sequence[Scalar], Sequence[Scalar]]]


def forward_dynamics_derivatives(
    model: Model, q: Any, v: Any, tau: Any, f_ext: Any = None, *, rows: Sequence[int]
) -> NDArray[Any]:
    """∂q̈ above ∂λ by q, by v and by τ, row after row, and the three numbers by which `constrained` judges a state."""
    n, count = model.nv, loop_constraints.count(model)
    solved = split(constrained_dynamics.direct(model, q, v, tau, f_ext, rows=rows))
    a, lam, judged = Vector(solved[:n]), Vector(solved[n + r] for r in rows), solved[n + count :]
    by_q, by_v, M = (rows_of(x) for x in _apart(inverse_dynamics_derivatives(model, q, v, stack(a), f_ext)))
    factors, all_A = inverse_factors(M, dof_above(model), model.floors), loop_constraints.jacobian_rows(model, q)
    A = Matrix(Vector(all_A[r]) for r in rows)
    Y = Matrix(Vector(inverse_times(*factors, row)) for row in A)
    W = Matrix(Vector(row.dot(y) for y in Y) for row in A).inverse()

    def pull(model: Model, q: Any, v: Any) -> NDArray[Any]:
        """Aᵀλ and A q̈ + Ȧq̇ with λ and q̈ held."""
        every, drift = loop_constraints.jacobian_rows(model, q), split(loop_constraints.bias(model, q, v))
        held = [Vector(every[r]) for r in rows]
        forces = [Vector(column).dot(lam) for column in zip(*held, strict=True)] if rows else [0.0] * n
        return stack([*forces, *(row.dot(a) + drift[r] for row, r in zip(held, rows, strict=True))])

    def solution(z: Sequence[Scalar], s: Sequence[Scalar]) -> tuple[Sequence[Scalar], Sequence[Scalar]]:
        """∂q̈ and ∂λ from z = M⁻¹ r and s."""
        dlam = W @ Vector(-1.0 * x - row.dot(z) for row, x in zip(A, s, strict=True))
        return [x + Vector(y).dot(dlam) for x, y in zip(z, zip(*Y, strict=True), strict=True)] if Y else z, dlam

    out: list[Columns] = []
    for which, slopes in enumerate((by_q, by_v)):
        pulled = list(zip(*_rows(dual_derivatives.by(pull, model, (q, v), which)), strict=True))
        r = [[x - y for x, y in zip(f, c, strict=False)] for f, c in zip(pulled, zip(*slopes, strict=True), strict=True)]
        out.append([solution(inverse_times(*factors, c), f[n:]) for c, f in zip(r, pulled, strict=True)])
    none = [0.0] * len(rows)
    out.append([solution(z, none) for z in rows_of(inverse_of(*factors))])
    return stack([*(x for columns in out for x in _entries(columns, rows, n, count)), *judged])


def jacobian_derivatives(model: Model, q: Any) -> NDArray[Any]:
    """∂A/∂q in the tangent space: [r, j, k] is the slope of A's entry [r, j] along degree of freedom k."""
    return dual_derivatives.by(loop_constraints.jacobian, model, (q,), 0)


def _entries(columns: Columns, rows: Sequence[int], n: int, count: int) -> list[Scalar]:
    """A matrix of n rows of ∂q̈ and one row of ∂λ for each constraint, zero for those that are not kept; row by row."""
    place = {n + r: k for k, r in enumerate(rows)}
    upper = [da[k] for k in range(n) for da, _ in columns]
    return upper + [dl[place[r]] if r in place else 0.0 for r in range(n, n + count) for _, dl in columns]


def _apart(stacked: NDArray[Any]) -> list[NDArray[Any]]:
    return [stacked[..., k, :, :] for k in range(stacked.shape[-3])]


def _rows(matrix: NDArray[Any]) -> list[list[Scalar]]:
    return [split(matrix[..., r, :]) for r in range(matrix.shape[-2])]
