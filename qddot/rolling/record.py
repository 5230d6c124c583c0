"""The algorithm run on one link of each kind, and a record of its loops and of what goes through memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from qddot.compiler.expr import Expr, Graph
from qddot.errors import NotRollableError
from qddot.joint_space import PerLink
from qddot.kinds import FIELDS, Kind, mapped, rebuilt, row_of
from qddot.model import Model
from qddot.rotation import Rotation
from qddot.scalars import mark
from qddot.spatial import Transform


def one_of_each(model: Model, kinds: list[Kind], recorder: Recorder) -> OneOfEach:
    """One link of each kind on the world, its numbers columns of the graph."""
    tables: dict[str, list[Any]] = {name: [getattr(model, name)[0]] for name in FIELDS}
    for links, _, _ in kinds:
        numbers: list[list[float]] = []
        for i in links:
            numbers.append([])
            mapped(row_of(model, i), numbers[-1].append, lambda *_: None)
        columns = iter(np.array(numbers).T)

        def column(x: float, columns: Any = columns) -> Any:
            values = np.ascontiguousarray(next(columns))
            return x if x in (0.0, 1.0, -1.0) else Expr(recorder.graph, recorder.graph.column(values))

        for name, value in zip(FIELDS, mapped(row_of(model, links[0]), column, rebuilt), strict=True):
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
    object.__setattr__(made, "recorder", recorder)
    return made


class _Parents(tuple[int, ...]):
    """The parents of links that stand for many: nobody may ask which they are."""

    __slots__ = ()

    def __getitem__(self, i: Any) -> Any:
        raise NotRollableError("it looks at more of the tree than a link and its parent")


class OneOfEach(Model):
    """A model whose loops and quantities are recorded."""

    recorder: Recorder

    def outward(self) -> Iterator[tuple[int, int]]:
        return self.recorder.loop(range(1, len(self.parent)), False)

    def inward(self) -> Iterator[tuple[int, int]]:
        return self.recorder.loop(range(len(self.parent) - 1, 0, -1), True)

    def ancestors(self, i: int) -> Iterator[int]:
        raise NotRollableError("it goes from a link through all that carry it")

    def per_link(self, *symbols: str) -> tuple[PerLink, ...]:
        return tuple(_Quantity(self.recorder, len(self.parent), symbol) for symbol in symbols)


@dataclass
class Layout:
    """How a quantity lies in memory: a value to copy the form of, and for each of its numbers the place."""

    form: Any
    place: list[int]

    @property
    def width(self) -> int:
        return len(set(self.place))


@dataclass
class Memory:
    """What is known of quantities that children read or write, by their order: it grows from pass to pass."""

    read: set[int] = field(default_factory=set)
    written: set[int] = field(default_factory=set)
    zero: set[int] = field(default_factory=set)  # of those written, the ones that begin with nothing
    layout: dict[int, Layout] = field(default_factory=dict)

    def state(self) -> Any:
        return set(self.read), set(self.written), set(self.zero), {k: x.place for k, x in self.layout.items()}


@dataclass
class LoopRecord:
    """One loop over the links: what was made for each, and what was written to memory."""

    backward: bool
    span: dict[int, tuple[int, int]] = field(default_factory=dict)  # the nodes made for a link
    stores: dict[int, dict[tuple[str, int], list[int]]] = field(default_factory=dict)  # (own or parent, quantity): nodes


class Recorder:
    """What happens while the algorithm runs on one link of each kind."""

    def __init__(self, graph: Graph, memory: Memory, kinds: list[Kind]) -> None:
        self.graph, self.memory, self.kinds = graph, memory, kinds
        self.loops: list[LoopRecord] = []
        self.link: int | None = None  # the one whose turn it is, inside of a loop
        self.visit = 0
        self.count = 0
        self.first: dict[int, list[int]] = {}  # what the world has of a quantity
        self.seen: dict[int, list[Any]] = {}  # all values that a quantity had
        self.begins_with: dict[int, list[bool]] = {}  # whether they were nothing where not set by a child

    def loop(self, links: Sequence[int], backward: bool) -> Iterator[tuple[int, int]]:
        if self.link is not None:
            raise NotRollableError("it has a loop over links inside a loop over links")
        record = LoopRecord(backward)
        self.loops.append(record)
        for i in links:
            self.link, self.visit = i, self.visit + 1
            begin = len(self.graph)
            yield i, 0
            record.span[i] = (begin, len(self.graph))
            self.link = None


class _Quantity(PerLink):
    """One quantity of each link; what concerns the parent goes through memory."""

    def __init__(self, recorder: Recorder, count: int, symbol: str) -> None:
        super().__init__(count, symbol)
        self._recorder, self._index = recorder, recorder.count
        recorder.count += 1
        self._current: dict[str, tuple[int, Any]] = {}

    def __setitem__(self, i: Any, value: Any) -> None:
        recorder, memory = self._recorder, self._recorder.memory
        list.__setitem__(self, i, value)
        if recorder.link is None:
            if i == 0:
                recorder.first[self._index] = self._nodes(value)
                recorder.begins_with.setdefault(self._index, []).append(_is_nothing(value))
            return
        if i not in (0, recorder.link):
            raise NotRollableError(f"it sets {self._symbol!r} of a link that is neither the loop's nor its parent")
        where = "own" if i == recorder.link else "parent"
        if where == "parent":
            memory.written.add(self._index)
        else:
            recorder.begins_with.setdefault(self._index, []).append(_is_nothing(value))
        if where == "parent" or self._index in memory.read | memory.written:
            nodes = self._nodes(value)
            if where == "parent" or self._index not in memory.zero:
                recorder.loops[-1].stores.setdefault(recorder.link, {})[where, self._index] = nodes
        self._current[where] = (recorder.visit, value)
        mark(value, self._symbol, i)

    def __getitem__(self, i: Any) -> Any:
        recorder, memory = self._recorder, self._recorder.memory
        if recorder.link is None or not isinstance(i, int):
            return list.__getitem__(self, i)
        where = "own" if i == recorder.link else "parent"
        if where == "own" and self._index not in memory.written:
            return list.__getitem__(self, i)
        if where == "parent":
            memory.read.add(self._index)
        visit, value = self._current.get(where, (0, None))
        if visit != recorder.visit:
            kind = recorder.kinds[recorder.link - 1]
            nothing_yet = self._index in memory.zero and (kind.is_leaf if where == "own" else kind.is_last)
            example = list.__getitem__(self, i)
            value = dense(example, lambda _: 0.0) if nothing_yet else self._loaded(where, example)
            self._current[where] = (recorder.visit, value)
        return value

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


def _is_nothing(value: Any) -> bool:
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
