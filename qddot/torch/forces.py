"""External forces by name on tensors: what `qddot.dynamics.named_forces` is for NumPy's arrays, differentiable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from qddot.dynamics.named_forces import check_axes, moving_frame
from qddot.errors import InputError
from qddot.mechanism.model import Frame, Model


def link_forces(model: Model, poses: Callable[[], Tensor], f_ext: Any, expressed_in: str, like: Tensor) -> Any:
    """The forces on all moving links in their own frames, (..., n_links, 6); `poses` gives those of the links."""
    check_axes(expressed_in)
    if expressed_in != "world" and not isinstance(f_ext, Mapping):
        return f_ext
    if isinstance(f_ext, Mapping):
        pushes = [(moving_frame(model, name), _wrench(name, x, like)) for name, x in f_ext.items()]
    else:
        rows = _of_links(model, f_ext, like)
        pushes = [(model.frame(name), rows[..., k, :]) for k, name in enumerate(model.link_names[1:])]
    in_world = poses() if expressed_in == "world" else None
    found = [(frame.link, _on_link(frame, x, expressed_in, in_world)) for frame, x in pushes]
    try:
        batch = torch.broadcast_shapes(*(x.shape[:-1] for _, x in found))
    except RuntimeError:
        shapes = [tuple(x.shape[:-1]) for _, x in found]
        raise InputError(f"the batch axes of the wrenches in f_ext do not fit together: {shapes}") from None
    rows_of = [like.new_zeros((*batch, 6)) for _ in range(model.n_links)]
    for link, x in found:
        rows_of[link - 1] = rows_of[link - 1] + x
    return torch.stack(rows_of, -2)


def _wrench(name: str, x: Any, like: Tensor) -> Tensor:
    wrench = torch.as_tensor(x, dtype=like.dtype, device=like.device) if not isinstance(x, Tensor) else x
    if wrench.shape[-1:] != (6,):
        raise InputError(
            f"the wrench on {name!r} has shape {tuple(wrench.shape)}, but must be (..., 6): moment x, y, z, force x, y, z"
        )
    return wrench


def _of_links(model: Model, x: Any, like: Tensor) -> Tensor:
    rows = torch.as_tensor(x, dtype=like.dtype, device=like.device) if not isinstance(x, Tensor) else x
    if rows.shape[-2:] != (model.n_links, 6):
        raise InputError(
            f"f_ext has shape {tuple(rows.shape)}, but must be (..., {model.n_links}, 6): a force (moment, force) for each "
            f"of robot {model.name!r}'s moving links"
        )
    return rows


def _on_link(frame: Frame, wrench: Tensor, expressed_in: str, poses: Tensor | None) -> Tensor:
    """A wrench in the axes of its link, at the link's origin."""
    m, f = wrench[..., :3], wrench[..., 3:]
    if expressed_in == "link":
        return wrench
    if poses is not None:
        R = poses[..., frame.link - 1, :3, :3]
        m, f = (m[..., None, :] @ R)[..., 0, :], (f[..., None, :] @ R)[..., 0, :]
    else:
        fixed = wrench.new_tensor(frame.placement.R.rows).mT
        m, f = m @ fixed, f @ fixed
    p = wrench.new_tensor(frame.placement.p)
    return torch.cat([m + torch.linalg.cross(p.expand_as(f), f), f], -1)
