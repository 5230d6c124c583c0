"""Files that end in .gz: every format, bounded whatever they expand to."""

import gzip
import io
import tracemalloc

import numpy as np
import pytest

import qddot
from qddot.errors import FileError
from qddot.formats import xml
from qddot.formats.files import read_bytes
from qddot.viewer import urdf_shapes
from tests.support.peers import peer

BODY = '<inertial pos="0 0 0" mass="2" diaginertia="1 1 1"/>'
URDF = """<robot name="r"><link name="a"/><link name="b"><inertial><mass value="2"/>
<inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial></link>
<joint name="j" type="continuous"><parent link="a"/><child link="b"/></joint></robot>"""
SDF = """<sdf version="1.9"><model name="r"><link name="b"><inertial><mass>2</mass><inertia>
<ixx>1</ixx><iyy>1</iyy><izz>1</izz></inertia></inertial></link><joint name="j" type="revolute"><parent>world</parent>
<child>b</child><axis><xyz>0 0 1</xyz></axis></joint></model></sdf>"""
CSV = "alpha,a,theta,d,kind,mass,com_x,com_y,com_z,ixx,iyy,izz\n0,0,0,0,revolute,2,0,0,0,1,1,1\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [("r.urdf.gz", URDF), ("r.xml.gz", URDF), ("r.sdf.gz", SDF), ("R.URDF.GZ", URDF), ("r.csv.gz", CSV)],
)
def test_formats_that_are_compressed(name, text, tmp_path):
    (tmp_path / name).write_bytes(gzip.compress(text.encode()))
    robot = qddot.load(tmp_path / name)
    assert (robot.nv, robot.mass) == (1, 2.0)
    assert robot.name == "r" or name.startswith("R")


def test_mjcf_that_is_compressed_includes_files_beside_it(tmp_path):
    peer("mujoco")
    (tmp_path / "body.xml").write_text(f"<mujoco><worldbody><body><joint/>{BODY}</body></worldbody></mujoco>")
    for name in ("r.xml.gz", "r.mjcf.gz"):
        (tmp_path / name).write_bytes(gzip.compress(b'<mujoco><include file="body.xml"/></mujoco>'))
        robots = [qddot.load(tmp_path / name, trust=trust) for trust in (False, True)]
        assert [(r.nv, r.mass, r.name) for r in robots] == [(1, 2.0, "r")] * 2


def test_shapes_of_a_compressed_file_are_found(tmp_path):
    box = '<visual><geometry><box size="1 1 1"/></geometry></visual></link>'
    (tmp_path / "r.urdf.gz").write_bytes(gzip.compress(URDF.replace("</link>", box).encode()))
    robot = qddot.load(tmp_path / "r.urdf.gz")
    assert len(urdf_shapes.read(robot.model, robot.model.source).shapes) == 1


def test_a_robot_without_a_name_is_called_after_its_file(tmp_path):
    (tmp_path / "arm.urdf.gz").write_bytes(gzip.compress(URDF.replace(' name="r"', "", 1).encode()))
    assert qddot.load(tmp_path / "arm.urdf.gz").name == "arm"


def test_a_file_that_expands_without_end_is_refused_within_its_limit(tmp_path):
    bomb = io.BytesIO()
    with gzip.GzipFile(fileobj=bomb, mode="wb") as stream:
        for _ in range(100):
            stream.write(bytes(2**20))
    file = tmp_path / "bomb.urdf.gz"
    file.write_bytes(bomb.getvalue() * 80)  # 8 GB in 80 members
    tracemalloc.start()
    try:
        with pytest.raises(FileError, match=r"bomb\.urdf\.gz: file: it is larger than 64 MB"):
            qddot.load(file)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * xml.MAX_BYTES
    with pytest.raises(FileError, match="it is larger than 1,000 bytes"):
        read_bytes(str(file), 1000)


@pytest.mark.parametrize("ending", ["urdf", "xml", "json", "csv"])
@pytest.mark.parametrize(
    "damage", [lambda x: x[:-9], lambda x: b"", lambda x: b"<robot/>", lambda x: x[:20] + b"zzzz" + x[24:]]
)
def test_damaged_files_are_refused(damage, ending, tmp_path):
    file = tmp_path / f"r.{ending}.gz"
    data = damage(gzip.compress(URDF.encode()))
    file.write_bytes(data)
    with pytest.raises(FileError, match=rf"r\.{ending}\.gz"):
        qddot.load(file)


def test_members_one_after_the_other_are_one_file(tmp_path):
    text = URDF.encode()
    (tmp_path / "r.urdf.gz").write_bytes(gzip.compress(text[:100]) + gzip.compress(text[100:]))
    assert qddot.load(tmp_path / "r.urdf.gz").mass == 2.0


def test_saving_twice_gives_the_same_bytes(tmp_path):
    robot = qddot.load("scara")
    for name in ("a.json.gz", "b.json.gz"):
        robot.save(tmp_path / name)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()
    np.testing.assert_equal(qddot.load(tmp_path / "a.json.gz").model.describe(), robot.model.describe())
