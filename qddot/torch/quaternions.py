"""Configurations with quaternions, on tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from qddot.mechanism.model import Model


def places(model: Model) -> tuple[int, ...]:
    """Where quaternions begin in q."""
    own = (i for i, _ in model.outward() if model.mimic[i] is None and model.joint[i].has_unit_quaternion)
    return tuple(model.slots[i].q.stop - 4 for i in own)


def normalize(begins: tuple[int, ...], q: Tensor) -> Tensor:
    """The nearest valid configuration: quaternions made unit, differentiable."""
    parts, last = [], 0
    for begin in begins:
        own = q[..., begin : begin + 4]
        parts += [q[..., last:begin], own / torch.linalg.vector_norm(own, dim=-1, keepdim=True)]
        last = begin + 4
    return torch.cat([*parts, q[..., last:]], -1)
