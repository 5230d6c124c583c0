"""A Coriolis matrix: C(q, v) v is the velocity part of the bias, and Ṁ - 2C is skew.

Not in Featherstone & Orin or Kim; Saha's convective inertia matrix has the same property (his section 3.2). Here it
follows from the equation of one body, Kim (31), F = 𝓘 V̇ - ad*_V 𝓘 V. With the momentum L = (l, k) = 𝓘 V,

    -ad*_V L = B V,    B = -[[ [l], [k] ], [ [k], 0 ]],

and B is skew, so with V = J v the sum over the bodies C = Σ Jᵀ(𝓘 J̇ + B J) has C + Cᵀ = Ṁ.

| code    | meaning                                                             |
|---------|---------------------------------------------------------------------|
| rate[i] | Ṡ_i + ad_{V_i} S_i, how the axes of joint i change in space         |
| I_C[i]  | composite inertia                                                   |
| B_C[i]  | composite of B - 𝓘 ad_V over the subtree of link i                  |
| driven, carried, turned | forces of a column, on their way to the base        |

Cost: O(n · depth).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

from qddot.algorithms.composite_body import composite_inertias
from qddot.algorithms.kinematics import apparent_rate, link_velocities
from qddot.mechanism.joint_arrays import PerLink
from qddot.mechanism.model import Model
from qddot.spatial import Ad_inv_T, Force, Inertia, Motion, Transform, zero_inertia, zero_motion
from qddot.spatial.rotation import ZERO, Mat, add, mat_add, mat_mat, mat_sub, mat_vec, scale, skew, transpose


class VelocityInertia(NamedTuple):
    """A map from se(3) to dse(3) in four blocks, [[P, Q], [R, Z]]: momentum's dependence on where a body is going."""

    P: Mat
    Q: Mat
    R: Mat
    Z: Mat

    def __matmul__(self, V: Motion) -> Force:
        return Force(add(mat_vec(self.P, V.w), mat_vec(self.Q, V.v)), add(mat_vec(self.R, V.w), mat_vec(self.Z, V.v)))

    @property
    def T(self) -> VelocityInertia:
        return VelocityInertia(transpose(self.P), transpose(self.R), transpose(self.Q), transpose(self.Z))

    def __add__(self, other: VelocityInertia) -> VelocityInertia:  # type: ignore[override]
        return VelocityInertia(*(mat_add(a, b) for a, b in zip(self, other, strict=True)))


def velocity_inertia(G: Inertia, V: Motion) -> VelocityInertia:
    """B - 𝓘 ad_V of one body."""
    L = G @ V
    W, U, h = skew(V.w), skew(V.v), skew(G.h)
    l, k = skew(scale(-1.0, L.m)), skew(scale(-1.0, L.f))
    P = mat_sub(l, mat_add(mat_mat(G.I, W), mat_mat(h, U)))
    R = mat_sub(k, mat_sub(skew(scale(G.m, V.v)), mat_mat(h, W)))
    return VelocityInertia(P, mat_sub(k, mat_mat(h, W)), R, skew(scale(-G.m, V.w)))


def velocity_inertia_seen(T: Transform, A: VelocityInertia) -> VelocityInertia:
    """Ad*_{T⁻¹} A Ad_{T⁻¹}: known in B, in A's frame, for T_AB."""
    for part in reversed(T.parts):
        P, Q, R, Z = (part.R.similar(block) for block in A)
        if part.p is not ZERO:
            b = skew(part.p)
            P, Q = mat_add(P, mat_mat(b, R)), mat_add(Q, mat_mat(b, Z))
            P, R = mat_sub(P, mat_mat(Q, b)), mat_sub(R, mat_mat(Z, b))
        A = VelocityInertia(P, Q, R, Z)
    return A


def coriolis_matrix(model: Model, q: Any, v: Any) -> NDArray[Any]:
    """C(q, v): C v + gravity is the bias force, and Ṁ = C + Cᵀ."""
    T, S, V = model.transforms(q), model.axes(q), link_velocities(model, q, v)
    I_C, B_C, C = composite_inertias(model, T), _composites(model, T, V), model.joint_matrix("C")
    rate, driven, carried, turned = model.per_link("rate", "driven", "carried", "turned")
    for i, _ in model.outward():
        rate[i] = apparent_rate(model, q, v, i, V[i], S[i])
    for i, p, k in model.columns():
        column, row, s = C.column(i, k), C.row(i, k), S[i][k]
        driven[i], carried[i], turned[i] = I_C[i] @ rate[i][k] + B_C[i] @ s, I_C[i] @ s, B_C[i].T @ s
        column[i] = S[i].T @ driven[i]
        for F in (driven, carried, turned):
            F[p] = Ad_inv_T(T[i], F[i])
        for j, p_j in model.path_to_base(p):
            column[j] = S[j].T @ driven[j]
            row[j] = rate[j].T @ carried[j] + S[j].T @ turned[j]
            for F in (driven, carried, turned):
                F[p_j] = Ad_inv_T(T[j], F[j])
    return C.stack()


def _composites(model: Model, T: list[Transform], V: list[Motion]) -> PerLink:
    """B - 𝓘 ad_V of each link with all that it carries."""
    B_C, below = model.per_link("B_C", "below")
    below[0] = _nothing()
    for i, _ in model.outward():
        below[i] = _nothing()
    for i, p in model.inward():
        B_C[i] = velocity_inertia(model.inertia[i], V[i]) + below[i]
        below[p] = below[p] + velocity_inertia_seen(T[i], B_C[i])
    return B_C


def _nothing() -> VelocityInertia:
    return velocity_inertia(zero_inertia(), zero_motion())
