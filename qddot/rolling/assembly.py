"""The record of an algorithm's loops into sweeps and segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from qddot.compiler.expr import Graph
from qddot.compiler.program import straight_line
from qddot.compiler.rolled import Place, Rolled, Segment, Sweep
from qddot.errors import NotRollableError
from qddot.model import Model
from qddot.rolling.record import OneOfEach, Recorder

_FREE = frozenset({"const", "input", "column"})  # at hand everywhere
# areas of memory
_FOR_GOOD, _OUTWARD, _INWARD = range(3)
# where a link's numbers stand: columns of the program's `starts`
_Q, _V, _LINK6, _LINK16 = range(4)
_STARTS = {"q": _Q, "v": _V, "a": _V, "tau": _V, "f_ext": _LINK6}


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


class Assembly:
    """The segments of all loops, from the last to the first: what a later one needs, an earlier one keeps."""

    def __init__(
        self, model: Model, small: OneOfEach, recorder: Recorder, names: Sequence[str], shapes: Any, output: Any
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
