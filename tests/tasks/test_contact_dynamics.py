"""Inverse dynamics with contacts: the equations hold, forces stay in their cones, and nothing better is near."""

import numpy as np
import pytest

import qddot
from qddot import tasks
from tests.support.peers import peer

peer("daqp")

SHOVE = np.array([0.1, 0.0, 0.2])


@pytest.fixture(scope="module")
def stand():
    """A quadruped on bent legs, and its feet."""
    robot = qddot.Robot(qddot.load("quadruped").model, compiled=False)  # docs/whole_body.md runs it compiled
    q = robot.neutral()
    for k in range(4):
        q[7 + 3 * k + 1 : 7 + 3 * k + 3] = 0.7, -1.4
    return robot, q, [f for f in robot.frame_names if f.endswith("foot")]


def world_forces(robot, q, contacts, forces):
    """Contact forces, in the world's axes, as forces on the links in their own frames."""
    out = np.zeros((robot.model.n_links, 6))
    for contact, f in zip(contacts, forces, strict=True):
        frame = robot.model.frame(contact.frame)
        T = robot.pose(q, robot.model.link_names[frame.link])
        local = T[:3, :3].T @ f
        out[frame.link - 1] += [*np.cross(frame.placement.p, local), *local]
    return out


def test_standing_still(stand):
    robot, q, feet = stand
    contacts = [tasks.Contact(foot) for foot in feet]
    found = robot.contact_inverse_dynamics(q, np.zeros(18), tasks.JointAcceleration(np.zeros(18)), contacts)
    assert found.success
    assert np.max(np.abs(found.a)) < 1e-6
    assert np.sum(found.forces, axis=0) == pytest.approx([0.0, 0.0, 9.81 * robot.mass], abs=1e-4)
    assert np.max(np.abs(found.tau[:6])) < 1e-9
    assert np.max(np.abs(found.tau[6:])) > 0.1


def test_the_equations_of_motion_hold(stand):
    """Forward dynamics under the joint and contact forces gives the accelerations, and feet move with the plate."""
    robot, q, feet = stand
    rng = np.random.default_rng(0)
    v, lift = 0.1 * rng.standard_normal(18), np.array([0.3, -0.2, 0.5])
    contacts = [tasks.Contact(foot, acceleration=lift) for foot in feet]
    wanted = [
        tasks.CenterOfMassAcceleration(lift + SHOVE, weight=3.0),
        tasks.FrameAcceleration("body", angular=[0.2, 0.1, 0.0]),
        tasks.JointAcceleration(np.zeros(18), weight=0.01),
    ]
    found = robot.contact_inverse_dynamics(q, v, wanted, contacts)
    assert found.success
    a = robot.forward_dynamics(q, v, found.tau, world_forces(robot, q, contacts, found.forces))
    assert np.max(np.abs(a - found.a)) < 1e-8
    for foot in feet:
        moved = robot.acceleration(q, v, found.a, foot)
        V, R = robot.velocity(q, v, foot), robot.pose(q, foot)[:3, :3]
        assert R @ (moved[3:] + np.cross(V[:3], V[3:])) == pytest.approx(lift, abs=1e-8)
    com = robot.center_of_mass_jacobian(q) @ a + robot.center_of_mass_jacobian_derivative(q, v) @ v
    assert com == pytest.approx(lift + SHOVE, abs=1e-2)


def test_friction_and_lifting(stand):
    robot, q, feet = stand
    slippery = [tasks.Contact(foot, friction=0.1) for foot in feet]
    wanted = [tasks.CenterOfMassAcceleration([3.0, 0.0, 0.0]), tasks.JointAcceleration(np.zeros(18), weight=0.01)]
    found = robot.contact_inverse_dynamics(q, np.zeros(18), wanted, slippery)
    along, up = np.abs(found.forces[:, :2]), found.forces[:, 2]
    assert np.all(along <= 0.1 / np.sqrt(2.0) * up[:, None] + 1e-8)
    assert np.any(along >= 0.1 / np.sqrt(2.0) * up[:, None] - 1e-6)  # somewhere friction is the limit
    down = [tasks.CenterOfMassAcceleration([0.0, 0.0, -20.0]), tasks.JointAcceleration(np.zeros(18), weight=0.01)]
    found = robot.contact_inverse_dynamics(q, np.zeros(18), down, [tasks.Contact(f, friction=0.7) for f in feet])
    assert np.all(found.forces[:, 2] >= -1e-8)  # the ground does not pull


def test_effort_limits(stand):
    robot, q, feet = stand
    contacts = [tasks.Contact(foot) for foot in feet]
    leap = [tasks.CenterOfMassAcceleration([0.0, 0.0, 200.0]), tasks.JointAcceleration(np.zeros(18), weight=0.01)]
    limit = np.array([x for i, _ in robot.model.outward() for x in robot.model.limits[i].effort])
    bound = robot.contact_inverse_dynamics(q, np.zeros(18), leap, contacts)
    free = robot.contact_inverse_dynamics(q, np.zeros(18), leap, contacts, limits=False)
    assert np.all(np.abs(bound.tau[6:]) <= limit[6:] + 1e-8)
    assert np.any(np.abs(free.tau[6:]) > limit[6:] + 1.0)


def test_minimum(stand):
    """No neighbour that keeps the constraints costs less: the gradient has no part in the null space of the equalities."""
    robot, q, feet = stand
    v, wanted = np.zeros(18), np.linspace(-0.5, 0.5, 18)
    contacts = [tasks.Contact(foot) for foot in feet]
    found = robot.contact_inverse_dynamics(q, v, tasks.JointAcceleration(wanted), contacts, limits=False)
    J = np.concatenate([robot.jacobian(q, foot, "aligned")[3:] for foot in feet])
    M = robot.mass_matrix(q)
    equal = np.block([[J, np.zeros((12, 12))], [M[:6], -J.T[:6]]])
    gradient = np.concatenate([found.a - wanted, np.zeros(12)]) + 1e-8 * np.concatenate([found.a, found.forces.ravel()])
    null = np.linalg.svd(equal)[2][18:]
    assert np.max(np.abs(null @ gradient)) < 1e-9


def test_batches(stand):
    robot, q, feet = stand
    rng = np.random.default_rng(0)
    v = 0.1 * rng.standard_normal((3, 18))
    v[1, 0] = np.nan
    lift = rng.standard_normal((3, 3))
    contacts = [tasks.Contact(feet[0], acceleration=lift), *(tasks.Contact(f) for f in feet[1:])]
    found = robot.contact_inverse_dynamics(q, v, tasks.JointAcceleration(np.zeros(18)), contacts)
    assert found.a.shape == (3, 18)
    assert found.forces.shape == (3, 4, 3)
    assert found.success.tolist() == [True, False, True]
    assert np.isnan(found.tau[1]).all()
    one = [tasks.Contact(feet[0], acceleration=lift[2]), *(tasks.Contact(f) for f in feet[1:])]
    alone = robot.contact_inverse_dynamics(q, v[2], tasks.JointAcceleration(np.zeros(18)), one)
    assert np.max(np.abs(alone.tau - found.tau[2])) < 1e-9
    none = robot.contact_inverse_dynamics(q, v[:0], tasks.JointAcceleration(np.zeros(18)), one)
    assert none.a.shape == (0, 18)
    assert repr(found) == "<ContactSolution: 2 of 3 solved, 18 accelerations, 4 contacts>"


def test_contacts_that_contradict_each_other(stand):
    robot, q, feet = stand
    twice = [tasks.Contact(feet[0]), tasks.Contact(feet[0], acceleration=(0.0, 0.0, 1.0))]
    found = robot.contact_inverse_dynamics(q, np.zeros(18), tasks.JointAcceleration(np.zeros(18)), twice)
    assert not found.success
    assert np.isnan(found.a).all()
    assert np.isnan(found.forces).all()
    same = robot.contact_inverse_dynamics(q, np.zeros(18), tasks.JointAcceleration(np.zeros(18)), twice[:1] * 2)
    once = robot.contact_inverse_dynamics(q, np.zeros(18), tasks.JointAcceleration(np.zeros(18)), twice[:1])
    assert same.success
    assert np.max(np.abs(same.a - once.a)) < 1e-4


def test_bad_arguments(stand):
    robot, q, feet = stand
    still, wanted = np.zeros(18), tasks.JointAcceleration(np.zeros(18))
    bad = [
        ([tasks.Contact("nose")], wanted, "has no link or frame 'nose'"),
        ([tasks.Contact(feet[0], normal=(0, 0, 0))], wanted, "not all zero"),
        ([tasks.Contact(feet[0], friction=-1.0)], wanted, "must not be negative"),
        ([tasks.Contact(feet[0])], tasks.JointAcceleration([1.0]), "last axis must have 18"),
        ([tasks.Contact(feet[0])], tasks.FrameAcceleration("body"), "needs linear= or angular="),
    ]
    for contacts, task, text in bad:
        with pytest.raises((qddot.InputError, qddot.UnknownNameError), match=text):
            robot.contact_inverse_dynamics(q, still, task, contacts)
    loops = qddot.load("fivebar")
    with pytest.raises(qddot.InputError, match="would ignore"):
        loops.contact_inverse_dynamics(loops.neutral(), np.zeros(4), tasks.JointAcceleration(np.zeros(4)), [])
