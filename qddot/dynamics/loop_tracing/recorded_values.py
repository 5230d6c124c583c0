"""What an algorithm keeps of links while it is recorded: quantities in memory, sums over all links, matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from qddot.compiler.ir.expr import Expr
from qddot.dynamics.loop_tracing.mimic_sums import parts
from qddot.dynamics.loop_tracing.recorder import PARENT, Layout, Recorder, Written
from qddot.errors import NotRollableError
from qddot.mechanism.joint_arrays import JointMatrix, PerLink, Slot, Total
from qddot.scalars import Scalar, mark
from qddot.spatial import Transform
from qddot.spatial.rotation import Rotation


class Quantity(PerLink):
    """One quantity of each link; what concerns the parent goes through memory."""

    def __init__(self, recorder: Recorder, count: int, symbol: str) -> None:
        super().__init__(count, symbol)
        self._recorder, self._index = recorder, recorder.count
        recorder.count += 1
        self._current: dict[str, tuple[int, Any]] = {}
        self._outside: set[int] = set()  # links whose value was set outside of loops

    def __setitem__(self, i: Any, value: Any) -> None:
        recorder, memory = self._recorder, self._recorder.memory
        list.__setitem__(self, 0 if i is PARENT else i, value)
        if recorder.link is None:
            self._outside.add(i)
            if i == 0:
                recorder.first[self._index] = recorder.group, self._nodes(value)
                recorder.begins_with.setdefault(self._index, []).append(is_nothing(value))
            return
        if i not in (PARENT, recorder.link):
            raise NotRollableError(f"it sets {self.symbol!r} of a link that is neither the loop's nor its parent")
        where = "own" if i == recorder.link else "parent"
        self._outside.discard(i)
        if where == "parent":
            memory.written.add(self._index)
        else:
            recorder.begins_with.setdefault(self._index, []).append(is_nothing(value))
        if where == "parent" or self._index in memory.read | memory.written:
            nodes = self._nodes(value)
            own_is_kept = self._index not in memory.zero and not recorder.loops[-1].climbs
            if where == "parent" or own_is_kept:
                recorder.loops[-1].stores.setdefault(recorder.key, {})[where, self._index] = nodes
        self._current[where] = (recorder.visit, value)
        mark(value, self.symbol, recorder.link)

    def __getitem__(self, i: Any) -> Any:
        recorder, memory = self._recorder, self._recorder.memory
        if recorder.link is None or not (i is PARENT or isinstance(i, int)):
            if self._index in memory.written and any(self._index in r.given for r in recorder.loops):
                raise NotRollableError(f"it reads {self.symbol!r} outside of loops after links have changed it")
            return list.__getitem__(self, i)
        if i not in (PARENT, recorder.link):
            raise NotRollableError(f"it reads {self.symbol!r} of a link that is neither the loop's nor its parent")
        where = "own" if i == recorder.link else "parent"
        if where == "own" and self._index not in memory.written:
            return list.__getitem__(self, i)
        if where == "parent":
            memory.read.add(self._index)
        visit, value = self._current.get(where, (0, None))
        if visit != recorder.visit:
            kind = recorder.kinds[recorder.link - 1]
            climbs = recorder.loops[-1].climbs
            if climbs and not (where == "own" and isinstance(recorder.key, int)):
                self._must_be_left_by_an_earlier_loop()
            nothing_yet = self._index in memory.zero and not climbs and (kind.is_leaf if where == "own" else kind.is_last)
            example = list.__getitem__(self, 0 if where == "parent" else i)
            if example is None and self._index in recorder.seen:
                example = recorder.seen[self._index][-1]  # what another link was given
            if where == "own" and i in self._outside:
                *earlier, loop = recorder.loops
                if kind.is_leaf or (loop.begins_at == i and not any(self._index in r.given for r in earlier)):
                    return example  # nothing that it carries has changed it
                if not is_nothing(example):
                    raise NotRollableError(f"it sets {self.symbol!r} of a link outside of loops")
            value = dense(example, lambda _: 0.0) if nothing_yet else self._loaded(where, example)
            self._current[where] = (recorder.visit, value)
        return value

    def _must_be_left_by_an_earlier_loop(self) -> None:
        """What goes from a column to the base comes to a link from its child, and from nowhere else."""
        loops = self._recorder.loops
        if self._index in loops[-1].given and not any(self._index in r.given for r in loops[:-1]):
            raise NotRollableError(f"it reads {self.symbol!r} of a column where that has not come yet or has gone on")

    def _nodes(self, value: Any) -> list[int]:
        numbers: list[Any] = []
        dense(value, numbers.append)
        self._recorder.seen.setdefault(self._index, []).append(value)
        return [self._recorder.graph.node_of(x) for x in numbers]

    def _loaded(self, where: str, example: Any) -> Any:
        graph = self._recorder.graph
        layout = self._recorder.memory.layout.get(self._index) or layout_of([example])
        cells = {p: Expr(graph, graph.effect("cell", where, self._index, p)) for p in sorted(set(layout.place))}
        places = iter(layout.place)
        return dense(layout.form, lambda _: cells[next(places)])


class Matrix(JointMatrix):
    """A matrix whose numbers go to the outputs as they are written."""

    def __init__(self, recorder: Recorder, slots: Sequence[Slot], nv: int, symbol: str, a_link: int | None) -> None:
        super().__init__(slots, nv, symbol, a_link)
        self._recorder, self._index = recorder, len(recorder.matrices)
        recorder.matrices.append(a_link)

    def __setitem__(self, ij: tuple[int, int], block: Any) -> None:
        raise NotRollableError("it writes a matrix by blocks")

    def _add(self, j: int, i: int, k: int, values: Any, turned: bool) -> None:
        recorder = self._recorder
        if recorder.link != j or not recorder.loops[-1].climbs:
            raise NotRollableError(f"it writes {self.symbol!r} of a link that has not its turn")
        if recorder.column_factor is not None:
            own = self.slots[j].factor
            factor = recorder.column_factor[j] * (1.0 if own is None else own)
            values = [factor * x for x in values]
        nodes = [recorder.graph.node_of(x) for x in values]
        recorder.loops[-1].written.setdefault(recorder.key, []).append(Written(self._index, turned, nodes))
        mark(values, self.symbol, j)

    def stack(self) -> Any:
        graph, links = self._recorder.graph, len(self.slots) - 1
        columns = self.nv if self.columns_per_link is None else self.columns_per_link * links
        all_of_it = np.full((self.nv, columns), Expr(graph, graph.leaf("matrix", self._index)), dtype=object)
        return all_of_it if self._recorder.column_factor is None else parts(all_of_it)


class SumOfLinks(Total):
    """A sum over all links: one place in memory that they have in common."""

    def __init__(self, recorder: Recorder, count: int) -> None:
        super().__init__(count)
        self._recorder, self._index, self._visit = recorder, recorder.count, 0
        recorder.count += 1
        recorder.totals.add(self._index)
        recorder.memory.read.add(self._index)
        recorder.seen[self._index] = [(0.0,) * count]
        recorder.first[self._index] = recorder.group, [recorder.graph.const(0.0)] * count

    def add(self, *numbers: Scalar) -> None:
        recorder = self._recorder
        if recorder.link is None or recorder.loops[-1].climbs:
            raise NotRollableError("it adds to a sum over all links outside of a loop over them")
        if self._visit != recorder.visit:
            self._visit, self._sum = recorder.visit, self._loaded()
        super().add(*numbers)
        nodes = [recorder.graph.node_of(x) for x in self._sum]
        recorder.loops[-1].stores.setdefault(recorder.key, {})["own", self._index] = nodes

    @property
    def sums(self) -> tuple[Scalar, ...]:
        if self._recorder.link is not None:
            raise NotRollableError("it reads a sum over all links before all have been met")
        self._recorder.breaks.add(len(self._recorder.loops))
        return tuple(self._loaded())

    def _loaded(self) -> list[Scalar]:
        graph = self._recorder.graph
        return [Expr(graph, graph.effect("cell", "own", self._index, k)) for k in range(len(self._sum))]


def dense(value: Any, number: Callable[[Any], Any]) -> Any:
    """A value with each of its numbers replaced, and with no zeros that it knows of."""
    if isinstance(value, Transform):
        return Transform(Rotation(dense(value.R.rows, number)), dense(value.p, number))
    if isinstance(value, tuple):
        parts = [dense(x, number) for x in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, int | float | Expr | np.floating):
        return number(value)
    raise NotRollableError(f"a {type(value).__name__} of the parent is used, which cannot be kept in memory")


def is_nothing(value: Any) -> bool:
    numbers: list[Any] = []
    try:
        dense(value, numbers.append)
    except NotRollableError:
        return False
    return all(not isinstance(x, Expr) and x == 0.0 for x in numbers)


def layout_of(values: list[Any]) -> Layout:
    """Numbers that are the same one in every value share a place: a symmetric matrix has six."""
    columns = []
    for value in values:
        keys: list[Any] = []
        dense(value, keys.append)
        columns.append([x.node if isinstance(x, Expr) else ("number", float(x)) for x in keys])
    if len({len(keys) for keys in columns}) != 1:
        raise NotRollableError("a quantity has another form in another place")
    places: dict[Any, int] = {}
    alone = len(values) == 1  # one value does not tell what is the same by chance
    rows = list(zip(*columns, strict=True))
    return Layout(values[-1], [places.setdefault((k, row) if alone else row, len(places)) for k, row in enumerate(rows)])
