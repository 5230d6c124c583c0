"""Every intermediate of an algorithm by its paper's symbol and by link: `robot.trace("inverse_dynamics", q, v, a)`."""

from __future__ import annotations

import csv
import io
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qddot import notebook
from qddot.algorithms import newton_euler
from qddot.dynamics.reporting_model import Report, Step
from qddot.errors import printable, unknown
from qddot.notebook import Markup
from qddot.robot.base import RobotBase
from qddot.spatial import Force, Motion

Array = NDArray[Any]

_PARTS: dict[type, tuple[str, ...]] = {
    Motion: ("ω x", "ω y", "ω z", "v x", "v y", "v z"),
    Force: ("m x", "m y", "m z", "f x", "f y", "f z"),
}


_MAX_HTML_LINKS = 100  # of one symbol in a notebook; text and CSV have all


class Symbol(NamedTuple):
    """What a letter of the code stands for: the papers' own symbols, and the meaning."""

    name: str
    papers: Mapping[str, str]
    meaning: str

    @property
    def text(self) -> str:
        """One line: "V: V_i (Kim), v_i (Featherstone & Orin), link velocity"."""
        papers = [f"{symbol} ({paper})" for paper, symbol in self.papers.items()]
        return f"{self.name}: {', '.join([*papers, self.meaning])}" if self.meaning or papers else self.name


_GIVEN = {
    "I": Symbol("I", {"Kim": "𝓘_i", "Featherstone & Orin": "I_i"}, "inertia of link i, about its frame's origin"),
    "v": Symbol("v", {"Kim": "q̇_i"}, "joint velocity, given"),
    "a": Symbol("a", {"Kim": "q̈_i"}, "joint acceleration"),
    "tau": Symbol("tau", {"Kim": "τ_i"}, "joint force"),
    "F_ext": Symbol("F_ext", {"Featherstone & Orin": "f_i^x"}, "external force on link i, in its frame"),
    "passive": Symbol("passive", {}, "force of the joint's own damping, friction and spring"),
}


def symbol_table(docstring: str | None) -> dict[str, Symbol]:
    """The symbols that the docstring of an algorithm explains: the rows of its table of code, papers and meaning."""
    rows = [
        [c.strip() for c in line.strip().strip("|").split("|")] for line in (docstring or "").splitlines() if "|" in line
    ]
    if not rows:
        return {}
    head, found = rows[0], {}
    for cells in rows[2:]:
        if len(cells) == len(head):
            name = re.split(r"[\[ ]", cells[0])[0]
            papers = {paper: c for paper, c in zip(head[1:-1], cells[1:-1], strict=True) if c}
            found[name] = Symbol(name, papers, cells[-1])
    return found


class ByLink(Mapping[str, Any]):
    """The values of one symbol by the names of links; where it belongs to two links, by the one and then by the other."""

    def __init__(self, what: str, values: Mapping[str, Any]) -> None:
        self._what, self._values = what, values

    def __getitem__(self, link: str) -> Any:
        if link not in self._values:
            raise unknown("link", link, self._values, self._what)
        return self._values[link]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"{self._what}:\n" + "\n".join(_lines(self))


@dataclass(frozen=True)
class Trace:
    """What an algorithm computed at one state.

    `trace.V["link3"]` or `trace["V"]["link3"]` is a value by symbol and link: spatial vectors are six numbers, angular
    first, transforms 4×4, inertias 6×6, axes S have a column a degree of freedom. `steps` has every value in the order in
    which the algorithm wrote it, `symbols` what the letters mean, `result` what the algorithm returned.
    """

    robot: RobotBase
    function: str
    method: str
    source: str
    inputs: Mapping[str, Array]
    result: Array
    steps: tuple[Step, ...] = field(repr=False)
    symbols: Mapping[str, Symbol] = field(repr=False)
    values: Mapping[str, ByLink] = field(repr=False)
    kinds: Mapping[str, type] = field(repr=False)

    def __getitem__(self, symbol: str) -> ByLink:
        if symbol not in self.values:
            raise unknown("symbol", symbol, self.values, f"the trace of {self.function} by {self.method}")
        return self.values[symbol]

    def __getattr__(self, name: str) -> ByLink:
        if name.startswith("_") or name not in self.values:
            raise AttributeError(f"the trace has no symbol {name!r}; it has {', '.join(self.__dict__.get('values', ()))}")
        return self.values[name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.values]

    @property
    def title(self) -> str:
        """The function, the robot and the formulation."""
        return f"{self.function} of {self.robot.name!r} by {self.method}"

    def __repr__(self) -> str:
        return f"<Trace: {self.title}; symbols {', '.join(self.values)}>"

    def __str__(self) -> str:
        return self.table()

    def table(self, *symbols: str) -> str:
        """The chosen symbols, or all, as text: a block for each symbol and a line for each link."""
        lines = [self.title, self.source] if not symbols else []
        for name in symbols or self.values:
            of_links = self[name]
            lines += ["", self.symbols[name].text, *_lines(of_links)]
        return printable("\n".join(lines).strip(), keep="\n")

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """A line for each number: symbol, link, other link, row, column, value. Written to `path`, too, if there is one."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(("symbol", "link", "other link", "row", "column", "value"))
        for name, link, other, array in self._arrays():
            for place in np.ndindex(array.shape):
                row, column = (*place, 0, 0)[:2]
                writer.writerow((name, *(_cell(x) for x in (link, other)), row, column, repr(float(array[place]))))
        if path is not None:
            Path(path).write_text(out.getvalue(), encoding="utf-8")
        return out.getvalue()

    def _arrays(self) -> Iterator[tuple[str, str, str, Array]]:
        for name, of_links in self.values.items():
            for link, value in of_links.items():
                for other, array in value.items() if isinstance(value, Mapping) else (("", value),):
                    yield name, link, other, array

    def _repr_html_(self) -> str:
        parts = [self.html_of(name) for name in self.values]
        return notebook.card(self.title, self.source, *parts)

    def html_of(self, symbol: str) -> Markup:
        """One symbol as a table in HTML."""
        of_links, symbol_ = self[symbol], self.symbols[symbol]
        head: tuple[str, ...] = _PARTS.get(self.kinds[symbol], ()) if symbol in self.kinds else ()
        rows: list[Sequence[Any]] = []
        for link, value in islice(of_links.items(), _MAX_HTML_LINKS):
            if isinstance(value, Mapping):
                rows += [(f"{link}, {other}", notebook.matrix(array)) for other, array in value.items()]
            elif value.ndim == 1 and len(value) == len(head):
                rows.append((link, *(notebook.number(x) for x in value)))
            else:
                rows.append((link, notebook.matrix(value)))
        flat = bool(rows) and len(rows[0]) == len(head) + 1 and bool(head)
        if len(of_links) > _MAX_HTML_LINKS:
            rows.append((f"and {len(of_links) - _MAX_HTML_LINKS} more", *([""] * (len(rows[0]) - 1))))
        is_small = flat or all(np.ndim(x) == 1 for x in of_links.values() if not isinstance(x, Mapping))
        return notebook.section(symbol_.text, notebook.table(("link", *(head if flat else ("value",))), rows), is_small)

    def show(self, **options: Any) -> Any:
        """Opens the viewer at this configuration, with a tab for the values: a table, and arrows on the links."""
        from qddot.viewer import show

        return show(self.robot, q=self.inputs["q"], trace=self, **options)  # type: ignore[arg-type]  # it is a whole Robot


def _cell(name: str) -> str:
    """A name as spreadsheets take it for text: one that begins like a formula gets a quote in front."""
    return f"'{name}" if name[:1] in ("=", "+", "-", "@", "\t", "\r") else name


def _lines(of_links: Mapping[str, Any]) -> list[str]:
    width = max(map(len, of_links), default=0)
    lines: list[str] = []
    for link, value in of_links.items():
        parts = {f"{link:<{width}}": value} if not isinstance(value, Mapping) else {}
        inner = max(map(len, value), default=0) if isinstance(value, Mapping) else 0
        parts |= {f"{link:<{width}}  {o:<{inner}}": x for o, x in value.items()} if isinstance(value, Mapping) else {}
        for label, array in parts.items():
            rows = np.atleast_2d(array) if array.ndim < 2 else array
            texts = [" ".join(f"{x:>11.5g}" for x in row + 0.0) for row in rows]
            lines += [f"  {label if k == 0 else ' ' * len(label)}  {text}" for k, text in enumerate(texts)]
    return lines


def finished(
    robot: RobotBase, names: tuple[str, str], algorithm: Any, inputs: Mapping[str, Array], report: Report, result: Array
) -> Trace:
    """The trace of a report; `names` are the function's and the formulation's."""
    doc = sys.modules[algorithm.__module__].__doc__
    known = {**_GIVEN, **symbol_table(newton_euler.__doc__), **symbol_table(doc)}
    paragraphs = (doc or "").split("\n\n")
    source = " ".join(paragraphs[1].split()) if len(paragraphs) > 1 and "|" not in paragraphs[1] else ""
    values = {
        name: ByLink(f"{name} of {robot.name!r}", _frozen(name, x, report.links)) for name, x in report.values.items()
    }
    symbols = {name: known.get(name, Symbol(name, {}, "")) for name in values}
    fixed = {name: np.array(x) for name, x in inputs.items()}
    return Trace(robot, *names, source, fixed, result, tuple(report.steps), symbols, values, dict(report.kinds))


def _frozen(name: str, of_links: Mapping[str, Any], order: Sequence[str]) -> Mapping[str, Any]:
    """Values in the order of the links; what belongs to two of them by the one and then by the other."""
    found: dict[str, Any] = {}
    for link in order:
        x = of_links.get(link)
        if isinstance(x, Mapping):
            found[link] = ByLink(f"{name}[{link!r}]", _frozen(name, x, order))
        elif x is not None:
            x.flags.writeable = False
            found[link] = x
    return found
