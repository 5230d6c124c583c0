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

Cost: O(n · depth).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

from qddot.algorithms.kinematics import apparent_rate, link_velocities
from qddot.blocks import Ad_inv_T_columns, Forces, Matrix, Motions, apply
from qddot.model import Model
from qddot.rotation import (
    ZERO,
    Mat,
    add,
    mat_add,
    mat_mat,
    mat_sub,
    mat_vec,
    scale,
    skew,
    transpose,
)
from qddot.spatial import Force, Inertia, Motion, Transform, inertia_seen


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
    I_C, C = list(model.inertia), model.joint_matrix("C")
    B_C = [velocity_inertia(model.inertia[i], V[i]) for i in range(len(V))]
    rate = [apparent_rate(model, q, v, i, V[i], S[i]) if i else Motions() for i in range(len(V))]
    for i, p in model.inward():
        driven = apply(I_C[i], rate[i]) + Forces(B_C[i] @ s for s in S[i])
        carried, turned = apply(I_C[i], S[i]), Forces(B_C[i].T @ s for s in S[i])
        C[i, i] = S[i].T.on(driven)
        j = i
        while model.parent[j] > 0:
            driven, carried, turned = (Ad_inv_T_columns(T[j], U) for U in (driven, carried, turned))
            j = model.parent[j]
            C[j, i] = S[j].T.on(driven)
            C[i, j] = Matrix(rate[j].T.on(carried) + S[j].T.on(turned)).T
        I_C[p] = I_C[p] + inertia_seen(T[i], I_C[i])
        B_C[p] = B_C[p] + velocity_inertia_seen(T[i], B_C[i])
    return C.stack()
