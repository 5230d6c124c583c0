"""The table of docs/papers.md, as data."""

from __future__ import annotations

import functools
import importlib
import re
import types
from typing import NamedTuple

from tests.support.paths import ROOT

OPEN = "open"


class Row(NamedTuple):
    """One line of a table: the equations it covers, and the four cells."""

    equations: tuple[str, ...]
    says: str
    function: str
    test: str


def numbered(first, last, prefix=""):
    return [f"({prefix}{k})" for k in range(first, last + 1)]


def equations(cell):
    """`(3)` is one equation, `(1)-(3)` three, and anything else a name."""
    span = re.fullmatch(r"\((\d+)\)-\((\d+)\)", cell)
    return tuple(numbered(int(span[1]), int(span[2]))) if span else (cell,)


@functools.cache
def page():
    return (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")


@functools.cache
def tables():
    """The rows below each heading."""
    out: dict[str, list[Row]] = {}
    heading = ""
    for line in page().splitlines():
        if line.startswith("## "):
            heading = line[3:]
            out[heading] = []
        elif line.startswith("|") and not line.startswith(("| equation", "|---")):
            cells = [c.strip() for c in line.strip("|").split("|")]
            assert len(cells) == 4, f"this row has not four cells: {line}"
            out[heading].append(Row(equations(cells[0]), *cells[1:]))
    return out


def rows():
    return [row for paper in tables().values() for row in paper]


def names(cell):
    """What stands in backticks, and nothing else may stand there."""
    found = re.findall(r"`([^`]+)`", cell)
    assert re.sub(r"`[^`]+`|, ", "", cell) == "", f"{cell!r} has more than names in it"
    assert found, f"{cell!r} names nothing"
    return found


def resolve(name):
    """What stands under a full dotted name: modules as far as they go, then attributes."""
    first, *parts = name.split(".")
    assert first == "qddot", f"{name!r} is not a full dotted name"
    thing = importlib.import_module(first)
    path = first
    for part in parts:
        path = f"{path}.{part}"
        if isinstance(thing, types.ModuleType) and hasattr(thing, "__path__"):
            thing = importlib.import_module(path)
        else:
            assert hasattr(thing, part), f"there is no {name}: {part!r} is missing"
            thing = getattr(thing, part)
    return thing
