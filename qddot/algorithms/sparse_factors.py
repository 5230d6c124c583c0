"""The mass matrix factored as the tree allows: M = Lᵀ D L without fill-in, and M⁻¹ from it.

M_ij is zero unless one of the DoF i, j carries the other; eliminating from the leaves inward keeps it so. Lin 1991
recommends LDLᵀ for solving with the inertia matrix; the order that the tree's sparsity asks for is Featherstone's (the
ABA reads M the same way, see `articulated_body`). Degrees of freedom are numbered as in v, ancestors first.

| code   | meaning                                                           |
|--------|-------------------------------------------------------------------|
| above[k] | the degrees of freedom that carry degree of freedom k, nearest first                |
| L, D   | factors: unit lower triangular, diagonal                          |
| Y      | L⁻¹, with the same zeros                                          |

Cost: O(n depth²) to factor, O(n² depth) for the inverse.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.algorithms.composite_body import mass_matrix
from qddot.algorithms.newton_euler_classical import rigid_body_forces
from qddot.algorithms.passive_forces import passive_forces
from qddot.mechanism.model import Model
from qddot.scalars import Scalar, less, pivot, split, stack, total, where
from qddot.spatial.joint_blocks import Matrix, Vector

Sparse = list[dict[int, Scalar]]


def dof_above(model: Model) -> list[list[int]]:
    """For each DoF those that carry it, nearest first. Mimic joints couple branches: then all that come before."""
    if model.is_coupled:
        return [list(range(k - 1, -1, -1)) for k in range(model.nv)]
    above: list[list[int]] = []
    for i, p in model.outward():
        start, stop = model.slots[i].v.start, model.slots[i].v.stop
        carried = [] if p == 0 else [model.slots[p].v.stop - 1, *above[model.slots[p].v.stop - 1]]
        for k in range(start, stop):
            above.append([*range(k - 1, start - 1, -1), *carried])
    return above


def factors(
    M: Sequence[Sequence[Scalar]], above: list[list[int]], floors: Sequence[Scalar] = ()
) -> tuple[Sparse, list[Scalar]]:
    """L and the reciprocals of D with M = Lᵀ D L: each row less what the degrees of freedom that it carries take from it.

    What D is not above its floor is rounding, and gives NaN; degrees of freedom without a floor are not watched.
    """
    watched = dict(enumerate(floors))
    H: Sparse = [{k: M[k][k], **{i: M[k][i] for i in above[k]}} for k in range(len(M))]
    L: Sparse = [{} for _ in above]
    reciprocal: list[Scalar] = [None] * len(above)
    for i in reversed(range(len(above))):
        for k in reversed(range(i + 1, len(above))):
            for j in H[i] if i in L[k] else ():
                H[i][j] = H[i][j] - L[k][i] * H[k][j]
        reciprocal[i] = 1.0 / pivot(H[i][i], watched.get(i, 0.0))
        L[i] = {j: H[i][j] * reciprocal[i] for j in above[i]}
    return L, reciprocal


def forward_dynamics(model: Model, q: Any, v: Any, tau: Any, f_ext: Any = None) -> NDArray[Any]:
    """a = M⁻¹(tau + passive - bias + Jᵀf_ext) by solving with the factors. Walker & Orin; cheapest for few DoF."""
    bias = rigid_body_forces(model, q, v, np.zeros(model.nv), f_ext)
    return solve(model, mass_matrix(model, q), tau + passive_forces(model, q, v) - bias)


def solve(model: Model, M: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """M⁻¹ b by the factors of M."""
    above = dof_above(model)
    L, reciprocal = factors(rows_of(M), above, model.floors)
    return stack(solve_outward(L, reciprocal, above, solve_inward(L, above, split(b))))


def solve_inward(L: Sparse, above: list[list[int]], b: Sequence[Scalar]) -> list[Scalar]:
    """L⁻ᵀ b."""
    x = list(b)
    for k in reversed(range(len(x))):
        for i in above[k]:
            x[i] = x[i] - L[k][i] * x[k]
    return x


def solve_outward(L: Sparse, reciprocal: Sequence[Scalar], above: list[list[int]], b: Sequence[Scalar]) -> list[Scalar]:
    """L⁻¹ D⁻¹ b."""
    x = list(b)
    for k in range(len(x)):
        x[k] = x[k] * reciprocal[k]
        for i in above[k]:
            x[k] = x[k] - L[k][i] * x[i]
    return x


def where_regular(model: Model, q: Any, a: NDArray[Any]) -> NDArray[Any]:
    """Accelerations by a formulation that never meets a pivot of M: NaN where one is rounding."""
    if not model.is_guarded:
        return a
    _, reciprocal = factors(rows_of(mass_matrix(model, q)), dof_above(model), model.floors)
    sound = less(0.0, total(reciprocal))
    return stack([where(sound, x, math.nan) for x in split(a)])


def _is_zero(x: Scalar) -> bool:
    return isinstance(x, float) and x == 0.0


def rows_of(M: NDArray[Any]) -> Matrix:
    """A matrix by rows of scalars."""
    m, n = M.shape[-2:]
    flat = split(M.reshape(*M.shape[:-2], m * n))
    return Matrix(Vector(flat[r * n : (r + 1) * n]) for r in range(m))


def mass_matrix_inverse(model: Model, q: Any) -> NDArray[Any]:
    """M⁻¹ = L⁻¹ D⁻¹ L⁻ᵀ: degrees of freedom a and b meet in the degrees of freedom that carry both."""
    return inverse_of(*inverse_factors(rows_of(mass_matrix(model, q)), dof_above(model), model.floors))


def inverse_factors(
    M: Sequence[Sequence[Scalar]], above: list[list[int]], floors: Sequence[Scalar] = ()
) -> tuple[Sparse, list[Scalar]]:
    """Y = L⁻¹ and the reciprocals of D."""
    L, reciprocal = factors(M, above, floors)
    Y: Sparse = [{k: 1.0} for k in range(len(L))]
    for k in range(len(L)):
        for n, i in enumerate(above[k]):
            Y[k][i] = -L[k][i]
            for j in above[k][:n]:
                Y[k][i] = Y[k][i] - L[k][j] * Y[j][i]
    return Y, reciprocal


def inverse_of(Y: Sparse, reciprocal: list[Scalar]) -> NDArray[Any]:
    """M⁻¹ from its factors."""
    n = len(Y)
    entries: dict[tuple[int, int], Scalar] = {}
    for b, row in enumerate(Y):
        scaled = {i: x * reciprocal[i] for i, x in row.items()}
        for a in range(b, n):
            terms = [Y[a][k] * x for k, x in scaled.items() if k in Y[a]]
            entries[a, b] = entries[b, a] = total(terms)
    return stack([entries[a, b] for a in range(n) for b in range(n)], (n, n))


def inverse_times(Y: Sparse, reciprocal: list[Scalar], b: Sequence[Scalar]) -> list[Scalar]:
    """M⁻¹ b. Where b is known to be zero nothing is done for it: x_k comes by way of the DoF that carry both."""
    z: dict[int, Scalar] = {}
    for k, x in enumerate(b):
        for i, y in Y[k].items() if not _is_zero(x) else ():
            z[i] = z[i] + y * x if i in z else y * x
    z = {i: x * reciprocal[i] for i, x in z.items()}
    out = []
    for row in Y:
        terms = [y * z[i] for i, y in row.items() if i in z]
        out.append(total(terms))
    return out
