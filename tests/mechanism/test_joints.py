"""One conformance suite over every kind of joint: T, S = T⁻¹∂T/∂q, Ṡ, integrate, difference and the rest.

Derivatives are complex steps along `integrate`: those of the tangent space, for every kind. The matrices that
the joints are compared with are dense and built here.
"""

from __future__ import annotations

import inspect
import itertools
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qddot import joints, scalars, spatial
from qddot.joints import (
    KINDS,
    Cylindrical,
    Fixed,
    Free,
    Helical,
    Own,
    Planar,
    Prismatic,
    Revolute,
    Spherical,
    SphericalEuler,
    SphericalExponential,
    Translational,
    Universal,
)
from qddot.spatial import Transform
from qddot.spatial.rotation import AxisRotation, axis_angle
from tests.support.profiles import examples

# A few dozen operations on numbers up to about ten.
ROUNDING = 1e-13
# What is left of a number near one when it has been divided by a length that should be one.
UNIT = 1e-15
STEP = 1e-200
SAMPLES = 4


# ---- a user's own joints ---------------------------------------------------------------------------------------------


def wedge(q):
    """One DoF: a rotation and a slide that depends on it, as a Transform."""
    return Transform(axis_angle((0.0, 0.0, 1.0), q[0]), (scalars.sin(q[0]), 0.0, 0.3 * q[0] * q[0]))


def knee(q):
    """One DoF, rolling: matrix and position, written with NumPy."""
    c, s = np.cos(q[0]), np.sin(q[0])
    return ((c, -s, 0.0), (s, c, 0.0), (0.0, 0.0, 1.0)), (0.1 * s, 0.1 * (1.0 - c) + 0.02 * q[0] ** 3, 0.0)


def table(q):
    """Three degrees of freedom, two rotations about axes that the third shifts."""
    T = Transform(axis_angle((1.0, 0.0, 0.0), q[0]), (q[2], 0.0, 0.0))
    return T @ Transform(axis_angle((0.6, 0.0, -0.8), q[1]), (0.0, q[2] * q[1], 0.0))


def careless(q):
    """What a user should not do: the math module knows only floats."""
    return Transform(AxisRotation(2, math.cos(q[0]), math.sin(q[0])))


# ---- the instances ---------------------------------------------------------------------------------------------------

AXES = {f"{'+' if s > 0 else '-'}{'xyz'[k]}": tuple(s * (j == k) for j in range(3)) for k in range(3) for s in (1.0, -1.0)}
AXES |= {"oblique": (2 / 7, -3 / 7, 6 / 7), "in a plane": (0.6, 0.0, -0.8)}
SEQUENCES = ["".join(s) for s in itertools.product("xyz", repeat=3) if s[0] != s[1] != s[2]]
OWN = {"wedge": Own(wedge, 1, "wedge"), "knee": Own(knee, 1, "knee"), "table": Own(table, 3, "table")}

JOINTS = {
    "fixed": Fixed(),
    **{f"revolute {n}": Revolute(a) for n, a in AXES.items()},
    **{f"prismatic {n}": Prismatic(a) for n, a in AXES.items()},
    **{f"helical {n}": Helical(a, 0.3 - 0.1 * k) for k, (n, a) in enumerate(AXES.items())},
    **{f"cylindrical {n}": Cylindrical(a) for n, a in AXES.items()},
    **{f"planar {n}": Planar(a) for n, a in AXES.items()},
    "universal xy": Universal(),
    "universal -z,x": Universal(AXES["-z"], AXES["+x"]),
    "universal oblique": Universal(AXES["oblique"], AXES["in a plane"]),
    **{f"euler {s}": SphericalEuler(s) for s in SEQUENCES},
    "exponential": SphericalExponential(),
    "spherical": Spherical(),
    "translational": Translational(),
    "free": Free(),
    **{f"own {n}": j for n, j in OWN.items()},
}
NOT_OWN = {n: j for n, j in JOINTS.items() if not isinstance(j, Own)}
CONSTANT_S = {n: j for n, j in JOINTS.items() if not isinstance(j, Own | SphericalEuler | SphericalExponential | Universal)}
CONSTANT_S.pop("fixed")


def over(table):
    return pytest.mark.parametrize("joint", table.values(), ids=table.keys())


def states(joint, seed=0, n=SAMPLES):
    rng = np.random.default_rng(seed)
    for _ in range(n):
        yield joint.random(rng), tuple(rng.standard_normal(joint.nv).tolist())


def homogeneous(T):
    out = np.eye(4, dtype=np.result_type(float, np.array(T.R.rows).dtype, np.array(T.p).dtype))
    out[:3, :3], out[:3, 3] = np.array(T.R.rows), np.array(T.p)
    return out


def twist_of(X):
    return np.array([X[2, 1], X[0, 2], X[1, 0], X[0, 3], X[1, 3], X[2, 3]])


def columns(S):
    return np.array([c.components for c in S]).T.reshape(6, -1)


def near(actual, expected, tolerance=ROUNDING):
    np.testing.assert_allclose(np.array(actual), np.array(expected), rtol=0, atol=tolerance)


def along(joint, q, v, function):
    """d/dt function(q(t)) where q moves with v, by a complex step through `integrate`."""
    moved = joint.integrate(q, tuple(1j * STEP * x for x in v))
    return np.array(function([complex(x) for x in moved])).imag / STEP


# ---- the table of kinds ----------------------------------------------------------------------------------------------


def test_kinds_lists_every_public_joint():
    public = {
        cls
        for name, cls in inspect.getmembers(joints, inspect.isclass)
        if issubclass(cls, joints.Joint) and cls is not joints.Joint and not name.startswith("_")
    }
    assert set(KINDS.values()) == public
    assert all(cls.kind == kind for kind, cls in KINDS.items())
    assert {type(j) for j in JOINTS.values()} == public, "the suite below must have an instance of every kind"


NV = {
    "fixed": (0, 0),
    "revolute": (1, 1),
    "prismatic": (1, 1),
    "helical": (1, 1),
    "cylindrical": (2, 2),
    "universal": (2, 2),
    "planar": (3, 3),
    "translational": (3, 3),
    "spherical": (4, 3),
    "spherical_euler": (3, 3),
    "spherical_exponential": (3, 3),
    "free": (7, 6),
}


@over(JOINTS)
def test_sizes(joint):
    """nq and nv, and everything has them; the degrees of freedom are independent."""
    nq, nv = NV.get(joint.kind, (joint.nq, joint.nv))
    assert (joint.nq, joint.nv) == (nq, nv)
    assert len(joint.neutral()) == nq
    assert len(joint.is_angle) == nv
    for q, v in states(joint):
        assert len(q) == len(joint.integrate(q, v)) == len(joint.normalize(q)) == nq
        assert len(joint.difference(q, q)) == len(joint.displacement(q, q)) == nv
        assert len(joint.S(q)) == len(joint.S_dot(q, v)) == nv
        assert np.linalg.matrix_rank(columns(joint.S(q))) == nv if nv else True


def test_own_joints_have_the_degrees_of_freedom_they_say():
    assert [(j.nq, j.nv) for j in OWN.values()] == [(1, 1), (1, 1), (3, 3)]


# ---- T ---------------------------------------------------------------------------------------------------------------


@over(JOINTS)
def test_transform_is_a_rigid_motion(joint):
    for q, _ in states(joint):
        H = homogeneous(joint.transform(q))
        near(H[:3, :3] @ H[:3, :3].T, np.eye(3))
        assert np.linalg.det(H[:3, :3]) == pytest.approx(1.0, abs=ROUNDING)
        near(H[3], [0, 0, 0, 1], 0)


@over(NOT_OWN)
def test_neutral_is_the_identity(joint):
    near(homogeneous(joint.transform(joint.neutral())), np.eye(4), 0)


def cross_matrix(a):
    return np.array([[0.0, -a[2], a[1]], [a[2], 0.0, -a[0]], [-a[1], a[0], 0.0]])


def turn(axis, angle):
    """Rodrigues' formula."""
    K = cross_matrix(axis)
    return np.eye(3) + math.sin(angle) * K + (1 - math.cos(angle)) * K @ K


def placed(R=None, p=(0.0, 0.0, 0.0)):
    H = np.eye(4)
    H[:3, :3], H[:3, 3] = np.eye(3) if R is None else R, p
    return H


def expected_transform(joint, q):
    """Each kind's motion written out."""
    a = np.array(getattr(joint, "axis", (0.0, 0.0, 1.0)))
    match joint:
        case Fixed():
            return placed()
        case Revolute():
            return placed(turn(a, q[0]))
        case Prismatic():
            return placed(p=q[0] * a)
        case Helical():
            return placed(turn(a, q[0]), joint.pitch * q[0] * a)
        case Cylindrical():
            return placed(turn(a, q[0]), q[1] * a)
        case Universal():
            return placed(turn(joint.first, q[0]) @ turn(joint.second, q[1]))
        case SphericalEuler():
            x, y, z = (turn(np.eye(3)["xyz".index(c)], t) for c, t in zip(joint.sequence, q, strict=True))
            return placed(x @ y @ z)
        case SphericalExponential():
            angle = np.linalg.norm(q)
            return placed(turn(np.array(q) / angle, angle))
        case Spherical():
            return placed(turn_of_quaternion(q))
        case Translational():
            return placed(p=q)
        case Planar():
            e, f = joint.basis
            return placed(turn(a, q[2]), q[0] * np.array(e) + q[1] * np.array(f))
        case Free():
            return placed(turn_of_quaternion(q[3:]), q[:3])


def turn_of_quaternion(q):
    u, w = np.array(q[:3]), q[3]
    return np.eye(3) + 2 * w * cross_matrix(u) + 2 * cross_matrix(u) @ cross_matrix(u)


@over(NOT_OWN)
def test_transform(joint):
    for q, _ in states(joint):
        near(homogeneous(joint.transform(q)), expected_transform(joint, q))


@over({n: j for n, j in JOINTS.items() if isinstance(j, Planar)})
def test_planar_basis(joint):
    """x, y and the normal are right-handed; for +x, +y, +z the coordinate axes that follow in turn."""
    e, f = (np.array(x) for x in joint.basis)
    near(np.stack([e, f, joint.axis]) @ np.stack([e, f, joint.axis]).T, np.eye(3))
    near(np.cross(e, f), joint.axis)
    if max(joint.axis) == 1.0:
        k = joint.axis.index(1.0)
        near((e, f), (np.eye(3)[(k + 1) % 3], np.eye(3)[(k + 2) % 3]), 0)


# ---- S and its derivative --------------------------------------------------------------------------------------------


@over(JOINTS)
def test_axes_are_the_derivative_of_the_transform(joint):
    """S v = T⁻¹Ṫ, Kim (37) and its symbol list (errata K4), in every direction."""
    for q, _ in states(joint):
        H, S = homogeneous(joint.transform(q)), columns(joint.S(q))
        for k, unit in enumerate(np.eye(joint.nv)):
            H_dot = along(joint, q, unit, lambda x: homogeneous(joint.transform(x)))
            near(S[:, k], twist_of(np.linalg.inv(H) @ H_dot))
            lower = np.linalg.inv(H) @ H_dot
            near(lower[:3, :3], -lower[:3, :3].T)


@over(JOINTS)
def test_rate_of_the_axes(joint):
    """Ṡ is S differentiated along v, and the bias is Ṡ v."""
    for q, v in states(joint):
        S_dot = columns(joint.S_dot(q, v))
        near(S_dot, along(joint, q, v, lambda x: columns(joint.S(x))))
        near(joint.bias(q, v).components, S_dot @ np.array(v))


@over({n: j for n, j in JOINTS.items() if n not in CONSTANT_S and n != "fixed"})
def test_axes_that_vary_are_known_to_vary(joint):
    """Errata F4: dropping Ṡ would be wrong for these kinds, so it must not vanish."""
    (q, _), v = next(states(joint)), (1.0,) * joint.nv
    assert np.abs(columns(joint.S_dot(q, v))).max() > 1e-3
    assert np.abs(joint.bias(q, v).components).max() > 1e-3


@over(NOT_OWN)
def test_which_coordinates_are_angles(joint):
    """A DoF is in radians if and only if it turns the child."""
    for q, _ in states(joint):
        turns = np.abs(columns(joint.S(q))[:3]).max(axis=0, initial=0.0) > 1e-9
        assert tuple(turns.tolist()) == tuple(joint.is_angle)


# ---- integrate, difference, normalize --------------------------------------------------------------------------------


@over(JOINTS)
def test_integrate_nothing(joint):
    for q, _ in states(joint):
        near(joint.integrate(q, (0.0,) * joint.nv), q, UNIT)
        near(joint.difference(q, q), np.zeros(joint.nv), UNIT)
        near(joint.displacement(q, q), np.zeros(joint.nv), UNIT)


bounded = st.floats(-1.7, 1.7)  # three of them stay inside half a turn: 1.7 √3 < π


@over(JOINTS)
@given(data=st.data())
@examples(25)
def test_integrate_and_difference_are_inverse(joint, data):
    v = data.draw(st.tuples(*[bounded] * joint.nv))
    q = joint.random(np.random.default_rng(data.draw(st.integers(0, 2**32 - 1))))
    reached = joint.integrate(q, v)
    near(joint.difference(q, reached), v, 1e-12)
    again = joint.integrate(q, joint.difference(q, reached))
    near(homogeneous(joint.transform(again)), homogeneous(joint.transform(reached)), 1e-12)


@over(JOINTS)
def test_difference_of_any_two_configurations(joint):
    """However far apart, the placement is reached, and by no more than half a turn where quaternions are used."""
    for (q0, _), (q1, _) in zip(states(joint, 1, 8), states(joint, 2, 8), strict=True):
        v = joint.difference(q0, q1)
        near(homogeneous(joint.transform(joint.integrate(q0, v))), homogeneous(joint.transform(q1)))
        if isinstance(joint, Spherical | Free):
            assert np.linalg.norm(v[:3]) <= math.pi + 1e-12


@over(CONSTANT_S)
def test_constant_velocity_is_a_one_parameter_motion(joint):
    """Where S is constant, T(integrate(q, v)) = T(q) exp(S v), for long steps too."""
    for q, v in states(joint):
        reached = joint.transform(joint.integrate(q, tuple(2.0 * x for x in v)))
        step = spatial.exp(joint.S(q) @ tuple(2.0 * x for x in v))
        near(homogeneous(reached), homogeneous(joint.transform(q)) @ homogeneous(step))
        near(columns(joint.S(q)), columns(joint.S(joint.integrate(q, v))), 0)


@over(CONSTANT_S)
def test_steps_add_up(joint):
    """Two steps along one velocity are one step twice as long."""
    for q, v in states(joint):
        twice = joint.integrate(joint.integrate(q, v), v)
        once = joint.integrate(q, tuple(2.0 * x for x in v))
        near(homogeneous(joint.transform(twice)), homogeneous(joint.transform(once)))


@over(JOINTS)
def test_normalize(joint):
    """Valid coordinates stay; quaternions off their length come back to it, and nothing else changes."""
    for q, _ in states(joint):
        near(joint.normalize(q), q, UNIT)
        if joint.nq > joint.nv:
            grown = (*q[:-4], *(1.3 * x for x in q[-4:]))
            near(joint.normalize(grown), q, UNIT)


@over(JOINTS)
def test_random_coordinates_are_valid(joint):
    """Floats, repeatable, different from each other, and such that integration keeps them valid."""
    a, b = joint.random(np.random.default_rng(3)), joint.random(np.random.default_rng(3))
    assert a == b
    assert all(type(x) is float for x in a)
    rng = np.random.default_rng(3)
    assert joint.nq == 0 or joint.random(rng) != joint.random(rng)
    for q, v in states(joint):
        reached = joint.integrate(q, v)
        near(joint.normalize(reached), reached, UNIT)


# ---- springs ---------------------------------------------------------------------------------------------------------

GROUPS = {Spherical: (0, 0, 0), Free: (0, 0, 0, 1, 1, 1), Planar: (0, 0, 1)}


@over(JOINTS)
def test_displacement_is_the_gradient_of_half_its_square(joint):
    """So a spring -k displacement has the energy ½ k displacement². Directions that turn into each other share k."""
    k = np.array([1.5, 0.4, 2.0, 0.7, 1.1, 0.3])[list(GROUPS.get(type(joint), range(joint.nv)))]
    for (q0, _), (q, _) in zip(states(joint, 4), states(joint, 5), strict=True):
        force = k * np.array(joint.displacement(q0, q))

        def energy(x, q0=q0):
            stretch = np.array(joint.displacement([complex(y) for y in q0], x))
            return 0.5 * (k * stretch) @ stretch

        slope = [along(joint, q, unit, energy) for unit in np.eye(joint.nv)]
        near(slope, force, 1e-12)


# ---- pickles and batches ---------------------------------------------------------------------------------------------


@over(JOINTS)
def test_joints_pickle(joint):
    again = pickle.loads(pickle.dumps(joint))
    assert again == joint
    assert hash(again) == hash(joint)
    q, _ = next(states(joint))
    near(homogeneous(again.transform(q)), homogeneous(joint.transform(q)), 0)


def batched(joint, name, *arguments):
    """A method's answer as one flat array a sample."""
    answer = getattr(joint, name)(*arguments)
    if isinstance(answer, Transform):
        flat = [x for row in answer.R.rows for x in row] + list(answer.p)
    elif name in ("S", "S_dot"):
        flat = [x for column in answer for x in column.components]
    else:
        flat = list(answer.components) if name == "bias" else list(answer)
    return flat


@over(JOINTS)
def test_batches_are_loops(joint):
    """Arrays of samples in the place of numbers, in every method."""
    pairs = list(states(joint, 6, 5))
    rest = joint.neutral()
    pairs.append((rest, (0.0,) * joint.nv))  # a sample that takes the other branch of every choice
    others = [q for q, _ in states(joint, 7, len(pairs))]
    q, v, r = (
        tuple(np.array(column) for column in zip(*rows, strict=True)) for rows in (*zip(*pairs, strict=True), others)
    )
    calls = {
        "transform": (q,),
        "S": (q,),
        "S_dot": (q, v),
        "bias": (q, v),
        "integrate": (q, v),
        "difference": (q, r),
        "displacement": (q, r),
        "normalize": (q,),
    }
    for name, arguments in calls.items():
        together = batched(joint, name, *arguments)
        for k in range(len(pairs)):
            alone = batched(joint, name, *(tuple(float(x[k]) for x in a) for a in arguments))
            picked = [x[k] if isinstance(x, np.ndarray) and x.ndim else x for x in together]
            near(np.array(picked, dtype=float), np.array(alone, dtype=float), 1e-14)


# ---- single kinds ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "size", [0.0, 1e-300, 1e-160, 1e-20, 1e-8, 1e-4, 0.999999, 1.0, 1.000001, math.pi, 2 * math.pi - 1e-6]
)
def test_exponential_coordinates_near_zero_and_near_a_turn(size):
    """S, Ṡ and the bias through zero, where the formulas are 0/0, and up to the singularity at 2π."""
    joint = SphericalExponential()
    q, v = tuple(size * x for x in (2 / 7, -3 / 7, 6 / 7)), (0.3, -0.7, 0.2)
    H, S = homogeneous(joint.transform(q)), columns(joint.S(q))
    for k, unit in enumerate(np.eye(3)):
        H_dot = along(joint, q, unit, lambda x: homogeneous(joint.transform(x)))
        near(S[:, k], twist_of(np.linalg.inv(H) @ H_dot), 1e-14)
    S_dot = columns(joint.S_dot(q, v))
    near(S_dot, along(joint, q, v, lambda x: columns(joint.S(x))), 1e-14)
    near(joint.bias(q, v).components, S_dot @ np.array(v), 1e-14)
    if size < 1e-3:
        near(S[:3], np.eye(3) - 0.5 * cross_matrix(q), size * size)  # the first terms of S
        near(S_dot[:3], -0.5 * cross_matrix(v), size)


def test_exponential_coordinates_are_singular_at_a_turn():
    """det S = 2(1 - cos θ)/θ²: none at 2π, where no joint velocity turns the child across r."""
    joint = SphericalExponential()
    for angle in (0.5, 3.0, 2 * math.pi - 1e-3, 2 * math.pi):
        S = columns(joint.S(tuple(angle * x for x in (2 / 7, -3 / 7, 6 / 7))))[:3]
        assert np.linalg.det(S) == pytest.approx(2 * (1 - math.cos(angle)) / angle**2, abs=1e-14)


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_euler_angles_are_singular_where_the_outer_axes_align(sequence):
    joint = SphericalEuler(sequence)
    middle = 0.0 if sequence[0] == sequence[2] else math.pi / 2
    for angle, regular in ((middle, False), (middle + 0.4, True)):
        S = columns(joint.S((0.3, angle, -0.8)))[:3]
        assert (abs(np.linalg.det(S)) > 0.3) == regular


@over(JOINTS)
def test_scaled_joints_go_as_far_as_a_scaled_robot_does(joint):
    """By the same turn and three times the way, where coordinates in metres are three times as large."""
    large = joint.scaled(3.0)
    assert (large is None) == isinstance(joint, Own)
    for q, _ in states(joint) if large is not None else ():
        far = [3.0 * x if unit == "m" else x for x, unit in zip(q, joint.coordinate_units, strict=True)]
        T, wanted = large.transform(far), joint.transform(q)
        assert np.allclose(T.R.rows, wanted.R.rows, rtol=0.0, atol=ROUNDING)
        assert np.allclose(T.p, np.multiply(3.0, wanted.p), rtol=0.0, atol=3.0 * ROUNDING)


@pytest.mark.parametrize("angle", [math.pi - 1e-9, math.pi, math.pi + 1e-9, 3.5, 2 * math.pi, 7.0, -math.pi, -4.0, 40.0])
@pytest.mark.parametrize("start", [0.0, 2.0, -11.0])
def test_planar_differences_past_half_a_turn(angle, start):
    """The way back is taken: the same placement is reached by no more than half a turn; springs count the turns."""
    joint = Planar((0.0, 0.0, 1.0))
    q0, q1 = (0.3, -0.2, start), (1.1, 0.7, start + angle)
    v = joint.difference(q0, q1)
    assert abs(v[2]) <= math.pi
    near(homogeneous(joint.transform(joint.integrate(q0, v))), homogeneous(joint.transform(q1)), 1e-12)
    assert joint.displacement(q0, q1)[2] == pytest.approx(angle, abs=1e-14)


def test_quaternions_of_either_sign_are_one_placement():
    joint = Spherical()
    for q, v in states(joint):
        other = tuple(-x for x in q)
        near(joint.difference(q, other), np.zeros(3), 1e-15)
        near(joint.difference(other, joint.integrate(q, v)), joint.difference(q, joint.integrate(q, v)), 1e-14)


def test_own_joint_equals_the_built_in_one():
    """A cylindrical joint written as a function has the S and Ṡ of the built-in one."""
    own, built_in = Own(cylinder, 2), Cylindrical((0.0, 0.0, 1.0))
    for q, v in states(built_in):
        near(homogeneous(own.transform(q)), homogeneous(built_in.transform(q)))
        near(columns(own.S(q)), columns(built_in.S(q)))
        near(columns(own.S_dot(q, v)), np.zeros((6, 2)))


def cylinder(q):
    return Transform(axis_angle((0.0, 0.0, 1.0), q[0]), (0.0, 0.0, q[1]))


def test_own_joint_with_the_math_module_is_refused():
    joint = Own(careless, 1)
    for call in (joint.S, lambda q: joint.S_dot(q, (1.0,)), lambda q: joint.bias(q, (1.0,))):
        with pytest.raises(TypeError, match=r"qddot\.scalars or NumPy, not the math module"):
            call((0.3,))


def test_what_a_joint_must_answer():
    """The bare interface says so instead of answering something."""
    for call in (joints.Joint().transform, joints.Joint().S):
        with pytest.raises(NotImplementedError):
            call((0.0,))


# ---- facts about a kind ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("joint", JOINTS.values(), ids=JOINTS)
def test_names_and_units_of_every_coordinate(joint):
    assert len(joint.coordinate_names) == len(joint.coordinate_units) == joint.nq
    assert len(joint.velocity_names) == len(joint.is_angle) == joint.nv
    assert len(set(joint.coordinate_names)) == joint.nq
    assert set(joint.coordinate_units) <= {"rad", "m", ""}
    if joint.has_unit_quaternion:
        assert joint.coordinate_units[-4:] == ("",) * 4
        assert joint.coordinate_names[-4:] == ("qx", "qy", "qz", "qw")
    assert bool(joint.coordinate_text) == bool(joint.velocity_text) == (joint.nv > 1 or isinstance(joint, Own))


@pytest.mark.parametrize("joint", JOINTS.values(), ids=JOINTS)
def test_canonical_joints_move_the_turned_frame(joint):
    """R⁻¹ T(q) R of the joint is what the one along z does."""
    rng = np.random.default_rng(3)
    R, along_z = joint.canonical()
    for _ in range(SAMPLES):
        q = joint.random(rng)
        expected, found = Transform(R.T) @ joint.transform(q) @ Transform(R), along_z.transform(q)
        np.testing.assert_allclose(np.array(found.R.rows, float), np.array(expected.R.rows, float), atol=ROUNDING)
        np.testing.assert_allclose(np.array(found.p, float), np.array(expected.p, float), atol=ROUNDING)


@pytest.mark.parametrize("joint", JOINTS.values(), ids=JOINTS)
def test_brackets(joint):
    """[x, y] is antisymmetric, zero where velocities commute, and ad_xᵀ is its transpose."""
    rng = np.random.default_rng(4)
    x, y, p = rng.standard_normal((3, joint.nv)).tolist()
    bracket, back = np.array(joint.bracket(x, y)), np.array(joint.bracket(y, x))
    np.testing.assert_allclose(bracket, -back, atol=ROUNDING)
    assert joint.is_commutative == (not bracket.any())
    np.testing.assert_allclose(np.dot(p, bracket), np.dot(joint.dual_bracket(x, p), y), atol=ROUNDING)


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "own"])
def test_random_joints_of_every_kind(kind):
    joint = KINDS[kind].sample(np.random.default_rng(5))
    assert joint.kind == kind
    assert joint.defect() is None
    for name in joint.axis_names:
        assert math.isclose(math.hypot(*getattr(joint, name)), 1.0, rel_tol=UNIT)
    assert joint.with_parameters(joint.parameters()) == joint
