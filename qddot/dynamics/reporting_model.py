"""A model that reports what an algorithm computes: the algorithm runs as it is written, and its symbols are kept.

Algorithms write what they compute of each link into places that the model gives them by symbol (`per_link("V")`,
`joint_vector("tau")`), and a few more values go through `model.named`. Here those places remember what they are given.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qddot.dynamics.adapters import homogeneous
from qddot.mechanism.joint_arrays import JointLine, JointMatrix, JointVector, PerLink, Slot
from qddot.mechanism.model import Model
from qddot.spatial import ArticulatedInertia, Force, Inertia, Motion, Transform, articulated
from qddot.spatial.joint_blocks import Forces, Inverse, Motions

Array = NDArray[Any]


class Step(NamedTuple):
    """One value that an algorithm wrote: the symbol and the link it belongs to."""

    symbol: str
    link: str
    value: Array


class Report:
    """What has been written, by symbol and link, and each step in its order.

    `kinds` has the type of each symbol. What belongs to two links, such as a block of the mass matrix or f_i^C(j), is
    kept by the one and then by the other.
    """

    def __init__(self, model: Model) -> None:
        self.links, self.slots = model.link_names, model.slots
        self.widths = [joint.nv for joint in model.joint]
        self.values: dict[str, dict[str, Any]] = {}
        self.kinds: dict[str, type] = {}
        self.steps: list[Step] = []
        self.column: tuple[int, int] | None = None  # the link and degree of freedom whose column is being computed

    def write(self, symbol: str, i: int, value: Any) -> None:
        """The value of a symbol of link i; while columns are computed, of that column's link, seen in link i."""
        try:
            array = array_of(value)
        except (TypeError, ValueError):  # no numbers: an algorithm may keep functions and objects of its own by link
            return
        self.kinds.setdefault(symbol, type(value))
        self.steps.append(Step(symbol, self.links[i], _read_only(array)))
        if self.column is None:
            self.values.setdefault(symbol, {})[self.links[i]] = self.steps[-1].value
            return
        j, k = self.column
        block = self._block(symbol, j, i, (len(array), self.widths[j]))
        block[:, k] = array

    def write_line(self, symbol: str, of: tuple[int, int], j: int, value: Any, in_row: bool) -> None:
        """The part at link j of a row or a column of a matrix, that of degree of freedom k of link i for `of` = (i, k)."""
        (i, k), array = of, array_of(value)
        row, column = (i, j) if in_row else (j, i)
        block = self._block(symbol, row, column, (self.widths[row], self.widths[column]))
        block[(k, slice(None)) if in_row else (slice(None), k)] = array
        if not in_row:
            self.steps.append(Step(symbol, self.links[j], _read_only(array)))

    def _block(self, symbol: str, i: int, j: int, shape: tuple[int, int]) -> Array:
        of_symbol, link = self.values.setdefault(symbol, {}), self.links[i]
        if not isinstance(of_symbol.get(link), dict):
            of_symbol[link] = {}
        return of_symbol[link].setdefault(self.links[j], np.full(shape, np.nan))


def array_of(value: Any) -> Array:
    """Spatial vectors as six numbers, angular first, transforms as 4×4, inertias as 6×6, axes as six rows."""
    if isinstance(value, Motion | Force):
        return np.array(value.components, dtype=float)
    if isinstance(value, Transform):
        return np.array(homogeneous(value), dtype=float).reshape(4, 4)
    if isinstance(value, Inertia | ArticulatedInertia):
        A = articulated(value) if isinstance(value, Inertia) else value
        return np.block([[np.array(A.I), np.array(A.H)], [np.array(A.H).T, np.array(A.M)]]).astype(float)
    if isinstance(value, Motions | Forces):
        return np.array([x.components for x in value], dtype=float).reshape(len(value), 6).T
    if isinstance(value, Inverse):
        n = len(value.reciprocal)
        return np.array([value @ unit for unit in np.eye(n).tolist()], dtype=float).reshape(n, n)
    return np.array(value, dtype=float)


def _read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array


class ReportingModel(Model):
    """A model whose places for results report what is written into them."""

    @cached_property
    def report(self) -> Report:
        return Report(self)

    def per_link(self, *symbols: str) -> tuple[PerLink, ...]:
        return tuple(_ReportedLinks(len(self.parent), symbol, self.report) for symbol in symbols)

    def joint_vector(self, symbol: str) -> JointVector:
        return _ReportedVector(self.slots, self.nv, symbol, self.report)

    def joint_matrix(self, symbol: str, a_link: int | None = None) -> JointMatrix:
        plain = super().joint_matrix(symbol, a_link)
        return plain if a_link is not None else _ReportedMatrix(self.slots, self.nv, symbol, self.report)

    def named(self, symbol: str, i: int, value: Any) -> Any:
        self.report.write(symbol, i, value)
        return value

    def columns(self, a_link: int | None = None) -> Iterator[tuple[int, int, int]]:
        for i, p, k in super().columns(a_link):
            self.report.column = (i, k)
            yield i, p, k
        self.report.column = None

    def axes(self, q: Any) -> list[Motions]:
        found = super().axes(q)
        for i, _ in self.outward():
            self.report.write("S", i, found[i])
        return found

    def joints_at(self, q: Any, v: Any) -> tuple[list[Transform], list[Motions], list[Motion]]:
        T, S, Sdot_v = super().joints_at(q, v)
        for i, _ in self.outward():
            self.report.write("Sdot_v", i, Sdot_v[i])
        return T, S, Sdot_v

    def external(self, f_ext: Any) -> list[Force]:
        found = super().external(f_ext)
        for i, _ in self.outward() if f_ext is not None else ():
            self.report.write("F_ext", i, found[i])
        return found


def reporting(model: Model) -> ReportingModel:
    """The same model, reporting; its inertias are in the report already."""
    made = ReportingModel(**{f.name: getattr(model, f.name) for f in dataclasses.fields(Model)})
    for i, _ in model.outward():
        made.report.write("I", i, model.inertia[i])
    return made


class _ReportedLinks(PerLink):
    def __init__(self, count: int, symbol: str, report: Report) -> None:
        super().__init__(count, symbol)
        self.report = report

    def __setitem__(self, i: Any, value: Any) -> None:
        super().__setitem__(i, value)
        self.report.write(self.symbol, i, value)


class _ReportedVector(JointVector):
    def __init__(self, slots: tuple[Slot, ...], nv: int, symbol: str, report: Report) -> None:
        super().__init__(slots, nv, symbol)
        self.report = report

    def __setitem__(self, i: int, value: Any) -> None:
        super().__setitem__(i, value)
        self.report.write(self.symbol, i, value)


class _ReportedMatrix(JointMatrix):
    def __init__(self, slots: tuple[Slot, ...], nv: int, symbol: str, report: Report) -> None:
        super().__init__(slots, nv, symbol)
        self.report = report

    def column(self, i: int, k: int) -> JointLine:
        return _ReportedLine(self, i, k, False)

    def row(self, i: int, k: int) -> JointLine:
        return _ReportedLine(self, i, k, True)


class _ReportedLine(JointLine):
    def __init__(self, matrix: _ReportedMatrix, i: int, k: int, turned: bool) -> None:
        super().__init__(matrix, i, k, turned)
        self.report, self.symbol, self.of, self.turned = matrix.report, matrix.symbol, (i, k), turned

    def __setitem__(self, j: int, values: Any) -> None:
        super().__setitem__(j, values)
        self.report.write_line(self.symbol, self.of, j, values, self.turned)
