"""The twelve runs of docs/gallery.md, and their pictures.

python docs/pictures/gallery.py [NAME ...]    draws them again, with playwright, a Chromium and matplotlib.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np

import qddot
from qddot.joints import Revolute
from qddot.scalars import cos, sin
from qddot.simulation import Trajectory, controls, forces

# ---- control


def computed_torque():
    arm = qddot.load("puma560", passive_forces=False)

    def curve(t):
        return [0.7 * sin(2 * t + k) for k in range(6)]

    law = controls.computed_torque(arm, curve, kp=100.0, kd=20.0)
    run = arm.simulate(arm.neutral(), np.zeros(6), law, dt=1e-3, steps=3000, record=10)
    assert np.abs(run.q[-1] - 0.7 * np.sin(6 + np.arange(6))).max() < 1e-6
    return run


def inverse_kinematics():
    arm, t = qddot.load("scara"), np.linspace(0, 2, 101)
    centre, angle = arm.pose([0.6, 1.4, 0.1, 0.0], "tip")[:3, 3], np.pi * t
    targets = centre + np.stack([0.1 * np.sin(angle), 0.1 * np.sin(2 * angle), 0.05 * np.sin(angle)], axis=-1)
    found = arm.inverse_kinematics({"tip": targets}, q0=[0.6, 1.4, 0.1, 0.0])
    assert found.success.all()
    return Trajectory(arm, t, found.q, np.gradient(found.q, t, axis=0))


def saturated():
    arm = qddot.load("planar3")
    law = controls.pd(arm, np.array([1.2, -0.9, 0.8]), kp=60.0, kd=12.0)

    def limited(t, q, v):
        return np.clip(law(t, q, v), -9.0, 9.0)

    run = arm.simulate(np.zeros(3), np.zeros(3), limited, dt=1e-3, steps=2000, record=10)
    assert np.abs(run.tau).max() == 9.0
    return run


def landing():
    robot = qddot.load("quadruped")
    q0, legs = robot.neutral(), np.r_[np.zeros(6), np.ones(12)]
    q0[2], q0[8::3], q0[9::3] = 0.5, 0.6, -1.2  # the body's height, hips, knees
    feet = [name for name in robot.frame_names if name.endswith("_foot")]
    ground = forces.ground(robot, feet, stiffness=2e5, damping=0.5, friction=0.8)
    hold = controls.pd(robot, q0, 100.0 * legs, 3.0 * legs)
    run = robot.simulate(q0, 0.4 * (np.arange(18) == 3), hold, forces=ground, dt=5e-5, steps=16_000, record=200)
    assert 0.15 < run.q[-1, 2] < 0.4
    return run


# ---- learning


def randomised_masses():
    arm, rng = qddot.load("puma560"), np.random.default_rng(0)
    mass = arm.parameters("link3_at_joint.mass") * np.sort(rng.uniform(0.3, 3.0, 128))
    hold = controls.pd(arm, np.array([0.0, -0.5, 0.5, 0.0, 0.3, 0.0]), kp=150.0, kd=12.0)
    run = arm.simulate(
        arm.neutral(),
        np.zeros(6),
        hold,
        dt=2e-4,
        steps=6000,
        record=50,
        free={"link3_at_joint.mass": mass},
        limits="ignore",
    )
    assert run.q.shape == (128, 121, 6)
    return run


def chaos():
    robot = qddot.load("double_pendulum", passive_forces=False)
    q0 = np.array([2.2, 0.3]) + np.linspace(0, 1e-3, 200)[:, None]
    run = robot.simulate(q0, np.zeros(2), dt=1e-3, steps=12_000, record=40)
    assert run.energy_drift.max() < 1e-5
    return run


def long_chain():
    robot = qddot.chain(16)
    q0 = np.r_[1.3, 0.3, np.full(14, 0.08)]
    run = robot.simulate(q0, np.zeros(16), dt=1e-3, steps=1500, record=10)
    assert run.energy_drift < 1e-5
    return run


def double_pendulum():
    robot = qddot.load("double_pendulum", passive_forces=False)
    run = robot.simulate([1.8, 0.4], np.zeros(2), dt=1e-3, steps=4000, record=10, integrator="variational")
    assert run.energy_drift < 1e-3
    return run


# ---- mechanisms


def fourbar():
    b = qddot.Builder("four-bar", gravity=(0.0, 0.0, -9.81))
    for name, length in (("crank", 0.1), ("coupler", 0.35), ("rocker", 0.25)):
        b.link(name, 2 * length, (length / 2, 0, 0), np.diag([1e-5, length**3 / 6, length**3 / 6]))
    b.joint("motor", "world", "crank", Revolute((0, -1, 0)), actuated=True)
    b.joint("knee", "crank", "coupler", Revolute((0, -1, 0)), qddot.pose((0.1, 0, 0)))
    b.joint("pivot", "world", "rocker", Revolute((0, -1, 0)), qddot.pose((0.3, 0, 0)))
    b.loop("pin", "coupler", "rocker", Revolute((0, -1, 0)), qddot.pose((0.35, 0, 0)), qddot.pose((0.25, 0, 0)))
    robot = b.robot()
    q0, _ = robot.close_loops([0.0, 1.0, 1.5], hold=["motor"])
    v0 = robot.project_velocity(q0, [6.0, 0.0, 0.0], hold=["motor"])
    run = robot.simulate(q0, v0, dt=1e-3, steps=2000, record=10, prescribed={"motor": lambda t: 6.0 * t})
    assert run.channels["drift"].max() < 1e-9
    return run


def fivebar():
    robot = qddot.load("fivebar")
    q0, _ = robot.close_loops(robot.neutral())

    def law(t, q, v):
        return [30 * (0.4 * sin(4 * t) - q[0]) - v[0], 0, 30 * (0.4 * cos(4 * t) - q[2]) - v[2], 0]

    run = robot.simulate(q0, np.zeros(4), law, dt=1e-3, steps=1500, record=10)
    assert run.channels["drift"].max() < 1e-6
    return run


def delta():
    robot, t = qddot.load("delta"), np.linspace(0, 2, 81)
    q0, _ = robot.close_loops(robot.neutral())
    centre = robot.pose(q0, "platform")[:3, 3]
    circle = centre + 0.15 * np.stack([np.sin(np.pi * t), np.cos(np.pi * t) - 1, 0.3 * np.sin(2 * np.pi * t)], axis=-1)
    found = robot.inverse_kinematics({"platform": circle}, q0=q0)
    assert found.success.all()
    return Trajectory(robot, t, found.q, np.zeros((81, robot.nv)))


def stewart():
    robot, t = qddot.load("stewart"), np.linspace(0, 2, 81)
    q0, _ = robot.close_loops(robot.neutral())
    T = np.tile(robot.pose(q0, "plate"), (81, 1, 1))
    c, s = np.cos(0.3 * np.sin(np.pi * t)), np.sin(0.3 * np.sin(np.pi * t))
    T[:, 0, 3] += 0.1 * np.sin(np.pi * t)
    T[:, 0, 0], T[:, 0, 2], T[:, 2, 0], T[:, 2, 2] = c, s, -s, c  # it tilts about y
    found = robot.inverse_kinematics({"plate": T}, q0=q0)
    assert found.success.all()
    return Trajectory(robot, t, found.q, np.zeros((81, robot.nv)))


# ---- pictures

FOLDER = Path(__file__).with_name("gallery")
MOMENTS = {  # s: when the picture is taken
    computed_torque: 1.8,
    inverse_kinematics: 1.7,
    saturated: 0.7,
    landing: 0.45,
    long_chain: 0.8,
    double_pendulum: 2.9,
    fourbar: 1.2,
    fivebar: 1.1,
    delta: 1.6,
    stewart: 0.5,
}
PLOTS = (randomised_masses, chaos)
RUNS = (*MOMENTS, *PLOTS)
BARE = """header, nav, aside { display: none !important } main { height: 100% !important }
#stage { background: #f6f8fa !important }"""


def small(png: bytes, file: Path, colours: int = 256) -> None:
    """With few colours, in a third of the bytes; 0 keeps all, which gradients need."""
    from PIL import Image

    picture = Image.open(io.BytesIO(png)).convert("RGB")
    if colours:
        picture = picture.quantize(colours, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    file.parent.mkdir(exist_ok=True)
    picture.save(file, optimize=True)
    print(f"{file.name}: {file.stat().st_size // 1024} KiB")


def draw(chosen) -> None:
    """Each robot by its saved page in a Chromium, without what stands around it."""
    from playwright.sync_api import sync_playwright

    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    flags = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
    with sync_playwright() as p, tempfile.TemporaryDirectory() as folder:
        browser = p.chromium.launch(executable_path=path, args=flags)

        def shoot(run, t, bare, size, scale, **options):
            page = browser.new_page(viewport=dict(zip(("width", "height"), size, strict=True)), device_scale_factor=scale)
            page.goto(f"{run.save_html(Path(folder) / 'run.html', frames_a_second=100, **options).as_uri()}#t={t}")
            page.wait_for_selector("body[data-ready]")
            if bare:
                page.add_style_tag(content=BARE)
            page.keyboard.press("r")
            page.wait_for_timeout(500)
            png = page.screenshot()
            page.close()
            return png

        for function in chosen:
            small(shoot(function(), MOMENTS[function], True, (480, 340), 1.5), FOLDER / f"{function.__name__}.png")
        if landing in chosen:
            png = shoot(landing(), 0.45, False, (1100, 620), 1.0, title="A quadruped lands on its feet")
            small(png, FOLDER.with_name("page.png"), 0)
        browser.close()


def plot(function) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False})
    fig, axes = plt.subplots(figsize=(4.8, 3.4), layout="constrained", facecolor="#f6f8fa")
    run, colours = function(), plt.get_cmap("viridis")
    for k, q in enumerate(run.q):
        y = q[:, 1] if function is randomised_masses else q[:, 0]
        axes.plot(run.t, y, color=colours(k / len(run.q)), lw=0.8, alpha=0.7)
    what = (
        "joint 2, rad; 128 masses of link 3" if function is randomised_masses else "hinge 1, rad; 200 starts within 1 mrad"
    )
    axes.set(xlabel="t, s", title=what, facecolor="#f6f8fa")
    data = io.BytesIO()
    fig.savefig(data, dpi=150)
    plt.close(fig)
    small(data.getvalue(), FOLDER / f"{function.__name__}.png")


if __name__ == "__main__":
    wanted = [f for f in RUNS if not sys.argv[1:] or f.__name__ in sys.argv[1:]]
    draw([f for f in wanted if f in MOMENTS])
    for f in wanted:
        if f in PLOTS:
            plot(f)
