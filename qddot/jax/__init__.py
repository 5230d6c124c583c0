"""A robot's functions as operations of JAX: `qddot.jax.Dynamics(robot)`, or `robot.jax()`; extra `[jax]`."""

from __future__ import annotations

try:
    import jax as _jax  # noqa: F401  first, so that the error below says what is missing
except ImportError as error:
    raise ImportError(f"qddot.jax needs JAX ({error}); install it with: pip install 'qddot[jax]'") from error

from qddot.jax.dynamics import Dynamics

__all__ = ["Dynamics"]
