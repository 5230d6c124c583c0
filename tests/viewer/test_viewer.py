"""The viewer: shapes by arithmetic, and the page itself in a real headless Chromium."""

import io
import time
from pathlib import Path

import numpy as np
import pytest

import qddot
from qddot.cli.main import main
from qddot.spatial.rotation import quaternions_of
from qddot.viewer import geometry, shapes, urdf_shapes
from qddot.viewer.stage import LAYERS
from tests.support.meshes import write_stl
from tests.support.real_robots import ROBOTS, URDFS, WHY
from tests.support.rollouts import rollout

PANDA = ROBOTS / "panda_description/urdf/panda.urdf"
G1 = ROBOTS / "g1_description/urdf/g1_29dof_rev_1_0.urdf"


# ---- shapes ----------------------------------------------------------------------------------------------------------


def volume(mesh):
    """By the divergence theorem: right only if the surface is closed and all its faces look outward."""
    a, b, c = (mesh.vertices[mesh.faces[:, k]] for k in range(3))
    return float(np.sum(np.cross(a, b) * c) / 6)


@pytest.mark.parametrize(
    ("mesh", "exact", "tolerance"),
    [
        (geometry.box((1.0, 2.0, 3.0)), 6.0, 1e-12),
        (geometry.box((1.0, 2.0, 3.0)).scaled((1, -1, 1)), 6.0, 1e-12),
        (geometry.cylinder(0.5, 2.0), np.pi * 0.5, 0.02),  # 24 sides are 1.1 % less than a circle
        (geometry.sphere(2.0), 4 / 3 * np.pi * 8, 0.03),
        (geometry.sphere((1.0, 2.0, 3.0)), 4 / 3 * np.pi * 6, 0.03),
        (geometry.capsule((1, 2, 3), (3, 2, 5), 0.2), np.pi * 0.04 * (np.sqrt(8) + 0.8 / 3), 0.02),
    ],
)
def test_meshes_are_closed(mesh, exact, tolerance):
    assert volume(mesh) == pytest.approx(exact, rel=tolerance)


def test_a_capsule_reaches_from_end_to_end():
    mesh = geometry.capsule((1, 0, 0), (1, 0, 2), 0.1)
    np.testing.assert_allclose(mesh.vertices.min(axis=0)[2], -0.1, atol=1e-12)
    np.testing.assert_allclose(mesh.vertices.max(axis=0)[2], 2.1, atol=1e-12)


def test_quaternions():
    rng = np.random.default_rng(0)
    robot = qddot.load("quadruped")
    q = np.stack([robot.random_state(rng)[0] for _ in range(200)])
    x, y, z, w = np.moveaxis(quaternions_of(robot.forward_kinematics(q)[:, 0, :3, :3]), -1, 0)[[1, 2, 3, 0]]
    found = np.stack([x, y, z, w], -1)
    given = q[:, 3:7] * np.sign(q[:, 6:7])
    np.testing.assert_allclose(found, given, atol=1e-14)
    half = np.diag([1.0, -1.0, -1.0])  # half a turn, where the scalar part is zero
    np.testing.assert_allclose(np.abs(quaternions_of(half)), [0, 1, 0, 0], atol=1e-15)


def test_fewer_faces():
    fine = geometry.sphere(1.0)
    coarse = geometry.simplified(fine, 0.4)
    assert len(coarse.faces) < len(fine.faces) / 2
    assert volume(coarse) == pytest.approx(volume(fine), rel=0.2)


@pytest.mark.parametrize("name", qddot.robots.NAMES)
def test_every_link_of_an_embedded_robot_is_drawn(name):
    model = qddot.load(name).model
    drawn = shapes.drawn(model)
    assert {s.link for s in drawn} >= set(range(1, model.n_links + 1))
    assert all(np.all(np.isfinite(s.mesh.vertices)) for s in drawn)


def test_rods_go_from_joint_to_joint():
    """The rods of a five-bar meet where its joints are: also at the loop's own."""
    robot = qddot.load("fivebar")
    for s in shapes.drawn(robot.model):
        if s.color != shapes.HINGES and s.link:
            assert s.mesh.vertices[:, 0].max() == pytest.approx(
                0.3, abs=0.03
            )  # bars of 0.3 m along x, and their round ends


def test_ellipsoids_have_the_inertia_of_their_links():
    """The moments of the solid that is drawn, integrated over its tetrahedra, are those of the model."""
    robot = qddot.load("puma560")
    model = robot.model
    for i in range(2, model.n_links + 1):
        mesh, (pose, moments) = shapes.ellipsoid(model, i), shapes.principal(model, i)
        local = mesh.moved(np.linalg.inv(pose))
        a, b, c = (local.vertices[local.faces[:, k]] for k in range(3))
        weights = np.einsum("ij,ij->i", np.cross(a, b), c) / 6
        corners = a + b + c
        second = np.einsum("i,ij->j", weights, corners**2 + a**2 + b**2 + c**2) / 20
        second *= model.inertia[i].m / weights.sum()
        found = np.sort(second.sum() - second)
        if np.min(moments.sum() - 2 * moments) > 0.01 * moments.max():  # a body that can be
            np.testing.assert_allclose(found, np.sort(moments), rtol=0.03)


URDF = """<robot name="two"><material name="blue"><color rgba="0 0 1 0.5"/></material>
<link name="base"><visual><geometry><box size="1 1 0.1"/></geometry></visual></link>
<link name="arm"><inertial><mass value="1"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial>
<visual><origin xyz="0 0 0.5"/><geometry><cylinder radius="0.1" length="1"/></geometry><material name="blue"/></visual>
<visual><geometry><mesh filename="package://two/meshes/part.stl" scale="0.001 0.001 0.001"/></geometry></visual></link>
<link name="tool"><visual><origin xyz="0 0 1"/><geometry><sphere radius="0.2"/></geometry></visual></link>
<joint name="elbow" type="continuous"><parent link="base"/><child link="arm"/><axis xyz="0 1 0"/></joint>
<joint name="grip" type="fixed"><parent link="arm"/><child link="tool"/><origin xyz="0 0 2"/></joint></robot>"""


@pytest.fixture
def urdf(tmp_path):
    folder = tmp_path / "two" / "urdf"
    folder.mkdir(parents=True)
    (folder / "two.urdf").write_text(URDF)
    return folder / "two.urdf"


def test_shapes_of_a_urdf(urdf):
    pytest.importorskip("trimesh", reason="needs trimesh: pip install 'qddot[view]'")
    model = qddot.load(urdf).model
    found = urdf_shapes.read(model, urdf)
    assert found.missing == ["package://two/meshes/part.stl"]
    by_link = {k: [s for s in found.shapes if s.link == k] for k in (0, 1)}
    assert len(by_link[0]) == 1
    cylinder, tool = by_link[1]
    assert (cylinder.color, cylinder.opacity) == ((0, 0, 255), 0.5)
    assert cylinder.mesh.vertices[:, 2].min() == pytest.approx(0.0)
    assert tool.mesh.vertices[:, 2].max() == pytest.approx(3.2)  # on the link that it is fixed to
    write_stl(urdf.parents[1] / "meshes" / "part.stl", geometry.box((1000.0, 2000.0, 3000.0)))
    found = urdf_shapes.read(model, urdf)
    assert not found.missing
    part = found.shapes[2].mesh
    assert volume(part) == pytest.approx(6.0)
    (urdf.parents[1] / "meshes" / "part.stl").write_bytes(b"solid nothing at all")
    found = urdf_shapes.read(model, urdf)
    assert len(found.unread) == 1
    assert len(found.shapes) == 3


def test_where_meshes_are(tmp_path, monkeypatch):
    urdf, other, ros = tmp_path / "a" / "urdf", tmp_path / "b", tmp_path / "c"
    for folder in (urdf, other / "pkg" / "meshes", ros / "share" / "pkg2" / "meshes", tmp_path / "a" / "meshes"):
        folder.mkdir(parents=True)
    for file in (other / "pkg/meshes/x.stl", ros / "share/pkg2/meshes/y.stl", tmp_path / "a/meshes/z.stl", urdf / "w.stl"):
        file.write_text("")
    locate = urdf_shapes.locate
    assert locate("w.stl", urdf) == urdf / "w.stl"
    assert locate("../meshes/z.stl", urdf).samefile(tmp_path / "a/meshes/z.stl")
    assert locate("package://a/meshes/z.stl", urdf) == tmp_path / "a/meshes/z.stl"  # the package that the URDF is in
    assert locate("package://pkg/meshes/x.stl", urdf) is None
    assert locate("package://pkg/meshes/x.stl", urdf, [str(other)]) == other / "pkg/meshes/x.stl"
    assert locate("package://pkg/meshes/x.stl", urdf, [str(other / "pkg")]) == other / "pkg/meshes/x.stl"
    assert locate("package://pkg2/meshes/y.stl", urdf) is None
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(ros))
    assert locate("package://pkg2/meshes/y.stl", urdf) == ros / "share/pkg2/meshes/y.stl"
    assert locate(f"file://{urdf / 'w.stl'}", tmp_path) == urdf / "w.stl"
    assert locate("", urdf) is None


@pytest.mark.skipif(not URDFS, reason=WHY)
@pytest.mark.filterwarnings("ignore::qddot.QddotWarning")
@pytest.mark.parametrize("path", [PANDA, G1], ids=lambda p: p.stem)
def test_meshes_of_real_robots(path):
    pytest.importorskip("trimesh", reason="needs trimesh: pip install 'qddot[view]'")
    pytest.importorskip("collada", reason="needs pycollada: pip install 'qddot[view]'")
    robot = qddot.load(path)
    found = urdf_shapes.read(robot.model, path)
    assert not found.missing
    assert not found.unread
    heavy = {i for i, _ in robot.model.outward() if robot.model.inertia[i].m > 0.05}
    assert heavy <= {s.link for s in found.shapes}
    for s in found.shapes:  # centres of mass are inside of what is drawn, give or take: metres are metres
        if s.link:
            assert np.max(np.abs(s.mesh.vertices)) < 1.0


# ---- the page --------------------------------------------------------------------------------------------------------


class Page:
    """A page, what it said on its console, and what its canvas shows."""

    def __init__(self, browser, url, **options):
        self.said = []
        self.page = browser.new_page(viewport={"width": 700, "height": 420}, **options)
        self.page.set_default_timeout(60_000)
        self.page.on("console", lambda m: self.said.append((m.type, m.text)))
        self.page.on("pageerror", lambda e: self.said.append(("pageerror", str(e))))
        self.page.goto(url)
        self.page.wait_for_selector("canvas")

    def picture(self):
        """What is to the left of the controls and below the browser's own notice."""
        image = pytest.importorskip("matplotlib.image", reason="needs matplotlib: pip install 'qddot[view]'")
        data = self.page.screenshot(timeout=120_000, clip={"x": 0, "y": 150, "width": 370, "height": 270})
        return np.asarray(image.imread(io.BytesIO(data)))[..., :3]

    def until(self, good, text):
        """The first picture that is as it should be."""
        deadline = time.monotonic() + 40
        while not good(picture := self.picture()):
            assert time.monotonic() < deadline, text
            time.sleep(0.1)
        return picture

    def drawn(self):
        """The picture once the robot is in it and no longer fades in."""
        self.until(lambda p: dark(p) > 0.003, "the canvas stays blank")
        before = self.picture()
        while True:
            time.sleep(0.4)
            if np.array_equal(now := self.picture(), before):
                return now
            before = now

    def changed(self, before, what="it"):
        return self.until(lambda p: np.mean(np.abs(p - before)) > 1e-4, f"the picture stays as it was: {what}")

    def errors(self):
        return [x for x in self.said if x[0] in ("error", "pageerror")]


def wait_for(good, text):
    deadline = time.monotonic() + 20
    while not good():
        assert time.monotonic() < deadline, text
        time.sleep(0.05)


def dark(picture):
    """The share of the picture that is neither background nor grid: something is drawn there."""
    return float(np.mean(np.min(picture, axis=-1) < 0.55))


def show(chromium, robot, trajectory=None, **options):
    from qddot.viewer.app import Viewer

    viewer = Viewer(robot, trajectory, port=8123, **options)
    try:
        return viewer, Page(chromium, viewer.url)
    except BaseException:
        viewer.close()
        raise


ROBOTS_SHOWN = [
    "fivebar",
    pytest.param(str(PANDA), marks=pytest.mark.slow),  # drawn in software, meshes take their time
    pytest.param(str(G1), marks=pytest.mark.slow),
]


@pytest.mark.filterwarnings("ignore::qddot.QddotWarning")
@pytest.mark.parametrize("source", ROBOTS_SHOWN, ids=lambda s: Path(s).stem)
def test_robots_are_shown_and_sliders_move_them(chromium, source):
    robot = qddot.load(source, floating_base="g1" in source)
    viewer, page = show(chromium, robot)
    try:
        first = page.drawn()
        assert not viewer.notes
        q, k = viewer.q.copy(), 6 if "g1" in source else 1
        page.page.get_by_role("slider").nth(k).focus()
        for _ in range(5):
            page.page.keyboard.press("ArrowRight")
        way = 5 * viewer.sliders[k].step
        if robot.model.is_constrained:  # the others follow
            wait_for(lambda: abs(robot.difference(q, viewer.q)[k]) > 0.1 * way, "the slider did not reach the robot")
            assert np.max(np.abs(robot.constraint_residual(viewer.q))) < 1e-8
        else:
            wanted = robot.integrate(q, way * np.eye(robot.nv)[k])
            wait_for(lambda: np.allclose(viewer.q, wanted, atol=1e-9), "the slider did not reach the robot")
            page.page.keyboard.press("Home")
        page.changed(first)
        assert not page.errors()
    finally:
        page.page.close()
        viewer.close()


@pytest.mark.slow  # see-through shapes, drawn in software
def test_play_pause_scrub_and_layers(chromium):
    robot = qddot.load("puma560", passive_forces=False)
    x = rollout(robot, robot.neutral(), np.zeros(6), tau=np.ones(6), dt=5e-3, steps=200)
    viewer, page = show(chromium, robot, x)
    try:
        page.page.get_by_role("button", name="Pause").click()
        page.page.get_by_role("button", name="Play").wait_for()
        wait_for(lambda: not viewer.playing, "it does not stop")
        stopped = viewer.time
        before = page.drawn()
        assert viewer.time == stopped
        scrubber = page.page.get_by_role("slider").first
        scrubber.focus()
        page.page.keyboard.press("End")
        wait_for(lambda: np.allclose(viewer.q, x.q[-1], atol=1e-12), "the scrubber did not reach the robot")
        before = page.changed(before)
        text = page.page.inner_text("body")
        assert "Energy [J]" in text
        assert "Torque [N m]" in text
        page.page.get_by_role("button", name="Play").click()
        wait_for(lambda: viewer.time < x.t[-1], "it does not play from the start again")
        page.page.get_by_role("button", name="Pause").click()
        wait_for(lambda: not viewer.playing, "it does not stop")
        page.page.get_by_role("tab", name="Show").click()
        for name in LAYERS[:5]:
            before = page.drawn()
            page.page.get_by_text(name.capitalize(), exact=True).wait_for()
            page.page.get_by_role("checkbox").nth(LAYERS.index(name)).check()
            wait_for(lambda name=name: viewer.scene.visible[name], f"the box of {name} does nothing")
            page.changed(before, name)
        page.page.get_by_role("tab", name="Joints").click()
        q = viewer.q.copy()
        page.page.get_by_role("slider").nth(2).focus()
        page.page.keyboard.press("Home")
        wanted = [*q[:2], viewer.sliders[2].min, *q[3:]]  # and the others stay, also those beyond their limits
        wait_for(lambda: np.allclose(viewer.q, wanted, atol=1e-9), "the slider did not reach the robot")
        assert not page.errors()
    finally:
        page.page.close()
        viewer.close()


def test_arrows_are_where_forces_act():
    """External forces lie on the line that their moments say, weights add up, torques are along their axes."""
    pytest.importorskip("viser", reason="needs viser: pip install 'qddot[view]'")
    from qddot.viewer.app import Viewer

    robot = qddot.load("quadruped")
    q, _ = robot.random_state(1)
    viewer = Viewer(robot, q=q, port=8123)
    try:
        scene, rng = viewer.scene, np.random.default_rng(0)
        f, r = rng.standard_normal((2, 13, 3))
        for k, (start, way) in enumerate(scene.forces(np.concatenate([np.cross(r, f), f], axis=-1))):
            np.testing.assert_allclose(np.cross(start, f[k]), np.cross(r[k], f[k]), atol=1e-12)
            np.testing.assert_allclose(np.cross(way, f[k]), 0.0, atol=1e-12)
            assert way @ f[k] > 0.0
        T = robot.forward_kinematics(q)
        weights = [R @ way for R, (_, way) in zip(T[:, :3, :3], scene.weights(scene.poses(q)), strict=True)]
        np.testing.assert_allclose(sum(weights), [0.0, 0.0, -0.5 * scene.size], atol=1e-12)
        tau = rng.standard_normal(18)
        knee = robot.model.joint_index("front_left_knee") - 1
        _, way = scene.torques(tau)[knee]
        assert way[1] * tau[robot.v_index["front_left_knee"]] > 0.0  # about its y axis
        np.testing.assert_array_equal(way[[0, 2]], 0.0)
    finally:
        viewer.close()


def test_what_cannot_be_shown(tmp_path, capsys):
    pytest.importorskip("viser", reason="needs viser: pip install 'qddot[view]'")
    robot = qddot.load("double_pendulum")
    batch = rollout(robot, np.zeros((2, 2)), np.zeros((2, 2)), steps=2)
    for use in (batch.show, lambda: batch.save_html(tmp_path / "x.html")):
        with pytest.raises(qddot.InputError, match="batch"):
            use()
    with pytest.raises(qddot.InputError, match="layer 'shadows' is not known; take some of frames"):
        batch.sample(0).save_html(tmp_path / "x.html", layers=["shadows"])
    with pytest.raises(qddot.QddotError, match="cannot be written"):
        batch.sample(0).save_html(tmp_path / "nowhere" / "x.html")
    assert main(["view", "pumma560"]) == 2
    assert "did you mean 'puma560'" in capsys.readouterr().err
    assert main(["view", "puma560", "--html", "x.html"]) == 2
    assert "recorded run" in capsys.readouterr().err
    assert main(["view", str(tmp_path)]) == 2
    assert "no recorded run" in capsys.readouterr().err
