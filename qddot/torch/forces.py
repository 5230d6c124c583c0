"""External forces by name on tensors: what `qddot.dynamics.named_forces` is for NumPy's arrays, differentiable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from qddot.dynamics.named_forces import check_axes, moving_frame
from qddot.errors import InputError
from qddot.torch.call import engine_of


class Place(NamedTuple):
    """Where a frame sits on its link: the number of the link, rotation and position in it."""

    link: int
    R: tuple[tuple[float, ...], ...]
    p: tuple[float, ...]


@torch.compiler.assume_constant_result
def _place(digest: str, name: str) -> tuple[Any, ...]:
    """Of a frame that moves; for graphs it is a constant."""
    frame = moving_frame(engine_of(digest).model, name)
    R = tuple(tuple(map(float, row)) for row in frame.placement.R.rows)
    return frame.link, R, tuple(map(float, frame.placement.p))


def link_forces(
    links: Sequence[str], digest: str, poses: Callable[[], Tensor], f_ext: Any, expressed_in: str, like: Tensor
) -> Any:
    """The forces on all moving links in their own frames, (..., n_links, 6); `poses` gives those of the links."""
    check_axes(expressed_in)
    if expressed_in != "world" and not isinstance(f_ext, Mapping):
        return f_ext
    if isinstance(f_ext, Mapping):
        pushes = {name: _wrench(name, x, like) for name, x in f_ext.items()}
    else:
        rows = _of_links(links, f_ext, like)
        pushes = {name: rows[..., k, :] for k, name in enumerate(links)}
    in_world = poses() if expressed_in == "world" else None
    rows_of: list[Any] = [None] * len(links)
    for name, x in pushes.items():
        place = Place(*_place(digest, name))
        push, k = _on_link(place, x, expressed_in, in_world), place.link - 1
        rows_of[k] = push if rows_of[k] is None else rows_of[k] + push
    try:
        batch = torch.broadcast_shapes(*(x.shape[:-1] for x in rows_of if x is not None))
    except RuntimeError:
        shapes = {name: tuple(x.shape[:-1]) for name, x in pushes.items()}
        raise InputError(f"the batch axes of the wrenches in f_ext do not fit together: {shapes}") from None
    none = like.new_zeros(6)
    return torch.stack([(none if x is None else x).expand(*batch, 6) for x in rows_of], -2)


def _wrench(name: str, x: Any, like: Tensor) -> Tensor:
    wrench = torch.as_tensor(x, dtype=like.dtype, device=like.device) if not isinstance(x, Tensor) else x
    if wrench.shape[-1:] != (6,):
        raise InputError(
            f"the wrench on {name!r} has shape {tuple(wrench.shape)}, but must be (..., 6): moment x, y, z, force x, y, z"
        )
    return wrench


def _of_links(links: Sequence[str], x: Any, like: Tensor) -> Tensor:
    rows = torch.as_tensor(x, dtype=like.dtype, device=like.device) if not isinstance(x, Tensor) else x
    if rows.shape[-2:] != (len(links), 6):
        raise InputError(
            f"f_ext has shape {tuple(rows.shape)}, but must be (..., {len(links)}, 6): a force (moment, force) for each "
            f"moving link"
        )
    return rows


def _on_link(place: Place, wrench: Tensor, expressed_in: str, poses: Tensor | None) -> Tensor:
    """A wrench in the axes of its link, at the link's origin."""
    m, f = wrench[..., :3], wrench[..., 3:]
    if expressed_in == "link":
        return wrench
    if poses is not None:
        R = poses[..., place.link - 1, :3, :3]
        m, f = (m[..., None, :] @ R)[..., 0, :], (f[..., None, :] @ R)[..., 0, :]
    else:
        fixed = wrench.new_tensor(place.R).mT
        m, f = m @ fixed, f @ fixed
    p = wrench.new_tensor(place.p)
    return torch.cat([m + torch.linalg.cross(p.expand_as(f), f), f], -1)
