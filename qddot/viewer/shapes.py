"""What links look like: rods and joints drawn from the model alone, where its file has no shapes of them."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qddot.mechanism.model import Model
from qddot.spatial import Transform
from qddot.viewer.geometry import Mesh, along, box, capsule, cylinder, joined, sphere

Array = NDArray[Any]
Color = tuple[int, int, int]

RODS: tuple[Color, ...] = ((66, 135, 200), (236, 140, 58), (94, 166, 110), (190, 90, 100), (140, 115, 185), (120, 130, 140))
HINGES: Color = (70, 74, 82)
GROUND: Color = (125, 128, 135)
_THIN, _THICK = 0.02, 0.45  # a rod's radius, by the size of the robot and by its own length


class Shape(NamedTuple):
    """Something to draw that is fixed to a link, in that link's frame. `textured` is a trimesh with its own colours."""

    link: int
    mesh: Mesh
    color: Color
    opacity: float = 1.0
    textured: Any = None


def matrix(T: Transform) -> Array:
    """4×4 of a transform of plain numbers."""
    out = np.eye(4)
    out[:3, :3], out[:3, 3] = np.array(T.R.rows, dtype=float), np.array(T.p, dtype=float)
    return out


def drawn(model: Model, but: Container[int] = ()) -> list[Shape]:
    """Rods between the joints of every link except some, hinges at its own joint, blocks for bodies that carry many."""
    held = ends(model)
    size = _size(model, held)
    shapes = []
    for i in range(len(model.parent)):
        if i in but:
            continue
        parts = [_rod(end, size) for end in held[i] if np.linalg.norm(end) > 1e-3 * size]
        body = _body(model, i, size) if i and (len(held[i]) > 2 or not parts) else None
        color = GROUND if i == 0 else RODS[(i - 1) % len(RODS)]
        if body is not None:
            parts.append(body)
        if i and not parts:
            parts = [sphere(0.8 * _radius(size, size))]
        if parts and (i or np.isfinite(size)):
            shapes.append(Shape(i, joined(parts), color))
        if i and (hinge := _hinge(model, i, size)) is not None:
            shapes.append(Shape(i, hinge, HINGES))
    return shapes


def ends(model: Model) -> list[list[Array]]:
    """Where else each link is held, in its own frame: at its children's joints and loops; if nowhere, its far end."""
    found: list[list[Array]] = [[] for _ in model.parent]
    for i, p in model.outward():
        if model.joint[i].nv < 6:  # what floats is not held by its parent
            found[p].append(np.array(model.placement[i].p, dtype=float))
    for loop in model.loops:
        found[loop.link_a].append(np.array(loop.placement_a.p, dtype=float))
        found[loop.link_b].append(np.array(loop.placement_b.p, dtype=float))
    for i, _ in model.outward():
        if not any(np.any(end) for end in found[i]):
            tips = [np.array(f.placement.p, dtype=float) for f in model.frames if f.link == i]
            center = np.array(model.inertia[i].h) / model.inertia[i].m if model.inertia[i].m > 0.0 else np.zeros(3)
            found[i] = [max([*tips, 2.0 * center], key=lambda x: float(np.linalg.norm(x)))]
    return found


def _size(model: Model, held: list[list[Array]]) -> float:
    """About how large the robot is: the longest way of rods from a root to a tip."""
    reach = np.zeros(len(model.parent))
    for i, p in model.outward():
        step = np.linalg.norm(np.array(model.placement[i].p, dtype=float)) if p else 0.0
        reach[i] = reach[p] + step
    longest = [reach[i] + max((float(np.linalg.norm(e)) for e in held[i]), default=0.0) for i in range(1, len(reach))]
    return max([x for x in longest if x > 0.0], default=1.0)


def _radius(size: float, length: float) -> float:
    return min(_THIN * size, _THICK * length)


def _rod(end: Array, size: float) -> Mesh:
    return capsule(np.zeros(3), end, _radius(size, float(np.linalg.norm(end))))


def _hinge(model: Model, i: int, size: float) -> Mesh | None:
    """A short drum about the axis of a joint that turns, a sleeve along the axis of one that slides."""
    joint, r = model.joint[i], _radius(size, size)
    axis = getattr(joint, "axis", None)
    if axis is None or joint.nv > 2:
        return None if joint.nv > 3 else sphere(1.5 * r)
    drum = cylinder(1.35 * r, 2.6 * r) if joint.is_angle[0] else box((2.4 * r, 2.4 * r, 3.0 * r))
    T = np.eye(4)
    T[:3, :3] = along(axis)
    return drum.moved(T)


def _body(model: Model, i: int, size: float) -> Mesh | None:
    """The uniform block that has the mass and inertia of a link, if there is one and it is not out of all proportion."""
    found = principal(model, i)
    if found is None:
        return None
    pose, moments = found
    squares = 6.0 * (np.sum(moments) - 2.0 * moments) / model.inertia[i].m
    edges = np.sqrt(np.maximum(squares, (0.5 * _THIN * size) ** 2))
    return None if np.max(edges) > 2.0 * size else box(edges).moved(pose)


def principal(model: Model, i: int) -> tuple[Array, Array] | None:
    """The pose of a link's principal axes at its centre of mass, and the moments of inertia about them."""
    I = model.inertia[i]
    if not I.m > 0.0:
        return None
    c = np.array(I.h) / I.m
    about_center = np.array(I.I, dtype=float) - I.m * (np.dot(c, c) * np.eye(3) - np.outer(c, c))
    moments, axes = np.linalg.eigh(about_center)
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = axes * np.sign(np.linalg.det(axes)), c
    return T, np.maximum(moments, 0.0)


def ellipsoid(model: Model, i: int) -> Mesh | None:
    """The uniform ellipsoid that has the mass and inertia of a link."""
    found = principal(model, i)
    if found is None or not np.any(found[1]):
        return None
    pose, moments = found
    squares = 2.5 * (np.sum(moments) - 2.0 * moments) / model.inertia[i].m
    radii = np.sqrt(np.maximum(squares, 1e-4 * np.max(squares)))
    return sphere(radii).moved(pose)
