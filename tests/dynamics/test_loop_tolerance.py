"""Loops whose numbers are rounded: they cannot close exactly, and are computed all the same, to what they miss by."""

import dataclasses
import math

import numpy as np
import pytest

import qddot
from qddot.conventions import to_mujoco_q, to_mujoco_v
from qddot.dynamics.constrained_solver import solver_of
from qddot.dynamics.loop_assembly import EXACT
from qddot.formats import mjcf, native
from qddot.joints import Prismatic, Revolute, Spherical
from qddot.robot import Robot
from qddot.spatial import constant_transform
from qddot.spatial.rotation import quaternion_rotation, quaternion_unit, rotation_quaternion
from tests.support import linkages
from tests.support.linkages import BAR, turned
from tests.support.peers import peer

METHODS = ("direct", "multipliers", "null_space", "auto")


def four_bar_with_a_ball(off, **options):
    """A planar four-bar, whose last joint is a ball that is not quite in its plane: one row can never be zero."""
    b = qddot.Builder("ball", gravity=(0.0, -9.81, 0.0), **options)
    x, y = 0.2 * math.cos(1.2) + 0.5 - 0.25 * math.cos(1.4), 0.2 * math.sin(1.2) - 0.25 * math.sin(1.4)
    b.link("crank", 1.0, (0.1, 0, 0), BAR).joint("j1", "world", "crank", Revolute(), turned(2, 1.2))
    b.link("coupler", 1.0, (0.25, 0, 0), BAR).joint("j2", "crank", "coupler", Revolute(), turned(2, -1.2, (0.2, 0, 0)))
    b.link("rocker", 2.0, (0.1, 0, 0), BAR).joint("j3", "world", "rocker", Revolute(), turned(2, 1.4, (x, y, 0)))
    b.loop("ball", "coupler", "rocker", Spherical(), qddot.pose((0.5, 0, 0)), qddot.pose((0.25, 0, off)))
    return b.robot()


def three_rods(digits, spots=(0.0, 0.3, -0.27), length=0.25, tilt=0.3, angle=1.1, turn=0.37):
    """Three parallel cranks of one length that carry a coupler. It moves only because they are equal, as rods on the neck
    of a small humanoid are: rounded, four rows for four joints agree up to the last digit.
    """
    b = qddot.Builder("rods", gravity=(0.0, -9.81, 0.0))

    def along(x, direction):
        return (round(x * math.cos(direction), digits), round(x * math.sin(direction), digits), 0.0)

    for k, x in enumerate(spots):
        b.link(f"crank{k}", 1.0, (length / 2, 0, 0), BAR)
        b.joint(f"j{k}", "world", f"crank{k}", Revolute(), turned(2, angle, along(x, tilt)))
    b.link("coupler", 1.0, (0.3, 0, 0), BAR)
    b.joint("j3", "crank0", "coupler", Revolute(), turned(2, turn - angle, (length, 0, 0)))
    for k in (1, 2):
        at = qddot.pose(along(spots[k], tilt - turn))
        b.loop(f"pin{k}", "coupler", f"crank{k}", Revolute(), at, qddot.pose((length, 0, 0)))
    return b.robot()


def rounded(model, digits):
    """The model as a file with so many decimals has it: positions and quaternions rounded."""

    def transform(T):
        x = quaternion_unit(tuple(round(c, digits) for c in rotation_quaternion(T.R)))
        return constant_transform(quaternion_rotation(*x).rows, tuple(round(c, digits) for c in T.p))

    loops = (p._replace(placement_a=transform(p.placement_a), placement_b=transform(p.placement_b)) for p in model.loops)
    return dataclasses.replace(model, placement=tuple(transform(T) for T in model.placement), loops=tuple(loops))


def pair(builder, digits):
    model = builder().model()
    return Robot(rounded(model, digits)), Robot(model)


# the robot with rounded numbers, and the same with exact ones
ROBOTS = {
    "ball 1e-9 m out of plane": lambda: (four_bar_with_a_ball(1e-9), four_bar_with_a_ball(0.0)),
    "ball 4e-6 m out of plane": lambda: (four_bar_with_a_ball(4e-6), four_bar_with_a_ball(0.0)),
    "three rods, 8 digits": lambda: (three_rods(8), three_rods(17)),
    "weld, 7 digits": lambda: pair(linkages.fourbar_six_rows, 7),
    "weld, 6 digits": lambda: pair(linkages.fourbar_six_rows, 6),
    "bennett, 8 digits": lambda: pair(linkages.bennett, 8),
    "bennett, 6 digits": lambda: pair(linkages.bennett, 6),
}


LONG = "three rods, 8 digits"


@pytest.mark.parametrize("name", [pytest.param(x, marks=pytest.mark.slow) if x == LONG else x for x in ROBOTS])
def test_rounded_loops_are_computed_as_well_as_their_numbers_are(name):
    """By all methods, and as the same linkage with exact numbers: differences are some times what the loops miss by."""
    robot, exact = ROBOTS[name]()
    rng = np.random.default_rng(0)
    miss = solver_of(robot.engine).miss
    assert robot.mobility == exact.mobility == 1
    assert EXACT < miss < robot.loop_tolerance <= 300 * miss
    assert exact.loop_tolerance == EXACT
    assert exact.loop_findings == ()
    (note,) = robot.loop_findings
    assert note.severity == "note"
    assert f"cannot close to less than about {miss:.1e} m or rad" in str(note)
    assert f"loop_tolerance={robot.loop_tolerance:.0e}" in str(note)

    start = exact.close_loops(exact.integrate(exact.neutral(), 0.1 * rng.standard_normal((3, exact.nv))))[0]
    q, off = robot.close_loops(start)
    assert np.all(off <= robot.loop_tolerance)
    assert np.max(np.abs(q - start)) < 1e3 * miss  # closing does not move the linkage along its DoF
    v = exact.project_velocity(start, rng.standard_normal((3, exact.nv)))
    tau = rng.standard_normal((3, exact.nv))
    a = exact.forward_dynamics(start, v, tau)
    w, size = robot.project_velocity(q, v), np.max(np.abs(a))
    found = {method: robot.constrained_forward_dynamics(q, w, tau, method=method) for method in METHODS}
    for b, lam in found.values():
        assert np.max(np.abs(b - a)) < 100 * miss * size
        assert np.max(np.abs(b - found["direct"][0])) < 1e-9 * size  # the kept rows are the same: only rounding differs
        assert np.max(np.abs(lam - found["direct"][1])) < 1e-9 * np.max(np.abs(lam))
    b, lam = found["auto"]
    forces = exact.constrained_forward_dynamics(start, v, tau)[1]
    assert np.max(np.abs(lam - forces)) < 1e3 * miss * np.max(np.abs(forces))

    # inverse dynamics with one drive, and hybrid dynamics, take the same motion
    driven = robot.inverse_dynamics(q, w, b, actuated=[0])
    assert np.allclose(driven, exact.inverse_dynamics(start, v, a, actuated=[0]), rtol=0, atol=1e3 * miss * size)
    assert np.max(np.abs(robot.hybrid_dynamics(q, w, b, tau, prescribed=[0])[0] - b)) < 1e-9 * size
    slopes, right = (
        r.constrained_forward_dynamics_derivatives(x, y, tau) for r, x, y in ((robot, q, w), (exact, start, v))
    )
    for ours, theirs in zip((*slopes.a, *slopes.lam), (*right.a, *right.lam), strict=True):
        assert np.max(np.abs(ours - theirs)) < 1e3 * miss * np.max(np.abs(theirs))


@pytest.mark.parametrize("name", ["ball 1e-9 m out of plane", "three rods, 8 digits", "bennett, 6 digits"])
def test_simulations_of_rounded_loops_keep_energy(name):
    drift, (rounded_one, exact) = [], ROBOTS[name]()
    for robot in (rounded_one, exact):
        q, _ = robot.close_loops(robot.neutral())
        run = robot.simulate(q, 0.5 * robot.project_velocity(q, np.ones(robot.nv)), dt=1e-3, steps=300)
        assert np.max(run.constraint_drift) < robot.loop_tolerance
        drift.append(run.energy_drift)
    # a row's rate differs from the residual's by what the dropped rows beside it miss by
    assert drift[0] < 10 * drift[1] + solver_of(rounded_one.engine).miss


NECK = """<mujoco><compiler angle="radian"/><worldbody><body name="yaw"><joint name="driven"/>{body}
<site name="f" pos="{F}"/><site name="fz" pos="{Fz}"/><site name="b" pos="{B}"/><site name="bz" pos="{Bz}"/>
<body name="head" pos="0 .004 .015"><joint name="pitch" axis="0 1 0"/>{body}
<body name="plate" pos="{up}" quat="{turn}"><joint name="act" axis="0 -1 0"/>{body}
<body name="front" pos="{f}"><joint axis="0 -1 0"/>{body}<site name="g" pos="{down}"/><site name="gz" pos="{downz}"/></body>
<body name="back" pos="{b}"><joint axis="0 -1 0"/>{body}<site name="h" pos="{down}"/><site name="hz" pos="{downz}"/></body>
</body></body></body><body><joint name="drive" axis="0 0 -1"/>{body}</body></worldbody><equality>
<connect site1="g" site2="f"/><connect site1="gz" site2="fz"/><connect site1="h" site2="b"/><connect site1="hz" site2="bz"/>
<joint joint1="driven" joint2="drive" polycoef="0 -.9090909091 0 0 0"/></equality></mujoco>"""


def neck(digits):
    """A head on three parallel rods, hinges of which are closed by two points each, as exporters of CAD write it."""

    def text(*p):
        return " ".join(f"{x:.{digits}f}" for x in p)

    body = '<inertial pos=".001 .002 .003" mass=".1" diaginertia="1e-4 1.5e-4 2e-4"/>'
    x, z, dx, dz, turn = 0.1 / 7, 0.02 / 7, 0.17 / 6, 0.1 / 3, 0.37  # none of which ends after some digits
    c, s = math.cos(turn), math.sin(turn)
    sites = {"f": (x, 0, z), "b": (-x * 1.1, 0, -z * 1.1), "down": (dx, 0, -dz)}
    points = {key: (c * p[0] - s * p[2], 0, s * p[0] + c * p[2]) for key, p in sites.items()}  # in the plate's axes
    points |= {key.upper(): (sites[key][0], 0.004, sites[key][2] + 0.015) for key in ("f", "b")}
    points |= {"up": (-dx, 0, dz)}
    shifted = {f"{key}z": (p[0], p[1] + 0.1, p[2]) for key, p in points.items()}
    quaternion = text(math.cos(turn / 2), 0, math.sin(turn / 2), 0)
    return NECK.format(body=body, turn=quaternion, **{key: text(*p) for key, p in (points | shifted).items()})


def test_a_mechanism_of_a_file_with_eight_digits():
    """Twelve rows of rank three, which rounding makes four; it moves all the same, and as MuJoCo's numbers say."""
    mujoco = peer("mujoco")
    text = neck(8)
    robot, exact = (Robot(mjcf.read("neck.xml", text=t).model()) for t in (text, neck(17)))
    q, off = robot.close_loops(robot.neutral())
    sizes = np.linalg.svd(robot.constraint_jacobian(q), compute_uv=False)
    assert 1e-11 < sizes[3] < 1e-6 < 1e-3 < sizes[2]  # the rank is that of the exact linkage
    assert robot.mobility == exact.mobility == 2
    assert 1e-9 < off <= robot.loop_tolerance
    m, M = mujoco.MjModel.from_xml_string(text), np.zeros((6, 6))
    d, rng = mujoco.MjData(m), np.random.default_rng(2)
    for _ in range(3):
        q, _ = robot.close_loops(robot.integrate(q, 0.2 * rng.standard_normal(5)))
        v, tau = robot.project_velocity(q, rng.standard_normal(5)), 1e-3 * rng.standard_normal(5)
        d.qpos[:], d.qvel[:] = to_mujoco_q(robot.model, q), to_mujoco_v(robot.model, q, v)
        mujoco.mj_forward(m, d)
        mujoco.mj_fullM(m, d, M)
        G = np.stack([to_mujoco_v(robot.model, q, unit) for unit in np.eye(5)], axis=-1)
        force = tau - G.T @ d.qfrc_bias
        A, drift = robot.constraint_jacobian(q), robot.constraint_bias(q, v)
        U, s, Vt = np.linalg.svd(A)
        K, start = Vt[3:].T, -Vt[:3].T @ ((U[:, :3].T @ drift) / s[:3])  # the first three rows' worth
        M_r = G.T @ M @ G
        theirs = start + K @ np.linalg.solve(K.T @ M_r @ K, K.T @ (force - M_r @ start))
        for method in METHODS:
            a = robot.forward_dynamics(q, v, tau, method=method)
            assert np.max(np.abs(a - theirs)) < 1e3 * solver_of(robot.engine).miss * np.max(np.abs(theirs))


def test_rounded_loops_close_near_singular_configurations_too():
    """All around a turn of the neck, within a degree of where its rods are in line."""
    peer("mujoco")
    robot = Robot(mjcf.read("neck.xml", text=neck(8)).model())
    pitch = np.linspace(-np.pi, np.pi, 361)
    q, off = robot.close_loops(np.stack([pitch, pitch, -pitch, -pitch, 0 * pitch], axis=-1))
    assert np.all(off <= robot.loop_tolerance)
    assert np.max(np.abs(q[:, 0] - pitch)) < 1e-2


def test_a_tolerance_of_the_user_counts_everywhere(tmp_path):
    """Loops that miss by more than digits explain: the error says by how much and what to take, and that works."""
    robot, q = four_bar_with_a_ball(2e-4), np.zeros(3)
    told = r"row 2 stays off by 0.0002 m or rad, more than the loop tolerance of .*with_loop_tolerance\(1e-03\)"
    with pytest.raises(qddot.InputError, match=told):
        robot.forward_dynamics(q, q, q)
    with pytest.raises(qddot.InputError, match=r"more than the loop tolerance of 1\.0e-10"):
        robot.close_loops(q)
    assert robot.close_loops(q, tolerance=1e-3)[1] == pytest.approx(2e-4)
    (warning,) = robot.loop_findings
    assert warning.severity == "warning"
    exact = four_bar_with_a_ball(0.0)
    robot.save(tmp_path / "ball.json")
    for wide in (
        robot.with_loop_tolerance(1e-3),
        four_bar_with_a_ball(2e-4, loop_tolerance=1e-3),
        qddot.load(tmp_path / "ball.json", loop_tolerance=1e-3),
    ):
        assert wide.loop_tolerance == 1e-3
        assert wide.mobility == 1
        q, off = wide.close_loops(np.zeros(3))
        assert off == pytest.approx(2e-4)
        v = wide.project_velocity(q, np.ones(3))
        # the ball's offset is parallel to all axes: the linkage moves as the exact one
        assert np.allclose(wide.forward_dynamics(q, v, np.ones(3)), exact.forward_dynamics(q, v, np.ones(3)), rtol=1e-12)
        wide.save(tmp_path / "wide.json")
        assert qddot.load(tmp_path / "wide.json") == wide
        assert native.read(tmp_path / "wide.json").loop_tolerance == 1e-3
    with pytest.raises(qddot.InputError, match=r"off by .* m or rad; robot.close_loops\(q\) .* loop tolerance of 1e-03"):
        wide.forward_dynamics(q + 0.1, v, np.ones(3))
    with pytest.raises(qddot.InputError, match=r"open at the start by .*, and 0\.002 is allowed"):
        wide.simulate(q + 0.1, v, dt=1e-3, steps=1)


def test_models_without_a_tolerance_are_the_same_as_before():
    assert "loop_tolerance" not in qddot.load("fivebar").model.describe()
    robot = qddot.load("fivebar")
    assert robot.with_loop_tolerance(None) == robot
    assert robot.with_loop_tolerance(1e-6) != robot


@pytest.mark.parametrize("wrong", [0.0, -1e-3, math.nan, math.inf, "wide", True])
def test_wrong_tolerances_are_refused(wrong):
    robot = qddot.load("fivebar")
    for call in (
        lambda: robot.with_loop_tolerance(wrong),
        lambda: robot.close_loops(robot.neutral(), tolerance=wrong),
        lambda: qddot.load("fivebar", loop_tolerance=wrong),
    ):
        with pytest.raises(qddot.InputError, match=r"tolerance is .*; give a finite number greater than zero"):
            call()
    if not isinstance(wrong, bool):
        with pytest.raises(qddot.ModelError, match="loop_tolerance"):
            four_bar_with_a_ball(0.0, loop_tolerance=wrong)


def test_batches_close_as_single_configurations_do():
    robot, rng = three_rods(8), np.random.default_rng(5)
    starts = robot.integrate(robot.neutral(), 0.3 * rng.standard_normal((6, robot.nv)))
    together, off = robot.close_loops(starts)
    for k, start in enumerate(starts):
        alone, left = robot.close_loops(start)
        assert np.allclose(alone, together[k], rtol=0, atol=1e-12)
        assert left == pytest.approx(off[k])


def test_other_ways_of_assembly_have_their_own_rank():
    """x (y + 1) = x (z + 1) = 0: near neutral a plane, x = 0, with one independent row; elsewhere a line, with two."""
    b = qddot.Builder("sliders", gravity=(0.0, 0.0, 0.0))
    for name, axis, low, high in (("x", (1, 0, 0), -9, 9), ("y", (0, 1, 0), -1.2, 0), ("z", (0, 0, 1), -1.2, 0)):
        b.link(name, 2.0, (0, 0, 0), BAR).joint(name, "world", name, Prismatic(axis), lower=low, upper=high)
    robot = b.robot().with_constraint("product", position=lambda q: [q[0] * (q[1] + 1.0), q[0] * (q[2] + 1.0)])
    rest, push = np.zeros(3), np.array([2.0, 4.0, 6.0])
    assert robot.mobility == 2
    assert solver_of(robot.engine).largest_rank == 2
    for method in METHODS:
        assert np.allclose(robot.forward_dynamics(rest, rest, push, method=method), [0, 2, 3])
    other, v = np.array([0.5, -1.0, -1.0]), np.array([0.7, 0.0, 0.0])
    for method in ("auto", "null_space"):
        a, lam = robot.constrained_forward_dynamics(other, v, push, method=method)
        assert np.allclose(a, [1, 0, 0], atol=1e-12)
        assert np.allclose(lam, [-8, -12])
        mixed = robot.forward_dynamics(np.stack([rest, other]), rest, push, method=method)
        assert np.allclose(mixed, [[0, 2, 3], [1, 0, 0]], atol=1e-12)
    assert np.allclose(robot.inverse_dynamics(other, v, [1, 0, 0], actuated=["x"]), [2, 0, 0])
    for method in ("direct", "multipliers"):
        with pytest.raises(qddot.InputError, match=r"larger rank in this configuration .* take method='auto' or"):
            robot.forward_dynamics(other, v, push, method=method)
        mixed = robot.forward_dynamics(np.stack([rest, other]), rest, push, method=method)
        assert np.isfinite(mixed).all(axis=-1).tolist() == [True, False]
    with pytest.raises(qddot.InputError, match=r"larger rank .* start from the neutral"):
        robot.simulate(other, v, dt=1e-3, steps=1)
    with pytest.raises(qddot.InputError, match=r"larger rank .* no derivatives"):
        robot.forward_dynamics_derivatives(other, v, push)
