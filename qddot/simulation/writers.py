"""Trajectories for other programs: CSV with nothing but NumPy; Parquet, MCAP and xarray with the extra `[data]`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from qddot.errors import InputError, RecordingError, extra
from qddot.formats.atomic import replacing
from qddot.spatial.rotation import quaternions_of

if TYPE_CHECKING:
    from qddot.simulation.trajectory import Trajectory

Array = NDArray[Any]


def header(trajectory: Trajectory, names: Sequence[str]) -> list[tuple[str, str, Array]]:
    """(name, unit, values) of every column of a table: "elbow.q", "momentum.px", "energy"."""
    if trajectory.batch:
        raise InputError(
            f"a table holds one simulation, and this is a batch of {trajectory.batch}: take trajectory.sample(k)"
        )
    found = [("t", "s", trajectory.t)]
    for name in names:
        values = trajectory[name].reshape(len(trajectory), -1)
        for k, column in enumerate(trajectory.columns(name)):
            parts = (column.name, name) if name in ("q", "v", "a", "tau") else (name, column.name)
            found.append((".".join(p for p in parts if p), column.unit, values[:, k]))
    return found


def write_csv(trajectory: Trajectory, path: Path, names: Sequence[str]) -> None:
    """One line a time, under names with units in brackets. Numbers have the digits that give them back exactly.

    A name that a spreadsheet would take for a formula has an apostrophe in front (`csv_cell`).
    """
    table = header(trajectory, names)
    with _whole(path) as unfinished, open(unfinished, "w", encoding="utf-8", newline="") as file:
        file.write(",".join(csv_cell(f"{name} [{unit}]" if unit else name) for name, unit, _ in table) + "\n")
        for row in zip(*(values.tolist() for _, _, values in table), strict=True):
            file.write(",".join(map(repr, row)) + "\n")


def write_parquet(trajectory: Trajectory, path: Path, names: Sequence[str]) -> None:
    """One column a number, its unit in the column's metadata, `info` in the table's."""
    arrow = extra("pyarrow", "data", "writing Parquet")
    parquet = extra("pyarrow.parquet", "data", "writing Parquet")
    table = header(trajectory, names)
    fields = [arrow.field(n, arrow.from_numpy_dtype(x.dtype), metadata={"unit": unit}) for n, unit, x in table]
    about = {"robot": trajectory.robot.engine.model.name, "info": json.dumps(trajectory.info, default=repr)}
    content = arrow.table([np.ascontiguousarray(x) for _, _, x in table], schema=arrow.schema(fields, metadata=about))
    with _whole(path) as unfinished:
        parquet.write_table(content, unfinished)


def write_mcap(trajectory: Trajectory, path: Path, names: Sequence[str]) -> None:
    """JSON messages: "/joint_states", "/tf" with the pose of every link (a Foxglove schema), and a topic a channel."""
    header(trajectory, ())
    writer = extra("mcap.writer", "data", "writing MCAP")
    with _whole(path) as unfinished, open(unfinished, "wb") as file:
        out = writer.Writer(file)
        out.start(profile="", library="qddot")
        topics = {topic: _channel(out, topic, schema, example) for topic, schema, example in _topics(trajectory, names)}
        for topic, stamp, body in _messages(trajectory, names):
            out.add_message(topics[topic], stamp, json.dumps(body).encode(), stamp)
        out.add_metadata(
            "qddot", {"robot": trajectory.robot.engine.model.name, "info": json.dumps(trajectory.info, default=repr)}
        )
        out.finish()


WRITERS: dict[str, Callable[[Trajectory, Path, Sequence[str]], None]] = {
    ".csv": write_csv,
    ".parquet": write_parquet,
    ".mcap": write_mcap,
}


def to_xarray(trajectory: Trajectory, names: Sequence[str]) -> Any:
    """A Dataset: `time` in seconds, `coordinate` and `freedom` by name, `batch_0` … for leading axes."""
    xarray = extra("xarray", "data", "an xarray view")
    batch = [f"batch_{k}" for k in range(len(trajectory.batch))]
    coordinates: dict[str, Any] = {"time": ("time", trajectory.t, {"units": "s"})}
    variables = {}
    for name in names:
        values, columns = trajectory[name], trajectory.columns(name)
        axes = values.ndim - len(batch) - 1
        last = {"q": "coordinate", "v": "freedom", "a": "freedom", "tau": "freedom"}.get(name, f"{name}_column")
        tail = [last] if axes == 1 else [f"{name}_{k}" for k in range(axes)]
        if axes == 1:
            coordinates[last] = [c.name for c in columns]
        units = dict.fromkeys(c.unit for c in columns)
        variables[name] = ((*batch, "time", *tail), values, {"units": ", ".join(u for u in units if u)})
    info = {k: v if isinstance(v, str | int | float) else repr(v) for k, v in trajectory.info.items()}
    return xarray.Dataset(variables, coordinates, {"robot": trajectory.robot.engine.model.name, **info})


# ---- parts of them ---------------------------------------------------------------------------------------------------


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """A file written beside its place and then renamed: after a crash there is the old one or the new one."""
    try:
        with replacing(path, ".unfinished") as unfinished:
            yield unfinished
    except RecordingError:
        raise
    except OSError as error:
        problem = f"it cannot be written: {error.strerror or error}; nothing was changed"
        raise RecordingError(f"{path}: {problem}") from None


_NUMBER = {"type": "number"}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


_TIME = _object(sec={"type": "integer"}, nsec={"type": "integer"})
_TF = _object(
    transforms=_list(
        _object(
            timestamp=_TIME,
            parent_frame_id={"type": "string"},
            child_frame_id={"type": "string"},
            translation=_object(x=_NUMBER, y=_NUMBER, z=_NUMBER),
            rotation=_object(x=_NUMBER, y=_NUMBER, z=_NUMBER, w=_NUMBER),
        )
    )
)
_JOINTS = _object(name=_list({"type": "string"}), position=_list(_NUMBER), velocity=_list(_NUMBER), effort=_list(_NUMBER))


def _topics(trajectory: Trajectory, names: Sequence[str]) -> Iterator[tuple[str, str, Any]]:
    yield "/joint_states", "qddot.JointStates", _JOINTS
    yield "/tf", "foxglove.FrameTransforms", _TF
    for name in _further(names):
        columns = trajectory.columns(name)
        yield f"/{name}", f"qddot.{name}", _object(**{c.name or "value": _NUMBER for c in columns})


def _further(names: Sequence[str]) -> list[str]:
    return [n for n in names if n not in ("t", "q", "v", "a", "tau")]


def _channel(out: Any, topic: str, schema: str, content: Any) -> int:
    number = out.register_schema(name=schema, encoding="jsonschema", data=json.dumps(content).encode())
    return int(out.register_channel(topic=topic, message_encoding="json", schema_id=number))


def _messages(trajectory: Trajectory, names: Sequence[str]) -> Iterator[tuple[str, int, Any]]:
    """(topic, nanoseconds, body), time after time."""
    poses = trajectory.robot.engine.evaluate("forward_kinematics", trajectory.q)
    turns, places = quaternions_of(poses[..., :3, :3]), poses[..., :3, 3]
    further = {n: trajectory[n].reshape(len(trajectory), -1).tolist() for n in _further(names)}
    labels = {n: [c.name or "value" for c in trajectory.columns(n)] for n in further}
    names = [c.name for c in trajectory.columns("v")]
    coordinates = [c.name for c in trajectory.columns("q")]
    effort = np.zeros((len(trajectory), 0)) if trajectory.tau is None else trajectory.tau
    for k, t in enumerate(trajectory.t.tolist()):
        stamp = round(t * 1e9)
        state = {"position": trajectory.q[k].tolist(), "velocity": trajectory.v[k].tolist(), "effort": effort[k].tolist()}
        yield "/joint_states", stamp, {"name": names, "coordinate": coordinates, **state}
        links = zip(trajectory.robot.engine.model.link_names[1:], places[k].tolist(), turns[k].tolist(), strict=True)
        yield "/tf", stamp, {"transforms": [_pose(stamp, *link) for link in links]}
        for name, rows in further.items():
            yield f"/{name}", stamp, dict(zip(labels[name], rows[k], strict=True))


def _pose(stamp: int, name: str, place: list[float], turn: list[float]) -> dict[str, Any]:
    time = {"sec": stamp // 10**9, "nsec": stamp % 10**9}
    frames = {"parent_frame_id": "world", "child_frame_id": name}
    translation, rotation = dict(zip("xyz", place, strict=True)), dict(zip("wxyz", turn, strict=True))
    return {"timestamp": time, **frames, "translation": translation, "rotation": rotation}


_FORMULA = re.compile("'*[=+\\-@\t\r\n＝＋－＠]")


def csv_cell(text: str) -> str:
    """A text cell of a CSV file, quoted where it has to be, that no spreadsheet takes for a formula.

    Text that begins with = + - @, a tab or a line end gets an apostrophe in front, and so does such text that has
    apostrophes there already: a program that reads the file drops one from every cell that `_FORMULA` matches.
    """
    if _FORMULA.match(text):
        text = f"'{text}"
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',;"\t\n\r') else text
