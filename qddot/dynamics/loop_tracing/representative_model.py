"""The model that an algorithm is recorded on: one link of each kind."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.compiler.ir.expr import Expr
from qddot.dynamics.loop_tracing.mimic_sums import PartColumns, PartVector, factors_and_offsets
from qddot.dynamics.loop_tracing.recorded_values import Matrix, Quantity, SumOfLinks
from qddot.dynamics.loop_tracing.recorder import PARENT, Recorder, axis_of_columns
from qddot.errors import NotRollableError
from qddot.joints import Joint
from qddot.mechanism.joint_arrays import JointColumns, JointMatrix, JointVector, PerLink, Slot, Total
from qddot.mechanism.link_classes import FIELDS, LinkClass, map_numbers, rebuild, row_of
from qddot.mechanism.model import Frame, Model


def one_of_each(model: Model, kinds: list[LinkClass], recorder: Recorder, frame: Frame | None) -> OneOfEach:
    """One link of each kind on the world, its numbers columns of the graph; the frame is on the one of its link's kind."""
    tables: dict[str, list[Any]] = {name: [getattr(model, name)[0]] for name in FIELDS}
    for links, _, _ in kinds:
        numbers: list[list[float]] = []
        for i in links:
            numbers.append([])
            map_numbers(row_of(model, i), numbers[-1].append, lambda *_: None)
        columns = iter(np.array(numbers).T)

        def column(x: float, columns: Any = columns) -> Any:
            values = np.ascontiguousarray(next(columns))
            return x if x in (0.0, 1.0, -1.0) else Expr(recorder.graph, recorder.graph.column(values))

        for name, value in zip(FIELDS, map_numbers(row_of(model, links[0]), column, rebuild), strict=True):
            tables[name].append(value)
    first = [0, *(kind.links[0] for kind in kinds)]
    same: dict[str, Any] = {
        f.name: tuple(getattr(model, f.name)[i] for i in first)
        for f in dataclasses.fields(Model)
        if f.name in ("link_names", "joint_names", "limits", "actuated", "mimic")
    }
    own: dict[str, Any] = {name: tuple(table) for name, table in tables.items()}
    made = OneOfEach(
        name=model.name,
        parent=_Parents((-1, *(0 for _ in kinds))),
        gravity=model.gravity,
        friction_velocity=model.friction_velocity,
        **same,
        **own,
    )
    followers = factors_and_offsets(model, kinds, lambda values: Expr(recorder.graph, recorder.graph.column(values)))
    object.__setattr__(made, "recorder", recorder)
    object.__setattr__(made, "is_coupled", model.is_coupled)
    object.__setattr__(made, "slots", _own_slots(made.joint, [None, *followers]))
    object.__setattr__(made, "total_mass", model.mass)
    if frame is not None:
        carriers = [*model.ancestors(frame.link)]
        of_kind = {i: k for k, kind in enumerate(kinds, 1) for i in kind.links}
        object.__setattr__(made, "the_frame", frame._replace(link=of_kind.get(frame.link, 0)))
        object.__setattr__(made, "the_carriers", list(dict.fromkeys(of_kind[i] for i in carriers)))
    return made


def _own_slots(joints: Sequence[Joint], followers: Sequence[tuple[Any, Any] | None]) -> tuple[Slot, ...]:
    """Coordinates of its own for every kind; those that follow others read and write them by a factor and an offset."""
    slots: list[Slot] = []
    nq = nv = 0
    for joint, follows in zip(joints, followers, strict=True):
        slots.append(Slot(slice(nq, nq + joint.nq), slice(nv, nv + joint.nv), *(follows or ())))
        nq, nv = nq + joint.nq, nv + joint.nv
    return tuple(slots)


class _Parents(tuple[int, ...]):
    """The parents of links that stand for many: nobody may ask which they are."""

    __slots__ = ()

    def __getitem__(self, i: Any) -> Any:
        raise NotRollableError("it looks at more of the tree than a link and its parent")


class OneOfEach(Model):
    """A model whose loops and quantities are recorded."""

    recorder: Recorder
    total_mass: Any
    the_frame: Frame | None = None
    the_carriers: Sequence[int] = ()  # of the frame, from its own link on

    def __getattr__(self, name: str) -> Any:
        raise NotRollableError("it makes another model of this one") if name == "recorder" else AttributeError(name)

    @property
    def mass(self) -> Any:
        return self.total_mass

    @property
    def nq(self) -> int:
        return self.slots[-1].q.stop

    @property
    def nv(self) -> int:
        return self.slots[-1].v.stop

    def frame(self, name: str) -> Frame:
        if self.the_frame is None or name != self.the_frame.name:
            raise NotRollableError(f"it looks for {name!r}")
        return self.the_frame

    def outward(self) -> Iterator[tuple[int, int]]:
        return self.recorder.loop(range(1, len(self.parent)), False)

    def inward(self) -> Iterator[tuple[int, int]]:
        return self.recorder.loop(range(len(self.parent) - 1, 0, -1), True)

    def ancestors(self, i: int) -> Iterator[int]:
        raise NotRollableError("it goes from a link through all that carry it")

    def path_to_base(self, i: Any) -> Iterator[tuple[int, int]]:
        if i is PARENT and self.is_coupled:
            return self._carriers_by_factors()
        if i is PARENT:
            return self.recorder.climb(range(1, len(self.parent)))
        if self.the_frame is None or i != self.the_frame.link or self.recorder.link is not None:
            raise NotRollableError("it goes from a link through all that carry it")
        return self.recorder.loop(self.the_carriers, True, begins_at=i)

    def columns(self, a_link: int | None = None) -> Iterator[tuple[int, int, int]]:
        counts = {i: self.joint[i].nv if a_link is None else a_link for i in range(1, len(self.parent))}
        return self._columns_by_factors(counts, a_link) if self.is_coupled else self.recorder.columns(counts)

    def _columns_by_factors(self, counts: Mapping[int, int], a_link: int | None) -> Iterator[tuple[int, int, int]]:
        """The factor by which a joint follows another is taken from each column to the base: matrices are written by it."""
        (factor,) = self.per_link("factor")
        self.recorder.column_factor = factor
        for i, p, k in self.recorder.columns(counts):
            own = self.slots[i].factor
            factor[i] = factor[p] = 1.0 if own is None or a_link is not None else own
            yield i, p, k

    def _carriers_by_factors(self) -> Iterator[tuple[int, int]]:
        factor = self.recorder.column_factor
        for j, p in self.recorder.climb(range(1, len(self.parent))):
            factor[p] = factor[j]
            yield j, p

    def by_columns(self, function: Callable[[NDArray[Any]], NDArray[Any]], a_link: int | None = None) -> NDArray[Any]:
        if self.is_coupled:
            raise NotRollableError("joints share coordinates, and it repeats a recursion for every column")
        recorder, count = self.recorder, self.nv if a_link is None else a_link * self.n_links
        if recorder.link is not None or recorder.group:
            raise NotRollableError("it goes through columns inside a loop")
        recorder.breaks.add(len(recorder.loops))
        recorder.groups.append(axis_of_columns(a_link))
        recorder.group = len(recorder.groups)
        unit = np.array(
            [Expr(recorder.graph, recorder.graph.leaf("unit", k, recorder.group)) for k in range(count)], dtype=object
        )
        column = function(unit)
        recorder.breaks.add(len(recorder.loops))
        matrices = []
        for part in column.reshape(-1, self.nv):
            recorder.results[len(recorder.matrices)] = recorder.group, [recorder.graph.node_of(x) for x in part]
            matrices.append(Matrix(recorder, self.slots, self.nv, "columns", a_link).stack())
        recorder.group = 0
        return np.stack(matrices).reshape(*column.shape, count)

    def joint_vector(self, symbol: str) -> JointVector:
        return (PartVector if self.is_coupled else JointVector)(self.slots, self.nv, symbol)

    def joint_columns(self, symbol: str) -> JointColumns:
        return (PartColumns if self.is_coupled else JointColumns)(self.slots, self.nv, symbol)

    def joint_matrix(self, symbol: str, a_link: int | None = None) -> JointMatrix:
        return Matrix(self.recorder, self.slots, self.nv, symbol, a_link)

    def total(self, count: int = 1) -> Total:
        return SumOfLinks(self.recorder, count)

    def per_link(self, *symbols: str) -> tuple[PerLink, ...]:
        return tuple(Quantity(self.recorder, len(self.parent), symbol) for symbol in symbols)
