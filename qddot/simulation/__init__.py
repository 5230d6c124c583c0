"""Robots in time: compiled rollouts, integrators, controls and forces, adaptive integration with events."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from qddot.simulation import controls, forces
from qddot.simulation.adaptive import Event, joint_limits
from qddot.simulation.limits import Stops
from qddot.simulation.rollout import Progress, Rollout
from qddot.simulation.simulate import simulate
from qddot.simulation.simulator import Simulator
from qddot.simulation.trajectory import Trajectory

if TYPE_CHECKING:
    from qddot.simulation.differentiable import DifferentiableRollout as DifferentiableRollout
    from qddot.simulation.differentiable_run import DifferentiableRun as DifferentiableRun
    from qddot.simulation.differentiable_run import RolloutGradients as RolloutGradients

_OF_GRADIENTS = {  # loaded when they are used
    "DifferentiableRollout": "differentiable",
    "DifferentiableRun": "differentiable_run",
    "RolloutGradients": "differentiable_run",
}

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


def __getattr__(name: str) -> Any:
    if name not in _OF_GRADIENTS:
        raise AttributeError(f"module 'qddot.simulation' has no attribute {name!r}")
    return getattr(import_module(f"qddot.simulation.{_OF_GRADIENTS[name]}"), name)
