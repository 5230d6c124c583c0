"""The shapes that a URDF gives its links: boxes, cylinders, spheres, and meshes read by trimesh (extra `[view]`)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.errors import extra
from qddot.formats import xml
from qddot.formats.xml import Element
from qddot.model import Model
from qddot.parts import pose
from qddot.viewer.geometry import Mesh, box, capsule, cylinder, joined, sphere
from qddot.viewer.shapes import Color, Shape, matrix

Array = NDArray[Any]

_PLAIN: Color = (186, 190, 196)
_REFERENCES = re.compile(r"^([A-Za-z]+)://(.*)$")


@dataclass
class Visuals:
    """Shapes that were found, and what was not: file names as the URDF has them."""

    shapes: list[Shape] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


def read(model: Model, path: str | os.PathLike[str], package_dirs: Sequence[str] = ()) -> Visuals:
    """The visual shapes of a URDF, on the links of the model that was read from it."""
    _, robot = xml.load(path)
    found = Visuals()
    if robot.tag != "robot":
        return found
    named = {m.attributes["name"]: _rgba(m) for m in robot.children if m.tag == "material" and "name" in m.attributes}
    folder = Path(path).resolve().parent
    for link in (e for e in robot.children if e.tag == "link"):
        if link.attributes.get("name") not in model.frame_names:
            continue
        frame = model.frame(link.attributes["name"])
        for visual in (e for e in link.children if e.tag == "visual"):
            T = matrix(frame.placement) @ _origin(visual)
            for shape in _shapes(visual, named, folder, package_dirs, found):
                found.shapes.append(_placed(shape, frame.link, T))
    return found


def _placed(shape: Shape, link: int, T: Array) -> Shape:
    textured = None if shape.textured is None else shape.textured.copy().apply_transform(T)
    return shape._replace(link=link, mesh=shape.mesh.moved(T), textured=textured)


def _shapes(
    visual: Element, named: dict[str, Array | None], folder: Path, package_dirs: Sequence[str], found: Visuals
) -> Iterator[Shape]:
    color = _color(visual, named)
    plain = _PLAIN if color is None else tuple(round(255 * float(c)) for c in color[:3])
    opacity = 1.0 if color is None else float(color[3])
    for geometry in (e for e in visual.children if e.tag == "geometry"):
        for e in geometry.children:
            if e.tag == "mesh":
                yield from _mesh_file(e, color, plain, opacity, folder, package_dirs, found)
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
    e: Element,
    color: Array | None,
    plain: Any,
    opacity: float,
    folder: Path,
    package_dirs: Sequence[str],
    found: Visuals,
) -> Iterator[Shape]:
    name = e.attributes.get("filename", "")
    file = locate(name, folder, package_dirs)
    if file is None:
        found.missing.append(name)
        return
    try:
        parts = _load(file)
    except Exception as error:  # of any of the readers that trimesh has: a broken mesh is no reason to show nothing
        found.unread.append(f"{name} ({type(error).__name__}: {error})")
        return
    scale = _numbers(e, "scale", (1.0, 1.0, 1.0))
    by_color: dict[tuple[Any, float], list[Mesh]] = {}
    for part in parts:
        mesh = Mesh(np.asarray(part.vertices), np.asarray(part.faces)).scaled(scale)
        if color is None and _has_picture(part):
            yield Shape(0, mesh, _PLAIN, textured=part.apply_scale(scale))
        else:
            by_color.setdefault((plain, opacity) if color is not None else _own_color(part), []).append(mesh)
    for (rgb, alpha), meshes in by_color.items():
        yield Shape(0, joined(meshes), rgb, alpha)


def _has_picture(part: Any) -> bool:
    material = getattr(part.visual, "material", None)
    return any(getattr(material, name, None) is not None for name in ("image", "baseColorTexture"))


def _own_color(part: Any) -> tuple[Color, float]:
    """The one colour of a part without a picture: its material's, or the mean of its faces'."""
    if part.visual.kind is None:
        return _PLAIN, 1.0
    material = getattr(part.visual, "material", None)
    rgba = np.asarray(part.visual.main_color if material is None else material.main_color, dtype=float)
    r, g, b = (int(x) for x in rgba[:3])
    return (r, g, b), float(rgba[3]) / 255.0


def _load(file: Path) -> list[Any]:
    """The parts of a mesh file in metres, each in the file's own frame."""
    trimesh = extra("trimesh", "view", "showing meshes")
    scene = trimesh.load_scene(str(file))
    unit = re.match(r"^([0-9.eE+-]+) \* meters$", str(scene.units or ""))
    parts = [p for p in scene.dump() if hasattr(p, "faces") and len(p.faces)]
    for part in parts:
        if unit is not None:  # COLLADA says what its numbers are; STL and OBJ are taken as metres
            part.apply_scale(float(unit.group(1)))
    return parts


def locate(name: str, folder: Path, package_dirs: Sequence[str] = ()) -> Path | None:
    """The file that a mesh's name means: in package_dirs, beside or above the URDF, or where ROS says packages are."""
    match = _REFERENCES.match(name)
    scheme, rest = (match.group(1), match.group(2)) if match else ("", name)
    if scheme == "file" or (not scheme and os.path.isabs(rest)):
        return Path(rest) if Path(rest).is_file() else None
    places = [*map(Path, package_dirs), folder, *folder.parents, *_ros_packages()]
    package, _, inside = rest.partition("/")
    for place in places:
        candidates = [place / rest]
        if scheme in ("package", "model") and (place.name == package or place in map(Path, package_dirs)):
            candidates.append(place / inside)
        for candidate in candidates:
            if candidate.is_file():
                return candidate
    return None


def _ros_packages() -> list[Path]:
    ros1 = os.environ.get("ROS_PACKAGE_PATH", "").split(os.pathsep)
    ros2 = [os.path.join(p, "share") for p in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep) if p]
    return [Path(p) for p in (*ros1, *ros2) if p]


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
