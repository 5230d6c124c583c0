"""Inertias of rigid and articulated bodies, in block form.   Kim 2012, (20)-(23)."""

from __future__ import annotations

from typing import NamedTuple

from qddot.scalars import Scalar, known, less, where
from qddot.spatial.rotation import (
    IDENTITY,
    ZERO,
    Mat,
    Rotation,
    Vec,
    add,
    cross,
    dot,
    mat_add,
    mat_mat,
    mat_sub,
    mat_vec,
    outer,
    scale,
    scaled_eye,
    skew,
    symmetric,
    transpose,
)
from qddot.spatial.transform import Force, Motion, Transform, rounded


class Inertia(NamedTuple):
    """Generalized inertia of a rigid body, Kim (20): mass m, first moment h = m c, second moment I about the origin."""

    m: Scalar
    h: Vec
    I: Mat

    def __matmul__(self, V: Motion) -> Force:
        """𝓘 V, Kim (23)."""
        return Force(add(mat_vec(self.I, V.w), cross(self.h, V.v)), add(scale(self.m, V.v), cross(V.w, self.h)))

    def __repr__(self) -> str:
        """Mass, centre of mass and the inertia about it, as a file has them, to six digits."""
        if not all(isinstance(x, float | int) for x in (self.m, *self.h, *self.I[0], *self.I[1], *self.I[2])):
            return f"Inertia(m={self.m!r}, h={self.h!r}, I={self.I!r})"
        c, (_, _, I) = about_centre(self)
        rounding = 1e-12 * max(map(abs, (*self.I[0], *self.I[1], *self.I[2])))
        entries = {"ixx": I[0][0], "ixy": I[0][1], "ixz": I[0][2], "iyy": I[1][1], "iyz": I[1][2], "izz": I[2][2]}
        moments = ", ".join(f"{name}={x if abs(x) > rounding else 0:.6g}" for name, x in entries.items())
        return f"Inertia(mass={self.m:.6g}, com={rounded(c)}, {moments} about com)"

    def __add__(self, other: Inertia) -> Inertia:  # type: ignore[override]
        return Inertia(self.m + other.m, add(self.h, other.h), mat_add(self.I, other.I))


def inertia_from(m: Scalar, c: Vec, I_c: Mat, R: Rotation = IDENTITY) -> Inertia:
    """Kim (22): from mass, centre of mass, and the inertia about it in axes R."""
    h = scale(m, c)
    return Inertia(m, h, mat_add(R.similar(I_c), mat_mat(skew(h), transpose(skew(c)))))


def second_moments(G: Inertia) -> Mat:
    """P = ∫ r rᵀ dm, which has I = tr P 1 - P."""
    (xx, xy, xz), (_, yy, yz), (_, _, zz) = G.I
    if None in map(known, (xx, yy, zz)):
        half = 0.5 * (xx + yy + zz)
        a, b, c = half - xx, half - yy, half - zz
    else:
        a, b, c = _half_sum(yy, zz, xx), _half_sum(xx, zz, yy), _half_sum(xx, yy, zz)
    return ((a, -xy, -xz), (-xy, b, -yz), (-xz, -yz, c))


def _half_sum(a: Scalar, b: Scalar, less_c: Scalar) -> Scalar:
    """(a + b - c) / 2. The two largest moments of a long thin body are almost equal, and are subtracted first."""
    small, large = sorted((a, b), key=known)  # type: ignore[arg-type]
    return 0.5 * ((large - less_c) + small)


def transform_inertia(T: Transform, G: Inertia) -> Inertia:
    """Ad*_{T⁻¹} 𝓘 Ad_{T⁻¹}, Kim (21): an inertia known in B, in A, for T_AB."""
    m, h, I = G
    for P in reversed(T.parts):
        h, I = P.R @ h, P.R.similar_symmetric(I)
        if P.p is not ZERO:
            I = mat_add(I, steiner(P.p, add(h, scale(0.5 * m, P.p))))
            h = add(h, scale(m, P.p))
    return Inertia(m, h, I)


def steiner(p: Vec, w: Vec) -> Mat:
    """2 (p·w) 1 - p wᵀ - w pᵀ: what a shift by p adds to a second moment, with w the first moment half way."""
    x, y, z = 2.0 * p[0] * w[0], 2.0 * p[1] * w[1], 2.0 * p[2] * w[2]
    xy, xz, yz = (p[i] * w[j] + p[j] * w[i] for i, j in ((0, 1), (0, 2), (1, 2)))
    return ((y + z, -xy, -xz), (-xy, x + z, -yz), (-xz, -yz, x + y))


def about_centre(G: Inertia) -> tuple[Vec, Inertia]:
    """The centre of mass, and the inertia about it: Kim (22) backwards.

    What has no mass has no such point; its origin stands for it, and a first moment may be left.
    """
    massive = less(0.0, G.m)
    c = scale(where(massive, 1.0, 0.0) / where(massive, G.m, 1.0), G.h)
    x, y, z = (where(massive, 0.0, k) for k in G.h)
    return c, Inertia(G.m, (x, y, z), mat_sub(G.I, steiner(c, scale(0.5 * G.m, c))))


def zero_inertia() -> Inertia:
    return Inertia(0.0, ZERO, (ZERO, ZERO, ZERO))


class ArticulatedInertia(NamedTuple):
    """[[I, H], [Hᵀ, M]]: what a body's inertia becomes when joints hang on it. Featherstone & Orin (11), Kim (43)."""

    I: Mat
    H: Mat
    M: Mat

    def __matmul__(self, V: Motion) -> Force:
        return Force(
            add(mat_vec(self.I, V.w), mat_vec(self.H, V.v)),
            add(mat_vec(transpose(self.H), V.w), mat_vec(self.M, V.v)),
        )

    def __add__(self, other: ArticulatedInertia) -> ArticulatedInertia:  # type: ignore[override]
        return ArticulatedInertia(mat_add(self.I, other.I), mat_add(self.H, other.H), mat_add(self.M, other.M))


def articulated(G: Inertia) -> ArticulatedInertia:
    """A rigid inertia in the form that can lose a degree of freedom."""
    return ArticulatedInertia(G.I, skew(G.h), scaled_eye(G.m))


def zero_articulated() -> ArticulatedInertia:
    return articulated(zero_inertia())


def transform_articulated(T: Transform, A: ArticulatedInertia) -> ArticulatedInertia:
    """Ad*_{T⁻¹} 𝓘̂ Ad_{T⁻¹}: an articulated inertia known in B, in A, for T_AB."""
    I, H, M = A
    for P in reversed(T.parts):
        I, H, M = P.R.similar_symmetric(I), P.R.similar(H), P.R.similar_symmetric(M)
        if P.p is not ZERO:
            # with b = [p]: I + b Hᵀ - (H + b M) b, H + b M
            b = skew(P.p)
            shifted = mat_add(H, mat_mat(b, M))
            I = symmetric(mat_sub(mat_add(I, mat_mat(b, transpose(H))), mat_mat(shifted, b)))
            H = shifted
    return ArticulatedInertia(I, H, M)


def moment_across(n: Vec, I: Mat) -> Mat:
    """J (1 - n nᵀ), which a rotation about n does not change: with J = ∫ (r·n)² dm nothing is left of that."""
    J = 0.5 * (I[0][0] + I[1][1] + I[2][2]) - dot(n, mat_vec(I, n))
    return mat_sub(scaled_eye(J), outer(scale(J, n), n))
