"""What a robot is to reach, as weighted tasks: for inverse kinematics and whole-body control (public)."""

from qddot.tasks.contact_dynamics import (
    CenterOfMassAcceleration,
    Contact,
    ContactSolution,
    FrameAcceleration,
    JointAcceleration,
)
from qddot.tasks.inverse_kinematics import Solution
from qddot.tasks.targets import (
    CenterOfMass,
    LookAt,
    LoopClosure,
    Orientation,
    Pose,
    Position,
    Posture,
    Task,
)

__all__ = [
    "CenterOfMass",
    "CenterOfMassAcceleration",
    "Contact",
    "ContactSolution",
    "FrameAcceleration",
    "JointAcceleration",
    "LookAt",
    "LoopClosure",
    "Orientation",
    "Pose",
    "Position",
    "Posture",
    "Solution",
    "Task",
]
