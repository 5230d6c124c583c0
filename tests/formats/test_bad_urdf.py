"""Malformed URDF files: each gives an error that names file, line, element and fix, in time, and nothing else."""

import gc
import math
import os
import re
import subprocess
import sys
import textwrap
import time
import warnings

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qddot.errors import FileError, QddotError
from qddot.formats import urdf, xml
from tests.support.profiles import examples

INERTIA = '<inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/>'
LIMIT = '<limit lower="-1" upper="1" effort="1" velocity="1"/>'
SECONDS = 2.0  # of the processor, so that a busy machine does not matter


def robot(*parts):
    """A robot with one part a line, the first of them on line 2."""
    return "\n".join(["<robot name='r'>", *parts, "</robot>"])


def link(name, mass="1", inertia=INERTIA):
    return f'<link name="{name}"><inertial><mass value="{mass}"/>{inertia}</inertial></link>'


def joint(name, parent, child, inside="", kind="continuous"):
    return f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>{inside}</joint>'


def pair(inside="", kind="continuous"):
    """Two links and, on line 4, the joint between them; `inside` comes on line 5."""
    return robot(link("a"), link("b"), joint("j", "a", "b", "\n" + inside, kind))


def chain(in_first, in_second, kind="continuous"):
    """Three links and, on lines 5 and 6, the joints j and k; `kind` is that of the first."""
    return robot(*map(link, "abc"), joint("j", "a", "b", in_first, kind), joint("k", "b", "c", in_second))


def mass(value):
    return robot(link("a", mass=value))


def number(value, why=""):
    """What is said about a wrong mass on line 2."""
    return rf":2: link 'a' <mass>: value is {re.escape(repr(value))}{why}; give a plain number such as 0\.5"


XACRO = r"this is a xacro file: rename it to .xacro and load it with trust=True"

# name: (text, bytes or, where it is large, a function that makes it; what the message must match after the file's name)
BAD = {
    # not XML
    "empty": ("", r":1: document: not valid XML .*no element found; the file is empty or cut off"),
    "blank": ("\n\n \n", r":4: document: .*no element found; the file is empty"),
    "text": ("robot\n", r":1: document: .*column 1: syntax error; correct it there, or give a file that is XML"),
    "binary": (bytes(range(256)) * 40, r":1: document: .*not well-formed .*; correct it there"),
    "png": (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", r":1: document: .*; correct it there"),
    "gzip": (b"\x1f\x8b\x08\x00\x00\x00\x00\x00", r":1: document: .*; correct it there"),
    "zero_bytes": (b"\0" * 5000, r":1: document: .*; correct it there"),
    "zero_byte_inside": (mass("1").replace("mass", "ma\0ss", 1), r":2: <inertial>: .*not well-formed.*; correct it"),
    "broken_utf8": (robot('<link name="\xff"/>').encode("latin-1"), r":2: <robot>: .*not well-formed.*; correct it"),
    "broken_utf16": (robot(link("a")).encode("utf-16")[:-3], r":3: <robot>: .*unclosed token; the file is cut off"),
    "utf32": (robot(link("a")).encode("utf-32"), r":1: document: .*; correct it"),
    "unknown_encoding": ('<?xml version="1.0" encoding="klingon"?><robot/>', r":1: .*encoding.*; save the file"),
    "wide_encoding": ('<?xml version="1.0" encoding="shift_jis"?><robot/>', r":1: .*encoding.*; save the file"),
    "encoding_that_is_none": ('<?xml version="1.0" encoding="hex"?><robot/>', r":1: .*encoding.*; save the file as"),
    "wrong_encoding": ('<?xml version="1.0" encoding="utf-16"?><robot/>', r":1: .*encoding.*; save the file"),
    "cut_off": (robot(link("a"))[:-9], r":2: <robot>: .*no element found; the file is empty or cut off"),
    "cut_off_in_a_tag": (robot(link("a"))[:-20], r":2: <\w+>: .*unclosed token; the file is cut off"),
    "not_closed": (robot('<link name="a">'), r":3: <link>: .*mismatched tag; close every element with its own name"),
    "attribute_twice": (robot('<link name="a" name="b"/>'), r":2: <robot>: .*duplicate attribute; remove one"),
    "two_documents": (robot(link("a")) * 2, r":3: .*junk after document element; put everything inside one root"),
    "space_before_declaration": ('\n<?xml version="1.0"?><robot/>', r":2: .*; remove what stands before <\?xml"),
    "entity": (mass("&one;"), r":2: <inertial>: .*undefined entity; write the character itself"),
    # documents that are no friends
    "doctype": ("<!DOCTYPE robot>\n" + mass("1"), r":1: <!DOCTYPE>: document types .*; remove the DOCTYPE"),
    "doctype_from_elsewhere": ('\n<!DOCTYPE r SYSTEM "file:///etc/hostname">\n<r/>', r":2: <!DOCTYPE>: .*; remove the"),
    "billion_laughs": (
        '<!DOCTYPE r [<!ENTITY a0 "ha">'
        + "".join(f'<!ENTITY a{i + 1} "{f"&a{i};" * 10}">' for i in range(12))
        + "]><robot>&a12;</robot>",
        r":1: <!DOCTYPE>: .*; remove the DOCTYPE",
    ),
    "quadratic_blowup": (
        f'<!DOCTYPE r [<!ENTITY a "{"a" * 100_000}">]><robot name="{"&a;" * 100_000}"/>',
        r":1: <!DOCTYPE>: .*; remove the DOCTYPE",
    ),
    "deep": ("<robot>" + "<a>" * 200_000, r":1: <a>: elements are nested more than 600 deep; give a model"),
    "deep_and_closed": (robot("<a>" * 200_000 + "</a>" * 200_000), r":2: <a>: elements are nested more than 600 deep"),
    "elements": (
        lambda: robot("<a/>" * 1_000_000),
        r":2: <a>: there are more than 300,000 elements; split or simplify",
    ),
    "attributes": (
        lambda: "<robot " + " ".join(f'a{i}=""' for i in range(100_000)) + "/>",
        r":1: <robot>: it has 100,000 attributes; give at most 1,000",
    ),
    "long_attribute": (
        lambda: robot(f'<a b="{"x" * 20_000_000}"/>'),
        r":2: <a>: its attribute 'b' has 20,000,000 char.*; give",
    ),
    "long_name": (robot(link("x" * 1_000_000)), r":2: link: its name has 1,000,000 characters; give at most 1,000"),
    "long_number": (mass("1" * 1_000_000 + "x"), r":2: link 'a' <mass>: its value has 1,000,001 char.*; give at most"),
    "long_tag": (f"<{'x' * 1_000_000}/>", r":1: document: the root element is <x{60}…> .*; give a URDF"),
    "large_file": (lambda: b"<robot>" + b" " * xml.MAX_BYTES, r": file: it is larger than 64 MB; give a model without"),
    # other documents
    "mjcf": ("<mujoco/>", r":1: document: the root element is <mujoco> .*; this is an MJCF file: load it as MJCF"),
    "sdf": ("\n<sdf version='1.6'/>", r":2: document: the root element is <sdf> .*; this is an SDF file"),
    "svg": ("<svg/>", r":1: document: the root element is <svg> instead of <robot>; give a URDF file"),
    "no_links": ("\n<robot name='r'/>", r":2: robot: it has no <link>; give it at least one link"),
    "xacro_element": (robot("<xacro:property name='m' value='1'/>", link("a")), r":2: robot <xacro:.*" + XACRO),
    "xacro_in_a_link": (robot("<link name='a'>", "<xacro:mass/></link>"), r":3: link 'a' <xacro:mass>: .*" + XACRO),
    "xacro_number": (mass("${m}"), r":2: link 'a' <mass>: value is '\$\{m\}'; " + XACRO),
    "xacro_sum": (pair("<origin xyz='0 ${a + b} 0'/>"), r":5: joint 'j' <origin>: xyz is .*; " + XACRO),
    "xacro_name": (robot("<link name='${prefix}a'/>"), r":2: link: its name is '\$\{prefix\}a'; " + XACRO),
    "xacro_type": (pair(kind="$(arg t)"), r":4: joint 'j': its type is '\$\(arg t\)'; " + XACRO),
    # numbers
    **{
        f"number_{name}": (mass(value), number(value))
        for name, value in {
            "empty_word": "one",
            "underscore": "1_0",
            "nan": "nan",
            "minus_nan": "-NaN",
            "inf": "inf",
            "infinity": "Infinity",
            "hexadecimal": "0x10",
            "hexadecimal_float": "0x1p3",
            "comma": "1,5",
            "unit": "1kg",
            "full_width": "１２",
            "arabic": "٣",
            "minus_sign": "−1",
            "two_points": "1.2.3",
            "two_signs": "--1",
            "no_exponent": "1e",
            "point": ".",
            "complex": "1j",
            "dollar": "$1",
            "fraction": "½",
            "no_break_space": "\xa01",
        }.items()
    },
    "number_overflow": (mass("1e999"), number("1e999", ", which is too large")),
    "number_too_large": (mass("1e31"), number("1e31", ", which is too large")),
    "number_none": (mass(""), number("", ": 0 numbers where 1 are needed")),
    "number_two": (mass("1 2"), number("1 2", ": 2 numbers where 1 are needed")),
    "xyz_two": (pair("<origin xyz='0 1'/>"), r":5: joint 'j' <origin>: xyz is '0 1': 2 numbers .* 3 .*; give 3 plain"),
    "xyz_four": (pair("<origin xyz='0 1 2 3'/>"), r":5: joint 'j' <origin>: xyz is .* 4 numbers .*; give 3 plain"),
    "xyz_commas": (pair("<origin xyz='0, 1, 2'/>"), r":5: joint 'j' <origin>: xyz is .*, and '0,' in it .*; give"),
    "rpy_nan": (pair("<origin rpy='0 nan 0'/>"), r":5: joint 'j' <origin>: rpy is .*, and 'nan' in it .*; give 3"),
    "quaternion": (pair("<origin quat_xyzw='0 0 0 1'/>"), r":5: joint 'j' <origin>: .*quat_xyzw.*; give .* rpy"),
    "axis_zero": (pair("<axis xyz='0 0 0'/>"), r":4: joint 'j': its axis is .*; give an axis that is not zero"),
    "axis_word": (pair("<axis xyz='z'/>"), r":5: joint 'j' <axis>: xyz is 'z'; give 3 plain numbers"),
    "axis_empty": (pair("<axis/>"), r":5: joint 'j' <axis>: it has no xyz; give xyz as 3 plain numbers"),
    "limit_inf": (
        pair("<limit lower='-inf' upper='inf' effort='1' velocity='1'/>", "revolute"),
        r":5: joint 'j' <limit>: lower is '-inf'; give a plain number",
    ),
    "damping_negative": (pair("<dynamics damping='-1'/>"), r":4: joint 'j': damping is \[-1.0\]; give .* zero or more"),
    "friction_word": (pair("<dynamics friction='low'/>"), r":5: joint 'j' <dynamics>: friction is 'low'; give a plain"),
    "mass_negative": (mass("-1"), r":2: link 'a': mass is -1; give a mass of zero or more"),
    "mass_without_value": (
        robot("<link name='a'><inertial><mass/></inertial></link>"),
        r":2: link 'a' <mass>: it has no value; give value as a plain number",
    ),
    "inertial_without_mass": (
        robot("<link name='a'>", f"<inertial>{INERTIA}</inertial></link>"),
        r":3: link 'a' <inertial>: it has no <mass>; add <mass",
    ),
    "inertia_without_izz": (
        robot(link("a", inertia="<inertia ixx='1' ixy='0' ixz='0' iyy='1' iyz='0'/>")),
        r":2: link 'a' <inertia>: it has no izz; give izz as a plain number",
    ),
    "inertia_word": (robot(link("a", inertia=INERTIA.replace("1", "I", 1))), r":2: link 'a' <inertia>: ixx is 'I'; "),
    # names and the tree
    "link_without_name": (robot("<link/>"), r":2: link: it has no name; give name="),
    "link_empty_name": (robot("<link name=' '/>"), r":2: link: its name is empty; give name="),
    "joint_without_name": (robot(link("a"), "<joint type='fixed'/>"), r":3: joint: it has no name; give name="),
    "link_twice": (robot(link("a"), link("a")), r":3: link 'a': the name is used twice \(first at .*:2\); rename one"),
    "joint_twice": (
        robot(link("a"), link("b"), joint("j", "a", "b"), joint("j", "a", "b")),
        r":5: joint 'j': the name is used twice \(first at .*:4\); rename one",
    ),
    "unknown_type": (
        pair(kind="spherical"),
        r":4: joint 'j': its type is 'spherical'; give one of revolute, continuous, "
        r"prismatic, fixed, planar, floating",
    ),
    "capital_type": (pair(kind="Revolute"), r":4: joint 'j': its type is 'Revolute'; give one of revolute"),
    "no_type": (robot(link("a"), "<joint name='j'/>"), r":3: joint 'j': it has no type; give one of revolute"),
    "no_parent": (
        robot(link("a"), "<joint name='j' type='fixed'><child link='a'/></joint>"),
        r":3: joint 'j': it has no <parent>; add <parent link=",
    ),
    "no_child": (
        robot(link("a"), "<joint name='j' type='fixed'><parent link='a'/></joint>"),
        r":3: joint 'j': it has no <child>; add <child link=",
    ),
    "parent_without_link": (
        robot(link("a"), "<joint name='j' type='fixed'>", "<parent/></joint>"),
        r":4: joint 'j' <parent>: it has no link; give link=",
    ),
    "unknown_parent": (
        robot(link("arm"), link("b"), joint("j", "amr", "b")),
        r":4: joint 'j': its parent link 'amr' does not exist \(near: arm\); correct the name or declare",
    ),
    "unknown_child": (
        robot(link("a"), joint("j", "a", "zzz")),
        r":3: joint 'j': its child link 'zzz' does not exist; correct the name or declare the link",
    ),
    "two_parents": (
        robot(*map(link, "abc"), joint("j", "a", "b"), joint("k", "a", "c"), joint("l", "b", "c")),
        r":7: joint 'l': link 'c' is already the child of joint 'k'; a link moves by one joint",
    ),
    "two_roots": (robot(link("a"), link("b")), r":3: link 'b': it is a second root beside 'a' \(at .*:2\).*; a URDF"),
    "no_root": (
        robot(link("a"), link("b"), joint("j", "a", "b"), joint("k", "b", "a")),
        r":5: joint 'k': its links form a cycle: a <- b <- a; cut one of the joints",
    ),
    "cycle_beside_a_root": (
        robot(*map(link, "abc"), joint("j", "c", "b"), joint("k", "b", "c")),
        r":5: joint 'j': its links form a cycle: b <- c <- b; cut one of the joints",
    ),
    "own_parent": (robot(link("a"), link("b"), joint("j", "b", "b")), r":4: joint 'j': .*cycle: b <- b; cut one"),
    "world_moves": (
        robot(link("a"), link("world"), joint("j", "a", "world")),
        r":3: link 'world': 'world' is the ground's own name; rename the link",
    ),
    "mimic_nobody": (pair("<mimic/>"), r":5: joint 'j' <mimic>: it has no joint; give joint="),
    "mimic_unknown": (pair("<mimic joint='jj'/>"), r":5: joint 'j' <mimic>: it mimics 'jj', .* \(near: j\); name"),
    "mimic_itself": (pair("<mimic joint='j'/>"), r":4: joint 'j': it mimics itself: j -> j; let one joint"),
    "mimic_ring": (
        chain("<mimic joint='k'/>", "<mimic joint='j'/>"),
        r":5: joint 'j': it mimics itself: j -> k -> j; let one joint",
    ),
    "mimic_a_fixed_joint": (
        chain("", "<mimic joint='j'/>", kind="fixed"),
        r":6: joint 'k': it mimics 'j', .* one degree of freedom; mimic works between",
    ),
    "mimic_factor": (pair("<mimic joint='j' multiplier='2x'/>"), r":5: joint 'j' <mimic>: multiplier is '2x'; give"),
    "many_links": (
        lambda: robot(*(f'<link name="l{i}"/>' for i in range(100_000))),
        r":3: link 'l1': it is a second root beside",
    ),
    "many_joints": (
        lambda: robot(link("a"), *(joint(f"j{i}", "a", "b") for i in range(20_000))),
        r":3: joint 'j0': .*; correct",
    ),
}
IN_A_PROCESS_OF_ITS_OWN = ["deep", "deep_and_closed", "billion_laughs", "zero_bytes", "binary", "long_attribute"]


def written(content, folder):
    path = folder / "bad.urdf"
    made = content() if callable(content) else content
    path.write_bytes(made if isinstance(made, bytes) else made.encode())
    return path


def test_there_are_enough():
    assert len(BAD) >= 45


@pytest.mark.parametrize("name", BAD)
def test_bad_file(name, tmp_path):
    content, pattern = BAD[name]
    path = written(content, tmp_path)
    gc.collect()
    gc.freeze()  # the garbage collector does not look through what other tests have left
    try:
        start = time.process_time()
        with pytest.raises(QddotError) as caught:
            urdf.read(path).model()
        assert time.process_time() - start < SECONDS
    finally:
        gc.unfreeze()
    message = str(caught.value)
    assert re.match(re.escape(str(path)) + pattern, message), message
    assert len(message) < 1000


@pytest.mark.parametrize("name", IN_A_PROCESS_OF_ITS_OWN)
def test_the_interpreter_survives(name, tmp_path):
    path = written(BAD[name][0], tmp_path)
    program = """
        import sys
        from qddot.errors import QddotError
        from qddot.formats import urdf
        try:
            urdf.read(sys.argv[1])
        except QddotError:
            print("refused")
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "refused\n"), done.stderr


# ---- files that cannot be opened


def test_missing_file(tmp_path):
    path = tmp_path / "missing.urdf"
    with pytest.raises(FileError, match=re.escape(str(path)) + ": file: there is no such file; check the path"):
        urdf.read(path)


@pytest.mark.parametrize("source", ["", "a\0b.urdf", "x" * 10_000 + ".urdf"])
def test_impossible_paths(source):
    with pytest.raises(FileError, match=r"file: (there is no such file|it cannot be read).*; check the path"):
        urdf.read(source)


def test_a_path_that_is_none():
    with pytest.raises(FileError, match="the source is a int; give a path"):
        urdf.read(0)


def test_folder(tmp_path):
    with pytest.raises(FileError, match=re.escape(str(tmp_path)) + ": file: it is a folder; give the file in it"):
        urdf.read(tmp_path)


def test_no_permission(tmp_path, monkeypatch):
    path = tmp_path / "secret.urdf"
    path.touch()

    def refuse(*_):  # permissions do not bind every user that runs tests
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(FileError, match=r"secret\.urdf: file: it may not be read; give yourself permission"):
        urdf.read(path)


@pytest.mark.skipif(sys.platform == "win32", reason="has neither pipes in folders nor /dev")
def test_pipes_and_devices_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.urdf")
    for source in (tmp_path / "pipe.urdf", "/dev/zero"):
        with pytest.raises(FileError, match=r"file: it is no regular file; write it to a file first"):
            urdf.read(source)


def test_text_that_has_no_encoding():
    with pytest.raises(FileError, match=r"^x\.urdf:2: <robot>: not valid XML"):
        urdf.read("x.urdf", text=robot(link("\ud800")))


# ---- mutations

SEED = robot(
    link("base"),
    '<link name="arm"><inertial><origin xyz="0.1 0 0" rpy="0 1.5 0"/><mass value="2.5"/>' + INERTIA + "</inertial></link>",
    '<link name="hand"/>',
    joint("shoulder", "base", "arm", f'<origin xyz="0 0 1"/><axis xyz="0 1 0"/>{LIMIT}<dynamics damping="1"/>', "revolute"),
    joint("wrist", "arm", "hand", f'<mimic joint="shoulder" multiplier="2" offset="1"/>{LIMIT}', "prismatic"),
).encode()

PIECES = [bytes([b]) for b in range(256)] + [
    *(b"nan inf 1e400 -1 0 1e308 1e-320 NaN 0x1 ${a} world base arm hand shoulder fixed planar floating".split()),
    *(b'<link name="a"/> </link> <joint> </robot> <mass/> <origin/> <inertial> <!-- --> <![CDATA[ <?xml'.split()),
    "é".encode(),
]
place = st.integers(0, len(SEED))
edits = st.lists(
    st.tuples(place, st.integers(0, 40), st.sampled_from(["delete", "repeat", "replace"]), st.sampled_from(PIECES))
)


@examples(400)
@given(edits=edits, floating=st.booleans())
@example(edits=[(0, 0, "delete", b"")], floating=True)
def test_mutations(edits, floating):
    data = SEED
    for at, length, kind, piece in edits:
        old = data[at : at + length]
        data = data[:at] + {"delete": b"", "repeat": old + old, "replace": piece}[kind] + data[at + length :]
    check_mutant(data, floating)


WORDS = re.findall(rb'"[^"]*"', SEED)


@examples(400)
@given(
    edits=st.lists(st.tuples(st.integers(0, len(WORDS) - 1), st.sampled_from(PIECES)), max_size=4),
    floating=st.booleans(),
)
def test_mutated_values(edits, floating):
    """The XML stays whole, so that the reader and the Builder get to see the values."""
    new = dict(edits)
    count = iter(range(len(WORDS)))
    data = re.sub(rb'"[^"]*"', lambda m: b'"' + new[k] + b'"' if (k := next(count)) in new else m[0], SEED)
    check_mutant(data, floating)


def check_mutant(data, floating):
    outcome = "a model"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            root = xml.parse(data, "mutant.urdf")
            assert root.line >= 1
            m = urdf.read("mutant.urdf", text=data.decode(), floating_base=floating).model()
            assert all(math.isfinite(x) for link in m.inertia for x in (link.m, *link.h, *link.I[0], *link.I[1]))
        except QddotError as e:
            outcome = str(e)
    assert outcome == "a model" or re.match(r"mutant\.urdf:\d+: .+: .+; .+", outcome, re.DOTALL), outcome
