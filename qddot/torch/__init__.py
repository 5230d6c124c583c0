"""A robot's dynamics as an operation of PyTorch: compiled, batched, differentiable, on the processor and on a card.

`Dynamics(robot)` has the methods of `Robot`, on tensors (docs/torch.md). Needs the extra `[torch]`.
"""

from qddot.errors import extra

extra("torch", "torch", "qddot.torch")

from qddot.torch.dynamics import Dynamics  # noqa: E402  what it stands on is looked for first

__all__ = ["Dynamics"]
