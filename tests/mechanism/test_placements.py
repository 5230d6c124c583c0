"""The forms of a placement, axes by letters, and what transforms, inertias and joints look like when they are printed."""

import math

import numpy as np
import pytest

import qddot
from qddot.errors import ModelError
from qddot.joints import KINDS, Cylindrical, Fixed, Free, Helical, Planar, Prismatic, Revolute, Universal
from qddot.mechanism.validation import pose
from qddot.spatial import Transform
from qddot.spatial.rotation import AxisRotation
from tests.support.tolerances import ROUNDING

RPY = (0.3, -0.4, 0.5)
HALF = math.sqrt(0.5)


def placed(placement):
    b = qddot.Builder("x").link("l", 1.0, inertia=np.eye(3)).joint("j", "world", "l", Revolute("z"), placement)
    return b.model().placement[1]


def matrix(T):
    return np.block([[np.array(T.R.rows), np.array(T.p)[:, None]], [np.array([[0.0, 0.0, 0.0, 1.0]])]])


def quaternion(rpy):
    """By half angles: a formula of its own."""
    (a, b, c), (x, y, z) = np.cos(np.array(rpy) / 2), np.sin(np.array(rpy) / 2)
    return [x * b * c - a * y * z, a * y * c + x * b * z, a * b * z - x * y * c, a * b * c + x * y * z]


def test_every_form_is_the_same_placement():
    T = pose((1, 2, 3), RPY)
    q = quaternion(RPY)
    forms = {
        "a transform": T,
        "six numbers": (1, 2, 3, *RPY),
        "two threes": ((1, 2, 3), RPY),
        "seven numbers": (1, 2, 3, *q),
        "three and four": ((1, 2, 3), q),
        "the other sign": (1, 2, 3, *(-x for x in q)),
        "an array": np.array((1, 2, 3, *RPY)),
        "4×4": matrix(T),
        "4×4 in a list": matrix(T).tolist(),
        "by name": {"xyz": (1, 2, 3), "rpy": RPY},
        "quaternion by name": {"xyz": [1, 2, 3], "quaternion": q},
    }
    for name, form in forms.items():
        np.testing.assert_allclose(matrix(placed(form)), matrix(T), atol=ROUNDING, err_msg=name)


def test_xyz_alone_and_nothing():
    assert matrix(placed((1, 2, 3)))[:3].tolist() == [[1, 0, 0, 1], [0, 1, 0, 2], [0, 0, 1, 3]]
    assert matrix(placed({})).tolist() == matrix(placed(None)).tolist() == np.eye(4).tolist()


@pytest.mark.parametrize("convention", ["modified", "standard"])
def test_dh_rows_are_those_of_a_table(convention):
    alpha, a, theta, d = 0.3, 0.4, 0.5, 0.6
    turn, twist = pose((0, 0, d), (0, 0, theta)), pose((a, 0, 0), (alpha, 0, 0))
    expected = twist @ turn if convention == "modified" else turn @ twist
    row = {"alpha": alpha, "a": a, "theta": theta, "d": d}
    np.testing.assert_allclose(matrix(placed({**row, "convention": convention})), matrix(expected), atol=ROUNDING)
    if convention == "modified":
        table = qddot.from_dh([{**row, "mass": 1.0}]).model
        np.testing.assert_array_equal(matrix(placed(row)), matrix(table.placement[1]))


def test_quarter_turns_stay_exact():
    """A zero that is 6e-17 would cost operations in every kernel."""
    turn = np.array([[math.cos(math.pi / 2), -1.0, 0.0], [1.0, math.cos(math.pi / 2), 0.0], [0.0, 0.0, 1.0]])
    T = np.eye(4)
    T[:3, :3] = turn
    for form in (T, (0, 0, 0, 0, 0, HALF, HALF), {"theta": math.pi / 2}, (0, 0, 0, 0, 0, math.pi / 2)):
        R = placed(form).R
        assert isinstance(R, AxisRotation)
        assert R.rows == ((0.0, -1.0, 0.0), (1.0, 0.0, 0.0), (0.0, 0.0, 1.0))


def test_frames_and_loops_take_them():
    b = qddot.Builder("x").link("a", 1.0, inertia=np.eye(3)).link("b", 1.0, inertia=np.eye(3))
    b.joint("j", "world", "a", Revolute("z")).joint("k", "world", "b", Revolute("z"), (2, 0, 0))
    b.frame("tip", "a", {"xyz": (1, 0, 0)}).loop("closed", "a", "b", Revolute("z"), (1, 0, 0), [-1, 0, 0])
    model = b.model()
    assert model.frames[0].placement.p == (1.0, 0.0, 0.0)
    assert model.loops[0].placement_b.p == (-1.0, 0.0, 0.0)


def test_an_attached_robot_takes_them():
    arm = qddot.load("double_pendulum")
    by_pose = arm.attach(arm, "world", qddot.pose((0, 1, 0), RPY), prefix="r_")
    assert arm.attach(arm, "world", ((0, 1, 0), RPY), prefix="r_") == by_pose


WRONG = {
    "two numbers": ((1, 2), r"shape \(2,\); give qddot.pose"),
    "a matrix of rotation": (np.eye(3), r"shape \(3, 3\)"),
    "text": ("here", "its placement is 'here'"),
    "one number": (1.0, r"shape \(\)"),
    "ragged": ([(1, 2, 3), (1, 2)], "its placement is"),
    "not finite": ((0, 0, math.nan), "finite numbers"),
    "last row": (np.ones((4, 4)), "last row of its 4×4 placement is .* 0 0 0 1"),
    "transposed": (matrix(pose((1, 2, 3))).T, "last row"),
    "not a rotation": (np.diag([2.0, 1.0, 1.0, 1.0]), "not orthogonal"),
    "mirrored": (np.diag([-1.0, 1.0, 1.0, 1.0]), "right-handed"),
    "long quaternion": ((0, 0, 0, 1, 1, 1, 1), "has the length 2; .* scalar last"),
    "no quaternion": ((0, 0, 0, 0, 0, 0, 0), "has the length 0"),
    "misspelt": ({"xzy": (1, 2, 3)}, r"key 'xzy' \(near: xyz\)"),
    "a key that is no text": ({1: (1, 2, 3)}, "key 1"),
    "both": ({"rpy": RPY, "quaternion": (0, 0, 0, 1)}, "rpy and quaternion; give one"),
    "mixed": ({"xyz": (1, 2, 3), "alpha": 0.1}, "not both"),
    "convention": ({"alpha": 0.1, "convention": "craig"}, "'modified' or 'standard'"),
    "four numbers": ({"xyz": (1, 2, 3, 4)}, "xyz has 4 numbers where 3"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_placement_says_so(name):
    value, text = WRONG[name]
    with pytest.raises(ModelError, match="joint 'j'.*" + text):
        placed(value)


# ---- axes


@pytest.mark.parametrize("letter", ["x", "y", "z", "-x", "-y", "-z"])
def test_axes_by_letter(letter):
    axis = tuple((-1.0 if letter[0] == "-" else 1.0) * float(letter[-1] == k) for k in "xyz")
    for kind in (Revolute, Prismatic, Cylindrical, Helical, Planar):
        assert kind(letter) == kind(axis)
        assert hash(kind(letter)) == hash(kind(axis))
        assert kind(letter).axis == axis
    assert Universal(letter, "y").first == axis


def test_an_axis_that_is_none():
    with pytest.raises(ModelError, match="axis of a joint: it is 'w'; give 'x', 'y', 'z'"):
        Revolute("w")


# ---- how they print


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "own"])
def test_joints_print_as_they_are_made(kind):
    for joint in (KINDS[kind].sample(np.random.default_rng(0)), KINDS[kind]()):
        assert eval(repr(joint), dict(vars(qddot.joints))) == joint


def test_short_forms():
    assert repr(Revolute((0, 0, -1))) == 'Revolute("-z")'
    assert repr(Helical("x", 0.01)) == 'Helical("x", pitch=0.01)'
    assert repr(Universal()) == 'Universal("x", "y")'
    assert repr(Free()) == "Free()"
    assert repr(Revolute((0.0, 0.6, 0.8))) == "Revolute((0.0, 0.6, 0.8))"


@pytest.mark.parametrize(
    "rpy", [RPY, (0.1, math.pi / 2, 0.2), (0.1, -math.pi / 2, 0.2), (math.pi, 0.0, 0.0), (0.0, 3.0, 0.0)]
)
def test_transforms_print_as_poses(rpy):
    T = pose((1, 2, 3), rpy)
    again = eval(repr(T), {"pose": pose})
    np.testing.assert_allclose(matrix(again), matrix(T), atol=1e-5)  # six digits are printed
    assert repr(Transform()) == "pose(xyz=(0, 0, 0), rpy=(0, 0, 0))"


def test_inertias_print_as_files_have_them():
    b = (
        qddot.Builder("x")
        .link("l", 2.0, (0.1, 0.2, 0.3), (0.4, 0.01, 0.0, 0.5, 0.0, 0.6))
        .joint("j", "world", "l", Fixed())
    )
    b.link("m", 2.0, (0.1, 0.2, 0.3), (0.4, 0.01, 0.0, 0.5, 0.0, 0.6)).joint("k", "l", "m", Revolute("z"))
    moments = "ixx=0.4, ixy=0.01, ixz=0, iyy=0.5, iyz=0, izz=0.6"
    assert repr(b.model().inertia[1]) == f"Inertia(mass=2, com=(0.1, 0.2, 0.3), {moments} about com)"
    assert repr(b) == "<Builder 'x': 2 links, 2 joints, 0 loops>"
    assert repr(b.model()) == "<Model 'x': 1 links, nq=1, nv=1>"


def test_traced_numbers_print_too():
    from qddot.compiler.ir.expr import Graph
    from qddot.spatial import Inertia

    (x,) = Graph().vectors([1])
    assert repr(Transform(p=(x[0], 0.0, 0.0))).startswith("Transform(R=((1.0, 0.0, 0.0)")
    assert repr(Inertia(x[0], (0.0, 0.0, 0.0), ((0.0,) * 3,) * 3)).startswith("Inertia(m=")
