"""Spatial algebra against dense 4×4 and 6×6 matrices, built here from the formulas that Kim 2012, section 1 prints.

The matrices below share nothing with qddot: they are NumPy arrays, and mpmath at 60 digits where accuracy is judged.
"""

from __future__ import annotations

import math
import pickle

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf

from qddot import scalars, spatial
from qddot.spatial import (
    Ad,
    Ad_inv,
    Ad_inv_T,
    Ad_T,
    ArticulatedInertia,
    Force,
    Inertia,
    Motion,
    Product,
    Transform,
    ad,
    ad_T,
    rotation,
)
from qddot.spatial.dual import Dual
from qddot.spatial.rotation import EYE, IDENTITY, ZERO, AxisRotation, Rotation, axis_angle
from tests.support.profiles import examples

# Results of a few dozen operations on numbers up to about ten: a hundred roundings of 1e-16 × 10.
ROUNDING = 1e-13
# Complex steps have no cancellation, so the derivatives they give are as good as values; the step only has to vanish
# beside the numbers it is added to.
STEP = 1e-200


# ---- dense matrices --------------------------------------------------------------------------------------------------


def cross_matrix(a):
    """[a] of Kim (5)."""
    return np.array([[0 * a[0], -a[2], a[1]], [a[2], 0 * a[0], -a[0]], [-a[1], a[0], 0 * a[0]]])


def homogeneous(T):
    """Kim (3)."""
    out = np.eye(4, dtype=np.result_type(float, np.array(T.R.rows).dtype, np.array(T.p).dtype))
    out[:3, :3], out[:3, 3] = np.array(T.R.rows), np.array(T.p)
    return out


def twist_matrix(x):
    """Kim (5): 4×4."""
    out = np.zeros((4, 4), dtype=np.asarray(x).dtype)
    out[:3, :3], out[:3, 3] = cross_matrix(x[:3]), x[3:]
    return out


def twist_of(X):
    """The inverse of `twist_matrix`."""
    return np.array([X[2, 1], X[0, 2], X[1, 0], X[0, 3], X[1, 3], X[2, 3]])


def adjoint(T):
    """Kim (7): 6×6, of a 4×4 matrix."""
    R, p = T[:3, :3], T[:3, 3]
    return np.block([[R, np.zeros((3, 3))], [cross_matrix(p) @ R, R]])


def small_adjoint(x):
    """Kim (27): 6×6."""
    W, V = cross_matrix(x[:3]), cross_matrix(x[3:])
    return np.block([[W, np.zeros((3, 3))], [V, W]])


def inertia_matrix(G):
    """Kim (20): 6×6, with the first and second moments of G."""
    h = cross_matrix(np.array(G.h))
    return np.block([[np.array(G.I), h], [h.T, G.m * np.eye(3)]])


def articulated_matrix(A):
    I, H, M = (np.array(block) for block in A)
    return np.block([[I, H], [H.T, M]])


def six(x):
    return np.array(x.components)


def matrix_of(function, kind):
    """The 6×6 matrix of a linear function, column by column."""
    return np.stack([six(function(kind(e))) for e in np.eye(6).tolist()], axis=-1)


def random_rotation(rng):
    Q, upper = np.linalg.qr(rng.standard_normal((3, 3)))
    Q = Q * np.sign(np.diag(upper))
    return Q if np.linalg.det(Q) > 0 else -Q


def rotation_of(Q):
    return Rotation(tuple(tuple(row) for row in np.asarray(Q).tolist()))


def vector(rng, n=3):
    return tuple(rng.standard_normal(n).tolist())


def random_transform(rng):
    return Transform(rotation_of(random_rotation(rng)), vector(rng))


def random_inertia(rng):
    A = rng.standard_normal((3, 3))
    I_c = tuple(map(tuple, (A @ A.T).tolist()))
    return spatial.inertia_from(float(rng.uniform(0.5, 3.0)), vector(rng), I_c)


def random_articulated(rng):
    A = rng.standard_normal((6, 6))
    A = A @ A.T
    return ArticulatedInertia(
        *(tuple(map(tuple, block.tolist())) for block in (A[:3, :3], A[:3, 3:], A[3:, 3:])),
    )


def _transforms():
    rng = np.random.default_rng(7)
    turn = [AxisRotation(k, math.cos(0.3 + k), math.sin(0.3 + k)) for k in range(3)]
    return {
        "dense": random_transform(rng),
        "identity": Transform(),
        "shift": Transform(p=vector(rng)),
        "turn": Transform(rotation_of(random_rotation(rng))),
        "about x": Transform(turn[0], vector(rng)),
        "about y": Transform(turn[1]),
        "about z": Transform(turn[2], vector(rng)),
        "placement, revolute": Product(random_transform(rng), Transform(turn[1])),
        "placement, prismatic": Product(random_transform(rng), Transform(p=vector(rng))),
        "identity, joint": Product(Transform(), Transform(turn[0])),
        "placement, fixed": Product(random_transform(rng), Transform()),
        "nested": Product(Transform(turn[2]), random_transform(rng), Transform(turn[0], vector(rng))),
        "nothing": Product(Transform(), Transform()),
    }


TRANSFORMS = _transforms()
every_transform = pytest.mark.parametrize("T", TRANSFORMS.values(), ids=TRANSFORMS.keys())


def near(actual, expected, tolerance=ROUNDING):
    np.testing.assert_allclose(np.array(actual), np.array(expected), rtol=0, atol=tolerance)


# ---- 1.1 rigid motions: (1)-(8) --------------------------------------------------------------------------------------


@every_transform
def test_rotation_matrix(T):
    """(1) (2): the columns are the axes of B seen in A; orthogonal, right-handed."""
    R = np.array(T.R.rows)
    near(np.stack([np.array(T.R @ e) for e in EYE], axis=-1), R, 0)
    near(R @ R.T, np.eye(3))
    assert np.linalg.det(R) == pytest.approx(1.0, abs=ROUNDING)
    near(T.R.T.rows, R.T, 0)
    A = np.random.default_rng(1).standard_normal((3, 3))
    near(T.R.similar(tuple(map(tuple, A.tolist()))), R @ A @ R.T)


@every_transform
def test_homogeneous_transform(T):
    """(3) (4): products and inverses are those of 4×4 matrices; a product left apart is the one multiplied out."""
    H, x = homogeneous(T), (0.3, -1.2, 0.7)
    R, p = H[:3, :3], H[:3, 3]
    printed = np.block([[R.T, -(R.T @ p)[:, None]], [np.zeros((1, 3)), 1.0]])
    near(homogeneous(T.inverse()), printed)
    near(homogeneous(T.inverse()), np.linalg.inv(H))
    near((*T.point(x), 1.0), H @ np.array((*x, 1.0)))
    for other in TRANSFORMS.values():
        near(homogeneous(T @ other), H @ homogeneous(other))
        near(homogeneous(Product(T, other)), H @ homogeneous(other))


def test_twist_matrix():
    """(5): [w] x is w × x, and the 4×4 matrix of a twist is what the exponential starts with."""
    rng = np.random.default_rng(2)
    w, x = vector(rng), vector(rng)
    near(rotation.skew(w), cross_matrix(w), 0)
    near(np.array(rotation.skew(w)) @ x, np.cross(w, x))
    near(rotation.cross(w, x), np.cross(w, x))
    xi = np.array((*w, *x))
    first_order = homogeneous(spatial.exp(spatial.motion((xi * STEP * 1j).tolist()))).imag / STEP
    near(first_order, twist_matrix(xi))


@every_transform
def test_adjoint(T):
    """(6) (7): T ξ T⁻¹, and the 6×6 matrix."""
    H, xi = homogeneous(T), np.random.default_rng(3).standard_normal(6)
    near(six(Ad(T, spatial.motion(xi.tolist()))), twist_of(H @ twist_matrix(xi) @ np.linalg.inv(H)))
    near(matrix_of(lambda V: Ad(T, V), spatial.motion), adjoint(H))
    near(matrix_of(lambda V: Ad_inv(T, V), spatial.motion), np.linalg.inv(adjoint(H)))


@every_transform
def test_coadjoint(T):
    """(8): the transpose of the adjoint."""
    A = adjoint(homogeneous(T))
    near(matrix_of(lambda F: Ad_T(T, F), spatial.force), A.T)
    near(matrix_of(lambda F: Ad_inv_T(T, F), spatial.force), np.linalg.inv(A).T)


# ---- 1.2 velocities and forces: (9)-(13) -----------------------------------------------------------------------------


def moving(T0, xi):
    """T(t) = T0 exp(t ξ) at an imaginary t, whose velocity at t = 0 is ξ."""
    return T0 @ spatial.exp(spatial.motion((np.asarray(xi) * STEP * 1j).tolist()))


def rate(values):
    """The time derivative of something evaluated on `moving`."""
    return np.array(values).imag / STEP


def test_body_velocity():
    """(9) (10): V = T⁻¹Ṫ, components (w, v) with [w] = RᵀṘ and v = Rᵀṗ."""
    rng = np.random.default_rng(4)
    T0, xi = random_transform(rng), rng.standard_normal(6)
    H, H_dot = homogeneous(T0), rate(homogeneous(moving(T0, xi)))
    V = twist_of(np.linalg.inv(H) @ H_dot)
    near(V, xi)
    near(cross_matrix(V[:3]), H[:3, :3].T @ H_dot[:3, :3])
    near(V[3:], H[:3, :3].T @ H_dot[:3, 3])
    assert spatial.motion(V.tolist()).w == tuple(V[:3].tolist())
    assert spatial.motion(V.tolist()).components == tuple(V.tolist())


@every_transform
def test_velocity_of_two_frames(T):
    """(11): the velocity of {B} from that of {A} on the same body, V_b = Ad_{T_ba} V_a, for T = T_ab."""
    rng = np.random.default_rng(5)
    T_a, V_a = random_transform(rng), rng.standard_normal(6)
    H_b, H_b_dot = homogeneous(T_a @ T), rate(homogeneous(moving(T_a, V_a) @ T))
    V_b = twist_of(np.linalg.inv(H_b) @ H_b_dot)
    near(six(Ad(T.inverse(), spatial.motion(V_a.tolist()))), V_b)
    near(six(Ad_inv(T, spatial.motion(V_a.tolist()))), V_b)


@every_transform
def test_force_in_two_frames(T):
    """(12) (13): a force (m, f) seen in {B} does the same work; a pure force at a point has the moment r × f."""
    rng = np.random.default_rng(6)
    r, f, V_a = vector(rng), vector(rng), spatial.motion(vector(rng, 6))
    F_a = Force(tuple(np.cross(r, f).tolist()), f)
    F_b, V_b = Ad_T(T, F_a), Ad_inv(T, V_a)
    H = homogeneous(T)
    r_b, f_b = (np.linalg.inv(H) @ (*r, 1.0))[:3], H[:3, :3].T @ f
    near(F_b.f, f_b)
    near(F_b.m, np.cross(r_b, f_b))
    assert V_b.dot(F_b) == pytest.approx(V_a.dot(F_a), abs=ROUNDING)
    assert V_a.dot(F_a) == pytest.approx(float(six(V_a) @ six(F_a)), abs=ROUNDING)


def test_arithmetic_of_motions_and_forces():
    rng = np.random.default_rng(8)
    for make in (spatial.motion, spatial.force):
        a, b = rng.standard_normal((2, 6))
        x, y = make(a.tolist()), make(b.tolist())
        near(six(x + y), a + b, 0)
        near(six(x - y), a - b, 0)
        near(six(2.5 * x), 2.5 * a, 0)
        near(six(np.array([2.0, 3.0]) * x), np.outer(a, [2.0, 3.0]), 0)
    near(six(spatial.zero_motion()), np.zeros(6), 0)
    near(six(spatial.zero_force()), np.zeros(6), 0)


# ---- 1.3 inertia and momentum: (14)-(24) -----------------------------------------------------------------------------


def test_kinetic_energy_of_particles():
    """(14)-(20): ½ Σ m |ṗ + Ṙ r|² over particles equals ½ VᵀIV with the moments of (20)."""
    rng = np.random.default_rng(9)
    points, masses = rng.standard_normal((20, 3)), rng.uniform(0.1, 1.0, 20)
    T, V = random_transform(rng), rng.standard_normal(6)
    H_dot = rate(homogeneous(moving(T, V)))
    speeds = H_dot[:3, 3] + points @ H_dot[:3, :3].T
    e = 0.5 * float(masses @ (speeds * speeds).sum(axis=1))  # (14) (16)
    brackets = [cross_matrix(r) for r in points]
    second = sum(m * B.T @ B for m, B in zip(masses, brackets, strict=True))
    first = sum(m * B for m, B in zip(masses, brackets, strict=True))
    w, v, m = V[:3], V[3:], float(masses.sum())
    e_18 = 0.5 * float(m * v @ v - 2 * v @ first @ w + w @ second @ w)  # (17) (18)
    assert e_18 == pytest.approx(e, rel=ROUNDING)
    G = Inertia(m, tuple((masses @ points).tolist()), tuple(map(tuple, second.tolist())))
    printed = np.block([[second, first], [first.T, m * np.eye(3)]])  # (20)
    near(matrix_of(lambda X: G @ X, spatial.motion), printed)
    X = spatial.motion(V.tolist())
    assert 0.5 * X.dot(G @ X) == pytest.approx(e, rel=ROUNDING)  # (15) (19)
    assert np.linalg.eigvalsh(printed).min() > 0


@every_transform
def test_inertia_in_two_frames(T):
    """(21): 𝓘_b = Ad*_{T_ab} 𝓘_a Ad_{T_ab}. `transform_inertia` goes from B to A."""
    rng = np.random.default_rng(10)
    for G in (random_inertia(rng), random_inertia(rng), spatial.zero_inertia()):
        A = adjoint(np.linalg.inv(homogeneous(T)))
        near(inertia_matrix(spatial.transform_inertia(T, G)), A.T @ inertia_matrix(G) @ A)
        near(np.array(spatial.transform_inertia(T, G).I), np.array(spatial.transform_inertia(T, G).I).T, 0)


@every_transform
def test_inertia_from_centre_of_mass(T):
    """(22): from mass, centre of mass and the inertia about it in turned axes; and by (21) from the com frame."""
    rng = np.random.default_rng(11)
    A = rng.standard_normal((3, 3))
    I_c, m = A @ A.T, 1.7
    block, R, P = tuple(map(tuple, I_c.tolist())), np.array(T.R.rows), cross_matrix(np.array(T.p))
    printed = np.block([[R @ I_c @ R.T + m * P.T @ P, m * P], [m * P.T, m * np.eye(3)]])
    near(inertia_matrix(spatial.inertia_from(m, T.p, block, T.R)), printed)
    near(inertia_matrix(spatial.transform_inertia(T, Inertia(m, ZERO, block))), printed)


@every_transform
def test_momentum(T):
    """(23) (24): L = 𝓘 V, and it moves between frames as a force does."""
    rng = np.random.default_rng(12)
    G_b, V_b = random_inertia(rng), spatial.motion(vector(rng, 6))
    L_b = G_b @ V_b
    near(six(L_b), inertia_matrix(G_b) @ six(V_b))
    L_a = spatial.transform_inertia(T, G_b) @ Ad(T, V_b)
    near(six(L_a), six(Ad_inv_T(T, L_b)))
    near(six(L_b), six(Ad_T(T, L_a)))


def test_sum_of_inertias():
    rng = np.random.default_rng(13)
    a, b = random_inertia(rng), random_inertia(rng)
    near(inertia_matrix(a + b), inertia_matrix(a) + inertia_matrix(b))
    c, d = random_articulated(rng), random_articulated(rng)
    near(articulated_matrix(c + d), articulated_matrix(c) + articulated_matrix(d))


@every_transform
def test_articulated_inertia(T):
    """The form of Kim (43) in another frame, as (49) needs it: Ad*_{T⁻¹} 𝓘̂ Ad_{T⁻¹}."""
    rng = np.random.default_rng(14)
    G, A = random_inertia(rng), random_articulated(rng)
    X = adjoint(np.linalg.inv(homogeneous(T)))
    near(articulated_matrix(spatial.articulated(G)), inertia_matrix(G), 0)
    near(matrix_of(lambda V: A @ V, spatial.motion), articulated_matrix(A))
    near(articulated_matrix(spatial.transform_articulated(T, A)), X.T @ articulated_matrix(A) @ X)
    near(articulated_matrix(spatial.zero_articulated()), np.zeros((6, 6)), 0)


# ---- 1.4 derivatives in moving frames: (25)-(29) ---------------------------------------------------------------------


def test_derivative_of_a_vector_in_a_moving_frame():
    """(25): d/dt x = ẋ + w × x, by differentiating R x in the frame at rest."""
    rng = np.random.default_rng(15)
    T, xi, x, x_dot = random_transform(rng), rng.standard_normal(6), vector(rng), vector(rng)
    moved = tuple(a + 1j * STEP * b for a, b in zip(x, x_dot, strict=True))
    at_rest = rate(moving(T, xi).R @ moved)
    near(T.R.T @ tuple(at_rest.tolist()), np.array(x_dot) + rotation.cross(tuple(xi[:3].tolist()), x))


def test_lemma_1():
    """(26) (27): d/dt X = Ẋ + ad_V X for X ∈ se(3), and Ad_{T⁻¹} d/dt Ad_T is the 6×6 matrix ad_V (errata K1)."""
    rng = np.random.default_rng(16)
    T, V, X, X_dot = random_transform(rng), *(rng.standard_normal(6) for _ in range(3))
    at_rest = rate(six(Ad(moving(T, V), spatial.motion((X + 1j * STEP * X_dot).tolist()))))
    derivative = six(Ad_inv(T, spatial.motion(at_rest.tolist())))
    V_, X_ = spatial.motion(V.tolist()), spatial.motion(X.tolist())
    near(derivative, X_dot + six(ad(V_, X_)))
    near(matrix_of(lambda Y: ad(V_, Y), spatial.motion), small_adjoint(V), 0)
    bracket = twist_matrix(V) @ twist_matrix(X) - twist_matrix(X) @ twist_matrix(V)
    near(six(ad(V_, X_)), twist_of(bracket))
    A, A_dot = adjoint(homogeneous(T)), rate(adjoint(homogeneous(moving(T, V))))
    near(np.linalg.inv(A) @ A_dot, small_adjoint(V))


def test_lemma_2():
    """(28) (29): d/dt Y = Ẏ - ad*_V Y for Y ∈ dse(3) (errata K1)."""
    rng = np.random.default_rng(17)
    T, V, Y, Y_dot = random_transform(rng), *(rng.standard_normal(6) for _ in range(3))
    at_rest = rate(six(Ad_inv_T(moving(T, V), spatial.force((Y + 1j * STEP * Y_dot).tolist()))))
    derivative = six(Ad_T(T, spatial.force(at_rest.tolist())))
    V_ = spatial.motion(V.tolist())
    near(derivative, Y_dot - six(ad_T(V_, spatial.force(Y.tolist()))))
    near(matrix_of(lambda F: ad_T(V_, F), spatial.force), small_adjoint(V).T, 0)


def test_derivative_of_the_adjoint():
    """Lemma 3, (81)-(86), and (87) (88): ∂/∂p Ad_T = ad_{∂T/∂p T⁻¹} Ad_T, and of the inverse with h = T⁻¹ ∂T/∂p."""
    rng = np.random.default_rng(18)
    T, h = random_transform(rng), rng.standard_normal(6)
    H, A = homogeneous(T), adjoint(homogeneous(T))
    X_dot = rate(matrix_complex(lambda V: Ad(moving(T, h), V), spatial.motion))
    left = twist_of(rate(homogeneous(moving(T, h))) @ np.linalg.inv(H))
    near(X_dot, matrix_of(lambda V: ad(spatial.motion(left.tolist()), Ad(T, V)), spatial.motion))
    near(X_dot, small_adjoint(left) @ A)
    h_ = spatial.motion(h.tolist())
    inverse_dot = rate(matrix_complex(lambda V: Ad_inv(moving(T, h), V), spatial.motion))
    near(inverse_dot, -matrix_of(lambda V: ad(h_, Ad_inv(T, V)), spatial.motion))
    dual_dot = rate(matrix_complex(lambda F: Ad_inv_T(moving(T, h), F), spatial.force))
    near(dual_dot, -matrix_of(lambda F: Ad_inv_T(T, ad_T(h_, F)), spatial.force))


def matrix_complex(function, kind):
    return np.stack([six(function(kind(e))) for e in np.eye(6, dtype=complex).tolist()], axis=-1)


# ---- 1.5 the equation of motion of one body: (30) (31) ---------------------------------------------------------------


def net_force(G, V, V_dot):
    """The right side of (31)."""
    return G @ V_dot - ad_T(V, G @ V)


def test_equation_of_motion():
    """(30) (31): 𝓘V̇ - ad*_V 𝓘V is the rate of the momentum seen at rest."""
    rng = np.random.default_rng(19)
    T, G, V, V_dot = random_transform(rng), random_inertia(rng), *(rng.standard_normal(6) for _ in range(2))
    L = G @ spatial.motion((V + 1j * STEP * V_dot).tolist())
    at_rest = rate(six(Ad_inv_T(moving(T, V), L)))
    F = net_force(G, spatial.motion(V.tolist()), spatial.motion(V_dot.tolist()))
    near(six(Ad_inv_T(T, F)), at_rest)
    dense = inertia_matrix(G)
    near(six(F), dense @ V_dot - small_adjoint(V).T @ dense @ V)


@every_transform
def test_equation_of_motion_is_coordinate_invariant(T):
    """(31) in {A} and in {B} on the same body are the same equation."""
    rng = np.random.default_rng(20)
    G_b, V_b, Vdot_b = random_inertia(rng), spatial.motion(vector(rng, 6)), spatial.motion(vector(rng, 6))
    F_a = net_force(spatial.transform_inertia(T, G_b), Ad(T, V_b), Ad(T, Vdot_b))
    near(six(Ad_T(T, F_a)), six(net_force(G_b, V_b, Vdot_b)), 10 * ROUNDING)


# ---- exponential and logarithm ---------------------------------------------------------------------------------------

DIGITS = 60


def exact_exponential(xi):
    """exp of the 4×4 matrix of a twist, by scaling and squaring its series at 60 digits."""
    with mp.workdps(DIGITS + 30):
        w, v = [mpf(x) for x in xi[:3]], [mpf(x) for x in xi[3:]]
        X = mpmath.matrix(
            [[0, -w[2], w[1], v[0]], [w[2], 0, -w[0], v[1]], [-w[1], w[0], 0, v[2]], [0, 0, 0, 0]],
        )
        return mpmath.expm(X, method="taylor")


def floats(A):
    return np.array([[float(A[r, c]) for c in range(4)] for r in range(4)])


ANGLES = [0.0, 1e-300, 1e-160, 1e-154, 1e-100, 1e-20, 1e-12, 1e-8, 1e-7, 1e-5, 1e-4, 1.1e-4, 1e-3, 0.1, 0.4999999, 0.5]
ANGLES += [0.9999999, 1.0, 1.0000001, 2.0, 3.0, 3.14, math.pi - 1e-6, math.pi - 1e-9, math.pi - 1e-13]
DIRECTIONS = [(1.0, 0.0, 0.0), (0.0, -1.0, 0.0), (0.0, 0.0, 1.0), (0.6, 0.0, -0.8), (2 / 7, -3 / 7, 6 / 7)]


@pytest.mark.parametrize("angle", [*ANGLES, math.pi, 4.0, 2 * math.pi - 1e-7, 2 * math.pi, 10.0])
def test_exponential(angle):
    """Against the matrix exponential at 60 digits, from no rotation through tiny angles to more than a turn."""
    for k, d in enumerate(DIRECTIONS):
        w, v = tuple(angle * x for x in d), vector(np.random.default_rng(k))
        expected = floats(exact_exponential((*w, *v)))
        T = spatial.exp(Motion(w, v))
        near(homogeneous(T), expected, 2e-15)  # a handful of roundings of numbers near one
        # a small angle must be right in its own digits, not only beside one; the angle itself is known to 1e-16 of it
        R, E = np.array(T.R.rows), expected[:3, :3]
        near((R - R.T) / 2, (E - E.T) / 2, 1e-15 * angle)
        near(rotation.exp_rotation(w).rows, R, 0)


@pytest.mark.parametrize("angle", ANGLES)
def test_logarithm_inverts_the_exponential(angle):
    for k, d in enumerate(DIRECTIONS):
        w, v = tuple(angle * x for x in d), vector(np.random.default_rng(k))
        E = floats(exact_exponential((*w, *v)))
        V = spatial.log(Transform(rotation_of(E[:3, :3]), tuple(E[:3, 3].tolist())))
        # the entries of R carry errors of 1e-16 where they are near one; near π the angle then does too
        np.testing.assert_allclose(V.w, w, rtol=1e-14, atol=1e-15 if angle > 1e-3 else 0)
        near(V.v, v, 1e-14)
        near(rotation.log_rotation(rotation_of(E[:3, :3])), V.w, 0)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_logarithm_at_half_a_turn(direction):
    """At exactly π the axis has two signs: either is right if the exponential leads back."""
    d = np.array(direction)
    R = rotation_of(2 * np.outer(d, d) - np.eye(3))
    T = Transform(R, (0.3, -0.4, 0.5))
    V = spatial.log(T)
    assert np.linalg.norm(V.w) == pytest.approx(math.pi, abs=1e-15)
    near(homogeneous(spatial.exp(V)), homogeneous(T), 1e-15)


components = st.floats(-2.0, 2.0)


@given(st.tuples(*[components] * 6))
@examples(200)
def test_exponential_and_logarithm_are_inverse(xi):
    T = spatial.exp(spatial.motion(xi))
    near(homogeneous(spatial.exp(spatial.log(T))), homogeneous(T), 1e-14)
    if np.linalg.norm(xi[:3]) < 3.1:  # inside half a turn, away from where the answer is not unique
        near(six(spatial.log(T)), xi, 1e-13)


@pytest.mark.parametrize("x", [0.0, 1e-300, 1e-30, 1e-3, 0.5, 0.999999, 1.0, 1.000001, 4.0, 30.0])
def test_exponential_coefficients(x):
    """sin θ/θ, (1 - cos θ)/θ², (θ - sin θ)/θ³ and the derivatives of the last two by x = θ², at 60 digits."""
    with mp.workdps(DIGITS + 30):

        def series(k, slope=0):
            # Σ (-x)ⁿ/(2n+k+1)!, which all three are for k = 0, 1, 2
            y = mpf(x)
            if slope:
                return mpmath.nsum(lambda n: n * (-1) ** int(n) * y ** (n - 1) / mpmath.factorial(2 * n + k + 1), [1, 60])
            return mpmath.nsum(lambda n: (-y) ** n / mpmath.factorial(2 * n + k + 1), [0, 60])

        values = [float(series(k)) for k in range(3)]
        slopes = [float(series(k, 1)) for k in (1, 2)]
    # at 30 sin θ/θ has lost most of its digits to cancellation of its argument: an absolute bound is meant there
    np.testing.assert_allclose(rotation.exp_coefficients(x), values, rtol=2e-15, atol=1e-16)
    # b - 3c cancels five bits at θ = 1, where its closed form begins: 32 × 2e-16
    np.testing.assert_allclose(rotation.exp_derivatives(x), slopes, rtol=1e-14, atol=1e-17)


# ---- rotations and quaternions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("angle", [0.0, 1e-9, 0.7, -2.5, math.pi, 7.0])
def test_axis_angle(angle):
    """About ±x, ±y, ±z a rotation that knows its zeros, about others a dense one: both are exp(angle [axis])."""
    axes = [(s * e[0], s * e[1], s * e[2]) for e in EYE for s in (1.0, -1.0)]
    for axis in (*axes, (0.6, 0.0, -0.8), (2 / 7, -3 / 7, 6 / 7)):
        R = axis_angle(axis, angle)
        assert isinstance(R, AxisRotation) == (axis in axes)
        near(R.rows, floats(exact_exponential((*(angle * x for x in axis), 0, 0, 0)))[:3, :3], 1e-15)


@pytest.mark.parametrize("axis", range(3))
def test_axis_rotation(axis):
    c, s = math.cos(0.4), math.sin(0.4)
    R, x = AxisRotation(axis, c, s), (0.3, -0.5, 0.9)
    dense = floats(exact_exponential((*(0.4 * e for e in EYE[axis]), 0, 0, 0)))[:3, :3]
    A = np.random.default_rng(21).standard_normal((3, 3))
    near(R.rows, dense)
    near(R @ x, dense @ x)
    near(R.T.rows, dense.T)
    near(R.similar(tuple(map(tuple, A.tolist()))), dense @ A @ dense.T)


def _quaternions():
    rng = np.random.default_rng(22)
    out = []
    for k in range(4):  # each of x, y, z, w the largest in turn: the four branches
        for _ in range(3):
            a = rng.uniform(-0.5, 0.5, 4)
            a[k] = rng.choice([-1.0, 1.0]) * 1.5
            out.append(a / np.linalg.norm(a))
    exact = [np.eye(4)[k] for k in range(4)]
    ties = [np.array(q) / 2 for q in ((1, 1, 1, 1), (1, -1, 1, -1), (-1, -1, -1, 1))]
    return [*out, *exact, *ties]


QUATERNIONS = _quaternions()


@pytest.mark.parametrize("q", QUATERNIONS)
def test_quaternion_of_a_rotation(q):
    """All four branches, quarter and half turns, ties: the quaternion comes back, up to its sign."""
    x, y, z, w = q
    u = np.array([x, y, z])
    R = np.eye(3) + 2 * w * cross_matrix(u) + 2 * cross_matrix(u) @ cross_matrix(u)
    near(rotation.quaternion_rotation(*q.tolist()).rows, R, 1e-15)
    back = np.array(rotation.rotation_quaternion(rotation_of(R)))
    near(back * np.sign(back @ q), q, 1e-15)


def test_quaternion_of_a_batch_of_rotations():
    """One batch that takes all branches at once."""
    q = np.array(QUATERNIONS)
    back = np.stack(rotation.rotation_quaternion(rotation.quaternion_rotation(*q.T)), axis=-1)
    near(back * np.sign(np.sum(back * q, axis=-1))[:, None], q, 1e-15)


def test_quaternion_algebra():
    """Products, conjugates, units and exponentials of quaternions are those of the rotations."""
    for a in QUATERNIONS:
        R_a = np.array(rotation.quaternion_rotation(*a.tolist()).rows)
        near(rotation.quaternion_rotation(*rotation.quaternion_conjugate(tuple(a))).rows, R_a.T)
        near(rotation.quaternion_unit(tuple((-3.0 * a).tolist())), -a)
        for b in QUATERNIONS:
            product = rotation.quaternion_product(tuple(a.tolist()), tuple(b.tolist()))
            R_b = np.array(rotation.quaternion_rotation(*b.tolist()).rows)
            near(rotation.quaternion_rotation(*product).rows, R_a @ R_b)
    for angle in (*ANGLES, 4.0, 9.0):
        for d in DIRECTIONS:
            r = tuple(angle * x for x in d)
            x, y, z, w = rotation.quaternion_exp(r)
            with mp.workdps(DIGITS):
                half = mpmath.sqrt(sum(mpf(c) ** 2 for c in r)) / 2
                ratio = mpmath.sin(half) / half / 2 if half else mpf(1) / 2
                expected = [float(ratio * c) for c in r]
            np.testing.assert_allclose((x, y, z), expected, rtol=1e-15, atol=0)
            assert w == pytest.approx(float(mpmath.cos(half)), abs=1e-15)
            if angle <= 3.14:
                np.testing.assert_allclose(rotation.log_quaternion(x, y, z, w), r, rtol=2e-15, atol=0)
                np.testing.assert_allclose(rotation.log_quaternion(-x, -y, -z, -w), r, rtol=2e-15, atol=0)


def test_constant_transform_knows_its_zeros():
    assert spatial.constant_transform().R is IDENTITY
    assert spatial.constant_transform(p=(0.0, -0.0, 0.0)).p is ZERO
    for k in range(3):
        for angle in (0.3, math.pi / 2, math.pi):
            R = AxisRotation(k, math.cos(angle), math.sin(angle))
            found = spatial.constant_transform(R.rows, (1.0, 2.0, 3.0))
            assert isinstance(found.R, AxisRotation)
            assert found.R.axis == k
            near(found.R.rows, R.rows, 0)
            assert found.p == (1.0, 2.0, 3.0)
    assert type(spatial.constant_transform(TRANSFORMS["dense"].R.rows).R) is Rotation


@every_transform
def test_transforms_pickle(T):
    near(homogeneous(pickle.loads(pickle.dumps(T))), homogeneous(T), 0)


# ---- the same code on every kind of number ---------------------------------------------------------------------------


def formulas(x):
    """Every formula of `spatial` that has no branch, from twelve numbers."""
    T = Product(Transform(axis_angle((0.6, 0.0, -0.8), x[0]), (x[1], x[2], x[3])), Transform(axis_angle(EYE[1], x[4])))
    half = x[5] * 0.5
    quaternion = rotation.quaternion_unit((half, x[6], x[7], x[8] + 2.0))
    turn = Transform(rotation.quaternion_rotation(*quaternion), (x[9], x[10], x[11]))
    V, F = Motion((x[0], x[1], x[2]), (x[3], x[4], x[5])), Force((x[6], x[7], x[8]), (x[9], x[10], x[11]))
    I_c = ((x[1] + 3.0, x[2], x[3]), (x[2], x[4] + 4.0, x[5]), (x[3], x[5], x[6] + 5.0))
    G = spatial.inertia_from(x[8] + 2.0, (x[9], x[10], x[11]), I_c, T.R)
    seen = spatial.transform_inertia(turn, G)
    moved = spatial.transform_articulated(T, spatial.articulated(G))
    whole = turn @ T.inverse()
    return [
        *(Ad(T, V) + Ad_inv(turn, V)).components,
        *(Ad_T(turn, F) - Ad_inv_T(T, F)).components,
        *ad(V, Ad(turn, V)).components,
        *ad_T(V, F).components,
        *(seen @ V).components,
        *(moved @ V).components,
        *whole.point((x[6], x[7], x[8])),
        V.dot(net_force(G, V, Ad(turn, V))),
    ]


def branched(x):
    """The formulas with a choice in them: exponentials, logarithms, quaternions of rotations."""
    T = spatial.exp(Motion((x[0], x[1], x[2]), (x[3], x[4], x[5])))
    return [*spatial.log(T @ spatial.exp(Motion((x[6], x[7], x[8]), (x[9], x[10], x[11])))).components, *T.p]


STATE = np.random.default_rng(23).uniform(-0.9, 0.9, 12)
ALONG = np.random.default_rng(24).uniform(-1.0, 1.0, 12)
both = pytest.mark.parametrize("function", [formulas, branched])
scales = pytest.mark.parametrize("size", [1e-3, 0.3, 1.0], ids=lambda s: f"size {s}")


@both
@scales
def test_derivatives_by_three_ways(function, size):
    """Complex step, dual numbers and differences give one derivative."""
    x, d = size * STATE, size * ALONG
    by_step = np.array(function((x + 1j * STEP * d).tolist())).imag / STEP
    dual = function([Dual(a, b) for a, b in zip(x.tolist(), d.tolist(), strict=True)])
    by_dual = np.array([y.slope for y in dual])
    near(by_step, by_dual, 1e-14)
    near([y.value for y in dual], function(x.tolist()), 1e-15)
    h = 1e-5  # differences of order four: h⁴ = 1e-20 beside roundings of 1e-15/h = 1e-10
    at = [np.array(function((x + k * h * d).tolist())) for k in (-2, -1, 1, 2)]
    near(by_dual, (at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * h), 1e-9)


@both
@scales
def test_second_derivatives_by_nested_dual_numbers(function, size):
    x, d = size * STATE, size * ALONG
    nested = [Dual(Dual(a, b), Dual(b, 0.0)) for a, b in zip(x.tolist(), d.tolist(), strict=True)]
    second = [y.slope.slope for y in function(nested)]
    h = 1e-3  # order four: h⁴ = 1e-12, roundings 1e-15/h² = 1e-9
    at = [np.array(function((x + k * h * d).tolist())) for k in (-2, -1, 0, 1, 2)]
    near(second, (-at[0] + 16 * at[1] - 30 * at[2] + 16 * at[3] - at[4]) / (12 * h * h), 1e-8)


@both
def test_batches(function):
    """One call on arrays is the loop over the samples, whatever branch each of them takes."""
    sizes = np.array([0.0, 1e-200, 1e-5, 1e-3, 0.3, 1.0, 3.0])
    x = sizes[:, None] * STATE
    together = np.stack(np.broadcast_arrays(*function(list(x.T))), axis=-1)
    alone = np.array([function(row.tolist()) for row in x])
    near(together, alone, 1e-14)


def test_many_digits():
    """At 50 digits the formulas obey their identities to 48: nothing passes through a float on the way."""
    with mp.workdps(50):
        x = [mpf(repr(a)) for a in STATE.tolist()]
        T = Transform(axis_angle(EYE[2], x[0]), (x[1], x[2], x[3])) @ Transform(axis_angle(EYE[0], x[4]))
        V = Motion((x[0], x[1], x[2]), (x[3], x[4], x[5]))
        F = Force((x[6], x[7], x[8]), (x[9], x[10], x[11]))
        I_c = ((x[1] + 3, x[2], x[3]), (x[2], x[4] + 4, x[5]), (x[3], x[5], x[6] + 5))
        G = spatial.inertia_from(x[8] + 2, (x[9], x[10], x[11]), I_c)
        gone = [
            *(Ad(T, Ad_inv(T, V)) - V).components,
            *(Ad_T(T, Ad_inv_T(T, F)) - F).components,
            Ad(T, V).dot(Ad_inv_T(T, F)) - V.dot(F),
            *(spatial.transform_inertia(T, G) @ Ad(T, V) - Ad_inv_T(T, G @ V)).components,
            ad(V, V).dot(F),
        ]
        assert max(abs(y) for y in gone) < mpf(10) ** -48
        assert max(abs(a - b) for a, b in zip(formulas(x), formulas(STATE.tolist()), strict=True)) < 1e-13
        large = Motion((x[0] + 1, x[1] - 1, x[2] + 1), (x[3], x[4], x[5]))
        T = spatial.exp(large)
        exact = exact_exponential(large.components)
        assert max(abs(T.R.rows[r][c] - exact[r, c]) for r in range(3) for c in range(3)) < mpf(10) ** -48
        assert max(abs(a - b) for a, b in zip(spatial.log(T).components, large.components, strict=True)) < mpf(10) ** -47
        # below one radian exp and log are series cut where doubles end
        small = Motion((x[0] / 9, x[1] / 9, x[2] / 9), (x[3], x[4], x[5]))
        back = spatial.log(spatial.exp(small))
        assert max(abs(a - b) for a, b in zip(back.components, small.components, strict=True)) < 1e-16


class Number:
    """What a user may bring: arithmetic, sin, cos and sqrt, nothing else."""

    def __init__(self, x):
        self.x = x

    def __add__(self, other):
        return type(self)(self.x + _plain(other))

    def __sub__(self, other):
        return type(self)(self.x - _plain(other))

    def __mul__(self, other):
        return type(self)(self.x * _plain(other))

    def __truediv__(self, other):
        return type(self)(self.x / _plain(other))

    def __rsub__(self, other):
        return type(self)(other - self.x)

    def __rtruediv__(self, other):
        return type(self)(other / self.x)

    def __neg__(self):
        return type(self)(-self.x)

    __radd__, __rmul__ = __add__, __mul__
    __bool__ = __float__ = None  # nobody may look at its value

    def sin(self):
        return type(self)(math.sin(self.x))

    def cos(self):
        return type(self)(math.cos(self.x))

    def sqrt(self):
        return type(self)(math.sqrt(self.x))


class Ordered(Number):
    """For the formulas with a choice in them also `<`, whose result chooses, and arctan2."""

    def __lt__(self, other):
        return Choice(self.x < _plain(other))

    def __gt__(self, other):
        return Choice(self.x > _plain(other))

    def arctan2(self, other):
        return Ordered(math.atan2(self.x, _plain(other)))


class Choice:
    def __init__(self, truth):
        self.truth = truth

    __bool__ = None

    def where(self, then, otherwise):
        return Ordered(_plain(then if self.truth else otherwise))


def _plain(x):
    return x.x if isinstance(x, Number) else x


@pytest.mark.parametrize(("function", "kind"), [(formulas, Number), (branched, Ordered)])
def test_a_number_type_of_the_users_own(function, kind):
    """The very operations that floats go through: equal to the last bit."""
    assert [y.x for y in function([kind(a) for a in STATE.tolist()])] == function(STATE.tolist())


# ---- scalars and dual numbers ----------------------------------------------------------------------------------------

POINTS = [(y, x) for y in (-2.0, -1e-9, 0.0, 1e-9, 0.5, 2.0) for x in (-3.0, -0.5, 0.25, 3.0)]


@pytest.mark.parametrize(("y", "x"), [*POINTS, (1.0, 0.0), (-1.0, 0.0), (0.0, 0.0)])
def test_arctan2(y, x):
    """On floats, arrays, many digits, dual and complex numbers: the angle, and its derivative along (1, 2)."""
    expected = math.atan2(y, x)
    assert scalars.arctan2(y, x) == expected
    assert scalars.arctan2(np.array([y, y]), x) == pytest.approx([expected] * 2, abs=1e-15)
    assert scalars.arctan2(np.float64(y), np.array([x]))[0] == pytest.approx(expected, abs=1e-15)
    assert float(scalars.arctan2(mpf(y), mpf(x))) == expected
    if x == y == 0:
        return
    slope = (x - 2.0 * y) / (x * x + y * y)
    dual = scalars.arctan2(Dual(y, 1.0), Dual(x, 2.0))
    assert (dual.value, dual.slope) == pytest.approx((expected, slope), rel=1e-15)
    assert scalars.arctan2(1.0, Dual(x, 2.0)).slope == pytest.approx(-2.0 / (1.0 + x * x), rel=1e-15)
    step = scalars.arctan2(complex(y, STEP), complex(x, 2 * STEP))
    assert step.imag / STEP == pytest.approx(slope, rel=1e-14)
    assert step.real == pytest.approx(expected, abs=1e-15)
    batch = scalars.arctan2(np.array([complex(y, STEP)]), np.array([complex(x, 2 * STEP)]))
    assert batch[0] == pytest.approx(step, rel=1e-15)


def test_functions_of_one_number():
    for name in ("sin", "cos", "sqrt", "exp", "log", "tanh", "arctan"):
        function, reference = getattr(scalars, name), getattr(mpmath, name.replace("arc", "a"))
        for x in (0.0, 0.3, 2, 5.0)[name == "log" :]:
            expected = float(reference(x))
            assert function(x) == pytest.approx(expected, rel=1e-15)
            assert function(np.array([x, x])).tolist() == pytest.approx([expected] * 2, rel=1e-15)
            assert function(np.float64(x)) == pytest.approx(expected, rel=1e-15)
            assert function(complex(x)) == pytest.approx(expected, rel=1e-15)
            assert float(function(mpf(x))) == expected
    for x in (math.inf, -math.inf, math.nan):
        assert math.isnan(scalars.sin(x))
        assert math.isnan(scalars.cos(x))
    assert math.isnan(scalars.sqrt(-1.0))
    assert math.isnan(scalars.log(-1.0))
    assert (scalars.log(0.0), scalars.exp(1e3), scalars.exp(-1e3)) == (-math.inf, math.inf, 0.0)
    assert scalars.sqrt(-1.0 + 0.0j) == 1j


def test_less_and_where():
    assert scalars.less(1.0, 2.0) is True
    assert scalars.less(complex(1, 9), complex(2, -9)) is True  # by the real parts: the step is no part of a choice
    assert scalars.less(np.array([1.0, 3.0]), 2.0).tolist() == [True, False]
    assert scalars.less(Dual(1.0, 5.0), 1.5) is True
    assert scalars.less(1.5, Dual(1.0, 5.0)) is False
    assert scalars.where(True, 1.0, 2.0) == 1.0
    assert scalars.where(np.bool_(False), 1.0, 2.0) == 2.0
    assert scalars.where(np.array([True, False]), 1.0, np.array([5.0, 6.0])).tolist() == [1.0, 6.0]
    mixed = scalars.where(np.array([True, False]), Dual(np.array([1.0, 2.0]), 3.0), 4.0)
    assert (mixed.value.tolist(), mixed.slope.tolist()) == ([1.0, 4.0], [3.0, 0.0])
    assert scalars.where(False, Dual(1.0), Dual(2.0, 7.0)).slope == 7.0


def test_split_and_stack():
    assert scalars.split([1, 2]) == [1, 2]
    assert all(type(x) is float for x in scalars.split(np.array([1.0, 2.0])))
    x = np.arange(24.0).reshape(2, 3, 4)
    parts = scalars.split(x)
    assert [p.shape for p in parts] == [(2, 3)] * 4
    assert (scalars.stack(parts) == x).all()
    assert (scalars.stack(parts, (2, 2)) == x.reshape(2, 3, 2, 2)).all()
    assert scalars.stack([0.0, np.array([1.0, 2.0])]).tolist() == [[0.0, 1.0], [0.0, 2.0]]
    assert scalars.stack([1, 2j]).dtype == complex
    assert scalars.stack([1, 2]).dtype == float
    assert scalars.stack([]).shape == (0,)
    many = scalars.stack([mpf(1) / 3, 2.0])
    assert many.dtype == object
    assert many[0] == mpf(1) / 3


DUAL_CASES = {
    "arithmetic": (lambda x: (2.0 - x) * x / (1.0 + x) - 3.0 / x + (-x) + x - 1.0 + 0.5 * x, 0.7),
    "powers": (lambda x: x**3 - x**-2 + x**1, 0.7),
    "power zero": (lambda x: x**0 + x, 0.7),
    "power one at zero": (lambda x: x**1 + x, 0.0),
    "power zero at zero": (lambda x: x**0 + x, 0.0),
    "square at zero": (lambda x: x**2 + x, 0.0),
    "functions": (lambda x: scalars.sin(x) * scalars.cos(x) + scalars.sqrt(1.0 + x * x), 0.7),
    "arctan2": (lambda x: scalars.arctan2(x, 1.0 - x), 0.7),
    "exponentials": (lambda x: scalars.exp(-x) * scalars.log(x) + scalars.tanh(x) * scalars.arctan(x), 0.7),
    "other powers": (lambda x: x**1.3 + x**-2.5 + scalars.power(2.0, x) + x**x, 0.7),
    "choices": (lambda x: scalars.maximum(x, 2.0 * x) * scalars.minimum(0.9, x * x) + scalars.clip(x, x * x, None), 0.7),
    "other choices": (lambda x: abs(x - 1.0) * scalars.sign(x) * x + scalars.interp(x, [0.0, 1.0], [x, 3.0]), 0.7),
    "numpy": (lambda x: np.sin(x) * np.cos(x) + np.sqrt(1.0 + x * x) - np.float64(2.0) * x / np.float64(3.0), 0.7),
    "numpy arctan2": (lambda x: np.arctan2(x, 0.4) + np.arctan2(np.float64(0.4), x), 0.7),
}


@pytest.mark.parametrize(("function", "x"), DUAL_CASES.values(), ids=DUAL_CASES.keys())
def test_dual_numbers(function, x):
    """Value, first and second derivative, against differences taken with 60 digits."""
    with mp.workdps(DIGITS):
        plain = {"sin": mpmath.sin, "cos": mpmath.cos, "sqrt": mpmath.sqrt}
        at = [_in_mpmath(function, mpf(x) + k * mpf(10) ** -15, plain) for k in (-1, 0, 1)]
        value, first = at[1], (at[2] - at[0]) / (2 * mpf(10) ** -15)
        second = (at[2] - 2 * at[1] + at[0]) / mpf(10) ** -30
    y = function(Dual(Dual(x, 1.0), Dual(1.0, 0.0)))
    assert float(y.value.value) == pytest.approx(float(value), rel=1e-14)
    assert float(y.value.slope) == pytest.approx(float(first), rel=1e-14)
    assert float(y.slope.value) == pytest.approx(float(first), rel=1e-14)
    assert float(y.slope.slope) == pytest.approx(float(second), rel=1e-13, abs=1e-14)


def _in_mpmath(function, x, plain):
    """The same function on many digits: NumPy's functions are not for mpmath's numbers, so its own stand in."""
    with pytest.MonkeyPatch.context() as patch:
        for name, replacement in plain.items():
            patch.setattr(np, name, replacement)
        patch.setattr(np, "arctan2", lambda a, b: mpmath.atan2(mpf(a), mpf(b)))
        patch.setattr(np, "float64", mpf)
        return function(x)


def test_dual_numbers_refuse_what_they_cannot_do():
    with pytest.raises(TypeError, match="math module"):
        math.sin(Dual(0.3, 1.0))
    with pytest.raises(TypeError):
        np.tan(Dual(0.3, 1.0))
    assert (Dual(1.0, 5.0) < 2.0) is True
    assert (Dual(1.0, 5.0) > Dual(2.0, 0.0)) is False
    assert repr(Dual(1.0, 2.0)) == "Dual(1.0, 2.0)"


def test_dual_numbers_of_a_batch():
    x = np.array([0.1, 0.7, 1.5])
    y = scalars.sin(Dual(x, 1.0)) * np.array([1.0, 2.0, 3.0]) + np.array([1.0, 1.0, 1.0]) / Dual(x, 1.0)
    near(y.value, np.sin(x) * [1, 2, 3] + 1 / x, 1e-15)
    near(y.slope, np.cos(x) * [1, 2, 3] - 1 / x**2, 1e-12)
