"""Robots in time: compiled rollouts, integrators, controls and forces, adaptive integration with events."""

from qddot.simulation import controls, forces
from qddot.simulation.adaptive import Event, joint_limits
from qddot.simulation.differentiable import DifferentiableRollout
from qddot.simulation.differentiable_run import DifferentiableRun, RolloutGradients
from qddot.simulation.limits import Stops
from qddot.simulation.rollout import Progress, Rollout
from qddot.simulation.simulate import simulate
from qddot.simulation.simulator import Simulator
from qddot.simulation.trajectory import Trajectory

__all__ = [
    "DifferentiableRollout",
    "DifferentiableRun",
    "Event",
    "Progress",
    "Rollout",
    "RolloutGradients",
    "Simulator",
    "Stops",
    "Trajectory",
    "controls",
    "forces",
    "joint_limits",
    "simulate",
]
