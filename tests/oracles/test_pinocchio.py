"""Every URDF of example-robot-data against Pinocchio: fixed and floating base, twenty random states each.

Pinocchio takes mimic joints for independent ones; its results are brought to qddot's coordinates by the constant map G of
`qddot.conventions`. Where that does not define the answer (accelerations of a robot with mimic joints) or where
Pinocchio returns NaN (joints that move no mass), the project's own brute force, Σ JᵀIJ with dense matrices, judges.
"""

import numpy as np
import pytest

import qddot
from qddot import conventions
from qddot.robot.identities import brute_force_mass_matrix
from tests.support.peers import peer
from tests.support.pinocchio_case import STATES, Case
from tests.support.real_robots import REFUSED, URDFS, WHY

pin = peer("pinocchio")


# 1e-9 relative to the largest entry of the quantity; some thousand operations on numbers whose parts are up to 1e4
# times the result leave 1e-12, so there is room for the order of operations and none for a mistake.
TOLERANCE = 1e-9
# What passes through M⁻¹ is rounded in proportion to the condition of M, 1e-16 a unit. Only iCub, at 2e10, needs it.
PER_CONDITION = 1e-16


def close(ours, theirs, tolerance: float = TOLERANCE) -> None:
    scale = max(1.0, np.max(np.abs(theirs), initial=0.0))
    assert np.max(np.abs(np.asarray(ours) - theirs), initial=0.0) <= tolerance * scale


@pytest.mark.skipif(not URDFS, reason=WHY)
def test_all_files_are_here():
    assert len(URDFS) == 77


# on floating bases every third robot, all of them where time does not matter
BASES = [(p, False) for p in URDFS] + [
    pytest.param(p, True, marks=pytest.mark.slow) if k % 3 else (p, True) for k, p in enumerate(URDFS)
]


def _named(x):
    return ("floating" if x else "fixed") if isinstance(x, bool) else f"{x.parent.parent.name}-{x.stem}"


@pytest.mark.parametrize(("path", "floating"), BASES, ids=_named)
def test_robot(path, floating):
    if path.name in REFUSED:
        with pytest.raises(qddot.FileError, match=REFUSED[path.name]):
            qddot.load(path, floating_base=floating)
        return
    c = Case(path, floating)
    inverse_dynamics(c)
    mass_matrix(c)
    forward_dynamics(c)
    energy_and_mass(c)
    frames(c)


def inverse_dynamics(c: Case) -> None:
    robot, args = c.robot, (c.pin, c.data)
    close(robot.inverse_dynamics(c.q, c.v, c.a), c.tau(lambda k: pin.rnea(*args, c.pq[k], c.pv[k], c.pa[k])))
    close(robot.bias_force(c.q, c.v), c.tau(lambda k: pin.nonLinearEffects(*args, c.pq[k], c.pv[k])))
    close(robot.gravity_force(c.q), c.tau(lambda k: pin.computeGeneralizedGravity(*args, c.pq[k])))


def mass_matrix(c: Case) -> None:
    theirs = []
    for k in range(STATES):
        upper = np.triu(pin.crba(c.pin, c.data, c.pq[k]))
        theirs.append(upper + np.triu(upper, 1).T)
    close(c.robot.mass_matrix(c.q), conventions.from_pinocchio_matrix(*c.layout, c.q, np.stack(theirs)))
    close(brute_force_mass_matrix(c.robot, c.q[0]), c.robot.mass_matrix(c.q[0]))


def forward_dynamics(c: Case) -> None:
    robot = c.robot
    if robot.massless_joints:
        with pytest.raises(qddot.SingularMassMatrixError, match=robot.massless_joints[0]):
            robot.forward_dynamics(c.q, c.v, c.a)
        with pytest.raises(qddot.SingularMassMatrixError):
            robot.mass_matrix_inverse(c.q)
        return
    M, tau = robot.mass_matrix(c.q), c.a  # any numbers will do for forces
    condition = np.max(np.linalg.cond(M)) if robot.nv else 1.0
    tolerance = max(TOLERANCE, PER_CONDITION * condition)
    a, M_inverse = robot.forward_dynamics(c.q, c.v, tau), robot.mass_matrix_inverse(c.q)
    if robot.model.is_coupled:
        judge = np.linalg.solve(M, (tau - robot.bias_force(c.q, c.v))[..., None])[..., 0]
        close(a, judge, tolerance)
        close(M_inverse, np.linalg.inv(M), tolerance)
        return
    p_tau = conventions.to_pinocchio_tau(*c.layout, c.q, tau)
    for k in range(STATES):
        theirs = pin.aba(c.pin, c.data, c.pq[k], c.pv[k], p_tau[k])
        close(a[k], conventions.from_pinocchio_v(*c.layout, c.q[k], theirs), tolerance)
        upper = np.triu(pin.computeMinverse(c.pin, c.data, c.pq[k]))
        E = conventions.to_pinocchio_v(*c.layout, c.q[k], np.eye(robot.nv)).T
        close(M_inverse[k], E.T @ (upper + np.triu(upper, 1).T) @ E, tolerance)


def energy_and_mass(c: Case) -> None:
    robot = c.robot
    kinetic = [pin.computeKineticEnergy(c.pin, c.data, c.pq[k], c.pv[k]) for k in range(STATES)]
    potential = [pin.computePotentialEnergy(c.pin, c.data, c.pq[k]) for k in range(STATES)]
    close(robot.kinetic_energy(c.q, c.v), np.array(kinetic))
    close(robot.potential_energy(c.q), np.array(potential))
    if robot.mass == 0.0:
        return
    com = [pin.centerOfMass(c.pin, c.data, c.pq[k]).copy() for k in range(STATES)]
    close(robot.center_of_mass(c.q), np.array(com))
    G = conventions.to_pinocchio_v(*c.layout, c.q[0], np.eye(robot.nv)).T
    A = pin.computeCentroidalMap(c.pin, c.data, c.pq[0])
    close(robot.centroidal_momentum_matrix(c.q[0]), np.roll(A, 3, axis=0) @ G)


def frames(c: Case) -> None:
    """Poses and Jacobians of bodies, those merged into others included; six of them, spread over the file."""
    robot = c.robot
    known = set(robot.frame_names) - {"world"}  # on a floating base Pinocchio's "world" may be the file's root link
    bodies = {f.name: k for k, f in enumerate(c.pin.frames) if f.type == pin.FrameType.BODY and f.name in known}
    names = list(bodies)
    for name in names[:: max(1, len(names) // 6)]:
        for k in (0, STATES - 1):
            pin.forwardKinematics(c.pin, c.data, c.pq[k], c.pv[k])
            J = np.roll(pin.computeFrameJacobian(c.pin, c.data, c.pq[k], bodies[name], pin.LOCAL), 3, axis=0)
            G = conventions.to_pinocchio_v(*c.layout, c.q[k], np.eye(robot.nv)).T
            close(robot.jacobian(c.q[k], name), J @ G)
            close(robot.pose(c.q[k], name), pin.updateFramePlacement(c.pin, c.data, bodies[name]).homogeneous)
