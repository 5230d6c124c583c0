"""A robot's functions as operations of other packages."""

from __future__ import annotations

from typing import Any

from qddot.robot.base import RobotBase


class FrameworkMethods(RobotBase):
    """A part of `Robot`."""

    def torch(self, **options: Any) -> Any:
        """The functions of this robot on PyTorch's tensors, differentiable: `qddot.torch.Dynamics(robot, …)`.

        Takes `dtype`, `device` and `free`. Needs the extra `[torch]`.
        """
        from qddot.torch import Dynamics

        return Dynamics(self, **options)

    def jax(self, **options: Any) -> Any:
        """The functions of this robot on JAX arrays, differentiable: `qddot.jax.Dynamics(robot, …)`.

        Takes `free`. Needs the extra `[jax]`.
        """
        from qddot.jax import Dynamics

        return Dynamics(self, **options)
