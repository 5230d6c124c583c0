"""The URDF reader on good files: a small one checked by hand, and every robot of example-robot-data."""

import math
import re
import time

import numpy as np
import pytest

from qddot.errors import ModelError
from qddot.formats import urdf
from tests.support.peers import peer
from tests.support.real_robots import URDFS, WHY, or_skipped

INERTIA = '<inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/>'

GOOD = """<?xml version="1.0"?>
<robot name="all_kinds">
  <link name="base"/>
  <link name="arm">
    <inertial>
      <origin xyz="0.1 0 0" rpy="0 0 1.5707963267948966"/>
      <mass value="2"/>
      <inertia ixx="3" ixy="0" ixz="0" iyy="4" iyz="0" izz="5"/>
    </inertial>
  </link>
  <link name="tool">
    <inertial>
      <origin xyz="0 0 1"/><mass value="1"/><inertia ixx="0" ixy="0" ixz="0" iyy="0" iyz="0" izz="0"/>
    </inertial>
  </link>
  <link name="wheel"><inertial><mass value="1"/>{I}</inertial></link>
  <link name="slider"><inertial><mass value="1"/>{I}</inertial></link>
  <link name="puck"><inertial><mass value="1"/>{I}</inertial></link>
  <link name="drone"><inertial><mass value="1"/>{I}</inertial></link>
  <link name="follower"><inertial><mass value="1"/>{I}</inertial></link>
  <joint name="wheel_joint" type="continuous">
    <parent link="arm"/><child link="wheel"/><axis xyz="0 0 -1"/><limit effort="7" velocity="8"/>
  </joint>
  <joint name="arm_joint" type="revolute">
    <origin xyz="0 0 0.5" rpy="1.5707963267948966 0 0"/>
    <parent link="base"/><child link="arm"/><axis xyz="0 1 0"/>
    <limit lower="-1" upper="2" effort="30" velocity="4"/>
    <dynamics damping="0.5" friction="0.25"/>
  </joint>
  <joint name="tool_joint" type="fixed"><origin xyz="1 0 0"/><parent link="arm"/><child link="tool"/></joint>
  <joint name="slider_joint" type="prismatic">
    <parent link="base"/><child link="slider"/><limit lower="0" upper="1" effort="1" velocity="1"/>
  </joint>
  <joint name="puck_joint" type="planar"><parent link="slider"/><child link="puck"/><axis xyz="0 1 0"/></joint>
  <joint name="drone_joint" type="floating"><parent link="base"/><child link="drone"/></joint>
  <joint name="follower_joint" type="revolute">
    <parent link="tool"/><child link="follower"/><axis xyz="0 0 1"/>
    <limit lower="-1" upper="1" effort="1" velocity="1"/>
    <mimic joint="arm_joint" multiplier="-2" offset="0.5"/>
  </joint>
</robot>
""".replace("{I}", INERTIA)


def load(text, **options):
    return urdf.read("robot.urdf", text=text, **options).model()


def robot(*parts):
    """A robot with one part a line, the first of them on line 2."""
    return "\n".join(["<robot name='r'>", *parts, "</robot>"])


def link(name, inertial=f'<inertial><mass value="1"/>{INERTIA}</inertial>'):
    return f'<link name="{name}">{inertial}</link>'


def joint(name, parent, child, inside="", kind="continuous"):
    return f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>{inside}</joint>'


def pair(inside="", kind="continuous"):
    """Two links and, on line 4, the joint between them."""
    return robot(link("a"), link("b"), joint("j", "a", "b", inside, kind))


def lines(model):
    return [(f.severity, int(f.where.removeprefix("robot.urdf:"))) for f in model.findings]


# ---- a file checked by hand


def test_tables():
    m = load(GOOD)
    assert m.name == "all_kinds"
    assert m.link_names == ("world", "arm", "wheel", "follower", "slider", "puck", "drone")
    assert m.joint_names[1:] == (
        "arm_joint",
        "wheel_joint",
        "follower_joint",
        "slider_joint",
        "puck_joint",
        "drone_joint",
    )
    assert m.parent == (-1, 0, 1, 1, 0, 4, 0)
    assert [j.kind for j in m.joint[1:]] == ["revolute", "revolute", "revolute", "prismatic", "planar", "free"]
    axes = [getattr(j, "axis", None) for j in m.joint[1:]]
    assert axes == [(0, 1, 0), (0, 0, -1), (0, 0, 1), (1, 0, 0), (0, 1, 0), None]
    assert (m.nq, m.nv) == (13, 12)
    assert m.mimic[3] == (1, -2.0, 0.5)
    assert m.damping[1] == (0.5,)
    assert m.friction[1] == (0.25,)
    assert m.limits[1] == ((-1.0,), (2.0,), (4.0,), (30.0,))
    assert m.limits[2] == ((-math.inf,), (math.inf,), (8.0,), (7.0,))
    assert m.actuated == (False, True, True, True, True, True, False)
    assert m.findings == ()


def test_placements():
    m = load(GOOD)
    assert m.placement[1].p == (0.0, 0.0, 0.5)
    assert m.placement[1].R.rows == ((1, 0, 0), (0, 0, -1), (0, 1, 0))
    assert m.placement[3].p == (1.0, 0.0, 0.0)  # the follower stands on the tool, which is fixed to the arm
    frames = {f.name: (f.link, f.placement.p) for f in m.frames}
    assert frames == {"base": (0, (0.0, 0.0, 0.0)), "tool": (1, (1.0, 0.0, 0.0))}


def test_inertia_of_a_link_with_a_fixed_one():
    arm = load(GOOD).inertia[1]
    assert arm.m == 3.0
    assert arm.h == pytest.approx((2 * 0.1 + 1.0, 0.0, 1.0), abs=1e-15)
    # turned by a quarter about z the moments 3, 4 change places; then 2 kg at (0.1, 0, 0) and 1 kg at (1, 0, 1)
    expected = [[4 + 1, 0, -1], [0, 3 + 0.02 + 2, 0], [-1, 0, 5 + 0.02 + 1]]
    np.testing.assert_allclose(arm.I, expected, atol=1e-15)  # a few roundings of numbers of order one


def test_floating_base():
    m = load(GOOD, floating_base=True)
    assert m.link_names[:3] == ("world", "base", "arm")
    assert m.joint_names[1] == "root_joint"
    assert m.joint[1].kind == "free"
    assert m.nv == 18
    assert not m.actuated[1]
    assert [(f.severity, f.element) for f in m.findings] == [("note", "link 'base'")]  # it moves and has no inertia


def test_the_name_of_the_root_joint_gives_way():
    m = load(robot(link("a"), link("b"), joint("root_joint", "a", "b")), floating_base=True)
    assert m.joint_names == ("", "root_joint_2", "root_joint")


def test_a_root_called_world_is_the_ground():
    text = robot('<link name="world"/>', link("root"), joint("j", "world", "root", '<origin xyz="0 0 1"/>', "fixed"))
    assert load(text).frame("root").placement.p == (0.0, 0.0, 1.0)
    assert load(text).findings == ()
    free = load(text, floating_base=True)
    assert free.link_names == ("world", "root_2")
    assert free.inertia[1].m == 1.0
    assert "renamed 'root_2'" in str(free.findings[0])
    assert free.findings[0].where == "robot.urdf:2"


def test_depth_first_in_the_order_of_the_joints():
    tree = robot(
        *(link(n) for n in "gfedcba"),
        *(joint(c, p, c) for p, c in ("ab", "ac", "bd", "ce", "bf", "eg")),
    )
    assert load(tree).link_names == ("world", *"bdfceg")


def test_a_file_and_its_text_are_the_same(tmp_path):
    for name, encoding in (("utf8.urdf", "utf-8"), ("utf16.urdf", "utf-16"), ("bom.urdf", "utf-8-sig")):
        (tmp_path / name).write_text(GOOD, encoding=encoding)
        assert urdf.read(tmp_path / name).model() == load(GOOD)
    latin = robot(link("Rücken")).replace("<robot", '<?xml version="1.0" encoding="iso-8859-1"?><robot', 1)
    (tmp_path / "latin.urdf").write_text(latin, encoding="iso-8859-1")
    assert urdf.read(str(tmp_path / "latin.urdf")).model().frame("Rücken").link == 0


@pytest.mark.parametrize(
    ("text", "value"),
    [(".5", 0.5), ("5.", 5.0), ("+1e-3", 1e-3), (" 2\t\n", 2.0), ("1E+2", 100.0), ("-0", 0.0), ("0010.50", 10.5)],
)
def test_numbers_that_are_right(text, value):
    m = load(robot(f'<link name="a"><inertial><mass value="{text}"/>{INERTIA}</inertial></link>'), floating_base=True)
    assert m.inertia[1].m == value


# ---- findings


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (pair("<axis xyz='0 0 2'/>"), [("note", 4, "normalized")]),
        (pair(kind="revolute"), [("note", 4, "needs a <limit>")]),
        (pair("\n<limit/>", "prismatic"), [("note", 5, w) for w in ("no effort", "no velocity", "neither lower nor")]),
        (pair("\n\n<limit lower='2' upper='1' effort='1' velocity='1'/>", "revolute"), [("warning", 6, "2 is above")]),
        (pair("<limit lower='0' upper='1' effort='1' velocity='1'/>"), [("note", 4, "continuous")]),
        (pair("<limit effort='-1' velocity='-2'/>"), [("warning", 4, w) for w in ("effort is -1", "velocity is -2")]),
        (pair("\n<mimic joint='j'/>", "fixed"), [("note", 5, "fixed joint cannot mimic 'j'")]),
        (pair("\n<dynamics damping='1'/>", "planar"), [("warning", 5, "not defined for a planar joint")]),
        (pair("\n<orign xyz='1 2 3'/>"), [("warning", 5, "'orign' is not read; did you mean 'origin'?")]),
        (pair("\n<origin xzy='1 2 3'/>"), [("warning", 5, "'xzy' is not read; did you mean 'xyz'?")]),
        (pair("<origin/>\n<origin xyz='1 0 0'/>"), [("warning", 5, "2 <origin> .* the first, at line 4")]),
        (robot(link("a"), "<spam/>", "<spam/>"), [("note", 3, "'spam' is not read .2 times")]),
        (robot("<gazebo><joint/></gazebo>", "<transmission/>", "<material/>", link("a")), []),
        (robot(link("a"), link("b", ""), joint("j", "a", "b")), [("warning", 3, "'b': .* joint 'j' moves no mass")]),
        (robot(link("a"), link("b", ""), joint("j", "a", "b", kind="fixed")), []),
        (robot(link("a"), link("b", "<visual/>"), joint("j", "a", "b", kind="fixed")), [("note", 3, "shape but no")]),
        (
            robot(link("a"), link("b", ""), link("c"), joint("j", "a", "b"), joint("k", "b", "c")),
            [("note", 3, "'b': it moves but")],
        ),
        (robot(link("a"), link("b", ""), link("c"), joint("j", "a", "b"), joint("k", "b", "c", kind="fixed")), []),
        (robot(link("a", "\n<inertial><mass value='1'/></inertial>")), [("warning", 3, "point mass")]),
        (robot(link("a", "<inertial><mass value='1'/>\n<inertia ixx='1' iyy='1' izz='1'/></inertial>")),
         [("note", 3, "no ixy, ixz, iyz")]),
        (robot(link("a", f"\n<inertial><mass value='0'/>{INERTIA}</inertial>")), [("warning", 3, "no mass")]),
        (robot(link("a", f"<inertial><mass value='1'/>{INERTIA.replace('1', '-1')}</inertial>")),
         [("warning", 2, "not positive")]),
        (robot(link("a", f"<inertial><mass value='1'/>{INERTIA.replace('1', '9', 1)}</inertial>")),
         [("warning", 2, "triangle")]),
        (robot(link("world"), link("b"), joint("j", "world", "b")), [("note", 2, "is the ground")]),
        ("<robot>\n" + link("a") + "</robot>", [("note", 1, "called 'robot' after its file")]),
    ],
)  # fmt: skip
def test_findings(text, expected):
    m = load(text)
    assert lines(m) == [(severity, line) for severity, line, _ in expected]
    for finding, (_, _, pattern) in zip(m.findings, expected, strict=True):
        assert re.search(pattern, str(finding)), str(finding)


SIMPLE = "<transmission name='t'><type>x</type><joint name='{}'/><actuator name='m'/></transmission>"
PR2 = "<transmission type='WristTransmission'><rightActuator name='m'/><flexJoint name='slider_joint'/></transmission>"
GRIPPER = "<transmission><gap_joint name='wheel_joint'/><passive_joint name='slider_joint'/></transmission>"
CONTROL = "<command_interface name='effort'/>"
ROS2 = "<ros2_control><hardware/><joint name='slider_joint'>{}<state_interface name='position'/></joint></ros2_control>"
EVERY = {"arm_joint", "wheel_joint", "follower_joint", "slider_joint", "puck_joint"}
DRIVEN = {
    "nothing said": ("", EVERY),
    "a transmission": (SIMPLE.format("wheel_joint"), {"wheel_joint"}),
    "two": (SIMPLE.format("wheel_joint") + SIMPLE.format("arm_joint"), {"wheel_joint", "arm_joint"}),
    "of a joint that mimics another": (SIMPLE.format("follower_joint"), {"follower_joint", "arm_joint"}),
    "of a fixed joint alone": (SIMPLE.format("tool_joint"), EVERY),
    "PR2's wrist": (PR2, {"slider_joint"}),
    "PR2's gripper": (GRIPPER, {"wheel_joint"}),
    "ros2_control": (ROS2.format(CONTROL), {"slider_joint"}),
    "both": (ROS2.format(CONTROL) + SIMPLE.format("wheel_joint"), {"slider_joint", "wheel_joint"}),
    "ros2_control, read only": (ROS2.format("") + SIMPLE.format("wheel_joint"), {"wheel_joint"}),
}


@pytest.mark.parametrize("case", DRIVEN)
def test_transmissions_say_which_joints_are_actuated(case):
    text, expected = DRIVEN[case]
    m = load(GOOD.replace("</robot>", text + "</robot>"))
    assert {name for name, on in zip(m.joint_names, m.actuated, strict=True) if on} == expected
    assert len(m.findings) == (expected != EVERY)
    if m.findings:
        assert f"drive {len(expected)} of 5 joints" in str(m.findings[0])


def test_a_transmission_of_no_joint_is_noted():
    m = load(GOOD.replace("</robot>", SIMPLE.format("arm_joit") + "</robot>"))
    assert m.actuated == (False, True, True, True, True, True, False)
    assert "it drives 'arm_joit', which is no joint (near: arm_joint" in str(m.findings[0])


def test_dropped_limits_are_infinite():
    bad = pair("<limit lower='2' upper='1' effort='-1' velocity='3'/>", "revolute")
    assert load(bad).limits[1] == ((-math.inf,), (math.inf,), (3.0,), (math.inf,))


def test_snapping_is_done_on_request_and_reported():
    text = pair("\n<origin rpy='1.5707963 0 0'/>")
    assert load(text).placement[1].R.rows[1][1] == math.cos(1.5707963) != 0.0
    assert load(text).findings == ()
    snapped = load(text, snap=1e-6)
    assert snapped.placement[1].R.rows == ((1, 0, 0), (0, 0, -1), (0, 1, 0))
    assert lines(snapped) == [("note", 5)]
    assert "1.5707963 misses 1.5707963267948966" in str(snapped.findings[0])


def test_meshes_are_looked_for_only_on_request(tmp_path):
    def shape(name):
        return f'<visual><geometry>\n<mesh filename="{name}"/></geometry></visual>'

    text = robot(link("a", shape("package://pkg/here.stl") + shape("package://pkg/gone.stl")))
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "here.stl").touch()
    assert load(text).findings == ()
    found = load(text, package_dirs=[str(tmp_path)])
    assert lines(found) == [("note", 4)]
    assert "'package://pkg/gone.stl'" in str(found.findings[0])


# ---- size


@pytest.mark.parametrize("kind", ["continuous", pytest.param("fixed", marks=pytest.mark.slow)])
def test_deep_chains(kind):
    n = 10_000
    text = robot(
        *(link(f"l{i}") for i in range(n + 1)), *(joint(f"j{i}", f"l{i}", f"l{i + 1}", kind=kind) for i in range(n))
    )
    start = time.monotonic()
    m = load(text)
    assert time.monotonic() - start < 60  # it takes 6 s; a walk of quadratic cost would take minutes
    assert m.n_links == (n if kind == "continuous" else 0)
    assert sum(i.m for i in m.inertia) == n + 1


# ---- real robots

BROKEN = {
    "alex_psyonic_hands.urdf": r":1037: joint 'Left_index_q2' <mimic>: it mimics 'index_q1', which is no joint",
    "falcon.urdf": r":182: joint 'top_propeller_joint': its child link 'Z_propeller' does not exist",
    "ur3.urdf": r":6: robot: it has no <link>",  # expanded from a file that only defines macros
}


@pytest.mark.skipif(not URDFS, reason=WHY)
def test_all_robots_are_there():
    assert len(URDFS) == 77


@pytest.mark.parametrize("floating", [False, True], ids=["fixed", "floating"])
@pytest.mark.parametrize("path", or_skipped(URDFS), ids=lambda p: p.stem)
def test_real_robot(path, floating):
    if path.name in BROKEN:
        with pytest.raises(ModelError, match=re.escape(str(path)) + BROKEN[path.name]):
            urdf.read(path, floating_base=floating)
        return
    m = urdf.read(path, floating_base=floating).model()
    pin = peer("pinocchio")
    base = [pin.JointModelFreeFlyer()] if floating else []
    reference = pin.buildModelFromUrdf(str(path), *base)
    mass = sum(i.m for i in m.inertia[1:])
    # the same few hundred masses summed in another order: 1e-13 is some hundred times the rounding of one sum
    assert mass == pytest.approx(pin.computeTotalMass(reference), rel=1e-13, abs=1e-300)
    # joints in Pinocchio's eyes: mimics move by themselves, and a continuous joint has two coordinates
    assert sum(j.nv for j in m.joint) == reference.nv
    assert set(m.joint_names[1:]) == set(reference.names) - {"universe"}
