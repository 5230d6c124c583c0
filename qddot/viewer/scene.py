"""The robot as a scene of viser's: links, and what may be shown beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.errors import printable
from qddot.formats.files import plain_name
from qddot.mechanism.model import Model
from qddot.spatial.rotation import quaternions_of
from qddot.viewer import shapes, urdf_shapes
from qddot.viewer.geometry import Mesh, along, simplified
from qddot.viewer.protocols import ShownRobot
from qddot.viewer.shapes import Shape

Array = NDArray[Any]

LAYERS = ("frames", "centre of mass", "inertia ellipsoids", "weights", "torques", "external forces")
_ORIGIN = np.zeros(3)
_MAX_SCENE_FACES = 120_000
_MAX_NOTES, _MAX_NOTE_CHARS = 30, 500  # characters
_TORQUE, _FORCE, _WEIGHT, _COM, _ELLIPSOID = (200, 30, 10), (0, 110, 30), (20, 40, 160), (220, 0, 120), (250, 190, 60)


class Scene:
    """A robot in a viser server, that will be in such `configurations`.

    `place` moves it; `show_layer` shows and hides what is drawn beside the links.
    """

    def __init__(self, server: Any, robot: ShownRobot, configurations: Array) -> None:
        q = configurations[0]
        self.server, self.robot, self.model = server, robot, robot.model
        self.up = _up(self.model)
        self.notes: list[str] = []
        self.shapes = self._shapes()
        self.size, self.center, self.floor = self._extent(configurations)
        self._lighten()
        self.visible = dict.fromkeys(LAYERS, False)
        self.state: tuple[Array, Array | None, Array | None, Array | None] = (q, None, None, None)
        self.largest = {"torques": 0.0, "external forces": 0.0}  # what the longest arrow stands for; grows if it must
        self._ground()
        self._camera()
        self._links()
        self._layers()
        self.place(q)

    # ---- what is drawn

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

    def _lighten(self) -> None:
        """Meshes made for manufacture have more faces than a page can draw quickly."""
        cell = self.size / 500.0
        while (
            sum(len(s.mesh.faces) for s in self.shapes if s.textured is None) > _MAX_SCENE_FACES
            and cell < self.size / 100.0
        ):
            kept = (s.mesh if s.textured is not None else simplified(s.mesh, cell) for s in self.shapes)
            self.shapes = [s._replace(mesh=m) for s, m in zip(self.shapes, kept, strict=True)]
            cell *= 1.5

    def _extent(self, configurations: Array) -> tuple[float, Array, float]:
        """How large the robot is, the middle of where it goes, and how high its lowest point is."""
        origin = [] if self._floats else [np.zeros((1, 3))]  # where a robot stands belongs to it
        boxes = []
        for poses in map(self._poses, configurations):
            placed = [_some(s.mesh.vertices) @ poses[s.link][:3, :3].T + poses[s.link][:3, 3] for s in self.shapes]
            boxes.append(np.concatenate([*placed, *origin]) if placed or origin else np.zeros((1, 3)))
        first, everything = boxes[0], np.concatenate(boxes)
        size = float(np.linalg.norm(first.max(axis=0) - first.min(axis=0))) or 1.0
        middle = (everything.min(axis=0) + everything.max(axis=0)) / 2.0
        return size, middle, float(np.min(everything @ self.up))

    @property
    def _floats(self) -> bool:
        return any(p == 0 and self.model.joint[i].is_floating for i, p in self.model.outward())

    def _ground(self) -> None:
        scene, cell = self.server.scene, _round(self.size / 5.0)
        scene.set_up_direction(tuple(self.up.tolist()))
        width = float(np.ceil(4.0 * self.size / cell) * cell)
        turn, at = quaternions_of(along(self.up)), self.up * (self.floor - 1e-3 * self.size)
        scene.add_grid("/ground", width=width, height=width, cell_size=cell, section_size=5 * cell, wxyz=turn, position=at)

    def _camera(self) -> None:
        """Looks at a planar mechanism along its axes, at others from the front, a little from the side and from above."""
        axis, x = self._planar(), np.array([1.0, 0.0, 0.0])
        front = x - self.up * (x @ self.up)
        front = front / np.linalg.norm(front) if np.linalg.norm(front) > 0.1 else np.array([0.0, 1.0, 0.0])
        away = front + 0.5 * np.cross(self.up, front) + 0.4 * self.up if axis is None else 1.2 * axis + 0.15 * self.up
        camera = self.server.initial_camera
        camera.position, camera.look_at, camera.up = self.center + 1.05 * self.size * away, self.center, self.up

    def _planar(self) -> Array | None:
        """The common axis of a mechanism whose hinges are all parallel and level."""
        poses = self._poses(self.robot.neutral())
        axes = [
            poses[i][:3, :3] @ np.array(getattr(self.model.joint[i], "axis", (0, 0, 0))) for i, _ in self.model.outward()
        ]
        if len(axes) < 2 or not all(np.linalg.norm(a) > 0.5 for a in axes):
            return None
        first = axes[0]
        parallel = all(abs(abs(a @ first) - 1.0) < 1e-6 for a in axes)
        return first if parallel and abs(first @ self.up) < 1e-6 else None

    def _links(self) -> None:
        scene, length = self.server.scene, 0.08 * self.size
        self.links = [
            scene.add_frame(f"/robot/{i}", show_axes=False, axes_length=length, axes_radius=length / 20)
            for i in range(len(self.model.parent))
        ]
        for k, shape in enumerate(self.shapes):
            self._add(f"/robot/{shape.link}/shape{k}", shape)

    def _add(self, name: str, shape: Shape) -> None:
        if shape.textured is not None:
            self.server.scene.add_mesh_trimesh(name, shape.textured)
            return
        opacity = None if shape.opacity >= 1.0 else shape.opacity
        add, mesh = self.server.scene.add_mesh_simple, shape.mesh
        add(name, mesh.vertices, mesh.faces, color=shape.color, opacity=opacity, side="double")

    def _layers(self) -> None:
        scene, r = self.server.scene, 0.007 * self.size
        self.tips = [max(ends, key=np.linalg.norm, default=np.zeros(3)) for ends in shapes.ends(self.model)]
        self.com = scene.add_icosphere("/com", radius=4 * r, color=_COM, visible=False)
        self.plumb = scene.add_line_segments("/plumb", np.zeros((1, 2, 3)), _COM, thickness=0.6 * r, visible=False)
        self.ellipsoids = []
        for i, _ in self.model.outward():
            mesh = shapes.ellipsoid(self.model, i)
            if mesh is not None:
                self.ellipsoids.append(self._translucent(f"/robot/{i}/ellipsoid", mesh))
        nothing, sizes = np.zeros((1, 2, 3)), {"shaft_radius": 2.2 * r, "head_radius": 4.5 * r, "head_length": 8 * r}
        self.arrows = {  # of each link in its own frame, so that they move with it
            name: [
                scene.add_arrows(f"/robot/{i}/{name.replace(' ', '_')}", nothing, color, visible=False, **sizes)
                for i, _ in self.model.outward()
            ]
            for name, color in (("weights", _WEIGHT), ("torques", _TORQUE), ("external forces", _FORCE))
        }

    def _translucent(self, name: str, mesh: Mesh) -> Any:
        add = self.server.scene.add_mesh_simple
        return add(name, mesh.vertices, mesh.faces, color=_ELLIPSOID, opacity=0.45, side="double", visible=False)

    # ---- what moves

    def _poses(self, q: Array) -> Array:
        return np.concatenate([np.eye(4)[None], self.robot.forward_kinematics(q)])

    def place(self, q: Array, tau: Array | None = None, f_ext: Array | None = None) -> None:
        """Puts the robot into a configuration, with the torques and forces that act there."""
        poses = self._poses(q)
        self.state = (q, poses, tau, f_ext)
        turns = quaternions_of(poses[:, :3, :3])
        with self.server.atomic():
            for handle, T, turn in zip(self.links[1:], poses[1:], turns[1:], strict=True):
                handle.position, handle.wxyz = T[:3, 3], turn
            self._place_layers()

    def show_layer(self, name: str, shown: bool) -> None:
        """Shows or hides one of `LAYERS`."""
        self.visible[name] = shown
        with self.server.atomic():
            if name == "frames":
                for handle in self.links:
                    handle.show_axes = shown
            for handle in self.ellipsoids if name == "inertia ellipsoids" else ():
                handle.visible = shown
            self._place_layers()

    def _place_layers(self) -> None:
        q, poses, tau, f_ext = self.state
        if poses is None:
            return
        self.com.visible = self.plumb.visible = self.visible["centre of mass"] and self.robot.mass > 0.0
        if self.com.visible:
            c = self.com.position = self.robot.center_of_mass(q)
            self.plumb.points = np.array([[c, c - self.up * (c @ self.up - self.floor)]], dtype=np.float32)
        self._draw("weights", self._weights(poses) if self.visible["weights"] else [])
        self._draw("torques", self._torques(tau) if self.visible["torques"] and tau is not None else [])
        pushes = f_ext if self.visible["external forces"] else None
        self._draw("external forces", [] if pushes is None else self._forces(pushes))

    def _draw(self, name: str, arrows: list[tuple[Array, Array]]) -> None:
        """An arrow a link, from a point and along a way in the link's frame; none where it would be too short to see."""
        for k, handle in enumerate(self.arrows[name]):
            start, way = arrows[k] if arrows else (_ORIGIN, _ORIGIN)
            shown = bool(np.linalg.norm(way) > 0.01 * self.size)
            if shown:
                handle.points = np.array([[start, start + way]], dtype=np.float32)
            if handle.visible != shown:
                handle.visible = shown

    def _weights(self, poses: Array) -> list[tuple[Array, Array]]:
        """Weights at the links' centres of mass; the whole robot's would be half its size."""
        g, rows = np.array(self.model.gravity, dtype=float), []
        whole = max(float(np.linalg.norm(g)) * self.robot.mass, 1e-300)
        for i, _ in self.model.outward():
            I = self.model.inertia[i]
            center = np.array(I.h) / I.m if I.m > 0.0 else _ORIGIN
            rows.append((center, poses[i][:3, :3].T @ g * I.m / whole * 0.5 * self.size))
        return rows

    def _torques(self, tau: Array) -> list[tuple[Array, Array]]:
        """Along the axes of the joints, from their origins: a torque by the right-hand rule."""
        rows, scale = [], self._scale("torques", tau)
        for i, _ in self.model.outward():
            slot, axis = self.model.slots[i].v, getattr(self.model.joint[i], "axis", None)
            own = self.model.mimic[i] is None and slot.stop - slot.start == 1 and axis is not None
            rows.append((_ORIGIN, np.array(axis, dtype=float) * tau[slot.start] * scale if own else _ORIGIN))
        return rows

    def _forces(self, f_ext: Array) -> list[tuple[Array, Array]]:
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


def _round(x: float) -> float:
    """The largest of 1, 2 and 5 times a power of ten that is not above x."""
    power = 10.0 ** np.floor(np.log10(x))
    return float(max(k * power for k in (1.0, 2.0, 5.0) if k * power <= x * (1.0 + 1e-12)))


def some_of(q: Array) -> Array:
    """A few configurations of a motion, the first among them: enough to see where it goes."""
    return q[:: max(1, len(q) // 8)]


def _some(vertices: Array) -> Array:
    return vertices[:: max(1, len(vertices) // 500)]


def _up(model: Model) -> Array:
    g = np.array(model.gravity, dtype=float)
    return -g / np.linalg.norm(g) if np.linalg.norm(g) > 0.0 else np.array([0.0, 0.0, 1.0])
