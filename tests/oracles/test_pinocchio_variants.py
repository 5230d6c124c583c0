"""Changed robots against Pinocchio: buildReducedModel, appendBodyToJoint and appendModel, on real robots."""

import numpy as np
import pytest

import qddot
from qddot import conventions
from tests.support.peers import peer
from tests.support.pinocchio_case import Case
from tests.support.real_robots import GOOD, or_skipped, short

pin = peer("pinocchio")
TOLERANCE = 1e-9  # as in test_pinocchio.py

NAMES = (
    "ur5_robot",
    "panda",
    "g1_29dof_rev_1_0",
    "talos_reduced",
    "tiago",
    "solo12",
    "icub_reduced",
    "cassie",
    "kinova",
    "anymal",
)
FILES = [p for p in GOOD if p.stem in NAMES and "anymal_c" not in str(p)]  # in which joints and links share names
BOTH = [(p, floating) for p in FILES for floating in (False, True) if not (floating and len(p.stem) % 2)]


def close(ours, theirs):
    scale = max(1.0, np.max(np.abs(theirs), initial=0.0))
    assert np.max(np.abs(np.asarray(ours) - theirs), initial=0.0) <= TOLERANCE * scale


def same(robot, pin_model, rng, states=3):
    """Inverse dynamics, mass matrix, energies and the pose of every body."""
    data, layout = pin_model.createData(), (robot.model, pin_model)
    for _ in range(states):
        q, v = robot.random_state(rng)
        a = rng.standard_normal(robot.nv)
        x = conventions.to_pinocchio_q(*layout, q)
        u, w = (conventions.to_pinocchio_v(*layout, q, y) for y in (v, a))
        tau = pin.rnea(pin_model, data, x, u, w).copy()
        close(robot.inverse_dynamics(q, v, a), conventions.from_pinocchio_tau(*layout, q, tau))
        M = np.triu(pin.crba(pin_model, data, x))
        close(robot.mass_matrix(q), conventions.from_pinocchio_matrix(*layout, q, M + np.triu(M, 1).T))
        close(robot.kinetic_energy(q, v), pin.computeKineticEnergy(pin_model, data, x, u))
        pin.framesForwardKinematics(pin_model, data, x)
        known = set(robot.frame_names) - {"world"}
        bodies = [(k, f.name) for k, f in enumerate(pin_model.frames) if f.type == pin.FrameType.BODY and f.name in known]
        assert bodies
        for k, name in bodies[:: max(1, len(bodies) // 8)]:
            close(robot.pose(q, name), data.oMf[k].homogeneous)


@pytest.mark.skipif(not FILES, reason="no robots")
def test_there_are_robots():
    assert len(FILES) >= 6


@pytest.mark.parametrize(
    ("path", "floating"), or_skipped(BOTH), ids=lambda x: short(x) if not isinstance(x, bool) else str(x)
)
def test_locked(path, floating):
    c = Case(path, floating)
    rng, model = np.random.default_rng(1), c.robot.model
    own = [n for n in c.robot.joint_names if model.mimic[model.joint_index(n)] is None and n != "root_joint"]
    chosen = own[1::3]
    reduced = c.robot.locked({n: c.q[0][c.robot.q_index[n]] for n in chosen})
    still = [n for i, n in enumerate(model.joint_names) if (m := model.mimic[i]) and model.joint_names[m.link] in chosen]
    ids = [c.pin.getJointId(n) for n in (*chosen, *still)]
    same(reduced, pin.buildReducedModel(c.pin, ids, c.pq[0]), rng)


@pytest.mark.parametrize("path", or_skipped(FILES), ids=short)
def test_payload(path):
    c = Case(path, False)
    rng = np.random.default_rng(2)
    frames = [f.name for f in c.robot.model.frames if f.link]
    frame = frames[-1] if frames else c.robot.link_names[-1]
    mass, com = 1.7, np.array([0.02, -0.03, 0.08])
    moments = rng.standard_normal((3, 3))
    moments = 0.002 * moments @ moments.T + 0.01 * np.eye(3)
    inertia = np.trace(moments) * np.eye(3) - moments  # that of a body
    theirs = c.pin.copy()
    f = theirs.frames[theirs.getFrameId(frame)]
    theirs.appendBodyToJoint(f.parentJoint, pin.Inertia(mass, com, inertia), f.placement)
    same(c.robot.with_payload(frame, mass, com, inertia), theirs, rng)
    values = {f"{frame}.payload_mass": mass, f"{frame}.payload_com": com}
    values |= {f"{frame}.payload_inertia": inertia[np.triu_indices(3)]}
    same(c.robot.with_parameters(values), theirs, rng)


@pytest.mark.parametrize("path", or_skipped(FILES[:4]), ids=short)
def test_attached(path):
    c, hand = Case(path, False), Case(next(p for p in GOOD if p.stem == "ur5_robot"), False)
    rng = np.random.default_rng(3)
    frame = c.robot.link_names[-1]
    pose = pin.SE3.Random()
    other = hand.pin.copy()
    for k in range(1, len(other.names)):
        other.names[k] = f"hand_{other.names[k]}"
    for k in range(1, other.nframes):
        other.frames[k].name = f"hand_{other.frames[k].name}"
    theirs = pin.appendModel(c.pin, other, c.pin.getFrameId(frame), pose)
    T = qddot.Transform(
        qddot.spatial.rotation.constant_rotation(tuple(map(tuple, pose.rotation.tolist()))), tuple(pose.translation)
    )
    same(c.robot.attach(hand.robot, frame, T, prefix="hand_"), theirs, rng)


@pytest.mark.parametrize("path", or_skipped([p for p in FILES if "icub" not in p.stem][::2]), ids=short)
def test_scaled(path):
    c = Case(path, False)
    length, mass, theirs = 1.3, 0.6, c.pin.copy()
    for k in range(1, theirs.njoints):
        I = theirs.inertias[k]
        theirs.inertias[k] = pin.Inertia(mass * I.mass, length * I.lever, mass * length**2 * I.inertia)
        placement = theirs.jointPlacements[k].copy()
        placement.translation = length * placement.translation
        theirs.jointPlacements[k] = placement
    theirs.inertias[0] = pin.Inertia.Zero()
    for f in theirs.frames:
        f.placement = pin.SE3(f.placement.rotation, length * f.placement.translation)
    same(c.robot.scaled(length, mass), theirs, np.random.default_rng(4))
