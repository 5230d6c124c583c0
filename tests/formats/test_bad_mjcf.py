"""Malformed MJCF: each gives an error that names file, line, element and fix, in time, and MuJoCo stays quiet."""

import re
import time

import pytest

from qddot.errors import FileError, ModelError
from qddot.formats import mjcf

INERTIAL = '<inertial mass="1" pos="0 0 0" diaginertia="1 1 1"/>'
SECONDS = 2.0  # of the processor: what a person waits for an error


def body(inside, inertial=INERTIAL, attributes=""):
    """A body on line 3 with `inside` on line 4."""
    return f'<mujoco>\n<worldbody>\n<body name="b" {attributes}>\n{inside}\n{inertial}</body>\n</worldbody>\n</mujoco>'


def inertia(text):
    return body("<joint/>", f'<inertial pos="0 0 0" {text}/>')


def nested(depth):
    return "<mujoco><worldbody>" + "<body>" * depth + "</body>" * depth + "</worldbody></mujoco>"


BOMB = '<!DOCTYPE a [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>\n<mujoco model="&b;"/>'

# name: (text or bytes; what the message must match after the file's name)
BAD = {
    # not XML, or not MJCF
    "empty file": ("", r":1: document: not valid XML .*no element found; the file is empty"),
    "binary junk": (bytes(range(256)) * 40, r":1: document: not valid XML"),
    "plain text": ("hello", r":1: document: not valid XML .*; correct it there"),
    "cut off": ("<mujoco>\n<worldbody>\n<body", r":3: <worldbody>: not valid XML .*; the file is cut off"),
    "wrong closing tag": ("<mujoco>\n<a>\n</b></mujoco>", r":3: <a>: not valid XML .*mismatched tag; close every"),
    "document type": (BOMB, r":1: <!DOCTYPE>: document types and entities are not read; remove the DOCTYPE"),
    "deep nesting": (nested(200_000), r":1: <body>: elements are nested more than \d+ deep; give a model of ordinary"),
    "URDF": ("<robot name='r'/>", r":1: <robot>: the root element is not <mujoco>; load URDF with its own reader"),
    "another root": ("<svg/>", r":1: <svg>: the root element is not <mujoco>; give an MJCF file"),
    # numbers
    "NaN": (body('<joint axis="nan 0 0"/>'), r":4: <joint>: axis is 'nan 0 0'; give finite numbers"),
    "NaN in gravity": (
        '<mujoco>\n<option gravity="0 0 NaN"/></mujoco>',
        r":2: <option>: gravity is '0 0 NaN'; give finite",
    ),
    "infinity": (inertia('mass="inf" diaginertia="1 1 1"'), r":5: <inertial>: mass is 'inf'; give finite numbers"),
    "underscore": (
        body('<joint damping="1_0"/>'),
        r":4: element 'joint': bad format in .*\(damping is '(1_0|much)'\); write plain",
    ),
    "a word": (
        body('<joint damping="much"/>'),
        r":4: element 'joint': bad format in .*\(damping is '(1_0|much)'\); write plain",
    ),
    "overflow": (body('<joint damping="1e999"/>'), r":4: element 'joint': number is too large .*1e999'\); write plain"),
    "too many": (
        body('<joint axis="1 0 0 0"/>'),
        r":4: element 'joint': attribute 'axis' has too much data.*; give as many",
    ),
    "too few": (
        body('<joint axis="1 0"/>'),
        r":4: element 'joint': attribute 'axis' does not have enough data .*; give as",
    ),
    "zero axis": (body('<joint name="j" axis="0 0 0"/>'), r":4: element 'j': axis too small in joint; give an axis"),
    "zero quaternion": (
        body("<joint/>", attributes='quat="0 0 0 0"'),
        r":3: element 'body': zero quaternion is not all.*",
    ),
    "limits the wrong way": (
        body('<joint name="j" range="2 1" limited="true"/>'),
        r":4: element 'j': range\[0\] .*smaller",
    ),
    "negative damping": (
        body('<joint name="j" damping="-1"/>'),
        r":4: joint 'j': damping is \[-1\.0\]; give finite numb",
    ),
    "negative armature": (
        body('<joint name="j" armature="-1"/>'),
        r":4: joint 'j': armature is \[-1\.0\]; give finite",
    ),
    "negative stiffness": (
        body('<joint name="j" stiffness="-1"/>'),
        r":4: joint 'j': stiffness is \[-1\.0\]; give finite",
    ),
    # mass and inertia
    "negative mass": (
        inertia('mass="-1" diaginertia="1 1 1"'),
        r":3: element 'b': mass and inertia of moving bodies .*<in",
    ),
    "no mass": (body("<joint/>", ""), r":3: element 'b': mass and inertia of moving bodies .*; give the body a geom"),
    "triangle": (
        inertia('mass="1" diaginertia="1 1 5"'),
        r":3: element 'b': inertia must satisfy .*; correct the inert",
    ),
    "not positive": (
        inertia('mass="1" fullinertia="1 1 1 5 5 5"'),
        r":3: element 'b': .*positive eigenvalues.*; correct",
    ),
    # names and structure
    "two bodies of a name": (
        body('<joint/><body name="b"/>'),
        r":4: element 'body': repeated name 'b' in body; rename",
    ),
    "two joints of a name": (
        body('<joint name="j"/>\n<joint name="j"/>'),
        r":5: element 'joint': repeated name 'j' in j",
    ),
    "unknown element": (
        body("<jiont/>"),
        r":4: element 'jiont': .*unrecognized element; remove the element or correct",
    ),
    "unknown attribute": (
        body('<joint mass="1"/>'),
        r":4: element 'joint': .*unrecognized attribute: 'mass' .*; remove",
    ),
    "unknown kind": (
        body('<joint type="screw"/>'),
        r":4: element 'joint': invalid keyword: 'screw'; use one of the words",
    ),
    "unknown class": (
        body('<joint class="c"/>'),
        r":4: element 'joint': unknown default class name 'c'; declare what is",
    ),
    "free joint inside": (
        body('<body name="c"><freejoint/><geom size="1"/></body>'),
        r":4: element 'c': free joint .*top level; put the",
    ),
    "seven degrees of freedom": (
        body("<freejoint/><joint/>"),
        r":3: element 'b': more than 6 dofs in body 'b'; give the body fewer",
    ),
    "two balls": (
        body('<joint type="ball"/><joint type="ball"/>'),
        r":3: element 'b': ball followed by rotation .*; give",
    ),
    "equality of no body": (
        '<mujoco>\n<worldbody/>\n<equality>\n<connect name="e" body1="x" anchor="0 0 0"/></equality></mujoco>',
        r":4: element 'e': unknown element 'x' in equality constraint; declare what is named, or correct the name",
    ),
    "actuator of no joint": (
        '<mujoco>\n<worldbody/>\n<actuator>\n<motor name="m" joint="x"/></actuator></mujoco>',
        r":4: element 'm': unknown transmission target 'x'.*; declare what is named",
    ),
    # files and sizes
    "no such include": (
        '<mujoco>\n<include file="no.xml"/></mujoco>',
        r":2: element 'include': .*'no\.xml'; put the file",
    ),
    "no such mesh": (
        '<mujoco><asset><mesh name="m" file="no.stl"/></asset><worldbody><geom type="mesh" mesh="m"/></worldbody></mujoco>',
        r": element: Error opening file '[^']*no\.stl'; put the file there",
    ),
    "a hundred million copies": (
        '<mujoco><worldbody>\n<replicate count="10000">\n<replicate count="10000"><body/></replicate></replicate>'
        "</worldbody></mujoco>",
        r":3: <replicate>: it asks for 100,000,000 copies; ask for at most",
    ),
    "a huge cloth": (
        body('<flexcomp name="f" type="grid" dim="3" count="1000 1000 1000"/>'),
        r":4: <flexcomp>: it asks for 1,000,000,000 copies; ask for at most",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_name_file_line_element_and_fix(name, tmp_path, monkeypatch, capfd):
    content, said = BAD[name]
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "bad.xml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    start = time.process_time()
    with pytest.raises(ModelError, match=re.escape(str(path)) + said):
        mjcf.read(path).model()
    assert time.process_time() - start < SECONDS
    assert capfd.readouterr() == ("", "")
    assert [p.name for p in tmp_path.iterdir()] == ["bad.xml"]


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    with pytest.raises(FileError, match=r"missing\.xml: file: there is no such file; check the path"):
        mjcf.read(tmp_path / "missing.xml")
    with pytest.raises(FileError, match="it is a folder"):
        mjcf.read(tmp_path)


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (nested(200_000), r"part\.xml:1: <body>: elements are nested more"),
        (BOMB, r"part\.xml:1: <!DOCTYPE>"),
        ('<mujoco>\n<option timestep="nan"/></mujoco>', r"part\.xml:2: <option>: timestep is 'nan'"),
        ("junk", r"part\.xml:1: document: not valid XML"),
        ('<mujoco>\n<option foo="1"/></mujoco>', r"main\.xml or a file it includes: element 'option': .*'foo'"),
    ],
)
def test_bad_included_files_are_named(part, said, tmp_path):
    (tmp_path / "part.xml").write_text(part)
    main = tmp_path / "main.xml"
    main.write_text('<mujoco><include file="part.xml"/></mujoco>')
    with pytest.raises(FileError, match=said):
        mjcf.read(main)


def test_files_that_include_each_other_are_refused(tmp_path):
    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / f"{name}.xml").write_text(f'<mujoco><include file="{other}.xml"/></mujoco>')
    with pytest.raises(FileError, match=r"a\.xml"):
        mjcf.read(tmp_path / "a.xml")


def test_a_part_may_be_called_nan():
    text = body('<joint name="nan"/>').replace("</worldbody>", '</worldbody><actuator><motor joint="nan"/></actuator>')
    assert mjcf.read("model.xml", text=text).model().joint_names == ("", "nan")
