"""One robot in qddot and in Pinocchio, in the same states. Skips the test that makes one where Pinocchio is missing."""

import warnings
from pathlib import Path

import numpy as np

import qddot
from qddot import conventions
from tests.support.peers import peer

STATES = 20


class Case:
    """One robot in both engines, and its states."""

    def __init__(self, path: Path, floating: bool) -> None:
        pin = peer("pinocchio")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", qddot.QddotWarning)
            model = qddot.load(path, floating_base=floating, passive_forces=False).model
        self.robot = qddot.Robot(model, compiled=False)  # that kernels agree with it is tested elsewhere
        root = (pin.JointModelFreeFlyer(),) if floating else ()
        self.pin = pin.buildModelFromUrdf(str(path), *root)
        self.data = self.pin.createData()
        rng = np.random.default_rng(len(path.name))
        states = [self.robot.random_state(rng) for _ in range(STATES)]
        self.q, self.v = (np.stack(x) for x in zip(*states, strict=True))
        self.a = rng.standard_normal((STATES, self.robot.nv))
        args = self.robot.model, self.pin
        self.layout = args
        self.pq = conventions.to_pinocchio_q(*args, self.q)
        self.pv = conventions.to_pinocchio_v(*args, self.q, self.v)
        self.pa = conventions.to_pinocchio_v(*args, self.q, self.a)

    def tau(self, function) -> np.ndarray:
        """Pinocchio's joint forces of every state, in qddot's order."""
        rows = np.stack([function(k).copy() for k in range(STATES)])  # Pinocchio hands out its workspace
        return conventions.from_pinocchio_tau(*self.layout, self.q, rows)


def in_our_order(c: Case, matrix):
    """A matrix of Pinocchio's between velocities and forces: their bases differ by E, which permutes."""
    E = conventions.to_pinocchio_v(*c.layout, c.q[0], np.eye(c.robot.nv)).T
    return E.T @ matrix @ E
