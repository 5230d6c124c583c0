"""Keyframes of MJCF are named configurations, and named configurations are written as keyframes."""

import numpy as np
import pytest

import qddot
from qddot import conventions, joints
from tests.support.peers import peer

BODY = '<inertial pos="0 0 0" mass="2" diaginertia="1 1 1"/>'
MJCF = f"""<mujoco><worldbody>
<body name="trunk"><freejoint name="root"/>{BODY}
  <body name="arm"><joint name="ball" type="ball"/>{BODY}
    <body name="hand" pos="1 0 0"><joint name="grip"/>{BODY}</body>
    <body name="thumb" pos="1 0 0"><joint name="follow"/>{BODY}</body></body></body></worldbody>
<equality><joint joint1="follow" joint2="grip" polycoef="0.1 2 0 0 0"/></equality>
<keyframe><key name="home" qpos="1 2 3 0.6 0.8 0 0 0 0 0 2 0.5 1.1"/><key qpos="0 0 0 1 0 0 0 1 0 0 0 0 0"/></keyframe>
</mujoco>"""


@pytest.fixture
def file(tmp_path):
    peer("mujoco")
    (tmp_path / "body.xml").write_text(MJCF)
    return tmp_path / "body.xml"


def test_keyframes_are_configurations(file):
    robot = qddot.load(file)
    assert robot.configuration_names == ("home",)
    np.testing.assert_allclose(robot.configuration("home"), [1, 2, 3, 0.8, 0, 0, 0.6, 0, 0, 1, 0, 0.5], atol=1e-15)


def test_they_are_written_as_keyframes(file, tmp_path):
    mujoco, robot = peer("mujoco"), qddot.load(file)
    assert robot.save(tmp_path / "again.xml") == ()
    q = robot.configuration("home")
    np.testing.assert_allclose(qddot.load(tmp_path / "again.xml").configuration("home"), q, atol=1e-15)
    m = mujoco.MjModel.from_xml_path(str(tmp_path / "again.xml"))
    np.testing.assert_allclose(m.key("home").qpos, conventions.to_mujoco_q(robot.model, q), atol=1e-15)


def test_an_srdf_file_beside_adds_its_own(file):
    state = '<group_state name="fist"><joint name="grip" value="2"/></group_state>'
    file.with_suffix(".srdf").write_text(f'<robot><group name="hand"><joint name="grip"/></group>{state}</robot>')
    robot = qddot.load(file)
    assert robot.configuration_names == ("home", "fist")
    assert robot.configuration("fist")[robot.q_index["grip"]] == 2.0
    assert qddot.load(file, srdf=False).configuration_names == ("home",)


def test_groups_and_contradictions_are_named(tmp_path):
    peer("mujoco")
    b = qddot.Builder("arm").link("a", 1.0, inertia=(1, 0, 0, 1, 0, 1))
    b.joint("j", "world", "a", joints.Revolute()).robot().save(tmp_path / "arm.urdf")
    states = "".join(
        f'<group_state name="{n}" group="{g}"><joint name="j" value="{v}"/></group_state>'
        for n, g, v in (("up", "g", 1), ("both", "g", 1), ("both", "h", 2))
    )
    groups = '<group name="g"><joint name="j"/></group><group name="h"><joint name="j"/></group>'
    (tmp_path / "arm.srdf").write_text(f"<robot>{groups}{states}</robot>")
    robot = qddot.load(tmp_path / "arm.urdf")
    said = [f.message for f in robot.save(tmp_path / "arm.xml")]
    assert said == ["its groups have different values of a joint", "MJCF has no groups of joints"]
    assert qddot.load(tmp_path / "arm.xml", srdf=False).configuration("up") == [1.0]
    assert [f.message for f in robot.save(tmp_path / "b.urdf")] == ["URDF has no groups and named configurations"]
