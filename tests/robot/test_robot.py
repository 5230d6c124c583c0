"""The facade: loading, names, shapes, and errors that say what to do."""

import numpy as np
import pytest

import qddot
from qddot import robots
from qddot.joints import Free, Revolute, Spherical, SphericalEuler
from tests.support.tolerances import ROUNDING

BALL = (0.1, 0.0, 0.0, 0.1, 0.0, 0.1)
URDF = """<robot name="r"><link name="base"/><link name="arm"><inertial><origin xyz="0.1 0 0"/><mass value="1"/>
<inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial></link>
<joint name="j" type="continuous"><parent link="base"/><child link="arm"/><axis xyz="0 1 0"/>
<dynamics damping="2"/></joint>
</robot>"""


@pytest.fixture
def floating() -> qddot.Robot:
    b = qddot.Builder("kite")
    b.link("body", 1.0, (0.1, 0, 0), BALL).joint("base", "world", "body", Free())
    b.link("tail", 0.5, (0, 0.2, 0), BALL).joint("swivel", "body", "tail", Spherical())
    b.link("fin", 0.1, inertia=BALL).joint("hinge", "tail", "fin", Revolute())
    return b.robot()


def test_load_by_name_file_and_content(tmp_path):
    assert qddot.load("pendulum").name == "pendulum"
    for name in ("r.urdf", "r.xml"):
        (tmp_path / name).write_text(URDF)
        robot = qddot.load(tmp_path / name)
        assert robot.nv == 1
    assert qddot.load(tmp_path / "r.urdf", floating_base=True).nv == 7
    assert qddot.load(str(tmp_path / "r.urdf")).passive_force([0.0], [1.0])[0] == -2.0
    assert qddot.load(tmp_path / "r.urdf", passive_forces=False).passive_force([0.0], [1.0])[0] == 0.0


def test_save_and_load_give_an_equal_robot(tmp_path):
    for name in robots.NAMES:
        robot = qddot.load(name)
        robot.save(tmp_path / "robot.qddot")
        assert qddot.load(tmp_path / "robot.qddot") == robot


def test_what_load_cannot_take(tmp_path):
    with pytest.raises(qddot.UnknownNameError, match="did you mean 'pendulum'"):
        qddot.load("pendulam")
    with pytest.raises(qddot.FileError, match=r"missing\.urdf: file: it does not exist"):
        qddot.load(tmp_path / "missing.urdf")
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(qddot.FileError, match=r"notes\.txt: file: it is of no kind .* \.urdf"):
        qddot.load(tmp_path / "notes.txt")
    with pytest.raises(qddot.FileError):
        qddot.load(tmp_path)
    with pytest.raises(qddot.InputError, match="floating_base= is for URDF"):
        qddot.load("pendulum", floating_base=True)


def test_findings_of_a_file_are_warned_about_once(tmp_path):
    (tmp_path / "r.urdf").write_text(URDF.replace('izz="1"', 'izz="3"'))
    with pytest.warns(qddot.QddotWarning, match=r"r\.urdf:1.*'arm'.*triangle inequality") as caught:
        robot = qddot.load(tmp_path / "r.urdf")
    assert len(caught) == 1
    assert any("triangle" in f.message for f in robot.findings)


def test_indices_by_name(floating):
    assert floating.q_index["base"] == slice(0, 7)
    assert floating.v_index["swivel"] == slice(6, 9)
    assert floating.q_index["hinge"] == 11
    assert list(floating.v_index) == ["base", "swivel", "hinge"]
    with pytest.raises(qddot.UnknownNameError, match="did you mean 'hinge'"):
        floating.q_index["hinje"]


@pytest.mark.parametrize("method", ["pose", "jacobian"])
def test_misspelt_frames_list_the_nearest(floating, method):
    with pytest.raises(qddot.UnknownNameError, match=r"no link or frame 'tial': did you mean 'tail'"):
        getattr(floating, method)(floating.neutral(), "tial")


def test_shapes_are_explained(floating):
    q, v = floating.neutral(), np.zeros(floating.nv)
    with pytest.raises(qddot.InputError, match=r"q has shape \(11,\), .* 12 entries: robot 'kite' has nq = 12"):
        floating.mass_matrix(q[:11])
    with pytest.raises(qddot.InputError, match=r"a has shape \(\), "):
        floating.inverse_dynamics(q, v, 0.0)
    with pytest.raises(qddot.InputError, match=r"f_ext has shape \(2, 6\), but must be \(..., 3, 6\)"):
        floating.inverse_dynamics(q, v, v, np.zeros((2, 6)))
    with pytest.raises(qddot.InputError, match="must hold numbers"):
        floating.mass_matrix(["a"] * 12)
    with pytest.raises(qddot.InputError, match="'body', 'world' or 'aligned'"):
        floating.jacobian(q, "tail", "local")


def test_quaternions_must_be_unit(floating):
    q = floating.neutral()
    q[3:7] = (0.1, 0.2, 0.3, 0.9)
    with pytest.raises(qddot.InputError, match=r"joint 'base' in q is not of unit length .* robot.normalize"):
        floating.gravity_force(q)
    batch = floating.gravity_force(np.stack([q, floating.neutral()]))
    assert np.isnan(batch[0]).any()
    assert np.isfinite(batch[1]).all()
    assert np.isclose(np.linalg.norm(floating.normalize(q)[3:7]), 1.0, rtol=1e-15)
    floating.mass_matrix(floating.normalize(q))


def test_nan_stays_in_its_sample(floating):
    q, v = np.stack([floating.random_state(k)[0] for k in range(3)]), np.ones((3, floating.nv))
    v[1, 0] = np.nan
    tau = floating.inverse_dynamics(q, v, v)
    assert np.isnan(tau[1]).any()
    assert np.isfinite(tau[[0, 2]]).all()
    assert np.isnan(floating.forward_dynamics(q[1], v[1], v[1])).any()
    assert np.isnan(floating.inverse_dynamics([*q[0, :11], np.inf], v[0], v[0])).any()


def test_integrate_and_difference(floating):
    (q, v), (q1, _) = floating.random_state(1), floating.random_state(2)
    assert np.allclose(floating.difference(q, floating.integrate(q, v, 0.1)), 0.1 * v, rtol=0, atol=ROUNDING)
    reached = floating.integrate(q, floating.difference(q, q1))
    assert np.allclose(floating.forward_kinematics(reached), floating.forward_kinematics(q1), rtol=0, atol=ROUNDING)
    batch = floating.integrate(np.stack([q, q1]), v, 0.1)
    assert batch.shape == (2, floating.nq)


def test_random_states_keep_the_limits():
    b = qddot.Builder("x").link("a", 1.0, inertia=BALL)
    robot = b.joint("j", "world", "a", Revolute(), lower=0.1, upper=0.2).robot()
    assert all(0.1 <= robot.random_state(k)[0][0] <= 0.2 for k in range(20))
    assert np.array_equal(robot.random_state(7)[0], robot.random_state(7)[0])


def test_massless_joints_are_named():
    b = qddot.Builder("x").link("a", 1.0, inertia=BALL).joint("j", "world", "a", Revolute())
    robot = b.link("ghost").joint("spin", "a", "ghost", Revolute()).robot()
    assert robot.massless_joints == ("spin",)
    with pytest.raises(qddot.SingularMassMatrixError, match=r"joint 'spin' moves nothing .*armature"):
        robot.forward_dynamics([0, 0], [0, 0], [0, 0])
    assert robot.inverse_dynamics([0, 0], [0, 0], [1, 1]).shape == (2,)


def test_two_parallel_joints_on_one_mass_are_found_singular():
    """Rounding leaves a tiny number where the inertia should vanish; the answer would be finite and wrong."""
    b = qddot.Builder("x").link("ghost").joint("j1", "world", "ghost", Revolute((0.6, 0.0, 0.8)))
    robot = b.link("a", 1.0, (0.1, 0.2, 0.3), BALL).joint("j2", "ghost", "a", Revolute((0.6, 0.0, 0.8))).robot()
    with pytest.raises(qddot.SingularMassMatrixError, match="'j1'"):
        robot.forward_dynamics([0.3, 0.2], [0, 0], [0, 0])


def test_singular_configurations_are_said():
    b = qddot.Builder("x").link("a", 1.0, inertia=BALL)
    robot = b.joint("ball", "world", "a", SphericalEuler("zyz")).robot()
    with pytest.raises(qddot.SingularMassMatrixError, match="singular in this configuration"):
        robot.forward_dynamics([0.0, 0.0, 0.0], [0, 0, 0], [0, 0, 0])


def test_loops_are_kept_and_not_ignored():
    robot = qddot.load("fourbar")
    assert robot.model.loops
    q, v = robot.neutral(), np.zeros(robot.nv)
    tau = np.ones(robot.nv)
    tree = robot.spanning_tree().forward_dynamics(q, v, tau)
    a = robot.forward_dynamics(q, v, tau)
    assert a.shape == tree.shape == (robot.nv,)
    assert np.abs(a - tree).max() > 1.0
    assert np.abs(robot.constraint_jacobian(q) @ a).max() < 1e-12
    with pytest.raises(qddot.InputError, match="method= is for robots with loops"):
        robot.spanning_tree().forward_dynamics(q, v, tau, method="direct")


def test_operational_space_says_when_rows_depend():
    robot = qddot.load("planar3")
    q, v = robot.random_state(0)
    with pytest.raises(qddot.InputError, match="only 3 independent rows of the 6"):
        robot.operational_space(q, v, robot.link_names[-1])


def test_no_mass_no_centre():
    robot = qddot.Builder("x").link("a").joint("j", "world", "a", Revolute(), armature=1.0).robot()
    with pytest.raises(qddot.InputError, match="has no mass"):
        robot.center_of_mass([0.0])
    assert robot.forward_dynamics([0.0], [0.0], [2.0])[0] == 2.0


def test_robots_compare_and_print():
    assert qddot.load("puma560") == qddot.load("puma560")
    assert qddot.load("puma560") != qddot.load("scara")
    assert "nv=6" in repr(qddot.load("puma560"))
    assert len({qddot.load("puma560"), qddot.load("puma560")}) == 1


def test_a_robot_without_degrees_of_freedom_is_harmless():
    robot = qddot.Builder("rock").link("a", 1.0).joint("j", "world", "a", qddot.joints.Fixed()).robot()
    assert robot.nv == 0
    assert robot.mass_matrix([]).shape == (0, 0)
    assert robot.inverse_dynamics([], [], []).shape == (0,)
    assert robot.forward_dynamics(np.zeros((4, 0)), [], []).shape == (4, 0)


def test_complex_and_single_precision_states(floating):
    q, v = floating.random_state(3)
    exact = floating.inverse_dynamics(q, v, v)
    assert np.allclose(floating.inverse_dynamics(q.astype(complex), v, v), exact, rtol=ROUNDING, atol=ROUNDING)
    single = floating.inverse_dynamics(q.astype(np.float32), v.astype(np.float32), v.astype(np.float32))
    assert single.dtype == np.float32
    assert np.allclose(single, exact, rtol=1e-3, atol=1e-3)  # the states, and all that is computed, in single precision
