"""A robot as something to draw: its shapes, how large it is, where to look from, and the arrows beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.errors import printable
from qddot.formats.files import plain_name
from qddot.mechanism.model import Model
from qddot.viewer import shapes, urdf_shapes
from qddot.viewer.geometry import simplified, sphere
from qddot.viewer.protocols import ShownRobot
from qddot.viewer.shapes import Shape

Array = NDArray[Any]

LAYERS = ("frames", "centre of mass", "inertia ellipsoids", "weights", "torques", "external forces")
COLORS = {  # of what is drawn beside the links
    "centre of mass": (220, 0, 120),
    "inertia ellipsoids": (250, 190, 60),
    "weights": (20, 40, 160),
    "torques": (200, 30, 10),
    "external forces": (0, 110, 30),
}
ARROWS = ("weights", "torques", "external forces")
_ORIGIN = np.zeros(3)
_MAX_NOTES, _MAX_NOTE_CHARS = 30, 500  # characters


class Stage:
    """A robot that will be in such `configurations`: shapes in the frames of links, and arrows for forces.

    `size` is about its length, `center` the middle of where it goes, `extremes` are points on the hull of that, and `floor`
    is the height of the lowest along `up`.
    """

    def __init__(self, robot: ShownRobot, configurations: Array, max_faces: int = 120_000) -> None:
        self.robot, self.model = robot, robot.model
        self.up = _up(self.model)
        self.notes: list[str] = []
        self.shapes = self._shapes()
        self.size, self.center, self.extremes = self._extent(configurations)
        self.floor = float(np.min(self.extremes @ self.up))
        self._lighten(max_faces)
        self.tips = [max(ends, key=np.linalg.norm, default=_ORIGIN) for ends in shapes.ends(self.model)]
        self.largest = {"torques": 0.0, "external forces": 0.0}  # what the longest arrow stands for; grows if it must

    def _shapes(self) -> list[Shape]:
        """Those of the robot's file, and rods for links without."""
        found = urdf_shapes.Visuals()
        if plain_name(self.model.source.lower()).endswith((".urdf", ".xml")):
            model = self.model
            found = urdf_shapes.read(model, model.source, model.package_dirs, model.trusted)
        if found.missing:
            first, count = found.missing[0], len(set(found.missing))
            many = "1 mesh file is not found:" if count == 1 else f"{count} mesh files are not found, the first is"
            fix = f"say where {_package(first)!r} is by load(..., package_dirs=[…]) or --package-dir"
            self.notes.append(f"{many} {first}; {fix}; links without shape are drawn as rods")
        for name in dict.fromkeys(found.outside):
            fix = "name their folder in load(..., package_dirs=[…]) or --package-dir, or load with trust=True"
            self.notes.append(f"mesh {name} is not opened: it lies outside of the robot's folder and packages; {fix}")
        self.notes += [f"mesh {name} cannot be read" for name in dict.fromkeys(found.unread)]
        self.notes += [f"mesh {remark}" for remark in dict.fromkeys(found.remarks)]
        self.notes = [
            printable(note if len(note) <= _MAX_NOTE_CHARS else f"{note[:_MAX_NOTE_CHARS]}…")
            for note in self.notes[:_MAX_NOTES]
        ]
        with_shape = {s.link for s in found.shapes}
        if not with_shape:
            return shapes.drawn(self.model)
        return found.shapes + shapes.drawn(self.model, but={0, *with_shape, *self._small(with_shape)})

    def _small(self, with_shape: set[int]) -> set[int]:
        """Links without shape that need no rod: those without mass, and those that only join two that have shapes."""
        light = 1e-3 * max(self.robot.mass, 1e-12)
        return {i for i, p in self.model.outward() if self.model.inertia[i].m <= light or p in with_shape}

    def _lighten(self, max_faces: int) -> None:
        """Meshes made for manufacture have more faces than a page can draw quickly."""
        cell = self.size / 500.0
        while sum(len(s.mesh.faces) for s in self.shapes if s.textured is None) > max_faces and cell < self.size / 100.0:
            kept = (s.mesh if s.textured is not None else simplified(s.mesh, cell) for s in self.shapes)
            self.shapes = [s._replace(mesh=m) for s, m in zip(self.shapes, kept, strict=True)]
            cell *= 1.5

    def _extent(self, configurations: Array) -> tuple[float, Array, Array]:
        """How large the robot is, the middle of where it goes, and the points that are farthest in some direction."""
        origin = [] if self._floats else [np.zeros((1, 3))]  # where a robot stands belongs to it
        boxes = []
        for poses in map(self.poses, configurations):
            placed = [_some(s.mesh.vertices) @ poses[s.link][:3, :3].T + poses[s.link][:3, 3] for s in self.shapes]
            boxes.append(np.concatenate([*placed, *origin]) if placed or origin else np.zeros((1, 3)))
        first, everything = boxes[0], np.concatenate(boxes)
        size = float(np.linalg.norm(first.max(axis=0) - first.min(axis=0))) or 1.0
        middle = (everything.min(axis=0) + everything.max(axis=0)) / 2.0
        directions = np.concatenate([sphere(1.0).vertices, [self.up, -self.up]])
        return size, middle, everything[np.unique(np.argmax(everything @ directions.T, axis=0))]

    @property
    def _floats(self) -> bool:
        return any(p == 0 and self.model.joint[i].is_floating for i, p in self.model.outward())

    def view_direction(self) -> Array:
        """From the center to the camera, times the size: along the axes of a planar mechanism, at others from the front, a
        little from the side and from above."""
        axis, x = self._planar(), np.array([1.0, 0.0, 0.0])
        front = x - self.up * (x @ self.up)
        front = front / np.linalg.norm(front) if np.linalg.norm(front) > 0.1 else np.array([0.0, 1.0, 0.0])
        away = front + 0.5 * np.cross(self.up, front) + 0.4 * self.up if axis is None else 1.2 * axis + 0.15 * self.up
        return np.asarray(away, dtype=float)

    @property
    def grid_cell(self) -> float:
        """The side of a square of the ground's grid: a round number, about a fifth of the size."""
        x = self.size / 5.0
        power = 10.0 ** np.floor(np.log10(x))
        return float(max(k * power for k in (1.0, 2.0, 5.0) if k * power <= x * (1.0 + 1e-12)))

    def _planar(self) -> Array | None:
        """The common axis of a mechanism whose hinges are all parallel and level."""
        poses = self.poses(self.robot.neutral())
        axes = [
            poses[i][:3, :3] @ np.array(getattr(self.model.joint[i], "axis", (0, 0, 0))) for i, _ in self.model.outward()
        ]
        if len(axes) < 2 or not all(np.linalg.norm(a) > 0.5 for a in axes):
            return None
        first = axes[0]
        parallel = all(abs(abs(a @ first) - 1.0) < 1e-6 for a in axes)
        return first if parallel and abs(first @ self.up) < 1e-6 else None

    def poses(self, q: Array) -> Array:
        """(..., links + 1, 4, 4), the world's first."""
        links = self.robot.forward_kinematics(q)
        world = np.broadcast_to(np.eye(4), (*links.shape[:-3], 1, 4, 4))
        return np.concatenate([world, links], axis=-3)

    def arrows_of(self, layer: str, poses: Array, tau: Array | None, f_ext: Array | None) -> list[tuple[Array, Array]]:
        """An arrow a link, from a point and along a way in the link's frame; none where nothing is known."""
        if layer == "weights":
            return self.weights(poses)
        if layer == "torques":
            return [] if tau is None else self.torques(tau)
        return [] if f_ext is None else self.forces(f_ext)

    def weights(self, poses: Array) -> list[tuple[Array, Array]]:
        """Weights at the links' centres of mass; the whole robot's would be half its size."""
        g, rows = np.array(self.model.gravity, dtype=float), []
        whole = max(float(np.linalg.norm(g)) * self.robot.mass, 1e-300)
        for i, _ in self.model.outward():
            I = self.model.inertia[i]
            center = np.array(I.h) / I.m if I.m > 0.0 else _ORIGIN
            rows.append((center, poses[i][:3, :3].T @ g * I.m / whole * 0.5 * self.size))
        return rows

    def torques(self, tau: Array) -> list[tuple[Array, Array]]:
        """Along the axes of the joints, from their origins: a torque by the right-hand rule."""
        rows, scale = [], self._scale("torques", tau)
        for i, _ in self.model.outward():
            slot, axis = self.model.slots[i].v, getattr(self.model.joint[i], "axis", None)
            own = self.model.mimic[i] is None and slot.stop - slot.start == 1 and axis is not None
            rows.append((_ORIGIN, np.array(axis, dtype=float) * tau[slot.start] * scale if own else _ORIGIN))
        return rows

    def forces(self, f_ext: Array) -> list[tuple[Array, Array]]:
        """Forces on the links, on the line that their moment says, where it passes the far end of the link."""
        rows, scale = [], self._scale("external forces", f_ext[:, 3:])
        for k, (m, f) in enumerate(zip(f_ext[:, :3], f_ext[:, 3:], strict=True)):
            square = max(float(f @ f), 1e-300)
            p = np.cross(f, m) / square  # the point of the line nearest to the link's origin
            rows.append((p + f * float((self.tips[k + 1] - p) @ f) / square, f * scale))
        return rows

    def _scale(self, name: str, values: Array) -> float:
        self.largest[name] = max(self.largest[name], float(np.max(np.abs(values), initial=0.0)))
        return 0.5 * self.size / self.largest[name] if self.largest[name] > 0.0 else 0.0


def _package(name: str) -> str:
    """The folder that a mesh's name begins with."""
    return name.partition("://")[2].partition("/")[0] or name


def some_of(q: Array) -> Array:
    """A few configurations of a motion, the first among them: enough to see where it goes."""
    return q[:: max(1, len(q) // 8)]


def _some(vertices: Array) -> Array:
    return vertices[:: max(1, len(vertices) // 500)]


def _up(model: Model) -> Array:
    g = np.array(model.gravity, dtype=float)
    return -g / np.linalg.norm(g) if np.linalg.norm(g) > 0.0 else np.array([0.0, 0.0, 1.0])
