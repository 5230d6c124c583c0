"""From the readable algorithm to rolled code: its loops over the links, run once for each kind of link.

Links are of one kind if their joints are of one kind and the same of their numbers are zero or one. The algorithm runs on a
model that has one link of each kind, all on the world, whose other numbers are columns with an entry for every real link
of that kind. Each of its loops over `model.outward()` or `model.inward()` becomes a sweep, each link of it the segment of
a kind. What an algorithm reads from or adds to `quantity[p]`, the parent's, goes through memory; so does what one loop
computes and a later one uses. All else, the algebra included, is as in straight-line code.

An algorithm can be rolled if its loops are not nested and links meet only through their parents: the recursions are,
matrices over all freedoms and sums over all links are not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import numpy as np

from qddot.compiler.expr import Expr, Graph
from qddot.compiler.program import straight_line
from qddot.compiler.rolled import Place, Rolled, Segment, Sweep
from qddot.errors import NotRollableError
from qddot.joint_space import PerLink
from qddot.joints import Joint, Planar
from qddot.model import Model
from qddot.rotation import IDENTITY, ZERO, AxisRotation, Rotation
from qddot.scalars import mark
from qddot.spatial import Product, Transform

MOST_KINDS = 64
_PASSES = 8  # what is known of memory grows with each; a few are enough

_FREE = frozenset({"const", "input", "column"})  # at hand everywhere
# areas of memory
_FOR_GOOD, _OUTWARD, _INWARD = range(3)
# where a link's numbers stand: columns of the program's `starts`
_Q, _V, _LINK6, _LINK16 = range(4)
_STARTS = {"q": _Q, "v": _V, "a": _V, "tau": _V, "f_ext": _LINK6}


# ---- kinds of links --------------------------------------------------------------------------------------------------


class Kind(NamedTuple):
    """Links of one kind: whether they carry nothing, and whether each is the last of its parent's children."""

    links: list[int]
    is_leaf: bool
    is_last: bool


def kinds_of(model: Model) -> list[Kind]:
    """The kinds of links, each with its links in order."""
    last = {p: i for i, p in model.outward()}  # a loop inward meets it first
    kinds: dict[Any, Kind] = {}
    for i, p in model.outward():
        shape = _map(_row(model, i), lambda x: x if x in (0.0, 1.0, -1.0) else None, _described)
        place = i not in last, last[p] == i
        kinds.setdefault((shape, place), Kind([], *place)).links.append(i)
    return list(kinds.values())


_FIELDS = ("joint", "placement", "inertia", "armature", "damping", "friction", "stiffness", "spring_reference")


def _row(model: Model, i: int) -> tuple[Any, ...]:
    return tuple(getattr(model, name)[i] for name in _FIELDS)


def _map(value: Any, number: Callable[[float], Any], other: Callable[[Any, Any], Any]) -> Any:
    """A row with its numbers replaced."""
    if isinstance(value, Joint):
        parts = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}  # type: ignore[arg-type]
        return other(value, {k: _map_parameter(value, x, number) for k, x in parts.items()})
    if isinstance(value, Transform):
        return other(value, [_map_part(part, number) for part in value.parts])
    if isinstance(value, tuple):
        return other(value, [_map(x, number, other) for x in value])
    return number(float(value))


def _map_parameter(joint: Joint, x: Any, number: Callable[[float], Any]) -> Any:
    """A joint's parameter. An axis along a coordinate axis, or one that a plane is made of, decides which code runs."""
    if isinstance(x, float):
        return number(x)
    if isinstance(x, tuple) and not isinstance(joint, Planar) and not {1.0, -1.0} & set(x):
        return tuple(number(k) for k in x)
    return x


def _map_part(T: Transform, number: Callable[[float], Any]) -> tuple[Any, Any, Any]:
    p = None if T.p is ZERO else tuple(number(x) for x in T.p)
    if T.R is IDENTITY:
        return None, None, p
    if isinstance(T.R, AxisRotation):
        return T.R.axis, (number(T.R.c), number(T.R.s)), p
    return None, tuple(tuple(number(x) for x in row) for row in T.R.rows), p


def _described(value: Any, parts: Any) -> Any:
    """A row's part as something that can be compared."""
    fields = tuple(sorted(parts.items(), key=lambda kv: kv[0])) if isinstance(parts, dict) else tuple(parts)
    return (type(value).__name__, fields)


def _rebuilt(value: Any, parts: Any) -> Any:
    if isinstance(value, Joint):
        return dataclasses.replace(value, **parts)  # type: ignore[type-var]
    if isinstance(value, Transform):
        return Product(*(_part(*part) for part in parts))
    return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)


def _part(axis: int | None, turn: Any, p: Any) -> Transform:
    R = IDENTITY if turn is None else Rotation(turn) if axis is None else AxisRotation(axis, *turn)
    return Transform(R, ZERO if p is None else p)


def _symbolic(model: Model, kinds: list[Kind], recorder: _Recorder) -> _OneOfEach:
    """One link of each kind on the world, its numbers columns of the graph."""
    tables: dict[str, list[Any]] = {name: [getattr(model, name)[0]] for name in _FIELDS}
    for links, _, _ in kinds:
        numbers: list[list[float]] = []
        for i in links:
            numbers.append([])
            _map(_row(model, i), numbers[-1].append, lambda *_: None)
        columns = iter(np.array(numbers).T)

        def column(x: float, columns: Any = columns) -> Any:
            values = np.ascontiguousarray(next(columns))
            return x if x in (0.0, 1.0, -1.0) else Expr(recorder.graph, recorder.graph.column(values))

        for name, value in zip(_FIELDS, _map(_row(model, links[0]), column, _rebuilt), strict=True):
            tables[name].append(value)
    first = [0, *(kind.links[0] for kind in kinds)]
    same = {
        f.name: tuple(getattr(model, f.name)[i] for i in first)
        for f in dataclasses.fields(Model)
        if f.name in ("link_names", "joint_names", "limits", "actuated", "mimic")
    }
    own = {name: tuple(table) for name, table in tables.items()}
    made = _OneOfEach(
        name=model.name,
        parent=_Parents((-1, *(0 for _ in kinds))),
        gravity=model.gravity,
        friction_velocity=model.friction_velocity,
        **same,
        **own,
    )
    object.__setattr__(made, "recorder", recorder)
    return made


# ---- running the algorithm -------------------------------------------------------------------------------------------


class _Parents(tuple[int, ...]):
    """The parents of links that stand for many: nobody may ask which they are."""

    __slots__ = ()

    def __getitem__(self, i: Any) -> Any:
        raise NotRollableError("it looks at more of the tree than a link and its parent")


class _OneOfEach(Model):
    """A model whose loops and quantities are recorded."""

    recorder: _Recorder

    def outward(self) -> Iterator[tuple[int, int]]:
        return self.recorder.loop(range(1, len(self.parent)), False)

    def inward(self) -> Iterator[tuple[int, int]]:
        return self.recorder.loop(range(len(self.parent) - 1, 0, -1), True)

    def ancestors(self, i: int) -> Iterator[int]:
        raise NotRollableError("it goes from a link through all that carry it")

    def per_link(self, *symbols: str) -> tuple[PerLink, ...]:
        return tuple(_Quantity(self.recorder, len(self.parent), symbol) for symbol in symbols)


@dataclass
class _Layout:
    """How a quantity lies in memory: a value to copy the form of, and for each of its numbers the place."""

    form: Any
    place: list[int]

    @property
    def width(self) -> int:
        return len(set(self.place))


@dataclass
class _Memory:
    """What is known of quantities that children read or write, by their order: it grows from pass to pass."""

    read: set[int] = field(default_factory=set)
    written: set[int] = field(default_factory=set)
    zero: set[int] = field(default_factory=set)  # of those written, the ones that begin with nothing
    layout: dict[int, _Layout] = field(default_factory=dict)

    def state(self) -> Any:
        return set(self.read), set(self.written), set(self.zero), {k: x.place for k, x in self.layout.items()}


@dataclass
class _Loop:
    """One loop over the links: what was made for each, and what was written to memory."""

    backward: bool
    span: dict[int, tuple[int, int]] = field(default_factory=dict)  # the nodes made for a link
    stores: dict[int, dict[tuple[str, int], list[int]]] = field(default_factory=dict)  # (own or parent, quantity): nodes


class _Recorder:
    """What happens while the algorithm runs on one link of each kind."""

    def __init__(self, graph: Graph, memory: _Memory, kinds: list[Kind]) -> None:
        self.graph, self.memory, self.kinds = graph, memory, kinds
        self.loops: list[_Loop] = []
        self.link: int | None = None  # the one whose turn it is, inside of a loop
        self.visit = 0
        self.count = 0
        self.first: dict[int, list[int]] = {}  # what the world has of a quantity
        self.seen: dict[int, list[Any]] = {}  # all values that a quantity had
        self.begins_with: dict[int, list[bool]] = {}  # whether they were nothing where not set by a child

    def loop(self, links: Sequence[int], backward: bool) -> Iterator[tuple[int, int]]:
        if self.link is not None:
            raise NotRollableError("it has a loop over links inside a loop over links")
        record = _Loop(backward)
        self.loops.append(record)
        for i in links:
            self.link, self.visit = i, self.visit + 1
            begin = len(self.graph)
            yield i, 0
            record.span[i] = (begin, len(self.graph))
            self.link = None


class _Quantity(PerLink):
    """One quantity of each link; what concerns the parent goes through memory."""

    def __init__(self, recorder: _Recorder, count: int, symbol: str) -> None:
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


def layout_of(values: list[Any]) -> _Layout:
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
    return _Layout(values[-1], [places.setdefault((k, row) if alone else row, len(places)) for k, row in enumerate(rows)])


# ---- the program -----------------------------------------------------------------------------------------------------


def roll(model: Model, algorithm: Callable[..., Any], names: Sequence[str], shapes: Any, output: Any) -> Rolled:
    """The rolled program of `algorithm(model, *inputs)`; `shapes(model)` and `output(model)` are those of its arrays."""
    if model.is_coupled:
        raise NotRollableError("joints share coordinates")
    kinds = kinds_of(model)
    if len(kinds) > MOST_KINDS:
        raise NotRollableError(f"its links are of {len(kinds)} kinds")
    memory = _Memory()
    for _ in range(_PASSES):
        before = memory.state()
        recorder = _Recorder(Graph(), memory, kinds)
        small = _symbolic(model, kinds, recorder)
        arrays, first = [], 0
        for shape in shapes(small):
            arrays.append(recorder.graph.inputs(prod(shape), first).reshape(shape))
            first += prod(shape)
        result = np.asarray(algorithm(small, *arrays), dtype=object)
        shared = memory.read | memory.written
        memory.layout = {k: layout_of(values) for k, values in recorder.seen.items() if k in shared}
        memory.zero = {k for k in memory.written if all(recorder.begins_with.get(k, [False]))}
        if before == memory.state():
            break
    else:
        raise NotRollableError("what it keeps in memory does not settle")
    return _Assembly(model, small, recorder, names, shapes, output).rolled(result)


@dataclass
class _Turn:
    """Loops that can be one, because they go the same way and what one leaves the next does not miss."""

    backward: bool
    loops: list[int]
    own_set: set[int]
    own_read: set[int]
    parent_set: set[int]
    parent_read: set[int]

    def takes(self, other: _Turn) -> bool:
        if self.backward != other.backward or self.own_set & other.own_read:
            return False
        if self.backward:
            return not other.parent_set & (self.own_read | self.parent_read | self.parent_set)
        return not (self.parent_set or other.parent_set)

    def add(self, other: _Turn) -> None:
        self.loops += other.loops
        for mine, others in zip(self.sets, other.sets, strict=True):
            mine |= others

    @property
    def sets(self) -> tuple[set[int], ...]:
        return self.own_set, self.own_read, self.parent_set, self.parent_read


class _Assembly:
    """The segments of all loops, from the last to the first: what a later one needs, an earlier one keeps."""

    def __init__(
        self, model: Model, small: _OneOfEach, recorder: _Recorder, names: Sequence[str], shapes: Any, output: Any
    ) -> None:
        self.model, self.small, self.recorder, self.graph = model, small, recorder, recorder.graph
        self.links = range(1, len(small.parent))
        self.n_inputs, self.n_outputs = sum(prod(s) for s in shapes(model)), prod(output(model))
        self.input_place = self._inputs(names, shapes)
        self.output_place = self._outputs(output(small))
        self.turns = self._turns()
        self.owner: dict[int, tuple[int, int]] = {}
        for t, turn in enumerate(self.turns):
            for k in turn.loops:
                for i, (begin, end) in recorder.loops[k].span.items():
                    self.owner.update(dict.fromkeys(range(begin, end), (t, i)))
        self.slots = [0, 0, 0]
        self.cell: dict[int, tuple[int, int]] = {}  # area and first slot of a quantity
        for index in sorted(recorder.memory.layout):
            area = self._area(index)
            self.cell[index] = area, self.slots[area]
            self.slots[area] += recorder.memory.layout[index].width
        self.kept: list[dict[int, int]] = [{} for _ in small.parent]  # node: slot, of each link
        self.columns: list[dict[int, int]] = [{} for _ in small.parent]  # node: place among its constants
        self.out: dict[tuple[int, int], list[tuple[int, Place]]] = {}

    def _turns(self) -> list[_Turn]:
        turns: list[_Turn] = []
        for k, loop in enumerate(self.recorder.loops):
            turn = _Turn(loop.backward, [k], set(), set(), set(), set())
            for stores in loop.stores.values():
                for where, index in stores:
                    (turn.own_set if where == "own" else turn.parent_set).add(index)
            for begin, end in loop.span.values():
                for node in range(begin, end):
                    if self.graph.ops[node] == "cell":
                        where, index, _ = self.graph.args[node]
                        (turn.own_read if where == "own" else turn.parent_read).add(index)
            if turns and turns[-1].takes(turn):
                turns[-1].add(turn)
            else:
                turns.append(turn)
        return turns

    def _area(self, index: int) -> int:
        """Where a quantity is kept: for good, or only while links outward or inward of one another take their turns."""
        using = [t for t in self.turns if any(index in s for s in t.sets)]
        if len(using) == 1:
            turn = using[0]
            if not turn.backward and index not in turn.own_read | turn.parent_set:
                return _OUTWARD
            if turn.backward and index in self.recorder.memory.zero:
                return _INWARD
        return _FOR_GOOD

    def _inputs(self, names: Sequence[str], shapes: Any) -> list[tuple[int, Place]]:
        """For each input of the small model its link, and where it comes from for a real one."""
        places: list[tuple[int, Place]] = []
        base = 0
        for name, small, real in zip(names, shapes(self.small), shapes(self.model), strict=True):
            found: list[Any] = [None] * prod(small)
            for i in range(1, len(self.small.parent)):
                slot = self.small.slots[i]
                part = {"q": slot.q, "f_ext": slice(6 * i - 6, 6 * i)}.get(name, slot.v)
                for k in range(part.start, part.stop):
                    found[k] = (i, Place("input", base + k - part.start, _STARTS[name]))
            places += found
            base += prod(real)
        return places

    def _outputs(self, output: tuple[int, ...]) -> list[tuple[int, Place]]:
        small = self.small
        links = range(1, len(small.parent))
        if output == (small.nv,):
            parts = [(i, small.slots[i].v, _V) for i in links]
        elif output == (small.n_links, 4, 4):
            parts = [(i, slice(16 * i - 16, 16 * i), _LINK16) for i in links]
        else:
            raise NotRollableError("its result does not stand link by link")
        return [(i, Place("output", k - s.start, start)) for i, s, start in parts for k in range(s.start, s.stop)]

    def rolled(self, result: Any) -> Rolled:
        end, late = len(self.turns), False
        for node, (i, place) in zip((self.graph.node_of(x) for x in result.reshape(-1)), self.output_place, strict=True):
            t, owner = (end, i) if self.graph.ops[node] in _FREE else self.owner.get(node, (end, i))
            if owner != i:
                raise NotRollableError("a link's result was computed for another one")
            late = late or t == end
            self.out.setdefault((t, i), []).append((node, place))
        sweeps = []
        if late:
            if self.turns and not self.turns[-1].backward:  # what is left to do is done when a link has its last turn
                end -= 1
                for i in self.links:
                    self.out.setdefault((end, i), []).extend(self.out.pop((end + 1, i), []))
            else:
                sweeps.append(Sweep(False, tuple(self._segment(end, i, self.out.get((end, i), [])) for i in self.links)))
        for t in reversed(range(len(self.turns))):
            segments = tuple(self._segment(t, i, self._roots(t, i)) for i in self.links)
            if any(s.targets for s in segments):
                sweeps.append(Sweep(self.turns[t].backward, segments))
        model = self.model
        starts = [[0] * len(model.parent) for _ in range(4)]
        for i, _ in model.outward():
            slot = model.slots[i]
            for table, start in zip(starts, (slot.q.start, slot.v.start, 6 * i - 6, 16 * i - 16), strict=True):
                table[i] = start
        kind = [0] * len(model.parent)
        constants: list[tuple[float, ...]] = [()] * len(model.parent)
        for k, members in enumerate(self.recorder.kinds):
            columns = np.array([self.graph.columns[self.graph.args[n][0]] for n in self.columns[k + 1]]).T
            for row, i in enumerate(members.links):
                kind[i] = k
                constants[i] = tuple(columns[row].tolist()) if len(columns) else ()
        parent = [max(p, 0) for p in model.parent]
        world = [
            cell for index, nodes in self.recorder.first.items() if index in self.cell for cell in self._first(index, nodes)
        ]
        return Rolled(
            n_inputs=self.n_inputs,
            n_outputs=self.n_outputs,
            slots=[self.slots[0] + max(len(kept) for kept in self.kept), *self.slots[1:]],
            shelf=[range(len(parent)), shelves(parent), shelves(parent)],
            kind=kind,
            parent=parent,
            starts=starts,
            constants=constants,
            first=self._segment(-1, 0, world),
            sweeps=tuple(reversed(sweeps)),
        )

    def _first(self, index: int, nodes: list[int]) -> list[tuple[int, Place]]:
        """What the world has of a quantity; its children bring it themselves where it begins with nothing."""
        unused = index not in self.cell or index in self.recorder.memory.zero
        return [] if unused else self._cells(index, "own", nodes)

    def _cells(self, index: int, where: str, nodes: list[int]) -> list[tuple[int, Place]]:
        """A quantity's nodes and their slots, each slot once."""
        places = self.recorder.memory.layout[index].place
        slots = dict(zip(places, nodes, strict=True))
        area, first = self.cell[index]
        return [(node, Place(where, first + p, area)) for p, node in slots.items()]

    def _roots(self, t: int, i: int) -> list[tuple[int, Place]]:
        """What a link's turn leaves behind."""
        memory = self.recorder.memory
        stores: dict[tuple[str, int], list[int]] = {}
        for k in self.turns[t].loops:
            stores.update(self.recorder.loops[k].stores.get(i, {}))
        if self.recorder.kinds[i - 1].is_last:  # the first to come has to bring something
            for index in self.turns[t].parent_set & memory.zero:
                nothing = [self.graph.const(0.0)] * len(memory.layout[index].place)
                stores.setdefault(("parent", index), nothing)
        roots = [cell for (where, index), nodes in stores.items() for cell in self._cells(index, where, nodes)]
        roots += [(n, Place("own", slot)) for n, slot in self.kept[i].items() if self.owner[n] == (t, i)]
        return roots + self.out.get((t, i), [])

    def _segment(self, k: int, i: int, roots: list[tuple[int, Place]]) -> Segment:
        """The straight-line code of loop k for link i that computes the roots."""
        ops, args = self.graph.ops, self.graph.args
        sources: dict[int, Place] = {}
        here: set[int] = set()
        waiting = [node for node, _ in roots]
        while waiting:
            node = waiting.pop()
            if node in sources or node in here or ops[node] == "const":
                continue
            place = self._source(node, k, i)
            if place is not None:
                sources[node] = place
            else:
                here.add(node)
                waiting.extend(args[node])
        graph, moved = Graph(), {}
        for j, node in enumerate(sorted(sources)):
            moved[node] = graph.leaf("input", j)
        for node in sorted(here):
            moved[node] = graph.leaf(ops[node], *(self._moved(x, moved, graph) for x in args[node]))
        outputs = [self._moved(node, moved, graph) for node, _ in roots]
        program = straight_line(graph, outputs, len(sources))
        return Segment(program, tuple(sources[n] for n in sorted(sources)), tuple(place for _, place in roots))

    def _moved(self, node: int, moved: dict[int, int], graph: Graph) -> int:
        return graph.const(self.graph.args[node][0]) if self.graph.ops[node] == "const" else moved[node]

    def _source(self, node: int, k: int, i: int) -> Place | None:
        """Where a value comes from that this segment does not compute."""
        op, args = self.graph.ops[node], self.graph.args[node]
        if op == "column":
            return Place("constant", self.columns[i].setdefault(node, len(self.columns[i])))
        if op == "input":
            link, place = self.input_place[args[0]]
            if link != i:
                raise NotRollableError("a link uses what belongs to another one")
            return place
        owner = self.owner.get(node)
        if owner == (k, i):
            if op != "cell":
                return None
            area, first = self.cell[args[1]]
            return Place(args[0], first + args[2], area)
        if owner is None:
            return None
        if owner[1] != i or owner[0] > k:
            raise NotRollableError("a link uses what was computed for another one")
        return Place("own", self.kept[i].setdefault(node, self.slots[0] + len(self.kept[i])))


def shelves(parent: Sequence[int]) -> list[int]:
    """A shelf for each link that it needs from its own turn to its last child's; in a loop inward, the other way round."""
    until = list(range(len(parent)))  # the last link that needs it
    for i in range(1, len(parent)):
        until[parent[i]] = i
    ending: dict[int, list[int]] = {}
    shelf, free = [0] * len(parent), list[int]()
    used = 0
    for i in range(len(parent)):
        if free:
            shelf[i] = free.pop()
        else:
            shelf[i], used = used, used + 1
        ending.setdefault(until[i], []).append(shelf[i])
        free += ending.pop(i, [])
    return shelf
