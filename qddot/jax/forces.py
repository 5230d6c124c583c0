"""External forces as they are given, on JAX arrays: what `qddot.dynamics.named_forces` does for NumPy's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np

from qddot.dynamics.named_forces import check_axes, moving_frame
from qddot.errors import InputError
from qddot.jax.arrays import alike
from qddot.mechanism.model import Frame, Model


class _HasPoses(Protocol):
    model: Model

    def __getattr__(self, name: str) -> Any: ...


def link_forces(dynamics: _HasPoses, q: Any, f_ext: Any, expressed_in: str, free: Mapping[str, Any]) -> Any:
    """The forces on all moving links in their own frames, (..., n_links, 6); an array of such is returned as it is.

    `free` has the free parameters that links stand at, where forces are in the world's axes.
    """
    check_axes(expressed_in)
    model = dynamics.model
    if not isinstance(f_ext, Mapping):
        if expressed_in != "world":
            return f_ext
        (rows,) = alike("link_forces", ("f_ext",), (f_ext,))
        if rows.shape[-2:] != (model.n_links, 6):
            raise InputError(f"f_ext has shape {rows.shape}; its last axes must be ({model.n_links}, 6)")
        pushes = [(model.frame(name), rows[..., k, :]) for k, name in enumerate(model.link_names[1:])]
    else:
        pushes = [(moving_frame(model, name), _wrench(name, x)) for name, x in f_ext.items()]
    poses = dynamics.forward_kinematics(q, **free) if expressed_in == "world" else None
    on_link: dict[int, Any] = {}
    for frame, wrench in pushes:
        x = _on_link(frame, wrench, expressed_in, poses)
        on_link[frame.link] = on_link[frame.link] + x if frame.link in on_link else x
    batch = jnp.broadcast_shapes(*(x.shape[:-1] for x in on_link.values()))
    like = [*on_link.values()] or alike("link_forces", ("q",), (q,))
    none = jnp.zeros((*batch, 6), jnp.result_type(*like))
    rows_of = [jnp.broadcast_to(on_link.get(i, none), (*batch, 6)) for i, _ in model.outward()]
    return jnp.stack(rows_of, axis=-2)


def _wrench(name: str, given: Any) -> Any:
    (x,) = alike("link_forces", (f"the wrench on {name!r}",), (given,))
    if x.shape[-1:] != (6,):
        raise InputError(f"the wrench on {name!r} has shape {x.shape}, but must be (..., 6): moment x, y, z, force x, y, z")
    return x


def _on_link(frame: Frame, wrench: Any, expressed_in: str, poses: Any) -> Any:
    """The wrench on a link in its frame of one that acts on a frame of it."""
    m, f = wrench[..., :3], wrench[..., 3:]
    if expressed_in == "link":
        return wrench
    if poses is None:
        R = np.array(frame.placement.R.rows, dtype=wrench.dtype)
        m, f = m @ R.T, f @ R.T
    else:
        R = poses[..., frame.link - 1, :3, :3]
        m, f = ((x[..., None, :] @ R)[..., 0, :] for x in (m, f))
    p = jnp.broadcast_to(np.array(frame.placement.p, dtype=wrench.dtype), f.shape)
    return jnp.concatenate([m + jnp.cross(p, f), f], axis=-1)
