"""Xacro files: they run code, so they are read with trust=True only, by the package xacro in a child process."""

import importlib.util
import os

import pytest

import qddot
from qddot.errors import FileError, InputError
from tests.support.peers import peer

HEAD = '<robot name="arm" xmlns:xacro="http://www.ros.org/wiki/xacro">'
MACRO = f"""{HEAD}<xacro:macro name="rod" params="name m"><link name="${{name}}"><inertial><mass value="${{m}}"/>
<inertia ixx="${{m / 10}}" ixy="0" ixz="0" iyy="${{m / 10}}" iyz="0" izz="${{m / 10}}"/></inertial></link>
</xacro:macro></robot>"""
ARM = f"""{HEAD}<xacro:arg name="mass" default="2"/>
<xacro:include filename="$(find arm_description)/urdf/rod.xacro"/><link name="base"/>
<xacro:rod name="upper" m="$(arg mass)"/>
<joint name="shoulder" type="continuous"><parent link="base"/><child link="upper"/><axis xyz="0 1 0"/></joint></robot>"""


@pytest.fixture
def file(tmp_path):
    folder = tmp_path / "arm_description" / "urdf"
    folder.mkdir(parents=True)
    (folder / "rod.xacro").write_text(MACRO)
    path = folder / "arm.urdf.xacro"
    path.write_text(ARM)
    return path


def test_a_file_is_refused_without_trust(file):
    with pytest.raises(FileError, match="a xacro file runs code; load it with trust=True"):
        qddot.load(file)


def test_a_missing_package_is_named(file, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "xacro" else real(name, *a))
    with pytest.raises(
        FileError, match=r'the package xacro, which is not installed; install it with: pip install "qddot\[xacro\]"'
    ):
        qddot.load(file, trust=True)


@pytest.mark.process
def test_macros_arguments_and_packages(file):
    peer("xacro")
    robot = qddot.load(file, trust=True)
    assert (robot.name, robot.joint_names, robot.mass) == ("arm", ("shoulder",), 2.0)
    assert qddot.load(file, trust=True, xacro_arguments={"mass": 3}, floating_base=True).mass == 3.0
    assert robot.model.source == str(file)


@pytest.mark.process
def test_packages_elsewhere(file, tmp_path):
    peer("xacro")
    other = tmp_path / "elsewhere" / "arm.xacro"
    other.parent.mkdir()
    (tmp_path / "packages").mkdir()
    file.rename(other)
    os.rename(file.parent.parent, tmp_path / "packages" / "arm_description")
    with pytest.raises(FileError, match=r"package 'arm_description' is not found; name its folder in package_dirs"):
        qddot.load(other, trust=True)
    for folder in (tmp_path / "packages", tmp_path / "packages" / "arm_description"):
        assert qddot.load(other, trust=True, package_dirs=[str(folder)]).mass == 2.0


@pytest.mark.process
def test_what_xacro_says_is_said(file):
    peer("xacro")
    file.write_text(f'{HEAD}<link name="${{nobody}}"/></robot>')
    with pytest.raises(FileError, match="xacro says: name 'nobody' is not defined"):
        qddot.load(file, trust=True)
    file.write_text(f'{HEAD}<link name="${{1 + 1}}"/><link name="b"/></robot>')
    with pytest.raises(FileError, match=r"arm\.urdf\.xacro \(expanded\):\d+: link 'b': it is a second root"):
        qddot.load(file, trust=True)
    file.write_text("<robot")
    with pytest.raises(FileError, match="xacro says: "):
        qddot.load(file, trust=True)


def test_arguments_are_checked(file):
    peer("xacro")
    with pytest.raises(InputError, match=r"xacro_arguments is \['mass'\]; give names and values"):
        qddot.load(file, trust=True, xacro_arguments=["mass"])
    with pytest.raises(InputError, match="xacro_arguments has the name 3; give texts"):
        qddot.load(file, trust=True, xacro_arguments={3: "mass"})


def test_urdf_with_instructions_says_what_to_do(tmp_path):
    (tmp_path / "arm.urdf").write_text(ARM)
    with pytest.raises(
        FileError, match=r"it is an instruction to xacro; .*rename it to \.xacro and load it with trust=True"
    ):
        qddot.load(tmp_path / "arm.urdf")
