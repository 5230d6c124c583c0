"""Files from strangers: where they may lead, what their meshes may cost, and parsers that run in a child with limits."""

import gzip
import io
import os
import struct
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

import qddot
from qddot.errors import FileError, QddotError
from qddot.formats import limited, mjcf, mjcf_compile, places, sdf
from qddot.viewer import geometry, meshes, urdf_shapes
from tests.support.long_files import FILES, native

WORLD = '<worldbody><body name="b"><joint/><inertial mass="1" pos="0 0 0" diaginertia="1 1 1"/></body></worldbody>'
URDF = """<robot name="r"><link name="a"/><link name="b"><inertial><mass value="1"/>
<inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial>
<visual><geometry><mesh filename="{}"/></geometry></visual></link>
<joint name="j" type="continuous"><parent link="a"/><child link="b"/></joint></robot>"""
TRIANGLE = "solid\nfacet normal 0 0 1\nouter loop\nvertex 0 0 0\nvertex 1 0 0\nvertex 0 1 0\nendloop\nendfacet\nendsolid"


# ---- where a file may lead -------------------------------------------------------------------------------------------


@pytest.fixture
def robot_folder(tmp_path):
    """A robot's folder with a mesh in it, and one beside it that is nobody's business."""
    folder = tmp_path / "home" / "robot"
    (folder / "meshes").mkdir(parents=True)
    (folder / "meshes" / "own.stl").write_text(TRIANGLE)
    (tmp_path / "home" / "secret.stl").write_text(TRIANGLE)
    (folder / "link.stl").symlink_to(tmp_path / "home" / "secret.stl")
    (folder / "folder").symlink_to(tmp_path / "home")
    return folder


OUTSIDE = [
    "../secret.stl",
    "meshes/../../secret.stl",
    "link.stl",
    "folder/secret.stl",
    "file://{home}/secret.stl",
    "{home}/secret.stl",
    "package://robot/../secret.stl",
    "package://robot/link.stl",
    "package://home/secret.stl",
    "package:///home/secret.stl",
    "package://robot/%2e%2e/secret.stl",
    "package://robot/..%2fsecret.stl",
    "model://home/secret.stl",
    "file:///etc/passwd",
    "package://etc/passwd",
    "/etc/passwd",
    "http://example.invalid/x.stl",
    "\\\\\\\\server\\\\share\\\\x.stl",
    "//server/share/x.stl",
    "file:////server/share/x.stl",
]
INSIDE = [
    "meshes/own.stl",
    "package://robot/meshes/own.stl",
    "file://{robot}/meshes/own.stl",
    "{robot}/meshes/../meshes/own.stl",
]


@pytest.mark.parametrize("name", OUTSIDE)
def test_names_lead_to_no_other_folder(name, robot_folder):
    name = name.format(home=robot_folder.parent, robot=robot_folder)
    assert places.locate(name, robot_folder) is None
    assert places.leads_outside(name, robot_folder)
    if "secret" in name and "home/secret" not in name.removeprefix("file://").removeprefix(str(robot_folder.parent)):
        assert places.locate(name, robot_folder, trust=True).samefile(robot_folder.parent / "secret.stl")
        assert places.locate(name, robot_folder, [str(robot_folder.parent)]).samefile(robot_folder.parent / "secret.stl")


@pytest.mark.parametrize("name", INSIDE)
def test_names_lead_to_the_robots_own_files(name, robot_folder):
    found = places.locate(name.format(robot=robot_folder), robot_folder)
    assert found.samefile(robot_folder / "meshes" / "own.stl")


def test_packages_may_be_named(robot_folder):
    """A package beside the robot's own needs its mark; the user's home is nobody's package."""
    other = robot_folder.parent / "other"
    other.mkdir()
    (other / "part.stl").write_text(TRIANGLE)
    assert places.locate("package://other/part.stl", robot_folder) is None
    (other / "package.xml").write_text("<package/>")
    assert places.locate("package://other/part.stl", robot_folder) == other / "part.stl"
    assert places.locate("../other/part.stl", robot_folder) is None  # by its name, not by a way there
    (robot_folder.parent / "package.xml").write_text("<package/>")
    assert places.locate("../other/part.stl", robot_folder).samefile(other / "part.stl")


def test_home_is_no_package(robot_folder, monkeypatch):
    (robot_folder.parent / ".git").mkdir()
    assert places.package_of(robot_folder) == robot_folder.parent
    monkeypatch.setattr(Path, "home", lambda: robot_folder.parent)
    assert places.package_of(robot_folder) == robot_folder


def test_meshes_outside_are_noted_and_not_opened(robot_folder, monkeypatch):
    pytest.importorskip("trimesh", reason="needs trimesh: pip install 'qddot[view]'")
    (robot_folder / "r.urdf").write_text(URDF.format("../secret.stl"))
    model = qddot.load(robot_folder / "r.urdf").model
    opened = []
    monkeypatch.setattr(meshes, "load", lambda *_: opened.append(1))
    found = urdf_shapes.read(model, model.source, model.package_dirs, model.trusted)
    assert (found.outside, found.shapes, opened) == (["../secret.stl"], [], [])
    monkeypatch.undo()
    for options in ({"trust": True}, {"package_dirs": [str(robot_folder.parent)]}):
        model = qddot.load(robot_folder / "r.urdf", **options).model
        found = urdf_shapes.read(model, model.source, model.package_dirs, model.trusted)
        assert (found.outside, len(found.shapes)) == ([], 1)


@pytest.mark.parametrize(
    "inside",
    [
        '<include file="{}/part.xml"/>',
        '<asset><mesh name="m" file="{}/mesh.stl"/></asset>',
        '<compiler meshdir="{}"/><asset><mesh name="m" file="mesh.stl"/></asset>',
        '<compiler assetdir="{}" strippath="true"/><asset><mesh name="m" file="x/mesh.stl"/></asset>',
        '<asset><model name="m" file="{}/part.xml"/></asset>',
        '<asset><texture name="t" type="cube" fileright="{}/mesh.stl"/></asset>',
        '<asset><hfield name="h" file="{}/mesh.stl" size="1 1 1 1"/></asset>',
    ],
)
def test_mjcf_leads_to_no_other_folder(inside, tmp_path):
    folder = tmp_path / "robot"
    folder.mkdir()
    (tmp_path / "part.xml").write_text("<mujoco/>")
    (tmp_path / "mesh.stl").write_text(TRIANGLE)
    for way in ("..", str(tmp_path)):
        (folder / "m.xml").write_text(f"<mujoco>{inside.format(way)}{WORLD}</mujoco>")
        with pytest.raises(FileError, match=r"m\.xml:1: <\w+>: its file '.*' lies outside of the folder .*trust=True"):
            qddot.load(folder / "m.xml")
    for options in ({"trust": True}, {"package_dirs": [str(tmp_path)]}):
        said = ""
        try:
            qddot.load(folder / "m.xml", **options)
        except FileError as error:  # MuJoCo's own, of a mesh that is none
            said = str(error)
        assert "lies outside" not in said


# ---- meshes ----------------------------------------------------------------------------------------------------------


def gltf(count):
    """A tiny file that asks for so many vertices."""
    accessors = [
        {"componentType": 5126, "count": count, "type": "VEC3"},
        {"componentType": 5125, "count": count, "type": "SCALAR"},
    ]
    mesh = {"primitives": [{"attributes": {"POSITION": 0}, "indices": 1}]}
    content = {"asset": {"version": "2.0"}, "accessors": accessors, "meshes": [mesh], "nodes": [{"mesh": 0}]}
    return repr({**content, "scenes": [{"nodes": [0]}], "scene": 0}).replace("'", '"').encode()


def zipped(data):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.dae", data)
    return file.getvalue()


DAE = b'<?xml version="1.0"?><COLLADA xmlns="http://www.collada.org/2005/11/COLLADASchema" version="1.4.1">'
BOMB = b'<!DOCTYPE a [<!ENTITY a "' + b"a" * 100 + b'"><!ENTITY b "' + b"&a;" * 100 + b'">]>'
READS_FILES = b'<!DOCTYPE a [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
BAD_MESHES = {
    "empty.stl": (b"", ""),
    "no_faces.stl": (b"solid nothing at all", ""),
    "cut_off.stl": (b"\0" * 80 + struct.pack("<I", 10**9), ""),
    "text.obj": (b"v 0 0\nf 1 2 9", ""),
    "no_faces.obj": (b"v 0 0 0", ""),
    "junk.ply": (b"ply\nformat ascii 1.0\nelement vertex 1000000000000\nproperty float x\nend_header\n", ""),
    "entities.dae": (b'<?xml version="1.0"?>' + BOMB + DAE[21:] + b"&b;</COLLADA>", "document types"),
    "reads.dae": (b'<?xml version="1.0"?>' + READS_FILES + DAE[21:] + b"&a;</COLLADA>", "document types"),
    "entities.zae": (zipped(b'<?xml version="1.0"?>' + BOMB + DAE[21:] + b"&b;</COLLADA>"), "document types"),
    "expands.zae": (zipped(b" " * 300 * 2**20), "the archive has 1 files of 314,572,800 bytes"),
    "junk.zae": (b"PK\x03\x04 and nothing", ""),
    "huge.gltf": (gltf(10**11), ""),
    "archive.zip": (zipped(b""), "files that end in .zip are not read"),
    "packed.stl.gz": (gzip.compress(TRIANGLE.encode()), "files that end in .gz are not read"),
    "robot.urdf": (URDF.encode(), "files that end in .urdf are not read"),
}


def test_broken_and_expanding_meshes_are_noted(tmp_path):
    """Each in its own time, and none in silence."""
    pytest.importorskip("trimesh", reason="needs trimesh: pip install 'qddot[view]'")
    pytest.importorskip("collada", reason="needs pycollada: pip install 'qddot[view]'")
    for name, (content, said) in BAD_MESHES.items():
        (tmp_path / name).write_bytes(content)
        (tmp_path / "r.urdf").write_text(URDF.format(name))
        model = qddot.load(tmp_path / "r.urdf").model
        found = urdf_shapes.read(model, model.source)
        assert not found.shapes, name
        assert len(found.unread) == 1, name
        assert said in found.unread[0], name


def test_large_files_and_many_faces_are_noted(tmp_path, monkeypatch):
    pytest.importorskip("trimesh", reason="needs trimesh: pip install 'qddot[view]'")
    with open(tmp_path / "large.stl", "wb") as file:
        file.truncate(257 * 2**20)
    with pytest.raises(meshes.MeshError, match="larger than 256 MB"):
        meshes.load(tmp_path / "large.stl", tmp_path)
    os.mkfifo(tmp_path / "pipe.stl")
    assert places.locate("pipe.stl", tmp_path) is None
    (tmp_path / "own.stl").write_text(TRIANGLE)
    (tmp_path / "r.urdf").write_text(URDF.format("own.stl"))
    model = qddot.load(tmp_path / "r.urdf").model
    monkeypatch.setattr(urdf_shapes, "_MAX_ROBOT_FACES", 0)
    found = urdf_shapes.read(model, model.source)
    assert "more than 0 faces" in found.unread[0]


def test_what_a_mesh_refers_to_stays_in_the_folders_too(tmp_path):
    pytest.importorskip("trimesh", reason="needs trimesh: pip install 'qddot[view]'")
    folder = tmp_path / "robot"
    folder.mkdir()
    (tmp_path / "secret.mtl").write_text("newmtl red\nKd 1 0 0\n")
    (folder / "own.mtl").write_text("newmtl red\nKd 1 0 0\n")
    part = "mtllib {}\nusemtl red\nv 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n"
    (folder / "good.obj").write_text(part.format("own.mtl"))
    (folder / "bad.obj").write_text(part.format("../secret.mtl"))
    good, bad = (meshes.load(folder / name, folder) for name in ("good.obj", "bad.obj"))
    assert (good.parts[0].color[:3], good.remarks) == ((255, 0, 0), [])
    assert bad.parts[0].color is None or bad.parts[0].color[:3] != (255, 0, 0)
    assert "outside of the robot's folders" in bad.remarks[0]
    assert meshes.load(folder / "bad.obj", folder, trust=True).parts[0].color[:3] == (255, 0, 0)


def test_meshes_are_the_same_in_this_process_and_in_the_child(tmp_path):
    pytest.importorskip("trimesh", reason="needs trimesh: pip install 'qddot[view]'")
    from tests.support.meshes import write_stl

    write_stl(tmp_path / "a.stl", geometry.sphere(0.3))
    near, far = (meshes.load(tmp_path / "a.stl", tmp_path, trust=trust).parts[0].mesh for trust in (True, False))
    np.testing.assert_array_equal(near.vertices, far.vertices)
    np.testing.assert_array_equal(near.faces, far.faces)


# ---- MuJoCo in a child -----------------------------------------------------------------------------------------------


def test_mjcf_files_of_any_name(tmp_path):
    """MuJoCo 4 decides by the ending; files that it includes are found beside the file."""
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "p.mjcf").write_text(f"<mujoco>{WORLD}</mujoco>")
    (tmp_path / "r.mjcf").write_text('<mujoco model="m">\n<include file="parts/p.mjcf"/></mujoco>')
    for trust in (False, True):
        assert qddot.load(tmp_path / "r.mjcf", trust=trust).link_names == ("b",)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["p.mjcf", "parts", "r.mjcf"]
    for name in ("r.MJCF", "r.xml.txt"):
        (tmp_path / name).write_text(f"<mujoco>\n{WORLD}</mujoco>")
        assert qddot.load(tmp_path / name).nv == 1


@pytest.mark.parametrize("trust", [False, True])
@pytest.mark.parametrize(
    ("inside", "said"),
    [
        ('<size nkey="2000000000"/>', r":1: <size>: nkey is '2000000000'; reserve at most"),
        ('<size nkey=" +002000000000.0 "/>', r":1: <size>: nkey is"),
        ('<size nuser_body="2000000000"/>', r":1: <size>: nuser_body is '2000000000'; reserve at most"),
        ('<size nuserdata="2000000000"/>', r":1: <size>: nuserdata is"),
        ('<size memory="1000000000G"/>', r": element: engine error: Could not allocate memory; ask for less memory"),
        (
            '<asset><hfield name="h" nrow="100000" ncol="100000" size="1 1 1 1"/></asset>',
            r": element: .*; ask for less memory",
        ),
    ],
)
def test_numbers_that_ask_for_too_much(inside, said, trust):
    if trust and "hfield" in inside:
        pytest.skip("without limits, MuJoCo takes the memory if there is as much")
    start = time.process_time()
    with pytest.raises(FileError, match=r"m\.xml" + said):
        mjcf.read("m.xml", text=f"<mujoco>{inside}{WORLD}</mujoco>", trust=trust)
    assert time.process_time() - start < 2.0


def test_the_compiler_is_stopped_in_time(monkeypatch):
    """A number that no check of qddot's own knows keeps MuJoCo busy: the process that it is busy in is ended."""
    monkeypatch.setattr(limited, "MAX_SECONDS", 0.5)
    monkeypatch.setattr(mjcf_compile, "_MAX_RESERVED", 10**10)
    start = time.monotonic()
    with pytest.raises(FileError, match=r"m\.xml: file: MuJoCo's compiler was stopped after 0.5 s; .*trust=True"):
        mjcf.read("m.xml", text=f'<mujoco><size nkey="2000000000"/>{WORLD}</mujoco>')
    assert time.monotonic() - start < 30.0  # a second of the processor, on a machine that has other things to do
    monkeypatch.undo()  # starting another process takes longer than that where others work
    assert mjcf.read("m.xml", text=f"<mujoco>{WORLD}</mujoco>").model().nv == 1  # and the next file is read


def test_the_compiler_has_only_so_much_memory(monkeypatch):
    text = f'<mujoco><asset><texture name="t" type="2d" builtin="flat" width="8000" height="8000"/></asset>{WORLD}</mujoco>'
    mjcf_compile._COMPILER.close()
    monkeypatch.setattr(limited, "MAX_BYTES", 2**30)
    try:
        with pytest.raises(FileError, match=r"m\.xml.*(memory|bytes|ended)"):
            mjcf.read("m.xml", text=text.replace("8000", "20000"))
    finally:
        mjcf_compile._COMPILER.close()


def test_a_child_that_dies_is_replaced_and_told_of(monkeypatch):
    one = limited.Limited("mjcf")
    request = {"file": "m.xml", "text": f"<mujoco>{WORLD}</mujoco>"}
    try:
        facts, data = one.ask(request)
        assert data
        first = one._process.pid
        one._process.kill()
        assert one.ask(request)[0] == facts  # a new one does it
        assert one._process.pid != first
        monkeypatch.setattr(
            limited.Limited,
            "_started",
            lambda self: subprocess.Popen(
                [sys.executable, "-c", "import os; os.abort()"], stdin=-1, stdout=-1, stderr=-3, bufsize=0
            ),
        )
        one.close()
        with pytest.raises(limited.EndedError, match=r"ended without an answer \(signal 6\)"):
            one.ask(request)
    finally:
        one.close()


def test_the_child_ends_with_its_work_and_its_parent(tmp_path, monkeypatch):
    monkeypatch.setattr(limited, "IDLE_SECONDS", 0.1)
    one = limited.Limited("mjcf")
    one.ask({"file": "m.xml", "text": f"<mujoco>{WORLD}</mujoco>"})
    deadline = time.monotonic() + 20.0
    while one._process is not None:
        assert time.monotonic() < deadline, "it goes on without work"
        time.sleep(0.05)
    code = (
        "import os, qddot.formats.mjcf as m, qddot.formats.mjcf_compile as c\n"
        f"m.read('m.xml', text='''<mujoco>{WORLD}</mujoco>''')\n"
        "print(c._COMPILER._process.pid, flush=True)\nos.kill(os.getpid(), 9)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    pid = int(done.stdout)
    while Path(f"/proc/{pid}").exists() and Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z":
        assert time.monotonic() < deadline, "it outlives its parent"
        time.sleep(0.05)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_has_a_child_of_its_own():
    """Also where another thread is just reading a file."""
    text, stop = f"<mujoco>{WORLD}</mujoco>", threading.Event()

    def read():
        while not stop.is_set():
            mjcf.read("m.xml", text=text)

    mjcf.read("m.xml", text=text)
    thread = threading.Thread(target=read)
    thread.start()
    try:
        for _ in range(3):
            pid = os.fork()
            if pid == 0:
                try:
                    good = mjcf.read("m.xml", text=text).model().nv == 1
                    mjcf_compile._COMPILER.close()
                    os._exit(0 if good else 1)
                finally:
                    os._exit(2)
            deadline = time.monotonic() + 60.0
            while (ended := os.waitpid(pid, os.WNOHANG)) == (0, 0):
                if time.monotonic() > deadline:
                    os.kill(pid, 9)
                    os.waitpid(pid, 0)
                    pytest.fail("the forked process hangs")
                time.sleep(0.01)
            assert ended[1] == 0
    finally:
        stop.set()
        thread.join()


# ---- SDF -------------------------------------------------------------------------------------------------------------

LINK = '<link name="a"><inertial><mass>2</mass><inertia><ixx>.1</ixx><iyy>.1</iyy><izz>.1</izz></inertia></inertial></link>'


def world(inside):
    return f'<sdf version="1.6">\n<world name="w">\n{inside}</world></sdf>'


def test_the_one_model_of_a_world_is_read():
    text = world(f'<gravity>0 0 -1.6</gravity><light name="sun"/><physics/>\n<model name="m">{LINK}</model>')
    model = sdf.read("m.world", text=text).model()
    assert (model.name, model.gravity, model.findings) == ("m", (0.0, 0.0, -1.6), ())
    model = sdf.read(
        "m.sdf", text=world(f'<model name="m">{LINK}</model><include><uri>model://sun</uri></include>')
    ).model()
    assert model.gravity == (0.0, 0.0, -9.8)
    assert [f.severity for f in model.findings] == ["note", "warning"]
    assert "SDF's (0, 0, -9.8)" in model.findings[0].fix


def test_several_models_are_listed():
    with pytest.raises(FileError, match=r"m\.sdf:1: <sdf>: it has 2 models: 'ground', 'm'; give a file with one <model>"):
        sdf.read("m.sdf", text=world(f'<model name="ground">{LINK}</model><model name="m">{LINK}</model>'))


def test_poses_in_frames_of_the_world_are_refused():
    text = world(f'<frame name="f"/><model name="m"><pose relative_to="f">1 0 0 0 0 0</pose>{LINK}</model>')
    with pytest.raises(FileError, match="model: its pose is relative to 'f'"):
        sdf.read("m.sdf", text=text)
    text = world(f'<model name="m" placement_frame="a">{LINK}</model>')
    with pytest.raises(FileError, match="its pose is that of placement_frame 'a', which is not read"):
        sdf.read("m.sdf", text=text)


def test_defaults_of_an_inertial_are_said():
    text = '<sdf version="1.6"><model name="m"><link name="a"><inertial>{}</inertial></link></model></sdf>'
    builder = sdf.read("m.sdf", text=text.format(""))
    said = [str(f) for f in builder.findings if f.severity == "warning"]
    assert said[0].endswith("link 'a' <inertial>: it has no <mass>; 1 kg is taken, SDF's default; say what it has")
    assert "it has no <ixx>, <iyy>, <izz>; 1 kg m² is taken for each" in said[1]
    assert builder.model().inertia[1].m == 1.0
    whole = "<mass>1</mass><inertia><ixx>1</ixx><iyy>1</iyy><izz>1</izz></inertia>"
    assert not sdf.read("m.sdf", text=text.format(whole)).findings


# ---- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::qddot.QddotWarning")
@pytest.mark.parametrize("kind", [*(kind for kind in FILES if kind != "mjcf_same_names"), "native"])
def test_time_grows_with_the_length_of_a_file(kind, tmp_path):
    """By calls of functions, which other work on the machine does not change: 4 times the links, not 16 times the calls."""
    make, name = FILES.get(kind, (lambda n: native(n, tmp_path), "r.json"))
    calls = []
    for n in (100, 400):
        (tmp_path / name).write_text(make(n))
        calls.append(_calls(lambda: qddot.load(tmp_path / name)))
    assert calls[1] < 5.5 * calls[0]


def _calls(function):
    count = 0

    def counted(frame, event, argument):
        nonlocal count
        count += 1

    sys.setprofile(counted)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def test_names_that_are_taken_are_replaced_in_time(tmp_path):
    """2,000 sites, each with the name of a body; it took 4 s when one underscore after the other was tried."""
    (tmp_path / "r.xml").write_text(FILES["mjcf_same_names"][0](2000))
    start = time.process_time()
    qddot.load(tmp_path / "r.xml")
    assert time.process_time() - start < 2.0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::qddot.QddotWarning")
@pytest.mark.parametrize("kind", [*FILES, "native"])
def test_long_files(kind, tmp_path):
    """5,000 links each. Before, 2,000 links of an SDF posed relative to one another took over 90 s."""
    make, name = FILES.get(kind, (lambda n: native(n, tmp_path), "r.json"))
    (tmp_path / name).write_text(make(5000 if kind != "mjcf_loops" else 3000))  # MuJoCo's memory is the square of it
    start = time.process_time()
    qddot.load(tmp_path / name)
    assert time.process_time() - start < 20.0


def test_long_names_are_compared_in_time():
    """Looking for names like an unknown one takes the product of their lengths."""
    links = "".join(f'<link name="{"ab" * 490}{k}"/>' for k in range(2000))
    joint = f'<joint name="j" type="fixed"><parent link="{"ba" * 490}"/><child link="x"/></joint>'
    text = f'<robot name="r">{links}{joint}</robot>'
    from qddot.formats import urdf

    start = time.process_time()
    with pytest.raises(FileError, match="does not exist"):
        urdf.read("r.urdf", text=text)
    assert time.process_time() - start < 2.0


# ---- anything but a file ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["urdf", "xml", "mjcf", "sdf", "csv", "toml", "json", "qddot", "", "world"])
def test_what_is_no_file_is_refused(ending, tmp_path):
    file = tmp_path / f"r.{ending}"
    makers = {
        "folder": file.mkdir,
        "pipe": lambda: os.mkfifo(file),
        "device": lambda: file.symlink_to("/dev/zero"),
        "ring": lambda: file.symlink_to(file),
        "large": lambda: (file.touch(), os.truncate(file, 2**33)),
        "binary": lambda: file.write_bytes(bytes(range(256)) * 100),
    }
    for name, make in makers.items():
        make()
        start = time.process_time()
        with pytest.raises(FileError, match="r\\."):
            qddot.load(file)
        assert time.process_time() - start < 2.0, name
        file.rmdir() if name == "folder" else file.unlink()


@pytest.mark.parametrize(
    "source", ["a\0b.urdf", "x" * 5000 + ".urdf", b"x.urdf", None, 3, ["a"], "", ".", "\udc80.urdf", "/proc/self/mem"]
)
def test_odd_sources_are_refused(source):
    with pytest.raises(QddotError):
        qddot.load(source)
