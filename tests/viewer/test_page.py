"""The saved page of a run: what is written into it, and what a browser that has nothing else makes of it."""

import base64
import json
import re
import zlib

import numpy as np
import pytest

import qddot
from qddot.cli.main import main
from qddot.simulation.trajectory import Trajectory
from qddot.viewer.page import MAX_BYTES, page_of
from qddot.viewer.stage import LAYERS
from tests.support.rollouts import rollout

DTYPES = {"f4": np.float32, "u2": np.uint16, "u4": np.uint32, "i2": np.int16}


def contents(page):
    """What the scripts read, with the arrays in place."""
    about = json.loads(re.search(r'id="about">(.*?)</script>', page, re.DOTALL)[1])
    data = zlib.decompress(base64.b64decode(about["data"]))
    about["arrays"] = [np.frombuffer(data, DTYPES[kind], count, start) for kind, start, count in about["arrays"]]
    return about


def swinging(steps=50, **options):
    robot = qddot.load("puma560", passive_forces=False)
    return rollout(robot, robot.neutral() + 0.3, np.ones(6), tau=np.ones(6), dt=1e-2, steps=steps, **options)


def test_poses_are_those_of_the_run():
    x = swinging()
    about = contents(page_of(x, frames_a_second=100.0, layers=["centre of mass"]))
    T = x.robot.forward_kinematics(x.q)
    places = about["arrays"][about["poses"]].reshape(6, 3, 51)
    np.testing.assert_allclose(places, np.moveaxis(T[..., :3, 3], 0, -1), atol=2e-5 * about["size"])
    w, x_, y, z = np.moveaxis(about["arrays"][about["turns"]].reshape(6, 4, 51), 1, 0) / 32767.0
    found = np.stack([1 - 2 * (y * y + z * z), 2 * (x_ * y + w * z), 2 * (x_ * z - w * y)])  # the first column
    np.testing.assert_allclose(found, np.moveaxis(T[..., :3, 0], (0, 1, 2), (2, 1, 0)), atol=2e-4)
    turns = about["arrays"][about["turns"]].reshape(24, 51).astype(float)
    assert np.abs(np.diff(turns)).max() < 6000  # no jumps to the other half of the sphere, between which one interpolates
    centers = about["arrays"][about["com"]["array"]].reshape(3, 51)
    np.testing.assert_allclose(centers, x.center_of_mass.T, atol=2e-5 * about["size"])


def test_curves_are_energy_torques_and_forces():
    robot = qddot.load("stanford")
    x = rollout(robot, robot.neutral() + 0.1, np.zeros(6), tau=np.arange(6.0), steps=20)
    about = contents(page_of(x))
    energy, torque, force = about["curves"]
    assert [c["title"] for c in about["curves"]] == ["Energy [J]", "Torque [N m]", "Force [N]"]
    assert [s["name"] for s in energy["series"]] == ["total", "kinetic", "potential"]
    np.testing.assert_allclose(about["arrays"][energy["series"][0]["array"]], x.energy, rtol=1e-6)
    names = [s["name"] for s in (*torque["series"], *force["series"])]
    assert sorted(names) == sorted(robot.joint_names[1:])  # the first has no torque


def test_a_page_is_no_larger_than_2_mb():
    """Noise does not compress, so that frames are left out."""
    robot = qddot.load("puma560", passive_forces=False)
    rng = np.random.default_rng(0)
    q, v = rng.standard_normal((2, 3000, 6))
    f_ext = rng.standard_normal((3000, 6, 6))
    x = Trajectory(robot, np.linspace(0, 100, 3000), q, v, tau=v, channels={"f_ext": f_ext})
    page = page_of(x, layers=LAYERS)
    assert 0.3 * MAX_BYTES < len(page.encode()) <= MAX_BYTES == 2_000_000
    assert contents(page)["frames"] > 300


def test_states_that_are_not_finite_are_left_out():
    x = swinging()
    x.q[30:] = np.nan
    page = page_of(x)
    assert "states after 0.29 s are not finite, and not shown" in page
    about = contents(page)
    assert about["begin"] + about["step"] * (about["frames"] - 1) == pytest.approx(0.29)
    assert all(np.isfinite(about["arrays"][about[k]]).all() for k in ("poses", "turns"))
    x.q[0] = np.nan
    with pytest.raises(qddot.InputError, match="first state of the run is not finite"):
        page_of(x)


def test_small_runs():
    one = qddot.load("pendulum")
    x = Trajectory(one, [0.0], np.zeros((1, 1), np.float32), np.zeros((1, 1), np.float32))
    assert contents(page_of(x))["frames"] == 2
    with pytest.raises(qddot.InputError, match="frames_a_second is 0"):
        page_of(x, frames_a_second=0)


def test_the_page_in_a_browser(chromium, tmp_path):
    """It plays, says what it shows, obeys its keys, and asks for nothing from anywhere."""
    x = swinging()
    file = x.save_html(tmp_path / "run.html", layers=LAYERS, title="An arm & its torques")
    said = []
    page = chromium.new_page(viewport={"width": 700, "height": 420}, offline=True)
    page.on("console", lambda m: said.append(m.text))
    page.on("pageerror", lambda e: said.append(str(e)))
    page.on("request", lambda r: said.append(r.url) if r.url != file.as_uri() else None)

    def clock():
        return float(page.locator("#clock").inner_text().split()[0])

    def drawn():
        """Pixels of the canvas that are neither background nor grid."""
        return page.evaluate("""() => { const gl = document.getElementById("view").getContext("webgl2");
          const [w, h] = [gl.drawingBufferWidth, gl.drawingBufferHeight], p = new Uint8Array(4 * w * h);
          gl.readPixels(0, 0, w, h, gl.RGBA, gl.UNSIGNED_BYTE, p); let n = 0, sum = 0;
          for (let k = 0; k < p.length; k += 4) if (p[k + 3] === 255) { n++; sum += (k % 9973) * p[k]; }
          return [n / (w * h), sum]; }""")

    try:
        page.goto(file.as_uri())
        page.wait_for_selector("body[data-ready]")
        while clock() < 0.05:
            page.wait_for_timeout(20)
        page.keyboard.press(" ")
        assert page.get_by_role("button").inner_text() == "Play"
        stopped = clock()
        text = page.locator("body").inner_text()
        for words in ("An arm & its torques", "6 links, 6 degrees of freedom, 23.45 kg", "joints: 6 revolute", "rk4"):
            assert words in text
        for words in ("Energy [J]", "Torque [N m]", "kinetic", "joint6"):
            assert words in text
        page.keyboard.press("Home")
        assert clock() == 0.0 <= stopped
        page.wait_for_timeout(100)
        share, first = drawn()
        assert 0.01 < share < 0.6
        for _ in range(3):
            page.keyboard.press("ArrowRight")
        assert clock() == pytest.approx(3 / 30, abs=0.01)
        page.keyboard.press("ArrowLeft")
        assert clock() == pytest.approx(2 / 30, abs=0.01)
        page.keyboard.press("End")
        assert clock() == 0.5
        page.wait_for_timeout(100)
        assert drawn()[1] != first
        page.keyboard.press("ArrowUp")
        assert page.locator("#speed").input_value() == "2"
        assert not said
    finally:
        page.close()


def test_a_recorded_run_becomes_a_page(tmp_path):
    swinging(5).save(tmp_path / "run")
    assert main(["view", str(tmp_path / "run"), "--html", str(tmp_path / "again.html")]) == 0
    assert contents((tmp_path / "again.html").read_text(encoding="utf-8"))["links"] == 6
