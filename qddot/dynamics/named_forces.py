"""External forces by the names of frames and links: what the (..., n_links, 6) of the dynamics are made of.

A wrench is (moment, force), six numbers with any batch axes. `expressed_in` says in whose axes, and where it acts:

| `expressed_in` | acts at            | axes of  | on its link, with (R, p) the frame in the link     | changes with q |
|----------------|--------------------|----------|----------------------------------------------------|----------------|
| "frame"        | the frame's origin | frame    | f = R f', m = R m' + p × f                         | no             |
| "link"         | the link's origin  | link     | f = f', m = m'                                     | no             |
| "world"        | the frame's origin | world    | f = R_Wᵀ f', m = R_Wᵀ m' + p × f, R_W of the link  | yes            |

A link is a frame of its own, so that "frame" and "link" are the same for it. An array (..., n_links, 6) has a wrench for
each moving link. Along a DoF that turns the link by w, R_Wᵀx changes by R_Wᵀx × w.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qddot.compiler.runtime.array_kinds import given, no_gradients, on_host
from qddot.dynamics.engine import Engine
from qddot.dynamics.input_checks import numbers
from qddot.errors import InputError, shown, unexpected
from qddot.mechanism.model import Frame, Model

Array = NDArray[Any]
Forces = ArrayLike | Mapping[str, ArrayLike]  # by link, or by the names of frames and links
EXPRESSED_IN = ("frame", "link", "world")


class ForceOptions(TypedDict, total=False):
    """How forces are given to derivatives with respect to q, v, a and tau."""

    expressed_in: str
    df_ext_dq: ArrayLike | None
    df_ext_dv: ArrayLike | None


class ScalarForceOptions(TypedDict, total=False):
    """How forces are given to derivatives with respect to one scalar."""

    expressed_in: str
    df_ext_dp: ArrayLike | None


def link_forces(engine: Engine, q: Any, f_ext: Forces, expressed_in: str = "frame") -> Any:
    """The forces on all moving links in their own frames, (..., n_links, 6); an array of such is returned as it is."""
    if f_ext.__class__ is np.ndarray and expressed_in == "frame":  # most often, and faster than to ask for a mapping
        return f_ext
    check_axes(expressed_in)
    if expressed_in != "world" and not isinstance(f_ext, Mapping):
        return f_ext
    found = given({"f_ext": f_ext} | ({"q": q} if expressed_in == "world" else {}))
    if found.keeps_gradients:
        raise no_gradients(found.kind, found.keeps_gradients, "f_ext by name or in the world's axes")
    pushes, out = _pushes(engine, f_ext), []
    poses = engine.evaluate("forward_kinematics", on_host(q, "q")) if expressed_in == "world" else None
    with np.errstate(all="ignore"):  # a sample that is not finite is its own affair, as in kernels
        for frame, wrench in pushes:
            m, f = _in_link_axes(frame, wrench, expressed_in, poses)
            m = m if expressed_in == "link" else m + np.cross(_origin(frame), f)
            out.append((frame.link, np.concatenate([m, f], axis=-1)))
    forces = _gathered(engine.model, out, (6,))
    return forces if found.dtype is None else forces.astype(found.dtype, copy=False)


def slopes(engine: Engine, q: Any, f_ext: Forces, expressed_in: str) -> Array | None:
    """How `link_forces` changes with q, in the tangent space: (..., n_links, 6, nv); None where it does not."""
    if expressed_in != "world":
        return None
    poses, out = engine.evaluate("forward_kinematics", q), []
    with np.errstate(all="ignore"):
        for frame, wrench in _pushes(engine, f_ext):
            turning = engine.evaluate("jacobian", q, frame=engine.model.link_names[frame.link])[..., :3, :]
            m, f = (_cross(x[..., None], turning) for x in _in_link_axes(frame, wrench, "world", poses))
            out.append((frame.link, np.concatenate([m + _cross(_origin(frame)[:, None], f), f], axis=-2)))
    return _gathered(engine.model, out, (6, engine.model.nv))


def with_slopes(
    engine: Engine, function: str, q: Any, f_ext: Forces | None, given: ForceOptions
) -> tuple[Any, ArrayLike | None, ArrayLike | None]:
    """The forces on the links, and their slopes with respect to q and v, for derivatives of a function."""
    options = checked_options(function, given, ForceOptions.__annotations__)
    by_q, by_v, expressed_in = options.get("df_ext_dq"), options.get("df_ext_dv"), options.get("expressed_in", "frame")
    if f_ext is None:
        if by_q is not None or by_v is not None:
            raise _no_forces("df_ext_dv" if by_q is None else "df_ext_dq")
        check_axes(expressed_in)
        return None, None, None
    forces = link_forces(engine, q, f_ext, expressed_in)
    if expressed_in != "world":
        return forces, by_q, by_v
    if by_q is not None or by_v is not None:
        raise _known_slope("df_ext_dv" if by_q is None else "df_ext_dq")
    return forces, slopes(engine, q, f_ext, expressed_in), None


def with_slope(
    engine: Engine, function: str, q: Any, f_ext: Forces | None, by: tuple[Any, ...], given: ScalarForceOptions
) -> tuple[Any, ArrayLike | None]:
    """The forces on the links, and their slope with respect to the scalar `by`, as `derivative_variable` resolves it."""
    options = checked_options(function, given, ScalarForceOptions.__annotations__)
    slope, expressed_in = options.get("df_ext_dp"), options.get("expressed_in", "frame")
    if f_ext is None:
        if slope is not None:
            raise _no_forces("df_ext_dp")
        check_axes(expressed_in)
        return None, None
    forces = link_forces(engine, q, f_ext, expressed_in)
    if expressed_in != "world":
        return forces, slope
    if slope is not None:
        raise _known_slope("df_ext_dp")
    if by[0] in ("placement", "f_ext"):
        raise InputError(
            f"{function}: forces in the world's axes have no derivative with respect to {by[0]!r}; "
            f"take robot.link_forces(q, f_ext, 'world') as f_ext, which stays as it is in the links' frames"
        )
    all_slopes = slopes(engine, q, f_ext, expressed_in) if by[0] == "q" else None
    return forces, None if all_slopes is None else all_slopes[..., by[1]]


def check_axes(expressed_in: Any) -> None:
    """An error for axes that are not known."""
    if not isinstance(expressed_in, str) or expressed_in not in EXPRESSED_IN:
        raise InputError(f"expressed_in={shown(expressed_in)} is not known; take 'frame', 'link' or 'world'")


def moving_frame(model: Model, name: str) -> Frame:
    """A frame or link by its name; an error where it does not move."""
    frame = model.frame(name)
    if frame.link == 0:
        raise InputError(f"{name!r} does not move, so a force on it does nothing; name moving links or frames")
    return frame


def checked_options(function: str, given: Mapping[str, Any], known: Iterable[str]) -> Mapping[str, Any]:
    """Keyword arguments, or an error for one that a function does not take."""
    for name in given:
        if name not in known:
            raise unexpected(function, name, ("f_ext", *known))
    return given


def _pushes(engine: Engine, f_ext: Forces) -> list[tuple[Frame, Array]]:
    """Frames and the wrenches on them."""
    model = engine.model
    if not isinstance(f_ext, Mapping):
        rows = engine.checks.forces(f_ext, "f_ext")
        return [(model.frame(name), rows[..., k, :]) for k, name in enumerate(model.link_names[1:])]
    out = []
    for name, x in f_ext.items():
        frame, wrench = moving_frame(model, name), numbers(x, f"the wrench on {name!r}")
        if wrench.shape[-1:] != (6,):
            raise InputError(
                f"the wrench on {name!r} has shape {wrench.shape}, but must be (..., 6): moment x, y, z, force x, y, z"
            )
        out.append((frame, wrench))
    return out


def _in_link_axes(frame: Frame, wrench: Array, expressed_in: str, poses: Array | None) -> tuple[Array, Array]:
    """Moment and force in the axes of the link, still where they act."""
    m, f = wrench[..., :3], wrench[..., 3:]
    if expressed_in == "link":
        return m, f
    if poses is None:
        R = np.array(frame.placement.R.rows, dtype=float)
        return m @ R.T, f @ R.T
    R_W = poses[..., frame.link - 1, :3, :3]
    try:
        return (m[..., None, :] @ R_W)[..., 0, :], (f[..., None, :] @ R_W)[..., 0, :]
    except ValueError:
        raise InputError(
            f"the batch axes of the wrench on {frame.name!r}, {m.shape[:-1]}, do not fit those of q, {R_W.shape[:-2]}"
        ) from None


def _origin(frame: Frame) -> Array:
    return np.array(frame.placement.p, dtype=float)


def _cross(a: Array, b: Array) -> Array:
    """Of columns: of 3 numbers on the last axis but one."""
    return np.asarray(np.cross(a, b, axisa=-2, axisb=-2, axisc=-2))


def _gathered(model: Model, parts: list[tuple[int, Array]], own: tuple[int, ...]) -> Array:
    """What acts on each link, added up: (..., n_links, *own)."""
    n = len(own)
    try:
        batch = np.broadcast_shapes(*(x.shape[: x.ndim - n] for _, x in parts))
    except ValueError:
        raise InputError(
            f"the batch axes of the wrenches in f_ext do not fit together: {[x.shape[: x.ndim - n] for _, x in parts]}"
        ) from None
    out = np.zeros((*batch, model.n_links, *own), np.result_type(float, *(x for _, x in parts)))
    for link, x in parts:
        np.moveaxis(out, -1 - n, 0)[link - 1] += x
    return out


def _no_forces(slope: str) -> InputError:
    return InputError(f"{slope}= is a slope of f_ext, which is not given; give f_ext, zeros if it vanishes here")


def _known_slope(slope: str) -> InputError:
    return InputError(
        f"{slope}= is a slope of forces in the links' frames, and these are in the world's axes, whose slope is known; for "
        f"others give forces and slopes in the links' frames, as robot.link_forces(q, f_ext, 'world') has them"
    )
