"""Shapes as triangles, as a viewer needs them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Mesh(NamedTuple):
    """Triangles: vertices (n, 3) and the vertices of each face, counterclockwise from outside, (m, 3)."""

    vertices: Array
    faces: Array

    def moved(self, T: Array) -> Mesh:
        """Seen from the frame in which the mesh's own frame has the pose T."""
        return Mesh(self.vertices @ T[:3, :3].T + T[:3, 3], self.faces)

    def scaled(self, by: Any) -> Mesh:
        """Stretched along its axes; a mirror turns the faces round again."""
        factors = np.broadcast_to(np.asarray(by, dtype=float), 3)
        faces = self.faces if np.prod(factors) > 0.0 else self.faces[:, ::-1]
        return Mesh(self.vertices * factors, faces)


def simplified(mesh: Mesh, cell: float) -> Mesh:
    """Fewer faces: vertices that fall into one cell of a grid become their mean."""
    keys = np.floor(mesh.vertices / cell).astype(np.int64)
    _, cluster, count = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    cluster = cluster.reshape(-1)
    means = np.stack([np.bincount(cluster, weights=x) for x in mesh.vertices.T], -1) / count[:, None]
    faces = cluster[mesh.faces]
    a, b, c = faces.T
    return Mesh(means, faces[(a != b) & (b != c) & (c != a)])


def joined(meshes: Iterable[Mesh]) -> Mesh:
    """Several meshes as one."""
    parts = list(meshes)
    starts = np.cumsum([0, *(len(m.vertices) for m in parts)])
    faces = [m.faces + k for m, k in zip(parts, starts, strict=False)]
    return Mesh(np.concatenate([m.vertices for m in parts]), np.concatenate(faces))


def box(size: Any) -> Mesh:
    """A box about the origin. Its faces share no vertices, so that its edges stay sharp."""
    corners: list[Array] = []
    faces: list[tuple[int, int, int]] = []
    for axis in range(3):
        for side in (-0.5, 0.5):
            u, v = np.eye(3)[(axis + 1) % 3], np.eye(3)[(axis + 2) % 3]
            ring = [(-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5)]
            k = len(corners)
            corners += [side * np.eye(3)[axis] + a * u + b * v for a, b in ring]
            faces += [(k, k + 1, k + 2), (k, k + 2, k + 3)] if side > 0.0 else [(k, k + 2, k + 1), (k, k + 3, k + 2)]
    return Mesh(np.array(corners), np.array(faces)).scaled(size)


def turned(profile: Array, around: int = 24) -> Mesh:
    """The surface that a line of points (radius, height) makes when it goes round the z axis, from below upward."""
    angle = 2.0 * np.pi * np.arange(around) / around
    r, z = profile[:, :1], profile[:, 1:]
    vertices = np.stack([r * np.cos(angle), r * np.sin(angle), z + 0.0 * angle], -1).reshape(-1, 3)
    i, j = (x.reshape(-1) for x in np.meshgrid(np.arange(len(profile) - 1), np.arange(around), indexing="ij"))
    a, b = i * around + j, i * around + (j + 1) % around
    c, d = a + around, b + around
    return Mesh(vertices, np.concatenate([np.stack([a, b, d], -1), np.stack([a, d, c], -1)]))


def cylinder(radius: float, length: float) -> Mesh:
    """A cylinder about the origin along z, with sharp rims."""
    h = length / 2.0
    side = turned(np.array([(radius, -h), (radius, h)]))
    return joined([side, turned(np.array([(0.0, -h), (radius, -h)])), turned(np.array([(radius, h), (0.0, h)]))])


def sphere(radius: Any) -> Mesh:
    """A sphere about the origin; with three radii, an ellipsoid."""
    angle = np.linspace(-np.pi / 2.0, np.pi / 2.0, 13)
    return turned(np.stack([np.cos(angle), np.sin(angle)], -1)).scaled(radius)


def capsule(a: Any, b: Any, radius: float) -> Mesh:
    """A rod with round ends from a to b."""
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    length = float(np.linalg.norm(b - a))
    low, high = np.linspace(-np.pi / 2.0, 0.0, 7), np.linspace(0.0, np.pi / 2.0, 7)
    ends = [np.stack([np.cos(low), np.sin(low)], -1), np.stack([np.cos(high), np.sin(high) + length / radius], -1)]
    return turned(radius * np.concatenate(ends)).moved(_pose(a, along(b - a)))


def along(direction: Any) -> Array:
    """A rotation that takes z to a direction."""
    z = np.asarray(direction, dtype=float)
    length = np.linalg.norm(z)
    if length == 0.0:
        return np.eye(3)
    z = z / length
    x = np.cross(np.eye(3)[np.argmin(np.abs(z))], z)
    x = x / np.linalg.norm(x)
    return np.stack([x, np.cross(z, x), z], -1)


def _pose(p: Array, R: Array) -> Array:
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = R, p
    return T
