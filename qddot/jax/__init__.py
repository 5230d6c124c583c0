"""A robot's dynamics as operations of JAX: compiled, batched, differentiable, under `jit`, `vmap` and `shard_map`.

`Dynamics(robot)` has the methods of `Robot`, on JAX arrays (docs/jax.md). Needs the extra `[jax]`.
"""

from qddot.errors import extra

extra("jax", "jax", "qddot.jax")

from qddot.jax.dynamics import Dynamics  # noqa: E402  what it stands on is looked for first

__all__ = ["Dynamics"]
