"""Centroidal and operational-space functions against Pinocchio, fixed and floating base."""

import numpy as np
import pytest

from qddot import conventions
from tests.support.peers import peer
from tests.support.pinocchio_case import STATES, Case
from tests.support.real_robots import ROBOTS, or_skipped

pin = peer("pinocchio")

FILES = [
    ROBOTS / x
    for x in (
        "ur_description/urdf/ur5_robot.urdf",
        "solo_description/robots/solo12.urdf",
        "talos_data/robots/talos_reduced.urdf",
    )
]
TOLERANCE = 1e-9  # as in test_pinocchio.py


def close(ours, theirs):
    scale = max(1.0, np.max(np.abs(theirs), initial=0.0))
    assert np.max(np.abs(ours - theirs), initial=0.0) <= TOLERANCE * scale


@pytest.mark.parametrize("floating", [False, True], ids=["fixed", "floating"])
@pytest.mark.parametrize("path", or_skipped([p for p in FILES if p.exists()]), ids=lambda p: p.stem)
def test_centroidal(path, floating):
    c = Case(path, floating)
    robot = c.robot
    frame = robot.link_names[-1]
    theirs = c.pin.getFrameId(frame)
    for k in range(0, STATES, 5):
        G = conventions.to_pinocchio_v(*c.layout, c.q[k], np.eye(robot.nv)).T
        close(robot.center_of_mass_jacobian(c.q[k]), pin.jacobianCenterOfMass(c.pin, c.data, c.pq[k]) @ G)
        rate = pin.dccrba(c.pin, c.data, c.pq[k], c.pv[k])
        close(robot.centroidal_momentum_matrix_derivative(c.q[k], c.v[k]), np.roll(rate, 3, axis=0) @ G)
        pin.centerOfMass(c.pin, c.data, c.pq[k], c.pv[k], c.pa[k])
        ours = robot.center_of_mass_jacobian(c.q[k]) @ c.a[k]
        ours = ours + robot.center_of_mass_jacobian_derivative(c.q[k], c.v[k]) @ c.v[k]
        close(ours, c.data.acom[0])
        J = pin.computeFrameJacobian(c.pin, c.data, c.pq[k], theirs, pin.LOCAL)
        upper = np.triu(pin.computeMinverse(c.pin, c.data, c.pq[k]))
        M_inverse = upper + np.triu(upper, 1).T
        E = np.linalg.inv(G)
        close(robot.acceleration_by_force(c.q[k], frame), E @ M_inverse @ np.roll(J, 3, axis=0).T)
        if floating or robot.nv == 6:
            Lambda = np.linalg.inv(J @ M_inverse @ J.T)
            J_bar = np.roll(E @ M_inverse @ J.T @ Lambda, 3, axis=1)
            close(robot.dynamically_consistent_inverse(c.q[k], frame), J_bar)
            ours = np.roll(Lambda, (3, 3), axis=(0, 1))  # Pinocchio's twists are linear first
            close(robot.operational_space_inertia(c.q[k], frame), ours)
            bias = pin.nonLinearEffects(c.pin, c.data, c.pq[k], c.pv[k])
            pin.forwardKinematics(c.pin, c.data, c.pq[k], c.pv[k], -M_inverse @ bias)
            free = pin.getFrameAcceleration(c.pin, c.data, theirs, pin.LOCAL).vector
            mu = -np.roll(Lambda @ free, 3)
            close(robot.operational_space_bias_force(c.q[k], c.v[k], frame), mu)
            close(robot.operational_space(c.q[k], c.v[k], frame)[1], mu)
            linear = np.linalg.inv(np.linalg.inv(ours)[3:, 3:])
            close(robot.operational_space_inertia(c.q[k], frame, [3, 4, 5]), linear)
            close(robot.null_space_projector(c.q[k], frame), np.eye(robot.nv) - J_bar @ np.roll(J, 3, axis=0) @ G)
