"""The page of a run that needs nothing else: the robot drawn by WebGL, curves, and text, in at most 2 MB."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.errors import InputError, printable
from qddot.spatial.rotation import quaternions_of
from qddot.viewer import shapes
from qddot.viewer.curves import COLORS as CURVE_COLORS
from qddot.viewer.curves import diagrams
from qddot.viewer.geometry import Mesh, cylinder, simplified, sphere, turned
from qddot.viewer.protocols import ShownTrajectory
from qddot.viewer.shapes import Shape
from qddot.viewer.stage import ARROWS, COLORS, LAYERS, Stage, some_of

Array = NDArray[Any]

MAX_BYTES = 2_000_000  # of a page
_MAX_FACES = 40_000
_MAX_POSES = 60_000  # frames times links; between frames the page interpolates
_MAX_TRAILS, _TRAIL_SECONDS = 8, 2.0
_FOLLOWED_REACH = 4.0  # a robot that goes farther than so many times its size is followed by the camera
_FOLDER = Path(__file__).parent

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src '{hash}'; style-src 'unsafe-inline'">
<title>{title}</title><style>{style}</style></head>
<body><main><div id="stage"><canvas id="view" aria-label="the robot in motion"></canvas>
<header><h1>{title}</h1>{facts}<p id="problem"></p></header></div>
<nav><div><button id="play">Play</button><input id="time" type="range" aria-label="time"><span id="clock"></span>
<select id="speed" aria-label="speed">{speeds}</select>
<label><input id="follow" type="checkbox"> follow</label></div>
<p>space plays and stops, ← → go by frames, ↑ ↓ change the speed; drag turns, shift-drag moves, the wheel zooms,
R resets the view</p></nav>
</main><aside id="curves"></aside>
<script type="application/json" id="about">{about}</script>
<script>{script}</script></body></html>
"""
_SPEEDS = ("0.1", "0.25", "0.5", "1", "2", "4")


def page_of(
    trajectory: ShownTrajectory, *, frames_a_second: float = 30.0, layers: Sequence[str] = (), title: str | None = None
) -> str:
    """The text of the page: the motion at so many frames a second, with the `layers` named shown."""
    if trajectory.batch:
        raise InputError(f"a page shows one simulation, and this is a batch of {trajectory.batch}: take .sample(k)")
    if unknown := [name for name in layers if name not in LAYERS]:
        raise InputError(f"layer {unknown[0]!r} is not known; take some of {', '.join(LAYERS)}")
    if not 0.0 < frames_a_second < np.inf:
        raise InputError(f"frames_a_second is {frames_a_second}; give a positive number")
    poses, faces = _MAX_POSES, _MAX_FACES
    while True:
        page = _written(_Parts(trajectory, frames_a_second, layers, poses, faces), trajectory, title)
        if len(page.encode()) <= MAX_BYTES or faces < 500:
            return page
        poses, faces = poses // 2, faces // 2


class _Parts:
    """What the scripts of the page read: numbers and names in `about`, arrays by their place in `arrays`."""

    def __init__(
        self, x: ShownTrajectory, frames_a_second: float, layers: Sequence[str], max_poses: int, max_faces: int
    ) -> None:
        self.arrays: list[Array] = []
        self.meshes: list[dict[str, Any]] = []
        x, self.notes = _finite(x)
        links = x.robot.model.n_links
        wanted = round((x.t[-1] - x.t[0]) * frames_a_second) + 1
        arrays = 1 + len(set(layers) & set(ARROWS))
        count = max(2, min(wanted, max_poses // (arrays * max(links, 1))))
        times = np.linspace(x.t[0], x.t[-1], count)
        self.frames = x.resampled(times)
        self.stage = stage = Stage(x.robot, some_of(x.q))
        self.notes += stage.notes
        step = float(times[1] - times[0]) or 1e-3
        self.about: dict[str, Any] = {
            "begin": float(times[0]),
            "step": step,
            "frames": count,
            "digits": int(np.clip(np.ceil(-np.log10(step)), 2, 6)),
            "links": links,
            "up": stage.up.tolist(),
            "center": stage.center.tolist(),
            "away": stage.view_direction().tolist(),
            "extremes": stage.extremes.tolist(),
            "size": stage.size,
            "floor": stage.floor,
            "cell": stage.grid_cell,
            "trail_frames": round(_TRAIL_SECONDS / step),
            "root": next((i for i, p in stage.model.outward() if p == 0 and stage.model.joint[i].is_floating), 0),
            "axes": "frames" in layers,
        }
        self.about["follow"] = bool(
            self.about["root"] and np.linalg.norm(np.ptp(stage.extremes, axis=0)) > _FOLLOWED_REACH * stage.size
        )
        self._add_shapes(max_faces, "inertia ellipsoids" in layers)
        self._add_motion(layers)
        self._add_curves(x)
        self.about["meshes"] = self.meshes

    def _array(self, x: Array, kind: str) -> int:
        self.arrays.append(np.ascontiguousarray(x, dtype=f"<{kind}"))
        return len(self.arrays) - 1

    # ---- shapes

    def _mesh(self, mesh: Mesh) -> int:
        """Vertices as 16-bit numbers within their box."""
        low = mesh.vertices.min(axis=0)
        scale = max(float(np.max(mesh.vertices.max(axis=0) - low)), 1e-12) / 65535.0
        entry = {"low": low.tolist(), "scale": scale, "vertices": self._array((mesh.vertices - low) / scale + 0.5, "u2")}
        entry["faces"] = self._array(mesh.faces, "u2" if len(mesh.vertices) < 65536 else "u4")
        self.meshes.append(entry)
        return len(self.meshes) - 1

    def _add_shapes(self, max_faces: int, ellipsoids: bool) -> None:
        model, shown = self.stage.model, []
        for s in _lightened(self.stage.shapes, max_faces, self.stage.size):
            if len(s.mesh.faces):
                shown.append({"mesh": self._mesh(s.mesh), "link": s.link, "color": _rgba(_color(s), s.opacity)})
        for i, _ in model.outward() if ellipsoids else ():
            if (mesh := shapes.ellipsoid(model, i)) is not None:
                color = _rgba(COLORS["inertia ellipsoids"], 0.45)
                shown.append({"mesh": self._mesh(mesh), "link": i, "color": color})
        self.about["shapes"] = shown
        self.about["ball"] = self._mesh(sphere(1.0))
        self.about["shaft"] = self._mesh(cylinder(1.0, 1.0).moved(_raised(0.5)))
        self.about["head"] = self._mesh(turned(np.array([(0.0, 0.0), (1.0, 0.0), (0.0, 1.0)])))

    # ---- what moves

    def _add_motion(self, layers: Sequence[str]) -> None:
        frames, stage, about = self.frames, self.stage, self.about
        poses = stage.poses(frames.q)
        turns = quaternions_of(poses[:, 1:, :3, :3])
        flips = np.sign(np.sum(turns[1:] * turns[:-1], axis=-1))  # neighbours on the same half of the sphere
        turns[1:] *= np.cumprod(np.where(flips == 0.0, 1.0, flips), axis=0)[..., None]
        about["poses"] = self._array(self._rounded(poses[:, 1:, :3, 3]), "f4")
        about["turns"] = self._array(_by_component(np.round(32767.0 * turns)), "i2")
        about["trails"] = []
        parents = set(stage.model.parent)
        leaves = [i for i, _ in stage.model.outward() if i not in parents][:_MAX_TRAILS]
        for i in leaves:
            points = poses[:, i, :3, :3] @ stage.tips[i] + poses[:, i, :3, 3]
            color = shapes.RODS[(i - 1) % len(shapes.RODS)]
            about["trails"].append({"array": self._array(self._rounded(points), "f4"), "color": _rgba(color, 0.75)})
        about["com"] = None
        if "centre of mass" in layers and stage.robot.mass > 0.0:
            centers = self._rounded(stage.robot.center_of_mass(frames.q))
            about["com"] = {"array": self._array(centers, "f4"), "color": _rgba(COLORS["centre of mass"])}
        about["arrows"] = []
        largest = {"torques": frames.tau, "external forces": frames.channels.get("f_ext", np.zeros((1, 6)))[..., 3:]}
        stage.largest = {k: 0.0 if x is None else float(np.max(np.abs(x), initial=0.0)) for k, x in largest.items()}
        for name in ARROWS:
            rows = self._arrows(name, poses) if name in layers else []
            if rows:
                about["arrows"].append(
                    {"array": self._array(_by_component(np.array(rows)), "f4"), "color": _rgba(COLORS[name])}
                )

    def _arrows(self, name: str, poses: Array) -> list[Array]:
        """(frames, links, 6): start and way in the frames of links."""
        tau, forces = self.frames.tau, self.frames.channels.get("f_ext")
        rows = [
            self.stage.arrows_of(name, T, None if tau is None else tau[k], None if forces is None else forces[k])
            for k, T in enumerate(poses)
        ]
        return [np.array([np.concatenate(arrow) for arrow in row]) for row in rows if row]

    def _rounded(self, x: Array) -> Array:
        """To a power of two that nobody sees: trailing zeros compress."""
        unit = 2.0 ** np.floor(np.log2(2e-5 * self.stage.size))
        return _by_component(np.round(x / unit) * unit)

    # ---- curves

    def _add_curves(self, x: ShownTrajectory) -> None:
        times, found = diagrams(x)
        self.about["times"] = self._array(times, "f4")
        self.about["curves"] = [
            {
                "title": d.title,
                "series": [
                    {"name": printable(name), "color": CURVE_COLORS[k % len(CURVE_COLORS)], "array": self._array(y, "f4")}
                    for k, (name, y) in enumerate(d.values.items())
                ],
            }
            for d in found
        ]


def _written(parts: _Parts, trajectory: ShownTrajectory, title: str | None) -> str:
    ordered = sorted(range(len(parts.arrays)), key=lambda k: -parts.arrays[k].itemsize)  # each starts at its own multiple
    places, start = {}, 0
    for k in ordered:
        places[k] = [parts.arrays[k].dtype.str[1:], start, parts.arrays[k].size]
        start += parts.arrays[k].nbytes
    data = zlib.compress(b"".join(parts.arrays[k].tobytes() for k in ordered), 9)
    about = {**parts.about, "arrays": [places[k] for k in range(len(places))], "data": base64.b64encode(data).decode()}
    script = "".join((_FOLDER / name).read_text(encoding="utf-8") for name in ("page.js", "page_run.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    lines = [*_facts(trajectory), *parts.notes]
    return _PAGE.format(
        hash=f"sha256-{digest}",
        title=html.escape(printable(title if title is not None else trajectory.robot.name)),
        style=(_FOLDER / "page.css").read_text(encoding="utf-8"),
        facts="".join(f"<p>{html.escape(printable(line))}</p>" for line in lines),
        speeds="".join(f'<option value="{x}"{" selected" if x == "1" else ""}>{x} ×</option>' for x in _SPEEDS),
        about=json.dumps(about).replace("<", "\\u003c"),  # ends no script
        script=script,
    )


def _facts(x: ShownTrajectory) -> list[str]:
    """A few lines about the robot and the run."""
    robot, model = x.robot, x.robot.model
    loops = f", {_some(len(model.loops), 'loop')}" if model.loops else ""
    kinds = Counter(model.joint[i].kind for i, _ in model.outward())
    joints = ", ".join(f"{n} {kind}" for kind, n in kinds.items())
    method, dt = x.info.get("integrator"), x.info.get("dt")
    how = f", {method}" if isinstance(method, str) else ""
    how += f" with steps of {dt:g} s" if how and isinstance(dt, float) else ""
    return [
        f"{_some(model.n_links, 'link')}, {_some(model.nv, 'degree')} of freedom{loops}, {float(robot.mass):.4g} kg",
        f"joints: {joints}",
        f"{x.t[-1] - x.t[0]:.4g} s, {_some(len(x), 'state')}{how}",
    ]


def _some(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _finite(x: ShownTrajectory) -> tuple[ShownTrajectory, list[str]]:
    """The run as long as its states are numbers, and a note if that is not to its end."""
    good: Array = np.all(np.isfinite(x.q), axis=-1)
    if good.all():
        return x, []
    if not good[0]:
        raise InputError("the first state of the run is not finite, so that nothing can be shown")
    last = int(np.argmin(good)) - 1
    return x.resampled(x.t[: last + 1]), [f"states after {x.t[last]:g} s are not finite, and not shown"]


def _by_component(x: Array) -> Array:
    """(frames, ...) as (components, frames)."""
    return np.ascontiguousarray(x.reshape(len(x), -1).T)


def _raised(z: float) -> Array:
    T = np.eye(4)
    T[2, 3] = z
    return T


def _rgba(color: tuple[int, int, int], opacity: float = 1.0) -> list[float]:
    return [*(round(c / 255.0, 4) for c in color), round(opacity, 4)]


def _color(s: Shape) -> tuple[int, int, int]:
    """The main colour of a shape with pictures on it: pictures themselves are left out of the page."""
    material = getattr(getattr(s.textured, "visual", None), "material", None)
    main = getattr(material, "main_color", None)
    return s.color if main is None else (int(main[0]), int(main[1]), int(main[2]))


def _lightened(shown: Sequence[Shape], max_faces: int, size: float) -> list[Shape]:
    """With vertices merged until there are few enough faces."""
    found, cell = list(shown), size / 500.0
    while sum(len(s.mesh.faces) for s in found) > max_faces and cell < size:
        found = [s._replace(mesh=simplified(s.mesh, cell)) for s in shown]
        cell *= 1.4
    return found
