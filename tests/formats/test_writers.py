"""Robots as URDF and MJCF: read again they are the same, or what is lost is said."""

import gzip
import math

import numpy as np
import pytest

import qddot
from qddot import joints
from qddot.errors import FileError, ModelError
from qddot.formats import mjcf, urdf
from qddot.formats.mjcf_writer import mjcf as as_mjcf
from qddot.formats.urdf_writer import urdf as as_urdf
from qddot.robots import NAMES, build
from tests.support.model_differences import differences
from tests.support.peers import peer

NOT_TREES = ("delta", "fivebar", "fourbar", "stewart")
BODY = {"mass": 2.0, "com": (0.1, -0.2, 0.3), "inertia": (0.5, 0.01, -0.02, 0.6, 0.03, 0.7)}


def read_urdf(text):
    return urdf.read("x.urdf", text=text).model()


def read_mjcf(text):
    peer("mujoco")
    return mjcf.read("x.xml", text=text).model()


def arm(**options):
    """An arm with what both formats hold: a rotated placement, limits, damping, friction, a frame, a mimic joint."""
    b = qddot.Builder("arm", **options)
    b.link("base").joint("foot", "world", "base", joints.Fixed())
    for name in ("upper", "lower", "finger", "thumb"):
        b.link(name, **BODY)
    turned = qddot.pose((0.3, 0.2, -0.1), (0.4, -0.9, 2.2))
    limits = {"lower": -1.0, "upper": 2.0, "effort_limit": 30.0}
    b.joint("shoulder", "base", "upper", joints.Revolute((0.0, 0.6, 0.8)), turned, damping=0.3, friction=0.1, **limits)
    b.joint(
        "elbow", "upper", "lower", joints.Revolute((1.0, 0.0, 0.0)), qddot.pose((0.0, 0.0, 0.5), (0.0, math.pi / 2, 0.0))
    )
    b.joint("slide", "lower", "finger", joints.Prismatic((0.0, 1.0, 0.0)), lower=0.0)
    b.joint("follow", "lower", "thumb", joints.Prismatic((0.0, -1.0, 0.0)), mimic=("slide", -0.5, 0.02))
    b.frame("tool", "finger", qddot.pose((0.0, 0.1, 0.0), (0.1, 0.2, 0.3)))
    return b


def humanoid():
    """A floating base and a ball joint, as MJCF has them."""
    b = qddot.Builder("body", gravity=(0.0, 1.0, -3.0))
    b.link("trunk", **BODY).link("leg", **BODY)
    b.joint("root", "world", "trunk", joints.Free(), damping=0.2)
    spring = {"stiffness": 3.0, "armature": 0.1, "damping": 0.2}
    return b.joint("hip", "trunk", "leg", joints.Spherical(), qddot.pose((0.0, 0.0, -1.0), (1.0, 0.2, 0.0)), **spring)


# ---- read again ------------------------------------------------------------------------------------------------------


def test_an_arm_is_the_same_after_urdf():
    model = arm().model()
    text, findings = as_urdf(model)
    again = read_urdf(text)
    assert differences(model, again) == []
    assert findings == ()
    assert [f.name for f in again.frames] == [f.name for f in model.frames]


def test_an_arm_is_the_same_after_mjcf():
    model = arm(gravity=(1.0, 2.0, 3.0)).model()
    text, findings = as_mjcf(model)
    assert differences(model, read_mjcf(text)) == []
    assert findings == ()


def test_springs_rotors_and_free_bases_are_the_same_after_mjcf():
    model = humanoid().model()
    assert differences(model, read_mjcf(as_mjcf(model).text)) == []


def test_a_free_base_and_gravity_in_urdf():
    b = qddot.Builder("drone").link("trunk", **BODY).joint("root", "world", "trunk", joints.Free())
    assert differences(b.model(), read_urdf(as_urdf(b.model()).text)) == []


def test_planar_joints_in_urdf():
    b = qddot.Builder("cart").link("cart", **BODY)
    b.joint("floor", "world", "cart", joints.Planar((0.0, 0.0, 1.0)), qddot.pose((1.0, 0.0, 0.0)))
    assert differences(b.model(), read_urdf(as_urdf(b.model()).text)) == []


@pytest.mark.parametrize("name", [n for n in NAMES if n not in NOT_TREES])
def test_embedded_robots(name):
    model = build(name).model()
    text, findings = as_urdf(model, lossy=True)
    lost = {"armature"} if any(any(a) for a in model.armature) else set()
    if model.gravity != (0.0, 0.0, -9.81):
        lost.add("gravity")
    assert {f.message.split()[0] for f in findings if f.severity == "warning"} == lost
    assert differences(model, read_urdf(text), without=tuple(lost)) == []


@pytest.mark.parametrize("seed", range(6))
def test_random_trees_of_hinges_and_slides(seed):
    tree = qddot.random_tree(12, rng=seed, kinds=("revolute", "prismatic"))
    for write, read in ((as_urdf, read_urdf), (as_mjcf, read_mjcf)):
        text, _ = write(tree.model, lossy=True)
        again = read(text)
        places = [again.joint_names.index(name) - 1 for name in tree.model.joint_names[1:]]  # depth first
        q, x = np.random.default_rng(seed).normal(size=12), np.empty(12)
        x[places] = q
        ours, theirs = (qddot.Robot(m, compiled=False).mass_matrix(z) for m, z in ((tree.model, q), (again, x)))
        rotors = np.diag([r for rows in tree.model.armature for r in rows]) if write is as_urdf else 0.0
        np.testing.assert_allclose(theirs[np.ix_(places, places)] + rotors, ours, rtol=0, atol=1e-12 * abs(ours).max())


def test_joints_of_several_axes_become_several_in_mjcf():
    b = qddot.Builder("many")
    kinds = {
        "u": joints.Universal((1.0, 0.0, 0.0), (0.0, 0.6, 0.8)),
        "c": joints.Cylindrical((0.0, 0.6, 0.8)),
        "t": joints.Translational(),
        "e": joints.SphericalEuler("zyx"),
    }
    parent = "world"
    for name, joint in kinds.items():
        b.link(f"link_{name}", **BODY)
        placement = qddot.pose((0.1, 0.2, 0.3), (0.3, 0.2, 0.1))
        b.joint(name, parent, f"link_{name}", joint, placement, damping=np.arange(1.0, joint.nv + 1.0))
        parent = f"link_{name}"
    robot = qddot.Robot(b.model(), compiled=False)
    text, findings = as_mjcf(robot.model)
    assert sorted(f.element for f in findings) == ["joint 'c'", "joint 'e'", "joint 't'", "joint 'u'"]
    again = qddot.Robot(read_mjcf(text), compiled=False)
    q, v = robot.random_state(3)
    a = np.random.default_rng(4).normal(size=robot.nv)
    ours, theirs = (r.inverse_dynamics(q, v, a) for r in (robot, again))
    np.testing.assert_allclose(theirs, ours, rtol=0, atol=1e-12 * abs(ours).max())
    for name in kinds:
        np.testing.assert_allclose(again.pose(q, f"link_{name}"), robot.pose(q, f"link_{name}"), atol=1e-13)


def test_massless_chains_become_joints_of_one_body_in_mjcf():
    b = qddot.Builder("hip").link("one").link("two").link("leg", **BODY)
    b.joint("yaw", "world", "one", joints.Revolute((0.0, 0.0, 1.0)), qddot.pose((0.0, 0.0, 1.0)))
    b.joint("roll", "one", "two", joints.Revolute((1.0, 0.0, 0.0)), qddot.pose((0.1, 0.0, 0.0), (0.5, 0.0, 0.3)))
    b.joint("lift", "two", "leg", joints.Prismatic((0.0, 0.0, 1.0)), qddot.pose((0.0, 0.2, 0.0), (0.0, 0.4, 0.0)))
    robot = qddot.Robot(b.model(), compiled=False)
    text, findings = as_mjcf(robot.model)
    assert [f.element for f in findings] == ["link 'one'", "link 'two'"]
    again = qddot.Robot(read_mjcf(text), compiled=False)
    q, v = robot.random_state(5)
    ours, theirs = (r.bias_force(q, v) for r in (robot, again))
    np.testing.assert_allclose(theirs, ours, rtol=0, atol=1e-13 * abs(ours).max())
    np.testing.assert_allclose(again.pose(q, "leg"), robot.pose(q, "leg"), atol=1e-14)


def test_loops_and_couplings_in_mjcf():
    b = arm()
    b.loop("ball", "finger", "world", joints.Spherical(), qddot.pose((0.1, 0.0, 0.0)), qddot.pose((1.0, 0.0, 0.0)))
    b.loop("glue", "thumb", "upper", joints.Fixed(), qddot.pose((0.1, 0.0, 0.0), (0.1, 0.2, 0.3)))
    b.coupling("curve", {"shoulder": 2.0}, (0.1, -0.3, 0.5), {"elbow": 3.0}, reference=0.2)
    b.coupling("sum", {"shoulder": 1.0, "elbow": 2.0}, (0.0, 1.0), {"slide": 4.0, "elbow": -1.0})
    b.coupling("held", {"elbow": 1.0}, (0.7,))
    model = b.model()
    text, findings = as_mjcf(model)
    assert [f.element for f in findings] == ["loop 'ball'", "loop 'glue'"]
    again = read_mjcf(text)
    assert [loop.name for loop in again.loops] == ["ball", "glue"]
    q = np.random.default_rng(1).normal(size=model.nq)
    for one, other in zip(model.constraints, again.constraints, strict=True):
        ours, theirs = one.position(q)[0], other.position(q)[0]
        scale = 2.0 if one.name == "curve" else 1.0  # φ divided by the factor of its one joint
        assert theirs == pytest.approx(ours / scale, abs=1e-12), one.name
    # the sites of loops are frames now: once more, and nothing is added
    text, findings = as_mjcf(again)
    assert findings == ()
    assert differences(again, read_mjcf(text)) == []


@pytest.mark.parametrize("name", ["fourbar", "fivebar"])
def test_revolute_loops_are_held_at_two_points_in_mjcf(name):
    robot = qddot.Robot(build(name).model(), compiled=False)
    text, findings = as_mjcf(robot.model)
    assert {f.severity for f in findings} == {"note"}
    again = qddot.Robot(read_mjcf(text), compiled=False)
    assert len(again.model.loops) == 2 * len(robot.model.loops)
    assert again.mobility == robot.mobility
    q, _ = robot.close_loops(robot.random_state(1)[0])
    v = robot.project_velocity(q, np.random.default_rng(3).normal(size=robot.nv))
    tau = np.linspace(-1.0, 1.0, robot.nv)
    ours, theirs = (r.forward_dynamics(q, v, tau) for r in (robot, again))
    np.testing.assert_allclose(theirs, ours, rtol=0, atol=1e-9 * abs(ours).max())


def test_frames_keep_their_order_in_urdf():
    b = qddot.Builder("many").link("a", **BODY).link("b", **BODY).link("c", **BODY)
    b.joint("1", "world", "a", joints.Revolute()).joint("2", "a", "b", joints.Revolute())
    b.joint("3", "a", "c", joints.Revolute())
    for name, link in (("s", "a"), ("t", "a"), ("u", "b"), ("v", "a"), ("w", "c"), ("x", "a")):
        b.frame(name, link, qddot.pose((0.1, 0.2, 0.3)))
    again = read_urdf(as_urdf(b.model()).text)
    assert [f.name for f in again.frames] == ["s", "t", "u", "v", "w", "x"]


def test_another_order_of_links_is_a_finding():
    b = qddot.Builder("wide").link("a", **BODY).link("b", **BODY).link("c", **BODY)
    b.joint("1", "world", "a", joints.Revolute()).joint("2", "world", "b", joints.Revolute())
    b.joint("3", "a", "c", joints.Revolute())
    for write in (as_urdf, as_mjcf):
        assert "not numbered depth first" in write(b.model()).findings[0].message


def test_a_mimic_joint_that_stands_still_is_a_constraint_in_mjcf():
    b = qddot.Builder("still").link("a", **BODY).link("b", **BODY)
    b.joint("1", "world", "a", joints.Revolute()).joint("2", "a", "b", joints.Revolute(), mimic=("1", 0.0, 0.4))
    text, findings = as_mjcf(b.model())
    assert [f.message for f in findings] == ["it mimics with the factor 0"]
    assert read_mjcf(text).constraints[0].position((9.0, 0.4)) == [0.0]


def test_numbers_that_no_reader_takes_are_refused():
    model = qddot.Builder("far").link("a", **BODY).joint("j", "world", "a", joints.Revolute(), qddot.pose((1e31, 0, 0)))
    for write in (as_urdf, as_mjcf):
        with pytest.raises(ModelError, match=r"link 'a': its place is 1e\+31, 0, 0, which is too large"):
            write(model.model())


def test_driven_joints_are_kept():
    b = arm()
    model = b.model()
    assert "transmission" not in as_urdf(model).text
    b = qddot.Builder("two").link("a", **BODY).link("b", **BODY)
    b.joint("one", "world", "a", joints.Revolute()).joint("two", "a", "b", joints.Revolute(), actuated=True)
    model = b.model()
    assert read_urdf(as_urdf(model).text).actuated == model.actuated == (False, False, True)
    assert read_mjcf(as_mjcf(model).text).actuated == model.actuated
    passive = qddot.Builder("one").link("a", **BODY).joint("j", "world", "a", joints.Revolute(), actuated=False).model()
    for write in (as_urdf, as_mjcf):
        assert "no joint is driven" in write(passive).findings[0].message


def test_what_is_fixed_to_the_ground_keeps_its_inertia():
    for place in (qddot.pose(), qddot.pose((0.1, 0.2, 0.3), (0.3, 0.2, 0.1))):
        b = qddot.Builder("on_feet").link("base", **BODY).link("arm", **BODY)
        b.joint("foot", "world", "base", joints.Fixed(), place).joint("j", "base", "arm", joints.Revolute())
        for write, read in ((as_urdf, read_urdf), (as_mjcf, read_mjcf)):
            assert differences(b.model(), read(write(b.model()).text)) == []


def test_long_chains():
    chain = qddot.chain(1200)
    assert differences(chain.model, read_urdf(as_urdf(chain.model).text)) == []
    with pytest.raises(ModelError, match="it is nested 450 deep; MuJoCo reads no deeper files"):
        as_mjcf(chain.model)
    assert read_mjcf(as_mjcf(qddot.chain(440).model).text).n_links == 440


# ---- what a format cannot hold ---------------------------------------------------------------------------------------


def one_joint(joint=None, **options):
    joint = joint or joints.Revolute((0.0, 0.0, 1.0))
    return qddot.Builder("one").link("link", **BODY).joint("joint", "world", "link", joint, **options)


URDF_LOSES = {
    "stiffness is 2": one_joint(stiffness=2.0),
    "armature is 0.5": one_joint(armature=0.5),
    r"gravity is \(0, 0, -1.6\)": qddot.Builder("moon", gravity=(0, 0, -1.6))
    .link("l")
    .joint("j", "world", "l", joints.Free()),
    "damping of a floating joint is 1, 1, 1, 1, 1, 1": one_joint(joints.Free(), damping=1.0),
    "friction_velocity is 0.01": qddot.Builder("slow", friction_velocity=0.01)
    .link("l", **BODY)
    .joint("j", "world", "l", joints.Revolute(), friction=0.1),
    "loop 'ball': it closes a loop": arm().loop("ball", "finger", "world", joints.Spherical()),
    "constraint 'c': it is a constraint": arm().coupling("c", {"elbow": 1.0}, (0.0, 0.0, 1.0), {"slide": 1.0}),
}
MJCF_LOSES = {
    "loop 'slot': it is closed by a prismatic joint": arm().loop("slot", "finger", "world", joints.Prismatic()),
    "damping of a ball joint is 1, 2, 3": one_joint(joints.Spherical(), damping=(1.0, 2.0, 3.0)),
    "armature of a free joint is 1, 1, 1, 1, 1, 1": one_joint(joints.Free(), armature=1.0),
    "the spring of a ball joint is at rest at": one_joint(
        joints.Spherical(), stiffness=1.0, spring_reference=(1.0, 0.0, 0.0, 0.0)
    ),
    "constraint 'c': its polynomial has the degree 5": arm().coupling(
        "c", {"elbow": 1.0}, (0.0,) * 5 + (1.0,), {"slide": 1.0}
    ),
}
LOSSES = [
    *((as_urdf, read_urdf, text, builder) for text, builder in URDF_LOSES.items()),
    *((as_mjcf, read_mjcf, text, builder) for text, builder in MJCF_LOSES.items()),
]


@pytest.mark.parametrize(("write", "read", "text", "builder"), LOSSES, ids=[text for _, _, text, _ in LOSSES])
def test_a_loss_is_an_error_that_names_it_unless_it_is_allowed(write, read, text, builder):
    model = builder.model()
    with pytest.raises(ModelError, match=text) as error:
        write(model)
    assert "save it as .json, which keeps everything, or leave them out with lossy=True" in str(error.value)
    written = write(model, lossy=True)
    assert any(f.severity == "warning" and f.message.endswith("left out") for f in written.findings)
    read(written.text)


def slider(q):
    return qddot.Transform(p=(q[0], 0.0, 0.0))


@pytest.mark.parametrize(
    ("write", "joint", "text"),
    [
        (as_urdf, joints.Helical((0.0, 0.0, 1.0), 0.1), "URDF has no helical joints"),
        (as_urdf, joints.Spherical(), "URDF has no spherical joints"),
        (as_urdf, joints.Own(slider, 1), "URDF has no own joints"),
        (as_mjcf, joints.Planar(), "MJCF has no planar joints"),
        (as_mjcf, joints.Own(slider, 1), "MJCF has no own joints"),
    ],
)
def test_joints_that_a_format_has_not_are_refused_whatever_may_be_lost(write, joint, text):
    with pytest.raises(ModelError, match=f"joint 'joint': {text}"):
        write(one_joint(joint).model(), lossy=True)


def test_bodies_that_mujoco_refuses():
    light = qddot.Builder("light").link("a").link("b", **BODY).link("c", **BODY)
    light.joint("j", "world", "a", joints.Revolute()).joint("k", "a", "b", joints.Revolute())
    light.joint("l", "a", "c", joints.Revolute())
    with pytest.raises(ModelError, match="link 'a': it has no inertia, and MuJoCo refuses such moving bodies"):
        as_mjcf(light.model())
    point = qddot.Builder("point").link("p", 1.0).joint("j", "world", "p", joints.Revolute()).model()
    with pytest.raises(ModelError, match="link 'p': its principal moments are 0, 0, 0"):
        as_mjcf(point)
    flat = qddot.Builder("flat", allow_unphysical=True).link("f", 1.0, inertia=np.diag([1.0, 1.0, 3.0]))
    with pytest.raises(ModelError, match="link 'f': its principal moments 1, 1, 3 violate the triangle inequality"):
        as_mjcf(flat.joint("j", "world", "f", joints.Revolute()).model())
    moved = qddot.Builder("moved").link("f", **BODY)
    moved.joint("j", "world", "f", joints.Free(), qddot.pose((0.0, 0.0, 1.0)))
    with pytest.raises(ModelError, match="a free joint of MJCF stands on the world, without a placement"):
        as_mjcf(moved.model())


def test_a_plate_is_written_however_its_moments_round():
    """Its largest moment is the sum of the others, and MuJoCo wants it no larger in the last bit."""
    rng = np.random.default_rng(2)
    for _ in range(20):
        a, b = rng.uniform(0.1, 1.0, 2)
        R, _ = np.linalg.qr(rng.normal(size=(3, 3)))
        inertia = R @ np.diag([a, b, a + b]) @ R.T
        plate = qddot.Builder("plate").link("p", 1.0, inertia=(inertia + inertia.T) / 2)
        model = plate.joint("j", "world", "p", joints.Revolute()).model()
        assert differences(model, read_mjcf(as_mjcf(model).text)) == []


# ---- limits and names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "joint", [joints.Revolute((0.0, 0.0, 1.0)), joints.Prismatic((0.0, 0.0, 1.0))], ids=lambda j: j.kind
)
@pytest.mark.parametrize(
    "limits",
    [{}, {"lower": -1.0}, {"upper": 2.0}, {"lower": -1.0, "upper": 2.0}, {"effort_limit": 3.0}, {"velocity_limit": 4.0}],
    ids=lambda x: "-".join(x) or "none",
)
def test_limits_that_are_not_there_stay_away(joint, limits):
    model = one_joint(joint, **limits).model()
    assert read_urdf(as_urdf(model).text).limits == model.limits
    if "velocity_limit" not in limits:
        assert read_mjcf(as_mjcf(model).text).limits == model.limits


def test_effort_limits_of_mjcf():
    peer("mujoco")
    body = '<inertial pos="0 0 0" mass="2" diaginertia="1 1 1"/>'
    ranges = {"a": "-3 3", "b": "-1 2"}
    bodies = "".join(f'<body><joint name="{n}" actuatorfrcrange="{r}"/>{body}</body>' for n, r in ranges.items())
    model = read_mjcf(f"<mujoco><worldbody>{bodies}</worldbody></mujoco>")
    assert [limits.effort for limits in model.limits[1:]] == [(3.0,), (math.inf,)]
    assert [f.message for f in model.findings] == ["its actuatorfrcrange is -1 to 2; left out"]


HOSTILE = [
    'a"b',
    "<x/>",
    "a & b",
    "]]>",
    "--><!--",
    "a'b",
    "tab\tline\nend\r",
    "ünï ☃ \U0001f916",
    " padded ",
    "a\u202eb",
    "&amp;",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_escaped(name):
    b = qddot.Builder(f"robot{name}").link(f"link{name}", **BODY).link(f"next{name}", **BODY)
    b.joint(f"joint{name}", "world", f"link{name}", joints.Revolute())
    b.joint(f"follow{name}", f"link{name}", f"next{name}", joints.Revolute(), mimic=(f"joint{name}", 2.0, 0.0))
    b.frame(f"frame{name}", f"link{name}", qddot.pose((1.0, 0.0, 0.0)))
    model = b.model()
    assert differences(model, read_urdf(as_urdf(model).text)) == []
    assert differences(model, read_mjcf(as_mjcf(model).text)) == []


@pytest.mark.parametrize("name", ["a\0b", "a\x1b[31m", "￿", "a" * 1001])
@pytest.mark.parametrize("write", [as_urdf, as_mjcf])
def test_names_that_no_file_can_have_are_refused(write, name):
    model = qddot.Builder("r").link(name, **BODY).joint("j", "world", name, joints.Revolute()).model()
    with pytest.raises(ModelError, match=r"link 'a|link '\\uffff") as error:
        write(model)
    assert str(error.value).isprintable() or "\n" in str(error.value)


def test_instructions_to_xacro_are_no_names():
    model = qddot.Builder("r").link("${1/0}", **BODY).joint("j", "world", "${1/0}", joints.Revolute()).model()
    with pytest.raises(ModelError, match="its name would be an instruction to xacro"):
        as_urdf(model)


# ---- files -----------------------------------------------------------------------------------------------------------


def test_save_and_load_by_ending(tmp_path):
    robot = qddot.Robot(arm().model())
    for ending in (".json", ".qddot", ".urdf", ".json.gz", ".urdf.gz"):
        file = tmp_path / f"arm{ending}"
        assert robot.save(file) == ()
        assert differences(robot.model, qddot.load(file).model) == []
    assert gzip.decompress((tmp_path / "arm.urdf.gz").read_bytes()) == (tmp_path / "arm.urdf").read_bytes()
    assert qddot.load(tmp_path / "arm.json.gz") == robot


def test_save_and_load_mjcf_by_ending(tmp_path):
    peer("mujoco")
    robot = qddot.Robot(arm().model())
    for ending in (".xml", ".mjcf", ".xml.gz"):
        robot.save(tmp_path / f"arm{ending}")
        assert differences(robot.model, qddot.load(tmp_path / f"arm{ending}").model) == []


@pytest.mark.parametrize("name", ["arm.sdf", "arm.csv", "arm", "arm.gz", ".urdf"])
def test_other_endings_are_refused(name, tmp_path):
    with pytest.raises(FileError, match=r"give a file that ends in \.json, \.mjcf, \.qddot, \.urdf, \.xml"):
        qddot.Robot(arm().model()).save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_refused_robot_leaves_the_old_file_alone(tmp_path):
    file = tmp_path / "arm.urdf"
    file.write_text("old")
    with pytest.raises(ModelError, match="stiffness is 2"):
        one_joint(stiffness=2.0).robot().save(file)
    assert file.read_text() == "old"
    assert [f.name for f in tmp_path.iterdir()] == ["arm.urdf"]
    assert [f.severity for f in one_joint(stiffness=2.0).robot().save(file, lossy=True)] == ["warning"]
    (tmp_path / "folder.urdf").mkdir()
    for name in ("nowhere/arm.urdf", "folder.urdf", "a\0b.urdf"):
        with pytest.raises(FileError, match="it cannot be written"):
            one_joint().robot().save(tmp_path / name)
