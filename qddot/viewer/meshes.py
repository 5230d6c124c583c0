"""Mesh files, read by trimesh (extra `[view]`) in a child process with limits of time and memory."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from qddot.errors import extra
from qddot.formats import child, places
from qddot.formats.limited import EndedError, Limited
from qddot.viewer.geometry import Mesh

_READER = Limited("mesh")


class MeshError(Exception):
    """A mesh file that cannot be read; the text says why."""


class Part(NamedTuple):
    """One piece of a mesh: its colour (0 to 255, with opacity) if it has one, and a trimesh if a picture is on it."""

    mesh: Mesh
    color: tuple[int, ...] | None
    picture: Any = None


class Parts(NamedTuple):
    """All of a mesh file, and what of it could not be read."""

    parts: list[Part]
    remarks: list[str]


def load(file: Path, folder: Path, package_dirs: Sequence[str] = (), trust: bool = False) -> Parts:
    """The parts of a mesh file in metres, each in the file's own frame, for a robot whose file is in `folder`."""
    trimesh = extra("trimesh", "view", "showing meshes")
    roots = [*places.roots(folder, package_dirs), *places.roots(file.resolve().parent)]
    try:
        if trust:
            remarks: list[str] = []
            found = child.load_mesh(str(file.resolve()), None, remarks)
            own = [Part(_mesh(p.vertices, p.faces), color, p if picture else None) for p, color, picture in found]
            return Parts(own, remarks)
        facts, data = _READER.ask({"file": str(file.resolve()), "roots": [str(root) for root in roots]})
    except EndedError as error:
        raise MeshError(f"its reader {error}; simplify it, or load the robot with trust=True") from None
    except Exception as error:  # of any of the readers that trimesh has
        raise MeshError(f"{type(error).__name__}: {error}") from None
    if "error" in facts:
        raise MeshError(f"{facts['kind']}: {facts['error']}")
    arrays = np.load(io.BytesIO(data), allow_pickle=False)
    parts = []
    for k, about in enumerate(facts["parts"]):
        glb = arrays[f"glb{k}"].tobytes() if about["picture"] else None
        picture = None if glb is None else trimesh.load_scene(io.BytesIO(glb), file_type="glb").dump(concatenate=True)
        color = None if about["color"] is None else tuple(about["color"])
        parts.append(Part(_mesh(arrays[f"vertices{k}"], arrays[f"faces{k}"]), color, picture))
    return Parts(parts, facts["remarks"])


def _mesh(vertices: Any, faces: Any) -> Mesh:
    vertices, faces = np.asarray(vertices, dtype=float), np.asarray(faces)
    if not np.isfinite(vertices).all() or (len(faces) and not 0 <= faces.min() <= faces.max() < len(vertices)):
        raise MeshError("it has vertices that are not finite, or faces of vertices that are not there")
    return Mesh(vertices, faces)
