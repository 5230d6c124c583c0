"""The inertia matrix from the partial derivatives of link velocities with respect to joint velocities, in O(n³).

Lin 1991, introduction and Table I: "an explicit formulation which relates the entries of the inertia matrix to the partial
derivatives of the velocities and angular velocities of links with respect to the joint velocities [...] only adequate to
manipulators with few joints since its computational complexity is of order n³". The work it cites, S. K. Lin, *An
efficient formulation for the dynamic simulation of robots*, IFAC Symposium on Robot Control 1988, is not among our papers;
the formulation is the second derivative of the kinetic energy T = Σ ½ m_i v_i·v_i + ½ ω_i·I_i ω_i by q̇_m and q̇_j:

    H_mj = Σ_i  m_i ∂v_i/∂q̇_m · ∂v_i/∂q̇_j + ∂ω_i/∂q̇_m · I_i ∂ω_i/∂q̇_j

On a tree the sum is over the links i that joint j carries, and "m <= j" is "m carries j".

| code       | Lin 1991      | meaning                                                       |
|------------|---------------|---------------------------------------------------------------|
| u[m], s[m] | u_m^<i>, ^i_ms^<i> | axis of joint m, and the way from it to the origin of E_i, in E_i |
| w[m], v[m] | ∂ω_i/∂q̇_m, ∂v_i/∂q̇_m | of link i and of its centre of mass                       |
| p, L       | m_i ∂v_i/∂q̇_j, I_i ∂ω_i/∂q̇_j | momenta; m_i is multiplied once a joint j, not once a pair (m, j) |

A regrouped link has a first moment h and no mass; h then couples p and L, and v is taken at the origin of its frame.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from qddot.algorithms.papers.lin_frames import joint_frames, outward, put, shifted
from qddot.joints import Z
from qddot.mechanism.model import Model
from qddot.scalars import Scalar
from qddot.spatial import about_centre
from qddot.spatial.rotation import ZERO, Vec, add, cross, dot, mat_vec, scale


def mass_matrix(model: Model, q: Any) -> NDArray[Any]:
    """H_mj, link by link."""
    E, H = joint_frames(model, q), model.joint_matrix("H")
    u, s = dict[tuple[int, int], Vec](), dict[tuple[int, int], Vec]()
    sums: dict[tuple[int, int], Scalar] = {}
    for i, before in model.outward():
        u[i, i], s[i, i] = Z, ZERO
        for m in model.ancestors(before):
            u[m, i], s[m, i] = outward(E.T[i], u[m, before]), shifted(E.T[i], s[m, before])
        c, (m_i, h, I) = about_centre(E.inertia[i])
        w, v = dict[int, Vec](), dict[int, Vec]()
        for m in model.ancestors(i):
            w[m] = scale(E.K_star[m], u[m, i])
            v[m] = add(cross(w[m], add(s[m, i], c)), scale(E.K[m], u[m, i]))
        for j in model.ancestors(i):
            p = add(scale(m_i, v[j]), cross(w[j], h))
            L = add(mat_vec(I, w[j]), cross(h, v[j]))
            for m in model.ancestors(j):
                sums[m, j] = sums.get((m, j), 0.0) + (dot(v[m], p) + dot(w[m], L))
    for (m, j), H_mj in sums.items():
        put(model, H, m, j, H_mj)
    return H.stack()
