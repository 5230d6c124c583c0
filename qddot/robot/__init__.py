"""The facade: a robot and everything it can compute."""

from qddot.robot.robot import Robot

__all__ = ["Robot"]
