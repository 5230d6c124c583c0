"""Configurations with quaternions, on tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from qddot.mechanism.model import Model


def normalize(model: Model, q: Tensor) -> Tensor:
    """The nearest valid configuration: quaternions made unit, differentiable."""
    parts, begin = [], 0
    for i, _ in model.outward():
        slot = model.slots[i].q
        if model.mimic[i] is None and model.joint[i].has_unit_quaternion:
            own = q[..., slot.stop - 4 : slot.stop]
            parts += [q[..., begin : slot.stop - 4], own / torch.linalg.vector_norm(own, dim=-1, keepdim=True)]
            begin = slot.stop
    return torch.cat([*parts, q[..., begin:]], -1)
