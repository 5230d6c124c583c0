"""Files that qddot writes, read by others: Pinocchio and MuJoCo find the dynamics of the robot that was written.

Joint forces, mass matrices and poses agree to 1e-9 of the largest entry, which is far above the rounding of a rotation
written as angles or as a quaternion, and far below any wrong number in the file.
"""

import numpy as np
import pytest

import qddot
from qddot import conventions
from tests.support.model_differences import differences
from tests.support.peers import peer
from tests.support.real_robots import GOOD, WHY, load, or_skipped, short

AGREES = 1e-9  # of the largest entry
STATES = 4
ROBOTS = {
    *(
        "a1",
        "anymal-kinova",
        "baxter",
        "g1_29dof_rev_1_0",
        "centauro",
        "double_pendulum_continuous",
        "go2",
        "human",
        "hyq_no_sensors",
    ),
    *("kinova", "panda", "pr2", "solo", "talos_reduced", "tiago", "ur5_robot", "xarm7"),
}
REFUSED_BY_MUJOCO = {  # moving links without mass, or with an inertia that no body has
    *("bluevolta_bravo7_gripper", "bravo7_gripper", "falcon_bravo7_gripper", "icub", "icub_reduced"),
    *("romeo", "romeo_laas_small", "romeo_small"),
}
FILES = [p for p in GOOD if p.stem in ROBOTS]
CASES = [*((p, False) for p in FILES), *((p, True) for p in FILES[::3])]  # and whether the base floats
CASE_NAMES = [short(p) + "-floating" * floating for p, floating in CASES]


needs_robots = pytest.mark.skipif(not FILES, reason=WHY)


def near(ours, theirs):
    assert np.max(np.abs(ours - theirs), initial=0.0) <= AGREES * np.max(np.abs(theirs), initial=1e-3)


def states(robot):
    rng = np.random.default_rng(robot.nv)
    rows = [(*robot.random_state(rng), rng.standard_normal(robot.nv)) for _ in range(STATES)]
    return [np.stack(x) for x in zip(*rows, strict=True)]


def read_robot(path, floating):
    return qddot.Robot(load(path, floating_base=floating, passive_forces=False, srdf=False).model, compiled=False)


@needs_robots
@pytest.mark.parametrize(("path", "floating"), CASES, ids=CASE_NAMES)
def test_pinocchio_reads_urdf_that_qddot_writes(path, floating, tmp_path):
    pin = peer("pinocchio")
    robot = read_robot(path, floating)
    robot.save(tmp_path / "robot.urdf")
    theirs = pin.buildModelFromUrdf(str(tmp_path / "robot.urdf"), mimic=False)
    data = theirs.createData()
    q, v, a = states(robot)
    layout = robot.model, theirs
    pq, pv = conventions.to_pinocchio_q(*layout, q), conventions.to_pinocchio_v(*layout, q, v)
    pa = conventions.to_pinocchio_v(*layout, q, a)
    tau = np.stack([pin.rnea(theirs, data, *row).copy() for row in zip(pq, pv, pa, strict=True)])
    near(robot.inverse_dynamics(q, v, a), conventions.from_pinocchio_tau(*layout, q, tau))
    pin.framesForwardKinematics(theirs, data, pq[0])
    for name in robot.frame_names[1:]:
        near(robot.pose(q[0], name), data.oMf[theirs.getFrameId(name)].homogeneous)


@needs_robots
@pytest.mark.parametrize(("path", "floating"), CASES, ids=CASE_NAMES)
def test_mujoco_reads_mjcf_that_qddot_writes(path, floating, tmp_path):
    mujoco = peer("mujoco")
    robot = read_robot(path, floating)
    robot.save(tmp_path / "robot.xml")
    m = mujoco.MjModel.from_xml_path(str(tmp_path / "robot.xml"))
    d, full, rne = mujoco.MjData(m), np.zeros((m.nv, m.nv)), np.zeros(m.nv)
    for q, v, a in zip(*states(robot), strict=True):
        d.qpos[:] = conventions.to_mujoco_q(robot.model, q)
        d.qvel[:] = conventions.to_mujoco_v(robot.model, q, v)
        d.qacc[:] = conventions.to_mujoco_a(robot.model, q, v, a)
        mujoco.mj_fwdPosition(m, d)
        mujoco.mj_fwdVelocity(m, d)
        mujoco.mj_fullM(m, d, full)
        mujoco.mj_rne(m, d, 1, rne)
        near(robot.mass_matrix(q), conventions.from_mujoco_matrix(robot.model, q, full))
        near(robot.inverse_dynamics(q, v, a), conventions.from_mujoco_tau(robot.model, q, rne))
        for name in robot.frame_names[1:]:
            site = mujoco.mj_name2id(m, mujoco.mjtObj.mjOBJ_SITE, name)
            body = mujoco.mj_name2id(m, mujoco.mjtObj.mjOBJ_BODY, name)
            if max(site, body) >= 0:
                near(robot.pose(q, name)[:3, 3], d.site_xpos[site] if site >= 0 else d.xpos[body])


def test_mujoco_finds_springs_dampers_and_rotors_in_mjcf_that_qddot_writes(tmp_path):
    mujoco = peer("mujoco")
    b = qddot.Builder("springs", gravity=(0.5, -1.0, -9.0))
    parent = "world"
    for k, joint in enumerate((qddot.joints.Revolute((0.0, 0.6, 0.8)), qddot.joints.Prismatic(), qddot.joints.Spherical())):
        b.link(f"l{k}", 1.5, (0.1, 0.2, 0.3), (0.5, 0.01, -0.02, 0.6, 0.03, 0.7))
        rest = {} if k == 2 else {"spring_reference": 0.3}
        numbers = {"stiffness": 4.0, "damping": 0.7, "armature": 0.2}
        b.joint(f"j{k}", parent, f"l{k}", joint, qddot.pose((0.1, 0.0, 0.4), (0.5, 0.1, 0.2)), **numbers, **rest)
        parent = f"l{k}"
    robot = qddot.Robot(b.model(), compiled=False)
    robot.save(tmp_path / "robot.xml")
    m = mujoco.MjModel.from_xml_path(str(tmp_path / "robot.xml"))
    d, full = mujoco.MjData(m), np.zeros((m.nv, m.nv))
    for q, v, _ in zip(*states(robot), strict=True):
        d.qpos[:], d.qvel[:] = conventions.to_mujoco_q(robot.model, q), conventions.to_mujoco_v(robot.model, q, v)
        mujoco.mj_forward(m, d)
        mujoco.mj_fullM(m, d, full)
        near(robot.mass_matrix(q), conventions.from_mujoco_matrix(robot.model, q, full))
        near(robot.passive_force(q, v), conventions.from_mujoco_tau(robot.model, q, d.qfrc_passive))
        near(robot.bias_force(q, v), conventions.from_mujoco_tau(robot.model, q, d.qfrc_bias))


def test_pinocchio_reads_mimic_joints_that_qddot_writes(tmp_path):
    """With an offset; reduced by qddot's conventions from Pinocchio's independent joints."""
    pin = peer("pinocchio")
    b = qddot.Builder("gripper")
    for name in ("palm", "left", "right"):
        b.link(name, 1.5, (0.1, 0.2, 0.3), (0.5, 0.01, -0.02, 0.6, 0.03, 0.7))
    b.joint("wrist", "world", "palm", qddot.joints.Revolute((0.0, 1.0, 0.0)))
    b.joint(
        "drive", "palm", "left", qddot.joints.Revolute((0.0, 0.0, 1.0)), qddot.pose((0.1, 0.0, 0.0)), lower=-1.0, upper=1.0
    )
    b.joint("follow", "palm", "right", qddot.joints.Prismatic((1.0, 0.0, 0.0)), mimic=("drive", -0.3, 0.05))
    robot = qddot.Robot(b.model(), compiled=False)
    robot.save(tmp_path / "robot.urdf")
    theirs = pin.buildModelFromUrdf(str(tmp_path / "robot.urdf"), mimic=True)
    assert theirs.nv == robot.nv
    q, v, a = states(robot)
    data, layout = theirs.createData(), (robot.model, theirs)
    pq = conventions.to_pinocchio_q(*layout, q)
    tau = np.stack([pin.rnea(theirs, data, *row).copy() for row in zip(pq, v, a, strict=True)])
    near(robot.inverse_dynamics(q, v, a), tau)


@pytest.mark.slow
@pytest.mark.parametrize("path", or_skipped(GOOD), ids=short)
@pytest.mark.parametrize("floating", [False, True], ids=["fixed", "floating"])
def test_every_robot_is_the_same_after_urdf_and_mjcf(path, floating, tmp_path):
    model = load(path, floating_base=floating, snap=False, srdf=False).model
    robot = qddot.Robot(model)
    assert robot.save(tmp_path / "robot.urdf") == ()
    assert differences(model, load(tmp_path / "robot.urdf", snap=False).model) == []
    peer("mujoco")
    if path.stem in REFUSED_BY_MUJOCO:
        with pytest.raises(qddot.ModelError, match="MuJoCo refuses such moving bodies"):
            robot.save(tmp_path / "robot.xml")
        return
    said = robot.save(tmp_path / "robot.xml")
    again = load(tmp_path / "robot.xml", snap=False).model
    if any("takes for none" in f.message for f in said):  # limits of zero
        assert differences(model, again, without=("limits",)) == []
    elif any("it is no body but a joint" in f.message for f in said):
        assert (model.joint_names, model.nv) == (again.joint_names, again.nv)
    else:
        assert differences(model, again, without=("velocity",)) == []
