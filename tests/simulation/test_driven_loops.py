"""Prescribed motion of mechanisms with loops, and loops that are closed with some joints held."""

import itertools
import warnings

import numpy as np
import pytest

import qddot
from qddot.joints import Revolute
from qddot.robots.bodies import planar, rod
from qddot.scalars import sin
from tests.support.linkages import slider_crank

RATE = 5.0  # rad/s of the crank


def turning(t):
    return RATE * t + 0.3 * sin(4.0 * t)


def rates(t):
    return RATE + 1.2 * np.cos(4.0 * t), -4.8 * np.sin(4.0 * t)


@pytest.fixture(scope="module")
def fourbar():
    return qddot.load("fourbar")


def crank_start(robot, joint):
    k = robot.v_index[joint]
    q, v = np.zeros(robot.nv), np.zeros(robot.nv)
    v[k] = rates(0.0)[0]
    q, _ = robot.close_loops(q, hold=[joint])
    return q, robot.project_velocity(q, v, hold=[joint])


CASES = {
    "fourbar": (lambda: qddot.load("fourbar"), "crank_pivot"),
    "slider_crank": (lambda: slider_crank().robot(), "drive"),
}


SLOW = [(name, way) for name in CASES for way in ("rk4", "ab4", "semi_implicit_euler")][1:-1]


@pytest.mark.parametrize(
    ("name", "integrator"),
    [
        ("fourbar", "rk4"),
        ("slider_crank", "semi_implicit_euler"),
        *(pytest.param(*x, marks=pytest.mark.slow) for x in SLOW),
    ],
)
def test_a_driven_crank(name, integrator):
    """The crank is where its motion says, loops stay closed, and the force that it takes is that of inverse dynamics."""
    make, joint = CASES[name]
    robot = make()
    q, v = crank_start(robot, joint)
    k = robot.v_index[joint]
    given = {"prescribed": {joint: turning}, "integrator": integrator}
    run = robot.simulate(q, v, dt=2e-4, steps=8000, record=200, **given)
    assert np.max(np.abs(run.q[:, k] - (RATE * run.t + 0.3 * np.sin(4.0 * run.t)))) < 1e-12
    assert np.max(np.abs(run.v[:, k] - rates(run.t)[0])) < 1e-12
    assert np.max(run.channels["drift"]) < 1e-9
    assert np.max(run.channels["drift_rate"]) < 1e-9
    # one degree of freedom: the whole state follows from the crank's, whatever the integrator
    closed, _ = robot.close_loops(run.q, hold=[joint])
    assert np.max(np.abs(closed - run.q)) < 1e-9
    moving = robot.project_velocity(run.q, run.v, hold=[joint])
    assert np.max(np.abs(moving - run.v)) < 1e-8
    _, force = robot.hybrid_dynamics(
        run.q, run.v, rates(run.t)[1][:, None] * np.eye(robot.nv)[k], 0.0 * run.v, prescribed=[joint]
    )
    assert np.max(np.abs(force - run.tau)) < 1e-8 * np.max(np.abs(force))
    assert np.ptp(run.tau[:, k]) > 1.0
    assert not np.delete(run.tau, k, axis=-1).any()


def test_power_of_the_drive(fourbar):
    """What the crank puts in is what energy there is more, to the order of the integral."""
    q, v = crank_start(fourbar, "crank_pivot")
    run = fourbar.simulate(q, v, dt=1e-4, steps=10_000, prescribed={"crank_pivot": turning})
    power = run.tau[:, 0] * run.v[:, 0]
    work = np.sum(0.5 * (power[1:] + power[:-1]) * np.diff(run.t))
    gained = run.energy[-1] - run.energy[0]
    assert abs(gained) > 0.1
    assert abs(work - gained) < 1e-5 * np.max(np.abs(run.energy))


def test_other_ways_of_keeping_loops(fourbar):
    q, v = crank_start(fourbar, "crank_pivot")
    given = {"prescribed": {"crank_pivot": turning}, "dt": 1e-3, "steps": 500, "record": "end"}
    kept = fourbar.simulate(q, v, **given)
    for more in ({"constraints": "baumgarte"}, {"integrator": "DOP853"}):
        other = fourbar.simulate(q, v, **given, **more)
        assert np.max(np.abs(other.q[-1] - kept.q[-1])) < 1e-6
    eager = qddot.Robot(fourbar.model, compiled=False).simulate(q, v, **{**given, "steps": 20})
    assert np.max(np.abs(eager.q[-1] - fourbar.simulate(q, v, **{**given, "steps": 20}).q[-1])) < 1e-12


def test_two_drives_of_a_fivebar_with_forces_and_batches():
    robot = qddot.load("fivebar")
    drives = ["left_shoulder", "right_shoulder"]
    motion = {"left_shoulder": lambda t: 0.2 * sin(3.0 * t), "right_shoulder": lambda t: 0.1 * t}
    q, _ = robot.close_loops(np.zeros((3, 4)), hold=drives)
    v = np.zeros(4)
    v[robot.v_index["left_shoulder"]], v[robot.v_index["right_shoulder"]] = 0.6, 0.1
    v = robot.project_velocity(q, v, hold=drives)
    push = qddot.simulation.forces.wrench(robot, {robot.link_names[1]: [0, 0, 0, 0, -5.0, 0]}, "world")
    mass = {f"{robot.link_names[0]}.mass": np.array([1.0, 2.0, 3.0])}
    run = robot.simulate(q, v, dt=1e-3, steps=300, prescribed=motion, forces=push, free=mass)
    assert np.max(run.channels["drift"]) < 1e-10
    assert np.max(np.abs(run.q - run.q[:1])) < 1e-10  # the motion is that of the drives, whatever the masses
    assert np.ptp(run.tau[:, 100, robot.v_index["left_shoulder"]]) > 1e-3


def test_errors_of_driven_loops(fourbar):
    q, v = crank_start(fourbar, "crank_pivot")
    with pytest.raises(
        qddot.InputError, match="mobility of 1, and the motion of 2 joints is prescribed; prescribe that of 1"
    ):
        fourbar.simulate(q, v, dt=1e-3, steps=1, prescribed={"crank_pivot": turning, "output_pivot": turning})
    with pytest.raises(qddot.InputError, match=r"close_loops\(q0, hold=\['crank_pivot'\]\)"):
        fourbar.simulate(q + 0.1, v, dt=1e-3, steps=1, prescribed={"crank_pivot": turning})
    with pytest.raises(qddot.InputError, match="begins at q = "):
        fourbar.simulate(q, 0.0 * v, dt=1e-3, steps=1, prescribed={"crank_pivot": turning})
    with pytest.raises(qddot.InputError, match="does not do loops"):
        fourbar.simulate(q, v, dt=1e-3, steps=1, prescribed={"crank_pivot": turning}, integrator="rosenbrock")


def rocker():
    """A four-bar whose driven link cannot turn around: 0.2, 0.1 and 0.12 m on a ground of 0.15 m."""
    b = qddot.Builder("rocker", gravity=(0.0, -9.81, 0.0))
    for name, length in (("input", 0.2), ("output", 0.1), ("coupler", 0.12)):
        b.link(name, 1.0, (length / 2, 0.0, 0.0), rod(1.0, length, 0.01))
    b.joint("drive", "world", "input", Revolute())
    b.joint("out", "world", "output", Revolute(), planar(0.15, 0.0, (1.0, 0.0)))
    b.joint("middle", "output", "coupler", Revolute(), planar(0.1, 0.0, (1.0, 0.0)))
    b.loop("closure", "input", "coupler", Revolute(), qddot.pose((0.2, 0.0, 0.0)), qddot.pose((0.12, 0.0, 0.0)))
    return b.robot()


def test_a_motion_that_loops_cannot_follow_is_said():
    robot = rocker()
    q, _ = robot.close_loops([0.5, 1.0, 1.0], hold=["drive"])
    v = robot.project_velocity(q, [1.0, 0.0, 0.0], hold=["drive"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with pytest.warns(
            qddot.QddotWarning, match=r"torn the loops of robot 'rocker' open|not finite any more|near to a singular"
        ):
            robot.simulate(q, v, dt=1e-3, steps=6000, record=10, prescribed={"drive": lambda t: 0.5 + t})


# ---- joints that are held ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("angle", [0.0, 0.4, -1.1, 2.5])
def test_close_loops_keeps_what_is_held(fourbar, angle):
    guess = np.array([angle, 0.3, -0.2])
    q, off = fourbar.close_loops(guess, hold=["crank_pivot"])
    assert q[0] == angle
    assert off < 1e-10
    assert np.max(np.abs(fourbar.constraint_residual(q))) < 1e-10
    free, _ = fourbar.close_loops(guess)
    assert free[0] != angle  # it would have moved
    by_name = fourbar.close_loops(guess, 1e-8, hold="crank_pivot")[0]
    assert by_name[0] == angle


def test_batches_with_held_joints(fourbar):
    angles = np.linspace(-3.0, 3.0, 40)
    guess = np.stack([angles, 0.0 * angles, 0.0 * angles], axis=-1)
    q, off = fourbar.close_loops(guess, hold=["crank_pivot"])
    assert np.array_equal(q[:, 0], angles)
    assert np.max(off) < 1e-10
    robot = rocker()  # which does not reach every angle
    q, off = robot.close_loops(np.stack([angles, 1.0 + 0.0 * angles, 1.0 + 0.0 * angles], axis=-1), hold=["drive"])
    reached = off < 1e-10
    assert reached.any()
    assert not reached.all()
    assert np.array_equal(q[reached, 0], angles[reached])
    assert np.isnan(q[~reached]).all()
    assert np.isnan(robot.close_loops([[np.nan, 0.0, 0.0], [0.5, 1.0, 1.0]], hold=["drive"])[0][0]).all()


def test_what_cannot_be_closed_with_joints_held_is_an_error(fourbar):
    with pytest.raises(qddot.InputError, match="'crank_pivot', 'output_pivot' held, so hold fewer joints"):
        fourbar.close_loops([0.4, 0.9, 0.0], hold=["crank_pivot", "output_pivot"])
    with pytest.raises(qddot.InputError, match="held, so hold fewer joints"):
        fourbar.close_loops([0.4, 0.9, 0.0], hold=fourbar.joint_names)
    with pytest.raises(qddot.UnknownNameError, match="did you mean 'crank_pivot'"):
        fourbar.close_loops(np.zeros(3), hold=["crank_pivt"])
    with pytest.raises(qddot.InputError, match="neither loops nor"):
        qddot.load("puma560").close_loops(np.zeros(6), hold=["joint1"])


def test_project_velocity_is_nearest_with_what_is_held():
    """Against the optimum of the same problem, solved with Lagrange's multipliers."""
    robot = qddot.load("fivebar")
    rng = np.random.default_rng(0)
    for names in itertools.chain(
        [()], itertools.combinations(robot.joint_names, 1), itertools.combinations(robot.joint_names, 2)
    ):
        held = [robot.v_index[n] for n in names]
        q, _ = robot.close_loops(robot.neutral() + 0.2 * rng.standard_normal(4))
        v = rng.standard_normal(4)
        found = robot.project_velocity(q, v, hold=names)
        M, A = robot.mass_matrix(q), robot.constraint_jacobian(q)
        rows = np.concatenate([A[list(_independent(A))], np.eye(4)[held]])
        lagrange = np.block([[M, rows.T], [rows, np.zeros((len(rows), len(rows)))]])
        expected = np.linalg.lstsq(lagrange, np.r_[M @ v, np.zeros(len(rows) - len(held)), v[held]], rcond=None)[0][:4]
        assert np.max(np.abs(found - expected)) < 1e-9 * np.max(np.abs(expected))
        assert np.array_equal(found[held], v[held])
    batch = rng.standard_normal((5, 4))
    many = robot.project_velocity(q, batch, hold=["left_shoulder"])
    for one, row in zip(many, batch, strict=True):
        assert np.max(np.abs(robot.project_velocity(q, row, hold=["left_shoulder"]) - one)) < 1e-12


def _independent(A):
    from qddot.dynamics.loop_assembly import independent_rows

    return independent_rows(A[None], np.linalg.matrix_rank(A))


def test_velocities_that_do_not_fit_are_an_error(fourbar):
    q, _ = fourbar.close_loops(np.zeros(3), hold=["crank_pivot"])
    with pytest.raises(qddot.InputError, match=r"cannot follow this velocity of 'crank_pivot', 'output_pivot'.*hold fewer"):
        fourbar.project_velocity(q, [1.0, 5.0, 0.0], hold=["crank_pivot", "output_pivot"])
    with pytest.raises(qddot.InputError, match="cannot follow"):
        fourbar.project_velocity(q, [1.0, 5.0, 0.0], hold=fourbar.joint_names)
    fits = fourbar.project_velocity(q, [1.0, 0.0, 0.0], hold=["crank_pivot"])
    assert np.array_equal(fourbar.project_velocity(q, fits, hold=fourbar.joint_names), fits)
    both = fourbar.project_velocity(q, [[1.0, 5.0, 0.0], fits], hold=["crank_pivot", "output_pivot"])
    assert np.isnan(both[0]).all()
    assert np.max(np.abs(both[1] - fits)) < 1e-9
