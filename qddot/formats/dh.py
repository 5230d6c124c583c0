"""Denavit-Hartenberg tables, standard and modified, from Python rows, CSV or TOML.

The modified table (Craig 1986) has T_{i-1,i} = Rx(alpha) Tx(a) Rz(theta + q) Tz(d): frame i sits at joint i. The
standard one (Denavit & Hartenberg 1955, in Paul's form) has T_{i-1,i} = Rz(theta + q) Tz(d) Tx(a) Rx(alpha): frame i
sits at the far end of link i, which turns about the axis of frame i-1. In both, frame "link<i>" of the robot is frame
i of the table, and com and inertia are given in it. Angles are radians, or text such as "pi/2", "-3*pi/4" or "90deg".
"""

from __future__ import annotations

import csv
import difflib
import math
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from qddot.errors import FileError, ModelError, message, shown
from qddot.formats.files import of_file, plain_name, read_bytes
from qddot.formats.registry import ReadOptions, register
from qddot.joints import Fixed, Joint, Prismatic, Revolute
from qddot.mechanism.builder import WORLD, Builder
from qddot.mechanism.model import Model
from qddot.mechanism.validation import cos_sin
from qddot.spatial import Transform
from qddot.spatial.rotation import AxisRotation

CONVENTIONS = ("modified", "standard")
_KINDS: dict[str, type[Joint]] = {"revolute": Revolute, "prismatic": Prismatic}
_ROTATIONS = ("alpha", "theta")
_LENGTHS = ("a", "d")
_LIMITS = ("lower", "upper")
_JOINT_NUMBERS = ("armature", "damping", "friction", "velocity_limit", "effort_limit")
KEYS = (*_ROTATIONS, *_LENGTHS, "kind", "name", "mass", "com", "inertia", *_LIMITS, *_JOINT_NUMBERS)

# a CSV column holds one number, so vectors are spread over several
_SPREAD = {
    "com": ("com_x", "com_y", "com_z"),
    "inertia": ("ixx", "ixy", "ixz", "iyy", "iyz", "izz"),
}
COLUMNS = (*(k for k in KEYS if k not in _SPREAD), *_SPREAD["com"], *_SPREAD["inertia"])
_ROBOT_KEYS = ("name", "convention", "gravity")

MAX_BYTES = 1_000_000
MAX_ROWS = 10_000
MAX_CELL = 100  # characters of a number or a name; longer text is not even tried against the patterns below
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_PI = re.compile(r"(?P<sign>[+-]?)((?P<times>\d+\.?\d*|\.\d+)\s*\*?\s*)?pi(\s*/\s*(?P<over>\d+\.?\d*|\.\d+))?", re.ASCII)
_DEGREES = re.compile(r"(?P<number>[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)\s*(deg|°)", re.ASCII)


def from_rows(
    rows: Iterable[Mapping[str, Any]],
    *,
    convention: str = "modified",
    name: str = "dh",
    gravity: Sequence[float] = (0.0, 0.0, -9.81),
    snap: float = 0.0,
    where: Sequence[str] | None = None,
    allow_unphysical: bool = False,
) -> Builder:
    """The Builder of a serial arm given by one mapping a joint; see `KEYS` for what a row may hold.

    `kind` is "revolute" unless said otherwise, what is left out is zero, limits left out are infinite; `inertia` is
    about the centre of mass. `where` names the place each row came from, for messages. `allow_unphysical` keeps inertias
    that no body has, as findings.
    """
    _choice(convention, CONVENTIONS, "convention", "")
    rows = list(rows)
    places = [f"row {k}" for k in range(1, len(rows) + 1)] if where is None else where
    if not rows:
        raise ModelError(message("", "DH table", "it has no rows", "give one row a joint"))
    builder = Builder(name, gravity=gravity, snap=snap, allow_unphysical=allow_unphysical)
    parent = WORLD
    for k, (row, place) in enumerate(zip(rows, places, strict=True), 1):
        parent = _add_row(builder, parent, k, row, place, convention)
    return builder


def _add_row(b: Builder, parent: str, k: int, row: Mapping[str, Any], where: str, convention: str) -> str:
    """Adds link and joint k; returns the link that the next joint stands on."""
    if not isinstance(row, Mapping):
        raise ModelError(message(where, f"row {k}", f"it is a {type(row).__name__}", "give a mapping of DH parameters"))
    link = row.get("name", f"link{k}")
    if not isinstance(link, str) or not 0 < len(link) <= MAX_CELL:
        fix = f"give a text of 1 to {MAX_CELL} characters"
        raise ModelError(message(where, f"row {k}", f"its name is {shown(link)}", fix))
    element, joint = f"link {link!r}", f"joint{k}"
    for key in row:
        _choice(key, KEYS, "key", where, element)
    kind = row.get("kind", "revolute")
    _choice(kind, _KINDS, "kind", where, element)

    def number(key: str) -> float:
        return _number(row.get(key, 0.0), key, where, element)

    def limit(key: str) -> float:
        return _angle(row[key], key, where, element) if kind == "revolute" else number(key)

    alpha, theta = (b.angle(_angle(row.get(key, 0.0), key, where, element), element, where) for key in _ROTATIONS)
    a, d = number("a"), number("d")
    twist = Transform(AxisRotation(0, *cos_sin(alpha)), (a, 0.0, 0.0))  # Rx Tx, which commute: Lin's algorithm: modified DH
    turn = Transform(AxisRotation(2, *cos_sin(theta)), (0.0, 0.0, d))  # Rz Tz, which commute: Lin's algorithm: modified DH
    options: dict[str, Any] = {key: limit(key) for key in _LIMITS if key in row} | {
        key: number(key) for key in _JOINT_NUMBERS if key in row
    }
    body: dict[str, Any] = {"mass": number("mass"), "com": _vector(row, "com", where, element), "where": where}
    body["inertia"] = _vector(row, "inertia", where, element)
    if convention == "modified":
        b.link(link, **body)
        b.joint(joint, parent, link, _KINDS[kind](), twist @ turn, where=where, **options)
    else:
        # what moves has its frame at the joint; the table's own frame i is welded to it at the far end
        moving = f"{link}_at_joint"
        b.link(moving, where=where).link(link, **body)
        b.joint(joint, parent, moving, _KINDS[kind](), turn, where=where, **options)
        b.joint(f"{link}_weld", moving, link, Fixed(), twist, where=where)
    return link


# ---- values --------------------------------------------------------------------------------------------------------


def _choice(value: Any, known: Iterable[str], what: str, where: str, element: str = "DH table") -> None:
    known = list(known)
    if value not in known:
        near = difflib.get_close_matches(str(value)[:MAX_CELL], known, n=1, cutoff=0.5)
        fix = f"did you mean {near[0]!r}?" if near else "use one of " + ", ".join(known)
        raise ModelError(message(where, element, f"unknown {what} {shown(value)}", fix))


def _number(value: Any, key: str, where: str, element: str) -> float:
    """A finite float from a number or from plain decimal text."""
    text = isinstance(value, str) and len(value) <= MAX_CELL and _NUMBER.fullmatch(value.strip())
    if text or (isinstance(value, Real) and not isinstance(value, bool)):
        try:
            x = float(value)
        except OverflowError:
            x = math.inf
        if math.isfinite(x):
            return x
    fix = "write a finite decimal number" + (", or leave a limit out" if "limit" in key or key in _LIMITS else "")
    raise ModelError(message(where, element, f"{key} is {shown(value)}", fix))


def _angle(value: Any, key: str, where: str, element: str) -> float:
    """Radians, a multiple of pi, or degrees."""
    text = value.strip() if isinstance(value, str) and len(value) <= MAX_CELL else ""
    if found := _PI.fullmatch(text):
        over = float(found["over"] or 1.0)
        if over > 0.0:
            return float(f"{found['sign']}1") * float(found["times"] or 1.0) * math.pi / over
    if found := _DEGREES.fullmatch(text):
        degrees = _number(found["number"], key, where, element)
        # whole right angles come out as the float nearest to the multiple of π/2
        return degrees / 90.0 * (math.pi / 2)
    try:
        return _number(value, key, where, element)
    except ModelError:
        fix = "write radians, a multiple of pi such as -pi/2, or degrees such as 90deg"
        raise ModelError(message(where, element, f"{key} is {shown(value)}", fix)) from None


def _vector(row: Mapping[str, Any], key: str, where: str, element: str) -> list[float]:
    """com: three numbers; inertia: six, or three rows of three."""
    sizes = {"com": (3,), "inertia": (6, 9)}[key]
    value = row.get(key, (0.0,) * sizes[0])
    try:
        flat = list(np.asarray(value, dtype=object).reshape(-1)) if not isinstance(value, str) else []
    except ValueError:
        flat = []
    if len(flat) not in sizes:
        need = " or ".join(str(n) for n in sizes)
        raise ModelError(message(where, element, f"{key} is {shown(value)}", f"give {need} numbers"))
    return [_number(x, key, where, element) for x in flat]


# ---- files ---------------------------------------------------------------------------------------------------------


class _Table(NamedTuple):
    """What a file holds: `options` are those of `from_rows`, `places` the place of each row."""

    options: dict[str, Any]
    rows: list[dict[str, Any]]
    places: list[str]


def read(path: str | os.PathLike[str], *, snap: float = 0.0) -> Builder:
    """The Builder of a DH table in a .csv or .toml file."""
    file = Path(path)
    readers = {".csv": _read_csv, ".toml": _read_toml}
    plain = Path(plain_name(file.name))
    if plain.suffix.lower() not in readers:
        fix = "DH tables are .csv or .toml files"
        raise FileError(message(str(file), "file", f"its suffix is {plain.suffix!r}", fix))
    try:
        options, rows, places = readers[plain.suffix.lower()](file, _text(file))
        if not rows:
            raise FileError(message(str(file), "DH table", "it has no rows", "give one row a joint"))
        if len(rows) > MAX_ROWS:
            problem = f"it has {len(rows)} rows, more than the {MAX_ROWS} that are read"
            raise FileError(message(str(file), "DH table", problem, "split the robot or build it in Python"))
        return from_rows(rows, snap=snap, where=places, allow_unphysical=True, **{"name": plain.stem, **options})
    except FileError:
        raise
    except ModelError as error:
        raise of_file(error, str(file)) from None


@register("dh", ".csv", ".toml", rank=3)
def _model(path: Path, options: ReadOptions) -> Model:
    return read(path, snap=options.snap).model()


def _text(file: Path) -> str:
    data = read_bytes(str(file), MAX_BYTES)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        fix = "save it as UTF-8 text"
        raise FileError(message(f"{file}:{line}", "file", f"byte {error.start} is not UTF-8", fix)) from None


def _robot_option(key: str, value: Any, where: str) -> Any:
    """name, convention or gravity, checked."""
    element = f"robot {key}"
    if key == "gravity":
        flat = value.replace(",", " ").split() if isinstance(value, str) else value
        if not isinstance(flat, list) or len(flat) != 3:
            raise ModelError(message(where, element, f"it is {shown(value)}", "give three numbers"))
        return [_number(x, key, where, element) for x in flat]
    if not isinstance(value, str) or not 0 < len(value) <= MAX_CELL:
        fix = f"give a text of 1 to {MAX_CELL} characters"
        raise ModelError(message(where, element, f"it is {shown(value)}", fix))
    if key == "convention":
        _choice(value, CONVENTIONS, "convention", where, element)
    return value


_OPTION_LINE = re.compile(rf"#?\s*({'|'.join(_ROBOT_KEYS)})\s*[:=](.*)", re.ASCII)


def _read_csv(file: Path, text: str) -> _Table:
    """Options in lines such as "# convention: standard" before the header, then the header, then a line a joint."""
    table = _Table({}, [], [])
    header: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{file}:{number}"
        option = _OPTION_LINE.fullmatch(line.strip())
        if option and not header:
            table.options[option[1]] = _robot_option(option[1], option[2].strip(), where)
        elif line.strip() and not line.lstrip().startswith("#"):
            cells = _cells(line, where)
            if not header:
                header = _header(cells, where)
            else:
                table.rows.append(_csv_row(header, cells, where))
                table.places.append(where)
    return table


def _cells(line: str, where: str) -> list[str]:
    try:
        (cells,) = csv.reader([line], strict=True)
    except (csv.Error, ValueError) as error:
        raise FileError(message(where, "line", str(error), "write cells separated by commas")) from None
    return [cell.strip() for cell in cells]


def _header(cells: list[str], where: str) -> list[str]:
    for cell in cells:
        _choice(cell, COLUMNS, "column", where, "header")
        if cells.count(cell) > 1:
            raise FileError(message(where, "header", f"column {cell!r} stands twice", "remove one"))
    if not set(cells) & {*_ROTATIONS, *_LENGTHS}:
        raise FileError(message(where, "header", "it names no DH parameter", "name alpha, a, theta and d"))
    return cells


def _csv_row(header: list[str], cells: list[str], where: str) -> dict[str, Any]:
    """A row as `from_rows` takes it; empty cells count as left out."""
    if len(cells) != len(header):
        problem = f"it has {len(cells)} cells where the header has {len(header)}"
        raise FileError(message(where, "row", problem, "give one cell a column"))
    given = {key: cell for key, cell in zip(header, cells, strict=True) if cell}
    element = f"link {given['name'][:MAX_CELL]!r}" if "name" in given else "row"
    row: dict[str, Any] = {}
    for key, cell in given.items():
        if key in ("name", "kind", *_ROTATIONS, *_LIMITS):
            row[key] = cell
        elif key in KEYS:
            row[key] = _number(cell, key, where, element)
    for key, columns in _SPREAD.items():
        row[key] = [_number(given.get(column, 0.0), column, where, element) for column in columns]
    return row


_TOML_ASIDE = re.compile(r"""\"(?:[^"\\]|\\.)*(?:"|$)|'[^']*(?:'|$)|#.*""")  # texts and comments
_DOTTED = re.compile(r'(?<![\w"-])(?:[\w"-]+\s*\.\s*){3}')  # tomllib takes the square of a key's parts, time and memory
_ODD_NUMBER = re.compile(r"(?<![\w.])(?:[+-]?(?:0[xob]\w+|nan\b|inf\b)|[+-]?[\d.]+_[\w.]*)")


def _read_toml(file: Path, text: str) -> _Table:
    """[robot] with name, convention and gravity, and a [[link]] a joint."""
    lines = text.splitlines()
    content = _parse_toml(file, text)
    for key in content:
        _choice(key, ("robot", "link"), "table", f"{file}:{_line(lines, 1, key)}", "file")
    robot, links = content.get("robot", {}), content.get("link", [])
    if not isinstance(robot, dict):
        fix = "write a table [robot]"
        raise FileError(message(f"{file}:{_line(lines, 1, 'robot')}", "robot", f"it is {shown(robot)}", fix))
    if not isinstance(links, list) or not all(isinstance(row, dict) for row in links):
        fix = "write a table [[link]] a joint"
        raise FileError(message(f"{file}:{_line(lines, 1, 'link')}", "link", f"it is {shown(links)}", fix))
    start = next((k for k, line in enumerate(lines, 1) if re.match(r"\s*\[\s*robot\s*\]", line)), 1)
    options = {}
    for key, value in robot.items():
        where = f"{file}:{_line(lines, start, key)}"
        _choice(key, _ROBOT_KEYS, "key", where, "robot")
        options[key] = _robot_option(key, value, where)
    headers = [k for k, line in enumerate(lines, 1) if re.match(r"\s*\[\[\s*link\s*\]\]", line)]
    if len(headers) != len(links):  # written in line, as link = [{…}, …]
        headers = [_line(lines, 1, "link")] * len(links)
    return _Table(options, links, [f"{file}:{line}" for line in headers])


def _parse_toml(file: Path, text: str) -> dict[str, Any]:
    """TOML, but with plain decimal numbers only, and without what can keep its parser busy for hours."""
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{file}:{number}"
        if '"""' in line or "'''" in line:
            raise FileError(message(where, "line", "it has a text of several lines", "write texts on one line"))
        plain = _TOML_ASIDE.sub('""', line)
        if _DOTTED.search(plain):
            raise FileError(message(where, "line", "it has a key with many dots", "write [robot] and [[link]] tables"))
        if odd := _ODD_NUMBER.search(plain.partition("=")[2]):
            problem = f"{odd[0]!r} is no plain number"
            raise FileError(message(where, "line", problem, "write a finite decimal number"))
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"\(at line (\d+)", str(error))
        line = place[1] if place else str(text.count("\n") + 1)
        raise FileError(message(f"{file}:{line}", "TOML", str(error), "correct the syntax")) from None
    except (RecursionError, ValueError):
        problem = "it is nested too deeply or has a number too long to read"
        raise FileError(message(str(file), "TOML", problem, "write a plain table")) from None


def _line(lines: list[str], start: int, key: str) -> int:
    """The first line from `start` on that sets a key or opens a table of that name; `start` if there is none."""
    sets = re.compile(rf"\s*(\[\[?\s*)?[\"']?{re.escape(key)}[\"']?\s*[\]=.]")
    return next((k for k, line in enumerate(lines[start - 1 :], start) if sets.match(line)), start)
