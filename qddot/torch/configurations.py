"""Steps along velocities and differences of configurations on tensors: the joints' own formulas, on `Number`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from qddot.dynamics import products
from qddot.errors import InputError
from qddot.mechanism.model import Model
from qddot.torch.number import Number, value_of


def quaternions(model: Model) -> tuple[int, ...]:
    """Where quaternions begin in q."""
    own = (i for i, _ in model.outward() if model.mimic[i] is None and model.joint[i].has_unit_quaternion)
    return tuple(model.slots[i].q.stop - 4 for i in own)


def normalize(begins: tuple[int, ...], q: Tensor) -> Tensor:
    """The nearest valid configuration: quaternions made unit."""
    parts, last = [], 0
    for begin in begins:
        own = q[..., begin : begin + 4]
        parts += [q[..., last:begin], own / torch.linalg.vector_norm(own, dim=-1, keepdim=True)]
        last = begin + 4
    return torch.cat([*parts, q[..., last:]], -1)


def integrate(model: Model, q: Tensor, step: Tensor) -> Tensor:
    """The configuration reached from q along a step of the tangent space."""
    x, u = _numbers(model, q, "q", "q"), _numbers(model, step, "v", "v")
    return _gathered(model, lambda i: model.joint[i].integrate(x[model.slots[i].q], u[model.slots[i].v]), q, step)


def difference(model: Model, q0: Tensor, q1: Tensor) -> Tensor:
    """The step of the tangent space that leads from q0 to q1."""
    x, y = _numbers(model, q0, "q", "q0"), _numbers(model, q1, "q", "q1")
    return _gathered(model, lambda i: model.joint[i].difference(x[model.slots[i].q], y[model.slots[i].q]), q0, q1)


def tangent_gradient(model: Model, q: Tensor, gradient: Tensor) -> Tensor:
    """The gradient along the degrees of freedom of one along the coordinates."""
    x, g = _numbers(model, q, "q", "q"), _numbers(model, gradient, "q", "g")
    return _stacked(products.tangent_gradient(model, x, g), q, gradient)


def _numbers(model: Model, x: Tensor, which: str, name: str) -> list[Any]:
    n = model.nq if which == "q" else model.nv
    if x.shape[-1:] != (n,):
        raise InputError(
            f"{name} has shape {tuple(x.shape)}, but its last axis must have {n} entries: "
            f"robot {model.name!r} has n{which} = {n}"
        )
    return [Number(x[..., k]) for k in range(n)]


def _gathered(model: Model, of_joint: Callable[[int], Sequence[Any]], *like: Tensor) -> Tensor:
    """What each joint gives, as one tensor."""
    return _stacked([x for i, _ in model.outward() if model.mimic[i] is None for x in of_joint(i)], *like)


def _stacked(numbers: Sequence[Any], *like: Tensor) -> Tensor:
    batch = torch.broadcast_shapes(*(x.shape[:-1] for x in like))
    first = like[0]
    parts = [torch.as_tensor(value_of(x), dtype=first.dtype, device=first.device).expand(batch) for x in numbers]
    return torch.stack(parts, -1)
