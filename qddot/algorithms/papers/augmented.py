"""Forward dynamics from the sparse system of links and constraint forces, in O(n).

Featherstone & Orin 2000, section 3.5: (27) by its perfect elimination order, (28) as a block-tridiagonal system; both in
link coordinates, where P has -ⁱX_λ(i) in the place of -1. `operators.System` has the same matrices in full.

| code   | Featherstone & Orin | meaning                                                                    |
|--------|---------------------|----------------------------------------------------------------------------|
| h      | h_i                 | joint axes; h⁺ = (hᵀh)⁻¹hᵀ                                                 |
| T      | T_i                 | orthonormal basis of what a joint bears, hᵀT = 0 (F5)                      |
| c      | ḣ_i q̇_i             | acceleration that the joint velocity causes                                |
| r      | f_a - v × I v       | right side of a link's row                                                 |
| I[i]   | I_i                 | link i's diagonal block, with what the elimination of its children adds    |
| beta   | β_i                 | constraint force through joint i is T_i β_i                                |

(27). The pair (a_i, β_i) is eliminated from the leaves inward. It touches the pair of its parent only, so nothing fills in.
The pivot [[I, T], [Tᵀ, 0]] is solved through what the joint leaves free, a_i = T s + h y; that asks of I what the
articulated-body algorithm asks, that hᵀIh can be inverted.

(28). β alone: two joints meet where they touch one link. In a chain that is a block-tridiagonal matrix; where a link
carries several, all of them meet, and elimination inward fills in nothing either. It divides by the inertia of every
link. A degree of freedom with a rotor R is a constraint that yields: h⁺ᵀ joins T, and 1/R the diagonal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.algorithms import mimic_multipliers
from qddot.algorithms.passive_forces import passive_forces
from qddot.algorithms.sparse_factors import where_regular
from qddot.errors import FormulationError
from qddot.mechanism.model import Model
from qddot.spatial import (
    Ad_inv,
    Ad_inv_T,
    ArticulatedInertia,
    Force,
    Inertia,
    Motion,
    Transform,
    ad,
    ad_T,
    articulated,
    motion,
    transform_articulated,
    zero_motion,
)
from qddot.spatial.joint_blocks import (
    Ad_inv_T_columns,
    Forces,
    Inverse,
    Matrix,
    Motions,
    Vector,
    apply,
    as_forces,
    as_motions,
    complement,
)

_UNITS = tuple(motion([1.0 if r == k else 0.0 for r in range(6)]) for k in range(6))


def forward_dynamics(model: Model, q: Any, v: Any, tau: Any, f_ext: Any = None) -> NDArray[Any]:
    """q̈ from (27), pair by pair from the leaves inward."""
    tau = tau + passive_forces(model, q, v)
    if model.is_coupled:
        return mimic_multipliers.forward_dynamics(model, q, v, tau, f_ext, forward_dynamics)
    X, h, c, r = _right_sides(model, q, v, f_ext)
    tau, qdd = model.velocities(tau), model.joint_vector("qdd")
    I, pivot, a = model.per_link("I", "pivot", "a")
    I[0] = articulated(model.inertia[0])
    for i, _ in model.outward():
        I[i] = articulated(model.inertia[i])
    for i, p in model.inward():  # inward: eliminate (a_i, β_i)
        pivot[i] = _Pivot(I[i], h[i], model.armature[i], model.floor(i))
        if model.is_free_without_rotor(i):  # nothing but the joint's own force passes
            through = as_forces(h[i]) @ (pivot[i].gram @ tau[i])
        else:
            I[p] = I[p] + transform_articulated(X[i], pivot[i].complement())
            through = pivot[i].force(c[i], r[i], tau[i])
        r[p] = r[p] - Ad_inv_T(X[i], through)
    a[0] = model.base_acceleration
    for i, p in model.outward():  # outward: back substitution
        carried = Ad_inv(X[i], a[p]) + c[i]
        a_i, found = pivot[i].solve(carried, r[i], tau[i])
        a[i] = a_i
        qdd[i] = found
    return qdd.stack()


def _right_sides(model: Model, q: Any, v: Any, f_ext: Any) -> tuple[list[Transform], list[Motions], Any, Any]:
    """X, h, c = ḣ q̇, and r = f_x - v × I v, to which joint forces come later."""
    X, h, Sdot_v = model.joints_at(q, v)
    qd, f_x = model.velocities(v), model.external(f_ext)
    vel, c, r = model.per_link("v", "c", "r")
    vel[0], r[0] = zero_motion(), f_x[0]
    for i, p in model.outward():
        vel[i] = Ad_inv(X[i], vel[p]) + h[i] @ qd[i]
        c[i] = ad(vel[i], h[i] @ qd[i]) + Sdot_v[i]
        r[i] = f_x[i] + ad_T(vel[i], model.inertia[i] @ vel[i])
    return X, h, c, r


class _Pivot:
    """[[I, T], [Tᵀ, 0]] of one link: I a - T β = r + h⁺ᵀ(τ - R q̈) and Tᵀ a = Tᵀ A, if A is what its parent passes on."""

    def __init__(self, I: ArticulatedInertia, h: Motions, R: Vector, floor: Vector) -> None:
        self.I, self.h, self.R = I, h, R
        self.T = complement(h)
        self.gram = h.T.on(as_forces(h)).inverse()
        self.D = h.T.on(apply(I, h)).add_diagonal(R).inverse(floor)

    def solve(self, A: Motion, r: Force, tau: Sequence[Any]) -> tuple[Motion, Vector]:
        """a_i and q̈_i."""
        held = as_motions(self.T) @ self.T.dot(A)
        moved = self.gram @ as_forces(self.h).dot(A)  # h⁺A
        y = self.D @ (self.R.times(moved) + tau - self.h.T @ (self.I @ held - r))
        return held + self.h @ y, y - moved

    def force(self, A: Motion, r: Force, tau: Sequence[Any]) -> Force:
        """What passes through the joint."""
        return self.I @ self.solve(A, r, tau)[0] - r

    def complement(self) -> ArticulatedInertia:
        """What elimination adds to the parent's block: the force for each unit of A."""
        none, nothing = Vector((0.0,) * len(self.h)), Force(*zero_motion())
        w, u = (tuple(self.force(e, nothing, none) for e in part) for part in (_UNITS[:3], _UNITS[3:]))
        (I, H, M) = (tuple(zip(*rows, strict=True)) for rows in ([F.m for F in w], [F.m for F in u], [F.f for F in u]))
        return ArticulatedInertia(I, H, M)  # type: ignore[arg-type]


# ---- (28) ------------------------------------------------------------------------------------------------------------


def forward_dynamics_constraint_forces(model: Model, q: Any, v: Any, tau: Any, f_ext: Any = None) -> NDArray[Any]:
    """q̈ from (28): the constraint forces first, then every link by itself."""
    require_inertias(model, "constraint_forces")
    tau = tau + passive_forces(model, q, v)
    if model.is_coupled:
        return mimic_multipliers.forward_dynamics(model, q, v, tau, f_ext, forward_dynamics_constraint_forces)
    X, h, c, r = _right_sides(model, q, v, f_ext)
    dual = [as_forces(h_i).times(h_i.T.on(as_forces(h_i)).inverse()) for h_i in h]  # h⁺ᵀ
    tau, qdd = model.velocities(tau), model.joint_vector("qdd")
    for i, p in model.inward():  # f_a: joint forces, and back on the parent
        r[i] = r[i] + dual[i] @ tau[i]
        r[p] = r[p] - Ad_inv_T(X[i], dual[i] @ tau[i])
    (a,) = model.per_link("a")
    a[0] = model.base_acceleration
    I_inv: Any = [None, *(_Compliance(model.inertia[i]) for i, _ in model.outward())]
    for i, _ in model.outward():
        a[i] = I_inv[i] @ r[i]
    T, Y = _yielding_constraints(model, h, dual)
    right = [Vector(), *(T[i].dot(Ad_inv(X[i], a[p]) + c[i] - a[i]) for i, p in model.outward())]
    beta = _solved(*_meeting(model, X, T, Y, I_inv), right)
    for i, p in model.outward():  # a = I⁻¹(f_a + T β - v × I v)
        a[i] = a[i] + I_inv[i] @ (T[i] @ beta[i])
        if p:
            a[p] = a[p] - I_inv[p] @ Ad_inv_T(X[i], T[i] @ beta[i])
    for i, p in model.outward():
        qdd[i] = dual[i].dot(a[i] - Ad_inv(X[i], a[p]) - c[i])
    return where_regular(model, q, qdd.stack())


class _Compliance:
    """I_i⁻¹, from forces to motions."""

    def __init__(self, I: Inertia) -> None:
        self.inverse = Matrix(Vector((I @ e).components) for e in _UNITS).inverse()

    def __matmul__(self, F: Force) -> Motion:
        return motion(self.inverse @ F.components)


def _yielding_constraints(model: Model, h: list[Motions], dual: list[Forces]) -> tuple[list[Forces], list[Vector]]:
    """T_i with the columns of rotors, and what stands for each on the diagonal: nothing, or 1/R."""
    T, Y = [Forces()], [Vector()]
    for i, _ in model.outward():
        geared = [k for k, R in enumerate(model.armature[i]) if not (isinstance(R, float) and R == 0.0)]
        rigid = complement(h[i])
        T.append(Forces((*rigid, *(dual[i][k] for k in geared))))
        Y.append(Vector((*(0.0 for _ in rigid), *(1.0 / model.armature[i][k] for k in geared))))
    return T, Y


def _meeting(
    model: Model, X: list[Transform], T: list[Forces], Y: list[Vector], I_inv: Any
) -> tuple[dict[tuple[int, int], Matrix], list[list[int]]]:
    """The blocks of TᵀI⁻¹T below the diagonal, and for each joint those that it meets and that are eliminated after it."""
    carried = [Forces(), *(Ad_inv_T_columns(X[i], T[i]) for i, _ in model.outward())]  # T_i as the parent feels it
    K: dict[tuple[int, int], Matrix] = {}
    met: list[list[int]] = [[] for _ in model.parent]
    earlier: list[list[int]] = [[] for _ in model.parent]  # joints on a link, so far
    for i, _ in model.outward():
        own, p = Motions(I_inv[i] @ F for F in T[i]), model.parent[i]
        K[i, i] = own.T.on(T[i]).add_diagonal(Y[i])
        if p and T[i]:
            back = Motions(I_inv[p] @ F for F in carried[i])
            K[i, i] = K[i, i] + back.T.on(carried[i])
            for j in earlier[p]:
                K[i, j] = back.T.on(carried[j])
            K[i, p] = Matrix(-1.0 * row for row in back.T.on(T[p]))
            met[i] = [*earlier[p], *([p] if T[p] else [])]
            earlier[p].append(i)
    return K, met


def _solved(K: dict[tuple[int, int], Matrix], met: list[list[int]], right: list[Vector]) -> list[Vector]:
    """Block elimination from the last joint to the first, and back. K is symmetric and positive definite."""
    pivot: list[Inverse | None] = [None for _ in met]
    for i in reversed(range(1, len(met))):
        pivot[i] = inverse = K[i, i].inverse()
        for j in met[i]:
            right[j] = right[j] - K[i, j].T @ (inverse @ right[i])
            for k in met[i]:
                if k <= j:
                    K[j, k] = K[j, k] + _product(K[i, j], inverse, K[i, k], -1.0)
    beta = list(right)
    for i in range(1, len(met)):
        for j in sorted(met[i]):
            beta[i] = beta[i] - K[i, j] @ beta[j]
        beta[i] = pivot[i] @ beta[i]  # type: ignore[operator]
    return beta


def _product(A: Matrix, inverse: Inverse, B: Matrix, sign: float) -> Matrix:
    """sign · Aᵀ inverse B."""
    columns = [inverse @ column for column in B.T]
    return Matrix(Vector(sign * row.dot(column) for column in columns) for row in A.T)


def require_inertias(model: Model, formulation: str) -> None:
    """(28) divides by the inertia of every link: one that is a point, a thin rod or nothing at all stops here."""
    for i, _ in model.outward():
        I = model.inertia[i]
        numbers = [x for e in _UNITS for x in (I @ e).components]
        if all(isinstance(x, float | int | np.floating) for x in numbers):
            dense = np.array(numbers, dtype=float).reshape(6, 6)
            if not np.linalg.eigvalsh(dense)[0] > 1e-14 * max(1e-300, np.trace(dense)):
                raise FormulationError(
                    f"link {model.link_names[i]!r} has no mass or no inertia about some axis, and the formulation "
                    f"{formulation!r} divides by it; take 'augmented' or 'articulated_body'"
                )
