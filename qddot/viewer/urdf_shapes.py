"""The shapes that a URDF gives its links: boxes, cylinders, spheres, and meshes read by trimesh (extra `[view]`)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.formats import xml
from qddot.formats.places import leads_outside, locate
from qddot.formats.xml import Element
from qddot.mechanism.model import Model
from qddot.mechanism.validation import pose
from qddot.viewer import meshes
from qddot.viewer.geometry import Mesh, box, capsule, cylinder, joined, sphere
from qddot.viewer.shapes import Color, Shape, matrix

Array = NDArray[Any]

_PLAIN: Color = (186, 190, 196)
_MAX_ROBOT_FACES = 20_000_000  # of all meshes of a robot, each as often as it is used


@dataclass
class Visuals:
    """Shapes that were found, and what was not: file names as the URDF has them.

    `outside` are files that are there but not where the URDF may lead; `unread` and `remarks` say why as well.
    """

    shapes: list[Shape] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    files: dict[Path, meshes.Parts] = field(default_factory=dict)  # each is read once
    faces: int = 0  # of all meshes


@dataclass(frozen=True)
class _Place:
    """Where the URDF is, and where it may lead."""

    folder: Path
    package_dirs: Sequence[str]
    trust: bool


def read(model: Model, path: str | os.PathLike[str], package_dirs: Sequence[str] = (), trust: bool = False) -> Visuals:
    """The visual shapes of a URDF, on the links of the model that was read from it."""
    _, robot = xml.load(path)
    found = Visuals()
    if robot.tag != "robot":
        return found
    named = {m.attributes["name"]: _rgba(m) for m in robot.children if m.tag == "material" and "name" in m.attributes}
    place = _Place(Path(path).resolve().parent, package_dirs, trust)
    for link in (e for e in robot.children if e.tag == "link"):
        if link.attributes.get("name") not in model.frame_names:
            continue
        frame = model.frame(link.attributes["name"])
        for visual in (e for e in link.children if e.tag == "visual"):
            T = matrix(frame.placement) @ _origin(visual)
            for shape in _shapes(visual, named, place, found):
                found.shapes.append(_placed(shape, frame.link, T))
    return found


def _placed(shape: Shape, link: int, T: Array) -> Shape:
    textured = None if shape.textured is None else shape.textured.copy().apply_transform(T)
    return shape._replace(link=link, mesh=shape.mesh.moved(T), textured=textured)


def _shapes(visual: Element, named: dict[str, Array | None], place: _Place, found: Visuals) -> Iterator[Shape]:
    color = _color(visual, named)
    plain = _PLAIN if color is None else tuple(round(255 * float(c)) for c in color[:3])
    opacity = 1.0 if color is None else float(color[3])
    for geometry in (e for e in visual.children if e.tag == "geometry"):
        for e in geometry.children:
            if e.tag == "mesh":
                yield from _mesh_file(e, color, plain, opacity, place, found)
            elif (mesh := _primitive(e)) is not None:
                yield Shape(0, mesh, plain, opacity)  # type: ignore[arg-type]


def _primitive(e: Element) -> Mesh | None:
    if e.tag == "box":
        return box(_numbers(e, "size", (0.0, 0.0, 0.0)))
    radius, length = _numbers(e, "radius", (0.0,))[0], _numbers(e, "length", (0.0,))[0]
    if e.tag == "sphere":
        return sphere(radius)
    if e.tag == "cylinder":
        return cylinder(radius, length)
    if e.tag == "capsule":
        return capsule((0.0, 0.0, -length / 2.0), (0.0, 0.0, length / 2.0), radius)
    return None


def _mesh_file(
    e: Element, color: Array | None, plain: Any, opacity: float, place: _Place, found: Visuals
) -> Iterator[Shape]:
    name = e.attributes.get("filename", "")
    file = locate(name, place.folder, place.package_dirs, place.trust)
    if file is None:
        where = found.outside if leads_outside(name, place.folder, place.package_dirs) else found.missing
        where.append(name)
        return
    try:
        if file not in found.files:
            found.files[file] = meshes.load(file, place.folder, place.package_dirs, place.trust)
            found.remarks += [f"{name}: {remark}" for remark in found.files[file].remarks]
        parts = found.files[file].parts
        found.faces += sum(len(part.mesh.faces) for part in parts)
        if found.faces > _MAX_ROBOT_FACES and not place.trust:
            raise meshes.MeshError(f"the robot's meshes have more than {_MAX_ROBOT_FACES:,} faces")
    except meshes.MeshError as error:  # a broken mesh is no reason to show nothing
        found.unread.append(f"{name} ({error})")
        return
    scale = _numbers(e, "scale", (1.0, 1.0, 1.0))
    by_color: dict[tuple[Any, float], list[Mesh]] = {}
    for part in parts:
        mesh = part.mesh.scaled(scale)
        if color is None and part.picture is not None:
            yield Shape(0, mesh, _PLAIN, textured=part.picture.copy().apply_scale(scale))
        else:
            own = (_PLAIN, 1.0) if part.color is None else (part.color[:3], part.color[3] / 255.0)
            by_color.setdefault((plain, opacity) if color is not None else own, []).append(mesh)
    for (rgb, alpha), pieces in by_color.items():
        yield Shape(0, joined(pieces), rgb, alpha)


def _color(visual: Element, named: dict[str, Array | None]) -> Array | None:
    for material in (e for e in visual.children if e.tag == "material"):
        own = _rgba(material)
        return own if own is not None else named.get(material.attributes.get("name", ""))
    return None


def _rgba(material: Element) -> Array | None:
    for e in material.children:
        if e.tag == "color":
            return np.clip(_numbers(e, "rgba", (0.7, 0.7, 0.7, 1.0)), 0.0, 1.0)
    return None


def _origin(visual: Element) -> Array:
    for e in visual.children:
        if e.tag == "origin":
            return matrix(pose(_numbers(e, "xyz", (0.0, 0.0, 0.0)), _numbers(e, "rpy", (0.0, 0.0, 0.0))))
    return np.eye(4)


def _numbers(e: Element, attribute: str, default: tuple[float, ...]) -> Array:
    """Shapes do not touch the dynamics: what cannot be read is taken as what it is without."""
    try:
        numbers = np.array([float(w) for w in e.attributes[attribute].split()])
    except (KeyError, ValueError):
        return np.array(default)
    return numbers if len(numbers) == len(default) and np.all(np.isfinite(numbers)) else np.array(default)
