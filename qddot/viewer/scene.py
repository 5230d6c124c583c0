"""The robot as a scene of viser's: links, and what may be shown beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.spatial.rotation import quaternions_of
from qddot.viewer import shapes
from qddot.viewer.geometry import Mesh, along
from qddot.viewer.protocols import ShownRobot
from qddot.viewer.shapes import Shape
from qddot.viewer.stage import ARROWS, COLORS, LAYERS, Stage

Array = NDArray[Any]

_ORIGIN = np.zeros(3)


class Scene(Stage):
    """A robot in a viser server, that will be in such `configurations`.

    `place` moves it; `show_layer` shows and hides what is drawn beside the links.
    """

    def __init__(self, server: Any, robot: ShownRobot, configurations: Array) -> None:
        q = configurations[0]
        super().__init__(robot, configurations)
        self.server = server
        self.visible = dict.fromkeys(LAYERS, False)
        self.state: tuple[Array, Array | None, Array | None, Array | None] = (q, None, None, None)
        self._ground()
        self._camera()
        self._links()
        self._layers()
        self.place(q)

    # ---- what is drawn

    def _ground(self) -> None:
        scene, cell = self.server.scene, self.grid_cell
        scene.set_up_direction(tuple(self.up.tolist()))
        width = float(np.ceil(4.0 * self.size / cell) * cell)
        turn, at = quaternions_of(along(self.up)), self.up * (self.floor - 1e-3 * self.size)
        scene.add_grid("/ground", width=width, height=width, cell_size=cell, section_size=5 * cell, wxyz=turn, position=at)

    def _camera(self) -> None:
        camera = self.server.initial_camera
        camera.position = self.center + 1.05 * self.size * self.view_direction()
        camera.look_at, camera.up = self.center, self.up

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
        com, points = COLORS["centre of mass"], np.zeros((1, 2, 3))
        self.com = scene.add_icosphere("/com", radius=4 * r, color=com, visible=False)
        self.plumb = scene.add_line_segments("/plumb", points, com, thickness=0.6 * r, visible=False)
        self.ellipsoids = []
        for i, _ in self.model.outward():
            mesh = shapes.ellipsoid(self.model, i)
            if mesh is not None:
                self.ellipsoids.append(self._translucent(f"/robot/{i}/ellipsoid", mesh))
        nothing, sizes = np.zeros((1, 2, 3)), {"shaft_radius": 2.2 * r, "head_radius": 4.5 * r, "head_length": 8 * r}
        self.arrows = {  # of each link in its own frame, so that they move with it
            name: [
                scene.add_arrows(f"/robot/{i}/{name.replace(' ', '_')}", nothing, COLORS[name], visible=False, **sizes)
                for i, _ in self.model.outward()
            ]
            for name in ARROWS
        }

    def _translucent(self, name: str, mesh: Mesh) -> Any:
        add = self.server.scene.add_mesh_simple
        return add(
            name, mesh.vertices, mesh.faces, color=COLORS["inertia ellipsoids"], opacity=0.45, side="double", visible=False
        )

    # ---- what moves

    def place(self, q: Array, tau: Array | None = None, f_ext: Array | None = None) -> None:
        """Puts the robot into a configuration, with the torques and forces that act there."""
        poses = self.poses(q)
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
        for name in ARROWS:
            self._draw(name, self.arrows_of(name, poses, tau, f_ext) if self.visible[name] else [])

    def _draw(self, name: str, arrows: list[tuple[Array, Array]]) -> None:
        """An arrow a link, from a point and along a way in the link's frame; none where it would be too short to see."""
        for k, handle in enumerate(self.arrows[name]):
            start, way = arrows[k] if arrows else (_ORIGIN, _ORIGIN)
            shown = bool(np.linalg.norm(way) > 0.01 * self.size)
            if shown:
                handle.points = np.array([[start, start + way]], dtype=np.float32)
            if handle.visible != shown:
                handle.visible = shown
