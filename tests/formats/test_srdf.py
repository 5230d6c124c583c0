"""SRDF: groups of joints and named configurations, beside the robot's file or given."""

import pickle
import warnings

import numpy as np
import pytest

import qddot
from qddot.errors import FileError, InputError, QddotWarning, UnknownNameError
from qddot.formats import srdf
from tests.support.peers import peer
from tests.support.real_robots import GOOD, load, or_skipped, short

INERTIAL = '<inertial><mass value="1"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial>'
URDF = f"""<robot name="arm"><link name="base"/><link name="upper">{INERTIAL}</link><link name="lower">{INERTIAL}</link>
<link name="tool"/><link name="finger">{INERTIAL}</link><link name="thumb">{INERTIAL}</link>
<joint name="shoulder" type="continuous"><parent link="base"/><child link="upper"/></joint>
<joint name="elbow" type="continuous"><parent link="upper"/><child link="lower"/></joint>
<joint name="flange" type="fixed"><parent link="lower"/><child link="tool"/></joint>
<joint name="grip" type="continuous"><parent link="tool"/><child link="finger"/></joint>
<joint name="follow" type="continuous"><parent link="tool"/><child link="thumb"/><mimic joint="grip"/></joint></robot>"""
SRDF = """<robot name="arm"><virtual_joint name="floor" type="floating" parent_frame="world" child_link="base"/>
<group name="all"><group name="hand"/><group name="arm"/></group>
<group name="arm"><chain base_link="base" tip_link="tool"/></group>
<group name="hand"><joint name="grip"/><joint name="flange"/><link name="thumb"/></group>
<group_state name="home" group="arm"><joint name="elbow" value="1.5"/><joint name="shoulder" value="-0.5"/></group_state>
<group_state name="home" group="hand"><joint name="grip" value="0 1"/><joint name="follow" value="3"/></group_state>
<group_state name="up" group="arm"><joint name="floor" value="1 2 3 0 0 0 1"/><joint name="elbow" value="2"/></group_state>
<disable_collisions link1="base" link2="upper" reason="Adjacent"/></robot>"""


@pytest.fixture
def files(tmp_path):
    (tmp_path / "arm.urdf").write_text(URDF)
    (tmp_path / "arm.srdf").write_text(SRDF)
    return tmp_path


def test_groups_and_configurations_are_found_beside_the_file(files):
    robot = qddot.load(files / "arm.urdf")
    assert robot.groups == {
        "all": ("shoulder", "elbow", "grip", "follow"),
        "arm": ("shoulder", "elbow"),
        "hand": ("grip", "follow"),
    }
    assert robot.configuration_names == ("home", "up")
    np.testing.assert_allclose(robot.configuration("home"), [-0.5, 1.5, np.pi / 2], rtol=1e-15)
    np.testing.assert_array_equal(robot.configuration("home", group="arm"), [-0.5, 1.5, 0.0])
    np.testing.assert_array_equal(robot.configuration("up"), [0.0, 2.0, 0.0])
    assert [f.message for f in robot.findings if "srdf" in f.where] == [
        "flange: no moving joint or link of the robot",
        "floor: no moving joint of the robot",
    ]


@pytest.mark.parametrize(
    ("base", "tip", "joints"),
    [
        ("upper", "finger", ("elbow", "grip")),
        ("lower", "tool", ()),
        ("finger", "thumb", ("grip", "follow")),
        ("tool", "base", ("shoulder", "elbow")),
    ],
)
def test_chains_have_the_joints_between_two_links(base, tip, joints, files):
    text = f'<robot><group name="g"><chain base_link="{base}" tip_link="{tip}"/></group></robot>'
    (files / "arm.srdf").write_text(text)
    assert qddot.load(files / "arm.urdf").groups == {"g": joints}


def test_a_virtual_joint_is_the_floating_base(files):
    robot = qddot.load(files / "arm.urdf", floating_base=True)
    np.testing.assert_array_equal(robot.configuration("up"), [1, 2, 3, 0, 0, 0, 1, 0, 2, 0])


def test_the_folder_beside_and_compressed_files(files):
    (files / "robot" / "urdf").mkdir(parents=True)
    (files / "robot" / "srdf").mkdir()
    qddot.load(files / "arm.urdf", srdf=False).save(files / "robot" / "urdf" / "arm.urdf.gz")
    (files / "arm.srdf").rename(files / "robot" / "srdf" / "arm.srdf")
    assert qddot.load(files / "robot" / "urdf" / "arm.urdf.gz").configuration_names == ("home", "up")


def test_given_or_none(files):
    (files / "arm.srdf").rename(files / "other.srdf")
    assert qddot.load(files / "arm.urdf").groups == {}
    assert qddot.load(files / "arm.urdf", srdf=files / "other.srdf").configuration_names == ("home", "up")
    assert qddot.load(files / "arm.urdf", srdf=False).groups == {}
    with pytest.raises(FileError, match=r"missing\.srdf: file: there is no such file"):
        qddot.load(files / "arm.urdf", srdf=str(files / "missing.srdf"))
    with pytest.raises(InputError, match="srdf is 3; give the path of an SRDF file, or False"):
        qddot.load(files / "arm.urdf", srdf=3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'sdrf'; did you mean 'srdf'"):
        qddot.load(files / "arm.urdf", sdrf=False)


def test_a_file_that_leads_elsewhere_is_not_read(files):
    home = files / "robot"
    home.mkdir()
    (files / "arm.urdf").rename(home / "arm.urdf")
    (home / "arm.srdf").symlink_to(files / "arm.srdf")
    assert qddot.load(home / "arm.urdf").groups == {}


def test_they_are_no_part_of_what_a_robot_is_and_are_saved_with_it(files):
    robot = qddot.load(files / "arm.urdf")
    assert robot == qddot.load(files / "arm.urdf", srdf=False)
    robot.save(files / "saved.json")
    for again in (qddot.load(files / "saved.json"), pickle.loads(pickle.dumps(robot))):
        assert again == robot
        assert again.groups == robot.groups
        np.testing.assert_array_equal(again.configuration("home"), robot.configuration("home"))
    assert robot.with_parameters({"upper.mass": 2.0}).groups == robot.groups


def test_robots_made_of_it_keep_what_is_left(files):
    robot = qddot.load(files / "arm.urdf", floating_base=True)
    home, up = robot.configuration("home"), robot.configuration("up")
    left = robot.renamed(prefix="left_")
    assert left.groups["hand"] == ("left_grip", "left_follow")
    np.testing.assert_array_equal(left.configuration("up"), up)
    twice = robot.scaled(2.0)
    np.testing.assert_array_equal(twice.configuration("up"), [2, 4, 6, *up[3:]])
    stiff = robot.locked({"elbow": 0.3})
    assert stiff.groups["all"] == ("shoulder", "grip", "follow")
    np.testing.assert_array_equal(stiff.configuration("home"), np.delete(home, robot.q_index["elbow"]))
    fixed = robot.with_base("fixed")
    assert fixed.groups == robot.groups
    np.testing.assert_array_equal(fixed.configuration("home"), home[7:])
    hand = robot.subtree("lower")
    assert hand.groups == {"all": ("grip", "follow"), "hand": ("grip", "follow")}
    assert (hand.configuration_names, *hand.configuration("home")) == (("home",), home[-1])
    assert robot.locked({"shoulder": 0.0, "elbow": 0.0}).configuration_names == ("home", "up")


def test_saved_groups_are_checked(files):
    qddot.load(files / "arm.urdf").save(files / "saved.json")
    text = (files / "saved.json").read_text()
    for wrong, right, match in (
        ('"joints": ["grip"', '"joints": ["grib"', r"groups\[2\]\.joints: it names 'grib'"),
        ('"elbow": [1.5]', '"elbow": [1.5, 2]', r"configurations\[0\]\.coordinates"),
        ('"elbow": [1.5]', '"follow": [1.5]', r"configurations\[0\]: it names 'follow'"),
    ):
        assert wrong in text
        (files / "bad.json").write_text(text.replace(wrong, right))
        with pytest.raises(FileError, match=match):
            qddot.load(files / "bad.json")


def test_unknown_names(files):
    robot = qddot.load(files / "arm.urdf")
    with pytest.raises(UnknownNameError, match="robot 'arm' has no configuration 'hone': did you mean 'home'"):
        robot.configuration("hone")
    with pytest.raises(UnknownNameError, match="no configuration 'home' of group 'leg': it has arm, hand"):
        robot.configuration("home", group="leg")
    with pytest.raises(InputError, match="configuration is 3; give one name"):
        robot.configuration(3)


def test_two_values_of_a_joint_need_a_group(files):
    twice = '<group_state name="home" group="all"><joint name="elbow" value="9"/></group_state></robot>'
    (files / "arm.srdf").write_text(SRDF.replace("</robot>", twice))
    robot = qddot.load(files / "arm.urdf")
    with pytest.raises(InputError, match="has two values of joint 'elbow'; give group= one of 'arm', 'hand', 'all'"):
        robot.configuration("home")
    assert robot.configuration("home", group="all")[1] == 9.0


BAD = {
    "its value is 'x'": '<group_state name="n"><joint name="elbow" value="x"/></group_state>',
    "its value is '1e300'": '<group_state name="n"><joint name="elbow" value="1e300"/></group_state>',
    "its value is ''": '<group_state name="n"><joint name="elbow"/></group_state>',
    "it has 3 values where a revolute joint has 1 coordinates": (
        '<group_state name="n"><joint name="elbow" value="1 2 3"/></group_state>'
    ),
    "there are two of group ''": '<group_state name="n"/><group_state name="n"/>',
    "it has no name": "<group_state/>",
    "group 'a': it is a part of itself": (
        '<group name="a"><group name="b"/></group><group name="b"><group name="a"/></group>'
    ),
    "group 'a': the name is used twice": '<group name="a"/><group name="a"/>',
    "it has 2,001 groups": "".join(f'<group name="{k}"/>' for k in range(2001)),
    "it has 1,001 chains": '<group name="a">' + '<chain base_link="base" tip_link="tool"/>' * 1001 + "</group>",
    "document types and entities are not read": None,
    "the root element is <sdf> instead of <robot>": None,
}


@pytest.mark.parametrize("problem", BAD)
def test_a_broken_file_is_an_error_if_it_is_given_and_a_finding_if_it_is_found(problem, files):
    text = f"<robot>{BAD[problem]}</robot>"
    if BAD[problem] is None:
        text = "<sdf/>" if "sdf" in problem else "<!DOCTYPE robot><robot/>"
    (files / "arm.srdf").write_text(text)
    with pytest.raises(FileError, match=f"arm.srdf.*{problem}"):
        qddot.load(files / "arm.urdf", srdf=files / "arm.srdf")
    with pytest.warns(QddotWarning, match="SRDF: it cannot be read"):
        robot = qddot.load(files / "arm.urdf")
    assert robot.groups == {}


def test_what_does_not_exist_is_noted(files):
    groups = (
        '<group name="a"><joint name="x"/><link name="y"/><group name="z"/><chain base_link="base" tip_link="no"/></group>'
    )
    (files / "arm.srdf").write_text(f'<robot>{groups}<group_state name="n" group="q"/></robot>')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        robot = qddot.load(files / "arm.urdf")
    assert robot.groups == {"a": ()}
    messages = " ".join(f.message for f in robot.findings)
    for part in (
        "group 'z' does not exist",
        "x, y: no moving",
        "its tip_link 'no' is no link",
        "its group 'q' does not exist",
    ):
        assert part in messages


WITH_SRDF = [p for p in GOOD if srdf.beside(p) is not None]


@pytest.mark.oracle
@pytest.mark.parametrize("path", or_skipped(WITH_SRDF[::2]), ids=short)
def test_configurations_agree_with_pinocchio(path):
    pin = peer("pinocchio")
    robot = load(path, floating_base=True)
    theirs = pin.buildModelFromUrdf(str(path), pin.JointModelFreeFlyer(), mimic=True)
    pin.loadReferenceConfigurations(theirs, str(srdf.beside(path)), False)
    found = {entry.key(): entry.data() for entry in theirs.referenceConfigurations}
    assert set(found) == set(robot.configuration_names)
    for name, q in found.items():
        ours = qddot.conventions.to_pinocchio_q(robot.model, theirs, robot.configuration(name))
        np.testing.assert_allclose(ours, q, rtol=0, atol=1e-12)
