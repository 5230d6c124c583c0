"""Builder and Model: what is merged, ordered, refused and reported."""

import math
import pickle
import warnings

import numpy as np
import pytest

import qddot
from qddot.errors import ModelError
from qddot.joints import Fixed, Free, Own, Prismatic, Revolute, Spherical, SphericalEuler, Universal
from qddot.mechanism.builder import Builder
from qddot.mechanism.validation import cos_sin, pose
from qddot.robot import Robot
from qddot.robots.generators import random_tree
from qddot.spatial import Transform
from tests.support.tolerances import ROUNDING

BALL = (0.1, 0.0, 0.0, 0.1, 0.0, 0.1)


def arm() -> Builder:
    b = Builder("arm")
    b.link("upper", 2.0, (0.1, 0.0, 0.2), BALL).link("lower", 1.0, (0.0, 0.0, 0.3), BALL).link("tool", 0.5, inertia=BALL)
    b.joint("shoulder", "world", "upper", Revolute((0, 0, 1)), pose((0, 0, 1.0)))
    b.joint("elbow", "upper", "lower", Revolute((0, 1, 0)), pose((0.4, 0, 0)))
    b.joint("flange", "lower", "tool", Fixed(), pose((0, 0, 0.5), (0.3, 0, 0)))
    return b


def test_fixed_links_are_merged_and_keep_their_frames():
    model = arm().frame("tip", "tool", pose((0, 0, 0.1))).model()
    assert model.link_names == ("world", "upper", "lower")
    assert model.inertia[2].m == 1.5
    # merging is a change of bookkeeping: with the tool on a joint that stands still the dynamics are the same
    b = Builder("arm")
    b.link("upper", 2.0, (0.1, 0.0, 0.2), BALL).link("lower", 1.0, (0.0, 0.0, 0.3), BALL).link("tool", 0.5, inertia=BALL)
    b.joint("shoulder", "world", "upper", Revolute((0, 0, 1)), pose((0, 0, 1.0)))
    b.joint("elbow", "upper", "lower", Revolute((0, 1, 0)), pose((0.4, 0, 0)))
    b.joint("flange", "lower", "tool", Prismatic((1, 0, 0)), pose((0, 0, 0.5), (0.3, 0, 0)))
    merged, apart = Robot(model), Robot(b.model())
    q, v = merged.random_state(1)
    M = apart.mass_matrix([*q, 0.0])[:2, :2]
    assert np.allclose(merged.mass_matrix(q), M, rtol=ROUNDING, atol=ROUNDING)
    assert np.allclose(merged.pose(q, "tool"), apart.pose([*q, 0.0], "tool"), rtol=0, atol=ROUNDING)
    assert np.allclose(merged.pose(q, "tip")[:3, 3], (merged.pose(q, "tool") @ [0, 0, 0.1, 1])[:3], rtol=0, atol=ROUNDING)
    assert merged.velocity(q, v, "tip").shape == (6,)


def test_links_fixed_to_the_ground_are_frames_of_the_world():
    b = Builder("x").link("pedestal", 10.0).joint("bolts", "world", "pedestal", Fixed(), pose((0, 0, 2)))
    b.link("arm", 1.0, inertia=BALL).joint("j", "pedestal", "arm", Revolute())
    robot = Robot(b.model())
    assert robot.link_names == ("arm",)
    assert robot.mass == 1.0
    assert robot.pose([0.3], "pedestal")[2, 3] == 2.0


def test_any_order_of_declaration():
    b = Builder("x")
    b.joint("j2", "a", "b", Revolute()).link("c", 1.0).joint("j3", "b", "c", Fixed()).link("b", 1.0)
    b.joint("j1", "world", "a", Revolute()).link("a", 1.0)
    model = b.model()
    assert model.link_names == ("world", "a", "b")
    assert all(p < i for i, p in model.outward())


def test_several_roots():
    b = Builder("x")
    for k in range(3):
        b.link(f"l{k}", 1.0, inertia=BALL).joint(f"j{k}", "world", f"l{k}", Free())
    assert b.model().parent == (-1, 0, 0, 0)


def test_mimic_chains_are_resolved():
    b = Builder("x")
    for k, mimic in enumerate((None, ("j0", 2.0, 0.5), ("j1", -3.0, 1.0))):
        parent = "world" if k == 0 else f"l{k - 1}"
        b.link(f"l{k}", 1.0, (0.3, 0, 0), BALL).joint(f"j{k}", parent, f"l{k}", Revolute((0, 1, 0)), mimic=mimic)
    robot = Robot(b.model())
    assert robot.nq == robot.nv == 1
    assert robot.model.mimic[3] == (1, -6.0, -0.5)
    with pytest.raises(qddot.InputError, match=r"follows 'j0' by q = -6 q \+ -0.5"):
        robot.q_index["j2"]


def test_content_decides_equality():
    a, b = arm().model(), arm().model()
    assert a == b
    assert hash(a) == hash(b)
    assert len({a, b}) == 1
    heavier = arm().link("more", 1.0).joint("m", "tool", "more", Fixed()).model()
    assert heavier != a
    assert pickle.loads(pickle.dumps(a)) == a
    assert a != "arm"


def test_models_of_every_kind_pickle():
    model = random_tree(12, rng=0, mimic=True).model()
    again = pickle.loads(pickle.dumps(model))
    assert again == model
    robot, other = Robot(model), Robot(again)
    q, v = robot.random_state(0)
    assert np.array_equal(robot.inverse_dynamics(q, v, v), other.inverse_dynamics(q, v, v))


def offset(length):
    def T(q):
        return Transform(p=(length * q[0], 0.0, 0.0))

    return T


def test_own_joints_are_known_by_what_they_compute():
    def model(function):
        return Builder("x").link("a", 1.0).joint("j", "world", "a", Own(function, 1, "slide")).model()

    assert model(offset(1.0)) == model(offset(1.0))
    assert model(offset(1.0)) != model(offset(2.0))


def test_right_angles_are_exact():
    for k in range(-8, 9):
        c, s = cos_sin(k * math.pi / 2)
        assert (c, s) in ((1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0))
        assert math.isclose(c, math.cos(k * math.pi / 2), abs_tol=1e-15)
    assert cos_sin(0.3) == (math.cos(0.3), math.sin(0.3))
    rows = pose(rpy=(math.pi / 2, 0.0, -math.pi / 2)).R.rows
    assert {abs(x) for row in rows for x in row} == {0.0, 1.0}


def test_angles_are_snapped_on_request_and_reported():
    almost = 1.5707963
    kept, snapped = Builder("x"), Builder("x", snap=1e-5)
    assert kept.angle(almost, "joint 'j'") == almost
    assert not kept.findings
    assert snapped.angle(almost, "joint 'j'", "f.urdf:3") == math.pi / 2
    assert "f.urdf:3" in str(snapped.findings[0])
    assert "2.7e-08" in str(snapped.findings[0])
    assert snapped.angle(1.57, "joint 'j'") == 1.57
    assert snapped.angle(math.pi / 2, "joint 'j'") == math.pi / 2
    assert len(snapped.findings) == 1


def test_which_joints_are_actuated():
    def actuated(*said):
        b = qddot.Builder("x").link("a", 1.0).link("b", 1.0).link("c", 1.0).link("d", 1.0)
        for child, on in zip("abc", said, strict=True):
            b.joint(f"j{child}", "world", child, Revolute(), actuated=on)
        return b.joint("base", "world", "d", Free()).robot().actuated_joints

    assert actuated(None, None, None) == ("ja", "jb", "jc")  # nobody says anything: all but what floats
    assert actuated(None, False, None) == ("ja", "jc")
    assert actuated(True, None, None) == ("ja",)  # as soon as one is said to be driven, it is that one
    assert actuated(True, False, True) == ("ja", "jc")
    assert actuated(False, False, False) == ()


IMPOSSIBLE = {
    "triangle": ((1.0, 0, 0, 1.0, 0, 3.0), "violates the triangle inequality: principal moments 1, 1, 3"),
    "not positive": ((-1.0, 0, 0, 1.0, 0, 1.0), "is not positive: principal moments -1, 1, 1"),
    "turned": ((2.0, 1.5, 0, 2.0, 0, 1.0), "violates the triangle inequality: principal moments 0.5, 1, 3.5"),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_inertias_that_no_body_has_are_refused(name):
    inertia, text = IMPOSSIBLE[name]
    with pytest.raises(qddot.ModelError, match=f"r.urdf:3: link 'bad': its inertia {text}; .*allow_unphysical=True"):
        Builder("x").link("bad", 1.0, inertia=inertia, where="r.urdf:3")
    row = {"mass": 1.0, "inertia": inertia}
    with pytest.raises(qddot.ModelError, match=text):
        qddot.from_dh([row])
    assert text in str(qddot.from_dh([row], allow_unphysical=True).findings[0])


def test_inertias_of_six_digits_are_not_refused():
    """A plate has 1 + 1 = 2; files round."""
    Builder("x").link("plate", 1.0, inertia=(1.0 - 1e-7, 0, 0, 1.0, 0, 2.0)).link("point", 1.0)


def test_a_robot_built_with_findings_says_so():
    def built(**options):
        b = qddot.Builder("x", **options).link("odd", 0.0, inertia=BALL).link("arm", 1.0, inertia=BALL)
        return b.joint("j", "world", "arm", Revolute()).joint("k", "arm", "odd", Revolute()).robot()

    with pytest.warns(qddot.QddotWarning, match=r"robot 'x' was built with findings:\n  link 'odd': .* no mass") as caught:
        robot = built()
    assert caught[0].filename == __file__
    assert len(robot.findings) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert built(allow_unphysical=True).findings == robot.findings


def test_doubtful_inertias_are_found():
    b = Builder("x", allow_unphysical=True)
    b.link("bad", 1.0, inertia=(1.0, 0, 0, 1.0, 0, 3.0)).link("worse", 1.0, inertia=(-1.0, 0, 0, 1.0, 0, 1.0))
    b.link("odd", 0.0, inertia=BALL)
    text = [str(f) for f in b.findings]
    assert "triangle inequality: principal moments 1, 1, 3" in text[0]
    assert "not positive" in text[1]
    assert "no mass" in text[2]


BAD = {
    "two parents": (lambda b: b.joint("again", "world", "tool", Fixed()), "already the child of joint 'flange'"),
    "cycle": (
        lambda b: b.link("x").link("y").joint("p", "x", "y", Fixed()).joint("r", "y", "x", Fixed()),
        "cycle: x <- y",
    ),
    "loose link": (lambda b: b.link("alone"), "link 'alone': no joint carries it; .*'world'"),
    "unknown parent": (lambda b: b.link("z").joint("j", "uper", "z", Fixed()), r"'uper' does not exist \(near: upper"),
    "unknown child": (lambda b: b.joint("j", "upper", "lowr", Fixed()), r"child link 'lowr' .*near: lower"),
    "twice a link": (lambda b: b.link("tool"), "the name is used twice"),
    "twice a joint": (lambda b: b.link("z").joint("elbow", "tool", "z", Fixed()), "the name is used twice"),
    "ground": (lambda b: b.link("world"), "the ground's own name"),
    "no name": (lambda b: b.link(""), "no name"),
    "negative mass": (lambda b: b.link("z", -1.0), "mass is -1"),
    "mass nan": (lambda b: b.link("z", math.nan), "finite"),
    "com of two": (lambda b: b.link("z", 1.0, (1, 2)), "2 numbers where 3"),
    "inertia of five": (
        lambda b: b.link("z", 1.0, inertia=range(5)),
        "5 numbers where 6 or 9 are needed; give ixx ixy ixz",
    ),
    "skewed inertia": (lambda b: b.link("z", 1.0, inertia=np.triu(np.ones((3, 3)))), "not symmetric"),
    "words": (lambda b: b.link("z", "heavy"), "give numbers"),
    "zero axis": (lambda b: b.link("z").joint("j", "tool", "z", Revolute((0, 0, 0))), "not zero"),
    "no joint": (lambda b: b.link("z").joint("j", "tool", "z", "revolute"), "is no joint; .*Revolute"),
    "euler letters": (lambda b: b.link("z").joint("j", "tool", "z", SphericalEuler("xxy")), "'xxy'"),
    "placement": (lambda b: b.link("z").joint("j", "tool", "z", Revolute(), np.eye(3)), "shape .3, 3.*qddot.pose"),
    "limits": (lambda b: b.link("z").joint("j", "tool", "z", Revolute(), lower=1, upper=0), "lower limit 1 is above"),
    "armature": (lambda b: b.link("z").joint("j", "tool", "z", Revolute(), armature=-1), "armature is .*zero or more"),
    "damping of two": (lambda b: b.link("z").joint("j", "tool", "z", Revolute(), damping=(1, 2)), "one number or 1"),
    "spring": (lambda b: b.link("z").joint("j", "tool", "z", Spherical(), stiffness=(1, 2, 3)), "one stiffness"),
    "mimics nobody": (lambda b: b.link("z").joint("j", "tool", "z", Revolute(), mimic=("no", 1, 0)), "no joint"),
    "mimics itself": (lambda b: b.link("z").joint("j", "tool", "z", Revolute(), mimic=("j", 1, 0)), "mimics itself"),
    "mimics a ball": (
        lambda b: b.link("z").joint("j", "tool", "z", Universal(), mimic=("elbow", 1, 0)),
        "one degree of freedom",
    ),
    "frame twice": (lambda b: b.frame("tool", "lower"), "frame 'tool': a link or frame of this name exists"),
    "frame nowhere": (lambda b: b.frame("f", "toool"), r"'toool' does not exist \(near: tool"),
    "loop on one link": (lambda b: b.loop("l", "tool", "lower", Revolute()), "do not move against each other"),
    "loop twice": (lambda b: b.loop("l", "tool", "upper", Fixed()).loop("l", "tool", "upper", Fixed()), "two loops"),
}


@pytest.mark.parametrize("name", BAD)
def test_impossible_mechanisms(name):
    change, text = BAD[name]
    with pytest.raises(ModelError, match=text):
        change(arm()).model()


def test_errors_repeat_where_the_part_came_from():
    with pytest.raises(ModelError, match=r"robot\.urdf:17: link 'z': mass is -1"):
        Builder("x").link("z", -1.0, where="robot.urdf:17")
