"""`qddot convert`, and the options of all commands that files brought."""

import json

import pytest

import qddot
from qddot.cli.main import main
from tests.support.model_differences import differences
from tests.support.peers import peer

INERTIAL = '<inertial><mass value="1.5"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial>'
URDF = f"""<robot name="two"><link name="base"/><link name="arm">{INERTIAL}</link>
<joint name="elbow" type="revolute"><parent link="base"/><child link="arm"/><axis xyz="0 1 0"/>
<limit lower="-1" upper="2" effort="1" velocity="1"/></joint></robot>"""
SRDF = """<robot name="two"><group name="g"><joint name="elbow"/></group>
<group_state name="bent" group="g"><joint name="elbow" value="1"/></group_state></robot>"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "two.urdf").write_text(URDF)
    return str(tmp_path / "two.urdf")


def test_convert(file, tmp_path, capsys):
    out = str(tmp_path / "out.json.gz")
    assert main(["convert", file, out]) == 0
    assert capsys.readouterr().out == f"written to {out}\n"
    assert qddot.load(out) == qddot.load(file)
    assert main(["convert", "--floating-base", file, str(tmp_path / "out.urdf")]) == 0
    assert differences(qddot.load(tmp_path / "out.urdf").model, qddot.load(file, floating_base=True).model) == []


def test_what_is_lost_is_said(file, tmp_path, capsys):
    peer("mujoco")
    xml, urdf = str(tmp_path / "out.xml"), str(tmp_path / "back.urdf")
    assert main(["convert", file, xml]) == 0
    assert "note: robot 'two': MJCF has no velocity limits of joints; they are left out" in capsys.readouterr().err
    assert main(["convert", "puma560", urdf]) == 2
    err = capsys.readouterr().err
    assert "URDF does not hold all of the robot" in err
    assert "armature is" in err
    assert main(["convert", "--json", "--lossy", "puma560", urdf]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["file"] == urdf
    assert {f["severity"] for f in report["lost"]} == {"warning"}
    assert main(["convert", file, str(tmp_path / "out.sdf")]) == 2
    assert "qddot writes no files that end in '.sdf'" in capsys.readouterr().err


def test_info_shows_groups_and_configurations(file, tmp_path, capsys):
    (tmp_path / "other.srdf").write_text(SRDF)
    assert main(["info", "--srdf", str(tmp_path / "other.srdf"), file]) == 0
    out = capsys.readouterr().out
    assert "groups: g (1 joints)" in out
    assert "configurations: bent" in out
    assert main(["info", "--json", "--srdf", str(tmp_path / "other.srdf"), file]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["groups"] == {"g": ["elbow"]}
    assert report["configurations"] == {"bent": [{"group": "g", "coordinates": {"elbow": [1.0]}}]}


def test_xacro_needs_trust_and_takes_arguments(tmp_path, capsys):
    file = tmp_path / "two.xacro"
    text = URDF.replace("1.5", "$(arg mass)").replace(
        'name="two">', 'name="two" xmlns:xacro="http://www.ros.org/wiki/xacro">'
    )
    file.write_text(text)
    assert main(["info", str(file)]) == 2
    assert "a xacro file runs code" in capsys.readouterr().err
    assert main(["info", "--trust", "--xacro", "mass=3", str(file)]) == 2
    assert "--xacro is 'mass=3'; give NAME:=VALUE" in capsys.readouterr().err
    peer("xacro")
    assert main(["info", "--json", "--trust", "--xacro", "mass:=3", str(file)]) == 0
    assert json.loads(capsys.readouterr().out)["mass"] == 3.0
